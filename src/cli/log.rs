//! `klbr log` and `klbr follow`: events, as they were and as they come.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::DONE;
use super::error::CliError;
use super::places::Places;
use super::reach;
use super::send::OneEvent;
use super::show::{self, Colours};
use super::verbs::{Follow, Log};
use super::write::Output;
use crate::operator::client::Replies;

pub(super) async fn log(places: &Places, asked: Log, output: &mut Output) -> Result<u8, CliError> {
    #[derive(Deserialize)]
    struct Page {
        events: Vec<Box<RawValue>>,
    }
    let mut connection = reach::open(places).await?;
    let kinds = (!asked.kind.is_empty()).then_some(asked.kind);
    let wanted = json!({
        "session": places.session_or_all(), "kinds": kinds, "since": asked.since, "limit": asked.limit,
    });
    connection.send("Log", wanted, Replies::Many).await?;
    let colours = Colours::of(&std::io::stdout());
    loop {
        let page = connection.reply::<Page>().await?;
        for event in page.parameters.events {
            print(&OneEvent { event }, colours, output)?;
        }
        if !page.continues {
            return Ok(DONE);
        }
    }
}

pub(super) async fn follow(places: &Places, asked: Follow, output: &mut Output) -> Result<u8, CliError> {
    if asked.count == Some(0) {
        return Ok(DONE);
    }
    let mut connection = reach::open(places).await?;
    let kinds = (!asked.kind.is_empty()).then_some(asked.kind);
    let wanted = json!({
        "session": places.session_or_all(), "since": asked.since, "all": asked.all, "kinds": kinds,
    });
    connection.send("Follow", wanted, Replies::Many).await?;
    let colours = Colours::of(&std::io::stdout());
    let mut count = 0;
    loop {
        let event = tokio::select! {
            reply = connection.reply::<OneEvent>() => reply?.parameters,
            () = output.closed() => return Err(CliError::OutputClosed),
        };
        print(&event, colours, output)?;
        count += 1;
        if asked.count == Some(count) {
            return Ok(DONE);
        }
    }
}

fn print(event: &OneEvent, colours: Colours, output: &mut Output) -> Result<(), CliError> {
    if output.is_json() {
        return output.line(event.event.get());
    }
    output.line(&show::event(&event.shown()?, colours))
}
