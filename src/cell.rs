//! What a worker is for, and what a cell gives back.

use serde::{Deserialize, Serialize};

/// What a worker is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Runs cells.
    Workbench,
    /// Answers for policy slots.
    Hooks,
}

impl Role {
    /// The role's name, as argv and the log have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Workbench => "workbench",
            Self::Hooks => "hooks",
        }
    }
}

/// A place where policy is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum HookSlot {
    /// Whether an input wakes the session.
    #[serde(rename = "attention.plan")]
    AttentionPlan,
    /// Whether a text may reach the operator.
    #[serde(rename = "delivery.review")]
    DeliveryReview,
}

impl HookSlot {
    /// Both slots, in the order of the protocol.
    pub const ALL: [Self; 2] = [Self::AttentionPlan, Self::DeliveryReview];

    /// The slot's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AttentionPlan => "attention.plan",
            Self::DeliveryReview => "delivery.review",
        }
    }
}

/// Where a piece of output came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputStream {
    /// `sys.stdout`.
    Stdout,
    /// `sys.stderr`.
    Stderr,
    /// The final expression's `repr`.
    Result,
}

/// One piece of a cell's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputRecord {
    /// Where it came from.
    pub stream: OutputStream,
    /// The text.
    pub text: String,
}
