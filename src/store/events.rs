//! Reading events.

use rusqlite::{OptionalExtension as _, Row, ToSql};

use super::error::trying;
use super::{Snapshot, StoreError};
use crate::event::{Body, Event, HeaderPin, ModelRequested, Source};
use crate::id::{EventId, ExecutionId, SessionId};

/// Which events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Of this session; `None` is every session.
    pub session: Option<SessionId>,
    /// Of these kinds; none is every kind.
    pub kinds: Vec<String>,
}

const COLUMNS: &str = "id, session, source, execution, at_ms, kind, payload";

impl Snapshot<'_> {
    /// The newest event; 0 in an empty log.
    pub fn head(&self) -> Result<EventId, StoreError> {
        let id = self.one("SELECT id FROM events ORDER BY id DESC LIMIT 1", &[], |row| row.get(0))?;
        Ok(EventId(id.unwrap_or(0)))
    }

    /// One event.
    pub fn event(&self, id: EventId) -> Result<Option<Event>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM events WHERE id = ?1");
        self.one(&sql, &[&id.0], raw)?.map(parse).transpose()
    }

    /// The first `limit` events after `since`, oldest first.
    pub fn events_after(
        &self,
        since: EventId,
        filter: &EventFilter,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.page("id > ?1", "ASC", since, filter, limit)
    }

    /// The last `limit` events before `before`, newest first.
    pub fn events_before(
        &self,
        before: EventId,
        filter: &EventFilter,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.page("id < ?1", "DESC", before, filter, limit)
    }

    fn page(
        &self,
        bound: &str,
        order: &str,
        id: EventId,
        filter: &EventFilter,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let session = filter.session.as_ref().map(SessionId::as_str);
        let mut values: Vec<&dyn ToSql> = vec![&id.0, &session, &limit];
        values.extend(filter.kinds.iter().map(|kind| kind as &dyn ToSql));
        let kinds = if filter.kinds.is_empty() {
            String::new()
        } else {
            let places: Vec<String> =
                (0..filter.kinds.len()).map(|index| format!("?{}", index + 4)).collect();
            format!("AND kind IN ({})", places.join(", "))
        };
        let sql = format!(
            "SELECT {COLUMNS} FROM events WHERE {bound} AND (?2 IS NULL OR session = ?2) {kinds}
             ORDER BY id {order} LIMIT ?3"
        );
        self.all(&sql, &values, raw)?.into_iter().map(parse).collect()
    }

    /// The newest pinned header of a session.
    pub fn header(&self, session: &SessionId) -> Result<Option<(EventId, HeaderPin)>, StoreError> {
        let filter = EventFilter { session: Some(session.clone()), kinds: vec!["prompt.header".to_owned()] };
        let newest = self.events_before(EventId(i64::MAX), &filter, 1)?.pop();
        Ok(newest.and_then(|event| match event.body {
            Body::PromptHeader(pin) => Some((event.id, pin)),
            _ => None,
        }))
    }

    /// The newest request of a session.
    pub fn last_request(&self, session: &SessionId) -> Result<Option<(EventId, ModelRequested)>, StoreError> {
        let sql = "SELECT event FROM requests WHERE session = ?1 ORDER BY event DESC LIMIT 1";
        let Some(id) = self.one(sql, &[&session.as_str()], |row| row.get(0))? else { return Ok(None) };
        Ok(self.event(EventId(id))?.and_then(|event| match event.body {
            Body::ModelRequested(request) => Some((event.id, request)),
            _ => None,
        }))
    }

    pub(super) fn one<T>(
        &self,
        sql: &str,
        values: &[&dyn ToSql],
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row(values, read).optional())
            .map_err(trying("read"))
    }

    pub(super) fn all<T>(
        &self,
        sql: &str,
        values: &[&dyn ToSql],
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_map(values, read)?.collect())
            .map_err(trying("read"))
    }
}

/// An event's row, not yet understood.
pub(super) struct Raw {
    id: i64,
    session: String,
    source: String,
    execution: Option<String>,
    at_ms: i64,
    kind: String,
    pub(super) payload: String,
}

pub(super) fn raw(row: &Row<'_>) -> rusqlite::Result<Raw> {
    Ok(Raw {
        id: row.get(0)?,
        session: row.get(1)?,
        source: row.get(2)?,
        execution: row.get(3)?,
        at_ms: row.get(4)?,
        kind: row.get(5)?,
        payload: row.get(6)?,
    })
}

pub(super) fn parse(raw: Raw) -> Result<Event, StoreError> {
    let id = EventId(raw.id);
    let problem = |problem: String| StoreError::Payload { event: id.reference(), problem };
    Ok(Event {
        id,
        session: SessionId::parse(raw.session).map_err(|error| problem(error.to_string()))?,
        source: Source(raw.source),
        execution: raw
            .execution
            .map(ExecutionId::parse)
            .transpose()
            .map_err(|error| problem(error.to_string()))?,
        at_ms: raw.at_ms,
        body: Body::parse(&raw.kind, &raw.payload)
            .map_err(|error| problem(format!("{}: {error}", raw.kind)))?,
    })
}

/// Every event in order, with its payload as it stands: for a rebuild.
pub(super) fn every(
    snapshot: &Snapshot<'_>,
    mut take: impl FnMut(Event, &str) -> Result<(), StoreError>,
) -> Result<u64, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM events ORDER BY id");
    let mut statement = snapshot.connection.prepare(&sql).map_err(trying("read"))?;
    let mut rows = statement.query([]).map_err(trying("read"))?;
    let mut count = 0;
    while let Some(row) = rows.next().map_err(trying("read"))? {
        let row = raw(row).map_err(trying("read"))?;
        let payload = row.payload.clone();
        take(parse(row)?, &payload)?;
        count += 1;
    }
    Ok(count)
}
