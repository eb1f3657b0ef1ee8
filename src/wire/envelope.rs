//! The envelope around every message: version, session, generation.

use serde::Serialize;
use serde_json::{Map, Value};

use super::frame::{FrameError, encode_frame};
use super::message::{Completion, ErrorCode, Message, ReplyResult};
use super::strict_json::{JsonError, parse_object};
use crate::id::{ExecutionId, GenerationId, RequestId, SessionId};
use crate::limits::{CODE_BYTES_MAX, ERROR_BYTES_MAX, OUTPUT_BYTES_MAX, OUTPUT_RECORDS_MAX};

/// The protocol's version.
pub const VERSION: i64 = 1;

/// Whose connection it is: what every envelope on it must say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The session.
    pub session: SessionId,
    /// The generation.
    pub generation: GenerationId,
}

/// Why a payload is not a message of this connection. Each of them invalidates the generation.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// Not a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Not strict JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// A field of the envelope is missing, unknown, or of the wrong type.
    #[error("the envelope {0}")]
    Envelope(String),
    /// Another version of the protocol.
    #[error("version {0}, this side speaks {VERSION}")]
    Version(Value),
    /// The session or generation of somebody else.
    #[error("the {field} {found:?}, this connection is {expected}'s")]
    Foreign {
        /// Which.
        field: &'static str,
        /// What it said.
        found: String,
        /// What it should say.
        expected: String,
    },
    /// Not a message of the vocabulary.
    #[error("not a message of the protocol: {0}")]
    Message(String),
    /// A part of a message is over its bound.
    #[error("the {what} has {found}, the limit is {limit}")]
    Bound {
        /// Which part.
        what: &'static str,
        /// Its size.
        found: usize,
        /// The bound.
        limit: usize,
    },
}

/// What goes out.
#[derive(Serialize)]
struct Envelope<'a> {
    version: i64,
    session_id: &'a SessionId,
    generation: &'a GenerationId,
    message: &'a Message,
}

/// Reads the payload of one frame.
pub fn decode(payload: &[u8], address: &Address) -> Result<Message, WireError> {
    let mut envelope = parse_object(payload)?;
    let mut field = |name: &str| {
        envelope.remove(name).ok_or_else(|| WireError::Envelope(format!("has no field `{name}`")))
    };
    let version = field("version")?;
    let session = text(field("session_id")?, "session_id")?;
    let generation = text(field("generation")?, "generation")?;
    let message = field("message")?;
    if let Some(unknown) = envelope.keys().next() {
        return Err(WireError::Envelope(format!("has an unknown field {unknown:?}")));
    }
    if version.as_i64() != Some(VERSION) {
        return Err(WireError::Version(version));
    }
    same("session_id", session, address.session.as_str())?;
    same("generation", generation, address.generation.as_str())?;
    objects_where_meant(&message)?;
    let message: Message =
        serde_json::from_value(message).map_err(|error| WireError::Message(error.to_string()))?;
    check_bounds(&message)?;
    Ok(message)
}

/// The whole frame of a message.
pub fn encode(message: &Message, address: &Address) -> Result<Vec<u8>, WireError> {
    check_bounds(message)?;
    let envelope =
        Envelope { version: VERSION, session_id: &address.session, generation: &address.generation, message };
    let payload = serde_json::to_vec(&envelope).map_err(|error| WireError::Message(error.to_string()))?;
    Ok(encode_frame(&payload)?)
}

/// The frame of a reply; one that would not fit becomes the error `reply_too_large`.
pub fn encode_reply(
    execution_id: ExecutionId,
    id: RequestId,
    result: ReplyResult,
    address: &Address,
) -> Result<Vec<u8>, WireError> {
    let reply = Message::HostReply { id: id.clone(), execution_id: execution_id.clone(), result };
    match encode(&reply, address) {
        Err(WireError::Frame(FrameError::TooLarge(bytes))) => {
            let message = format!("the reply has {bytes} bytes and does not fit into a frame; ask for less");
            let result = ReplyResult::Error { code: ErrorCode::ReplyTooLarge, message };
            encode(&Message::HostReply { id, execution_id, result }, address)
        }
        other => other,
    }
}

fn text(value: Value, field: &str) -> Result<String, WireError> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(WireError::Envelope(format!("has a `{field}` that is not a string: {other}"))),
    }
}

fn same(field: &'static str, found: String, expected: &str) -> Result<(), WireError> {
    if found == expected {
        return Ok(());
    }
    Err(WireError::Foreign { field, found, expected: expected.to_owned() })
}

/// Serde reads a struct or a tagged enum also from an array of its fields: the protocol does not.
fn objects_where_meant(message: &Value) -> Result<(), WireError> {
    let object = object_at(message, "message")?;
    for name in ["request", "result"] {
        if let Some(inner) = object.get(name) {
            let inner = object_at(inner, name)?;
            if let Some(scope) = inner.get("scope").filter(|_| name == "request") {
                object_at(scope, "scope")?;
            }
            if let Some(Value::Array(records)) = inner.get("output").filter(|_| name == "result") {
                for record in records {
                    object_at(record, "output record")?;
                }
            }
        }
    }
    Ok(())
}

fn object_at<'a>(value: &'a Value, name: &str) -> Result<&'a Map<String, Value>, WireError> {
    value.as_object().ok_or_else(|| WireError::Message(format!("the {name} is not an object")))
}

fn check_bounds(message: &Message) -> Result<(), WireError> {
    match message {
        Message::Execute { code, .. } => bound("code", code.len(), CODE_BYTES_MAX),
        Message::Completed { result: Completion::Cell { output, error, .. }, .. } => {
            bound("list of output records", output.len(), OUTPUT_RECORDS_MAX)?;
            let bytes = output.iter().map(|record| record.text.len()).sum();
            bound("output text", bytes, OUTPUT_BYTES_MAX)?;
            bound("error text", error.as_ref().map_or(0, String::len), ERROR_BYTES_MAX)
        }
        Message::Completed { result: Completion::Failed { error }, .. } => {
            bound("error text", error.len(), ERROR_BYTES_MAX)
        }
        Message::Completed { result: Completion::Hook { .. }, .. }
        | Message::Hello { .. }
        | Message::Invoke { .. }
        | Message::HostRequest { .. }
        | Message::HostReply { .. }
        | Message::Interrupt { .. }
        | Message::Shutdown {} => Ok(()),
    }
}

fn bound(what: &'static str, found: usize, limit: usize) -> Result<(), WireError> {
    if found > limit { Err(WireError::Bound { what, found, limit }) } else { Ok(()) }
}
