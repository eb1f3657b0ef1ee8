//! A chat completion, put together from the pieces of its stream, or from one body.

use serde_json::Value;

use super::failure::{Failure, FailureClass};
use super::usage;
use crate::event::{ToolCall, Usage};

/// What a route answered, as far as it came.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// Joined text.
    pub text: String,
    /// Joined reasoning.
    pub reasoning: Option<String>,
    /// Calls, put together.
    pub calls: Vec<ToolCall>,
    /// As the route sent it.
    pub finish_reason: Option<String>,
    /// The last usage object.
    pub usage_raw: Option<Value>,
    /// An error object inside the answer.
    pub error: Option<Value>,
    /// The `index` that each call was sent with.
    indexes: Vec<Option<u64>>,
}

impl Reading {
    /// The counts of the last usage object.
    pub fn usage(&self) -> Usage {
        self.usage_raw.as_ref().map(usage::read).unwrap_or_default()
    }

    /// Takes one piece of a stream.
    pub fn take_piece(&mut self, piece: &Value) {
        self.take_beside(piece);
        let choice = &piece["choices"][0];
        self.take_message(&choice["delta"]);
        self.take_finish(choice);
    }

    /// Takes a body that is the whole answer.
    pub fn take_whole(&mut self, body: &Value) {
        self.take_beside(body);
        let choice = &body["choices"][0];
        self.take_message(&choice["message"]);
        self.take_finish(choice);
    }

    fn take_beside(&mut self, body: &Value) {
        if let Some(usage) = usage::find(body) {
            self.usage_raw = Some(usage.clone());
        }
        if !body["error"].is_null() {
            self.error = Some(body["error"].clone());
        }
    }

    fn take_finish(&mut self, choice: &Value) {
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.finish_reason = Some(reason.to_owned());
        }
    }

    fn take_message(&mut self, message: &Value) {
        self.text.push_str(message["content"].as_str().unwrap_or_default());
        let reasoning = message["reasoning_content"].as_str().or_else(|| message["reasoning"].as_str());
        if let Some(reasoning) = reasoning.filter(|text| !text.is_empty()) {
            self.reasoning.get_or_insert_default().push_str(reasoning);
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            self.take_call(call);
        }
    }

    fn take_call(&mut self, piece: &Value) {
        let index = piece["index"].as_u64();
        let id = piece["id"].as_str().filter(|id| !id.is_empty());
        let at = self.call_of(index, id);
        let Some(call) = self.calls.get_mut(at) else { return };
        if let Some(id) = id {
            id.clone_into(&mut call.id);
        }
        let function = &piece["function"];
        call.name.push_str(function["name"].as_str().unwrap_or_default());
        match &function["arguments"] {
            Value::String(text) => call.arguments.push_str(text),
            Value::Null => {}
            // Some servers send the object itself.
            other => call.arguments.push_str(&other.to_string()),
        }
        if !piece["extra_content"].is_null() {
            call.extra_content = Some(piece["extra_content"].clone());
        }
    }

    /// Where a piece belongs. An identity that was not seen starts a call; a piece without one goes
    /// on with the call of its index, or with the newest.
    fn call_of(&mut self, index: Option<u64>, id: Option<&str>) -> usize {
        let same_id = |calls: &[ToolCall]| id.and_then(|id| calls.iter().rposition(|call| call.id == id));
        let same_index = |indexes: &[Option<u64>]| {
            index.and_then(|index| indexes.iter().rposition(|known| *known == Some(index)))
        };
        let known = match id {
            Some(_) => same_id(&self.calls),
            None => match index {
                Some(_) => same_index(&self.indexes),
                None => self.calls.len().checked_sub(1),
            },
        };
        known.unwrap_or_else(|| {
            self.calls.push(ToolCall {
                id: String::new(),
                name: String::new(),
                arguments: String::new(),
                extra_content: None,
            });
            self.indexes.push(index);
            self.calls.len() - 1
        })
    }

    /// The failure that this reading is, where it is not a whole answer.
    pub fn failure(&self) -> Option<Failure> {
        if let Some(error) = &self.error {
            let message = error["message"].as_str().or_else(|| error.as_str()).unwrap_or("no reason given");
            return Some(Failure::new(
                FailureClass::StreamError,
                format!("the server put an error into its answer: {message}"),
            ));
        }
        match self.finish_reason.as_deref() {
            None => Some(Failure::new(
                FailureClass::StreamError,
                "the answer broke off: it ended without a finish reason",
            )),
            Some("content_filter") => Some(Failure::new(
                FailureClass::ContentFiltered,
                "the server's content filter ended the answer",
            )),
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn calls(pieces: &[Value]) -> Vec<(String, String)> {
        let mut reading = Reading::default();
        for piece in pieces {
            reading.take_piece(&json!({"choices": [{"delta": {"tool_calls": [piece]}}]}));
        }
        reading.calls.into_iter().map(|call| (call.id, call.arguments)).collect()
    }

    fn pair(id: &str, arguments: &str) -> (String, String) {
        (id.to_owned(), arguments.to_owned())
    }

    #[test]
    fn pieces_find_their_call_by_index_by_identity_or_by_order() {
        let function = |arguments: &str| json!({"arguments": arguments});
        let by_index = [
            json!({"index": 0, "id": "a", "function": function("1")}),
            json!({"index": 1, "id": "b", "function": function("2")}),
            json!({"index": 0, "function": function("3")}),
        ];
        let by_order = [
            json!({"id": "a", "function": function("1")}),
            json!({"function": function("2")}),
            json!({"id": "b", "function": function("3")}),
        ];
        // A server that repeats the index of every call, and one that repeats the identity.
        let repeated = [
            json!({"index": 0, "id": "a", "function": function("1")}),
            json!({"index": 0, "id": "b", "function": function("2")}),
            json!({"index": 0, "id": "b", "function": function("3")}),
        ];

        assert_eq!(calls(&by_index), [pair("a", "13"), pair("b", "2")]);
        assert_eq!(calls(&by_order), [pair("a", "12"), pair("b", "3")]);
        assert_eq!(calls(&repeated), [pair("a", "1"), pair("b", "23")]);
    }

    #[test]
    fn an_answer_without_a_finish_is_cut_off() {
        let mut reading = Reading::default();
        reading.take_piece(&json!({"choices": [{"delta": {"content": "half"}}]}));
        assert_eq!(reading.failure().map(|failure| failure.class), Some(FailureClass::StreamError));
        reading.take_piece(&json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}));

        assert_eq!(reading.failure(), None);
    }
}
