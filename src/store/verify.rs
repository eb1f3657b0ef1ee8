//! Whether the log is whole, and whether every projection is what its events say.

use std::path::Path;

use rusqlite::Connection;
use rusqlite::types::Value;

use super::error::trying;
use super::project::replay;
use super::{FILE_NAME, Snapshot, StoreError, events, open};

/// The tables that are made of events.
const PROJECTIONS: &[&str] = &[
    "sessions",
    "arrivals",
    "blocks",
    "requests",
    "responses",
    "route_answers",
    "executions",
    "effects",
    "deliveries",
    "generations",
    "behaviors",
];

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Events that were read.
    pub events: u64,
    /// What SQLite's own check and the rebuild say; empty where all is well.
    pub problems: Vec<String>,
}

/// Reads the whole log beside whoever writes it, makes every projection anew in memory, and
/// compares.
pub fn verify(data: &Path) -> Result<Report, StoreError> {
    let path = data.join(FILE_NAME);
    let connection = open::reader(&path)?;
    let transaction = connection.unchecked_transaction().map_err(trying("read"))?;
    let snapshot = Snapshot { connection: &connection };
    let integrity: Vec<String> = snapshot.all("PRAGMA integrity_check", &[], |row| row.get(0))?;
    let mut problems: Vec<String> = integrity.into_iter().filter(|line| line != "ok").collect();
    let mut rebuilt = Connection::open_in_memory().map_err(trying("open a database in memory"))?;
    open::migrate(&mut rebuilt, Path::new("(in memory)"))?;
    rebuilt.execute_batch("BEGIN").map_err(trying("begin"))?;
    let events = events::every(&snapshot, |event, payload| replay(&rebuilt, &event, payload))?;
    rebuilt.execute_batch("COMMIT").map_err(trying("commit"))?;
    for table in PROJECTIONS {
        if rows(&connection, table)? != rows(&rebuilt, table)? {
            problems.push(format!("the table {table} is not what the events say"));
        }
    }
    drop(transaction);
    Ok(Report { events, problems })
}

fn rows(connection: &Connection, table: &str) -> Result<Vec<Vec<Value>>, StoreError> {
    let read = || {
        let mut statement = connection.prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2"))?;
        let columns = statement.column_count();
        statement
            .query_map([], |row| (0..columns).map(|column| row.get(column)).collect())?
            .collect::<rusqlite::Result<Vec<Vec<Value>>>>()
    };
    read().map_err(trying("read"))
}
