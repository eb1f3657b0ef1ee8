//! One session's coordinator: waits, wakes, and takes turns, one thing at a time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::generation::{Workshop, ended_event, host_event};
use super::status::{Phase, PhaseName, WorkbenchStatus};
use super::transcript::Transcript;
use super::turn::Point;
use super::{Command, Exec, ExecOutcome, Interrupted, Refusal, ResetOutcome, SessionError, Settings};
use crate::cell::Role;
use crate::clock;
use crate::config::FinalText;
use crate::event::{Body, NewEvent, ResetReason, TurnStarted, Wake, WakeCause};
use crate::id::{GenerationId, SessionId};
use crate::limits::EXEC_QUEUE_MAX;
use crate::notice;
use crate::requests::Services;
use crate::route::Route;
use crate::worker::{Started, StopReason, Workbench, WorkerEvent};

/// A deadline is looked at again after at most this long: the wall clock may jump, a machine may
/// sleep, and timers count neither.
const CLOCK_CHECK: Duration = Duration::from_secs(15);

/// What a coordinator works with.
pub(super) struct Coordinator {
    pub(super) session: SessionId,
    pub(super) services: Services,
    pub(super) workshop: Arc<Workshop>,
    pub(super) route: Route,
    pub(super) final_text: FinalText,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) phase: Arc<Mutex<Phase>>,
    pub(super) bench: Option<Bench>,
    pub(super) transcript: Option<Transcript>,
    /// Cells of the operator that wait.
    pub(super) queue: VecDeque<Exec>,
    /// Why the next generation will be started.
    pub(super) reset_reason: ResetReason,
    /// An earlier namespace is lost with the next generation.
    pub(super) namespace_lost: bool,
    pub(super) stopping: bool,
    /// A bound of an hour or a day has ended the last turn.
    pub(super) held_back: bool,
}

/// A running workbench.
pub(super) struct Bench {
    pub(super) workbench: Workbench,
    pub(super) events: mpsc::Receiver<WorkerEvent>,
    pub(super) generation: GenerationId,
    pub(super) unit: String,
}

impl Coordinator {
    /// Lives until it is told to stop or the log fails. `point` is where an open turn goes on.
    pub(super) async fn run(mut self, point: Option<(u64, Point)>) -> Result<(), SessionError> {
        let mut open = point;
        loop {
            if self.stopping {
                return self.close().await;
            }
            if let Some((turn, point)) = open.take() {
                self.turn(turn, point).await?;
            } else if let Some(exec) = self.queue.pop_front() {
                self.operator_cell(exec).await?;
            } else {
                open = self.wait().await?;
            }
            self.set_phase(PhaseName::Waiting);
        }
    }

    /// Waits for what starts a turn, and starts it; `None` when there is something else to do.
    async fn wait(&mut self) -> Result<Option<(u64, Point)>, SessionError> {
        let session = self.session.clone();
        let (pending, deadline_ms) = self
            .services
            .store
            .read(move |snapshot| {
                let wait = snapshot.session(&session)?.and_then(|row| row.wait);
                Ok((snapshot.pending_inputs(&session)?.len(), wait.and_then(|wait| wait.deadline_ms)))
            })
            .await?;
        if pending > 0 && !self.is_held_back().await? {
            return self.start_turn(WakeCause::Input).await.map(Some);
        }
        let left = deadline_ms.map(|deadline| deadline.saturating_sub(clock::now_ms()));
        if left.is_some_and(|left| left <= 0) {
            return self.start_turn(WakeCause::Deadline).await.map(Some);
        }
        let nap = left.map(|ms| Duration::from_millis(ms.unsigned_abs()).min(CLOCK_CHECK));
        let nap = if self.held_back { Some(nap.unwrap_or(CLOCK_CHECK)) } else { nap };
        tokio::select! {
            command = self.commands.recv() => self.idle_command(command).await?,
            event = next_event(&mut self.bench) => self.idle_event(event).await?,
            () = sleep(nap) => {}
        }
        Ok(None)
    }

    /// Whether a bound of an hour or a day, which has ended a turn, still holds: what is pending
    /// waits for it, rather than start turns that end at once.
    async fn is_held_back(&mut self) -> Result<bool, SessionError> {
        self.held_back = self.held_back && self.guard().await?.is_some();
        Ok(self.held_back)
    }

    async fn start_turn(&mut self, cause: WakeCause) -> Result<(u64, Point), SessionError> {
        self.set_phase(PhaseName::Attending);
        let session = self.session.clone();
        let turn = self
            .services
            .store
            .write(move |transaction| {
                let row = transaction.session(&session)?;
                let turn = row.as_ref().map_or(0, |row| row.last_turn) + 1;
                if let Some(wait) = row.and_then(|row| row.wait) {
                    let wake = Wake { cause, wait: Some(wait.event) };
                    transaction.append(host_event(&session, Body::Wake(wake)))?;
                }
                transaction.append(host_event(&session, Body::TurnStarted(TurnStarted { turn, cause })))?;
                Ok(turn)
            })
            .await?;
        Ok((turn, Point::Ask))
    }

    async fn idle_command(&mut self, command: Option<Command>) -> Result<(), SessionError> {
        match command {
            Some(Command::Input) => {}
            Some(Command::Exec(exec)) => self.enqueue(exec),
            Some(Command::Interrupt(reply)) => answer(reply, Interrupted::default()),
            Some(Command::Reset(reply)) => self.reset(reply).await?,
            Some(Command::Settings(settings)) => self.take_over(*settings),
            Some(Command::Stop) | None => self.stopping = true,
        }
        Ok(())
    }

    /// Goes on with these from the next request to a route on.
    pub(super) fn take_over(&mut self, settings: Settings) {
        self.route = settings.route;
        self.final_text = settings.final_text;
        self.services.facts = settings.facts;
    }

    /// Lets a cell of the operator wait for its turn.
    pub(super) fn enqueue(&mut self, exec: Exec) {
        // Whoever went away wants nothing run any more.
        self.queue.retain(|waiting| !waiting.reply.is_closed());
        if self.queue.len() >= EXEC_QUEUE_MAX {
            let busy = format!("{EXEC_QUEUE_MAX} cells of the operator wait already");
            answer(exec.reply, Err(Refusal::Busy(busy)));
            return;
        }
        self.queue.push_back(exec);
    }

    /// What a workbench may do while no cell runs: end.
    pub(super) async fn idle_event(&mut self, event: WorkerEvent) -> Result<(), SessionError> {
        match event {
            // The actor has refused what is out of scope; a request that was under way when its
            // cell ended has no one to answer to.
            WorkerEvent::Request { .. } | WorkerEvent::Completed { .. } => {}
            WorkerEvent::Ended(ended) => {
                if let Some(bench) = self.drop_bench(ResetReason::Died) {
                    let event = ended_event(&self.session, Role::Workbench, &bench.generation, &ended);
                    self.services.store.append(event).await?;
                }
            }
        }
        Ok(())
    }

    /// A new generation, because the operator asked.
    pub(super) async fn reset(
        &mut self,
        reply: oneshot::Sender<Result<ResetOutcome, Refusal>>,
    ) -> Result<(), SessionError> {
        self.stop_bench(StopReason::Operator, ResetReason::Operator).await?;
        self.reset_reason = ResetReason::Operator;
        let outcome = match self.start_bench().await? {
            Ok(event) => {
                self.services.store.append(event).await?;
                let bench = self.bench.as_ref().map(|bench| bench.generation.clone());
                bench.map(|generation| ResetOutcome { generation }).ok_or(Refusal::Stopping)
            }
            Err(problem) => Err(Refusal::Internal(problem)),
        };
        answer(reply, outcome);
        Ok(())
    }

    /// Starts a workbench where none runs: the event that is to be logged with what it is for, or,
    /// when it cannot be started, what to tell whoever wanted it.
    pub(super) async fn start_bench(&mut self) -> Result<Result<NewEvent, String>, SessionError> {
        let spec = self.workshop.next(&self.session, Role::Workbench, None).await?;
        let started = Workbench::start(spec.clone(), Arc::clone(&self.workshop.containment)).await;
        let Started { workbench, hello, events } = match started {
            Ok(started) => started,
            Err(error) => {
                let problem = format!("the workbench could not be started: {error}");
                tracing::error!(
                    message_id = notice::WORKER_FAILED,
                    klbr_session = %self.session,
                    klbr_generation = %spec.generation,
                    klbr_unit = %spec.unit,
                    "{problem}"
                );
                return Ok(Err(problem));
            }
        };
        let event = self.workshop.reset_event(&spec, &hello, self.reset_reason, self.namespace_lost);
        self.bench = Some(Bench { workbench, events, generation: spec.generation, unit: spec.unit });
        self.show_bench();
        Ok(Ok(event))
    }

    /// Stops the workbench, if one runs, and logs its end.
    async fn stop_bench(&mut self, reason: StopReason, next: ResetReason) -> Result<(), SessionError> {
        let Some(mut bench) = self.drop_bench(next) else { return Ok(()) };
        bench.workbench.stop(reason).await;
        while let Some(event) = bench.events.recv().await {
            if let WorkerEvent::Ended(ended) = event {
                let event = ended_event(&self.session, Role::Workbench, &bench.generation, &ended);
                self.services.store.append(event).await?;
                break;
            }
        }
        Ok(())
    }

    /// Forgets the workbench; the next one is started for this reason.
    pub(super) fn drop_bench(&mut self, next: ResetReason) -> Option<Bench> {
        let bench = self.bench.take()?;
        self.reset_reason = next;
        self.namespace_lost = true;
        self.show_bench();
        Some(bench)
    }

    async fn close(&mut self) -> Result<(), SessionError> {
        for exec in self.queue.drain(..) {
            answer(exec.reply, Err::<ExecOutcome, _>(Refusal::Stopping));
        }
        self.stop_bench(StopReason::HostStopping, ResetReason::HostRestarted).await
    }

    pub(super) fn set_phase(&self, name: PhaseName) {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner).state = name;
    }

    fn show_bench(&self) {
        let shown = self
            .bench
            .as_ref()
            .map(|bench| WorkbenchStatus { generation: bench.generation.clone(), unit: bench.unit.clone() });
        self.phase.lock().unwrap_or_else(PoisonError::into_inner).workbench = shown;
    }
}

/// Whoever asked may have gone away: then nobody needs the answer.
pub(super) fn answer<T>(reply: oneshot::Sender<T>, value: T) {
    let _ = reply.send(value);
}

async fn next_event(bench: &mut Option<Bench>) -> WorkerEvent {
    let event = match bench {
        Some(bench) => bench.events.recv().await,
        None => None,
    };
    match event {
        Some(event) => event,
        // No workbench, or one whose end was taken note of: nothing will ever come.
        None => std::future::pending().await,
    }
}

async fn sleep(nap: Option<Duration>) {
    match nap {
        Some(nap) => tokio::time::sleep(nap).await,
        None => std::future::pending().await,
    }
}
