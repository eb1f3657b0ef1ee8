//! What can be wrong with the log, by what a caller does about it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rusqlite::ErrorCode;

use crate::notice;

/// Why the log cannot be opened, read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Another host has the directory.
    #[error("{path} is in use by process {pid}; stop that host, or give this one another data directory")]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The process that wrote its number into the lock file; `unknown` before it did.
        pid: String,
    },
    /// Something else has the directory's name.
    #[error("the data directory {path} is not a directory; move what is there, or name another one")]
    NotADirectory {
        /// What was named.
        path: PathBuf,
    },
    /// This user may not use the directory.
    #[error("permission denied on {path}; the data directory must belong to the user that klbr runs as")]
    Denied {
        /// The directory, or the file in it.
        path: PathBuf,
    },
    /// The directory is on a file system that is mounted read-only.
    #[error("{path} is on a read-only file system; mount it writable, or name another data directory")]
    ReadOnlyFileSystem {
        /// The directory, or the file in it.
        path: PathBuf,
    },
    /// The system refuses the directory for another reason.
    #[error("the data directory cannot be used: {path}")]
    Directory {
        /// The directory, or the file in it.
        path: PathBuf,
        /// What the system said.
        source: Arc<std::io::Error>,
    },
    /// A later version of the program wrote it.
    #[error(
        "{path} has schema {found}, this version knows {known}; run the version that wrote it, or a later one"
    )]
    NewerSchema {
        /// The database.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The newest that this program knows.
        known: i64,
    },
    /// A migration that was applied is not the one that this program has.
    #[error("{path} was made by another migration {number}; it is not a log of this program")]
    ForeignSchema {
        /// The database.
        path: PathBuf,
        /// The migration.
        number: i64,
    },
    /// A file without the marks of SQLite has the log's name. Nothing was changed.
    #[error("{path} is not a database; move it away to begin an empty log, or restore a backup")]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// The file system cannot do what the write-ahead log needs (some network file systems).
    #[error(
        "{path} got the journal mode {mode:?} instead of \"wal\"; put the data directory on a local disk"
    )]
    Journal {
        /// The database.
        path: PathBuf,
        /// What SQLite chose instead.
        mode: String,
    },
    /// The writer thread could not be started.
    #[error("the writer thread of the log cannot be started")]
    Thread(#[source] Arc<std::io::Error>),
    /// A damaged database. Nothing is written after this.
    #[error("the log is damaged; stop, keep a copy of the data directory, and restore a backup")]
    Corrupt(#[source] Arc<rusqlite::Error>),
    /// No space. Nothing is written after this.
    #[error("no space is left for the log; make room on its file system and start again")]
    Full,
    /// The database refuses writes. Nothing is written after this.
    #[error("the log cannot be written; check the owner and the mount of its data directory")]
    ReadOnly(#[source] Arc<rusqlite::Error>),
    /// The disk, a quota or a file size limit refuses a read or a write. Nothing is written after this.
    #[error("the disk of the log fails; check its health, its quota and the limits of the service")]
    Disk(#[source] Arc<rusqlite::Error>),
    /// An event that contradicts the log. Nothing of its transaction was written.
    #[error("an event that contradicts the log: {0}")]
    Projection(String),
    /// A row that this version cannot read.
    #[error("the log has a row that this version cannot read: {0}")]
    Row(String),
    /// A payload that cannot be read or written as JSON.
    #[error("{event} has a payload that this version cannot read: {problem}")]
    Payload {
        /// The event, or what was to become one.
        event: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Anything else that SQLite says.
    #[error("the log failed to {doing}")]
    Sqlite {
        /// What was tried.
        doing: &'static str,
        /// What SQLite said.
        source: Arc<rusqlite::Error>,
    },
    /// SQLite undid the transaction under the job; nothing of it was written.
    #[error("the log undid the transaction of this job")]
    Undone,
    /// A job panicked; nothing of it was written.
    #[error("a job on the log panicked; nothing of it was written")]
    Panicked,
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
}

impl StoreError {
    /// Whether no later write can be trusted to succeed.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Corrupt(_) | Self::Full | Self::ReadOnly(_) | Self::Disk(_) | Self::Closed => true,
            Self::Locked { .. }
            | Self::NotADirectory { .. }
            | Self::Denied { .. }
            | Self::ReadOnlyFileSystem { .. }
            | Self::Directory { .. }
            | Self::NewerSchema { .. }
            | Self::ForeignSchema { .. }
            | Self::NotADatabase { .. }
            | Self::Journal { .. }
            | Self::Thread(_)
            | Self::Projection(_)
            | Self::Row(_)
            | Self::Payload { .. }
            | Self::Sqlite { .. }
            | Self::Undone
            | Self::Panicked => false,
        }
    }

    /// What the system said about the directory, or about a file in it.
    pub(super) fn directory(path: &Path, error: std::io::Error) -> Self {
        use std::io::ErrorKind;
        let path = path.to_owned();
        match error.kind() {
            ErrorKind::PermissionDenied => Self::Denied { path },
            ErrorKind::ReadOnlyFilesystem => Self::ReadOnlyFileSystem { path },
            ErrorKind::NotADirectory => Self::NotADirectory { path },
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Full,
            _ => Self::Directory { path, source: Arc::new(error) },
        }
    }

    /// The same error of a log whose directory this is: a full disk shows in some places only as a
    /// failed operation (SQLite's shared index grows by a whole page at once).
    pub(super) fn on(self, data: &Path) -> Self {
        match self {
            Self::Disk(_) if is_full(data) => Self::Full,
            other => other,
        }
    }
}

/// Whether the file system has no room for the smallest thing that the log makes.
fn is_full(data: &Path) -> bool {
    const SHARED_INDEX_BYTES: u64 = 32 * 1024;
    rustix::fs::statvfs(data)
        .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < SHARED_INDEX_BYTES)
}

/// Sorts what SQLite said by what is to be done about it.
pub(super) fn trying(doing: &'static str) -> impl FnOnce(rusqlite::Error) -> StoreError {
    move |error| match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Corrupt(Arc::new(error)),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
            StoreError::ReadOnly(Arc::new(error))
        }
        Some(ErrorCode::SystemIoFailure) => StoreError::Disk(Arc::new(error)),
        _ => StoreError::Sqlite { doing, source: Arc::new(error) },
    }
}

/// A constraint that refused a row is the log's own contradiction.
pub(super) fn contradiction(what: impl FnOnce() -> String) -> impl FnOnce(rusqlite::Error) -> StoreError {
    move |error| match error.sqlite_error_code() {
        Some(ErrorCode::ConstraintViolation) => StoreError::Projection(what()),
        _ => trying("project an event")(error),
    }
}

/// A stored text that is not what its column says.
pub(super) fn unreadable(problem: impl std::fmt::Display) -> StoreError {
    StoreError::Row(problem.to_string())
}

/// The first final error of a log, whoever met it: from then on nothing is written.
#[derive(Debug, Clone, Default)]
pub(super) struct FirstFailure(Arc<OnceLock<StoreError>>);

impl FirstFailure {
    pub(super) fn get(&self) -> Option<&StoreError> {
        self.0.get()
    }

    /// Remembers the first one, and tells the journal once.
    pub(super) fn remember(&self, error: &StoreError) {
        if self.0.set(error.clone()).is_ok() {
            tracing::error!(message_id = notice::LOG_FAILED, "no event is written from here on: {error}");
        }
    }
}
