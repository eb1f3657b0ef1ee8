//! Payloads of sessions, inputs, turns, waits and wakes.

use serde::{Deserialize, Serialize};

use crate::id::{EventId, SessionId};

/// Payload of `session.opened`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionOpened {
    /// The session that opened it; null for `root`.
    pub parent: Option<SessionId>,
}

/// Payload of `operator.input`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperatorInput {
    /// Exactly what arrived.
    pub text: String,
}

/// Payload of `attention.planned`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttentionPlanned {
    /// The input.
    pub input: EventId,
    /// What was decided.
    pub decision: AttentionDecision,
    /// The policy that decided; null where no policy could be asked or the rule decided.
    pub epoch: Option<u64>,
    /// Why no policy decided, where none did.
    pub note: Option<String>,
}

/// A decision of `attention.plan` (klbr-protocol(7)).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "lowercase", deny_unknown_fields)]
pub enum AttentionDecision {
    /// Start or join a turn.
    Wake {
        /// Larger is more urgent.
        priority: i64,
    },
    /// Look again later.
    Defer {
        /// Seconds from the decision.
        seconds: f64,
    },
    /// Never start a turn for it.
    Ignore {
        /// For the log.
        reason: String,
    },
}

/// Payload of `turn.started`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnStarted {
    /// 1, 2, ... per session.
    pub turn: u64,
    /// What woke the session.
    pub cause: WakeCause,
}

/// Payload of `wait.accepted`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitAccepted {
    /// The turn that it ends; null where an operator's cell asked.
    pub turn: Option<u64>,
    /// Seconds asked for; null is "until something arrives".
    pub seconds: Option<f64>,
    /// Why, in the agent's words.
    pub reason: String,
    /// When it ends by itself, in milliseconds since the Unix epoch; null is never.
    pub deadline_ms: Option<i64>,
    /// Inputs that were there already.
    pub pending_inputs: u64,
}

/// Payload of `wake`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Wake {
    /// What woke the session.
    pub cause: WakeCause,
    /// The wait that ended; null where there was none.
    pub wait: Option<EventId>,
}

/// What starts a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WakeCause {
    /// An input.
    Input,
    /// A wait's deadline passed.
    Deadline,
    /// The host came back in mid turn.
    Resumed,
}

/// Payload of `turn.ended`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnEnded {
    /// The turn.
    pub turn: u64,
    /// Why.
    pub reason: TurnEndReason,
    /// For the operator; null where the reason says all.
    pub detail: Option<String>,
}

/// Why a turn ended without a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnEndReason {
    /// The model answered without a call.
    Answered,
    /// The operator interrupted it.
    Interrupted,
    /// The route failed for good.
    RouteFailed,
    /// `limits.steps_per_turn`.
    StepLimit,
    /// `limits.requests_per_hour`.
    RequestLimit,
    /// `limits.tokens_per_day`.
    TokenLimit,
    /// The same failing cell again and again.
    Repetition,
    /// The workbench cannot be started.
    WorkbenchFailed,
}
