//! What an earlier host left open is closed before anything else starts, by what this host can
//! know and nothing more.

use super::cell::ledger_of;
use super::generation::host_event;
use crate::cell::Role;
use crate::event::{
    Body, CallResult, CellCompleted, CellOrigin, CellStatus, EffectSettled, EffectState, GenerationEnded,
    HostStarted, ModelFailed, NewEvent, Recovered, StepEnded, Wake, WakeCause,
};
use crate::id::{EventId, SessionId};
use crate::store::{EffectRow, ExecutionRow, Snapshot, Store, StoreError, Transaction};

/// Closes everything that is open, in one transaction, and logs that the host started.
pub async fn recover(store: &Store) -> Result<Recovered, StoreError> {
    store.write(close_all).await
}

fn close_all(transaction: &mut Transaction<'_>) -> Result<Recovered, StoreError> {
    let mut recovered = Recovered::default();
    for effect in transaction.open_effects()? {
        settle(transaction, &effect)?;
        recovered.effects += 1;
    }
    for execution in transaction.open_executions()? {
        interrupt(transaction, &execution)?;
        recovered.executions += 1;
    }
    for generation in transaction.open_generations()? {
        end_generation(transaction, &generation)?;
        recovered.generations += 1;
    }
    for (session, request, _) in transaction.open_requests()? {
        let failed = ModelFailed {
            request,
            class: "abandoned".to_owned(),
            message: "the host ended while the request was in flight".to_owned(),
            http_status: None,
            attempts: 1,
        };
        transaction.append(host_event(&session, Body::ModelFailed(failed)))?;
        recovered.requests += 1;
    }
    for (session, response) in transaction.open_responses()? {
        end_step(transaction, &session, response)?;
    }
    for session in transaction.sessions()? {
        resume_turn(transaction, &session)?;
    }
    let started = HostStarted { version: env!("CARGO_PKG_VERSION").to_owned(), recovered };
    transaction.append(host_event(&SessionId::root(), Body::HostStarted(started)))?;
    Ok(recovered)
}

/// An intent without an outcome. Where the deed and its outcome are one transaction there was no
/// deed; what happens outside this process is not known.
fn settle(transaction: &mut Transaction<'_>, effect: &EffectRow) -> Result<(), StoreError> {
    let state = match effect.method.as_str() {
        "local.send" | "runtime.wait" => EffectState::NeverStarted,
        _ => EffectState::Uncertain,
    };
    let message = match state {
        EffectState::NeverStarted => "the host ended before it was done: it had no effect",
        _ => "the host ended while it was being done: nobody knows its outcome",
    };
    let settled = EffectSettled {
        effect_id: effect.effect_id.clone(),
        request: effect.request.clone(),
        state,
        event: None,
        receipt: serde_json::json!({"code": "unknown_outcome", "message": message}),
    };
    transaction.append(NewEvent {
        execution: Some(effect.execution.clone()),
        ..host_event(&effect.session, Body::EffectSettled(settled))
    })?;
    Ok(())
}

fn interrupt(transaction: &mut Transaction<'_>, execution: &ExecutionRow) -> Result<(), StoreError> {
    let completed = CellCompleted {
        execution: execution.execution.clone(),
        generation: execution.generation.clone(),
        status: CellStatus::Interrupted,
        output: vec![],
        truncated_bytes: 0,
        error: Some("the host ended while this cell ran; what it printed is lost".to_owned()),
        duration_ms: None,
        ledger: ledger_of(transaction, &execution.execution)?,
    };
    transaction.append(NewEvent {
        execution: Some(execution.execution.clone()),
        ..host_event(&execution.session, Body::CellCompleted(Box::new(completed)))
    })?;
    Ok(())
}

fn end_generation(
    transaction: &mut Transaction<'_>,
    generation: &crate::store::GenerationRow,
) -> Result<(), StoreError> {
    let ended = GenerationEnded {
        role: generation.role,
        generation: generation.generation.clone(),
        reason: "host_lost".to_owned(),
        detail: "the host that ran it ended; nothing of it was left when this host started".to_owned(),
        exit_code: None,
        signal: None,
        stdout_tail: String::new(),
        stderr_tail: String::new(),
    };
    transaction.append(host_event(&generation.session, Body::GenerationEnded(ended)))?;
    Ok(())
}

/// Ends the step of a response whose calls were not all carried out. What did not run stays not
/// run: the namespace that it was written for is gone, and the model decides anew.
fn end_step(
    transaction: &mut Transaction<'_>,
    session: &SessionId,
    response: EventId,
) -> Result<(), StoreError> {
    let Some(Body::ModelResponded(body)) = transaction.event(response)?.map(|event| event.body) else {
        return Err(StoreError::Projection(format!("{} is not a response", response.reference())));
    };
    let Some(Body::ModelRequested(request)) = transaction.event(body.request)?.map(|event| event.body) else {
        return Err(StoreError::Projection(format!("{} is not a request", body.request.reference())));
    };
    let executions = transaction.executions_of_response(response)?;
    let results = (0..body.calls.len())
        .map(|index| {
            let ran = executions.iter().find(|row| match &row.origin {
                CellOrigin::Model { call, .. } => *call == index,
                CellOrigin::Operator {} => false,
            });
            match ran.and_then(|row| row.completed) {
                Some(completed) => CallResult::Cell { completed },
                None => CallResult::Refused {
                    message: "not run: the host was restarted before it could be".to_owned(),
                },
            }
        })
        .collect();
    let ended = StepEnded { turn: request.turn, step: request.step, response, results };
    transaction.append(host_event(session, Body::StepEnded(ended)))?;
    Ok(())
}

/// The model is told that its open turn goes on in another host.
fn resume_turn(transaction: &mut Transaction<'_>, session: &SessionId) -> Result<(), StoreError> {
    let open = transaction.session(session)?.and_then(|row| row.turn);
    if open.is_some_and(|turn| turn.steps > 0) && !finishing(transaction, session)? {
        let wake = Wake { cause: WakeCause::Resumed, wait: None };
        transaction.append(host_event(session, Body::Wake(wake)))?;
    }
    Ok(())
}

/// Whether the open turn's last step was an answer without a call: only its end is missing.
fn finishing(snapshot: &Snapshot<'_>, session: &SessionId) -> Result<bool, StoreError> {
    Ok(super::resume::last_answer(snapshot, session)?.is_some())
}

/// Whether this role's earlier generations count as a lost namespace.
pub(super) fn had_namespace(snapshot: &Snapshot<'_>, session: &SessionId) -> Result<bool, StoreError> {
    Ok(snapshot.last_generation(session, Role::Workbench)?.is_some())
}
