//! The ledger of effects: intent before, outcome with the deed, one receipt per identity.

use serde_json::Value;

use super::{Caller, Refusal, refusal_receipt};
use crate::clock;
use crate::event::{Body, EffectIntended, EffectSettled, EffectState, NewEvent, Source};
use crate::id::{Digest, EffectId, EventId, RequestId};
use crate::store::{StoreError, Transaction};
use crate::wire::message::{ErrorCode, Request};

/// What an identity stands for.
#[derive(Debug, Clone)]
pub struct Identity {
    caller: Caller,
    /// The request.
    pub request: RequestId,
    /// Its effect.
    pub effect: EffectId,
    method: &'static str,
    digest: Digest,
}

/// Where an identity stands.
#[derive(Debug)]
pub enum Begun {
    /// Nobody used it before: the intent is logged now.
    New,
    /// It was settled before: this is its receipt.
    Settled(Result<Value, Refusal>),
}

impl Identity {
    /// The identity of `request` under (execution, `id`).
    pub fn of(caller: &Caller, id: RequestId, method: &'static str, request: &Request) -> Self {
        // A request is made of strings and numbers that came from JSON: it serialises.
        let fields = serde_json::to_vec(request).unwrap_or_default();
        Self {
            effect: EffectId::of_request(&caller.execution, &id),
            caller: caller.clone(),
            request: id,
            method,
            digest: Digest::of(&fields),
        }
    }

    /// Logs the intent, or finds what became of the same identity earlier.
    pub fn begin(&self, transaction: &mut Transaction<'_>) -> Result<Result<Begun, Refusal>, StoreError> {
        let known = transaction.effect(&self.caller.execution, &self.request)?;
        let Some(known) = known.filter(|known| known.state != EffectState::NeverStarted) else {
            // New, or of an earlier host that certainly did nothing about it.
            transaction.append(self.event(Body::EffectIntended(EffectIntended {
                effect_id: self.effect.clone(),
                request: self.request.clone(),
                method: self.method.to_owned(),
                digest: self.digest.clone(),
            })))?;
            return Ok(Ok(Begun::New));
        };
        if known.digest != self.digest {
            let message = format!("request {} was made before with other fields", self.request);
            return Ok(Err(Refusal::new(ErrorCode::Conflict, message)));
        }
        Ok(match (known.state, known.receipt) {
            (EffectState::Committed, Some(receipt)) => Ok(Begun::Settled(Ok(receipt))),
            (EffectState::Refused, Some(receipt)) => Ok(Begun::Settled(Err(refusal_of(&receipt)))),
            (EffectState::Intended, _) => Err(Refusal::new(
                ErrorCode::Conflict,
                format!("request {} is being carried out; wait for its reply", self.request),
            )),
            (
                EffectState::Uncertain
                | EffectState::Committed
                | EffectState::Refused
                | EffectState::NeverStarted,
                _,
            ) => Err(Refusal::new(
                ErrorCode::UnknownOutcome,
                format!("nobody knows what became of request {}", self.request),
            )),
        })
    }

    /// Logs that it is done, in the transaction that did it.
    pub fn commit(
        &self,
        transaction: &mut Transaction<'_>,
        event: EventId,
        receipt: Value,
    ) -> Result<EventId, StoreError> {
        self.settle(transaction, EffectState::Committed, Some(event), receipt)
    }

    /// Logs that it was refused and has no consequence.
    pub fn refuse(
        &self,
        transaction: &mut Transaction<'_>,
        refusal: &Refusal,
    ) -> Result<EventId, StoreError> {
        self.settle(transaction, EffectState::Refused, None, refusal_receipt(refusal))
    }

    fn settle(
        &self,
        transaction: &mut Transaction<'_>,
        state: EffectState,
        event: Option<EventId>,
        receipt: Value,
    ) -> Result<EventId, StoreError> {
        transaction.append(self.event(Body::EffectSettled(EffectSettled {
            effect_id: self.effect.clone(),
            request: self.request.clone(),
            state,
            event,
            receipt,
        })))
    }

    /// An event of this identity's cell.
    pub fn event(&self, body: Body) -> NewEvent {
        NewEvent {
            session: self.caller.session.clone(),
            source: Source::session(),
            execution: Some(self.caller.execution.clone()),
            at_ms: clock::now_ms(),
            body,
        }
    }
}

fn refusal_of(receipt: &Value) -> Refusal {
    let code = serde_json::from_value(receipt["code"].clone()).unwrap_or(ErrorCode::Internal);
    Refusal::new(code, receipt["message"].as_str().unwrap_or("the reason was not kept"))
}
