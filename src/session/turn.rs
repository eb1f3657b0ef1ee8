//! A turn: the steps from a wake until the session waits again.

use super::coordinator::Coordinator;
use super::generation::host_event;
use super::request::Asked;
use super::{SessionError, deliver};
use crate::config::FinalText;
use crate::event::{
    Body, CallResult, CellOrigin, CellStatus, ModelResponded, StepEnded, TurnEndReason, TurnEnded,
};
use crate::id::EventId;
use crate::prompt::tool;

/// Where a turn stands. What a restarted host needs to go on is in the log.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Point {
    /// A request is to be made.
    Ask,
    /// A response's calls are to be carried out.
    Calls(u32, EventId, Box<ModelResponded>),
    /// The model answered without a call: its text is the turn's last word.
    Finish(EventId, String),
}

/// What follows a response's calls.
enum After {
    Ask,
    /// An accepted wait has ended the turn in the log.
    Waiting,
    End(TurnEndReason, Option<String>),
    /// The host stops: the turn stays open.
    Stop,
}

impl Coordinator {
    /// Goes on with a turn until it is over, or the host stops.
    pub(super) async fn turn(&mut self, turn: u64, point: Point) -> Result<(), SessionError> {
        let mut point = point;
        loop {
            point = match point {
                Point::Ask => match self.ask(turn).await? {
                    Asked::Go(next) => next,
                    Asked::End(reason, detail) => return self.end_turn(turn, reason, detail).await,
                    Asked::Stop => return Ok(()),
                },
                Point::Calls(step, response, body) => match self.calls(turn, step, response, &body).await? {
                    After::Ask => {
                        self.serve_queue().await?;
                        Point::Ask
                    }
                    After::Waiting | After::Stop => return Ok(()),
                    After::End(reason, detail) => return self.end_turn(turn, reason, detail).await,
                },
                Point::Finish(response, text) => {
                    self.last_word(response, text).await?;
                    return self.end_turn(turn, TurnEndReason::Answered, None).await;
                }
            };
            if self.stopping {
                return Ok(());
            }
        }
    }

    /// Cells of the operator wait for the running cell, not for the turn.
    async fn serve_queue(&mut self) -> Result<(), SessionError> {
        while let Some(exec) = self.queue.pop_front() {
            if self.stopping {
                self.queue.push_front(exec);
                break;
            }
            self.operator_cell(exec).await?;
        }
        Ok(())
    }

    /// Carries out a response's calls in their order. The last result enters the log in one
    /// transaction with the step's end, which is what puts the call and its results into the
    /// transcript.
    async fn calls(
        &mut self,
        turn: u64,
        step: u32,
        response: EventId,
        body: &ModelResponded,
    ) -> Result<After, SessionError> {
        let mut results = Vec::with_capacity(body.calls.len());
        let mut events = Vec::new();
        let mut after = After::Ask;
        for (index, call) in body.calls.iter().enumerate() {
            self.append_results(&mut events, &mut results).await?;
            if !matches!(after, After::Ask) {
                results.push(refused("not run: the turn had ended before it"));
                continue;
            }
            let code = match tool::cell_of(&call.name, &call.arguments) {
                Ok(code) => code,
                Err(message) => {
                    results.push(refused(&message));
                    continue;
                }
            };
            let origin = CellOrigin::Model { turn, step, response, call: index };
            let end = self.run_cell(code, origin).await?;
            after = after_cell(&end, self.stopping);
            events = end.events;
        }
        let session = self.session.clone();
        self.services
            .store
            .write(move |transaction| {
                for event in events {
                    let completes = matches!(event.body, Body::CellCompleted(_));
                    let id = transaction.append(event)?;
                    if completes {
                        results.push(CallResult::Cell { completed: id });
                    }
                }
                let ended = StepEnded { turn, step, response, results };
                transaction.append(host_event(&session, Body::StepEnded(ended)))
            })
            .await?;
        Ok(after)
    }

    /// Logs a cell that is not the last call of its response.
    async fn append_results(
        &mut self,
        events: &mut Vec<crate::event::NewEvent>,
        results: &mut Vec<CallResult>,
    ) -> Result<(), SessionError> {
        for event in events.drain(..) {
            let completes = matches!(event.body, Body::CellCompleted(_));
            let id = self.services.store.append(event).await?;
            if completes {
                results.push(CallResult::Cell { completed: id });
            }
        }
        Ok(())
    }

    /// Delivers the text that ended the turn, where the turn itself sent nothing.
    async fn last_word(&mut self, response: EventId, text: String) -> Result<(), SessionError> {
        let session = self.session.clone();
        let row = self.services.store.read(move |snapshot| snapshot.session(&session)).await?;
        let sent = row.and_then(|row| row.turn).map_or(0, |turn| turn.deliveries);
        let own_deliveries = deliver::already(&self.services, &self.session, response).await?;
        if self.final_text == FinalText::Deliver && (sent == 0 || own_deliveries) && !text.is_empty() {
            deliver::final_text(&self.services, &self.session, response, &text).await?;
        }
        Ok(())
    }

    pub(super) async fn end_turn(
        &mut self,
        turn: u64,
        reason: TurnEndReason,
        detail: Option<String>,
    ) -> Result<(), SessionError> {
        let ended = TurnEnded { turn, reason, detail };
        self.services.store.append(host_event(&self.session, Body::TurnEnded(ended))).await?;
        Ok(())
    }
}

fn refused(message: &str) -> CallResult {
    CallResult::Refused { message: message.to_owned() }
}

fn after_cell(end: &super::cell::CellEnd, stopping: bool) -> After {
    if end.completed.status == CellStatus::Yielded {
        return After::Waiting;
    }
    if end.interrupted {
        return After::End(TurnEndReason::Interrupted, None);
    }
    if end.no_workbench {
        return After::End(TurnEndReason::WorkbenchFailed, end.completed.error.clone());
    }
    if stopping { After::Stop } else { After::Ask }
}
