//! The hook worker: one for the host, asked by every session, replaced when it fails.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::link::{Link, News};
use super::state::{EndReason, StopReason};
use super::{Ended, Hello, StartError, WorkerSpec};
use crate::cell::HookSlot;
use crate::containment::Containment;
use crate::id::{GenerationId, OperationId};
use crate::limits::{HOOK_BUDGET_MS, HOOK_QUEUE_MAX};
use crate::wire::envelope::encode_reply;
use crate::wire::message::{Completion, ErrorCode, Message, ReplyResult};

/// Longest pause between two attempts to start a hook worker.
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Why a hook gave no answer. Whoever asks decides what that means.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HookError {
    /// No answer within the budget, waiting in the queue included.
    #[error("no answer within {HOOK_BUDGET_MS} ms")]
    TimedOut,
    /// The handler failed, or answered something that is not a decision.
    #[error("the handler failed: {0}")]
    Failed(String),
    /// No hook worker runs.
    #[error("no hook worker runs: {0}")]
    Down(String),
    /// More calls wait than may.
    #[error("{HOOK_QUEUE_MAX} calls wait already")]
    Busy,
    /// The input does not fit into a frame.
    #[error("the input is too large for a frame")]
    TooLarge,
}

/// What the actor needs or has to tell.
pub enum HooksNotice {
    /// It wants to start a worker.
    NeedSpec(oneshot::Sender<WorkerSpec>),
    /// A worker runs.
    Started {
        /// What it was started with.
        spec: Box<WorkerSpec>,
        /// What it said of itself.
        hello: Hello,
    },
    /// A worker has ended, or did not start.
    Ended {
        /// Its generation.
        generation: GenerationId,
        /// How.
        ended: Ended,
    },
}

/// The way to the hook worker. A cheap handle.
#[derive(Clone)]
pub struct Hooks {
    calls: mpsc::Sender<Call>,
}

enum Call {
    Invoke {
        slot: HookSlot,
        input: Value,
        deadline: Instant,
        reply: oneshot::Sender<Result<Value, HookError>>,
    },
    Stop(oneshot::Sender<()>),
}

/// A call that its worker has and has not answered.
struct Open {
    deadline: Instant,
    reply: oneshot::Sender<Result<Value, HookError>>,
}

impl Hooks {
    /// Starts the actor; it starts a worker at once, and a new one whenever one ends.
    pub fn start(containment: Arc<dyn Containment>, notices: mpsc::Sender<HooksNotice>) -> Self {
        let (calls, queue) = mpsc::channel(HOOK_QUEUE_MAX);
        tokio::spawn(Actor { containment, notices, queue, failures: 0 }.run());
        Self { calls }
    }

    /// Asks a slot. The budget counts from here, whatever the call waits for.
    pub async fn invoke(&self, slot: HookSlot, input: Value) -> Result<Value, HookError> {
        let deadline = Instant::now() + Duration::from_millis(HOOK_BUDGET_MS);
        let (reply, answer) = oneshot::channel();
        let call = Call::Invoke { slot, input, deadline, reply };
        self.calls.try_send(call).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => HookError::Busy,
            mpsc::error::TrySendError::Closed(_) => HookError::Down("the host is stopping".to_owned()),
        })?;
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(HookError::Down("it ended while the call waited".to_owned())),
            Err(_) => Err(HookError::TimedOut),
        }
    }

    /// Ends the worker and the actor; returns when nothing of them is left.
    pub async fn stop(&self) {
        let (done, finished) = oneshot::channel();
        if self.calls.send(Call::Stop(done)).await.is_ok() {
            // Dropped by an actor that has ended: that is the same.
            let _ = finished.await;
        }
    }
}

struct Actor {
    containment: Arc<dyn Containment>,
    notices: mpsc::Sender<HooksNotice>,
    queue: mpsc::Receiver<Call>,
    /// Workers that did not start or answered no call, one after the other.
    failures: u32,
}

impl Actor {
    async fn run(mut self) {
        loop {
            let Some(spec) = self.spec().await else { return };
            let generation = spec.generation.clone();
            let stop = match Link::start(&spec, &*self.containment).await {
                Ok((link, hello)) => {
                    self.tell(HooksNotice::Started { spec: Box::new(spec), hello }).await;
                    self.failures += 1;
                    let (ended, stop) = self.serve(link).await;
                    let detail = ended.detail.clone();
                    self.tell(HooksNotice::Ended { generation, ended }).await;
                    // One that failed may be replaced at once; a row of them is not to be a spin.
                    if stop.is_none() && self.failures > 1 { self.be_down(&detail).await } else { stop }
                }
                Err(error) => {
                    self.failures += 1;
                    let detail = error.to_string();
                    self.tell(HooksNotice::Ended { generation, ended: not_started(error) }).await;
                    self.be_down(&detail).await
                }
            };
            if let Some(done) = stop {
                let _ = done.send(());
                return;
            }
        }
    }

    async fn spec(&self) -> Option<WorkerSpec> {
        let (reply, spec) = oneshot::channel();
        self.tell(HooksNotice::NeedSpec(reply)).await;
        spec.await.ok()
    }

    /// The host's log keeper ends after this actor, or because the log failed.
    async fn tell(&self, notice: HooksNotice) {
        let _ = self.notices.send(notice).await;
    }

    /// Answers at once while no worker runs, until the next attempt is due.
    async fn be_down(&mut self, problem: &str) -> Option<oneshot::Sender<()>> {
        let pause = Duration::from_secs(1 << self.failures.min(5).saturating_sub(1)).min(RESTART_PAUSE_MAX);
        let until = Instant::now() + pause;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return None,
                call = self.queue.recv() => match call {
                    Some(Call::Invoke { reply, .. }) => {
                        let _ = reply.send(Err(HookError::Down(problem.to_owned())));
                    }
                    Some(Call::Stop(done)) => return Some(done),
                    None => return Some(oneshot::channel().0),
                },
            }
        }
    }

    /// Serves calls until the worker ends or fails; how it ended, and who wanted it to.
    async fn serve(&mut self, mut link: Link) -> (Ended, Option<oneshot::Sender<()>>) {
        let mut open: HashMap<OperationId, Open> = HashMap::new();
        let mut number = 0_u64;
        loop {
            let first = open.values().map(|call| call.deadline).min();
            tokio::select! {
                news = link.next() => if let Some((reason, problem)) = self.take(&mut link, news, &mut open) {
                    if reason == EndReason::Protocol {
                        // What it ended with tells more than its broken connection.
                        let grace = Duration::from_millis(crate::limits::DRAIN_MS_MAX);
                        if tokio::time::timeout(grace, link.exited()).await.is_ok() {
                            return (link.finish(EndReason::Exited, None, None).await, None);
                        }
                    }
                    return (link.finish(reason, problem, None).await, None);
                },
                call = self.queue.recv() => match call {
                    Some(Call::Invoke { slot, input, deadline, reply }) => {
                        number += 1;
                        invoke(&mut link, number, slot, input, Open { deadline, reply }, &mut open);
                    }
                    Some(Call::Stop(done)) => {
                        let reason = EndReason::Stopped(StopReason::HostStopping);
                        return (link.finish(reason, None, None).await, Some(done));
                    }
                    None => {
                        let reason = EndReason::Stopped(StopReason::HostStopping);
                        return (link.finish(reason, None, None).await, Some(oneshot::channel().0));
                    }
                },
                () = at(first) => {
                    return (link.finish(EndReason::HookTimeout, None, None).await, None);
                }
            }
        }
    }

    /// Takes one piece of news; why the worker is to end, if it is.
    fn take(
        &mut self,
        link: &mut Link,
        news: News,
        open: &mut HashMap<OperationId, Open>,
    ) -> Option<(EndReason, Option<String>)> {
        let problem = match news {
            News::Message(Message::Completed { id, result }) => {
                let outcome = match result {
                    Completion::Hook { value } => Ok(value),
                    Completion::Failed { error } => Err(HookError::Failed(error)),
                    Completion::Cell { .. } => {
                        return Some((
                            EndReason::Protocol,
                            Some("a hook worker completed a cell".to_owned()),
                        ));
                    }
                };
                match open.remove(&id) {
                    Some(call) => {
                        self.failures = 0;
                        let _ = call.reply.send(outcome);
                        return None;
                    }
                    None => format!("it completed {id}, which does not run"),
                }
            }
            News::Message(Message::HostRequest { id, execution_id, .. }) => {
                let message = "a hook has no scope of its own".to_owned();
                let result = ReplyResult::Error { code: ErrorCode::Refused, message };
                // A refusal of some hundred bytes fits into a frame.
                if let Ok(frame) = encode_reply(execution_id, id, result, &link.address) {
                    link.send_frame(frame);
                }
                return None;
            }
            News::Message(_) => "it sent a message that is not a hook worker's".to_owned(),
            News::Broken(problem) => problem,
            News::Exited => return Some((EndReason::Exited, None)),
        };
        Some((EndReason::Protocol, Some(problem)))
    }
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Sends a call.
fn invoke(
    link: &mut Link,
    number: u64,
    slot: HookSlot,
    input: Value,
    call: Open,
    open: &mut HashMap<OperationId, Open>,
) {
    if call.deadline <= Instant::now() {
        // It waited in the queue for all of its budget.
        let _ = call.reply.send(Err(HookError::TimedOut));
        return;
    }
    let Ok(id) = OperationId::parse(format!("op-{number}")) else { return };
    let message = Message::Invoke { id: id.clone(), slot, input };
    let Ok(frame) = crate::wire::envelope::encode(&message, &link.address) else {
        let _ = call.reply.send(Err(HookError::TooLarge));
        return;
    };
    open.insert(id, call);
    link.send_frame(frame);
}

fn not_started(error: StartError) -> Ended {
    match error {
        StartError::Ended(ended) => *ended,
        error @ (StartError::Socket { .. } | StartError::Containment { .. }) => Ended {
            reason: EndReason::Exited,
            detail: error.to_string(),
            exit_code: None,
            signal: None,
            stdout_tail: String::new(),
            stderr_tail: String::new(),
            cell_ms: None,
        },
    }
}
