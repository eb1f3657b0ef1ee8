//! One host per data directory.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::StoreError;

/// The directory is this process's while this lives.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the directory, or says who has it.
    pub(super) fn take(data: &Path) -> Result<Self, StoreError> {
        let path = data.join("lock");
        let open =
            File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut file = open.map_err(|error| StoreError::directory(&path, error))?;
        if let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(StoreError::directory(&path, error.into()));
            }
            let mut pid = String::new();
            // Whoever holds it wrote its number, or has not yet: the number is for people only.
            let _ = file.read_to_string(&mut pid);
            let pid = pid.trim();
            let pid = if pid.is_empty() { "unknown" } else { pid }.to_owned();
            return Err(StoreError::Locked { path: data.to_owned(), pid });
        }
        // As above: the lock is what counts.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self { _file: file })
    }
}
