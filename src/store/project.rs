//! What an event changes in the tables that are made of events. It reads nothing but the log's own
//! tables, so that a rebuild from the events alone gives the same rows.

mod cell;
mod delivery;
mod generation;
mod step;
mod turn;

use rusqlite::{Connection, ToSql, params};

use super::StoreError;
use super::error::{contradiction, trying};
use crate::event::{Body, Event, WakeCause};

pub(super) use cell::state_name;

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
        Body::CellCompleted(cell) => project.cell_completed(&cell.execution),
        Body::StepEnded(step) => project.step_ended(step),
        Body::EffectIntended(effect) => project.intended(effect),
        Body::EffectSettled(effect) => project.settled(effect),
        Body::DeliverySent(sent) => project.sent(sent),
        Body::DeliveryHeld(held) => project.delivery(&held.effect_id, "held"),
        Body::DeliveryDiscarded(discarded) => project.decided(&discarded.effect_id, "discarded"),
        Body::WaitAccepted(wait) => project.wait_accepted(wait),
        Body::Wake(wake) => {
            project.end_wait()?;
            match wake.cause {
                // The input itself is what the model sees.
                WakeCause::Input => Ok(()),
                WakeCause::Deadline | WakeCause::Resumed => project.arrival(true),
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
}

/// Projects an event of another database into this one: for a rebuild. The payload stays behind,
/// since no projection reads it from the table.
pub(super) fn replay(connection: &Connection, event: &Event) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO events (id, session, kind, source, execution, at_ms, payload)
             VALUES (?1, ?2, ?3, '', NULL, ?4, '')",
        )
        .and_then(|mut statement| {
            statement.execute(params![event.id.0, event.session.as_str(), event.body.kind(), event.at_ms])
        })
        .map_err(trying("replay an event"))?;
    project(connection, event)
}
