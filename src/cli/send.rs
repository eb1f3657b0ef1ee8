//! `klbr send`: an input, and what comes of it.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::io::Read as _;

use super::error::CliError;
use super::places::Places;
use super::reach;
use super::show::{self, Shown};
use super::verbs::Send;
use super::write::Output;
use super::{DONE, FAILED};
use crate::limits::INPUT_BYTES_MAX;
use crate::operator::client::{Connection, Replies};

/// A reply that carries one event.
#[derive(Deserialize)]
pub(super) struct OneEvent {
    /// The event, byte for byte as the host wrote it.
    pub(super) event: Box<RawValue>,
}

impl OneEvent {
    /// What text needs of it.
    pub(super) fn shown(&self) -> Result<Shown, CliError> {
        // A host of a later version may speak of more, and not of less.
        serde_json::from_str(self.event.get())
            .map_err(|problem| CliError::Answer { what: "an event", problem })
    }
}

/// The kinds from which the course of a turn is read.
const COURSE: [&str; 7] = [
    "turn.started",
    "model.requested",
    "cell.started",
    "delivery.sent",
    "delivery.held",
    "wait.accepted",
    "turn.ended",
];

pub(super) async fn run(places: &Places, asked: Send, output: &mut Output) -> Result<u8, CliError> {
    let text = argument_or_stdin(asked.text, "input", INPUT_BYTES_MAX)?;
    let session = places.session();
    let mut connection = reach::open(places).await?;
    let sent: OneEvent = connection.call("Send", json!({"session": session, "text": text})).await?;
    let input = sent.shown()?.event_id;
    if output.is_json() || !asked.wait {
        output.object_or(&sent.event, |line| line.push_str(&format!("event:{input}")))?;
    }
    if !asked.wait {
        return Ok(DONE);
    }
    let follow = json!({"session": session, "since": input, "kinds": COURSE});
    connection.send("Follow", follow, Replies::Many).await?;
    let watching = watch(&mut connection, input, output);
    match asked.timeout {
        None => watching.await,
        Some(after) => tokio::time::timeout(after, watching)
            .await
            .map_err(|_| CliError::TimedOut { what: "the turn", after })?,
    }
}

async fn watch(connection: &mut Connection, input: i64, output: &mut Output) -> Result<u8, CliError> {
    let mut course = Course::new(input);
    loop {
        let event: OneEvent = connection.reply().await?.parameters;
        let shown = event.shown()?;
        let step = course.on(&shown);
        if output.is_json() {
            if !matches!(step, Step::Skip) {
                output.line(event.event.get())?;
            }
        } else {
            tell(&step, &shown, output)?;
        }
        match step {
            Step::Skip | Step::Delivered | Step::Held => {}
            Step::Waits => return Ok(DONE),
            Step::Ended { failed: false, .. } => return Ok(DONE),
            Step::Ended { failed: true, .. } => return Ok(FAILED),
        }
    }
}

fn tell(step: &Step, shown: &Shown, output: &mut Output) -> Result<(), CliError> {
    let text = |name: &str| shown.payload[name].as_str().unwrap_or_default();
    match step {
        Step::Delivered => output.agent_line(text("text"))?,
        Step::Held => show::complain(&format!("held as {}: {}", text("effect_id"), text("reason"))),
        Step::Ended { quiet: false, .. } => {
            let detail =
                shown.payload["detail"].as_str().map_or(String::new(), |detail| format!(": {detail}"));
            let reason = text("reason").replace('_', " ");
            show::complain(&format!("the turn ended early ({reason}){detail}"));
        }
        Step::Ended { quiet: true, .. } | Step::Waits | Step::Skip => {}
    }
    Ok(())
}

/// What an event means to the one who sent an input.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Nothing.
    Skip,
    /// The turn said something.
    Delivered,
    /// The turn wanted to say something.
    Held,
    /// The turn ended with a wait.
    Waits,
    /// The turn ended otherwise.
    Ended {
        /// Nothing of it came through for lack of a route or a workbench.
        failed: bool,
        /// It ended as turns do.
        quiet: bool,
    },
}

/// Follows the one turn that takes up an input.
struct Course {
    input: i64,
    /// The turn that took the input up.
    turn: Option<u64>,
    /// The newest turn that began after the input: if it ends before it has asked its model, it has
    /// failed with the input in its hands.
    begun: Option<u64>,
    /// Cells of an operator: what they deliver is not the turn's.
    foreign: HashSet<String>,
}

impl Course {
    fn new(input: i64) -> Self {
        Self { input, turn: None, begun: None, foreign: HashSet::new() }
    }

    fn on(&mut self, event: &Shown) -> Step {
        let payload = &event.payload;
        let turn = payload["turn"].as_u64();
        match event.kind.as_str() {
            "turn.started" => self.begun = turn,
            "model.requested" => {
                let adopted = payload["adopted"].as_array().map_or(&[][..], Vec::as_slice);
                if adopted.iter().any(|id| id.as_i64() == Some(self.input)) {
                    self.turn = turn;
                }
            }
            "cell.started" if payload["origin"]["by"] == "operator" => {
                self.foreign.extend(event.execution_id.clone());
            }
            "delivery.sent" if self.is_ours(event) => return Step::Delivered,
            "delivery.held" if self.is_ours(event) => return Step::Held,
            "wait.accepted" if turn.is_some() && turn == self.turn => return Step::Waits,
            "turn.ended" if turn.is_some() && turn == self.turn.or(self.begun) => {
                let reason = payload["reason"].as_str().unwrap_or_default();
                let failed = matches!(reason, "route_failed" | "workbench_failed");
                return Step::Ended { failed, quiet: reason == "answered" };
            }
            _ => {}
        }
        Step::Skip
    }

    fn is_ours(&self, event: &Shown) -> bool {
        let released = event.payload["released"] == true;
        let foreign = event.execution_id.as_ref().is_some_and(|cell| self.foreign.contains(cell));
        self.turn.is_some() && !released && !foreign
    }
}

/// The argument, or all of standard input where there is none or it is `-`.
pub(super) fn argument_or_stdin(
    argument: Option<String>,
    what: &'static str,
    limit: usize,
) -> Result<String, CliError> {
    let text = match argument {
        Some(text) if text != "-" => text,
        Some(_) | None => {
            let mut bytes = Vec::new();
            // One byte more than the limit tells a text that is too long from one that fits.
            let mut bounded = std::io::stdin().lock().take(limit as u64 + 1);
            bounded
                .read_to_end(&mut bytes)
                .map_err(|error| CliError::Input(format!("cannot read standard input: {error}")))?;
            if bytes.len() > limit {
                return Err(CliError::TooLarge { what, limit });
            }
            String::from_utf8(bytes).map_err(|error| {
                let at = error.utf8_error().valid_up_to();
                CliError::Input(format!("standard input is not UTF-8 at byte {at}"))
            })?
        }
    };
    if text.len() > limit { Err(CliError::TooLarge { what, limit }) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[expect(clippy::needless_pass_by_value, reason = "a payload is written where it is used")]
    fn event(kind: &str, execution: Option<&str>, payload: Value) -> Shown {
        let object = json!({
            "event_id": 9, "session_id": "root", "kind": kind, "source": "session", "at": null,
            "payload": payload, "execution_id": execution,
        });
        serde_json::from_value(object).unwrap()
    }

    fn run(events: &[Shown]) -> Vec<Step> {
        let mut course = Course::new(5);
        events.iter().map(|event| course.on(event)).filter(|step| *step != Step::Skip).collect()
    }

    #[test]
    fn only_the_turn_that_takes_the_input_up_counts() {
        let events = [
            event("delivery.sent", Some("x-1"), json!({"text": "of the turn before"})),
            event("turn.ended", None, json!({"turn": 1, "reason": "answered"})),
            event("turn.started", None, json!({"turn": 2})),
            event("model.requested", None, json!({"turn": 2, "adopted": [4, 5]})),
            event("delivery.sent", Some("x-2"), json!({"text": "ours"})),
            event("delivery.held", Some("x-2"), json!({"text": "ours"})),
            event("wait.accepted", Some("x-9"), json!({"turn": null})),
            event("wait.accepted", Some("x-2"), json!({"turn": 2})),
        ];

        assert_eq!(run(&events), [Step::Delivered, Step::Held, Step::Waits]);
    }

    #[test]
    fn deliveries_of_an_operators_cell_and_released_ones_are_not_the_turns() {
        let events = [
            event("model.requested", None, json!({"turn": 2, "adopted": [5]})),
            event("cell.started", Some("x-7"), json!({"origin": {"by": "operator"}})),
            event("delivery.sent", Some("x-7"), json!({"text": "by exec"})),
            event("delivery.sent", None, json!({"text": "older", "released": true})),
            event("turn.ended", None, json!({"turn": 2, "reason": "answered"})),
        ];

        assert_eq!(run(&events), [Step::Ended { failed: false, quiet: true }]);
    }

    #[test]
    fn a_turn_that_ends_before_it_asked_its_model_has_failed_for_the_input() {
        let events = [
            event("turn.started", None, json!({"turn": 3})),
            event("turn.ended", None, json!({"turn": 3, "reason": "workbench_failed"})),
        ];

        assert_eq!(run(&events), [Step::Ended { failed: true, quiet: false }]);
    }
}
