//! One event into the log.

use rusqlite::params;

use super::error::trying;
use super::project::project;
use super::{StoreError, Transaction};
use crate::event::{Event, NewEvent};
use crate::id::EventId;

impl Transaction<'_> {
    /// Appends an event and updates what it projects to, or fails and leaves the rest to the caller:
    /// an error of the job rolls all of it back.
    pub fn append(&mut self, event: NewEvent) -> Result<EventId, StoreError> {
        let payload = event.body.payload_json().map_err(|error| StoreError::Payload {
            event: format!("a new {}", event.body.kind()),
            problem: error.to_string(),
        })?;
        let connection = self.snapshot.connection;
        connection
            .prepare_cached(
                "INSERT INTO events (session, kind, source, execution, at_ms, payload)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )
            .and_then(|mut statement| {
                statement.insert(params![
                    event.session.as_str(),
                    event.body.kind(),
                    event.source.0,
                    event.execution.as_ref().map(crate::id::ExecutionId::as_str),
                    event.at_ms,
                    payload,
                ])
            })
            .map_err(trying("append an event"))
            .and_then(|id| {
                let NewEvent { session, source, execution, at_ms, body } = event;
                project(connection, &Event { id: EventId(id), session, source, execution, at_ms, body })?;
                Ok(EventId(id))
            })
    }
}
