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
    /// What is wrong, a sentence each; empty where all is well.
    pub problems: Vec<String>,
}

/// Reads the whole log beside whoever writes it, makes every projection anew in a temporary
/// database, and compares.
///
/// What is wrong with the log is in the report; an error says why it could not be looked at.
pub fn verify(data: &Path) -> Result<Report, StoreError> {
    let path = data.join(FILE_NAME);
    std::fs::metadata(&path).map_err(|error| StoreError::directory(&path, error))?;
    let connection = open::reader(&path)?;
    open::refuse_newer(&connection, &path).map_err(|error| open::not_a_database(error, &path))?;
    let transaction = connection.unchecked_transaction().map_err(trying("read"))?;
    let mut report = Report::default();
    match check(&Snapshot { connection: &connection }, &mut report) {
        // It went too far to read on: what was found until then still counts.
        Err(StoreError::Corrupt(source)) => report.problems.push(source.to_string()),
        other => other?,
    }
    drop(transaction);
    Ok(report)
}

fn check(log: &Snapshot<'_>, report: &mut Report) -> Result<(), StoreError> {
    let integrity: Vec<String> = log.all("PRAGMA integrity_check", &[], |row| row.get(0))?;
    report.problems.extend(integrity.into_iter().filter(|line| line != "ok"));
    let rebuilt = rebuild(log, report)?;
    let rebuilt = Snapshot { connection: &rebuilt };
    let schema = "SELECT type, name, sql FROM sqlite_schema ORDER BY type, name";
    compare(log, &rebuilt, "sqlite_schema", schema, report)?;
    compare(log, &rebuilt, "migrations", "SELECT * FROM migrations ORDER BY number", report)?;
    for table in PROJECTIONS {
        compare(log, &rebuilt, table, &format!("SELECT * FROM {table} ORDER BY 1, 2"), report)?;
    }
    Ok(())
}

/// A temporary database (a file without a name, once it is large) with what the events say.
fn rebuild(log: &Snapshot<'_>, report: &mut Report) -> Result<Connection, StoreError> {
    let mut rebuilt = Connection::open("").map_err(trying("open a temporary database"))?;
    rebuilt.execute_batch("PRAGMA synchronous = off").map_err(trying("set up a temporary database"))?;
    rebuilt.set_prepared_statement_cache_capacity(128);
    open::migrate(&mut rebuilt, Path::new("(temporary)"))?;
    rebuilt.execute_batch("BEGIN").map_err(trying("begin"))?;
    let mut last = 0;
    events::every(log, |event| {
        report.events += 1;
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                report.problems.push(error.to_string());
                return Ok(());
            }
        };
        if event.id.0 != last + 1 {
            report.problems.push(format!("no event between event:{last} and {}", event.id.reference()));
        }
        last = event.id.0;
        match replay(&rebuilt, &event) {
            Err(StoreError::Projection(problem)) => {
                report
                    .problems
                    .push(format!("{} contradicts what is before it: {problem}", event.id.reference()));
                Ok(())
            }
            other => other,
        }
    })?;
    rebuilt.execute_batch("COMMIT").map_err(trying("commit"))?;
    Ok(rebuilt)
}

/// Runs one query on both sides, in step, and says whether they differ.
fn compare(
    log: &Snapshot<'_>,
    rebuilt: &Snapshot<'_>,
    table: &str,
    sql: &str,
    report: &mut Report,
) -> Result<(), StoreError> {
    let same = || {
        let (mut left, mut right) = (log.connection.prepare(sql)?, rebuilt.connection.prepare(sql)?);
        let columns = left.column_count();
        if columns != right.column_count() {
            return Ok(false);
        }
        let (mut left, mut right) = (left.query([])?, right.query([])?);
        loop {
            let row = values(left.next()?, columns)?;
            if row != values(right.next()?, columns)? {
                return Ok(false);
            }
            if row.is_none() {
                return Ok(true);
            }
        }
    };
    match same().map_err(trying("read")) {
        Ok(true) => {}
        Ok(false) => report.problems.push(format!("the table {table} is not what the events say")),
        Err(StoreError::Sqlite { source, .. }) => {
            report.problems.push(format!("the table {table}: {source}"));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

fn values(row: Option<&rusqlite::Row<'_>>, columns: usize) -> rusqlite::Result<Option<Vec<Value>>> {
    row.map(|row| (0..columns).map(|column| row.get(column)).collect()).transpose()
}
