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
        self.page(">", "ASC", since, filter, limit)
    }

    /// The last `limit` events before `before`, newest first.
    pub fn events_before(
        &self,
        before: EventId,
        filter: &EventFilter,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.page("<", "DESC", before, filter, limit)
    }

    /// Finds the page in an index, one kind after the other, whatever else the log holds: its cost
    /// is that of `limit` events of each kind.
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
        let kinds = match (session, filter.kinds.as_slice()) {
            (None, []) => {
                let sql =
                    format!("SELECT {COLUMNS} FROM events WHERE id {bound} ?1 ORDER BY id {order} LIMIT ?2");
                return self.all(&sql, &[&id.0, &limit], raw)?.into_iter().map(parse).collect();
            }
            (_, [kind]) => vec![kind.clone()],
            (_, wanted) => {
                let mut kinds = self.kinds(session)?;
                kinds.retain(|kind| wanted.is_empty() || wanted.contains(kind));
                kinds
            }
        };
        if kinds.is_empty() {
            return Ok(vec![]);
        }
        let of_session = if session.is_some() { "session = ?3 AND" } else { "?3 IS NULL AND" };
        let legs: Vec<String> = (4..kinds.len() + 4)
            .map(|place| {
                format!(
                    "SELECT * FROM (SELECT id FROM events WHERE {of_session} kind = ?{place} AND id {bound} ?1
                     ORDER BY id {order} LIMIT ?2)"
                )
            })
            .collect();
        let sql = format!(
            "SELECT {COLUMNS} FROM events WHERE id IN ({}) ORDER BY id {order} LIMIT ?2",
            legs.join(" UNION ALL ")
        );
        let mut values: Vec<&dyn ToSql> = vec![&id.0, &limit, &session];
        values.extend(kinds.iter().map(|kind| kind as &dyn ToSql));
        self.all(&sql, &values, raw)?.into_iter().map(parse).collect()
    }

    /// The kinds that there are, of a session or at all: one seek for each.
    fn kinds(&self, session: Option<&str>) -> Result<Vec<String>, StoreError> {
        let of_session = if session.is_some() { "session = ?1" } else { "?1 IS NULL" };
        let sql = format!(
            "WITH RECURSIVE kinds (kind) AS (
                 SELECT min(kind) FROM events WHERE {of_session}
                 UNION ALL
                 SELECT (SELECT min(kind) FROM events WHERE {of_session} AND kind > kinds.kind)
                 FROM kinds WHERE kind IS NOT NULL
             )
             SELECT kind FROM kinds WHERE kind IS NOT NULL"
        );
        self.all(&sql, &[&session], |row| row.get(0))
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

/// Every event in order, or why one cannot be read.
pub(super) fn every(
    snapshot: &Snapshot<'_>,
    mut take: impl FnMut(Result<Event, StoreError>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM events ORDER BY id");
    let mut statement = snapshot.connection.prepare(&sql).map_err(trying("read"))?;
    let mut rows = statement.query([]).map_err(trying("read"))?;
    while let Some(row) = rows.next().map_err(trying("read"))? {
        take(parse(raw(row).map_err(trying("read"))?))?;
    }
    Ok(())
}
