//! The handle that the operator's side speaks to.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use super::coordinator::Coordinator;
use super::generation::{Workshop, host_event};
use super::hooks::Shown;
use super::status::{HooksStatus, Phase, RouteStatus, SessionStatus, Status};
use super::{
    Command, Exec, ExecOutcome, Interrupted, Refusal, ReloadAsked, ResetOutcome, SessionError, Settings,
    When, hooks, recover, resume,
};
use crate::clock;
use crate::config::{Changes, FinalText, Limits, RouteKind};
use crate::event::{
    AttentionDecision, AttentionPlanned, BehaviorActivated, Body, DeliveryDiscarded, DeliverySent, Event,
    NewEvent, OperatorInput, ResetReason, SessionOpened, Source,
};
use crate::id::{EffectId, EventId, SessionId};
use crate::limits::{CODE_BYTES_MAX, INPUT_BYTES_MAX, INSTRUCTION_BYTES_MAX};
use crate::requests::{Facts, Services};
use crate::route::Route;
use crate::store::{DeliveryState, Store, StoreError, Transaction};
use crate::worker::hooks::HooksNotice;

/// Commands that may wait for one coordinator.
const COMMANDS_MAX: usize = 64;

/// What a host is made of.
pub struct Open {
    /// What requests are carried out with.
    pub services: Services,
    /// What workers are made with.
    pub workshop: Arc<Workshop>,
    /// The route in use.
    pub route: Route,
    /// What becomes of a turn's last text.
    pub final_text: FinalText,
    /// The policy in force.
    pub behavior: BehaviorActivated,
    /// What the hooks actor says.
    pub hook_notices: mpsc::Receiver<HooksNotice>,
    /// The data directory, for status.
    pub data: PathBuf,
    /// The operator socket, for status.
    pub socket: PathBuf,
    /// What was configured and cannot be enforced.
    pub unenforced: Vec<String>,
    /// Where the operator asks for a reload.
    pub reloads: mpsc::Sender<ReloadAsked>,
}

/// The running host.
#[derive(Clone)]
pub struct Host {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    sessions: HashMap<SessionId, Lane>,
    hooks: Shown,
    behavior: BehaviorActivated,
    route: Mutex<RouteStatus>,
    facts: Facts,
    reloads: mpsc::Sender<ReloadAsked>,
    data: PathBuf,
    socket: PathBuf,
    unenforced: Vec<String>,
    started_at_ms: i64,
}

/// The way to one coordinator.
struct Lane {
    commands: mpsc::Sender<Command>,
    phase: Arc<Mutex<Phase>>,
}

/// The tasks of a host.
pub struct Running {
    /// One per session.
    pub sessions: JoinSet<Result<(), SessionError>>,
    /// Writes down what the hooks actor says; it ends after the actor.
    pub hook_keeper: JoinHandle<Result<(), StoreError>>,
}

impl Host {
    /// Starts every session of the log. What an earlier host left open must have been closed.
    pub async fn start(open: Open) -> Result<(Self, Running), SessionError> {
        let store = open.services.store.clone();
        let sessions = store.write(open_root).await?;
        let shown = Shown::default();
        let keeper = hooks::keep(
            open.hook_notices,
            Arc::clone(&open.workshop),
            open.behavior.clone(),
            Arc::clone(&shown),
        );
        let mut running = Running { sessions: JoinSet::new(), hook_keeper: tokio::spawn(keeper) };
        let mut lanes = HashMap::new();
        for session in sessions {
            let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
            let phase = Arc::new(Mutex::new(Phase::default()));
            let of = session.clone();
            let (point, namespace_lost) = store
                .read(move |snapshot| {
                    Ok((resume::point(snapshot, &of)?, recover::had_namespace(snapshot, &of)?))
                })
                .await?;
            let coordinator = Coordinator {
                session: session.clone(),
                services: open.services.clone(),
                workshop: Arc::clone(&open.workshop),
                route: open.route.clone(),
                final_text: open.final_text,
                commands: receiver,
                phase: Arc::clone(&phase),
                bench: None,
                transcript: None,
                queue: std::collections::VecDeque::new(),
                reset_reason: if namespace_lost { ResetReason::HostRestarted } else { ResetReason::First },
                namespace_lost,
                stopping: false,
                held_back: false,
            };
            running.sessions.spawn(coordinator.run(point));
            lanes.insert(session, Lane { commands, phase });
        }
        let inner = Inner {
            store,
            sessions: lanes,
            hooks: shown,
            behavior: open.behavior,
            route: Mutex::new(route_status(&open.route)),
            facts: (*open.services.facts).clone(),
            reloads: open.reloads,
            data: open.data,
            socket: open.socket,
            unenforced: open.unenforced,
            started_at_ms: clock::now_ms(),
        };
        Ok((Self { inner: Arc::new(inner) }, running))
    }

    /// The log.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// Logs an operator's input, and wakes the session. The operator's input always wakes.
    pub async fn input(&self, session: SessionId, text: String) -> Result<Event, Refusal> {
        let lane = self.lane(&session)?;
        if text.len() > INPUT_BYTES_MAX {
            return Err(Refusal::TooLarge { what: "input", bytes: text.len(), limit: INPUT_BYTES_MAX });
        }
        if text.is_empty() {
            return Err(Refusal::Refused("the input is empty".to_owned()));
        }
        let event = self
            .inner
            .store
            .write(move |transaction| {
                let input = append_input(transaction, &session, text)?;
                committed(transaction, input)
            })
            .await?;
        // A coordinator that has ended has left the input in the log for the next one.
        let _ = lane.commands.send(Command::Input).await;
        Ok(event)
    }

    /// Runs a cell in a session's workbench, without a model.
    pub async fn exec(&self, session: SessionId, code: String, when: When) -> Result<ExecOutcome, Refusal> {
        if code.len() > CODE_BYTES_MAX {
            return Err(Refusal::TooLarge { what: "cell", bytes: code.len(), limit: CODE_BYTES_MAX });
        }
        self.ask(&session, |reply| Command::Exec(Exec { code, when, reply })).await?
    }

    /// Stops what runs, cooperatively at first.
    pub async fn interrupt(&self, session: SessionId) -> Result<Interrupted, Refusal> {
        self.ask(&session, Command::Interrupt).await
    }

    /// Ends the workbench and starts a new one.
    pub async fn reset(&self, session: SessionId) -> Result<ResetOutcome, Refusal> {
        self.ask(&session, Command::Reset).await?
    }

    /// Puts a held text on the operator lane.
    pub async fn release(&self, effect: EffectId) -> Result<Event, Refusal> {
        self.decide(effect, |held, effect_id| {
            Body::DeliverySent(DeliverySent { text: held, effect_id, released: true })
        })
        .await
    }

    /// Throws a held text away.
    pub async fn discard(&self, effect: EffectId) -> Result<Event, Refusal> {
        self.decide(effect, |_, effect_id| Body::DeliveryDiscarded(DeliveryDiscarded { effect_id })).await
    }

    /// What runs and waits.
    pub async fn status(&self) -> Result<Status, Refusal> {
        let inner = &self.inner;
        let mut sessions = Vec::new();
        for (id, lane) in &inner.sessions {
            let phase = lane.phase.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let of = id.clone();
            let (row, pending) = inner
                .store
                .read(move |snapshot| Ok((snapshot.session(&of)?, snapshot.pending_inputs(&of)?.len())))
                .await?;
            sessions.push(SessionStatus {
                id: id.clone(),
                state: phase.state.as_str(),
                turn: row.as_ref().and_then(|row| row.turn.as_ref()).map(|turn| turn.turn),
                wait_deadline_ms: row.and_then(|row| row.wait).and_then(|wait| wait.deadline_ms),
                pending_inputs: pending as u64,
                workbench: phase.workbench,
            });
        }
        sessions.sort_by(|a, b| a.id.cmp(&b.id));
        let held = inner.store.read(|snapshot| snapshot.held(None)).await?.len() as u64;
        let generation = inner.hooks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            data: inner.data.display().to_string(),
            socket: inner.socket.display().to_string(),
            containment: inner.facts.containment.clone(),
            unenforced: inner.unenforced.clone(),
            started_at_ms: inner.started_at_ms,
            sessions,
            hooks: HooksStatus {
                state: if generation.is_some() { "running" } else { "down" },
                generation,
                epoch: Some(inner.behavior.epoch),
                release: Some(inner.behavior.release.clone()),
            },
            route: inner.route.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            held,
        })
    }

    /// Has the configuration read again.
    pub async fn ask_for_reload(&self) -> Result<Changes, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.inner.reloads.send(reply).await.map_err(|_| Refusal::Stopping)?;
        answer.await.map_err(|_| Refusal::Stopping)?.map_err(Refusal::Unusable)
    }

    /// Lets every session go on with another route and other bounds, from its next request on.
    pub async fn reload(&self, route: Route, final_text: FinalText, limits: Limits) {
        let facts = Arc::new(Facts {
            route: route.name().to_owned(),
            model: route.model().map(str::to_owned),
            context_tokens: route.context_tokens(),
            limits,
            ..self.inner.facts.clone()
        });
        *self.inner.route.lock().unwrap_or_else(PoisonError::into_inner) = route_status(&route);
        for lane in self.inner.sessions.values() {
            let settings = Settings { route: route.clone(), final_text, facts: Arc::clone(&facts) };
            // One that has ended takes nothing over.
            let _ = lane.commands.send(Command::Settings(Box::new(settings))).await;
        }
    }

    /// Tells every coordinator to end.
    pub async fn stop(&self) {
        for lane in self.inner.sessions.values() {
            // One that has ended already needs no telling.
            let _ = lane.commands.send(Command::Stop).await;
        }
    }

    fn lane(&self, session: &SessionId) -> Result<&Lane, Refusal> {
        self.inner.sessions.get(session).ok_or_else(|| Refusal::UnknownSession(session.clone()))
    }

    async fn ask<T>(
        &self,
        session: &SessionId,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.lane(session)?.commands.send(command(reply)).await.map_err(|_| Refusal::Stopping)?;
        answer.await.map_err(|_| Refusal::Stopping)
    }

    async fn decide(
        &self,
        effect: EffectId,
        body: impl FnOnce(String, EffectId) -> Body + Send + 'static,
    ) -> Result<Event, Refusal> {
        self.inner
            .store
            .write(move |transaction| {
                let known = transaction.delivery_of(&effect)?;
                let held = transaction.held(None)?.into_iter().find(|row| row.effect_id == effect);
                let Some(held) = held else {
                    return Ok(Err(not_held(&effect, known.map(|(_, state)| state))));
                };
                let event = NewEvent {
                    source: Source::operator(),
                    ..host_event(&held.session, body(held.text, effect))
                };
                let id = transaction.append(event)?;
                committed(transaction, id).map(Ok)
            })
            .await?
    }
}

fn not_held(effect: &EffectId, state: Option<DeliveryState>) -> Refusal {
    match state {
        None => Refusal::NotFound(format!("no delivery has the effect {effect}; see `klbr held`")),
        Some(DeliveryState::Sent) => Refusal::Refused(format!("{effect} was sent already")),
        Some(DeliveryState::Discarded) => Refusal::Refused(format!("{effect} was discarded already")),
        Some(DeliveryState::Held) => Refusal::Internal(format!("{effect} is held and its text is missing")),
    }
}

fn open_root(transaction: &mut Transaction<'_>) -> Result<Vec<SessionId>, StoreError> {
    let sessions = transaction.sessions()?;
    if !sessions.is_empty() {
        return Ok(sessions);
    }
    let root = SessionId::root();
    transaction.append(host_event(&root, Body::SessionOpened(SessionOpened { parent: None })))?;
    Ok(vec![root])
}

fn append_input(
    transaction: &mut Transaction<'_>,
    session: &SessionId,
    text: String,
) -> Result<EventId, StoreError> {
    let event = NewEvent {
        source: Source::operator(),
        ..host_event(session, Body::OperatorInput(OperatorInput { text }))
    };
    let input = transaction.append(event)?;
    let planned = AttentionPlanned {
        input,
        decision: AttentionDecision::Wake { priority: 0 },
        epoch: None,
        note: Some("the operator's input always wakes".to_owned()),
    };
    transaction.append(host_event(session, Body::AttentionPlanned(planned)))?;
    Ok(input)
}

fn committed(transaction: &Transaction<'_>, id: EventId) -> Result<Event, StoreError> {
    let missing = || StoreError::Projection(format!("{} was appended and is not there", id.reference()));
    transaction.event(id)?.ok_or_else(missing)
}

fn route_status(route: &Route) -> RouteStatus {
    RouteStatus {
        name: route.name().to_owned(),
        kind: kind_name(route.kind()),
        model: route.model().map(str::to_owned),
    }
}

fn kind_name(kind: RouteKind) -> &'static str {
    match kind {
        RouteKind::Http => "http",
        RouteKind::Manual => "manual",
        RouteKind::Script => "script",
    }
}

/// The workspace's own instructions, if it has any that can be used.
pub(super) fn instructions(workspace: &Path) -> Option<String> {
    let path = workspace.join("AGENTS.md");
    let shown = path.display();
    let metadata = std::fs::metadata(&path).ok()?;
    // A pipe or a device would hold up the host.
    if !metadata.is_file() {
        tracing::warn!("{shown} is not used: it is not a file");
        return None;
    }
    if metadata.len() > INSTRUCTION_BYTES_MAX as u64 {
        let bytes = metadata.len();
        tracing::warn!("{shown} is not used: it has {bytes} bytes, the limit is {INSTRUCTION_BYTES_MAX}");
        return None;
    }
    std::fs::read_to_string(&path).inspect_err(|error| tracing::warn!("{shown} is not used: {error}")).ok()
}
