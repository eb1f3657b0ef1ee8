//! The private folder of control sockets.

use std::path::{Path, PathBuf};

use super::ServeError;
use crate::id::Digest;

/// What is left of a socket's 107 bytes for the folder, after `/klbr-gen-<20 digits>-<8>/control.sock`.
const RUN_PATH_BYTES_MAX: usize = 107 - 53;

/// Names this data directory where a worker's environment is looked at.
pub(super) fn data_tag(data: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    Digest::of(data.as_os_str().as_bytes()).as_str()[..16].to_owned()
}

/// Makes the folder anew: in the data directory where a socket's path fits, else in the unit's or the
/// user's runtime directory, or the temporary one.
pub(super) fn make(data: &Path, tag: &str) -> Result<PathBuf, ServeError> {
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
    let inside = data.join("run");
    let path = if inside.as_os_str().len() <= RUN_PATH_BYTES_MAX {
        inside
    } else {
        ["RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"]
            .into_iter()
            .find_map(std::env::var_os)
            .map_or_else(std::env::temp_dir, PathBuf::from)
            .join(format!("klbr-{tag}"))
    };
    let failed = |source| ServeError::Folder { what: "run folder", path: path.clone(), source };
    match std::fs::remove_dir_all(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
    let metadata = std::fs::metadata(&path).map_err(failed)?;
    let ours = metadata.uid() == rustix::process::geteuid().as_raw();
    if !ours || metadata.permissions().mode() & 0o077 != 0 {
        return Err(failed(std::io::Error::other("it is not private to this user")));
    }
    Ok(path)
}

/// One that cannot be removed is emptied by the next start.
pub(super) fn remove(run: &Path) {
    if let Err(error) = std::fs::remove_dir_all(run) {
        tracing::debug!(%error, "the run folder stays");
    }
}
