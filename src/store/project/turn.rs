//! Turns and waits.

use super::{Projector, to_i64};
use crate::event::WaitAccepted;
use crate::store::StoreError;

impl Projector<'_> {
    pub(super) fn turn_started(&self, turn: u64) -> Result<(), StoreError> {
        self.one(
            "UPDATE sessions SET last_turn = ?1, turn = ?1, turn_started = ?2, turn_steps = 0, turn_deliveries = 0,
                    wait_event = NULL, wait_deadline = NULL, wait_reason = NULL
             WHERE id = ?3 AND turn IS NULL AND last_turn < ?1",
            &[&to_i64(turn), &self.event.id.0, &self.session()],
            || format!("turn {turn} cannot start now"),
        )
    }

    pub(super) fn end_turn(&self, turn: u64) -> Result<(), StoreError> {
        self.one(
            "UPDATE sessions SET turn = NULL, turn_started = NULL WHERE id = ?1 AND turn = ?2",
            &[&self.session(), &to_i64(turn)],
            || format!("turn {turn} is not open"),
        )
    }

    pub(super) fn wait_accepted(&self, wait: &WaitAccepted) -> Result<(), StoreError> {
        let Some(turn) = wait.turn else { return Ok(()) };
        self.end_turn(turn)?;
        self.one(
            "UPDATE sessions SET wait_event = ?1, wait_deadline = ?2, wait_reason = ?3 WHERE id = ?4",
            &[&self.event.id.0, &wait.deadline_ms, &wait.reason, &self.session()],
            || "there is no such session".to_owned(),
        )
    }

    pub(super) fn end_wait(&self) -> Result<(), StoreError> {
        self.insert(
            "UPDATE sessions SET wait_event = NULL, wait_deadline = NULL, wait_reason = NULL WHERE id = ?1",
            &[&self.session()],
        )
    }
}
