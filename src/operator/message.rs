//! Varlink messages: JSON objects that end with a zero byte. No I/O.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::fault::Fault;

/// A message grew over the limit of its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message has more than {limit} bytes")]
pub struct MessageTooLarge {
    /// The limit, in bytes.
    pub limit: usize,
}

/// Cuts a byte stream into messages.
#[derive(Debug)]
pub struct Inbox {
    buffer: Vec<u8>,
    scanned: usize,
    limit: usize,
}

impl Inbox {
    /// An inbox for messages of at most `limit` bytes, the final zero excluded.
    pub fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), scanned: 0, limit }
    }

    /// Takes bytes in. Call [`Inbox::take`] until it has nothing before the next bytes: that bounds
    /// what is held here.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message, or `None` for "read more".
    pub fn take(&mut self) -> Result<Option<Vec<u8>>, MessageTooLarge> {
        let end = self.buffer[self.scanned..].iter().position(|byte| *byte == 0);
        let length = end.map_or(self.buffer.len(), |end| self.scanned + end);
        if length > self.limit {
            return Err(MessageTooLarge { limit: self.limit });
        }
        if end.is_none() {
            self.scanned = self.buffer.len();
            return Ok(None);
        }
        let rest = self.buffer.split_off(length + 1);
        let mut message = std::mem::replace(&mut self.buffer, rest);
        message.truncate(length);
        self.scanned = 0;
        Ok(Some(message))
    }

    /// True where the stream would end inside a message.
    pub fn is_partial(&self) -> bool {
        !self.buffer.is_empty()
    }
}

/// One call.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The interface's name.
    pub interface: String,
    /// The method's name, without the interface.
    pub method: String,
    /// What it is called with.
    pub parameters: Parameters,
    /// The caller takes several replies.
    pub more: bool,
    /// The caller wants no reply, not even an error.
    pub oneway: bool,
}

impl Call {
    /// Parses one message. The fault is `InvalidParameter` with what is wrong.
    pub fn parse(message: &[u8]) -> Result<Self, Fault> {
        // Members that Varlink may add later are skipped: they are not ours to judge.
        #[derive(Deserialize)]
        struct Wire {
            method: String,
            parameters: Option<Map<String, Value>>,
            more: Option<bool>,
            oneway: Option<bool>,
        }
        let wire: Wire =
            serde_json::from_slice(message).map_err(|_| Fault::InvalidParameter("message".to_owned()))?;
        let Some((interface, method)) = wire.method.rsplit_once('.') else {
            return Err(Fault::InvalidParameter("method".to_owned()));
        };
        Ok(Self {
            interface: interface.to_owned(),
            method: method.to_owned(),
            parameters: Parameters(wire.parameters.unwrap_or_default()),
            more: wire.more.unwrap_or(false),
            oneway: wire.oneway.unwrap_or(false),
        })
    }
}

/// The parameters of a call, taken out one by one so that a wrong one is named.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parameters(Map<String, Value>);

impl Parameters {
    /// Takes a parameter that has to be there.
    pub fn required<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, Fault> {
        self.optional(name)?.ok_or_else(|| Fault::InvalidParameter(name.to_owned()))
    }

    /// Takes a parameter that may be absent or null.
    pub fn optional<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, Fault> {
        let value = self.0.remove(name).unwrap_or(Value::Null);
        serde_json::from_value(value).map_err(|_| Fault::InvalidParameter(name.to_owned()))
    }

    /// Refuses whatever was not taken.
    pub fn finish(self) -> Result<(), Fault> {
        match self.0.into_iter().next() {
            Some((name, _)) => Err(Fault::InvalidParameter(name)),
            None => Ok(()),
        }
    }
}

/// A reply as a message, its final zero included.
pub fn reply(parameters: &impl Serialize, continues: bool) -> Result<Vec<u8>, serde_json::Error> {
    #[derive(Serialize)]
    struct Wire<'a, T> {
        parameters: &'a T,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        continues: bool,
    }
    let mut bytes = serde_json::to_vec(&Wire { parameters, continues })?;
    bytes.push(0);
    Ok(bytes)
}

/// An error reply as a message, its final zero included.
pub fn error_reply(fault: &Fault) -> Vec<u8> {
    let object = serde_json::json!({"error": fault.name(), "parameters": fault.parameters()});
    let mut bytes = object.to_string().into_bytes();
    bytes.push(0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_whole_however_the_bytes_arrive() {
        let stream = b"{\"a\":1}\0\0{\"b\":2}\0{";
        for size in 1..stream.len() {
            let mut inbox = Inbox::new(7);
            let mut messages = Vec::new();
            for chunk in stream.chunks(size) {
                inbox.push(chunk);
                while let Some(message) = inbox.take().unwrap() {
                    messages.push(message);
                }
            }

            assert_eq!(messages, [b"{\"a\":1}".to_vec(), Vec::new(), b"{\"b\":2}".to_vec()]);
            assert!(inbox.is_partial());
        }
    }

    #[test]
    fn a_message_over_the_limit_is_refused_before_its_end() {
        let mut inbox = Inbox::new(4);
        inbox.push(b"12345");

        assert_eq!(inbox.take(), Err(MessageTooLarge { limit: 4 }));
    }

    #[test]
    fn a_call_needs_a_qualified_method_and_an_object() {
        let wrong = |text: &str| Call::parse(text.as_bytes()).unwrap_err();

        assert_eq!(wrong("{\"method\":\"Send\"}"), Fault::InvalidParameter("method".to_owned()));
        for text in ["", "[]", "1", "{}", "{\"method\":1}", "{\"method\":\"a.B\",\"parameters\":[]}"] {
            assert_eq!(wrong(text), Fault::InvalidParameter("message".to_owned()), "{text}");
        }
    }

    #[test]
    fn a_wrong_a_missing_and_an_unknown_parameter_are_named() {
        let call = Call::parse(b"{\"method\":\"a.b.C\",\"parameters\":{\"n\":\"x\",\"z\":null}}").unwrap();
        let mut parameters = call.parameters;

        assert_eq!(parameters.required::<i64>("n"), Err(Fault::InvalidParameter("n".to_owned())));
        assert_eq!(parameters.required::<i64>("m"), Err(Fault::InvalidParameter("m".to_owned())));
        assert_eq!(parameters.finish(), Err(Fault::InvalidParameter("z".to_owned())));
    }
}
