//! Who dies with whom: every process that a generation ever makes is known, and can be killed.
//!
//! Must not know what runs inside, or why it is stopped.

mod accepted;
pub mod closing;
pub mod probe;
pub mod process;
pub mod shim;
pub mod systemd;
mod tree;

use std::ffi::OsString;
use std::path::PathBuf;
use std::pin::Pin;

/// A future behind a trait's method.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The name of a unit, in the environment of all that it holds.
pub const UNIT_VARIABLE: &str = "KLBR_UNIT";
/// The data directory that a unit belongs to, in the environment of all that it holds.
pub const DATA_VARIABLE: &str = "KLBR_DATA_TAG";

/// Why something could not be started or stopped.
#[derive(Debug, thiserror::Error)]
pub enum ContainmentError {
    /// The containment itself cannot be set up.
    #[error("the containment cannot be set up: {doing}")]
    SetUp {
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// The program cannot be started.
    #[error("{unit} cannot be started")]
    Start {
        /// The unit.
        unit: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The host is on its way down.
    #[error("{unit} is not started: the host is stopping")]
    Closed {
        /// The unit.
        unit: String,
    },
    /// The service manager refused.
    #[error("the service manager refused to {doing}")]
    Manager {
        /// What was asked for.
        doing: &'static str,
        /// What it said.
        source: Box<zbus::Error>,
    },
    /// The service manager tried, and it did not become.
    #[error("{unit} did not start: {result}")]
    Failed {
        /// The unit.
        unit: String,
        /// What the manager says became of it.
        result: String,
    },
    /// The system's manager starts no workers for this host.
    #[error("{socket} does not answer: is klbr-worker.socket running? (systemctl start klbr-worker.socket)")]
    NoSpawner {
        /// The socket of `klbr-worker.socket`.
        socket: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// What answered is not a worker's unit.
    #[error("{socket} was answered by {found}, which is no unit of klbr-worker@.service")]
    Impostor {
        /// The socket of `klbr-worker.socket`.
        socket: PathBuf,
        /// What the service manager says that it is.
        found: String,
    },
    /// There is no service manager to ask.
    #[error("there is no service manager for this host: {why}; {remedy}")]
    NoManager {
        /// What is missing.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
    /// Processes are left that will not die.
    #[error(
        "{left} processes of {what} are still there after {seconds} s; look at them with `ps`, then start again"
    )]
    Survivors {
        /// Whose they are.
        what: String,
        /// How many.
        left: usize,
        /// How long they were tried to be killed.
        seconds: u64,
    },
}

/// A program to run.
#[derive(Debug)]
pub struct Launch {
    /// The name under which it is found and stopped.
    pub unit: String,
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// The whole environment, [`UNIT_VARIABLE`] and [`DATA_VARIABLE`] excepted.
    pub env: Vec<(OsString, OsString)>,
    /// Where it starts.
    pub cwd: PathBuf,
    /// What it must be able to read, whatever the sandbox hides.
    pub read_only: Vec<PathBuf>,
    /// What it must be able to write, whatever the sandbox hides; [`Launch::cwd`] is always among it.
    pub read_write: Vec<PathBuf>,
    /// Its standard input, where the containment [hands over](Containment::hands_over) one.
    pub control: Option<std::os::fd::OwnedFd>,
}

/// How a program ended, as far as anyone saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exit {
    /// Its status, where it exited.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether it was killed because it used more memory than it may; false where nobody can know.
    pub out_of_memory: bool,
}

/// A running program with all its descendants.
pub struct Contained {
    /// Its raw standard output.
    pub stdout: tokio::net::unix::pipe::Receiver,
    /// Its raw standard error.
    pub stderr: tokio::net::unix::pipe::Receiver,
    /// Its life.
    pub life: Box<dyn Life>,
}

/// The life of a contained program.
pub trait Life: Send {
    /// Waits until the program and all its descendants have ended. Can be waited for again.
    fn wait(&mut self) -> Boxed<'_, Exit>;
    /// Kills the program and all its descendants; done when nothing of it is left.
    fn kill(&mut self) -> Boxed<'_, Exit>;
}

/// A way to hold programs.
pub trait Containment: Send + Sync {
    /// Its name, as `klbr status` shows it.
    fn name(&self) -> &'static str;
    /// Settings of the sandbox that it cannot enforce here.
    fn unenforced(&self) -> Vec<String>;
    /// Whether a worker gets its control connection handed over, because it does not see the host's folders.
    fn hands_over(&self) -> bool {
        false
    }
    /// Starts a program.
    fn start(&self, launch: Launch) -> Boxed<'_, Result<Contained, ContainmentError>>;
    /// Kills what an earlier host of the same data directory left: how many processes that were.
    fn stop_leftovers(&self) -> Boxed<'_, Result<usize, ContainmentError>>;
    /// Time that a service manager gives this host to stop, where one does.
    fn stop_timeout(&self) -> Boxed<'_, Option<std::time::Duration>> {
        Box::pin(std::future::ready(None))
    }
    /// Whether this process is inside something that is held.
    fn holds(&self, pid: u32) -> bool;
}
