//! The request's messages, grown block by block and never rewritten.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{frame, header::Header};
use crate::event::{Body, CellCompleted, Event, ModelResponded, ToolCall};
use crate::id::{Digest, EventId};

/// The messages of a session's next request.
///
/// Their serialisation is the sequence of the messages' JSON joined by commas, without the array's
/// brackets: so that a longer transcript is, byte for byte, an extension of a shorter one. Adding a
/// block costs what the block costs.
#[derive(Debug, Clone, Default)]
pub struct Assembly {
    text: String,
    hasher: Sha256,
    /// Calls of the newest response, whose results follow.
    calls: Vec<(String, EventId)>,
}

/// Length and digest of serialised messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// In bytes.
    pub bytes: u64,
    /// Of those bytes.
    pub digest: Digest,
}

/// Why a block cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssembleError {
    /// The transcript holds an event that is never shown to a model.
    #[error("event:{event} ({kind}) stands in the transcript and has no place there")]
    NotABlock {
        /// The event.
        event: EventId,
        /// Its kind.
        kind: &'static str,
    },
    /// A result without its call.
    #[error("event:{event} is the result of call {call}, which the response before it does not have")]
    NoSuchCall {
        /// The event.
        event: EventId,
        /// Position of the call.
        call: usize,
    },
}

impl Assembly {
    /// An assembly that holds the header.
    pub fn new(header: &str) -> Self {
        let mut assembly = Self::default();
        assembly.push(&json!({"role": "system", "content": header}));
        assembly
    }

    /// As [`Self::new`], for a composed header.
    pub fn with_header(header: &Header) -> Self {
        Self::new(&header.text)
    }

    /// Adds an input, an observation, or a response without its results.
    pub fn push_event(&mut self, event: &Event) -> Result<(), AssembleError> {
        let user = |content: String| json!({"role": "user", "content": content});
        let message = match &event.body {
            Body::OperatorInput(input) => {
                user(format!("{}\n{}", frame::line(event.at_ms, &event.source.0), input.text))
            }
            Body::Wake(wake) => user(frame::wake(event.at_ms, wake)),
            Body::GenerationEnded(ended) => user(frame::generation_ended(event.at_ms, ended)),
            Body::ModelResponded(response) => {
                self.calls = call_ids(event.id, response);
                response_message(&self.calls, response)
            }
            Body::SessionOpened(_)
            | Body::AttentionPlanned(_)
            | Body::TurnStarted(_)
            | Body::ModelRequested(_)
            | Body::ModelFailed(_)
            | Body::CellStarted(_)
            | Body::CellCompleted(_)
            | Body::StepEnded(_)
            | Body::EffectIntended(_)
            | Body::EffectSettled(_)
            | Body::DeliverySent(_)
            | Body::DeliveryHeld(_)
            | Body::DeliveryDiscarded(_)
            | Body::WaitAccepted(_)
            | Body::TurnEnded(_)
            | Body::PromptHeader(_)
            | Body::KernelReset(_)
            | Body::BehaviorActivated(_)
            | Body::HostStarted(_) => {
                return Err(AssembleError::NotABlock { event: event.id, kind: event.body.kind() });
            }
        };
        self.push(&message);
        Ok(())
    }

    /// Adds the result of the newest response's `call`: a cell that ran.
    pub fn push_cell(
        &mut self,
        event: EventId,
        at_ms: i64,
        call: usize,
        cell: &CellCompleted,
    ) -> Result<(), AssembleError> {
        self.push_result(event, call, &frame::cell_result(at_ms, cell))
    }

    /// Adds the result of the newest response's `call`: nothing was run, and why.
    pub fn push_refusal(
        &mut self,
        event: EventId,
        at_ms: i64,
        call: usize,
        message: &str,
    ) -> Result<(), AssembleError> {
        self.push_result(event, call, &format!("{}\n{message}", frame::line(at_ms, "host")))
    }

    fn push_result(&mut self, event: EventId, call: usize, content: &str) -> Result<(), AssembleError> {
        let Some((id, _)) = self.calls.get(call) else {
            return Err(AssembleError::NoSuchCall { event, call });
        };
        let message = json!({"role": "tool", "tool_call_id": id, "content": content});
        self.push(&message);
        Ok(())
    }

    fn push(&mut self, message: &Value) {
        let from = self.text.len();
        if from > 0 {
            self.text.push(',');
        }
        // serde_json keeps the keys of an object sorted: the same message is always the same bytes.
        self.text.push_str(&message.to_string());
        self.hasher.update(&self.text.as_bytes()[from..]);
    }

    /// Length and digest of what is there.
    pub fn sequence(&self) -> Sequence {
        let raw = self.hasher.clone().finalize();
        Sequence { bytes: self.text.len() as u64, digest: Digest::from_sha256(&raw.into()) }
    }

    /// Whether the first bytes of this one are all of `earlier`.
    pub fn extends(&self, earlier: &Sequence) -> bool {
        usize::try_from(earlier.bytes)
            .ok()
            .and_then(|bytes| self.text.as_bytes().get(..bytes))
            .is_some_and(|prefix| Digest::of(prefix) == earlier.digest)
    }

    /// The `messages` field of the request: a JSON array.
    pub fn messages(&self) -> String {
        format!("[{}]", self.text)
    }
}

/// The identity of each call: the route's own, or one made of the event where the route gave none.
fn call_ids(event: EventId, response: &ModelResponded) -> Vec<(String, EventId)> {
    let made = |index: usize, call: &ToolCall| {
        if call.id.is_empty() { format!("call_{event}_{index}") } else { call.id.clone() }
    };
    response.calls.iter().enumerate().map(|(index, call)| (made(index, call), event)).collect()
}

fn response_message(ids: &[(String, EventId)], response: &ModelResponded) -> Value {
    if response.calls.is_empty() {
        return json!({"role": "assistant", "content": response.text});
    }
    let content = if response.text.is_empty() { Value::Null } else { Value::from(response.text.as_str()) };
    let calls: Vec<Value> =
        response.calls.iter().zip(ids).map(|(call, (id, _))| call_json(id, call)).collect();
    json!({"role": "assistant", "content": content, "tool_calls": calls})
}

fn call_json(id: &str, call: &ToolCall) -> Value {
    let mut value = json!({
        "id": id,
        "type": "function",
        "function": {"name": call.name, "arguments": replayable(&call.arguments)},
    });
    if let (Some(extra), Some(object)) = (&call.extra_content, value.as_object_mut()) {
        object.insert("extra_content".to_owned(), extra.clone());
    }
    value
}

/// Servers parse the arguments of replayed calls and fail on text that is not a JSON object: such
/// text is wrapped, not dropped.
fn replayable(arguments: &str) -> String {
    match serde_json::from_str::<serde_json::Map<String, Value>>(arguments) {
        Ok(_) => arguments.to_owned(),
        Err(_) => json!({"invalid_arguments": arguments}).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{OperatorInput, Source, Usage};
    use crate::id::SessionId;
    use proptest::prelude::*;

    fn input(id: i64, text: &str) -> Event {
        Event {
            id: EventId(id),
            session: SessionId::root(),
            source: Source::operator(),
            execution: None,
            at_ms: 1_789_325_940_000,
            body: Body::OperatorInput(OperatorInput { text: text.to_owned() }),
        }
    }

    fn response(id: i64, text: &str, calls: Vec<ToolCall>) -> Event {
        let body = ModelResponded {
            request: EventId(1),
            text: text.to_owned(),
            reasoning: None,
            calls,
            finish_reason: None,
            usage: Usage::default(),
            usage_raw: None,
            duration_ms: 1,
        };
        Event { body: Body::ModelResponded(Box::new(body)), ..input(id, "") }
    }

    fn call(id: &str, arguments: &str) -> ToolCall {
        ToolCall { id: id.into(), name: "python".into(), arguments: arguments.into(), extra_content: None }
    }

    #[test]
    fn a_conversation_is_these_bytes() {
        let mut assembly = Assembly::new("rules");
        assembly.push_event(&input(2, "do the thing")).unwrap();
        assembly.push_event(&response(4, "", vec![call("c1", "{\"code\":\"1\"}")])).unwrap();
        assembly.push_refusal(EventId(5), 0, 0, "no").unwrap();

        assert_eq!(
            assembly.messages(),
            concat!(
                r#"[{"content":"rules","role":"system"},"#,
                r#"{"content":"[2026-09-13T18:59:00Z · operator]\ndo the thing","role":"user"},"#,
                r#"{"content":null,"role":"assistant","tool_calls":[{"function":{"arguments":"{\"code\":\"1\"}","name":"python"},"id":"c1","type":"function"}]},"#,
                r#"{"content":"[time unknown · host]\nno","role":"tool","tool_call_id":"c1"}]"#
            )
        );
    }

    #[test]
    fn arguments_that_are_not_an_object_are_wrapped_and_a_missing_identity_is_made_of_the_event() {
        let mut assembly = Assembly::new("");
        assembly.push_event(&response(4, "t", vec![call("", "{\"code\":")])).unwrap();
        let messages: Value = serde_json::from_str(&assembly.messages()).unwrap();

        let sent = &messages[1]["tool_calls"][0];
        assert_eq!(sent["id"], "call_4_0");
        assert_eq!(sent["function"]["arguments"], "{\"invalid_arguments\":\"{\\\"code\\\":\"}");
    }

    #[test]
    fn an_event_without_a_place_in_a_transcript_is_refused_by_name() {
        let turn = Event {
            body: Body::TurnStarted(crate::event::TurnStarted {
                turn: 1,
                cause: crate::event::WakeCause::Input,
            }),
            ..input(9, "")
        };

        assert_eq!(
            Assembly::new("").push_event(&turn),
            Err(AssembleError::NotABlock { event: EventId(9), kind: "turn.started" })
        );
    }

    proptest! {
        #[test]
        fn every_request_extends_the_one_before_it(texts in proptest::collection::vec(".{0,40}", 1..12)) {
            let mut assembly = Assembly::new("header");
            let mut earlier: Vec<(Sequence, String)> = vec![];
            for (number, text) in texts.iter().enumerate() {
                assembly.push_event(&input(number as i64 + 1, text)).unwrap();
                let sequence = assembly.sequence();
                let bytes = assembly.messages();
                prop_assert_eq!(&sequence.digest, &Digest::of(&bytes.as_bytes()[1..bytes.len() - 1]));
                for (before, before_bytes) in &earlier {
                    prop_assert!(assembly.extends(before));
                    prop_assert!(bytes.starts_with(&before_bytes[..before_bytes.len() - 1]));
                }
                earlier.push((sequence, bytes));
            }
        }
    }
}
