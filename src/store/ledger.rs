//! Reading effects and deliveries.

use rusqlite::{Row, ToSql};

use super::error::unreadable;
use super::project::state_name;
use super::sessions::session_id;
use super::{Snapshot, StoreError};
use crate::event::{Body, EffectState};
use crate::id::{Digest, EffectId, EventId, ExecutionId, RequestId, SessionId};

/// A host request with a consequence, as far as it came.
#[derive(Debug, Clone, PartialEq)]
pub struct EffectRow {
    /// Its identity.
    pub effect_id: EffectId,
    /// The cell that asked.
    pub execution: ExecutionId,
    /// The request.
    pub request: RequestId,
    /// The cell's session.
    pub session: SessionId,
    /// The request's method.
    pub method: String,
    /// Digest of the request's fields.
    pub digest: Digest,
    /// Its `effect.intended`.
    pub intended: EventId,
    /// What is known of it.
    pub state: EffectState,
    /// The event that proves it.
    pub event: Option<EventId>,
    /// The reply that was given.
    pub receipt: Option<serde_json::Value>,
}

/// What became of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryState {
    /// It is on the operator lane.
    Sent,
    /// Review keeps it back.
    Held,
    /// The operator threw it away.
    Discarded,
}

/// A text that review keeps back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldRow {
    /// Its effect.
    pub effect_id: EffectId,
    /// Its session.
    pub session: SessionId,
    /// Its `delivery.held`.
    pub event: EventId,
    /// The text.
    pub text: String,
    /// Why it is kept back.
    pub reason: String,
    /// Since when.
    pub at_ms: i64,
}

const EFFECT: &str = "effect, execution, request, session, method, digest, intended, state, event, receipt";

impl Snapshot<'_> {
    /// What a request identity stands for.
    pub fn effect(
        &self,
        execution: &ExecutionId,
        request: &RequestId,
    ) -> Result<Option<EffectRow>, StoreError> {
        Ok(self.effects("execution = ?1 AND request = ?2", &[&execution.as_str(), &request.as_str()])?.pop())
    }

    /// Every effect of a cell, in the order of intent.
    pub fn effects_of(&self, execution: &ExecutionId) -> Result<Vec<EffectRow>, StoreError> {
        self.effects("execution = ?1", &[&execution.as_str()])
    }

    /// Effects without an outcome.
    pub fn open_effects(&self) -> Result<Vec<EffectRow>, StoreError> {
        self.effects("state = 'intended'", &[])
    }

    fn effects(&self, which: &str, values: &[&dyn ToSql]) -> Result<Vec<EffectRow>, StoreError> {
        let sql = format!("SELECT {EFFECT} FROM effects WHERE {which} ORDER BY intended");
        self.all(&sql, values, effect)?.into_iter().collect()
    }

    /// Where a delivery stands, with the event that put it there.
    pub fn delivery_of(&self, effect: &EffectId) -> Result<Option<(EventId, DeliveryState)>, StoreError> {
        let sql = "SELECT event, state FROM deliveries WHERE effect = ?1";
        let row: Option<(i64, String)> =
            self.one(sql, &[&effect.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
        row.map(|(event, state)| {
            let state = match state.as_str() {
                "sent" => DeliveryState::Sent,
                "held" => DeliveryState::Held,
                "discarded" => DeliveryState::Discarded,
                other => return Err(unreadable(format_args!("no delivery state {other:?}"))),
            };
            Ok((EventId(event), state))
        })
        .transpose()
    }

    /// The texts that review keeps back, oldest first; of one session, or of all.
    pub fn held(&self, session: Option<&SessionId>) -> Result<Vec<HeldRow>, StoreError> {
        let session = session.map(SessionId::as_str);
        let ids: Vec<i64> = self.all(
            "SELECT event FROM deliveries WHERE state = 'held' AND (?1 IS NULL OR session = ?1) ORDER BY event",
            &[&session],
            |row| row.get(0),
        )?;
        let mut held = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(event) = self.event(EventId(id))? else { continue };
            if let Body::DeliveryHeld(body) = event.body {
                held.push(HeldRow {
                    effect_id: body.effect_id,
                    session: event.session,
                    event: event.id,
                    text: body.text,
                    reason: body.reason,
                    at_ms: event.at_ms,
                });
            }
        }
        Ok(held)
    }
}

fn effect(row: &Row<'_>) -> rusqlite::Result<Result<EffectRow, StoreError>> {
    let text = |index| row.get::<_, String>(index);
    let (effect_id, execution, request, session) = (text(0)?, text(1)?, text(2)?, text(3)?);
    let (method, digest, state) = (text(4)?, text(5)?, text(7)?);
    let (intended, event): (i64, Option<i64>) = (row.get(6)?, row.get(8)?);
    let receipt: Option<String> = row.get(9)?;
    let parse = || {
        Ok(EffectRow {
            effect_id: EffectId::parse(effect_id).map_err(unreadable)?,
            execution: ExecutionId::parse(execution).map_err(unreadable)?,
            request: RequestId::parse(request).map_err(unreadable)?,
            session: session_id(session)?,
            method,
            digest: Digest::try_from(digest).map_err(unreadable)?,
            intended: EventId(intended),
            state: state_named(&state)?,
            event: event.map(EventId),
            receipt: receipt.map(|text| serde_json::from_str(&text)).transpose().map_err(unreadable)?,
        })
    };
    Ok(parse())
}

fn state_named(name: &str) -> Result<EffectState, StoreError> {
    let known = [
        EffectState::Intended,
        EffectState::Committed,
        EffectState::Refused,
        EffectState::Uncertain,
        EffectState::NeverStarted,
    ];
    known
        .into_iter()
        .find(|state| state_name(*state) == name)
        .ok_or_else(|| unreadable(format_args!("no effect state {name:?}")))
}
