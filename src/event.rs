//! The vocabulary of the log: every kind of event with its payload.
//!
//! An event is written once and never changed. What the program believes is a projection of these,
//! and what the model was shown is assembled from these. Must not know where events are stored.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cell::{HookSlot, OutputRecord, Role};
use crate::id::{Digest, EffectId, EventId, ExecutionId, GenerationId, RequestId, SessionId};

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

/// Payload of `model.requested`. Appended before anything is sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelRequested {
    /// The turn.
    pub turn: u64,
    /// 1, 2, ... in the turn.
    pub step: u32,
    /// Name of the route in the configuration.
    pub route: String,
    /// The model asked for; null for an offline route.
    pub model: Option<String>,
    /// Digest of the serialised messages.
    pub digest: Digest,
    /// Length of the serialised messages.
    pub bytes: u64,
    /// Length of the longest prefix shared with the previous request of the session.
    pub shared_prefix_bytes: u64,
    /// Why this request is not an extension of the previous one; null where it is.
    pub not_extension: Option<NotExtension>,
    /// Events that enter the transcript with this request, in this order.
    pub adopted: Vec<EventId>,
}

/// Why a request's bytes are not an extension of the previous request's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotExtension {
    /// There is no previous request.
    SessionStart,
    /// A frontier was installed.
    Fold,
    /// This version of the program renders the same log to other bytes.
    RenderingChanged,
}

/// Payload of `model.responded`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelResponded {
    /// The `model.requested` that it answers.
    pub request: EventId,
    /// Text of the answer; empty where there was none.
    pub text: String,
    /// Reasoning that the route showed; null where it showed none.
    pub reasoning: Option<String>,
    /// The calls, in the order of the answer.
    pub calls: Vec<ToolCall>,
    /// As the route sent it; null where it sent none.
    pub finish_reason: Option<String>,
    /// Counts that the route sent. Absent fields were not sent.
    pub usage: Usage,
    /// The route's usage object, as sent; null where it sent none.
    pub usage_raw: Option<Value>,
    /// Milliseconds from the first byte sent to the answer's end, retries excluded.
    pub duration_ms: u64,
}

/// One call of a response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The route's identity of the call.
    pub id: String,
    /// The tool's name, as the model wrote it.
    pub name: String,
    /// The arguments, as the model wrote them: not necessarily JSON.
    pub arguments: String,
    /// Fields that the route wants back with the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_content: Option<Value>,
}

/// Token counts as a route reported them: an absent count was not sent and is not zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u64>,
    /// Tokens of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<u64>,
    /// The route's own total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_tokens: Option<u64>,
    /// Tokens of the request that the route read from its cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_prompt_tokens: Option<u64>,
    /// Tokens of the request that the route wrote to its cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_tokens: Option<u64>,
    /// Tokens of the request that the route says it did not find in its cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncached_prompt_tokens: Option<u64>,
    /// Tokens of reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
}

/// Payload of `model.failed`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelFailed {
    /// The `model.requested` that failed.
    pub request: EventId,
    /// The class, such as `rate_limited`, `context_overflow`, or `abandoned` after a crash.
    pub class: String,
    /// A safe sentence: no key, no request text.
    pub message: String,
    /// HTTP status; null where there was no answer.
    pub http_status: Option<u16>,
    /// Attempts that were made.
    pub attempts: u32,
}

/// Payload of `cell.started`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellStarted {
    /// Its identity (the event's `execution` too).
    pub execution: ExecutionId,
    /// The worker generation that runs it.
    pub generation: GenerationId,
    /// Who asked for it.
    pub origin: CellOrigin,
    /// The source.
    pub code: String,
}

/// Who asked for a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum CellOrigin {
    /// A model's tool call.
    Model {
        /// The turn.
        turn: u64,
        /// The step of the turn.
        step: u32,
        /// The `model.responded`.
        response: EventId,
        /// Position of the call in the response, from 0.
        call: usize,
    },
    /// `klbr exec`.
    Operator {},
}

/// Payload of `cell.completed`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellCompleted {
    /// Its identity.
    pub execution: ExecutionId,
    /// The worker generation that ran it.
    pub generation: GenerationId,
    /// How it ended.
    pub status: CellStatus,
    /// What it wrote.
    pub output: Vec<OutputRecord>,
    /// Bytes of output that were discarded.
    pub truncated_bytes: u64,
    /// The traceback, or what the host saw; null where there was no error.
    pub error: Option<String>,
    /// Milliseconds that it ran; null where the host does not know (it was down).
    pub duration_ms: Option<u64>,
    /// What became of the cell's host requests; empty where the worker itself completed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ledger: Vec<LedgerEntry>,
}

/// How a cell ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CellStatus {
    /// To its end.
    Ok,
    /// With an exception.
    Error,
    /// With an accepted wait.
    Yielded,
    /// By an interrupt, or because the host or the worker went away under it.
    Interrupted,
    /// The worker died, or could not be started.
    Failed,
}

/// One host request of a cell that its worker did not live to complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// The request.
    pub request: RequestId,
    /// Its method.
    pub method: String,
    /// What became of it.
    pub state: EffectState,
    /// The event that proves it; null where there is none.
    pub event: Option<EventId>,
}

/// What is known of a host request with a consequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectState {
    /// It is intended, and being carried out.
    Intended,
    /// It is done, and proven.
    Committed,
    /// It was refused or failed: it has no consequence.
    Refused,
    /// It had started, and nobody knows what became of it.
    Uncertain,
    /// It was intended, and certainly had no consequence.
    NeverStarted,
}

/// Payload of `step.ended`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepEnded {
    /// The turn.
    pub turn: u64,
    /// The step of the turn.
    pub step: u32,
    /// The `model.responded`.
    pub response: EventId,
    /// One result for each call of the response, in the same order.
    pub results: Vec<CallResult>,
}

/// The result of one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum CallResult {
    /// A cell ran.
    Cell {
        /// Its `cell.completed`.
        completed: EventId,
    },
    /// No cell ran.
    Refused {
        /// Why, in words for the model.
        message: String,
    },
}

/// Payload of `effect.intended`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EffectIntended {
    /// Its identity.
    pub effect_id: EffectId,
    /// The request.
    pub request: RequestId,
    /// Its method.
    pub method: String,
    /// Digest of the request's fields: the same identity with other fields is a conflict.
    pub digest: Digest,
}

/// Payload of `effect.settled`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EffectSettled {
    /// Its identity.
    pub effect_id: EffectId,
    /// The request.
    pub request: RequestId,
    /// What became of it.
    pub state: EffectState,
    /// The event that proves it; null where there is none.
    pub event: Option<EventId>,
    /// The reply: a value, or `{"code","message"}` where it was refused.
    pub receipt: Value,
}

/// Payload of `delivery.sent`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeliverySent {
    /// The text.
    pub text: String,
    /// The effect whose receipt this is.
    pub effect_id: EffectId,
    /// True where the operator released a held text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub released: bool,
}

/// Payload of `delivery.held`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeliveryHeld {
    /// The text.
    pub text: String,
    /// The effect whose receipt this is.
    pub effect_id: EffectId,
    /// Why review kept it back.
    pub reason: String,
}

/// Payload of `delivery.discarded`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeliveryDiscarded {
    /// The held effect.
    pub effect_id: EffectId,
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

/// Payload of `prompt.header` (klbr-protocol(7)).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeaderPin {
    /// Always `header_pin`.
    #[serde(rename = "type")]
    pub tag: HeaderPinTag,
    /// Digest of the text.
    pub digest: Digest,
    /// The whole text.
    pub text: String,
    /// Why it was pinned now.
    pub reason: PinReason,
    /// When.
    pub pinned_at_ms: i64,
    /// The parts of the text.
    pub sources: Vec<HeaderSource>,
}

/// The constant `header_pin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeaderPinTag {
    /// Its only value.
    HeaderPin,
}

/// Why a header was pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PinReason {
    /// The transcript had none.
    SessionStart,
    /// A fold rebuilds the prefix anyway.
    Fold,
    /// A fold covers an observation that the head depends on.
    FoldCoveredRevision,
}

/// One part of an instruction text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderSource {
    /// `contract`, `workspace`, `orientation` or `skills`.
    pub name: String,
    /// Digest of its text.
    pub digest: Digest,
    /// Its text.
    pub text: String,
}

/// Payload of `kernel.reset`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelReset {
    /// Workbench or hooks.
    pub role: Role,
    /// The generation that runs now.
    pub generation: GenerationId,
    /// Name of its unit, by which it is found and stopped.
    pub unit: String,
    /// The containment that holds it.
    pub containment: String,
    /// Why a new one was started.
    pub reason: ResetReason,
    /// True where an earlier namespace of this session is lost with it.
    pub namespace_lost: bool,
    /// Revision of the skills that it loaded; null where it has none.
    pub skills_revision: Option<String>,
    /// Revision of the hook source that it loaded; null for a workbench.
    pub revision: Option<String>,
    /// Slots that it answers for; empty for a workbench.
    pub slots: Vec<HookSlot>,
}

/// Why a generation was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResetReason {
    /// The first one was needed.
    First,
    /// The host had been restarted.
    HostRestarted,
    /// The earlier one ended by itself.
    Died,
    /// The earlier one was stopped by the host.
    Stopped,
    /// The operator asked.
    Operator,
    /// A release was activated.
    Activation,
}

/// Payload of `generation.ended`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GenerationEnded {
    /// Workbench or hooks.
    pub role: Role,
    /// The generation.
    pub generation: GenerationId,
    /// Why, as a class: `shutdown`, `exited`, `hard_stop`, `protocol`, `hello_timeout`, `host_lost`, ...
    pub reason: String,
    /// In words.
    pub detail: String,
    /// Exit status; null where a signal ended it or nobody saw it.
    pub exit_code: Option<i32>,
    /// Signal; null where it exited or nobody saw it.
    pub signal: Option<i32>,
    /// End of its raw standard output, made valid UTF-8.
    pub stdout_tail: String,
    /// End of its raw standard error, made valid UTF-8.
    pub stderr_tail: String,
}

/// Payload of `behavior.activated`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BehaviorActivated {
    /// Number of the activation: 1, 2, ...
    pub epoch: u64,
    /// The release.
    pub release: Digest,
    /// The release before; null at first.
    pub previous_release: Option<Digest>,
}

/// Payload of `host.started`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostStarted {
    /// Version of the program.
    pub version: String,
    /// What an earlier host left open and this one closed, counted by kind.
    pub recovered: Recovered,
}

/// What a start had to close.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// Cells that were running.
    pub executions: u64,
    /// Model requests that were in flight.
    pub requests: u64,
    /// Effects whose outcome is not known.
    pub effects: u64,
    /// Generations that were running.
    pub generations: u64,
}
