//! The messages of the control protocol (klbr-protocol(7)).
//!
//! Every field is always present, null where there is nothing; an unknown field is an error.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

use crate::cell::{HookSlot, OutputRecord, Role};
use crate::id::{ExecutionId, OperationId, RequestId};

/// One message of either side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Message {
    /// Worker: the first message of a connection.
    Hello {
        /// The startup token.
        token: String,
        /// What the worker is for.
        role: Role,
        /// Identity of the hook source it loaded; null for a workbench.
        #[serde(deserialize_with = "present")]
        revision: Option<String>,
        /// The slots that it answers for; empty for a workbench.
        slots: Vec<HookSlot>,
        /// Revision of the skills it loaded; null where it has none.
        #[serde(deserialize_with = "present")]
        skills_revision: Option<String>,
    },
    /// Host: run a cell.
    Execute {
        /// The operation.
        id: OperationId,
        /// Its source.
        code: String,
    },
    /// Host: ask a policy slot.
    Invoke {
        /// The operation.
        id: OperationId,
        /// The slot.
        slot: HookSlot,
        /// The slot's typed input.
        input: Value,
    },
    /// Worker: a cell asks the host.
    HostRequest {
        /// Unique in the execution.
        id: RequestId,
        /// The cell that asks.
        execution_id: ExecutionId,
        /// What it asks.
        request: Request,
    },
    /// Host: the answer.
    HostReply {
        /// The request's.
        id: RequestId,
        /// The request's.
        execution_id: ExecutionId,
        /// The answer.
        result: ReplyResult,
    },
    /// Worker: an operation ended.
    Completed {
        /// The operation.
        id: OperationId,
        /// How.
        result: Completion,
    },
    /// Host: stop one operation, cooperatively.
    Interrupt {
        /// The operation.
        id: OperationId,
    },
    /// Host: exit cleanly. (Braces: a unit variant would accept unknown fields.)
    Shutdown {},
}

/// `host_reply.result`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ReplyResult {
    /// It was done.
    Ok {
        /// The method's value.
        #[serde(deserialize_with = "present")]
        value: Value,
    },
    /// It was not.
    Error {
        /// From the closed set.
        code: ErrorCode,
        /// A safe text.
        message: String,
    },
}

/// `completed.result`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Completion {
    /// A cell ended.
    Cell {
        /// How.
        status: WorkerCellStatus,
        /// What it wrote.
        output: Vec<OutputRecord>,
        /// Bytes that were discarded.
        #[serde(deserialize_with = "count")]
        truncated_bytes: u64,
        /// The traceback; null where there was no error.
        #[serde(deserialize_with = "present")]
        error: Option<String>,
    },
    /// A hook answered.
    Hook {
        /// The slot's typed result.
        #[serde(deserialize_with = "present")]
        value: Value,
    },
    /// The worker could not do it.
    Failed {
        /// Why.
        error: String,
    },
}

/// How a cell ended, as its worker may say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkerCellStatus {
    /// To its end.
    Ok,
    /// With an exception.
    Error,
    /// With an accepted wait.
    Yielded,
    /// By an interrupt.
    Interrupted,
}

/// The closed set of error codes; `klbr-protocol(7)` has the remedy of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the contract, klbr-protocol(7) explains them")]
pub enum ErrorCode {
    ScopeExpired,
    TooManyRequests,
    InvalidRequest,
    TooLarge,
    ReplyTooLarge,
    NotFound,
    Refused,
    Conflict,
    Stale,
    Timeout,
    Cancelled,
    Unavailable,
    UnknownOutcome,
    Internal,
}

/// A host request: its method and exactly that method's fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "method", deny_unknown_fields)]
#[expect(missing_docs, reason = "klbr-protocol(7) documents every field of every method")]
pub enum Request {
    #[serde(rename = "local.send")]
    LocalSend { text: String },
    #[serde(rename = "runtime.wait")]
    RuntimeWait {
        #[serde(deserialize_with = "present")]
        seconds: Option<f64>,
        reason: String,
    },
    #[serde(rename = "hooks.list")]
    HooksList {},
    #[serde(rename = "hooks.describe")]
    HooksDescribe { slot: String },
    #[serde(rename = "runtime.inspect")]
    RuntimeInspect {},
    #[serde(rename = "runtime.instructions")]
    RuntimeInstructions {},
    #[serde(rename = "skills.index")]
    SkillsIndex {},
    #[serde(rename = "skills.load")]
    SkillsLoad { id: String },
    #[serde(rename = "workspace.info")]
    WorkspaceInfo {},
    #[serde(rename = "workspace.run")]
    WorkspaceRun {
        argv: Vec<String>,
        cwd: String,
        env: BTreeMap<String, String>,
        #[serde(deserialize_with = "count")]
        timeout_ms: u64,
        #[serde(deserialize_with = "count")]
        max_output_bytes: u64,
    },
    #[serde(rename = "evidence.resolve")]
    EvidenceResolve { refs: Vec<String> },
    #[serde(rename = "behavior.activate")]
    BehaviorActivate {
        path: String,
        #[serde(deserialize_with = "count")]
        expected_epoch: u64,
    },
    #[serde(rename = "maintenance.originate")]
    MaintenanceOriginate { purpose: String, reason: String, evidence_refs: Vec<String> },
    #[serde(rename = "maintenance.assess")]
    MaintenanceAssess { work_item_id: String, outcome: String },
    #[serde(rename = "orientation.stage")]
    OrientationStage { candidate_id: String, text: String, target: String, scope: Scope },
    #[serde(rename = "orientation.current")]
    OrientationCurrent { scope: Scope },
    #[serde(rename = "orientation.adopt")]
    OrientationAdopt { candidate_id: String, operation_id: String },
    #[serde(rename = "frontier.select")]
    FrontierSelect {},
    #[serde(rename = "peer.open", alias = "agents.open")]
    PeerOpen { mode: String, evidence: Vec<String> },
    #[serde(rename = "peer.send", alias = "peer.message")]
    PeerSend { peer_id: String, request_id: String, content: String, evidence: Vec<String> },
    #[serde(rename = "peer.result")]
    PeerResult {
        request_id: String,
        #[serde(deserialize_with = "count")]
        wait_ms: u64,
    },
    #[serde(rename = "peer.submit_result")]
    PeerSubmitResult {
        request_id: String,
        #[serde(deserialize_with = "present")]
        result: Value,
    },
    #[serde(rename = "peer.cancel")]
    PeerCancel { request_id: String },
    #[serde(rename = "peer.get")]
    PeerGet { peer_id: String },
    #[serde(rename = "peer.list")]
    PeerList {},
    #[serde(rename = "peer.stop")]
    PeerStop { peer_id: String, drain: bool },
    #[serde(rename = "remote.ensure")]
    RemoteEnsure { target: String },
    #[serde(rename = "remote.call")]
    RemoteCall {
        target: String,
        namespace_id: String,
        namespace_generation: String,
        operation_id: String,
        operation: String,
        #[serde(deserialize_with = "present")]
        payload: Value,
    },
    #[serde(rename = "remote.cancel")]
    RemoteCancel { namespace_id: String, namespace_generation: String, operation_id: String },
    #[serde(rename = "remote.close")]
    RemoteClose { namespace_id: String, namespace_generation: String },
}

/// `scope` of orientation methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Scope {
    /// Every session of the host.
    Global {},
    /// This session.
    Session {},
}

/// Accepts null and refuses absence: without it, serde takes an absent `Option` for null.
fn present<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer)
}

/// A count: not negative, and inside the signed 64-bit range.
fn count<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = i64::deserialize(deserializer)?;
    u64::try_from(number)
        .map_err(|_| serde::de::Error::custom(format!("a count is not negative, this is {number}")))
}
