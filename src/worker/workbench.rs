//! The actor of one workbench: performs what its state decides.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::link::{Link, News};
use super::state::{Effect, EndReason, Input, State, StopReason};
use super::{Ended, Hello, StartError, Times, WorkerSpec};
use crate::containment::Containment;
use crate::id::{ExecutionId, OperationId, RequestId};
use crate::wire::envelope::encode_reply;
use crate::wire::message::{Completion, ErrorCode, Message, ReplyResult, Request};

/// Commands that may wait for one workbench.
const COMMANDS_MAX: usize = 64;
/// Events that may wait for the session.
const EVENTS_MAX: usize = 64;

/// A running workbench. A cheap handle.
#[derive(Clone)]
pub struct Workbench {
    commands: mpsc::Sender<Command>,
}

/// A workbench that is ready.
pub struct Started {
    /// The way to it.
    pub workbench: Workbench,
    /// What it said of itself.
    pub hello: Hello,
    /// What it does. The last one is [`WorkerEvent::Ended`], always.
    pub events: mpsc::Receiver<WorkerEvent>,
}

/// What a workbench does.
#[derive(Debug)]
pub enum WorkerEvent {
    /// The running cell asks the host.
    Request {
        /// The cell.
        execution: ExecutionId,
        /// The request.
        id: RequestId,
        /// What it asks.
        request: Request,
    },
    /// The running cell ended.
    Completed {
        /// The cell.
        execution: ExecutionId,
        /// How.
        completion: Completion,
        /// Milliseconds that it ran.
        duration_ms: u64,
    },
    /// Nothing of the generation is left.
    Ended(Ended),
}

/// The workbench has ended; its events say how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the workbench has ended")]
pub struct Gone;

enum Command {
    Execute(ExecutionId, String),
    Reply(ExecutionId, RequestId, ReplyResult),
    Interrupt(ExecutionId),
    Stop(StopReason, oneshot::Sender<()>),
}

impl Workbench {
    /// Starts a worker and waits until it is ready.
    pub async fn start(spec: WorkerSpec, containment: Arc<dyn Containment>) -> Result<Started, StartError> {
        let (link, hello) = Link::start(&spec, &*containment).await?;
        let (commands, queue) = mpsc::channel(COMMANDS_MAX);
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let actor = Actor {
            link,
            events: sender,
            times: spec.times,
            state: State::Idle,
            clocks: Clocks::default(),
            waits: vec![],
            problem: None,
            stoppers: vec![],
        };
        tokio::spawn(actor.run(queue));
        Ok(Started { workbench: Self { commands }, hello, events })
    }

    /// Runs a cell; its end comes as an event.
    pub async fn execute(&self, execution: ExecutionId, code: String) -> Result<(), Gone> {
        self.tell(Command::Execute(execution, code)).await
    }

    /// Answers a request of the running cell. The answer to an ended cell is dropped.
    pub async fn reply(
        &self,
        execution: ExecutionId,
        request: RequestId,
        result: ReplyResult,
    ) -> Result<(), Gone> {
        self.tell(Command::Reply(execution, request, result)).await
    }

    /// Asks a cell to stop; when it does not within the grace time, the generation is killed.
    pub async fn interrupt(&self, execution: ExecutionId) -> Result<(), Gone> {
        self.tell(Command::Interrupt(execution)).await
    }

    /// Asks the worker to end, kills it when it does not; returns when nothing of it is left.
    pub async fn stop(&self, reason: StopReason) {
        let (done, finished) = oneshot::channel();
        if self.tell(Command::Stop(reason, done)).await.is_ok() {
            // Dropped by an actor that has ended: that is the same.
            let _ = finished.await;
        }
    }

    async fn tell(&self, command: Command) -> Result<(), Gone> {
        self.commands.send(command).await.map_err(|_| Gone)
    }
}

#[derive(Default)]
struct Clocks {
    cell_started: Option<Instant>,
    cell_over: Option<Instant>,
    grace_over: Option<Instant>,
    shutdown_over: Option<Instant>,
}

struct Actor {
    link: Link,
    events: mpsc::Sender<WorkerEvent>,
    times: Times,
    state: State,
    clocks: Clocks,
    /// Requests of the running cell that ask for a wait.
    waits: Vec<RequestId>,
    problem: Option<String>,
    stoppers: Vec<oneshot::Sender<()>>,
}

/// What an effect needs beside its name.
enum Carried {
    Nothing,
    Execute(ExecutionId, String),
    Request(ExecutionId, RequestId, Request),
    Completed(ExecutionId, Completion),
    Interrupt(ExecutionId),
}

/// Whether the actor goes on.
#[derive(PartialEq, Eq)]
enum Go {
    On,
    End,
}

impl Actor {
    async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        loop {
            let go = tokio::select! {
                news = self.link.next() => self.news(news).await,
                command = commands.recv() => self.command(command).await,
                input = self.clocks.next() => self.step(input, Carried::Nothing).await,
            };
            if go == Go::End {
                break;
            }
        }
        let reason = match self.state {
            State::Stopping { reason } => reason,
            State::Idle | State::Executing { .. } => EndReason::Exited,
        };
        let cell_ms = self.clocks.cell_started.map(elapsed_ms);
        let ended = self.link.finish(reason, self.problem, cell_ms).await;
        // A session that has ended has logged the end of its generations already.
        let _ = self.events.send(WorkerEvent::Ended(ended)).await;
        for stopper in self.stoppers {
            let _ = stopper.send(());
        }
    }

    async fn news(&mut self, news: News) -> Go {
        match news {
            News::Message(Message::HostRequest { id, execution_id, request }) => {
                let of = OperationId::from(execution_id.clone());
                self.step(Input::Request(of), Carried::Request(execution_id, id, request)).await
            }
            News::Message(Message::Completed { id, result }) => {
                let status = match &result {
                    Completion::Cell { status, .. } => Some(*status),
                    Completion::Failed { .. } => None,
                    Completion::Hook { .. } => return self.violation("a workbench completed a hook").await,
                };
                let execution = ExecutionId::from(id.clone());
                self.step(Input::Completed(id, status), Carried::Completed(execution, result)).await
            }
            News::Message(Message::Hello { .. }) => self.violation("it said hello twice").await,
            News::Message(
                Message::Execute { .. }
                | Message::Invoke { .. }
                | Message::HostReply { .. }
                | Message::Interrupt { .. }
                | Message::Shutdown {},
            ) => self.violation("it sent a message of the host's").await,
            News::Broken(problem) => self.violation(&problem).await,
            News::Exited => Go::End,
        }
    }

    async fn violation(&mut self, problem: &str) -> Go {
        // While it is ending, a closed connection is what was asked for.
        if !matches!(self.state, State::Stopping { .. }) {
            self.problem = Some(problem.to_owned());
            // A process that is ending tells more by its exit than by its broken connection.
            let grace = Duration::from_millis(crate::limits::DRAIN_MS_MAX);
            if tokio::time::timeout(grace, self.link.exited()).await.is_ok() {
                self.problem = None;
                return Go::End;
            }
        } else if tokio::time::timeout(self.times.shutdown_grace, self.link.exited()).await.is_ok() {
            return Go::End;
        }
        self.step(Input::Violation, Carried::Nothing).await
    }

    async fn command(&mut self, command: Option<Command>) -> Go {
        match command {
            Some(Command::Execute(execution, code)) => {
                let operation = OperationId::from(execution.clone());
                self.step(Input::Execute(operation), Carried::Execute(execution, code)).await
            }
            Some(Command::Interrupt(execution)) => {
                let operation = OperationId::from(execution.clone());
                self.step(Input::Interrupt(operation), Carried::Interrupt(execution)).await
            }
            Some(Command::Reply(execution, request, result)) => self.reply(execution, request, result).await,
            Some(Command::Stop(reason, done)) => {
                self.stoppers.push(done);
                self.step(Input::Stop(reason), Carried::Nothing).await
            }
            // Nobody is left who could want it.
            None => self.step(Input::Stop(StopReason::HostStopping), Carried::Nothing).await,
        }
    }

    async fn reply(&mut self, execution: ExecutionId, request: RequestId, result: ReplyResult) -> Go {
        let running = match &self.state {
            State::Executing { operation, .. } => *operation == OperationId::from(execution.clone()),
            State::Idle | State::Stopping { .. } => false,
        };
        if !running {
            return Go::On;
        }
        let accepted = matches!(result, ReplyResult::Ok { .. }) && self.waits.contains(&request);
        self.send_reply(execution.clone(), request, result);
        if accepted {
            return self.step(Input::WaitAccepted(execution.into()), Carried::Nothing).await;
        }
        Go::On
    }

    fn send_reply(&mut self, execution: ExecutionId, request: RequestId, result: ReplyResult) {
        match encode_reply(execution, request, result, &self.link.address) {
            Ok(frame) => self.link.send_frame(frame),
            Err(error) => tracing::error!("a reply could not be encoded: {error}"),
        }
    }

    async fn step(&mut self, input: Input, carried: Carried) -> Go {
        let state = std::mem::replace(&mut self.state, State::Idle);
        let (state, effects) = state.on(input);
        self.state = state;
        let mut carried = carried;
        for effect in effects {
            if !self.perform(effect, std::mem::replace(&mut carried, Carried::Nothing)).await {
                return Go::End;
            }
        }
        Go::On
    }

    /// Does one thing; false where everything is to be killed.
    async fn perform(&mut self, effect: Effect, carried: Carried) -> bool {
        match (effect, carried) {
            (Effect::Execute, Carried::Execute(execution, code)) => {
                let now = Instant::now();
                self.waits.clear();
                self.clocks.cell_started = Some(now);
                self.clocks.cell_over = self.times.cell_max.map(|max| now + max);
                self.link.send(&Message::Execute { id: execution.into(), code });
            }
            (Effect::PassRequest, Carried::Request(execution, id, request)) => {
                if matches!(request, Request::RuntimeWait { .. }) {
                    self.waits.push(id.clone());
                }
                // As at the end: a session that has ended needs no events.
                let _ = self.events.send(WorkerEvent::Request { execution, id, request }).await;
            }
            (Effect::RefuseRequest(code), Carried::Request(execution, id, _)) => {
                let message = refusal(code).to_owned();
                self.send_reply(execution, id, ReplyResult::Error { code, message });
            }
            (Effect::PassCompletion, Carried::Completed(execution, completion)) => {
                let duration_ms = self.clocks.cell_started.map_or(0, elapsed_ms);
                self.clocks = Clocks::default();
                let _ = self.events.send(WorkerEvent::Completed { execution, completion, duration_ms }).await;
            }
            (Effect::Interrupt, Carried::Interrupt(execution)) => {
                self.clocks.grace_over = Some(Instant::now() + self.times.interrupt_grace);
                self.link.send(&Message::Interrupt { id: execution.into() });
            }
            (Effect::Shutdown, _) => {
                self.clocks.shutdown_over = Some(Instant::now() + self.times.shutdown_grace);
                self.link.send(&Message::Shutdown {});
            }
            // An effect always comes with what it needs: it was asked for with it.
            (Effect::Kill | Effect::Execute | Effect::PassRequest | Effect::RefuseRequest(_), _)
            | (Effect::PassCompletion | Effect::Interrupt, _) => return false,
        }
        true
    }
}

fn refusal(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::TooManyRequests => "this cell has made all the requests that one cell may make",
        _ => "the cell of this request has ended, or has yielded; ask from a cell that runs",
    }
}

impl Clocks {
    /// The next clock that runs out.
    async fn next(&mut self) -> Input {
        let clocks = [
            (self.shutdown_over, Input::ShutdownOver),
            (self.grace_over, Input::GraceOver),
            (self.cell_over, Input::CellOver),
        ];
        let first =
            clocks.into_iter().filter_map(|(at, input)| at.map(|at| (at, input))).min_by_key(|(at, _)| *at);
        let Some((at, input)) = first else { return std::future::pending().await };
        tokio::time::sleep_until(at).await;
        match input {
            Input::ShutdownOver => self.shutdown_over = None,
            Input::GraceOver => self.grace_over = None,
            _ => self.cell_over = None,
        }
        input
    }
}

fn elapsed_ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
