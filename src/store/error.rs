//! What can be wrong with the log, by what a caller does about it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::ErrorCode;

/// Why the log cannot be opened, read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Another host has the directory.
    #[error("{path} is in use by process {pid}; stop that host, or give this one another data directory")]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The process that wrote its number into the lock file.
        pid: String,
    },
    /// The directory cannot be made or used.
    #[error("the data directory {path} cannot be used: {problem}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said, and what to do.
        problem: String,
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
    /// Not a database, or a damaged one. Nothing is written after this.
    #[error("the log is damaged ({0}); stop, keep a copy of the data directory, and restore a backup")]
    Corrupt(Arc<rusqlite::Error>),
    /// No space. Nothing is written after this.
    #[error("no space is left for the log; make room on its file system and start again")]
    Full,
    /// The file system refuses writes.
    #[error("the log cannot be written ({0}); check the permissions and the mount of its data directory")]
    ReadOnly(Arc<rusqlite::Error>),
    /// An event that contradicts the log. Nothing of its transaction was written.
    #[error("an event that contradicts the log: {0}")]
    Projection(String),
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
    /// A job panicked; nothing of it was written.
    #[error("a write to the log panicked")]
    Panicked,
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
}

impl StoreError {
    /// Whether no later write can be trusted to succeed.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Corrupt(_) | Self::Full | Self::ReadOnly(_) | Self::Closed => true,
            Self::Locked { .. }
            | Self::Directory { .. }
            | Self::NewerSchema { .. }
            | Self::ForeignSchema { .. }
            | Self::Projection(_)
            | Self::Payload { .. }
            | Self::Sqlite { .. }
            | Self::Panicked => false,
        }
    }

    pub(super) fn directory(path: &Path, problem: impl std::fmt::Display) -> Self {
        Self::Directory { path: path.to_owned(), problem: problem.to_string() }
    }
}

/// Sorts what SQLite said by what is to be done about it.
pub(super) fn trying(doing: &'static str) -> impl FnOnce(rusqlite::Error) -> StoreError {
    move |error| match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Corrupt(Arc::new(error)),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
            StoreError::ReadOnly(Arc::new(error))
        }
        // SQLite reports a full disk in some places as a failed write.
        Some(ErrorCode::SystemIoFailure) => StoreError::ReadOnly(Arc::new(error)),
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
