//! What happens next, and why: one coordinator per session, and the handle that the rest of the
//! host speaks to.
//!
//! Must not know SQL, HTTP, unit properties, or who is at the operator socket.

mod cell;
mod coordinator;
mod deliver;
mod generation;
mod hooks;
mod host;
pub mod recover;
mod request;
mod resume;
mod status;
mod transcript;
mod turn;

pub use generation::Workshop;
pub use host::{Host, Open, Running};
pub use status::{HooksStatus, RouteStatus, SessionStatus, Status, WorkbenchStatus};

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::cell::OutputRecord;
use crate::config::{Changes, FinalText};
use crate::event::CellStatus;
use crate::id::{EventId, ExecutionId, GenerationId, SessionId};
use crate::requests::Facts;
use crate::route::Route;
use crate::store::StoreError;

/// Why an operator's wish was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// No session has this name.
    #[error("there is no session `{0}`")]
    UnknownSession(SessionId),
    /// Something else runs, and the caller did not want to wait.
    #[error("{0}")]
    Busy(String),
    /// It makes no sense now.
    #[error("{0}")]
    Refused(String),
    /// A bound.
    #[error("the {what} has {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// No such thing.
    #[error("{0}")]
    NotFound(String),
    /// A configuration is not taken.
    #[error("{0}")]
    Unusable(String),
    /// The host is going down.
    #[error("the host is stopping")]
    Stopping,
    /// The host itself failed; its log says more.
    #[error("{0}")]
    Internal(String),
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Internal(format!("the log: {error}"))
    }
}

/// Why a coordinator cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The log does not take or give what it must.
    #[error("the log failed")]
    Store(#[from] StoreError),
    /// The transcript in the log cannot be rendered.
    #[error("the transcript cannot be rendered")]
    Transcript(#[from] crate::prompt::assemble::AssembleError),
    /// The log holds something that this program never writes.
    #[error("the log is inconsistent: {0}")]
    Inconsistent(String),
}

/// Whether an operator's cell waits for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Behind the running cell.
    Behind,
    /// Now, or not at all.
    Now,
}

/// How an operator's cell ended.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecOutcome {
    /// Its `cell.completed`.
    pub event_id: EventId,
    /// Its identity.
    pub execution_id: ExecutionId,
    /// How it ended.
    pub status: CellStatus,
    /// What it wrote.
    pub output: Vec<OutputRecord>,
    /// Bytes of output that were discarded.
    pub truncated_bytes: u64,
    /// The traceback, or what the host saw.
    pub error: Option<String>,
}

/// What an interrupt reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interrupted {
    /// The cell that was told to stop, if one ran.
    pub execution_id: Option<ExecutionId>,
    /// The turn that ends, if one was open.
    pub turn: Option<u64>,
}

/// What a reset made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResetOutcome {
    /// The new generation.
    pub generation: GenerationId,
}

/// What a coordinator is told.
enum Command {
    /// An input was logged.
    Input,
    /// Run a cell for the operator.
    Exec(Exec),
    /// Stop what runs.
    Interrupt(oneshot::Sender<Interrupted>),
    /// A new generation.
    Reset(oneshot::Sender<Result<ResetOutcome, Refusal>>),
    /// The configuration was read again.
    Settings(Box<Settings>),
    /// End, leaving everything as it can go on later.
    Stop,
}

/// What a running coordinator takes over from a configuration that was read again.
#[derive(Clone)]
struct Settings {
    route: Route,
    final_text: FinalText,
    facts: Arc<Facts>,
}

/// Somebody wants the configuration read again; the answer is what that changed, or what is wrong with it.
pub type ReloadAsked = oneshot::Sender<Result<Changes, String>>;

/// A cell of the operator.
#[derive(Debug)]
struct Exec {
    code: String,
    when: When,
    reply: oneshot::Sender<Result<ExecOutcome, Refusal>>,
}
