//! Reading where a session stands, and its transcript.

use super::error::unreadable;
use super::{Snapshot, StoreError};
use crate::event::{Body, ModelRequested};
use crate::id::{EventId, SessionId};

/// Where a session stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// Its name.
    pub id: SessionId,
    /// The number of its newest turn; 0 before the first.
    pub last_turn: u64,
    /// The turn that is open.
    pub turn: Option<OpenTurn>,
    /// The wait that is accepted and not over.
    pub wait: Option<OpenWait>,
}

/// A turn that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenTurn {
    /// Its number.
    pub turn: u64,
    /// Its `turn.started`.
    pub started: EventId,
    /// Requests that it made.
    pub steps: u32,
    /// Texts that it sent; held ones are not.
    pub deliveries: u32,
}

/// A wait that is not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenWait {
    /// Its `wait.accepted`.
    pub event: EventId,
    /// When it ends by itself.
    pub deadline_ms: Option<i64>,
    /// Why, in the agent's words.
    pub reason: String,
}

/// One entry of a transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// 1, 2, ... in the session.
    pub seq: i64,
    /// The event that it shows.
    pub event: EventId,
    /// For the result of a call, the position of the call in its response.
    pub call: Option<usize>,
}

impl Snapshot<'_> {
    /// Every session, by name.
    pub fn sessions(&self) -> Result<Vec<SessionId>, StoreError> {
        let names: Vec<String> = self.all("SELECT id FROM sessions ORDER BY id", &[], |row| row.get(0))?;
        names.into_iter().map(session_id).collect()
    }

    /// Where a session stands.
    pub fn session(&self, id: &SessionId) -> Result<Option<SessionRow>, StoreError> {
        self.one(
            "SELECT last_turn, turn, turn_started, turn_steps, turn_deliveries,
                    wait_event, wait_deadline, wait_reason FROM sessions WHERE id = ?1",
            &[&id.as_str()],
            |row| {
                let (turn, started): (Option<i64>, Option<i64>) = (row.get(1)?, row.get(2)?);
                let (steps, deliveries) = (row.get(3)?, row.get(4)?);
                let wait: Option<i64> = row.get(5)?;
                let (deadline_ms, reason): (_, Option<String>) = (row.get(6)?, row.get(7)?);
                Ok(SessionRow {
                    id: id.clone(),
                    last_turn: row.get::<_, i64>(0)?.unsigned_abs(),
                    turn: turn.zip(started).map(|(turn, started)| OpenTurn {
                        turn: turn.unsigned_abs(),
                        started: EventId(started),
                        steps,
                        deliveries,
                    }),
                    wait: wait.map(|event| OpenWait {
                        event: EventId(event),
                        deadline_ms,
                        reason: reason.unwrap_or_default(),
                    }),
                })
            },
        )
    }

    /// Inputs that no request has taken up, oldest first.
    pub fn pending_inputs(&self, session: &SessionId) -> Result<Vec<EventId>, StoreError> {
        self.waiting(session, false)
    }

    /// What the host observed and no request has taken up, oldest first.
    pub fn unadopted_observations(&self, session: &SessionId) -> Result<Vec<EventId>, StoreError> {
        self.waiting(session, true)
    }

    fn waiting(&self, session: &SessionId, observation: bool) -> Result<Vec<EventId>, StoreError> {
        self.all(
            "SELECT event FROM arrivals WHERE session = ?1 AND adopted IS NULL AND observation = ?2 ORDER BY event",
            &[&session.as_str(), &observation],
            |row| row.get(0).map(EventId),
        )
    }

    /// The blocks of a transcript after `seq`, in order.
    pub fn transcript(&self, session: &SessionId, after_seq: i64) -> Result<Vec<Block>, StoreError> {
        self.all(
            "SELECT seq, event, call FROM blocks WHERE session = ?1 AND seq > ?2 ORDER BY seq",
            &[&session.as_str(), &after_seq],
            |row| {
                let call: Option<i64> = row.get(2)?;
                Ok(Block {
                    seq: row.get(0)?,
                    event: EventId(row.get(1)?),
                    call: call.and_then(|call| usize::try_from(call).ok()),
                })
            },
        )
    }

    /// Answers that a route gave in a session.
    pub fn route_answers(&self, session: &SessionId, route: &str) -> Result<u64, StoreError> {
        let sql = "SELECT answers FROM route_answers WHERE session = ?1 AND route = ?2";
        let answers: Option<i64> = self.one(sql, &[&session.as_str(), &route], |row| row.get(0))?;
        Ok(answers.unwrap_or(0).unsigned_abs())
    }

    /// Requests that a session made since then.
    pub fn requests_since(&self, session: &SessionId, at_ms: i64) -> Result<u64, StoreError> {
        let sql = "SELECT count(*) FROM requests WHERE session = ?1 AND at_ms >= ?2";
        let count: Option<i64> = self.one(sql, &[&session.as_str(), &at_ms], |row| row.get(0))?;
        Ok(count.unwrap_or(0).unsigned_abs())
    }

    /// Tokens that a session spent since then, as far as its routes said.
    pub fn tokens_since(&self, session: &SessionId, at_ms: i64) -> Result<u64, StoreError> {
        let sql = "SELECT total(tokens) FROM responses WHERE session = ?1 AND at_ms >= ?2";
        let tokens: Option<f64> = self.one(sql, &[&session.as_str(), &at_ms], |row| row.get(0))?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float casts to the nearest u64"
        )]
        Ok(tokens.unwrap_or(0.0) as u64)
    }

    /// Tokens of the newest answered request, where its route said so.
    pub fn last_prompt_tokens(&self, session: &SessionId) -> Result<Option<u64>, StoreError> {
        // By the log's order, not by the clock's: a clock can be set back.
        let sql = "SELECT prompt_tokens FROM requests JOIN responses ON responses.event = settled
                   WHERE requests.session = ?1 ORDER BY requests.event DESC LIMIT 1";
        let tokens: Option<Option<i64>> = self.one(sql, &[&session.as_str()], |row| row.get(0))?;
        Ok(tokens.flatten().map(i64::unsigned_abs))
    }

    /// Requests without an answer or a failure.
    pub fn open_requests(&self) -> Result<Vec<(SessionId, EventId, ModelRequested)>, StoreError> {
        let ids =
            self.all("SELECT event FROM requests WHERE settled IS NULL ORDER BY event", &[], |row| {
                row.get(0)
            })?;
        let mut open = Vec::with_capacity(ids.len());
        for id in ids {
            if let Some(event) = self.event(EventId(id))? {
                if let Body::ModelRequested(request) = event.body {
                    open.push((event.session, event.id, request));
                }
            }
        }
        Ok(open)
    }

    /// Responses whose step has not ended.
    pub fn open_responses(&self) -> Result<Vec<(SessionId, EventId)>, StoreError> {
        let rows: Vec<(String, i64)> = self.all(
            "SELECT session, event FROM responses WHERE ended IS NULL ORDER BY event",
            &[],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        rows.into_iter().map(|(session, event)| Ok((session_id(session)?, EventId(event)))).collect()
    }
}

pub(super) fn session_id(name: String) -> Result<SessionId, StoreError> {
    SessionId::parse(name).map_err(unreadable)
}
