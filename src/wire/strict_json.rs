//! JSON of which both sides read the same: one object, no key twice at any depth, nothing that
//! another parser would take for something else.
//!
//! `serde_json` refuses bad UTF-8, lone surrogates, NaN, infinities and numbers that overflow to one,
//! control characters in strings and trailing bytes. Repeated keys and the depth are ours to refuse.

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

use crate::limits::JSON_DEPTH_MAX;

/// Why bytes are not strict JSON.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// Not UTF-8.
    #[error("the payload is not UTF-8 from byte {0} on")]
    Utf8(usize),
    /// Not an object.
    #[error("the payload is not a JSON object")]
    NotAnObject,
    /// Not JSON, or not strict; the text says what and where.
    #[error("the payload is not strict JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Parses one strict JSON object.
pub fn parse_object(payload: &[u8]) -> Result<Map<String, Value>, JsonError> {
    let text = std::str::from_utf8(payload).map_err(|error| JsonError::Utf8(error.valid_up_to()))?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    // The depth is counted here: serde_json's own limit stops one level earlier than the protocol's.
    deserializer.disable_recursion_limit();
    let value = Strict { depth: 0 }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    match value {
        Value::Object(map) => Ok(map),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(JsonError::NotAnObject)
        }
    }
}

/// A value that lies inside `depth` arrays and objects.
struct Strict {
    depth: usize,
}

impl Strict {
    fn deeper<E: serde::de::Error>(&self) -> Result<usize, E> {
        if self.depth == JSON_DEPTH_MAX {
            return Err(E::custom(format!("nested deeper than {JSON_DEPTH_MAX}")));
        }
        Ok(self.depth + 1)
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let depth = self.deeper()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Strict { depth })? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let depth = self.deeper()?;
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(Strict { depth })?;
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("the key {key:?} comes twice")));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        parse_object(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn a_key_that_comes_twice_is_refused_at_every_depth_and_in_every_spelling() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"x":{"a":1,"a":2}}"#,
            r#"{"x":[{"y":{"a":1,"b":2,"a":3}}]}"#,
            r#"{"x":{"a":1,"\u0061":2}}"#,
            r#"{"\ud83d\ude42":1,"🙂":2}"#,
        ] {
            assert!(problem(text).contains("comes twice"), "{text}");
        }
    }

    #[test]
    fn the_depth_has_two_sides() {
        let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));

        assert!(parse_object(nested(JSON_DEPTH_MAX).as_bytes()).is_ok());
        assert!(problem(&nested(JSON_DEPTH_MAX + 1)).contains("deeper than 128"));
    }

    #[test]
    fn what_parsers_disagree_about_is_refused() {
        for text in [
            "",
            "[]",
            "3",
            "{\"a\":NaN}",
            "{\"a\":Infinity}",
            "{\"a\":-Infinity}",
            "{\"a\":1e999}",
            "{\"a\":\"\\ud800\"}",
            "{\"a\":\"\\ud800x\"}",
            "{\"\\udc00\":1}",
            "{\"a\":1} {}",
            "{\"a\":1}x",
            "{\"a\":01}",
            "{\"a\":1,}",
            "{'a':1}",
            "{\"a\":\"\n\"}",
            "\u{feff}{}",
        ] {
            assert!(parse_object(text.as_bytes()).is_err(), "{text}");
        }
        assert!(parse_object(b"{\"a\":\"\xff\"}").is_err());
    }
}
