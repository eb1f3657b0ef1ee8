//! Requests, responses, and what enters a transcript.

use super::{Projector, to_i64};
use crate::event::{CallResult, ModelRequested, ModelResponded, StepEnded};
use crate::id::EventId;
use crate::store::StoreError;
use crate::store::error::trying;

impl Projector<'_> {
    pub(super) fn requested(&self, request: &ModelRequested) -> Result<(), StoreError> {
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

    pub(super) fn block(&self, event: EventId, call: Option<usize>) -> Result<(), StoreError> {
        self.one("UPDATE sessions SET blocks = blocks + 1 WHERE id = ?1", &[&self.session()], || {
            "there is no such session".to_owned()
        })?;
        self.insert(
            "INSERT INTO blocks (session, seq, event, call)
             SELECT id, blocks, ?2, ?3 FROM sessions WHERE id = ?1",
            &[&self.session(), &event.0, &call.map(|call| to_i64(call as u64))],
        )
    }

    pub(super) fn settle_request(&self, request: EventId) -> Result<(), StoreError> {
        self.one(
            "UPDATE requests SET settled = ?1 WHERE event = ?2 AND session = ?3 AND settled IS NULL",
            &[&self.event.id.0, &request.0, &self.session()],
            || format!("{} is not in flight", request.reference()),
        )
    }

    pub(super) fn responded(&self, response: &ModelResponded) -> Result<(), StoreError> {
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

    pub(super) fn step_ended(&self, step: &StepEnded) -> Result<(), StoreError> {
        let results = to_i64(step.results.len() as u64);
        self.one(
            "UPDATE responses SET ended = ?1 WHERE event = ?2 AND session = ?3 AND ended IS NULL AND calls = ?4",
            &[&self.event.id.0, &step.response.0, &self.session(), &results],
            || format!("{} does not wait for {results} results", step.response.reference()),
        )?;
        self.block(step.response, None)?;
        for (call, result) in step.results.iter().enumerate() {
            match result {
                CallResult::Cell { completed } => {
                    self.result_of(step.response, call, *completed)?;
                    self.block(*completed, Some(call))?;
                }
                CallResult::Refused { .. } => self.block(self.event.id, Some(call))?,
            }
        }
        Ok(())
    }

    /// A cell's end is the result of the call that it ran for, and of no other.
    fn result_of(&self, response: EventId, call: usize, completed: EventId) -> Result<(), StoreError> {
        let call = to_i64(call as u64);
        let matches = self
            .connection
            .prepare_cached("SELECT 1 FROM executions WHERE response = ?1 AND call = ?2 AND completed = ?3")
            .and_then(|mut statement| statement.exists((response.0, call, completed.0)))
            .map_err(trying("project an event"))?;
        if matches {
            return Ok(());
        }
        let (response, completed) = (response.reference(), completed.reference());
        Err(StoreError::Projection(format!("{completed} is not the end of call {call} of {response}")))
    }
}
