//! Payloads of requests to a route and its answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{Digest, EventId};

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
