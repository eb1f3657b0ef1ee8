//! The journal's account of what happened: derived from the log, after it was committed.
//!
//! A line has identities, sizes and the names of reasons: no word of the model or of the operator.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::cell::Role;
use crate::event::{Body, CellStatus, Event, GenerationEnded, Recovered, TurnEndReason};
use crate::id::{EventId, GenerationId, SessionId};
use crate::notice;
use crate::store::{EventFilter, Store, StoreError};

/// The kinds of events that the journal hears of.
const KINDS: &[&str] = &[
    "host.started",
    "turn.started",
    "turn.ended",
    "wait.accepted",
    "model.failed",
    "cell.completed",
    "delivery.held",
    "kernel.reset",
    "generation.ended",
];
/// Events that are read at once.
const PAGE: usize = 64;
/// Longest time for the last lines of a host that stops.
const FINISH_MAX: Duration = Duration::from_secs(1);

/// Tells the journal what the log says, from an event on.
pub(super) struct Announcer {
    finish: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Announcer {
    /// Starts with what follows `since`.
    pub(super) fn start(store: Store, since: EventId) -> Self {
        let (finish, finished) = oneshot::channel();
        let task = tokio::spawn(async move {
            if let Err(error) = follow(&store, since, finished).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the journal misses what the log says"
                );
            }
        });
        Self { finish, task }
    }

    /// Tells the rest.
    pub(super) async fn finish(mut self) {
        drop(self.finish);
        if tokio::time::timeout(FINISH_MAX, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

async fn follow(
    store: &Store,
    since: EventId,
    mut finished: oneshot::Receiver<()>,
) -> Result<(), StoreError> {
    let filter = EventFilter { session: None, kinds: KINDS.iter().map(|kind| (*kind).to_owned()).collect() };
    let mut head = store.head();
    let mut told = since;
    let mut units = Units::new();
    let mut is_last = false;
    loop {
        let now = *head.borrow_and_update();
        while told < now {
            let wanted = filter.clone();
            let page = store.read(move |snapshot| snapshot.events_after(told, &wanted, PAGE)).await?;
            let is_full = page.len() == PAGE;
            for event in &page {
                told = event.id;
                if let Some(line) = line(event, &mut units) {
                    line.tell();
                }
            }
            if !is_full {
                told = now;
            }
        }
        if is_last {
            return Ok(());
        }
        tokio::select! {
            _ = &mut finished => is_last = true,
            changed = head.changed() => is_last = changed.is_err(),
        }
    }
}

/// Units of generations that run.
type Units = HashMap<(SessionId, Role, GenerationId), String>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Info,
    Warn,
    Error,
}

/// One entry of the journal.
#[derive(Debug, PartialEq)]
struct Line {
    level: Level,
    message_id: &'static str,
    text: String,
    session: String,
    event: i64,
    execution: Option<String>,
    generation: Option<String>,
    unit: Option<String>,
    turn: Option<u64>,
}

impl Line {
    fn tell(&self) {
        macro_rules! tell {
            ($tell:ident) => {
                tracing::$tell!(
                    message_id = self.message_id,
                    klbr_session = self.session,
                    klbr_event = self.event,
                    klbr_turn = self.turn,
                    klbr_execution = self.execution.as_deref(),
                    klbr_generation = self.generation.as_deref(),
                    klbr_unit = self.unit.as_deref(),
                    "{}",
                    self.text
                )
            };
        }
        match self.level {
            Level::Info => tell!(info),
            Level::Warn => tell!(warn),
            Level::Error => tell!(error),
        }
    }
}

fn line(event: &Event, units: &mut Units) -> Option<Line> {
    let mut line = Line {
        level: Level::Info,
        message_id: "",
        text: String::new(),
        session: event.session.as_str().to_owned(),
        event: event.id.0,
        execution: event.execution.as_ref().map(|execution| execution.as_str().to_owned()),
        generation: None,
        unit: None,
        turn: None,
    };
    let of = |role, generation: &GenerationId| (event.session.clone(), role, generation.clone());
    (line.level, line.message_id, line.text) = match &event.body {
        Body::HostStarted(started) if started.recovered != Recovered::default() => {
            let Recovered { executions, requests, effects, generations } = started.recovered;
            let text = format!(
                "an earlier host had left open: {executions} cells, {requests} model requests, {effects} effects, \
                 {generations} workers; they are closed"
            );
            (Level::Warn, notice::RECOVERED, text)
        }
        Body::TurnStarted(started) => {
            line.turn = Some(started.turn);
            (
                Level::Info,
                notice::TURN_STARTED,
                format!("turn {} begins: {}", started.turn, name(&started.cause)),
            )
        }
        Body::WaitAccepted(wait) => {
            line.turn = wait.turn;
            let turn = wait.turn?;
            (Level::Info, notice::TURN_ENDED, format!("turn {turn} ended: waiting"))
        }
        Body::TurnEnded(ended) => {
            line.turn = Some(ended.turn);
            let text = format!("turn {} ended: {}", ended.turn, name(&ended.reason));
            match ended.reason {
                TurnEndReason::StepLimit
                | TurnEndReason::RequestLimit
                | TurnEndReason::TokenLimit
                | TurnEndReason::Repetition => (Level::Warn, notice::BUDGET, text),
                TurnEndReason::RouteFailed | TurnEndReason::WorkbenchFailed => {
                    (Level::Warn, notice::TURN_ENDED, text)
                }
                TurnEndReason::Answered | TurnEndReason::Interrupted => {
                    (Level::Info, notice::TURN_ENDED, text)
                }
            }
        }
        Body::ModelFailed(failed) if !matches!(failed.class.as_str(), "interrupted" | "abandoned") => {
            let status = failed.http_status.map(|status| format!(", status {status}")).unwrap_or_default();
            let text = format!("the route failed: {}{status}, attempts {}", failed.class, failed.attempts);
            (Level::Warn, notice::ROUTE_FAILED, text)
        }
        Body::CellCompleted(cell) => {
            line.execution = Some(cell.execution.as_str().to_owned());
            line.generation = Some(cell.generation.as_str().to_owned());
            line.unit = units.get(&of(Role::Workbench, &cell.generation)).cloned();
            let took = cell.duration_ms.map(|ms| format!(" after {ms} ms")).unwrap_or_default();
            let level = if cell.status == CellStatus::Failed { Level::Warn } else { Level::Info };
            (level, notice::CELL_ENDED, format!("a cell ended{took}: {}", name(&cell.status)))
        }
        Body::DeliveryHeld(held) => {
            (Level::Warn, notice::HELD, format!("a text is held back from the operator: {}", held.effect_id))
        }
        Body::KernelReset(reset) => {
            line.generation = Some(reset.generation.as_str().to_owned());
            line.unit = Some(reset.unit.clone());
            units.insert(of(reset.role, &reset.generation), reset.unit.clone());
            let text = format!("a worker started: {}, held by {}", reset.role.as_str(), reset.containment);
            (Level::Info, notice::WORKER_STARTED, text)
        }
        Body::GenerationEnded(ended) => {
            line.generation = Some(ended.generation.as_str().to_owned());
            line.unit = units.remove(&of(ended.role, &ended.generation));
            worker_ended(ended)
        }
        _ => return None,
    };
    Some(line)
}

fn worker_ended(ended: &GenerationEnded) -> (Level, &'static str, String) {
    let how = match (ended.exit_code, ended.signal) {
        (_, Some(signal)) => format!(", signal {signal}"),
        (Some(code), None) => format!(", status {code}"),
        (None, None) => String::new(),
    };
    let text = format!("a worker ended: {}, {}{how}", ended.role.as_str(), ended.reason);
    match ended.reason.as_str() {
        "out_of_memory" => (Level::Error, notice::OUT_OF_MEMORY, text),
        "interrupt_grace" | "cell_too_long" | "hook_timeout" | "protocol" => {
            (Level::Warn, notice::HARD_STOP, text)
        }
        "operator" | "host_stopping" | "retired" => (Level::Info, notice::WORKER_ENDED, text),
        _ => (Level::Warn, notice::WORKER_ENDED, text),
    }
}

/// The name that a reason has in the log.
fn name(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{ModelFailed, Source, TurnEnded};

    fn told(body: Body) -> Option<(Level, &'static str, String)> {
        let event = Event {
            id: EventId(7),
            session: SessionId::root(),
            source: Source::host(),
            execution: None,
            at_ms: 0,
            body,
        };
        line(&event, &mut Units::new()).map(|line| (line.level, line.message_id, line.text))
    }

    #[test]
    fn a_guard_is_told_as_a_budget_and_not_its_words() {
        let detail = Some("40 requests".to_owned());
        let body = Body::TurnEnded(TurnEnded { turn: 3, reason: TurnEndReason::RequestLimit, detail });

        let expected = (Level::Warn, notice::BUDGET, "turn 3 ended: request_limit".to_owned());
        assert_eq!(told(body), Some(expected));
    }

    #[test]
    fn an_interrupted_request_is_no_failure_of_the_route() {
        let failed = |class: &str| {
            Body::ModelFailed(ModelFailed {
                request: EventId(1),
                class: class.to_owned(),
                message: "sk-secret is no good".to_owned(),
                http_status: Some(401),
                attempts: 1,
            })
        };

        assert_eq!(told(failed("interrupted")), None);
        assert_eq!(told(failed("abandoned")), None);
        let (level, id, text) = told(failed("auth")).unwrap();
        assert_eq!((level, id), (Level::Warn, notice::ROUTE_FAILED));
        assert_eq!(text, "the route failed: auth, status 401, attempts 1");
    }

    #[test]
    fn a_worker_out_of_memory_is_an_error_of_its_own() {
        let ended = |reason: &str| GenerationEnded {
            role: Role::Workbench,
            generation: GenerationId::numbered(1),
            reason: reason.to_owned(),
            detail: "words of a worker".to_owned(),
            exit_code: None,
            signal: Some(9),
            stdout_tail: "words".to_owned(),
            stderr_tail: "words".to_owned(),
        };
        let cases = [
            ("out_of_memory", Level::Error, notice::OUT_OF_MEMORY),
            ("interrupt_grace", Level::Warn, notice::HARD_STOP),
            ("operator", Level::Info, notice::WORKER_ENDED),
            ("exited", Level::Warn, notice::WORKER_ENDED),
        ];
        for (reason, level, id) in cases {
            let (told, told_id, text) = worker_ended(&ended(reason));
            assert_eq!((told, told_id), (level, id), "{reason}");
            assert!(!text.contains("words"), "{text}");
        }
    }
}
