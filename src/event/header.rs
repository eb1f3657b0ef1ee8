//! Payload of a pinned instruction text.

use serde::{Deserialize, Serialize};

use crate::id::Digest;

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
