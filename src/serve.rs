//! `klbr serve`, the composition root: open, wire together, run, drain.

mod announce;
mod contain;
pub mod doctor;
mod journal;
mod privilege;
mod run_folder;
mod signals;
mod unusable;
mod watch;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;

use self::announce::Announcer;
pub use self::journal::start as log;
use self::signals::{Signals, Wish};
use crate::cell::HookSlot;
use crate::config::{Changes, Config, ConfigError, Limits, python_path};
use crate::containment::Containment;
pub use crate::containment::ContainmentError;
use crate::containment::closing::Closing;
use crate::event::BehaviorActivated;
use crate::id::Digest;
use crate::notice;
use crate::operator::{OperatorError, listener::Listener, server::Server};
use crate::release::{self, ReleaseError};
use crate::requests::{Facts, Services};
use crate::route::{ApiKey, Route, RouteError};
pub use crate::session::SessionError;
use crate::session::{Host, Open, ReloadAsked, Running, Workshop, recover};
use crate::store::{Store, StoreError};
use crate::systemd::unit::{self, OwnUnit};
use crate::systemd::{listen, listen::Handed, notify};
use crate::worker::Times;
use crate::worker::hooks::Hooks;

/// Notices of the hooks actor that may wait.
const HOOK_NOTICES_MAX: usize = 16;
/// Calls for a reload that may wait.
const RELOADS_MAX: usize = 16;
/// What an orderly stop leaves of the manager's time for closing the log.
const STOP_RESERVE: Duration = Duration::from_secs(4);

/// Where things are.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The configuration file.
    pub config: PathBuf,
    /// The data directory.
    pub data: PathBuf,
    /// The operator socket.
    pub socket: PathBuf,
    /// Whether to run as root, should it be root that starts it.
    pub allow_root: bool,
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
    #[error("`containment = \"{0}\"` is not in this version; write \"auto\", \"systemd\" or \"process\"")]
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
    #[error(
        "klbr does not run as root: its agent could change every file of the machine; start it as another user, \
         or with --allow-root"
    )]
    Root,
    #[error("the capabilities of this process cannot be reduced")]
    Privilege(#[source] std::io::Error),
    #[error("the runtime cannot be started")]
    Runtime(#[source] std::io::Error),
}

impl ServeError {
    fn privilege(errno: rustix::io::Errno) -> Self {
        Self::Privilege(errno.into())
    }
}

/// Runs a host until it is told to stop.
pub fn run(options: &ServeOptions) -> Result<(), ServeError> {
    privilege::drop_what_is_not_needed(options.allow_root)?;
    // Before there are threads: it changes the environment.
    let handed = listen::take();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServeError::Runtime)?;
    let outcome = runtime.block_on(serve(options, &handed));
    // A blocking read that hangs (a name look-up) must not hold up the end.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

async fn serve(options: &ServeOptions, handed: &Handed) -> Result<(), ServeError> {
    // First: a signal from now on is an orderly stop.
    let mut signals = Signals::listen()?;
    for name in &handed.unknown {
        tracing::warn!(name, "a socket that was handed over has no use here");
    }
    loop {
        let error = match serve_once(options, handed, &mut signals).await {
            Ok(ended) => return ended,
            Err(error) => error,
        };
        // A manager that holds the socket would start us again for every caller, until it gives up.
        let Some(listener) = listener(handed)? else { return Err(error) };
        if unusable::answer(listener, &error, &mut signals).await == Wish::Stop {
            return Ok(());
        }
        if matches!(error, ServeError::NotInitialised(_)) {
            unusable::initialise(options).await;
        }
    }
}

/// Opens and runs one host. The outer error is one from before it was ready.
async fn serve_once(
    options: &ServeOptions,
    handed: &Handed,
    signals: &mut Signals,
) -> Result<Result<(), ServeError>, ServeError> {
    let patience = watch::Patience::start();
    let config = Config::load(&options.config)?;
    let store = Store::open(&options.data)?;
    let served = match Parts::open(options, handed, &config, &store).await {
        Ok(parts) => {
            drop(patience);
            Ok(parts.run(options, config, signals).await)
        }
        Err(error) => Err(error),
    };
    // Last of all, whatever happened.
    store.close().await;
    served
}

/// A host that is ready.
struct Parts {
    containment: Arc<Closing>,
    workshop: Arc<Workshop>,
    hooks: Hooks,
    host: Host,
    running: Running,
    server: Server,
    reloads: mpsc::Receiver<ReloadAsked>,
    store: Store,
    announcer: Announcer,
}

impl Parts {
    async fn open(
        options: &ServeOptions,
        handed: &Handed,
        config: &Config,
        store: &Store,
    ) -> Result<Self, ServeError> {
        let folder = |what, path: &Path| {
            let path = path.to_owned();
            move |source| ServeError::Folder { what, path, source }
        };
        let workspace = config.workspace.canonicalize().map_err(folder("workspace", &config.workspace))?;
        let data = options.data.canonicalize().map_err(folder("data directory", &options.data))?;
        let data_tag = run_folder::data_tag(&data);
        let around = contain::surroundings(options, config, &data, &workspace);
        let containment = Arc::new(Closing::new(contain::open(config, &data_tag, around).await?));
        for setting in containment.unenforced() {
            tracing::warn!(message_id = notice::UNENFORCED, setting, "it cannot be enforced here");
        }
        containment.stop_leftovers().await?;
        let since = *store.head().borrow();
        recover::recover(store).await?;
        let (behavior, entrypoints) = policy(store, &data).await?;
        let route = open_route(config, &options.config)?;
        let workshop = Arc::new(Workshop {
            containment: Arc::clone(&containment) as Arc<dyn Containment>,
            python: config.python.clone(),
            python_path: python_path(config)?,
            workspace,
            run: run_folder::make(&data, &data_tag)?,
            releases: data.join("releases"),
            times: Mutex::new(times(&config.limits)),
            store: store.clone(),
            numbers: Mutex::new(HashMap::new()),
        });
        let (notices, hook_notices) = mpsc::channel(HOOK_NOTICES_MAX);
        let hooks = Hooks::start(Arc::clone(&containment) as Arc<dyn Containment>, notices);
        let facts = facts(containment.name(), &route, config, entrypoints);
        let services = Services { store: store.clone(), hooks: hooks.clone(), facts: Arc::new(facts) };
        let listener = match listener(handed)? {
            Some(listener) => listener,
            None => Listener::bind(&options.socket)?,
        };
        let (asked, reloads) = mpsc::channel(RELOADS_MAX);
        let (host, running) = Host::start(Open {
            services,
            workshop: Arc::clone(&workshop),
            route,
            final_text: config.final_text,
            behavior,
            hook_notices,
            data,
            socket: options.socket.clone(),
            unenforced: containment.unenforced(),
            reloads: asked,
        })
        .await?;
        let holds = Arc::clone(&containment);
        let server = Server::start(listener, host.clone(), Arc::new(move |pid| holds.holds(pid)));
        tracing::info!(
            message_id = notice::READY,
            socket = %options.socket.display(),
            containment = containment.name(),
            "ready"
        );
        let announcer = Announcer::start(store.clone(), since);
        notify::ready("ready");
        Ok(Self {
            containment,
            workshop,
            hooks,
            host,
            running,
            server,
            reloads,
            store: store.clone(),
            announcer,
        })
    }

    async fn run(
        mut self,
        options: &ServeOptions,
        mut config: Config,
        signals: &mut Signals,
    ) -> Result<(), ServeError> {
        let fed = watch::feed(self.store.clone());
        let shown = watch::show(self.host.clone(), self.store.clone());
        let outcome = loop {
            let asked = tokio::select! {
                wish = signals.next() => match wish {
                    Wish::Stop => break Ok(()),
                    Wish::Reload => None,
                },
                asked = self.reloads.recv() => asked,
                Some(ended) = self.running.sessions.join_next() => break match ended {
                    Ok(outcome) => outcome.map_err(ServeError::from),
                    Err(panic) => Err(SessionError::Inconsistent(format!("a session panicked: {panic}")).into()),
                },
            };
            let reloaded = self.reload(options, &mut config).await;
            if let Some(asked) = asked {
                // A caller that has left has seen enough.
                let _ = asked.send(reloaded);
            }
        };
        drop(shown);
        self.stop(&config).await;
        drop(fed);
        outcome
    }

    /// Puts the configuration file in force as it is now, or leaves everything as it was.
    async fn reload(&self, options: &ServeOptions, config: &mut Config) -> Result<Changes, String> {
        notify::reloading();
        let read = Config::load(&options.config)
            .map_err(ServeError::from)
            .and_then(|new| Ok((open_route(&new, &options.config)?, new)));
        let outcome = match read {
            Ok((route, new)) => {
                *self.workshop.times.lock().unwrap_or_else(PoisonError::into_inner) = times(&new.limits);
                self.host.reload(route, new.final_text, new.limits).await;
                let changes = config.take_over(new);
                tracing::info!(message_id = notice::RELOADED, ?changes, "the configuration was read again");
                Ok(changes)
            }
            Err(error) => {
                let problem = chain(&error);
                tracing::error!(
                    message_id = notice::RELOAD_REFUSED,
                    "the old configuration stays: {problem}"
                );
                Err(problem)
            }
        };
        notify::ready("ready");
        outcome
    }

    async fn stop(mut self, config: &Config) {
        tracing::info!(message_id = notice::STOPPING, "stopping");
        notify::stopping("stopping");
        self.containment.close();
        let grace = self.grace(config).await;
        self.server.stop().await;
        self.host.stop().await;
        let drained = tokio::time::timeout(grace, async {
            while let Some(ended) = self.running.sessions.join_next().await {
                if let Ok(Err(error)) = ended {
                    tracing::error!(error = &error as &dyn std::error::Error, "a session ended badly");
                }
            }
            // After the last session: what it still had to say was reviewed.
            self.hooks.stop().await;
            if let Ok(Err(error)) = (&mut self.running.hook_keeper).await {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the hook worker's end is not in the log"
                );
            }
        })
        .await;
        if drained.is_err() {
            tracing::warn!(grace_ms = grace.as_millis(), "not everything ended in time: stopping hard");
            self.running.sessions.shutdown().await;
            self.running.hook_keeper.abort();
        }
        match self.containment.stop_leftovers().await {
            Ok(0) => {}
            Ok(stragglers) => {
                tracing::warn!(message_id = notice::HARD_STOP, stragglers, "killed what had not ended");
            }
            Err(error) => tracing::error!("{error}"),
        }
        self.announcer.finish().await;
        run_folder::remove(&self.workshop.run);
    }

    /// The time for an orderly stop: what is configured, inside of what the service manager gives.
    async fn grace(&self, config: &Config) -> Duration {
        let wanted = Duration::from_millis(config.limits.stop_grace_ms);
        match self.containment.stop_timeout().await {
            Some(given) => wanted.min(given.saturating_sub(STOP_RESERVE).max(given / 2)),
            None => wanted,
        }
    }
}

/// A handed socket of our own: the one that was handed over outlives every attempt.
fn listener(handed: &Handed) -> Result<Option<Listener>, ServeError> {
    let own = handed.operator.as_ref().map(std::os::unix::net::UnixListener::try_clone).transpose();
    let own = own.map_err(ServeError::Runtime)?.map(Listener::from);
    // A service of the system has operators that are other users.
    let is_of_system = matches!(unit::own(), Some(OwnUnit::System(_)));
    Ok(own.map(|listener| if is_of_system { listener.for_its_group() } else { listener }))
}

fn times(limits: &Limits) -> Times {
    Times {
        hello: Duration::from_millis(limits.hello_ms),
        interrupt_grace: Duration::from_millis(limits.interrupt_grace_ms),
        cell_max: (limits.cell_ms > 0).then(|| Duration::from_millis(limits.cell_ms)),
        ..Times::default()
    }
}

fn facts(
    containment: &str,
    route: &Route,
    config: &Config,
    entrypoints: BTreeMap<HookSlot, String>,
) -> Facts {
    Facts {
        containment: containment.to_owned(),
        route: route.name().to_owned(),
        model: route.model().map(str::to_owned),
        context_tokens: route.context_tokens(),
        limits: config.limits,
        entrypoints,
    }
}

fn open_route(config: &Config, path: &Path) -> Result<Route, ServeError> {
    let (name, route) = config.route().ok_or_else(|| no_route(config, path))?;
    Ok(Route::open(name, route, ApiKey::resolve(name, route)?)?)
}

/// An error with all that caused it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(|error| error.to_string().trim_end().to_owned())
        .collect::<Vec<_>>()
        .join(": ")
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
