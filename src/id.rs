//! Identifiers, parsed once at the edge: inside the program their type is their validity.
//!
//! Must not know what any identifier refers to.

use serde::{Deserialize, Serialize};
use std::fmt;

use crate::limits::IDENTIFIER_BYTES_MAX;

/// Why a text is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Empty, or longer than [`IDENTIFIER_BYTES_MAX`].
    #[error("an identifier has 1 to {IDENTIFIER_BYTES_MAX} characters, this one has {0}")]
    Length(usize),
    /// A character outside `[A-Za-z0-9_.-]`.
    #[error("an identifier has only letters, digits, `_`, `.` and `-`, this one has {0:?}")]
    Character(char),
    /// Not 64 lowercase hexadecimal digits.
    #[error("a digest is 64 lowercase hexadecimal digits, this is {0:?}")]
    Digest(String),
    /// Not of the form `event:<number>`.
    #[error("an event reference is `event:` and a positive number, this is {0:?}")]
    EventReference(String),
}

fn check_identifier(text: &str) -> Result<(), IdError> {
    if text.is_empty() || text.len() > IDENTIFIER_BYTES_MAX {
        return Err(IdError::Length(text.chars().count()));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    match text.chars().find(|c| !allowed(*c)) {
        Some(character) => Err(IdError::Character(character)),
        None => Ok(()),
    }
}

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// 1 to 128 of `[A-Za-z0-9_.-]` (klbr-protocol(7)).
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Parses, or says what is wrong with the text.
            pub fn parse(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                check_identifier(&text)?;
                Ok(Self(text))
            }

            /// The identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::parse(text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::parse(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

identifier!(
    /// One agent identity: `root`, or a peer.
    SessionId
);
identifier!(
    /// One life of one worker process: `g-1`, `g-2`, ...
    GenerationId
);
identifier!(
    /// One cell that the model or the operator asked for.
    ExecutionId
);
identifier!(
    /// One host request of one execution; unique in it.
    RequestId
);
identifier!(
    /// One consequence outside the worker.
    EffectId
);
identifier!(
    /// One `execute` or `invoke` on a worker's connection.
    OperationId
);

impl SessionId {
    /// The first session of every host.
    pub fn root() -> Self {
        Self("root".to_owned())
    }
}

impl GenerationId {
    /// The generation with this number: `g-<number>`.
    pub fn numbered(number: u64) -> Self {
        Self(format!("g-{number}"))
    }
}

impl ExecutionId {
    /// The execution whose `cell.started` is the `number`th of the log: `x-<number>`.
    pub fn numbered(number: u64) -> Self {
        Self(format!("x-{number}"))
    }
}

impl EffectId {
    /// The effect of a request identity: the same identity always names the same effect.
    ///
    /// An identifier of at most 128 characters whatever the lengths of the parts, since it is made
    /// of a digest of both.
    pub fn of_request(execution: &ExecutionId, request: &RequestId) -> Self {
        let digest = Digest::of_parts(&[execution.as_str().as_bytes(), request.as_str().as_bytes()]);
        Self(format!("e-{}", &digest.as_str()[..24]))
    }
}

impl From<ExecutionId> for OperationId {
    fn from(execution: ExecutionId) -> Self {
        Self(execution.0)
    }
}

impl From<OperationId> for ExecutionId {
    fn from(operation: OperationId) -> Self {
        Self(operation.0)
    }
}

/// The position of an event in the log; positive, growing, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EventId(pub i64);

impl EventId {
    /// The evidence reference, `event:<id>`.
    pub fn reference(self) -> String {
        format!("event:{}", self.0)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Lowercase hexadecimal SHA-256.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest as _;
        Self::from_sha256(&sha2::Sha256::digest(bytes).into())
    }

    /// The digest of several parts, each preceded by its length (u64, big-endian), so that no two
    /// different lists of parts feed the same bytes.
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        use sha2::Digest as _;
        let mut hasher = sha2::Sha256::new();
        for part in parts {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        Self::from_sha256(&hasher.finalize().into())
    }

    /// The digest whose 32 bytes these are.
    pub fn from_sha256(raw: &[u8; 32]) -> Self {
        use fmt::Write as _;
        let mut text = String::with_capacity(raw.len() * 2);
        for byte in raw {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Self(text)
    }

    /// The 64 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Digest {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        let digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if text.len() == 64 && text.bytes().all(digit) { Ok(Self(text)) } else { Err(IdError::Digest(text)) }
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_has_both_bounds_and_a_closed_alphabet() {
        let longest = "a".repeat(IDENTIFIER_BYTES_MAX);
        let accepted = ["a", "A-z_0.9", longest.as_str()].map(|t| SessionId::parse(t).is_ok());
        let too_long = format!("{longest}a");
        let refused = ["", "a b", "a/b", "é", "a\n", too_long.as_str()].map(|t| SessionId::parse(t).is_err());

        assert_eq!((accepted, refused), ([true; 3], [true; 6]));
    }

    #[test]
    fn a_digest_is_the_standard_one_and_refuses_other_spellings() {
        let digest = Digest::of(b"abc");

        assert_eq!(digest.as_str(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert!(Digest::try_from(digest.as_str().to_uppercase()).is_err());
    }

    #[test]
    fn parts_that_join_to_the_same_bytes_have_different_digests() {
        assert_ne!(Digest::of_parts(&[b"ab", b"c"]), Digest::of_parts(&[b"a", b"bc"]));
    }
}
