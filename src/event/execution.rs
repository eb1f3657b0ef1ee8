//! Payloads of cells and of the steps that they are part of.

use serde::{Deserialize, Serialize};

use crate::cell::OutputRecord;
use crate::id::{EventId, ExecutionId, GenerationId, RequestId};

/// Payload of `cell.started`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellStarted {
    /// Its identity (the event's `execution` too).
    pub execution: ExecutionId,
    /// The worker generation that runs it.
    pub generation: GenerationId,
    /// Who asked for it.
    pub origin: CellOrigin,
    /// The source.
    pub code: String,
}

/// Who asked for a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum CellOrigin {
    /// A model's tool call.
    Model {
        /// The turn.
        turn: u64,
        /// The step of the turn.
        step: u32,
        /// The `model.responded`.
        response: EventId,
        /// Position of the call in the response, from 0.
        call: usize,
    },
    /// `klbr exec`.
    Operator {},
}

/// Payload of `cell.completed`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellCompleted {
    /// Its identity.
    pub execution: ExecutionId,
    /// The worker generation that ran it.
    pub generation: GenerationId,
    /// How it ended.
    pub status: CellStatus,
    /// What it wrote.
    pub output: Vec<OutputRecord>,
    /// Bytes of output that were discarded.
    pub truncated_bytes: u64,
    /// The traceback, or what the host saw; null where there was no error.
    pub error: Option<String>,
    /// Milliseconds that it ran; null where the host does not know (it was down).
    pub duration_ms: Option<u64>,
    /// What became of the cell's host requests; empty where the worker itself completed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ledger: Vec<LedgerEntry>,
}

/// How a cell ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CellStatus {
    /// To its end.
    Ok,
    /// With an exception.
    Error,
    /// With an accepted wait.
    Yielded,
    /// By an interrupt, or because the host or the worker went away under it.
    Interrupted,
    /// The worker died, or could not be started.
    Failed,
}

/// One host request of a cell that its worker did not live to complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// The request.
    pub request: RequestId,
    /// Its method.
    pub method: String,
    /// What became of it.
    pub state: EffectState,
    /// The event that proves it; null where there is none.
    pub event: Option<EventId>,
}

/// What is known of a host request with a consequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectState {
    /// It is intended, and being carried out.
    Intended,
    /// It is done, and proven.
    Committed,
    /// It was refused or failed: it has no consequence.
    Refused,
    /// It had started, and nobody knows what became of it.
    Uncertain,
    /// It was intended, and certainly had no consequence.
    NeverStarted,
}

/// Payload of `step.ended`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepEnded {
    /// The turn.
    pub turn: u64,
    /// The step of the turn.
    pub step: u32,
    /// The `model.responded`.
    pub response: EventId,
    /// One result for each call of the response, in the same order.
    pub results: Vec<CallResult>,
}

/// The result of one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum CallResult {
    /// A cell ran.
    Cell {
        /// Its `cell.completed`.
        completed: EventId,
    },
    /// No cell ran.
    Refused {
        /// Why, in words for the model.
        message: String,
    },
}
