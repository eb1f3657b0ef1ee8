//! One request to the route: made of the transcript, logged before it is sent.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::coordinator::{Coordinator, answer};
use super::generation::host_event;
use super::status::PhaseName;
use super::transcript::{Transcript, event};
use super::turn::Point;
use super::{Command, Interrupted, SessionError};
use crate::clock;
use crate::event::{
    Body, HeaderPin, HeaderPinTag, ModelFailed, ModelRequested, ModelResponded, NewEvent, NotExtension,
    PinReason, Source, StepEnded, TurnEndReason,
};
use crate::id::{EventId, SessionId};
use crate::prompt::{Header, Sequence, tool};
use crate::requests::Facts;
use crate::route::{Answer, Failure, Question};
use crate::store::{StoreError, Transaction};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// What came of asking.
pub(super) enum Asked {
    Go(Point),
    End(TurnEndReason, Option<String>),
    /// The host stops: the turn stays open.
    Stop,
}

/// A request that is logged and not yet sent.
struct Prepared {
    transcript: Transcript,
    request: EventId,
    step: u32,
    answered: u64,
}

/// Ends the request with whoever waits for it.
struct AbortOnDrop(JoinHandle<Result<Answer, Failure>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Coordinator {
    /// Asks the route for the turn's next step.
    pub(super) async fn ask(&mut self, turn: u64) -> Result<Asked, SessionError> {
        self.set_phase(PhaseName::Attending);
        if let Some((reason, detail)) = self.guard().await? {
            self.held_back = matches!(reason, TurnEndReason::RequestLimit | TurnEndReason::TokenLimit);
            return Ok(Asked::End(reason, Some(detail)));
        }
        // A transcript in memory has its pin: only the first request needs the text.
        let header = match self.transcript {
            Some(_) => None,
            None => Some(Header::compose(super::host::instructions(&self.workshop.workspace).as_deref())),
        };
        let (session, facts) = (self.session.clone(), Arc::clone(&self.services.facts));
        let transcript = self.transcript.take();
        let prepared = self
            .services
            .store
            .write(move |transaction| {
                Ok(prepare(transaction, &session, &facts, turn, header.as_ref(), transcript))
            })
            .await??;
        let Prepared { transcript, request, step, answered } = prepared;
        let question = Question {
            messages: transcript.messages().into(),
            tools: tool::TOOLS_JSON,
            latest: transcript.latest(),
            answered,
        };
        self.transcript = Some(transcript);
        self.set_phase(PhaseName::Requesting);
        let route = self.route.clone();
        let mut task = AbortOnDrop(tokio::spawn(async move { route.ask(question).await }));
        let outcome = loop {
            tokio::select! {
                outcome = &mut task.0 => break outcome,
                command = self.commands.recv() => {
                    if let Some(asked) = self.command_in_request(command, turn, request).await? {
                        return Ok(asked);
                    }
                }
            }
        };
        match outcome {
            Ok(Ok(answer)) => self.answered(turn, step, request, answer).await,
            Ok(Err(failure)) => self.failed(request, failure).await,
            Err(_) => Err(SessionError::Inconsistent("the route's reader panicked".to_owned())),
        }
    }

    /// The bounds of a turn, an hour and a day; the first one that is reached, in words.
    pub(super) async fn guard(&self) -> Result<Option<(TurnEndReason, String)>, SessionError> {
        let limits = self.services.facts.limits;
        let session = self.session.clone();
        let now = clock::now_ms();
        let (steps, requests, tokens) = self
            .services
            .store
            .read(move |snapshot| {
                let steps = snapshot.session(&session)?.and_then(|row| row.turn).map_or(0, |turn| turn.steps);
                let requests = snapshot.requests_since(&session, now - HOUR_MS)?;
                Ok((steps, requests, snapshot.tokens_since(&session, now - DAY_MS)?))
            })
            .await?;
        if steps >= limits.steps_per_turn {
            let detail =
                format!("the turn made {steps} steps, limits.steps_per_turn is {}", limits.steps_per_turn);
            return Ok(Some((TurnEndReason::StepLimit, detail)));
        }
        if requests >= u64::from(limits.requests_per_hour) {
            let detail = format!(
                "{requests} requests in the last hour, limits.requests_per_hour is {}",
                limits.requests_per_hour
            );
            return Ok(Some((TurnEndReason::RequestLimit, detail)));
        }
        if tokens >= limits.tokens_per_day {
            let detail = format!(
                "{tokens} tokens in the last day, limits.tokens_per_day is {}",
                limits.tokens_per_day
            );
            return Ok(Some((TurnEndReason::TokenLimit, detail)));
        }
        Ok(None)
    }

    async fn command_in_request(
        &mut self,
        command: Option<Command>,
        turn: u64,
        request: EventId,
    ) -> Result<Option<Asked>, SessionError> {
        match command {
            Some(Command::Input) => {}
            // The workbench is free while the model thinks.
            Some(Command::Exec(exec)) => {
                self.operator_cell(exec).await?;
                if self.stopping {
                    self.give_up(request, "abandoned", "the host was stopped").await?;
                    return Ok(Some(Asked::Stop));
                }
                self.set_phase(PhaseName::Requesting);
            }
            Some(Command::Reset(reply)) => self.reset(reply).await?,
            Some(Command::Settings(settings)) => self.take_over(*settings),
            Some(Command::Interrupt(reply)) => {
                self.give_up(request, "interrupted", "the operator interrupted it").await?;
                answer(reply, Interrupted { execution_id: None, turn: Some(turn) });
                return Ok(Some(Asked::End(TurnEndReason::Interrupted, None)));
            }
            Some(Command::Stop) | None => {
                self.stopping = true;
                self.give_up(request, "abandoned", "the host was stopped").await?;
                return Ok(Some(Asked::Stop));
            }
        }
        Ok(None)
    }

    async fn give_up(&mut self, request: EventId, class: &str, message: &str) -> Result<(), SessionError> {
        let failed = ModelFailed {
            request,
            class: class.to_owned(),
            message: message.to_owned(),
            http_status: None,
            attempts: 1,
        };
        self.services.store.append(host_event(&self.session, Body::ModelFailed(failed))).await?;
        Ok(())
    }

    async fn answered(
        &mut self,
        turn: u64,
        step: u32,
        request: EventId,
        answer: Answer,
    ) -> Result<Asked, SessionError> {
        let body = ModelResponded {
            request,
            text: answer.text,
            reasoning: answer.reasoning,
            calls: answer.calls,
            finish_reason: answer.finish_reason,
            usage: answer.usage,
            usage_raw: answer.usage_raw,
            duration_ms: answer.duration_ms,
        };
        let session = self.session.clone();
        let logged = body.clone();
        let response = self
            .services
            .store
            .write(move |transaction| {
                let without_calls = logged.calls.is_empty();
                let response = transaction.append(NewEvent {
                    source: Source::session(),
                    ..host_event(&session, Body::ModelResponded(Box::new(logged)))
                })?;
                if without_calls {
                    let ended = StepEnded { turn, step, response, results: vec![] };
                    transaction.append(host_event(&session, Body::StepEnded(ended)))?;
                }
                Ok(response)
            })
            .await?;
        Ok(Asked::Go(if body.calls.is_empty() {
            Point::Finish(response, body.text)
        } else {
            Point::Calls(step, response, Box::new(body))
        }))
    }

    async fn failed(&mut self, request: EventId, failure: Failure) -> Result<Asked, SessionError> {
        let class = failure.class.as_str();
        let failed = ModelFailed {
            request,
            class: class.to_owned(),
            message: failure.message.clone(),
            http_status: failure.http_status,
            attempts: failure.attempts,
        };
        self.services.store.append(host_event(&self.session, Body::ModelFailed(failed))).await?;
        Ok(Asked::End(TurnEndReason::RouteFailed, Some(failure.message)))
    }
}

/// Takes up what is new, pins the header where there is none, and logs the request, all in one
/// transaction.
fn prepare(
    transaction: &mut Transaction<'_>,
    session: &SessionId,
    facts: &Facts,
    turn: u64,
    header: Option<&Header>,
    transcript: Option<Transcript>,
) -> Result<Prepared, SessionError> {
    let pinned = match (transaction.header(session)?, header) {
        (Some((_, pin)), _) => pin.text,
        (None, Some(header)) => pin(transaction, session, header)?,
        (None, None) => return Err(SessionError::Inconsistent("a transcript without a header".to_owned())),
    };
    let mut transcript = transcript.unwrap_or_else(|| Transcript::new(&pinned));
    transcript.catch_up(transaction, session)?;
    let mut adopted = transaction.pending_inputs(session)?;
    adopted.extend(transaction.unadopted_observations(session)?);
    adopted.sort_unstable();
    for id in &adopted {
        transcript.adopt(&event(transaction, *id)?)?;
    }
    let sequence = transcript.sequence();
    let earlier = transaction.last_request(session)?.map(|(_, request)| request);
    let (shared_prefix_bytes, not_extension) = match &earlier {
        None => (0, Some(NotExtension::SessionStart)),
        Some(request) => {
            let earlier = Sequence { bytes: request.bytes, digest: request.digest.clone() };
            if transcript.extends(&earlier) {
                (request.bytes, None)
            } else {
                (0, Some(NotExtension::RenderingChanged))
            }
        }
    };
    let steps = transaction.session(session)?.and_then(|row| row.turn).map_or(0, |open| open.steps);
    let step = steps + 1;
    let answered = transaction.route_answers(session, &facts.route)?;
    let request = transaction.append(host_event(
        session,
        Body::ModelRequested(ModelRequested {
            turn,
            step,
            route: facts.route.clone(),
            model: facts.model.clone(),
            digest: sequence.digest.clone(),
            bytes: sequence.bytes,
            shared_prefix_bytes,
            not_extension,
            adopted,
        }),
    ))?;
    transcript.requested = Some(sequence);
    Ok(Prepared { transcript, request, step, answered })
}

fn pin(
    transaction: &mut Transaction<'_>,
    session: &SessionId,
    header: &Header,
) -> Result<String, StoreError> {
    transaction.append(host_event(
        session,
        Body::PromptHeader(HeaderPin {
            tag: HeaderPinTag::HeaderPin,
            digest: header.digest.clone(),
            text: header.text.clone(),
            reason: PinReason::SessionStart,
            pinned_at_ms: clock::now_ms(),
            sources: header.sources.clone(),
        }),
    ))?;
    Ok(header.text.clone())
}
