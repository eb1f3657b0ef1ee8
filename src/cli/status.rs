//! `klbr status`: what runs, or why nothing does.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::error::Error as _;
use std::fmt::Write as _;

use super::DONE;
use super::error::CliError;
use super::places::Places;
use super::reach;
use super::show;
use super::write::Output;
use crate::clock;
use crate::config::Config;
use crate::operator::client::ClientError;

pub(super) async fn run(places: &Places, output: &mut Output) -> Result<u8, CliError> {
    #[derive(Deserialize)]
    struct Answer {
        status: Value,
    }
    match reach::open(places).await {
        Ok(mut connection) => {
            let answer: Answer = connection.call("Status", json!({})).await?;
            let mut status = answer.status;
            status["running"] = Value::Bool(true);
            output.object_or(&status, |text| running(&status, text))?;
        }
        Err(CliError::Client(ClientError::NoHost { source, .. })) => {
            let down = Down::look(places, &source)?;
            output.object_or(&down, |text| down.tell(text))?;
        }
        Err(error) => return Err(error),
    }
    Ok(DONE)
}

fn running(status: &Value, text: &mut String) {
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), show::safe);
    let or = |value: &Value, absent: &str| if value.is_null() { absent.to_owned() } else { word(value) };
    let since =
        |value: &Value| value.as_i64().and_then(clock::rfc3339).unwrap_or_else(|| "time unknown".to_owned());
    let mut line = |name: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<12} {value}");
    };
    line("host", format!("running, version {}, process {}", word(&status["version"]), status["pid"]));
    line("since", since(&status["started_at_ms"]));
    line("data", word(&status["data"]));
    line("socket", word(&status["socket"]));
    line("containment", word(&status["containment"]));
    let unenforced: Vec<_> = status["unenforced"].as_array().into_iter().flatten().map(word).collect();
    if !unenforced.is_empty() {
        line("not enforced", unenforced.join(", "));
    }
    let route = &status["route"];
    line(
        "route",
        format!("{} ({}), model {}", word(&route["name"]), word(&route["kind"]), or(&route["model"], "none")),
    );
    let hooks = &status["hooks"];
    line(
        "hooks",
        format!(
            "{}, generation {}, epoch {}, release {:.12}",
            word(&hooks["state"]),
            or(&hooks["generation"], "none"),
            or(&hooks["epoch"], "none"),
            or(&hooks["release"], "none"),
        ),
    );
    line("held", status["held"].to_string());
    for session in status["sessions"].as_array().into_iter().flatten() {
        let mut what = word(&session["state"]);
        if !session["turn"].is_null() {
            let _ = write!(what, ", turn {}", session["turn"]);
        }
        if let Some(deadline) = session["wait_deadline_ms"].as_i64().and_then(clock::rfc3339) {
            let _ = write!(what, ", until {deadline}");
        }
        let _ = write!(what, ", {} pending", session["pending_inputs"]);
        let workbench = &session["workbench"];
        if !workbench.is_null() {
            let _ =
                write!(what, ", workbench {} ({})", word(&workbench["generation"]), word(&workbench["unit"]));
        }
        line(&format!("session {}", word(&session["id"])), what);
    }
}

/// What can be said without a host.
#[derive(Serialize)]
struct Down {
    running: bool,
    reason: String,
    socket: String,
    data: String,
    data_exists: bool,
    config: String,
    config_valid: bool,
    config_error: Option<String>,
}

impl Down {
    fn look(places: &Places, reason: &std::io::Error) -> Result<Self, CliError> {
        let (config, data) = (places.config()?, places.data()?);
        let error = Config::load(&config).err().map(|error| match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        });
        Ok(Self {
            running: false,
            reason: reason.to_string(),
            socket: places.socket().display().to_string(),
            data: data.display().to_string(),
            data_exists: data.is_dir(),
            config: config.display().to_string(),
            config_valid: error.is_none(),
            config_error: error,
        })
    }

    fn tell(&self, text: &mut String) {
        let data = if self.data_exists { "" } else { " (not there; make it with `klbr init`)" };
        let config = self.config_error.as_deref().unwrap_or("valid");
        for (name, value) in [
            ("host", format!("not running ({})", self.reason)),
            ("socket", self.socket.clone()),
            ("data", format!("{}{data}", self.data)),
            ("config", format!("{}: {config}", self.config)),
        ] {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name:<12} {}", show::safe(&value));
        }
    }
}
