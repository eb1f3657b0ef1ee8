//! What an event changes in the tables that are made of events. It reads nothing but the log's own
//! tables, so that a rebuild from the events alone gives the same rows.

use rusqlite::{Connection, ToSql, params};

use super::StoreError;
use super::error::{contradiction, trying};
use crate::cell::Role;
use crate::event::{
    Body, CallResult, CellOrigin, CellStarted, DeliveryHeld, DeliverySent, EffectIntended, EffectSettled,
    EffectState, Event, GenerationEnded, KernelReset, ModelRequested, ModelResponded, StepEnded,
    WaitAccepted,
};
use crate::id::{EffectId, EventId};

/// Updates every projection for an event that was just inserted.
pub(super) fn project(connection: &Connection, event: &Event) -> Result<(), StoreError> {
    let project = Projector { connection, event };
    match &event.body {
        Body::SessionOpened(_) => {
            project.insert("INSERT INTO sessions (id) VALUES (?1)", &[&event.session.as_str()])
        }
        Body::OperatorInput(_) => project.arrival(false),
        Body::TurnStarted(started) => project.turn_started(started.turn),
        Body::ModelRequested(request) => project.requested(request),
        Body::ModelResponded(response) => project.responded(response),
        Body::ModelFailed(failed) => project.settle_request(failed.request),
        Body::CellStarted(started) => project.cell_started(started),
        Body::CellCompleted(cell) => project.one(
            "UPDATE executions SET completed = ?1 WHERE execution = ?2 AND completed IS NULL",
            &[&event.id.0, &cell.execution.as_str()],
            || format!("execution {} is not running", cell.execution),
        ),
        Body::StepEnded(step) => project.step_ended(step),
        Body::EffectIntended(effect) => project.intended(effect),
        Body::EffectSettled(effect) => project.settled(effect),
        Body::DeliverySent(sent) => project.sent(sent),
        Body::DeliveryHeld(held) => project.held(held),
        Body::DeliveryDiscarded(discarded) => project.decided(&discarded.effect_id, "discarded"),
        Body::WaitAccepted(wait) => project.wait_accepted(wait),
        Body::Wake(wake) => {
            project.end_wait()?;
            match wake.cause {
                // The input itself is what the model sees.
                crate::event::WakeCause::Input => Ok(()),
                crate::event::WakeCause::Deadline | crate::event::WakeCause::Resumed => project.arrival(true),
            }
        }
        Body::TurnEnded(ended) => project.end_turn(ended.turn),
        Body::KernelReset(reset) => project.generation_started(reset),
        Body::GenerationEnded(ended) => project.generation_ended(ended),
        Body::BehaviorActivated(behavior) => project.insert(
            "INSERT INTO behaviors (epoch, event) VALUES (?1, ?2)",
            &[&to_i64(behavior.epoch), &event.id.0],
        ),
        Body::AttentionPlanned(_) | Body::PromptHeader(_) | Body::HostStarted(_) => Ok(()),
    }
}

struct Projector<'a> {
    connection: &'a Connection,
    event: &'a Event,
}

fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Projector<'_> {
    fn session(&self) -> &str {
        self.event.session.as_str()
    }

    fn execute(&self, sql: &str, values: &[&dyn ToSql]) -> Result<usize, StoreError> {
        let contradicts = || format!("{} ({})", self.event.id.reference(), self.event.body.kind());
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(values))
            .map_err(contradiction(contradicts))
    }

    fn insert(&self, sql: &str, values: &[&dyn ToSql]) -> Result<(), StoreError> {
        self.execute(sql, values).map(drop)
    }

    /// An update that must change exactly one row.
    fn one(
        &self,
        sql: &str,
        values: &[&dyn ToSql],
        problem: impl FnOnce() -> String,
    ) -> Result<(), StoreError> {
        match self.execute(sql, values)? {
            1 => Ok(()),
            _ => Err(StoreError::Projection(format!("{}: {}", self.event.body.kind(), problem()))),
        }
    }

    fn arrival(&self, observation: bool) -> Result<(), StoreError> {
        self.insert(
            "INSERT INTO arrivals (event, session, observation) VALUES (?1, ?2, ?3)",
            &[&self.event.id.0, &self.session(), &observation],
        )
    }

    fn turn_started(&self, turn: u64) -> Result<(), StoreError> {
        self.one(
            "UPDATE sessions SET last_turn = ?1, turn = ?1, turn_started = ?2, turn_steps = 0, turn_deliveries = 0,
                    wait_event = NULL, wait_deadline = NULL, wait_reason = NULL
             WHERE id = ?3 AND turn IS NULL AND last_turn < ?1",
            &[&to_i64(turn), &self.event.id.0, &self.session()],
            || format!("turn {turn} cannot start now"),
        )
    }

    fn end_turn(&self, turn: u64) -> Result<(), StoreError> {
        self.one(
            "UPDATE sessions SET turn = NULL, turn_started = NULL WHERE id = ?1 AND turn = ?2",
            &[&self.session(), &to_i64(turn)],
            || format!("turn {turn} is not open"),
        )
    }

    fn wait_accepted(&self, wait: &WaitAccepted) -> Result<(), StoreError> {
        let Some(turn) = wait.turn else { return Ok(()) };
        self.end_turn(turn)?;
        self.one(
            "UPDATE sessions SET wait_event = ?1, wait_deadline = ?2, wait_reason = ?3 WHERE id = ?4",
            &[&self.event.id.0, &wait.deadline_ms, &wait.reason, &self.session()],
            || "there is no such session".to_owned(),
        )
    }

    fn end_wait(&self) -> Result<(), StoreError> {
        self.insert(
            "UPDATE sessions SET wait_event = NULL, wait_deadline = NULL, wait_reason = NULL WHERE id = ?1",
            &[&self.session()],
        )
    }

    fn requested(&self, request: &ModelRequested) -> Result<(), StoreError> {
        self.insert(
            "INSERT INTO requests (event, session, route, at_ms) VALUES (?1, ?2, ?3, ?4)",
            &[&self.event.id.0, &self.session(), &request.route, &self.event.at_ms],
        )?;
        self.one(
            "UPDATE sessions SET turn_steps = turn_steps + 1 WHERE id = ?1 AND turn = ?2",
            &[&self.session(), &to_i64(request.turn)],
            || format!("turn {} is not open", request.turn),
        )?;
        for adopted in &request.adopted {
            self.one(
                "UPDATE arrivals SET adopted = ?1 WHERE event = ?2 AND session = ?3 AND adopted IS NULL",
                &[&self.event.id.0, &adopted.0, &self.session()],
                || format!("{} does not wait to be adopted", adopted.reference()),
            )?;
            self.block(*adopted, None)?;
        }
        Ok(())
    }

    fn block(&self, event: EventId, call: Option<usize>) -> Result<(), StoreError> {
        self.one("UPDATE sessions SET blocks = blocks + 1 WHERE id = ?1", &[&self.session()], || {
            "there is no such session".to_owned()
        })?;
        self.insert(
            "INSERT INTO blocks (session, seq, event, call)
             SELECT id, blocks, ?2, ?3 FROM sessions WHERE id = ?1",
            &[&self.session(), &event.0, &call.map(|call| to_i64(call as u64))],
        )
    }

    fn settle_request(&self, request: EventId) -> Result<(), StoreError> {
        self.one(
            "UPDATE requests SET settled = ?1 WHERE event = ?2 AND settled IS NULL",
            &[&self.event.id.0, &request.0],
            || format!("{} is not in flight", request.reference()),
        )
    }

    fn responded(&self, response: &ModelResponded) -> Result<(), StoreError> {
        self.settle_request(response.request)?;
        let usage = &response.usage;
        let counted = usage.total_tokens.or_else(|| {
            // What the route sent is added only to bound what is spent, never to be shown.
            let parts = [usage.prompt_tokens, usage.completion_tokens];
            parts.iter().flatten().copied().reduce(u64::saturating_add)
        });
        self.insert(
            "INSERT INTO responses (event, session, at_ms, tokens, prompt_tokens, calls)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            &[
                &self.event.id.0,
                &self.session(),
                &self.event.at_ms,
                &counted.map(to_i64),
                &usage.prompt_tokens.map(to_i64),
                &to_i64(response.calls.len() as u64),
            ],
        )?;
        self.one(
            "INSERT INTO route_answers (session, route, answers)
             SELECT ?1, route, 1 FROM requests WHERE event = ?2
             ON CONFLICT DO UPDATE SET answers = answers + 1",
            &[&self.session(), &response.request.0],
            || format!("{} is not a request", response.request.reference()),
        )
    }

    fn cell_started(&self, started: &CellStarted) -> Result<(), StoreError> {
        let response = match &started.origin {
            CellOrigin::Model { response, .. } => Some(response.0),
            CellOrigin::Operator {} => None,
        };
        let origin = serde_json::to_string(&started.origin).map_err(|error| StoreError::Payload {
            event: self.event.id.reference(),
            problem: error.to_string(),
        })?;
        self.insert(
            "INSERT INTO executions (execution, session, generation, origin, response, started, started_at_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            &[
                &started.execution.as_str(),
                &self.session(),
                &started.generation.as_str(),
                &origin,
                &response,
                &self.event.id.0,
                &self.event.at_ms,
            ],
        )
    }

    fn step_ended(&self, step: &StepEnded) -> Result<(), StoreError> {
        let results = to_i64(step.results.len() as u64);
        self.one(
            "UPDATE responses SET ended = ?1 WHERE event = ?2 AND session = ?3 AND ended IS NULL AND calls = ?4",
            &[&self.event.id.0, &step.response.0, &self.session(), &results],
            || format!("{} does not wait for {results} results", step.response.reference()),
        )?;
        self.block(step.response, None)?;
        for (call, result) in step.results.iter().enumerate() {
            match result {
                CallResult::Cell { completed } => self.block(*completed, Some(call))?,
                CallResult::Refused { .. } => self.block(self.event.id, Some(call))?,
            }
        }
        Ok(())
    }

    fn execution(&self) -> Result<&str, StoreError> {
        let missing = || StoreError::Projection(format!("{} without an execution", self.event.body.kind()));
        self.event.execution.as_ref().map(crate::id::ExecutionId::as_str).ok_or_else(missing)
    }

    fn intended(&self, effect: &EffectIntended) -> Result<(), StoreError> {
        // An identity that certainly had no effect may be carried out after all.
        self.one(
            "INSERT INTO effects (execution, request, effect, session, method, digest, intended, state)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'intended')
             ON CONFLICT (execution, request) DO UPDATE
             SET intended = ?7, state = 'intended', event = NULL, receipt = NULL
             WHERE state = 'never_started' AND digest = ?6 AND effect = ?3",
            &[
                &self.execution()?,
                &effect.request.as_str(),
                &effect.effect_id.as_str(),
                &self.session(),
                &effect.method,
                &effect.digest.as_str(),
                &self.event.id.0,
            ],
            || format!("effect {} was intended before", effect.effect_id),
        )
    }

    fn settled(&self, effect: &EffectSettled) -> Result<(), StoreError> {
        self.one(
            "UPDATE effects SET state = ?1, event = ?2, receipt = ?3
             WHERE execution = ?4 AND request = ?5 AND state = 'intended'",
            &[
                &state_name(effect.state),
                &effect.event.map(|event| event.0),
                &effect.receipt.to_string(),
                &self.execution()?,
                &effect.request.as_str(),
            ],
            || format!("effect {} is not open", effect.effect_id),
        )
    }

    fn delivery(&self, effect: &EffectId, state: &str) -> Result<(), StoreError> {
        self.insert(
            "INSERT INTO deliveries (effect, session, event, state) VALUES (?1, ?2, ?3, ?4)",
            &[&effect.as_str(), &self.session(), &self.event.id.0, &state],
        )?;
        // A held text reached nobody: the turn has still said nothing.
        if state != "sent" {
            return Ok(());
        }
        self.insert(
            "UPDATE sessions SET turn_deliveries = turn_deliveries + 1 WHERE id = ?1 AND turn IS NOT NULL",
            &[&self.session()],
        )
    }

    fn sent(&self, sent: &DeliverySent) -> Result<(), StoreError> {
        if sent.released {
            self.decided(&sent.effect_id, "sent")
        } else {
            self.delivery(&sent.effect_id, "sent")
        }
    }

    fn held(&self, held: &DeliveryHeld) -> Result<(), StoreError> {
        self.delivery(&held.effect_id, "held")
    }

    fn decided(&self, effect: &EffectId, state: &str) -> Result<(), StoreError> {
        self.one(
            "UPDATE deliveries SET state = ?1, event = ?2 WHERE effect = ?3 AND state = 'held'",
            &[&state, &self.event.id.0, &effect.as_str()],
            || format!("effect {effect} is not held"),
        )
    }

    fn generation_started(&self, reset: &KernelReset) -> Result<(), StoreError> {
        self.insert(
            "INSERT INTO generations (started, session, role, generation, unit, containment)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            &[
                &self.event.id.0,
                &self.session(),
                &reset.role.as_str(),
                &reset.generation.as_str(),
                &reset.unit,
                &reset.containment,
            ],
        )
    }

    fn generation_ended(&self, ended: &GenerationEnded) -> Result<(), StoreError> {
        self.one(
            "UPDATE generations SET ended = ?1
             WHERE session = ?2 AND role = ?3 AND generation = ?4 AND ended IS NULL",
            &[&self.event.id.0, &self.session(), &ended.role.as_str(), &ended.generation.as_str()],
            || format!("generation {} does not run", ended.generation),
        )?;
        match ended.role {
            Role::Workbench => self.arrival(true),
            Role::Hooks => Ok(()),
        }
    }
}

/// As in the `state` column.
pub(super) fn state_name(state: EffectState) -> &'static str {
    match state {
        EffectState::Intended => "intended",
        EffectState::Committed => "committed",
        EffectState::Refused => "refused",
        EffectState::Uncertain => "uncertain",
        EffectState::NeverStarted => "never_started",
    }
}

/// Empties nothing and inserts an event as it stands: for a rebuild.
pub(super) fn replay(connection: &Connection, event: &Event, payload: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO events (id, session, kind, source, execution, at_ms, payload)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )
        .and_then(|mut statement| {
            statement.execute(params![
                event.id.0,
                event.session.as_str(),
                event.body.kind(),
                event.source.0,
                event.execution.as_ref().map(crate::id::ExecutionId::as_str),
                event.at_ms,
                payload,
            ])
        })
        .map_err(trying("replay an event"))?;
    project(connection, event)
}
