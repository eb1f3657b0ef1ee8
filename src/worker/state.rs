//! The life of a workbench as a pure machine: it decides, and does nothing else.

use crate::id::OperationId;
use crate::limits::REQUESTS_PER_CELL_MAX;
use crate::wire::message::{ErrorCode, WorkerCellStatus};

/// Why the host stops a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The operator asked for a new one.
    Operator,
    /// The host is going down.
    HostStopping,
    /// It is not needed any more.
    Retired,
}

/// Why a generation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndReason {
    /// The host told it to.
    Stopped(StopReason),
    /// By itself.
    Exited,
    /// It used more memory than `sandbox.memory_max`.
    OutOfMemory,
    /// It spoke against the protocol.
    Protocol,
    /// It did not say hello in time.
    HelloTimeout,
    /// An interrupted cell did not end within the grace time.
    InterruptGrace,
    /// A cell ran longer than it may.
    CellTooLong,
    /// It did not answer a hook within its budget.
    HookTimeout,
}

impl EndReason {
    /// The reason's name in the log.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Stopped(StopReason::Operator) => "operator",
            Self::Stopped(StopReason::HostStopping) => "host_stopping",
            Self::Stopped(StopReason::Retired) => "retired",
            Self::Exited => "exited",
            Self::OutOfMemory => "out_of_memory",
            Self::Protocol => "protocol",
            Self::HelloTimeout => "hello_timeout",
            Self::InterruptGrace => "interrupt_grace",
            Self::CellTooLong => "cell_too_long",
            Self::HookTimeout => "hook_timeout",
        }
    }

    /// The reason in words.
    pub fn words(&self) -> &'static str {
        match self {
            Self::Stopped(StopReason::Operator) => "the operator asked for a new workbench",
            Self::Stopped(StopReason::HostStopping) => "the host was stopped",
            Self::Stopped(StopReason::Retired) => "it was not needed any more",
            Self::Exited => "it ended by itself",
            Self::OutOfMemory => "it used more memory than sandbox.memory_max allows",
            Self::Protocol => "it spoke against the protocol",
            Self::HelloTimeout => "it was not ready in time",
            Self::InterruptGrace => "the interrupted cell did not end within limits.interrupt_grace_ms",
            Self::CellTooLong => "the cell ran longer than limits.cell_ms",
            Self::HookTimeout => "a hook did not answer within its budget",
        }
    }
}

/// Where a workbench stands. Data lives in the state where it means something.
#[derive(Debug, PartialEq, Eq)]
pub enum State {
    /// It has said hello and waits.
    Idle,
    /// It runs a cell.
    Executing {
        /// Which.
        operation: OperationId,
        /// An interrupt is under way.
        interrupted: bool,
        /// The host has accepted a wait: the cell's scope is over.
        yielded: bool,
        /// Requests that the cell made.
        requests: usize,
    },
    /// It was told to end, or is being killed.
    Stopping {
        /// Why.
        reason: EndReason,
    },
}

/// What happens to a workbench.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    /// The host wants a cell run.
    Execute(OperationId),
    /// The cell asks the host something.
    Request(OperationId),
    /// The host has accepted a wait of this cell.
    WaitAccepted(OperationId),
    /// The worker says that a cell ended.
    Completed(OperationId, Option<WorkerCellStatus>),
    /// The host wants this cell to stop.
    Interrupt(OperationId),
    /// The grace time of an interrupt is over.
    GraceOver,
    /// The cell ran too long.
    CellOver,
    /// The host wants the generation to end.
    Stop(StopReason),
    /// The grace time of a shutdown is over.
    ShutdownOver,
    /// The worker broke the protocol.
    Violation,
}

/// What is to be done about it.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send `execute`, and start the cell's clock.
    Execute,
    /// Hand the request to the session.
    PassRequest,
    /// Answer the request here.
    RefuseRequest(ErrorCode),
    /// Hand the completion to the session, and stop all clocks.
    PassCompletion,
    /// Send `interrupt`, and start the clock of its grace.
    Interrupt,
    /// Send `shutdown`, and start the clock of its grace.
    Shutdown,
    /// Kill everything.
    Kill,
}

impl State {
    /// Decides, and does nothing else: no clock, no socket, no process.
    pub fn on(self, input: Input) -> (Self, Vec<Effect>) {
        match (self, input) {
            (Self::Idle, Input::Execute(operation)) => {
                let state = Self::Executing { operation, interrupted: false, yielded: false, requests: 0 };
                (state, vec![Effect::Execute])
            }
            // The session runs one cell after the other; a second one is its fault, and is dropped
            // rather than run under a scope that nobody opened.
            (state @ Self::Executing { .. }, Input::Execute(_)) => (state, vec![]),
            (Self::Executing { operation, interrupted, yielded, requests }, Input::Request(of)) => {
                let verdict = if of != operation || yielded {
                    Effect::RefuseRequest(ErrorCode::ScopeExpired)
                } else if requests >= REQUESTS_PER_CELL_MAX {
                    Effect::RefuseRequest(ErrorCode::TooManyRequests)
                } else {
                    Effect::PassRequest
                };
                let requests = requests + usize::from(verdict == Effect::PassRequest);
                (Self::Executing { operation, interrupted, yielded, requests }, vec![verdict])
            }
            (state @ Self::Idle, Input::Request(_)) => {
                (state, vec![Effect::RefuseRequest(ErrorCode::ScopeExpired)])
            }
            (Self::Executing { operation, interrupted, yielded, requests }, Input::WaitAccepted(of)) => {
                let yielded = yielded || of == operation;
                (Self::Executing { operation, interrupted, yielded, requests }, vec![])
            }
            (Self::Executing { operation, yielded, .. }, Input::Completed(of, status)) => {
                let claims_wait = status == Some(WorkerCellStatus::Yielded);
                if of != operation || (claims_wait && !yielded) {
                    return Self::violated();
                }
                (Self::Idle, vec![Effect::PassCompletion])
            }
            // Nothing runs, and something completes.
            (Self::Idle, Input::Completed(..)) => Self::violated(),
            (Self::Executing { operation, interrupted, yielded, requests }, Input::Interrupt(of)) => {
                let new = of == operation && !interrupted;
                let effects = if new { vec![Effect::Interrupt] } else { vec![] };
                let interrupted = interrupted || of == operation;
                (Self::Executing { operation, interrupted, yielded, requests }, effects)
            }
            // The cell ended before the interrupt came.
            (state @ Self::Idle, Input::Interrupt(_)) => (state, vec![]),
            (Self::Executing { interrupted: true, .. }, Input::GraceOver) => {
                Self::kill(EndReason::InterruptGrace)
            }
            (Self::Executing { .. }, Input::CellOver) => Self::kill(EndReason::CellTooLong),
            (Self::Idle | Self::Executing { .. }, Input::Stop(reason)) => {
                (Self::Stopping { reason: EndReason::Stopped(reason) }, vec![Effect::Shutdown])
            }
            (Self::Idle | Self::Executing { .. }, Input::Violation) => Self::violated(),
            (state @ Self::Stopping { .. }, Input::ShutdownOver | Input::Violation) => {
                (state, vec![Effect::Kill])
            }
            (state @ Self::Stopping { .. }, Input::Request(_)) => {
                (state, vec![Effect::RefuseRequest(ErrorCode::ScopeExpired)])
            }
            // A clock that was stopped, or news for a generation that is ending.
            (
                state @ Self::Idle,
                Input::WaitAccepted(_) | Input::GraceOver | Input::CellOver | Input::ShutdownOver,
            )
            | (state @ Self::Executing { .. }, Input::GraceOver | Input::ShutdownOver)
            | (
                state @ Self::Stopping { .. },
                Input::Execute(_)
                | Input::WaitAccepted(_)
                | Input::Completed(..)
                | Input::Interrupt(_)
                | Input::GraceOver
                | Input::CellOver
                | Input::Stop(_),
            ) => (state, vec![]),
        }
    }

    fn kill(reason: EndReason) -> (Self, Vec<Effect>) {
        (Self::Stopping { reason }, vec![Effect::Kill])
    }

    fn violated() -> (Self, Vec<Effect>) {
        Self::kill(EndReason::Protocol)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> OperationId {
        OperationId::parse(name).unwrap()
    }

    fn executing() -> State {
        State::Idle.on(Input::Execute(id("x-1"))).0
    }

    fn killed(reason: EndReason) -> (State, Vec<Effect>) {
        (State::Stopping { reason }, vec![Effect::Kill])
    }

    #[test]
    fn a_cell_runs_asks_and_completes() {
        let (state, effects) = executing().on(Input::Request(id("x-1")));
        assert_eq!(effects, [Effect::PassRequest]);
        let (state, effects) = state.on(Input::Completed(id("x-1"), Some(WorkerCellStatus::Ok)));

        assert_eq!((state, effects), (State::Idle, vec![Effect::PassCompletion]));
    }

    #[test]
    fn after_an_accepted_wait_the_scope_is_over() {
        let (state, _) = executing().on(Input::WaitAccepted(id("x-1")));
        let (state, effects) = state.on(Input::Request(id("x-1")));
        assert_eq!(effects, [Effect::RefuseRequest(ErrorCode::ScopeExpired)]);

        let (state, _) = state.on(Input::Completed(id("x-1"), Some(WorkerCellStatus::Yielded)));
        assert_eq!(state, State::Idle);
    }

    #[test]
    fn a_yield_that_nobody_accepted_is_a_lie() {
        let outcome = executing().on(Input::Completed(id("x-1"), Some(WorkerCellStatus::Yielded)));

        assert_eq!(outcome, killed(EndReason::Protocol));
    }

    #[test]
    fn a_completion_of_something_else_is_a_violation() {
        assert_eq!(executing().on(Input::Completed(id("x-2"), None)), killed(EndReason::Protocol));
        assert_eq!(State::Idle.on(Input::Completed(id("x-1"), None)), killed(EndReason::Protocol));
    }

    #[test]
    fn requests_of_one_cell_are_counted() {
        let mut state = executing();
        for _ in 0..REQUESTS_PER_CELL_MAX {
            let (next, effects) = state.on(Input::Request(id("x-1")));
            assert_eq!(effects, [Effect::PassRequest]);
            state = next;
        }
        let (state, effects) = state.on(Input::Request(id("x-1")));
        assert_eq!(effects, [Effect::RefuseRequest(ErrorCode::TooManyRequests)]);

        let (state, _) = state.on(Input::Completed(id("x-1"), None));
        let (state, _) = state.on(Input::Execute(id("x-2")));
        assert_eq!(state.on(Input::Request(id("x-2"))).1, [Effect::PassRequest]);
    }

    #[test]
    fn an_interrupt_reaches_its_cell_once_and_then_the_grace_counts() {
        let (state, effects) = executing().on(Input::Interrupt(id("x-0")));
        assert_eq!(effects, []);
        let (state, effects) = state.on(Input::GraceOver);
        assert_eq!(effects, []);
        let (state, effects) = state.on(Input::Interrupt(id("x-1")));
        assert_eq!(effects, [Effect::Interrupt]);
        let (state, effects) = state.on(Input::Interrupt(id("x-1")));
        assert_eq!(effects, []);

        assert_eq!(state.on(Input::GraceOver), killed(EndReason::InterruptGrace));
    }

    #[test]
    fn a_stop_is_asked_for_first_and_forced_later() {
        let (state, effects) = executing().on(Input::Stop(StopReason::Operator));
        assert_eq!(effects, [Effect::Shutdown]);
        let (state, effects) = state.on(Input::Completed(id("x-1"), None));
        assert_eq!(effects, []);

        assert_eq!(state.on(Input::ShutdownOver), killed(EndReason::Stopped(StopReason::Operator)));
    }
}
