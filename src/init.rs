//! `klbr init`: what a host needs before its first start. Safe to repeat: what is there stays.

use serde::Serialize;
use std::fmt;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::clock;
use crate::config::{Config, ConfigError, python_path};
use crate::event::{BehaviorActivated, Body, NewEvent, Source};
use crate::id::{Digest, SessionId};
use crate::release::{self, ReleaseError};
use crate::store::{self, Store, StoreError};

mod template;

/// Mode of a folder that workers read.
const READABLE: u32 = 0o755;

/// Where to make what.
#[derive(Debug, Clone)]
pub struct InitOptions {
    /// The configuration file.
    pub config: PathBuf,
    /// The data directory.
    pub data: PathBuf,
    /// The directory that the agent works in; unset is the current one. Only a new configuration
    /// takes it up.
    pub workspace: Option<PathBuf>,
    /// Whether to make the configuration and nothing else: for root, whose host is another user.
    pub config_only: bool,
}

/// Why something could not be made.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// A file or a directory.
    #[error("cannot make {path}")]
    Make {
        /// What was to be made.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The configuration is text, and this path is none.
    #[error("the workspace {0} is not valid UTF-8, and a configuration file has to be; rename it")]
    WorkspaceName(PathBuf),
    /// The configuration that is there, or was just made.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The log.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The shipped hooks.
    #[error("the first release of hooks cannot be made")]
    Release(#[from] ReleaseError),
    /// No runtime for the log.
    #[error("cannot start")]
    Runtime(#[source] std::io::Error),
}

/// What became of one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What it is.
    pub what: &'static str,
    /// Where it is.
    pub path: String,
    /// What was done.
    pub state: StepState,
}

/// What was done about one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepState {
    /// It was not there and is now.
    Made,
    /// It was there and is unchanged.
    Found,
    /// A running host has it, and it is left alone.
    InUse,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            StepState::Made => "made ",
            StepState::Found => "found",
            StepState::InUse => "in use by a running host, left alone:",
        };
        write!(f, "{state} {} {}", self.what, self.path)
    }
}

/// Makes what is missing, in the order of the report. A failure leaves what was made until then; the
/// next call goes on from there.
pub fn init(options: &InitOptions) -> Result<Vec<Step>, InitError> {
    let mut report = Vec::new();
    make_config(options, &mut report)?;
    if options.config_only {
        return Ok(report);
    }
    let config = Config::load(&options.config)?;
    report.push(directory("workspace", &config.workspace, 0o777)?);
    report.push(directory("data directory", &options.data, 0o700)?);
    // No secrets from the workers, who may be another user; the data directory itself is closed.
    report.push(directory("skills", &options.data.join("skills"), READABLE)?);
    report.push(directory("releases", &options.data.join("releases"), READABLE)?);
    make_log(&config, &options.data, &mut report)?;
    Ok(report)
}

fn make_config(options: &InitOptions, report: &mut Vec<Step>) -> Result<(), InitError> {
    let path = &options.config;
    let failed = |source| InitError::Make { path: path.clone(), source };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let workspace = match &options.workspace {
        Some(given) => std::path::absolute(given),
        None => std::env::current_dir(),
    };
    let workspace = workspace.map_err(failed)?;
    // `create_new`: a file that appears in between is somebody's and stays.
    match std::fs::OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(mut file) => {
            let name = workspace.to_str().ok_or_else(|| InitError::WorkspaceName(workspace.clone()));
            let written = name.and_then(|name| {
                let text = template::config(name);
                file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
                if options.config_only {
                    // The host that reads it is not who makes it, and there is no key in it.
                    file.set_permissions(std::fs::Permissions::from_mode(0o644)).map_err(failed)?;
                }
                Ok(())
            });
            if let Err(error) = written {
                // Half a configuration is worse than none; if it cannot be removed, loading it says so.
                let _ = std::fs::remove_file(path);
                return Err(error);
            }
            report.push(step("configuration", path, StepState::Made));
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            report.push(step("configuration", path, StepState::Found));
        }
        Err(error) => return Err(failed(error)),
    }
    Ok(())
}

fn directory(what: &'static str, path: &Path, mode: u32) -> Result<Step, InitError> {
    if path.is_dir() {
        return Ok(step(what, path, StepState::Found));
    }
    let failed = |source| InitError::Make { path: path.to_owned(), source };
    std::fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(failed)?;
    if mode == READABLE {
        // Whatever the umask says.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(failed)?;
    }
    Ok(step(what, path, StepState::Made))
}

fn make_log(config: &Config, data: &Path, report: &mut Vec<Step>) -> Result<(), InitError> {
    let file = data.join(store::FILE_NAME);
    let existed = file.exists();
    let store = match Store::open(data) {
        Ok(store) => store,
        Err(StoreError::Locked { .. }) => {
            report.push(step("log", &file, StepState::InUse));
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    report.push(step("log", &file, if existed { StepState::Found } else { StepState::Made }));
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(InitError::Runtime)?;
    runtime.block_on(async {
        let made = first_release(config, data, &store).await;
        // Whatever became of the release, the log is whole.
        store.close().await;
        report.push(made?);
        Ok(())
    })
}

/// Activates the shipped hooks where no release ever was.
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the bare method is for one lifetime of a snapshot, the closure for any"
)]
async fn first_release(config: &Config, data: &Path, store: &Store) -> Result<Step, InitError> {
    let releases = data.join("releases");
    if let Some(active) = store.read(|snapshot| snapshot.behavior()).await? {
        return Ok(step("release", &releases.join(active.release.as_str()), StepState::Found));
    }
    let (digest, path) = release::snapshot(&python_path(config)?.join("klbr_hooks"), &releases)?;
    store.append(first_activation(digest)).await?;
    Ok(step("release", &path, StepState::Made))
}

fn first_activation(release: Digest) -> NewEvent {
    NewEvent {
        session: SessionId::root(),
        source: Source::host(),
        execution: None,
        at_ms: clock::now_ms(),
        body: Body::BehaviorActivated(BehaviorActivated { epoch: 1, release, previous_release: None }),
    }
}

fn step(what: &'static str, path: &Path, state: StepState) -> Step {
    Step { what, path: path.display().to_string(), state }
}
