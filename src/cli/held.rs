//! `klbr held`, `klbr interrupt` and `klbr reset`: an operator's decisions.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::DONE;
use super::error::CliError;
use super::places::Places;
use super::reach;
use super::send::OneEvent;
use super::show;
use super::verbs::Held;
use super::write::Output;
use crate::operator::client::Connection;

pub(super) async fn run(places: &Places, verb: Option<Held>, output: &mut Output) -> Result<u8, CliError> {
    let mut connection = reach::open(places).await?;
    match verb.unwrap_or(Held::List {}) {
        Held::List {} => list(&mut connection, places, output).await?,
        Held::Release { id } => {
            let event: OneEvent = connection.call("Release", json!({"effect_id": id})).await?;
            output.object_or(&event.event, |line| line.push_str(&format!("{id} is delivered")))?;
        }
        Held::Discard { id } => {
            let event: OneEvent = connection.call("Discard", json!({"effect_id": id})).await?;
            output.object_or(&event.event, |line| line.push_str(&format!("{id} is discarded")))?;
        }
    }
    Ok(DONE)
}

async fn list(connection: &mut Connection, places: &Places, output: &mut Output) -> Result<(), CliError> {
    #[derive(Serialize, Deserialize)]
    struct Row {
        effect_id: String,
        session_id: String,
        event_id: i64,
        text: String,
        reason: String,
        at: Option<String>,
        at_ms: i64,
    }
    #[derive(Deserialize)]
    struct Rows {
        held: Vec<Row>,
    }
    let rows: Rows = connection.call("Held", json!({"session": places.session_or_all()})).await?;
    for row in &rows.held {
        output.object_or(row, |text| {
            let at = row.at.as_deref().unwrap_or("time unknown");
            text.push_str(&format!(
                "{}  {at}  {}  {}",
                row.effect_id,
                row.session_id,
                show::safe(&row.reason)
            ));
            for line in show::safe(&row.text).lines() {
                text.push_str("\n        ");
                text.push_str(line);
            }
        })?;
    }
    Ok(())
}

pub(super) async fn interrupt(places: &Places, output: &mut Output) -> Result<u8, CliError> {
    #[derive(Serialize, Deserialize)]
    struct Interrupted {
        execution_id: Option<String>,
        turn: Option<u64>,
    }
    #[derive(Deserialize)]
    struct Answer {
        interrupted: Interrupted,
    }
    let mut connection = reach::open(places).await?;
    let answer: Answer = connection.call("Interrupt", json!({"session": places.session()})).await?;
    let met = answer.interrupted;
    output.object_or(&met, |text| {
        text.push_str(&match (&met.execution_id, met.turn) {
            (Some(cell), Some(turn)) => format!("cell {cell} of turn {turn} is told to stop"),
            (Some(cell), None) => format!("cell {cell} is told to stop"),
            (None, Some(turn)) => format!("turn {turn} is told to stop"),
            (None, None) => "nothing was running".to_owned(),
        });
    })?;
    Ok(DONE)
}

pub(super) async fn reset(places: &Places, output: &mut Output) -> Result<u8, CliError> {
    #[derive(Serialize, Deserialize)]
    struct Answer {
        generation: String,
    }
    let mut connection = reach::open(places).await?;
    let answer: Answer = connection.call("Reset", json!({"session": places.session()})).await?;
    output.object_or(&answer, |text| {
        text.push_str(&format!("generation {} runs; the earlier namespace is lost", answer.generation));
    })?;
    Ok(DONE)
}
