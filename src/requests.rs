//! What a cell can ask the host for, one file per method family.
//!
//! A request with a consequence is logged as intent before, and as outcome in the transaction of
//! what it does: the same identity gets the same receipt for ever.

pub mod effect;
mod hooks;
pub mod local;
mod runtime;

use serde_json::Value;

use crate::cell::HookSlot;
use crate::config::Limits;
use crate::event::BehaviorActivated;
use crate::id::{Digest, ExecutionId, GenerationId, RequestId, SessionId};
use crate::store::{Store, StoreError};
use crate::wire::message::{ErrorCode, ReplyResult, Request};
use crate::worker::hooks::Hooks;

/// What requests are carried out with.
#[derive(Clone)]
pub struct Services {
    /// The log.
    pub store: Store,
    /// The policy.
    pub hooks: Hooks,
    /// What does not change while the host runs.
    pub facts: std::sync::Arc<Facts>,
}

/// What does not change while the host runs.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Name of the containment in use.
    pub containment: String,
    /// Name of the route in use.
    pub route: String,
    /// The model asked for; null for an offline route.
    pub model: Option<String>,
    /// Size of the model's context, where it is declared.
    pub context_tokens: Option<u64>,
    /// What bounds the agent.
    pub limits: Limits,
    /// The functions that answer for the policy slots.
    pub entrypoints: std::collections::BTreeMap<HookSlot, String>,
}

/// The cell that asks, and what it runs under: fixed when the cell starts.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Its session.
    pub session: SessionId,
    /// Its execution.
    pub execution: ExecutionId,
    /// Its generation.
    pub generation: GenerationId,
    /// Name of its unit.
    pub unit: String,
    /// Turn and step; `None` for an operator's cell.
    pub step: Option<(u64, u32)>,
    /// The policy that it was started under.
    pub behavior: Option<BehaviorActivated>,
    /// Digest of the transcript's header; `None` before the first request.
    pub header_digest: Option<Digest>,
    /// Tokens of the newest request, where its route said so.
    pub prompt_tokens: Option<u64>,
}

/// Why a request was not done: a code of the closed set and a safe text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The code.
    pub code: ErrorCode,
    /// What was wrong, and what to do.
    pub message: String,
}

impl Refusal {
    /// A refusal with this code and text.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, message)
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        tracing::error!(error = &error as &dyn std::error::Error, "a request could not use the log");
        Self::new(ErrorCode::Internal, "the host could not use its log; the operator sees why")
    }
}

/// Carries out one request of a live cell.
pub async fn answer(services: &Services, caller: &Caller, id: RequestId, request: Request) -> ReplyResult {
    let outcome = match request {
        Request::LocalSend { text } => local::send(services, caller, id, text).await,
        Request::RuntimeWait { seconds, reason } => {
            runtime::wait(services, caller, id, seconds, reason).await
        }
        Request::RuntimeInspect {} => Ok(runtime::inspect(services, caller)),
        Request::RuntimeInstructions {} => runtime::instructions(services, caller).await,
        Request::HooksList {} => hooks::list(services, caller),
        Request::HooksDescribe { slot } => hooks::describe(services, caller, &slot),
        Request::SkillsIndex {}
        | Request::SkillsLoad { .. }
        | Request::WorkspaceInfo {}
        | Request::WorkspaceRun { .. }
        | Request::EvidenceResolve { .. }
        | Request::BehaviorActivate { .. }
        | Request::MaintenanceOriginate { .. }
        | Request::MaintenanceAssess { .. }
        | Request::OrientationStage { .. }
        | Request::OrientationCurrent { .. }
        | Request::OrientationAdopt { .. }
        | Request::FrontierSelect {}
        | Request::PeerOpen { .. }
        | Request::PeerSend { .. }
        | Request::PeerResult { .. }
        | Request::PeerSubmitResult { .. }
        | Request::PeerCancel { .. }
        | Request::PeerGet { .. }
        | Request::PeerList {}
        | Request::PeerStop { .. }
        | Request::RemoteEnsure { .. }
        | Request::RemoteCall { .. }
        | Request::RemoteCancel { .. }
        | Request::RemoteClose { .. } => {
            Err(Refusal::new(ErrorCode::Unavailable, "this host does not have this method yet"))
        }
    };
    match outcome {
        Ok(value) => ReplyResult::Ok { value },
        Err(Refusal { code, message }) => ReplyResult::Error { code, message },
    }
}

/// A slot by its name.
fn slot_named(name: &str) -> Result<HookSlot, Refusal> {
    let known = || HookSlot::ALL.map(HookSlot::as_str).join(", ");
    HookSlot::ALL.into_iter().find(|slot| slot.as_str() == name).ok_or_else(|| {
        Refusal::new(ErrorCode::NotFound, format!("no slot {name:?}; the slots are {}", known()))
    })
}

/// The JSON form of a receipt for a refusal, as it is kept.
fn refusal_receipt(refusal: &Refusal) -> Value {
    serde_json::json!({"code": refusal.code, "message": refusal.message})
}
