//! The vocabulary of the log: every kind of event with its payload.
//!
//! An event is written once and never changed. What the program believes is a projection of these,
//! and what the model was shown is assembled from these. Must not know where events are stored.

mod effect;
mod execution;
mod header;
mod model;
mod turn;
mod worker;

pub use effect::{DeliveryDiscarded, DeliveryHeld, DeliverySent, EffectIntended, EffectSettled};
pub use execution::{
    CallResult, CellCompleted, CellOrigin, CellStarted, CellStatus, EffectState, LedgerEntry, StepEnded,
};
pub use header::{HeaderPin, HeaderPinTag, HeaderSource, PinReason};
pub use model::{ModelFailed, ModelRequested, ModelResponded, NotExtension, ToolCall, Usage};
pub use turn::{
    AttentionDecision, AttentionPlanned, OperatorInput, SessionOpened, TurnEndReason, TurnEnded, TurnStarted,
    WaitAccepted, Wake, WakeCause,
};
pub use worker::{BehaviorActivated, GenerationEnded, HostStarted, KernelReset, Recovered, ResetReason};

use serde::{Deserialize, Serialize};

use crate::id::{EventId, ExecutionId, SessionId};

/// An event that is to be appended.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    /// The session that it belongs to.
    pub session: SessionId,
    /// Who caused it.
    pub source: Source,
    /// The cell that it happened in, if it happened in one.
    pub execution: Option<ExecutionId>,
    /// Milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// What happened.
    pub body: Body,
}

/// An event of the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its position.
    pub id: EventId,
    /// The session that it belongs to.
    pub session: SessionId,
    /// Who caused it.
    pub source: Source,
    /// The cell that it happened in, if it happened in one.
    pub execution: Option<ExecutionId>,
    /// Milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// What happened.
    pub body: Body,
}

/// Who caused an event: `operator`, `session`, `host`, or the name of an ingress source such as
/// `discord.dm`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Source(pub String);

impl Source {
    /// The person or script at the operator socket.
    pub fn operator() -> Self {
        Self("operator".to_owned())
    }
    /// The agent: its model and its cells.
    pub fn session() -> Self {
        Self("session".to_owned())
    }
    /// This program, by its own observation.
    pub fn host() -> Self {
        Self("host".to_owned())
    }
}

/// What happened, by kind. Serialised as `{"kind":"operator.input","payload":{...}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "payload")]
pub enum Body {
    /// A session came into being.
    #[serde(rename = "session.opened")]
    SessionOpened(SessionOpened),
    /// The operator said something.
    #[serde(rename = "operator.input")]
    OperatorInput(OperatorInput),
    /// An input was looked at by `attention.plan`, or by the rule that the operator always wakes.
    #[serde(rename = "attention.planned")]
    AttentionPlanned(AttentionPlanned),
    /// A turn began.
    #[serde(rename = "turn.started")]
    TurnStarted(TurnStarted),
    /// A request is about to be sent to a route.
    #[serde(rename = "model.requested")]
    ModelRequested(ModelRequested),
    /// A route answered in full.
    #[serde(rename = "model.responded")]
    ModelResponded(Box<ModelResponded>),
    /// A request ended without an answer.
    #[serde(rename = "model.failed")]
    ModelFailed(ModelFailed),
    /// A cell was handed to a worker.
    #[serde(rename = "cell.started")]
    CellStarted(CellStarted),
    /// A cell ended, in whatever way.
    #[serde(rename = "cell.completed")]
    CellCompleted(Box<CellCompleted>),
    /// A response and the results of all its calls are complete: they enter the transcript together.
    #[serde(rename = "step.ended")]
    StepEnded(StepEnded),
    /// A host request with a consequence is about to be carried out.
    #[serde(rename = "effect.intended")]
    EffectIntended(EffectIntended),
    /// What became of a host request with a consequence.
    #[serde(rename = "effect.settled")]
    EffectSettled(EffectSettled),
    /// Text is on the operator lane.
    #[serde(rename = "delivery.sent")]
    DeliverySent(DeliverySent),
    /// Review kept a text back.
    #[serde(rename = "delivery.held")]
    DeliveryHeld(DeliveryHeld),
    /// The operator threw a held text away.
    #[serde(rename = "delivery.discarded")]
    DeliveryDiscarded(DeliveryDiscarded),
    /// A cell asked to wait, and the turn's end was agreed.
    #[serde(rename = "wait.accepted")]
    WaitAccepted(WaitAccepted),
    /// A waiting session goes on.
    #[serde(rename = "wake")]
    Wake(Wake),
    /// A turn ended in another way than by a wait that a cell asked for.
    #[serde(rename = "turn.ended")]
    TurnEnded(TurnEnded),
    /// The transcript pinned its instruction text.
    #[serde(rename = "prompt.header")]
    PromptHeader(HeaderPin),
    /// A new worker generation is running.
    #[serde(rename = "kernel.reset")]
    KernelReset(KernelReset),
    /// A worker generation is no more.
    #[serde(rename = "generation.ended")]
    GenerationEnded(GenerationEnded),
    /// A release of hook source became the policy.
    #[serde(rename = "behavior.activated")]
    BehaviorActivated(BehaviorActivated),
    /// The host itself started on this log.
    #[serde(rename = "host.started")]
    HostStarted(HostStarted),
}

impl Body {
    /// The dotted name of the kind, as it is stored and shown.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::SessionOpened(_) => "session.opened",
            Self::OperatorInput(_) => "operator.input",
            Self::AttentionPlanned(_) => "attention.planned",
            Self::TurnStarted(_) => "turn.started",
            Self::ModelRequested(_) => "model.requested",
            Self::ModelResponded(_) => "model.responded",
            Self::ModelFailed(_) => "model.failed",
            Self::CellStarted(_) => "cell.started",
            Self::CellCompleted(_) => "cell.completed",
            Self::StepEnded(_) => "step.ended",
            Self::EffectIntended(_) => "effect.intended",
            Self::EffectSettled(_) => "effect.settled",
            Self::DeliverySent(_) => "delivery.sent",
            Self::DeliveryHeld(_) => "delivery.held",
            Self::DeliveryDiscarded(_) => "delivery.discarded",
            Self::WaitAccepted(_) => "wait.accepted",
            Self::Wake(_) => "wake",
            Self::TurnEnded(_) => "turn.ended",
            Self::PromptHeader(_) => "prompt.header",
            Self::KernelReset(_) => "kernel.reset",
            Self::GenerationEnded(_) => "generation.ended",
            Self::BehaviorActivated(_) => "behavior.activated",
            Self::HostStarted(_) => "host.started",
        }
    }
}

impl Body {
    /// The payload, as JSON text.
    pub fn payload_json(&self) -> serde_json::Result<String> {
        match self {
            Self::SessionOpened(payload) => serde_json::to_string(payload),
            Self::OperatorInput(payload) => serde_json::to_string(payload),
            Self::AttentionPlanned(payload) => serde_json::to_string(payload),
            Self::TurnStarted(payload) => serde_json::to_string(payload),
            Self::ModelRequested(payload) => serde_json::to_string(payload),
            Self::ModelResponded(payload) => serde_json::to_string(payload),
            Self::ModelFailed(payload) => serde_json::to_string(payload),
            Self::CellStarted(payload) => serde_json::to_string(payload),
            Self::CellCompleted(payload) => serde_json::to_string(payload),
            Self::StepEnded(payload) => serde_json::to_string(payload),
            Self::EffectIntended(payload) => serde_json::to_string(payload),
            Self::EffectSettled(payload) => serde_json::to_string(payload),
            Self::DeliverySent(payload) => serde_json::to_string(payload),
            Self::DeliveryHeld(payload) => serde_json::to_string(payload),
            Self::DeliveryDiscarded(payload) => serde_json::to_string(payload),
            Self::WaitAccepted(payload) => serde_json::to_string(payload),
            Self::Wake(payload) => serde_json::to_string(payload),
            Self::TurnEnded(payload) => serde_json::to_string(payload),
            Self::PromptHeader(payload) => serde_json::to_string(payload),
            Self::KernelReset(payload) => serde_json::to_string(payload),
            Self::GenerationEnded(payload) => serde_json::to_string(payload),
            Self::BehaviorActivated(payload) => serde_json::to_string(payload),
            Self::HostStarted(payload) => serde_json::to_string(payload),
        }
    }

    /// The body with this kind and payload.
    pub fn parse(kind: &str, payload: &str) -> serde_json::Result<Self> {
        let kind = serde_json::to_string(kind)?;
        let text = format!("{{\"kind\":{kind},\"payload\":{payload}}}");
        let mut json = serde_json::Deserializer::from_str(&text);
        // A value that was just shallow enough on its way in is deeper by its place in the payload,
        // and must come back.
        json.disable_recursion_limit();
        let body = Self::deserialize(&mut json)?;
        json.end()?;
        Ok(body)
    }
}
