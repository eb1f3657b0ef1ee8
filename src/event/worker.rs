//! Payloads of generations, releases and the host itself.

use serde::{Deserialize, Serialize};

use crate::cell::{HookSlot, Role};
use crate::id::{Digest, GenerationId};

/// Payload of `kernel.reset`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelReset {
    /// Workbench or hooks.
    pub role: Role,
    /// The generation that runs now.
    pub generation: GenerationId,
    /// Name of its unit, by which it is found and stopped.
    pub unit: String,
    /// The containment that holds it.
    pub containment: String,
    /// Why a new one was started.
    pub reason: ResetReason,
    /// True where an earlier namespace of this session is lost with it.
    pub namespace_lost: bool,
    /// Revision of the skills that it loaded; null where it has none.
    pub skills_revision: Option<String>,
    /// Revision of the hook source that it loaded; null for a workbench.
    pub revision: Option<String>,
    /// Slots that it answers for; empty for a workbench.
    pub slots: Vec<HookSlot>,
}

/// Why a generation was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResetReason {
    /// The first one was needed.
    First,
    /// The host had been restarted.
    HostRestarted,
    /// The earlier one ended by itself.
    Died,
    /// The earlier one was stopped by the host.
    Stopped,
    /// The operator asked.
    Operator,
    /// A release was activated.
    Activation,
}

/// Payload of `generation.ended`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GenerationEnded {
    /// Workbench or hooks.
    pub role: Role,
    /// The generation.
    pub generation: GenerationId,
    /// Why, as a class: `shutdown`, `exited`, `hard_stop`, `protocol`, `hello_timeout`, `host_lost`, ...
    pub reason: String,
    /// In words.
    pub detail: String,
    /// Exit status; null where a signal ended it or nobody saw it.
    pub exit_code: Option<i32>,
    /// Signal; null where it exited or nobody saw it.
    pub signal: Option<i32>,
    /// End of its raw standard output, made valid UTF-8.
    pub stdout_tail: String,
    /// End of its raw standard error, made valid UTF-8.
    pub stderr_tail: String,
}

/// Payload of `behavior.activated`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BehaviorActivated {
    /// Number of the activation: 1, 2, ...
    pub epoch: u64,
    /// The release.
    pub release: Digest,
    /// The release before; null at first.
    pub previous_release: Option<Digest>,
}

/// Payload of `host.started`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostStarted {
    /// Version of the program.
    pub version: String,
    /// What an earlier host left open and this one closed, counted by kind.
    pub recovered: Recovered,
}

/// What a start had to close.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// Cells that were running.
    pub executions: u64,
    /// Model requests that were in flight.
    pub requests: u64,
    /// Effects whose outcome is not known.
    pub effects: u64,
    /// Generations that were running.
    pub generations: u64,
}
