//! `klbr reload`: the host reads its configuration again.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::DONE;
use super::error::CliError;
use super::places::Places;
use super::reach;
use super::write::Output;

pub(super) async fn run(places: &Places, output: &mut Output) -> Result<u8, CliError> {
    #[derive(Serialize, Deserialize)]
    struct Reloaded {
        in_force: Vec<String>,
        need_restart: Vec<String>,
    }
    #[derive(Deserialize)]
    struct Answer {
        reloaded: Reloaded,
    }
    let mut connection = reach::open(places).await?;
    let answer: Answer = connection.call("Reload", json!({})).await?;
    let reloaded = answer.reloaded;
    output.object_or(&reloaded, |text| {
        text.push_str(&match reloaded.in_force.as_slice() {
            [] => "nothing changed".to_owned(),
            names => format!("in force: {}", names.join(", ")),
        });
        if !reloaded.need_restart.is_empty() {
            text.push_str(&format!("\nwith the next start only: {}", reloaded.need_restart.join(", ")));
        }
    })?;
    Ok(DONE)
}
