//! One cell: from its source to the record of how it ended.

use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::coordinator::{Coordinator, answer};
use super::generation::{ended_event, host_event};
use super::status::PhaseName;
use super::{Command, Exec, ExecOutcome, Interrupted, Refusal, ResetOutcome, SessionError, When};
use crate::cell::Role;
use crate::event::{
    Body, CellCompleted, CellOrigin, CellStarted, CellStatus, EffectState, LedgerEntry, NewEvent, ResetReason,
};
use crate::id::{ExecutionId, GenerationId, RequestId};
use crate::requests::{self, Caller};
use crate::store::Snapshot;
use crate::wire::message::{Completion, ReplyResult, WorkerCellStatus};
use crate::worker::{Ended, StopReason, WorkerEvent};

/// How a cell ended, not yet logged: what is to be appended, and what it means for the turn.
pub(super) struct CellEnd {
    /// `generation.ended` where the worker died, then `cell.completed`.
    pub(super) events: Vec<NewEvent>,
    pub(super) completed: CellCompleted,
    /// The operator wanted it to stop.
    pub(super) interrupted: bool,
    /// The workbench could not be started at all.
    pub(super) no_workbench: bool,
}

type Reset = oneshot::Sender<Result<ResetOutcome, Refusal>>;

/// What is known while a cell runs.
struct Running {
    caller: Caller,
    interrupted: bool,
    reset: Option<Reset>,
    requests: JoinSet<(RequestId, ReplyResult)>,
}

/// How a cell's worker let go of it.
enum Outcome {
    Completed(Completion, u64),
    Ended(Ended),
}

impl Coordinator {
    /// Runs a cell for the operator, and answers.
    pub(super) async fn operator_cell(&mut self, exec: Exec) -> Result<(), SessionError> {
        // Whoever asked has gone away while it waited, and nothing of it has begun.
        if exec.reply.is_closed() {
            return Ok(());
        }
        let end = self.run_cell(exec.code, CellOrigin::Operator {}).await?;
        let events = end.events;
        let event_id = self
            .services
            .store
            .write(move |transaction| {
                let mut last = None;
                for event in events {
                    last = Some(transaction.append(event)?);
                }
                Ok(last)
            })
            .await?;
        let outcome = match event_id {
            Some(event_id) => Ok(ExecOutcome {
                event_id,
                execution_id: end.completed.execution,
                status: end.completed.status,
                output: end.completed.output,
                truncated_bytes: end.completed.truncated_bytes,
                error: end.completed.error,
            }),
            None => Err(Refusal::Internal("the cell left no record".to_owned())),
        };
        answer(exec.reply, outcome);
        Ok(())
    }

    /// Runs a cell to its end, whatever end that is.
    pub(super) async fn run_cell(
        &mut self,
        code: String,
        origin: CellOrigin,
    ) -> Result<CellEnd, SessionError> {
        self.set_phase(PhaseName::Executing);
        self.notice_events().await?;
        let reset = match self.bench {
            Some(_) => None,
            None => match self.start_bench().await? {
                Ok(event) => Some(event),
                Err(problem) => return self.never_ran(code, origin, problem).await,
            },
        };
        let Some(bench) = &self.bench else {
            return Err(SessionError::Inconsistent("a workbench started and is not there".to_owned()));
        };
        let (workbench, generation, unit) =
            (bench.workbench.clone(), bench.generation.clone(), bench.unit.clone());
        if reset.is_some() {
            self.namespace_lost = false;
        }
        let caller = self.log_start(code.clone(), origin, generation, unit, reset).await?;
        let mut running = Running { interrupted: false, reset: None, requests: JoinSet::new(), caller };
        // A worker that is gone already tells so by its last event.
        let _ = workbench.execute(running.caller.execution.clone(), code).await;
        let outcome = self.attend(&mut running).await?;
        let end = self.conclude(&mut running, outcome).await?;
        if let Some(reply) = running.reset.take() {
            self.reset(reply).await?;
        }
        Ok(end)
    }

    /// Takes note of what the workbench did while nobody listened: it may be gone.
    async fn notice_events(&mut self) -> Result<(), SessionError> {
        while let Some(event) = self.bench.as_mut().and_then(|bench| bench.events.try_recv().ok()) {
            self.idle_event(event).await?;
        }
        Ok(())
    }

    /// Logs that the cell starts (with the generation that was started for it), and fixes what it
    /// runs under.
    async fn log_start(
        &mut self,
        code: String,
        origin: CellOrigin,
        generation: GenerationId,
        unit: String,
        reset: Option<NewEvent>,
    ) -> Result<Caller, SessionError> {
        let session = self.session.clone();
        let caller = self
            .services
            .store
            .write(move |transaction| {
                if let Some(event) = reset {
                    transaction.append(event)?;
                }
                let execution = ExecutionId::numbered(transaction.next_execution_number()?);
                let step = match &origin {
                    CellOrigin::Model { turn, step, .. } => Some((*turn, *step)),
                    CellOrigin::Operator {} => None,
                };
                let started = CellStarted {
                    execution: execution.clone(),
                    generation: generation.clone(),
                    origin,
                    code,
                };
                transaction.append(NewEvent {
                    execution: Some(execution.clone()),
                    ..host_event(&session, Body::CellStarted(started))
                })?;
                Ok(Caller {
                    header_digest: transaction.header(&session)?.map(|(_, pin)| pin.digest),
                    prompt_tokens: transaction.last_prompt_tokens(&session)?,
                    behavior: transaction.behavior()?,
                    session,
                    execution,
                    generation,
                    unit,
                    step,
                })
            })
            .await?;
        Ok(caller)
    }

    /// Serves the running cell and the operator until the worker lets go of it.
    async fn attend(&mut self, running: &mut Running) -> Result<Outcome, SessionError> {
        loop {
            let Some(bench) = &mut self.bench else {
                return Err(SessionError::Inconsistent("the workbench went away under its cell".to_owned()));
            };
            let workbench = bench.workbench.clone();
            tokio::select! {
                event = bench.events.recv() => match event {
                    Some(WorkerEvent::Request { id, request, .. }) => {
                        let (services, caller) = (self.services.clone(), running.caller.clone());
                        running.requests.spawn(async move {
                            let result = requests::answer(&services, &caller, id.clone(), request).await;
                            (id, result)
                        });
                    }
                    Some(WorkerEvent::Completed { completion, duration_ms, .. }) => {
                        return Ok(Outcome::Completed(completion, duration_ms));
                    }
                    Some(WorkerEvent::Ended(ended)) => return Ok(Outcome::Ended(ended)),
                    None => {
                        return Err(SessionError::Inconsistent("a worker ended without saying so".to_owned()));
                    }
                },
                Some(done) = running.requests.join_next() => {
                    if let Ok((id, result)) = done {
                        // A worker that is gone needs no reply.
                        let _ = workbench.reply(running.caller.execution.clone(), id, result).await;
                    }
                }
                command = self.commands.recv() => {
                    self.command_in_cell(command, running).await;
                }
            }
        }
    }

    async fn command_in_cell(&mut self, command: Option<Command>, running: &mut Running) {
        let workbench = self.bench.as_ref().map(|bench| bench.workbench.clone());
        match command {
            Some(Command::Input) => {}
            Some(Command::Exec(exec)) => match exec.when {
                When::Behind => self.enqueue(exec),
                When::Now => {
                    let busy =
                        format!("cell {} runs; wait for it, or interrupt it", running.caller.execution);
                    answer(exec.reply, Err(Refusal::Busy(busy)));
                }
            },
            Some(Command::Settings(settings)) => self.take_over(*settings),
            Some(Command::Interrupt(reply)) => {
                running.interrupted = true;
                if let Some(workbench) = workbench {
                    let _ = workbench.interrupt(running.caller.execution.clone()).await;
                }
                let turn = running.caller.step.map(|(turn, _)| turn);
                answer(reply, Interrupted { execution_id: Some(running.caller.execution.clone()), turn });
            }
            Some(Command::Reset(reply)) => {
                running.interrupted = true;
                running.reset = Some(reply);
                kill_beside(workbench, StopReason::Operator);
            }
            Some(Command::Stop) | None => {
                if !self.stopping {
                    self.stopping = true;
                    kill_beside(workbench, StopReason::HostStopping);
                }
            }
        }
    }

    /// Makes the record of how the cell ended.
    async fn conclude(&mut self, running: &mut Running, outcome: Outcome) -> Result<CellEnd, SessionError> {
        let caller = running.caller.clone();
        // Requests under way have started and come to their own end, within their own bounds: the
        // record that follows says what became of them.
        while running.requests.join_next().await.is_some() {}
        let mut events = Vec::new();
        let completed = match outcome {
            Outcome::Completed(completion, duration_ms) => completed(&caller, completion, duration_ms),
            Outcome::Ended(ended) => {
                let next = match (running.reset.is_some(), self.stopping) {
                    (true, _) => ResetReason::Operator,
                    (_, true) => ResetReason::HostRestarted,
                    (false, false) => ResetReason::Died,
                };
                self.drop_bench(next);
                events.push(ended_event(&self.session, Role::Workbench, &caller.generation, &ended));
                let execution = caller.execution.clone();
                let ledger =
                    self.services.store.read(move |snapshot| ledger_of(snapshot, &execution)).await?;
                let stopped = running.interrupted || self.stopping;
                died(&caller, &ended, stopped, ledger)
            }
        };
        events.push(NewEvent {
            execution: Some(caller.execution.clone()),
            ..host_event(&self.session, Body::CellCompleted(Box::new(completed.clone())))
        });
        Ok(CellEnd { events, completed, interrupted: running.interrupted, no_workbench: false })
    }

    /// The record of a cell for which there was no worker.
    async fn never_ran(
        &mut self,
        code: String,
        origin: CellOrigin,
        problem: String,
    ) -> Result<CellEnd, SessionError> {
        let none = GenerationId::numbered(0);
        let caller = self.log_start(code, origin, none, String::new(), None).await?;
        let completed = CellCompleted {
            execution: caller.execution.clone(),
            generation: caller.generation,
            status: CellStatus::Failed,
            output: vec![],
            truncated_bytes: 0,
            error: Some(problem),
            duration_ms: None,
            ledger: vec![],
        };
        let event = NewEvent {
            execution: Some(caller.execution),
            ..host_event(&self.session, Body::CellCompleted(Box::new(completed.clone())))
        };
        Ok(CellEnd { events: vec![event], completed, interrupted: false, no_workbench: true })
    }
}

/// Stopping takes its grace time, in which the worker's last words must be heard: so it goes on
/// beside the coordinator, and ends with the worker's `Ended`.
fn kill_beside(workbench: Option<crate::worker::Workbench>, reason: StopReason) {
    if let Some(workbench) = workbench {
        tokio::spawn(async move { workbench.stop(reason).await });
    }
}

fn completed(caller: &Caller, completion: Completion, duration_ms: u64) -> CellCompleted {
    let (status, output, truncated_bytes, error) = match completion {
        Completion::Cell { status, output, truncated_bytes, error } => {
            (status_of(status), output, truncated_bytes, error)
        }
        Completion::Failed { error } => (CellStatus::Failed, vec![], 0, Some(error)),
        // The worker's actor lets no hook's answer through to a workbench.
        Completion::Hook { .. } => (CellStatus::Failed, vec![], 0, Some("a hook's answer".to_owned())),
    };
    CellCompleted {
        execution: caller.execution.clone(),
        generation: caller.generation.clone(),
        status,
        output,
        truncated_bytes,
        error,
        duration_ms: Some(duration_ms),
        ledger: vec![],
    }
}

fn status_of(status: WorkerCellStatus) -> CellStatus {
    match status {
        WorkerCellStatus::Ok => CellStatus::Ok,
        WorkerCellStatus::Error => CellStatus::Error,
        WorkerCellStatus::Yielded => CellStatus::Yielded,
        WorkerCellStatus::Interrupted => CellStatus::Interrupted,
    }
}

fn died(caller: &Caller, ended: &Ended, stopped: bool, ledger: Vec<LedgerEntry>) -> CellCompleted {
    let mut error = format!("the workbench ended while this cell ran: {}", ended.detail);
    for (name, tail) in [("output", &ended.stdout_tail), ("error", &ended.stderr_tail)] {
        if !tail.trim().is_empty() {
            error.push_str(&format!("\nthe end of its raw standard {name}:\n{}", tail.trim_end()));
        }
    }
    CellCompleted {
        execution: caller.execution.clone(),
        generation: caller.generation.clone(),
        status: if stopped { CellStatus::Interrupted } else { CellStatus::Failed },
        output: vec![],
        truncated_bytes: 0,
        error: Some(error),
        duration_ms: Some(ended.cell_ms.unwrap_or(0)),
        ledger,
    }
}

/// What became of an execution's requests, for the one who cannot ask its worker any more.
pub(super) fn ledger_of(
    snapshot: &Snapshot<'_>,
    execution: &ExecutionId,
) -> Result<Vec<LedgerEntry>, crate::store::StoreError> {
    let effects = snapshot.effects_of(execution)?;
    Ok(effects
        .into_iter()
        .map(|effect| LedgerEntry {
            request: effect.request,
            method: effect.method,
            state: match effect.state {
                EffectState::Intended => EffectState::Uncertain,
                state @ (EffectState::Committed
                | EffectState::Refused
                | EffectState::Uncertain
                | EffectState::NeverStarted) => state,
            },
            event: effect.event,
        })
        .collect())
}
