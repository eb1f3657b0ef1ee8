//! Opening a data directory: the folder, the lock, the settings, the migrations.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use super::error::trying;
use super::lock::Lock;
use super::{FILE_NAME, StoreError};
use crate::id::Digest;

/// The migrations, in order. One that has landed is never edited.
const MIGRATIONS: &[&str] = &[include_str!("migrations/0001_log.sql")];

/// Pages of the database that a connection keeps, in KiB: the log is read at its end.
const WRITER_CACHE_KIB: i64 = 1_024;

pub(super) struct Opened {
    pub(super) connection: Connection,
    pub(super) lock: Lock,
    pub(super) path: PathBuf,
}

/// Makes the directory where it is missing, locks it, and brings the database up to date.
pub(super) fn open(data: &Path) -> Result<Opened, StoreError> {
    make_directory(data)?;
    let lock = Lock::take(data)?;
    let path = data.join(FILE_NAME);
    let mut connection =
        Connection::open_with_flags(&path, OpenFlags::default()).map_err(trying("open its file"))?;
    configure(&connection)?;
    migrate(&mut connection, &path)?;
    Ok(Opened { connection, lock, path })
}

fn make_directory(data: &Path) -> Result<(), StoreError> {
    match std::fs::metadata(data) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(StoreError::directory(data, "it is not a directory")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(data)
            .map_err(|error| StoreError::directory(data, error)),
        Err(error) => Err(StoreError::directory(data, error)),
    }
}

/// The settings of every connection.
fn configure(connection: &Connection) -> Result<(), StoreError> {
    let pragma = |name, value: &dyn rusqlite::ToSql| {
        connection.pragma_update(None, name, value).map_err(trying("set up its connection"))
    };
    // Nothing of a damaged schema runs.
    pragma("trusted_schema", &false)?;
    pragma("foreign_keys", &true)?;
    pragma("cache_size", &(-WRITER_CACHE_KIB))?;
    // Reading the mode back is what notices that it could not be set.
    let mode: String = connection
        .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))
        .map_err(trying("set up its journal"))?;
    if mode != "wal" {
        return Err(StoreError::Projection(format!("the journal mode is {mode:?}, it must be \"wal\"")));
    }
    pragma("synchronous", &"full")?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// A connection that only reads.
pub(super) fn reader(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(trying("open its file"))?;
    connection.pragma_update(None, "cache_size", -256).map_err(trying("set up its connection"))?;
    connection.busy_timeout(std::time::Duration::from_secs(5)).map_err(trying("set up its connection"))?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Applies what is missing, all in one transaction, and refuses what is newer or not ours.
pub(super) fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let known = MIGRATIONS.len() as i64;
    let found: i64 = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(trying("read its schema version"))?;
    if found > known {
        return Err(StoreError::NewerSchema { path: path.to_owned(), found, known });
    }
    let transaction = connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .map_err(trying("begin its migration"))?;
    transaction
        .execute_batch(
            "CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, digest TEXT NOT NULL) STRICT",
        )
        .map_err(trying("migrate"))?;
    for (number, sql) in (1_i64..).zip(MIGRATIONS) {
        let digest = Digest::of(sql.as_bytes());
        let applied: Option<String> = transaction
            .query_row("SELECT digest FROM migrations WHERE number = ?1", [number], |row| row.get(0))
            .optional()
            .map_err(trying("read its migrations"))?;
        match applied {
            Some(applied) if applied == digest.as_str() => {}
            Some(_) => return Err(StoreError::ForeignSchema { path: path.to_owned(), number }),
            None if number <= found => {
                return Err(StoreError::ForeignSchema { path: path.to_owned(), number });
            }
            None => {
                transaction.execute_batch(sql).map_err(trying("migrate"))?;
                transaction
                    .execute("INSERT INTO migrations VALUES (?1, ?2)", (number, digest.as_str()))
                    .map_err(trying("migrate"))?;
            }
        }
    }
    transaction.pragma_update(None, "user_version", known).map_err(trying("migrate"))?;
    transaction.commit().map_err(trying("commit its migration"))
}
