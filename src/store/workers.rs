//! Reading executions and generations.

use rusqlite::{Row, ToSql};

use super::error::unreadable;
use super::sessions::session_id;
use super::{Snapshot, StoreError};
use crate::cell::Role;
use crate::event::{BehaviorActivated, Body, CellOrigin};
use crate::id::{EventId, ExecutionId, GenerationId, SessionId};

/// One cell, as far as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionRow {
    /// Its identity.
    pub execution: ExecutionId,
    /// Its session.
    pub session: SessionId,
    /// The generation that runs it, or ran it.
    pub generation: GenerationId,
    /// Who asked for it.
    pub origin: CellOrigin,
    /// Its `cell.started`.
    pub started: EventId,
    /// When that was.
    pub started_at_ms: i64,
    /// Its `cell.completed`.
    pub completed: Option<EventId>,
}

/// One life of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerationRow {
    /// Its session.
    pub session: SessionId,
    /// What it is for.
    pub role: Role,
    /// Its identity.
    pub generation: GenerationId,
    /// Its unit.
    pub unit: String,
    /// The containment that held it.
    pub containment: String,
    /// Its `kernel.reset`.
    pub started: EventId,
    /// Its `generation.ended`.
    pub ended: Option<EventId>,
}

const EXECUTION: &str = "execution, session, generation, origin, started, started_at_ms, completed";
const GENERATION: &str = "session, role, generation, unit, containment, started, ended";

impl Snapshot<'_> {
    /// Cells that have not completed.
    pub fn open_executions(&self) -> Result<Vec<ExecutionRow>, StoreError> {
        self.executions("completed IS NULL", &[])
    }

    /// One cell.
    pub fn execution(&self, id: &ExecutionId) -> Result<Option<ExecutionRow>, StoreError> {
        Ok(self.executions("execution = ?1", &[&id.as_str()])?.pop())
    }

    /// The cells of a response's calls.
    pub fn executions_of_response(&self, response: EventId) -> Result<Vec<ExecutionRow>, StoreError> {
        self.executions("response = ?1", &[&response.0])
    }

    fn executions(&self, which: &str, values: &[&dyn ToSql]) -> Result<Vec<ExecutionRow>, StoreError> {
        let sql = format!("SELECT {EXECUTION} FROM executions WHERE {which} ORDER BY started");
        self.all(&sql, values, execution)?.into_iter().collect()
    }

    /// A number that no execution has.
    pub fn next_execution_number(&self) -> Result<u64, StoreError> {
        // The newest event's number grows with every event, and each cell is an event.
        Ok(self.head()?.0.unsigned_abs() + 1)
    }

    /// Generations that have not ended.
    pub fn open_generations(&self) -> Result<Vec<GenerationRow>, StoreError> {
        self.generations("ended IS NULL ORDER BY started", &[])
    }

    /// The newest generation of a session and role.
    pub fn last_generation(
        &self,
        session: &SessionId,
        role: Role,
    ) -> Result<Option<GenerationRow>, StoreError> {
        let which = "session = ?1 AND role = ?2 ORDER BY started DESC LIMIT 1";
        Ok(self.generations(which, &[&session.as_str(), &role.as_str()])?.pop())
    }

    fn generations(&self, which: &str, values: &[&dyn ToSql]) -> Result<Vec<GenerationRow>, StoreError> {
        let sql = format!("SELECT {GENERATION} FROM generations WHERE {which}");
        self.all(&sql, values, generation)?.into_iter().collect()
    }

    /// One more than the highest number of a logged generation.
    pub fn next_generation_number(&self, session: &SessionId, role: Role) -> Result<u64, StoreError> {
        let last = self.last_generation(session, role)?;
        let number = last.and_then(|row| row.generation.as_str().strip_prefix("g-")?.parse::<u64>().ok());
        Ok(number.unwrap_or(0) + 1)
    }

    /// The policy in force.
    pub fn behavior(&self) -> Result<Option<BehaviorActivated>, StoreError> {
        let sql = "SELECT event FROM behaviors ORDER BY epoch DESC LIMIT 1";
        let Some(id) = self.one(sql, &[], |row| row.get(0))? else { return Ok(None) };
        Ok(self.event(EventId(id))?.and_then(|event| match event.body {
            Body::BehaviorActivated(behavior) => Some(behavior),
            _ => None,
        }))
    }
}

type Parsed<T> = Result<T, StoreError>;

fn execution(row: &Row<'_>) -> rusqlite::Result<Parsed<ExecutionRow>> {
    let (execution, session): (String, String) = (row.get(0)?, row.get(1)?);
    let (generation, origin): (String, String) = (row.get(2)?, row.get(3)?);
    let (started, started_at_ms) = (EventId(row.get(4)?), row.get(5)?);
    let completed: Option<i64> = row.get(6)?;
    let parse = || {
        Ok(ExecutionRow {
            execution: ExecutionId::parse(execution).map_err(unreadable)?,
            session: session_id(session)?,
            generation: GenerationId::parse(generation).map_err(unreadable)?,
            origin: serde_json::from_str(&origin).map_err(unreadable)?,
            started,
            started_at_ms,
            completed: completed.map(EventId),
        })
    };
    Ok(parse())
}

fn generation(row: &Row<'_>) -> rusqlite::Result<Parsed<GenerationRow>> {
    let (session, role): (String, String) = (row.get(0)?, row.get(1)?);
    let name: String = row.get(2)?;
    let (unit, containment) = (row.get(3)?, row.get(4)?);
    let (started, ended): (i64, Option<i64>) = (row.get(5)?, row.get(6)?);
    let role = match role.as_str() {
        "workbench" => Ok(Role::Workbench),
        "hooks" => Ok(Role::Hooks),
        other => Err(unreadable(format_args!("no role {other:?}"))),
    };
    let parse = || {
        Ok(GenerationRow {
            session: session_id(session)?,
            role: role?,
            generation: GenerationId::parse(name).map_err(unreadable)?,
            unit,
            containment,
            started: EventId(started),
            ended: ended.map(EventId),
        })
    };
    Ok(parse())
}
