//! `runtime.*`: the turn's boundary, and what a cell runs under.

use serde_json::{Value, json};

use super::effect::{Begun, Identity};
use super::{Caller, Refusal, Services};
use crate::clock;
use crate::event::{Body, WaitAccepted};
use crate::id::RequestId;
use crate::limits::{self, WAIT_REASON_BYTES_MAX, WAIT_SECONDS_MAX};
use crate::wire::message::{ErrorCode, Request};

/// Ends the turn with a durable wait; checks for pending input in the same transaction.
pub(super) async fn wait(
    services: &Services,
    caller: &Caller,
    id: RequestId,
    seconds: Option<f64>,
    reason: String,
) -> Result<Value, Refusal> {
    let Some((turn, _)) = caller.step else {
        return Err(Refusal::new(ErrorCode::Refused, "a cell of the operator has no turn that could end"));
    };
    if let Some(asked) = seconds {
        if !asked.is_finite() || asked <= 0.0 || asked > WAIT_SECONDS_MAX {
            let message =
                format!("seconds must be null, or above 0 and at most {WAIT_SECONDS_MAX}, not {asked}");
            return Err(Refusal::invalid(message));
        }
    }
    if reason.len() > WAIT_REASON_BYTES_MAX {
        let message = format!("the reason has {} bytes, the limit is {WAIT_REASON_BYTES_MAX}", reason.len());
        return Err(Refusal::new(ErrorCode::TooLarge, message));
    }
    let request = Request::RuntimeWait { seconds, reason: reason.clone() };
    let identity = Identity::of(caller, id, "runtime.wait", &request);
    let session = caller.session.clone();
    services
        .store
        .write(move |transaction| {
            match identity.begin(transaction)? {
                Ok(Begun::New) => {}
                Ok(Begun::Settled(receipt)) => return Ok(receipt),
                Err(refusal) => return Ok(Err(refusal)),
            }
            let pending_inputs = transaction.pending_inputs(&session)?.len() as u64;
            let deadline_ms = seconds.map(|asked| clock::now_ms().saturating_add(milliseconds(asked)));
            let accepted = WaitAccepted { turn: Some(turn), seconds, reason, deadline_ms, pending_inputs };
            let event = transaction.append(identity.event(Body::WaitAccepted(accepted)))?;
            let status = if pending_inputs > 0 { "ready" } else { "waiting" };
            let receipt =
                json!({"status": status, "deadline_ms": deadline_ms, "pending_inputs": pending_inputs});
            identity.commit(transaction, event, receipt.clone())?;
            Ok(Ok(receipt))
        })
        .await?
}

/// `seconds` is above zero and at most [`WAIT_SECONDS_MAX`]: the product is a small whole number.
#[expect(clippy::cast_possible_truncation, reason = "checked against WAIT_SECONDS_MAX by the caller")]
fn milliseconds(seconds: f64) -> i64 {
    (seconds * 1_000.0).ceil() as i64
}

/// What the cell runs under, and the host's clock. Reads nothing.
pub(super) fn inspect(services: &Services, caller: &Caller) -> Value {
    let facts = &services.facts;
    let now_ms = clock::now_ms();
    json!({
        "now": clock::rfc3339(now_ms),
        "now_ms": now_ms,
        "session_id": caller.session,
        "generation": caller.generation,
        "execution_id": caller.execution,
        "step": caller.step.map(|(_, step)| step),
        "epoch": caller.behavior.as_ref().map(|behavior| behavior.epoch),
        "release": caller.behavior.as_ref().map(|behavior| &behavior.release),
        "containment": facts.containment,
        "unit": caller.unit,
        "route": facts.route,
        "model": facts.model,
        "header_digest": caller.header_digest,
        "context": {"prompt_tokens": caller.prompt_tokens, "limit": facts.context_tokens},
        "limits": {
            "requests_per_cell": limits::REQUESTS_PER_CELL_MAX,
            "output_bytes": limits::OUTPUT_BYTES_MAX,
            "send_bytes": limits::SEND_BYTES_MAX,
            "code_bytes": limits::CODE_BYTES_MAX,
            "wait_seconds": WAIT_SECONDS_MAX,
            "cell_ms": facts.limits.cell_ms,
            "steps_per_turn": facts.limits.steps_per_turn,
            "requests_per_hour": facts.limits.requests_per_hour,
            "tokens_per_day": facts.limits.tokens_per_day,
        },
    })
}

/// The exact instruction text that is current for this transcript.
pub(super) async fn instructions(services: &Services, caller: &Caller) -> Result<Value, Refusal> {
    let session = caller.session.clone();
    let header = services.store.read(move |snapshot| snapshot.header(&session)).await?;
    let Some((_, pin)) = header else {
        return Err(Refusal::new(ErrorCode::NotFound, "this session was never shown instructions"));
    };
    let sources: Vec<Value> =
        pin.sources.iter().map(|source| json!({"name": source.name, "digest": source.digest})).collect();
    Ok(json!({
        "digest": pin.digest,
        "text": pin.text,
        "pinned_digest": pin.digest,
        "sources": sources,
        "revisions": [],
        "complete": true,
    }))
}
