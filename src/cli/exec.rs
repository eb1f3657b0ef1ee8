//! `klbr exec`: a cell for the operator, shown as Python would have shown it.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::error::CliError;
use super::places::Places;
use super::reach;
use super::send::argument_or_stdin;
use super::show;
use super::verbs::Exec;
use super::write::Output;
use super::{DONE, FAILED};
use crate::cell::{OutputRecord, OutputStream};
use crate::limits::CODE_BYTES_MAX;
use crate::operator::client::{ClientError, Connection, Replies};

/// The exit status of a command that Ctrl-C ended: 128 and the signal's number.
const INTERRUPTED: u8 = 130;
/// Time that an interrupted cell has to end before we leave it to the host.
const LAST_WORDS: Duration = Duration::from_secs(15);
/// Newest cells among which our own is looked for.
const RECENT_CELLS: usize = 64;

#[derive(Deserialize)]
struct Answer {
    outcome: Box<RawValue>,
}

#[derive(Deserialize)]
struct Outcome {
    status: String,
    output: Vec<OutputRecord>,
    truncated_bytes: u64,
    error: Option<String>,
}

/// Why we do not simply wait for the cell.
enum Cut {
    Interrupt,
    Timeout(Duration),
}

pub(super) async fn run(places: &Places, asked: Exec, output: &mut Output) -> Result<u8, CliError> {
    let code = argument_or_stdin(asked.code, "cell", CODE_BYTES_MAX)?;
    // Before the cell exists, so that no Ctrl-C falls between.
    let mut interrupts = signal(SignalKind::interrupt()).map_err(CliError::Runtime)?;
    let mut connection = reach::open(places).await?;
    let call = json!({"session": places.session(), "code": code, "now": asked.now});
    connection.send("Exec", call, Replies::One).await?;
    let cut = tokio::select! {
        answer = connection.reply::<Answer>() => return show_outcome(&answer?.parameters, output),
        _ = interrupts.recv() => Cut::Interrupt,
        after = elapsed(asked.timeout) => Cut::Timeout(after),
    };
    let met = interrupt_own_cell(places, &code).await?;
    if met {
        tokio::select! {
            answer = connection.reply::<Answer>() => {
                // What it wrote until then was asked for; its status is ours to say.
                show_outcome(&answer?.parameters, output)?;
            }
            () = tokio::time::sleep(LAST_WORDS) => show::complain("the cell has not ended yet; see `klbr status`"),
            _ = second(&mut interrupts) => {}
        }
    }
    match cut {
        Cut::Interrupt => Ok(INTERRUPTED),
        Cut::Timeout(after) => Err(CliError::TimedOut { what: "the cell", after }),
    }
}

async fn elapsed(timeout: Option<Duration>) -> Duration {
    match timeout {
        Some(after) => {
            tokio::time::sleep(after).await;
            after
        }
        None => std::future::pending().await,
    }
}

async fn second(interrupts: &mut Signal) -> Option<()> {
    interrupts.recv().await
}

/// Interrupts our cell if it runs. One that still waits behind another is taken back by the end of
/// our connection, and the other is not ours to interrupt.
async fn interrupt_own_cell(places: &Places, code: &str) -> Result<bool, ClientError> {
    #[derive(Deserialize)]
    struct Page {
        events: Vec<Value>,
    }
    let mut connection = Connection::open(&places.socket()).await?;
    let session = places.session();
    let wanted =
        json!({"session": session, "kinds": ["cell.started", "cell.completed"], "limit": RECENT_CELLS});
    let page: Page = connection.call("Log", wanted).await?;
    let ended = |execution: &Value| {
        page.events
            .iter()
            .any(|event| event["kind"] == "cell.completed" && event["execution_id"] == *execution)
    };
    let ours = page.events.iter().any(|event| {
        let payload = &event["payload"];
        event["kind"] == "cell.started"
            && payload["origin"]["by"] == "operator"
            && payload["code"] == code
            && !ended(&event["execution_id"])
    });
    if ours {
        let _: Value = connection.call("Interrupt", json!({"session": session})).await?;
    }
    Ok(ours)
}

fn show_outcome(answer: &Answer, output: &mut Output) -> Result<u8, CliError> {
    let outcome: Outcome = serde_json::from_str(answer.outcome.get())
        .map_err(|problem| CliError::Answer { what: "an outcome", problem })?;
    if output.is_json() {
        output.line(answer.outcome.get())?;
    } else {
        show_as_python(&outcome, output)?;
    }
    match outcome.status.as_str() {
        "ok" | "yielded" => Ok(DONE),
        _ => Ok(FAILED),
    }
}

fn show_as_python(outcome: &Outcome, output: &mut Output) -> Result<(), CliError> {
    for record in &outcome.output {
        match record.stream {
            OutputStream::Stdout => output.agent_text(&record.text)?,
            OutputStream::Stderr => show::agent_error(&record.text),
            OutputStream::Result => output.agent_line(&record.text)?,
        }
    }
    if outcome.truncated_bytes > 0 {
        show::complain(&format!("{} bytes of output were discarded", outcome.truncated_bytes));
    }
    if let Some(error) = &outcome.error {
        show::agent_error(error);
        if !error.ends_with('\n') {
            show::agent_error("\n");
        }
    }
    Ok(())
}
