//! Cells, and the requests with a consequence that they make.

use super::{Projector, to_i64};
use crate::event::{CellOrigin, CellStarted, EffectIntended, EffectSettled, EffectState};
use crate::id::ExecutionId;
use crate::store::StoreError;

impl Projector<'_> {
    pub(super) fn cell_started(&self, started: &CellStarted) -> Result<(), StoreError> {
        let (response, call) = match &started.origin {
            CellOrigin::Model { response, call, .. } => (Some(response.0), Some(to_i64(*call as u64))),
            CellOrigin::Operator {} => (None, None),
        };
        let origin = serde_json::to_string(&started.origin).map_err(|error| StoreError::Payload {
            event: self.event.id.reference(),
            problem: error.to_string(),
        })?;
        self.insert(
            "INSERT INTO executions
                 (execution, session, generation, origin, response, call, started, started_at_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            &[
                &started.execution.as_str(),
                &self.session(),
                &started.generation.as_str(),
                &origin,
                &response,
                &call,
                &self.event.id.0,
                &self.event.at_ms,
            ],
        )
    }

    pub(super) fn cell_completed(&self, execution: &ExecutionId) -> Result<(), StoreError> {
        self.one(
            "UPDATE executions SET completed = ?1 WHERE execution = ?2 AND session = ?3 AND completed IS NULL",
            &[&self.event.id.0, &execution.as_str(), &self.session()],
            || format!("execution {execution} is not running"),
        )
    }

    fn execution(&self) -> Result<&str, StoreError> {
        let missing = || StoreError::Projection(format!("{} without an execution", self.event.body.kind()));
        self.event.execution.as_ref().map(ExecutionId::as_str).ok_or_else(missing)
    }

    pub(super) fn intended(&self, effect: &EffectIntended) -> Result<(), StoreError> {
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

    pub(super) fn settled(&self, effect: &EffectSettled) -> Result<(), StoreError> {
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
}

/// As in the `state` column.
pub(in crate::store) fn state_name(state: EffectState) -> &'static str {
    match state {
        EffectState::Intended => "intended",
        EffectState::Committed => "committed",
        EffectState::Refused => "refused",
        EffectState::Uncertain => "uncertain",
        EffectState::NeverStarted => "never_started",
    }
}
