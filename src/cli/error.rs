//! What ends a command early, and the exit status that scripts see.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use super::show;
use crate::init::InitError;
use crate::operator::client::ClientError;
use crate::serve::{ContainmentError, ServeError, SessionError};

/// The error of a host whose configuration or data is unusable.
const UNUSABLE: &str = "org.klbr.Operator.Unusable";

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The command line is wrong, or asks for help or the version.
    #[error(transparent)]
    Usage(#[from] clap::Error),
    /// Standard input or a path cannot be used.
    #[error("{0}")]
    Input(String),
    /// What was given is over a limit that the host would refuse too.
    #[error("the {what} has more than {limit} bytes, which is the limit")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// The limit, in bytes.
        limit: usize,
    },
    /// Neither an option nor the environment says where something is.
    #[error("where is the {what}? HOME is not set; say it with {option}")]
    NoPlace {
        /// What.
        what: &'static str,
        /// The option that says it.
        option: &'static str,
    },
    /// A relative path, and no directory to resolve it in.
    #[error("cannot resolve {path}")]
    Path {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The host did not answer, or refused.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The host answered, in a form that this client does not know.
    #[error("the host sent {what} that cannot be read: {problem}; is it of another version?")]
    Answer {
        /// What it sent.
        what: &'static str,
        /// What is wrong with it.
        problem: serde_json::Error,
    },
    /// Time ran out.
    #[error("{what} did not end within {} s", after.as_secs_f64())]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// For how long.
        after: Duration,
    },
    /// Nobody reads our output any more.
    #[error("the output is closed")]
    OutputClosed,
    /// Our output cannot be written.
    #[error("cannot write the output")]
    Output(#[source] std::io::Error),
    /// The data directory or the configuration cannot be made.
    #[error(transparent)]
    Init(#[from] InitError),
    /// The host could not run.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The system refused a runtime.
    #[error("cannot start")]
    Runtime(#[source] std::io::Error),
}

impl CliError {
    /// The exit status of klbr(1).
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Usage(error) if error.exit_code() == 0 => 0,
            Self::Usage(_) | Self::Input(_) | Self::NoPlace { .. } | Self::Path { .. } => 2,
            Self::Client(
                ClientError::NoHost { .. } | ClientError::Lost { .. } | ClientError::Foreign { .. },
            )
            | Self::Answer { .. } => 3,
            Self::Client(ClientError::Refused { name, .. }) if name == UNUSABLE => 6,
            Self::TooLarge { .. } | Self::Client(ClientError::Refused { .. }) => 4,
            Self::TimedOut { .. } => 5,
            Self::Init(_) => 6,
            Self::Serve(error) => serve_status(error),
            Self::OutputClosed | Self::Output(_) | Self::Runtime(_) => 1,
        }
    }

    /// Writes the error for a person on standard error; help and the version on standard output.
    pub fn print(&self) {
        if let Self::Usage(error) = self {
            // Standard error or output that is closed leaves nobody to tell.
            let _ = error.print();
            return;
        }
        show::complain(&self.sentence());
    }

    fn sentence(&self) -> String {
        let mut text = self.to_string();
        let mut source = self.source();
        while let Some(cause) = source {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            source = cause.source();
        }
        match self {
            Self::Client(ClientError::NoHost { .. }) => {
                text.push_str("; start one with `klbr serve`, or name another socket with --socket");
            }
            Self::Client(ClientError::Refused { remedy, .. }) if !remedy.is_empty() => {
                text.push_str("; ");
                text.push_str(remedy);
            }
            _ => {}
        }
        text
    }
}

/// Whether it is the data and the configuration that `klbr serve` could not use, or the system.
fn serve_status(error: &ServeError) -> u8 {
    match error {
        ServeError::Config(_)
        | ServeError::Store(_)
        | ServeError::NoSuchContainment(_)
        | ServeError::Containment(ContainmentError::NoManager { .. })
        | ServeError::NotInitialised(_)
        | ServeError::Release(_)
        | ServeError::ReleaseChanged { .. }
        | ServeError::Route(_)
        | ServeError::Folder { .. }
        | ServeError::Session(SessionError::Store(_)) => 6,
        ServeError::Containment(_)
        | ServeError::Operator(_)
        | ServeError::Session(SessionError::Transcript(_) | SessionError::Inconsistent(_))
        | ServeError::Privilege(_)
        | ServeError::Runtime(_) => 1,
        ServeError::Root => 2,
    }
}
