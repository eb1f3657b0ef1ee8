//! One event into the log.

use rusqlite::params;

use super::error::trying;
use super::project::project;
use super::{StoreError, Transaction};
use crate::event::{Event, NewEvent};
use crate::id::{EventId, ExecutionId};

impl Transaction<'_> {
    /// Appends an event and updates what it projects to.
    ///
    /// After an error the transaction cannot be committed any more: the job fails with that error
    /// even if it goes on, since an event without what it projects to must never be seen.
    pub fn append(&mut self, event: NewEvent) -> Result<EventId, StoreError> {
        if let Some(error) = &self.refused {
            return Err(error.clone());
        }
        let appended = self.insert(event);
        match &appended {
            Ok(id) => self.newest = *id,
            Err(error) => self.refused = Some(error.clone()),
        }
        appended
    }

    fn insert(&self, event: NewEvent) -> Result<EventId, StoreError> {
        let payload = event.body.payload_json().map_err(|error| StoreError::Payload {
            event: format!("a new {}", event.body.kind()),
            problem: error.to_string(),
        })?;
        let connection = self.snapshot.connection;
        if connection.is_autocommit() {
            // A failed read can take the transaction with it; this would be committed on its own.
            return Err(StoreError::Undone);
        }
        let id = connection
            .prepare_cached(
                "INSERT INTO events (session, kind, source, execution, at_ms, payload)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )
            .and_then(|mut statement| {
                statement.insert(params![
                    event.session.as_str(),
                    event.body.kind(),
                    event.source.0,
                    event.execution.as_ref().map(ExecutionId::as_str),
                    event.at_ms,
                    payload,
                ])
            })
            .map(EventId)
            .map_err(trying("append an event"))?;
        let NewEvent { session, source, execution, at_ms, body } = event;
        project(connection, &Event { id, session, source, execution, at_ms, body })?;
        Ok(id)
    }
}
