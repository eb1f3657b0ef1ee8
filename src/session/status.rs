//! What `klbr status` shows.

use serde::Serialize;

use crate::id::{Digest, GenerationId, SessionId};

/// The host, at a moment.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// The data directory.
    pub data: String,
    /// The operator socket.
    pub socket: String,
    /// Name of the containment in use.
    pub containment: String,
    /// What was configured and cannot be enforced here; empty where all is.
    pub unenforced: Vec<String>,
    /// When the host started.
    pub started_at_ms: i64,
    /// Every session.
    pub sessions: Vec<SessionStatus>,
    /// The policy.
    pub hooks: HooksStatus,
    /// The route in use.
    pub route: RouteStatus,
    /// Texts that review keeps back.
    pub held: u64,
}

/// A session, at a moment.
#[derive(Debug, Clone, Serialize)]
pub struct SessionStatus {
    /// Its name.
    pub id: SessionId,
    /// `waiting`, `attending`, `requesting` or `executing`.
    pub state: &'static str,
    /// The open turn.
    pub turn: Option<u64>,
    /// When it wakes by itself.
    pub wait_deadline_ms: Option<i64>,
    /// Inputs that no turn has taken up.
    pub pending_inputs: u64,
    /// Its workbench, if one runs.
    pub workbench: Option<WorkbenchStatus>,
}

/// A workbench, at a moment.
#[derive(Debug, Clone, Serialize)]
pub struct WorkbenchStatus {
    /// Its generation.
    pub generation: GenerationId,
    /// Its unit.
    pub unit: String,
}

/// The hook worker, at a moment.
#[derive(Debug, Clone, Serialize)]
pub struct HooksStatus {
    /// Its generation, if one runs.
    pub generation: Option<GenerationId>,
    /// `running` or `down`.
    pub state: &'static str,
    /// Number of the activation in force.
    pub epoch: Option<u64>,
    /// The release in force.
    pub release: Option<Digest>,
}

/// The route in use.
#[derive(Debug, Clone, Serialize)]
pub struct RouteStatus {
    /// Its name in the configuration.
    pub name: String,
    /// `http`, `manual` or `script`.
    pub kind: &'static str,
    /// The model asked for.
    pub model: Option<String>,
}

/// What a coordinator is doing, as far as others may see.
#[derive(Debug, Clone, Default)]
pub(super) struct Phase {
    pub(super) state: PhaseName,
    pub(super) workbench: Option<WorkbenchStatus>,
}

/// The state's name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum PhaseName {
    #[default]
    Waiting,
    Attending,
    Requesting,
    Executing,
}

impl PhaseName {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Attending => "attending",
            Self::Requesting => "requesting",
            Self::Executing => "executing",
        }
    }
}
