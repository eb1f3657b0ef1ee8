//! Where the operator socket comes from: bound here, or handed over by a service manager.

use rustix::fs::{CWD, FlockOperation, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of a Unix socket's path: `sun_path` of unix(7) without its final zero.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Connections that the kernel keeps for us until they are accepted.
const BACKLOG: i32 = 512;
/// Longest wait for another host that is binding in the same directory.
const DIRECTORY_LOCK_MS_MAX: u64 = 2_000;

/// Why there is no operator socket.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// The kernel has no room for the path.
    #[error(
        "the socket path {path} has {bytes} bytes and a Unix socket's path at most {SOCKET_PATH_BYTES_MAX}; \
         choose a shorter directory with --socket"
    )]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// The directory is missing, or is none, or cannot be opened.
    #[error(
        "cannot use {directory}, the directory of the socket; make it first, or choose another with --socket"
    )]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Somebody answers there.
    #[error("another host is listening on {path}; stop it first, or choose another with --socket")]
    Live {
        /// The socket.
        path: PathBuf,
    },
    /// There is something that is not a socket, and it is not ours to remove.
    #[error("{path} is there already and is not a socket; remove it, or choose another with --socket")]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The system refused one step.
    #[error("cannot {step} the socket {path}")]
    System {
        /// What was tried.
        step: &'static str,
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A listening operator socket.
#[derive(Debug)]
pub struct Listener {
    pub(super) socket: std::os::unix::net::UnixListener,
    ours: Option<Bound>,
    /// Whether the file's mode and group say who may speak, and not its owner alone.
    for_its_group: bool,
}

/// A socket file that this process made: what it removes at its end, and nothing else.
#[derive(Debug)]
struct Bound {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl From<std::os::unix::net::UnixListener> for Listener {
    /// Takes a socket that somebody else bound, and who keeps its file.
    fn from(socket: std::os::unix::net::UnixListener) -> Self {
        Self { socket, ours: None, for_its_group: false }
    }
}

impl Listener {
    /// The user that is let in besides root; `None` where the file's mode and group say who is.
    pub fn owner(&self) -> Option<u32> {
        (!self.for_its_group).then(|| rustix::process::geteuid().as_raw())
    }

    /// Lets in whoever the file's mode and group let connect.
    #[must_use]
    pub fn for_its_group(mut self) -> Self {
        self.for_its_group = true;
        self
    }

    /// Binds `path` with mode 0600. A stale socket is replaced; a live one, and anything that is not
    /// a socket, stays and is an error.
    pub fn bind(path: &Path) -> Result<Self, OperatorError> {
        let bytes = path.as_os_str().len();
        if bytes > SOCKET_PATH_BYTES_MAX {
            return Err(OperatorError::PathTooLong { path: path.to_owned(), bytes });
        }
        // Two hosts that start at one time would each take the other's new socket for a stale one:
        // looking, removing and listening are one step under a lock on the directory.
        let _lock = lock_directory(path)?;
        remove_stale(path)?;
        let trying = |step: &'static str| {
            move |source: Errno| OperatorError::System { step, path: path.to_owned(), source: source.into() }
        };
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .map_err(trying("make"))?;
        let address = SocketAddrUnix::new(path).map_err(trying("name"))?;
        rustix::net::bind(&socket, &address).map_err(trying("bind"))?;
        // The file has whatever the umask left. That is no gap: a socket that does not listen yet
        // refuses everybody, and it listens only after the mode is right.
        rustix::fs::chmodat(CWD, path, Mode::RUSR | Mode::WUSR, rustix::fs::AtFlags::empty())
            .map_err(trying("protect"))?;
        rustix::net::listen(&socket, BACKLOG).map_err(trying("listen on"))?;
        let made = std::fs::symlink_metadata(path).map_err(|source| OperatorError::System {
            step: "look at",
            path: path.to_owned(),
            source,
        })?;
        let ours = Bound { path: path.to_owned(), device: made.dev(), inode: made.ino() };
        Ok(Self { socket: socket.into(), ours: Some(ours), for_its_group: false })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some(bound) = &self.ours else { return };
        // Another host may have put its own socket there since.
        let still_ours = std::fs::symlink_metadata(&bound.path)
            .is_ok_and(|there| (there.dev(), there.ino()) == (bound.device, bound.inode));
        if still_ours {
            // A file that cannot be removed is a stale socket, which the next host replaces.
            let _ = std::fs::remove_file(&bound.path);
        }
    }
}

fn lock_directory(path: &Path) -> Result<OwnedFd, OperatorError> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    let wrong = |source: std::io::Error| OperatorError::Directory { directory: directory.to_owned(), source };
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let opened = rustix::fs::open(directory, flags, Mode::empty()).map_err(|e| wrong(e.into()))?;
    let start = Instant::now();
    loop {
        match rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(opened),
            Err(Errno::WOULDBLOCK) if start.elapsed() < Duration::from_millis(DIRECTORY_LOCK_MS_MAX) => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(errno) => return Err(wrong(errno.into())),
        }
    }
}

/// Removes a socket that nobody listens on.
fn remove_stale(path: &Path) -> Result<(), OperatorError> {
    let system = |step, source| OperatorError::System { step, path: path.to_owned(), source };
    let there = match std::fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(system("look at", error)),
    };
    if !there.file_type().is_socket() {
        return Err(OperatorError::NotASocket { path: path.to_owned() });
    }
    match probe(path) {
        Err(Errno::CONNREFUSED) => {}
        Err(Errno::NOENT) => return Ok(()),
        // A full backlog is a sign of life.
        Ok(()) | Err(Errno::AGAIN) => return Err(OperatorError::Live { path: path.to_owned() }),
        Err(errno) => return Err(system("connect to", errno.into())),
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(system("replace", error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn probe(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_bound_socket_is_for_its_owner_alone_and_goes_with_its_listener() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("klbr ö.sock");
        let listener = Listener::bind(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        drop(listener);

        assert_eq!(mode & 0o777, 0o600);
        assert!(!path.exists());
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("klbr.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let live = Listener::bind(&path).unwrap();

        assert!(matches!(Listener::bind(&path), Err(OperatorError::Live { .. })));
        assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
        drop(live);
    }

    #[test]
    fn a_listener_leaves_the_socket_of_its_successor() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("klbr.sock");
        let first = Listener::bind(&path).unwrap();
        // Held at another name so that the inode cannot be given out again.
        std::fs::rename(&path, folder.path().join("old")).unwrap();
        let second = Listener::bind(&path).unwrap();
        drop(first);

        assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
        drop(second);
    }

    #[test]
    fn a_file_a_long_path_and_a_missing_directory_are_each_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "mine").unwrap();
        let long = folder.path().join("x".repeat(SOCKET_PATH_BYTES_MAX));
        let missing = folder.path().join("no/klbr.sock");

        assert!(matches!(Listener::bind(&file), Err(OperatorError::NotASocket { .. })));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
        assert!(Listener::bind(&long).unwrap_err().to_string().contains("at most 107"));
        assert!(matches!(Listener::bind(&missing), Err(OperatorError::Directory { .. })));
    }
}
