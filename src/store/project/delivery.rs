//! Texts for the operator.

use super::Projector;
use crate::event::DeliverySent;
use crate::id::{EffectId, ExecutionId};
use crate::store::StoreError;

impl Projector<'_> {
    pub(super) fn delivery(&self, effect: &EffectId, state: &str) -> Result<(), StoreError> {
        self.insert(
            "INSERT INTO deliveries (effect, session, event, state) VALUES (?1, ?2, ?3, ?4)",
            &[&effect.as_str(), &self.session(), &self.event.id.0, &state],
        )?;
        // A held text reached nobody: the turn has still said nothing.
        if state != "sent" {
            return Ok(());
        }
        // A cell of the operator speaks beside the turn: the turn itself has said nothing yet.
        self.insert(
            "UPDATE sessions SET turn_deliveries = turn_deliveries + 1
             WHERE id = ?1 AND turn IS NOT NULL
               AND NOT EXISTS (SELECT 1 FROM executions WHERE execution = ?2 AND response IS NULL)",
            &[&self.session(), &self.event.execution.as_ref().map(ExecutionId::as_str)],
        )
    }

    pub(super) fn sent(&self, sent: &DeliverySent) -> Result<(), StoreError> {
        if sent.released {
            self.decided(&sent.effect_id, "sent")
        } else {
            self.delivery(&sent.effect_id, "sent")
        }
    }

    pub(super) fn decided(&self, effect: &EffectId, state: &str) -> Result<(), StoreError> {
        self.one(
            "UPDATE deliveries SET state = ?1, event = ?2 WHERE effect = ?3 AND state = 'held'",
            &[&state, &self.event.id.0, &effect.as_str()],
            || format!("effect {effect} is not held"),
        )
    }
}
