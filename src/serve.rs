//! `klbr serve`, the composition root: open, wire together, run, drain.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::cell::HookSlot;
use crate::config::{Config, ConfigError, ContainmentChoice, python_path};
use crate::containment::{
    Containment, ContainmentError,
    process::{Orphans, ProcessContainment},
};
use crate::event::BehaviorActivated;
use crate::id::Digest;
use crate::operator::{OperatorError, listener::Listener, server::Server};
use crate::release::{self, ReleaseError};
use crate::requests::{Facts, Services};
use crate::route::{ApiKey, Route, RouteError};
pub use crate::session::SessionError;
use crate::session::{Host, Open, Workshop, recover};
use crate::store::{Store, StoreError};
use crate::worker::Times;
use crate::worker::hooks::Hooks;

/// Notices of the hooks actor that may wait.
const HOOK_NOTICES_MAX: usize = 16;

/// Where things are.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The configuration file.
    pub config: PathBuf,
    /// The data directory.
    pub data: PathBuf,
    /// The operator socket.
    pub socket: PathBuf,
}

/// Why a host does not run, or ran and had to end.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant is the layer that failed; its source says what and where")]
pub enum ServeError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Containment(#[from] ContainmentError),
    #[error("`containment = \"{0}\"` is not in this version; write \"process\" or \"auto\"")]
    NoSuchContainment(&'static str),
    #[error("no release of hooks is active in {0}; run `klbr init`")]
    NotInitialised(PathBuf),
    #[error("the active release of hooks cannot be used")]
    Release(#[from] ReleaseError),
    #[error(
        "the active release is {expected}, and the files in {path} are {found}; restore them, or activate another"
    )]
    ReleaseChanged { expected: Digest, found: Digest, path: PathBuf },
    #[error(transparent)]
    Route(#[from] RouteError),
    #[error(transparent)]
    Operator(#[from] OperatorError),
    #[error("a session cannot go on")]
    Session(#[from] SessionError),
    #[error("the {what} {path} cannot be used")]
    Folder { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("the runtime cannot be started")]
    Runtime(#[source] std::io::Error),
}

/// Runs a host until it is told to stop.
pub fn run(options: &ServeOptions) -> Result<(), ServeError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServeError::Runtime)?;
    let outcome = runtime.block_on(serve(options));
    // A blocking read that hangs (a name look-up) must not hold up the end.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

async fn serve(options: &ServeOptions) -> Result<(), ServeError> {
    // First: a signal from now on is an orderly stop.
    let mut signals = Signals::listen()?;
    let config = Config::load(&options.config)?;
    let folder = |what, path: &Path| {
        let path = path.to_owned();
        move |source| ServeError::Folder { what, path, source }
    };
    let workspace = config.workspace.canonicalize().map_err(folder("workspace", &config.workspace))?;
    let store = Store::open(&options.data)?;
    let served = serve_on(options, &config, workspace, &store, &mut signals).await;
    // Last of all, whatever happened.
    store.close().await;
    served
}

async fn serve_on(
    options: &ServeOptions,
    config: &Config,
    workspace: PathBuf,
    store: &Store,
    signals: &mut Signals,
) -> Result<(), ServeError> {
    let data = options.data.canonicalize().map_err(|source| ServeError::Folder {
        what: "data directory",
        path: options.data.clone(),
        source,
    })?;
    let data_tag = data_tag(&data);
    let containment = contain(config, &data_tag)?;
    containment.stop_leftovers().await?;
    let recovered = recover::recover(store).await?;
    let (behavior, entrypoints) = policy(store, &data).await?;
    let (name, route_config) = config.route().ok_or_else(|| no_route(config, &options.config))?;
    let route = Route::open(name, route_config, ApiKey::resolve(name, route_config)?)?;
    let run = run_folder(&data, &data_tag)?;
    let workshop = Arc::new(Workshop {
        containment: Arc::clone(&containment) as Arc<dyn Containment>,
        python: config.python.clone(),
        python_path: python_path(config)?,
        workspace,
        run: run.clone(),
        releases: data.join("releases"),
        times: Times {
            hello: Duration::from_millis(config.limits.hello_ms),
            interrupt_grace: Duration::from_millis(config.limits.interrupt_grace_ms),
            cell_max: (config.limits.cell_ms > 0).then(|| Duration::from_millis(config.limits.cell_ms)),
            ..Times::default()
        },
        store: store.clone(),
        numbers: Mutex::new(HashMap::new()),
    });
    let (notices, hook_notices) = mpsc::channel(HOOK_NOTICES_MAX);
    let hooks = Hooks::start(Arc::clone(&containment) as Arc<dyn Containment>, notices);
    let facts = Facts {
        containment: containment.name().to_owned(),
        route: name.to_owned(),
        model: route.model().map(str::to_owned),
        context_tokens: route.context_tokens(),
        limits: config.limits,
        entrypoints,
    };
    let services = Services { store: store.clone(), hooks: hooks.clone(), facts: Arc::new(facts) };
    let listener = Listener::bind(&options.socket)?;
    let (host, mut running) = Host::start(Open {
        services,
        workshop,
        route,
        final_text: config.final_text,
        behavior,
        hook_notices,
        data,
        socket: options.socket.clone(),
        unenforced: unenforced(config),
    })
    .await?;
    let holds = Arc::clone(&containment);
    let server = Server::start(listener, host.clone(), Arc::new(move |pid| holds.holds(pid)));
    tracing::info!(socket = %options.socket.display(), containment = containment.name(), ?recovered, "ready");

    let outcome = tokio::select! {
        () = signals.stop() => Ok(()),
        Some(ended) = running.sessions.join_next() => match ended {
            Ok(outcome) => outcome.map_err(ServeError::from),
            Err(panic) => Err(SessionError::Inconsistent(format!("a session panicked: {panic}")).into()),
        },
    };
    tracing::info!("stopping");
    server.stop().await;
    host.stop().await;
    let grace = Duration::from_millis(config.limits.stop_grace_ms);
    let drained = tokio::time::timeout(grace, async {
        while let Some(ended) = running.sessions.join_next().await {
            if let Ok(Err(error)) = ended {
                tracing::error!(error = &error as &dyn std::error::Error, "a session ended badly");
            }
        }
        // After the last session: what it still had to say was reviewed.
        hooks.stop().await;
        if let Ok(Err(error)) = (&mut running.hook_keeper).await {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the hook worker's end is not in the log"
            );
        }
    })
    .await;
    if drained.is_err() {
        tracing::warn!("not everything ended within limits.stop_grace_ms: stopping hard");
        running.sessions.shutdown().await;
        running.hook_keeper.abort();
    }
    match containment.stop_leftovers().await {
        Ok(0) => {}
        Ok(stragglers) => tracing::warn!(stragglers, "killed what had not ended"),
        Err(error) => tracing::error!("{error}"),
    }
    remove_quietly(&run);
    outcome
}

/// A private folder that cannot be removed is emptied by the next start.
fn remove_quietly(run: &Path) {
    if let Err(error) = std::fs::remove_dir_all(run) {
        tracing::debug!(%error, "the run folder stays");
    }
}

fn contain(config: &Config, data_tag: &str) -> Result<Arc<ProcessContainment>, ServeError> {
    match config.containment {
        ContainmentChoice::Auto | ContainmentChoice::Process => {
            // This program as it runs, whatever has become of its file since.
            let program = Path::new("/proc/self/exe");
            Ok(Arc::new(ProcessContainment::new(program, data_tag, Orphans::All)?))
        }
        ContainmentChoice::Systemd => Err(ServeError::NoSuchContainment("systemd")),
        ContainmentChoice::Cgroup => Err(ServeError::NoSuchContainment("cgroup")),
    }
}

/// What `[sandbox]` asks for and the process containment cannot enforce.
fn unenforced(config: &Config) -> Vec<String> {
    let sandbox = &config.sandbox;
    let mut names = vec!["sandbox.home", "sandbox.read_only", "sandbox.read_write"];
    if !sandbox.network {
        names.push("sandbox.network");
    }
    if sandbox.memory_max.is_some() {
        names.push("sandbox.memory_max");
    }
    if sandbox.tasks_max.is_some() {
        names.push("sandbox.tasks_max");
    }
    names.into_iter().map(str::to_owned).collect()
}

/// The active release, checked against its files, with its entrypoints.
async fn policy(
    store: &Store,
    data: &Path,
) -> Result<(BehaviorActivated, BTreeMap<HookSlot, String>), ServeError> {
    let Some(behavior) = store.read(|snapshot| snapshot.behavior()).await? else {
        return Err(ServeError::NotInitialised(data.to_owned()));
    };
    let path = data.join("releases").join(behavior.release.as_str());
    let found = release::identity(&path)?;
    if found != behavior.release {
        return Err(ServeError::ReleaseChanged { expected: behavior.release, found, path });
    }
    let manifest = release::Manifest::read(&path)?;
    Ok((behavior, manifest.hooks))
}

fn no_route(config: &Config, path: &Path) -> ConfigError {
    ConfigError::Setting {
        path: path.to_owned(),
        setting: "route.use".to_owned(),
        problem: format!("is {:?}, and there is no such route", config.route.name),
    }
}

/// Names this data directory where a worker's environment is looked at.
fn data_tag(data: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    Digest::of(data.as_os_str().as_bytes()).as_str()[..16].to_owned()
}

/// A private folder for control sockets: in the data directory where a socket's path fits, else in
/// the user's runtime directory or the temporary one.
fn run_folder(data: &Path, tag: &str) -> Result<PathBuf, ServeError> {
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
    let inside = data.join("run");
    let path = if inside.as_os_str().len() <= RUN_PATH_BYTES_MAX {
        inside
    } else {
        std::env::var_os("XDG_RUNTIME_DIR")
            .map_or_else(std::env::temp_dir, PathBuf::from)
            .join(format!("klbr-{tag}"))
    };
    let failed = |source| ServeError::Folder { what: "run folder", path: path.clone(), source };
    match std::fs::remove_dir_all(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
    let metadata = std::fs::metadata(&path).map_err(failed)?;
    let ours = metadata.uid() == rustix::process::geteuid().as_raw();
    if !ours || metadata.permissions().mode() & 0o077 != 0 {
        return Err(failed(std::io::Error::other("it is not private to this user")));
    }
    Ok(path)
}

/// What is left of a socket's 107 bytes for the folder, after `/klbr-gen-<20 digits>-<8>/control.sock`.
const RUN_PATH_BYTES_MAX: usize = 107 - 53;

/// The signals that end a host.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> Result<Self, ServeError> {
        let listen = |kind| signal(kind).map_err(ServeError::Runtime);
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
