//! Lives of workers: started, spoken with, stopped.
//!
//! Must not know why a worker is wanted, or where its ends are written down.

pub mod hooks;
mod link;
mod outbox;
pub mod state;
mod tails;
pub mod workbench;

use std::path::PathBuf;
use std::time::Duration;

use crate::cell::{HookSlot, Role};
use crate::containment::{ContainmentError, Exit};
use crate::id::{GenerationId, SessionId};
use crate::limits::{HELLO_MS_DEFAULT, SHUTDOWN_GRACE_MS};

pub use state::{EndReason, StopReason};
pub use workbench::{Started, Workbench, WorkerEvent};

/// What a worker is started with.
#[derive(Debug, Clone)]
pub struct WorkerSpec {
    /// What it is for.
    pub role: Role,
    /// Its session.
    pub session: SessionId,
    /// Its generation.
    pub generation: GenerationId,
    /// The name under which it is found and stopped.
    pub unit: String,
    /// The interpreter.
    pub python: PathBuf,
    /// Where the `klbr` package lies.
    pub python_path: PathBuf,
    /// Where it starts.
    pub workspace: PathBuf,
    /// A folder that is made for its control socket and token, and removed after the handshake.
    pub run_dir: PathBuf,
    /// The hook source that it loads; `None` for a workbench.
    pub release: Option<PathBuf>,
    /// The skills that it loads.
    pub skills: Option<PathBuf>,
    /// What bounds its life.
    pub times: Times,
}

/// What bounds a worker's life.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// From its start to its `hello`.
    pub hello: Duration,
    /// From a cooperative interrupt to the hard stop.
    pub interrupt_grace: Duration,
    /// From `shutdown` to the hard stop.
    pub shutdown_grace: Duration,
    /// Longest time that one cell may run; `None` is no bound.
    pub cell_max: Option<Duration>,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            hello: Duration::from_millis(HELLO_MS_DEFAULT),
            interrupt_grace: Duration::from_millis(crate::limits::INTERRUPT_GRACE_MS_DEFAULT),
            shutdown_grace: Duration::from_millis(SHUTDOWN_GRACE_MS),
            cell_max: None,
        }
    }
}

/// What a worker said of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Identity of the hook source that it loaded.
    pub revision: Option<String>,
    /// The slots that it answers for.
    pub slots: Vec<HookSlot>,
    /// Revision of the skills that it loaded.
    pub skills_revision: Option<String>,
}

/// How a generation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Why.
    pub reason: EndReason,
    /// In words.
    pub detail: String,
    /// Its exit status; `None` where a signal ended it or nobody saw it.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// End of its raw standard output.
    pub stdout_tail: String,
    /// End of its raw standard error.
    pub stderr_tail: String,
    /// How long its cell had run; `None` where none ran.
    pub cell_ms: Option<u64>,
}

/// Why no worker came to be.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its folder or socket cannot be made.
    #[error("the control socket {path} cannot be made: {problem}")]
    Socket {
        /// The socket.
        path: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// It cannot be contained.
    #[error("{error}{}", source_of(error))]
    Containment {
        /// Why.
        error: ContainmentError,
    },
    /// It ended, or was stopped, before it was ready.
    #[error("{}{}", .0.detail, tail_of(.0))]
    Ended(Box<Ended>),
}

fn source_of(error: &ContainmentError) -> String {
    std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default()
}

/// The last words of a worker that did not start say why.
fn tail_of(ended: &Ended) -> String {
    match ended.stderr_tail.trim() {
        "" => String::new(),
        tail => format!("; it wrote: {tail}"),
    }
}

/// The exit in words: "it exited with status 3", "signal 11 (SIGSEGV) ended it".
fn exit_words(exit: Exit) -> String {
    match (exit.signal, exit.code) {
        (Some(signal), _) => format!("{} ended it", signal_words(signal)),
        (None, Some(code)) => format!("it exited with status {code}"),
        (None, None) => "nobody saw how it ended".to_owned(),
    }
}

fn signal_words(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return format!("signal {signal}"),
    };
    format!("signal {signal} ({name})")
}
