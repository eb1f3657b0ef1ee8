//! Opening a data directory: the folder, the lock, the settings, the migrations.

use std::fs::File;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _};

use super::error::trying;
use super::lock::Lock;
use super::{FILE_NAME, StoreError};
use crate::id::Digest;

/// The migrations, in order. One that has landed is never edited.
const MIGRATIONS: &[&str] = &[include_str!("migrations/0001_log.sql")];

/// Pages of the database that a connection keeps, in KiB: the log is read at its end.
const WRITER_CACHE_KIB: i64 = 1_024;
/// The write-ahead log is cut back to this once a long read no longer needs more of it.
const WAL_BYTES_KEPT: i64 = 16 * 1_048_576;

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
    make_private(&path)?;
    let connection = connect(&path).map_err(|error| not_a_database(error, &path).on(data))?;
    Ok(Opened { connection, lock, path })
}

/// SQLite says the same of a damaged page and of a file that was never its own; only at the first
/// look is it the latter.
pub(super) fn not_a_database(error: StoreError, path: &Path) -> StoreError {
    match error {
        StoreError::Corrupt(source) if source.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            StoreError::NotADatabase { path: path.to_owned() }
        }
        other => other,
    }
}

fn connect(path: &Path) -> Result<Connection, StoreError> {
    let mut connection =
        Connection::open_with_flags(path, OpenFlags::default()).map_err(trying("open its file"))?;
    refuse_newer(&connection, path)?;
    configure(&connection, path)?;
    migrate(&mut connection, path)?;
    Ok(connection)
}

fn make_directory(data: &Path) -> Result<(), StoreError> {
    match std::fs::metadata(data) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(StoreError::NotADirectory { path: data.to_owned() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(data)
            .map_err(|error| StoreError::directory(data, error)),
        Err(error) => Err(StoreError::directory(data, error)),
    }
}

/// An existing directory may be readable by others; what the agent said is not. SQLite gives its
/// sidecars the mode of the database.
fn make_private(path: &Path) -> Result<(), StoreError> {
    // Under the lock and before the first connection: closing this descriptor drops nobody's locks.
    match File::options().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(StoreError::directory(path, error)),
    }
}

/// The settings of a connection that writes.
fn configure(connection: &Connection, path: &Path) -> Result<(), StoreError> {
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
        return Err(StoreError::Journal { path: path.to_owned(), mode });
    }
    pragma("synchronous", &"full")?;
    connection
        .pragma_update_and_check(None, "journal_size_limit", WAL_BYTES_KEPT, |_| Ok(()))
        .map_err(trying("set up its journal"))?;
    connection.set_prepared_statement_cache_capacity(128);
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

/// Looks before anything is changed, the journal mode included. Answers the schema that was found.
pub(super) fn refuse_newer(connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    let known = MIGRATIONS.len() as i64;
    let found: i64 = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(trying("read its schema version"))?;
    if found > known {
        return Err(StoreError::NewerSchema { path: path.to_owned(), found, known });
    }
    Ok(found)
}

/// Applies what is missing, all in one transaction, and refuses what is newer or not ours.
pub(super) fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let found = refuse_newer(connection, path)?;
    let foreign = |number| StoreError::ForeignSchema { path: path.to_owned(), number };
    let transaction = connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .map_err(trying("begin its migration"))?;
    if found == 0 {
        let tables: i64 = transaction
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .map_err(trying("read its schema"))?;
        if tables > 0 {
            return Err(foreign(0));
        }
        transaction
            .execute_batch(
                "CREATE TABLE migrations (number INTEGER PRIMARY KEY, digest TEXT NOT NULL) STRICT",
            )
            .map_err(trying("migrate"))?;
    }
    for (number, sql) in (1_i64..).zip(MIGRATIONS) {
        let digest = Digest::of(sql.as_bytes());
        let applied: Option<String> = transaction
            .query_row("SELECT digest FROM migrations WHERE number = ?1", [number], |row| row.get(0))
            .optional()
            .map_err(|error| match trying("read its migrations")(error) {
                // There is no such table, or it is another one: somebody else's version 1.
                StoreError::Sqlite { .. } => foreign(number),
                other => other,
            })?;
        match applied {
            Some(applied) if applied == digest.as_str() && number <= found => {}
            None if number > found => {
                transaction.execute_batch(sql).map_err(trying("migrate"))?;
                transaction
                    .execute("INSERT INTO migrations VALUES (?1, ?2)", (number, digest.as_str()))
                    .map_err(trying("migrate"))?;
            }
            Some(_) | None => return Err(foreign(number)),
        }
    }
    if found < MIGRATIONS.len() as i64 {
        transaction
            .pragma_update(None, "user_version", MIGRATIONS.len() as i64)
            .map_err(trying("migrate"))?;
    }
    transaction.commit().map_err(trying("commit its migration"))
}
