//! `klbr doctor`: what a host needs, and what to do about what is missing.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::error::CliError;
use super::places::Places;
use super::show;
use super::write::Output;
use super::{DONE, FAILED};
use crate::operator::client::{ClientError, Connection};
use crate::serve::ServeOptions;
use crate::serve::doctor::{Finding, Verdict, examine, held_by};

/// Silence that makes a host one that does not answer; a start takes less.
const SILENCE_MAX: Duration = Duration::from_secs(10);

pub(super) async fn run(places: &Places, output: &mut Output) -> Result<u8, CliError> {
    let host = host(places).await;
    let options = ServeOptions {
        config: places.config()?,
        data: places.data()?,
        socket: places.socket(),
        // Whoever looks starts nothing.
        allow_root: true,
    };
    // What the host says of its workers comes after what is on the disk: that is the order of a start.
    let runs =
        host.as_ref().is_some_and(|findings| findings.iter().any(|found| found.check == "containment"));
    let mut findings = examine(&options, runs).await;
    findings.extend(host.into_iter().flatten());
    let mut status = DONE;
    for finding in &findings {
        if finding.verdict == Verdict::Fail {
            status = FAILED;
        }
        output.object_or(finding, |text| tell(finding, text))?;
    }
    Ok(status)
}

/// What a running host says of itself; `None` where none runs, which is nobody's fault.
async fn host(places: &Places) -> Option<Vec<Finding>> {
    #[derive(Deserialize)]
    struct Answer {
        status: Status,
    }
    #[derive(Deserialize)]
    struct Status {
        version: String,
        pid: u32,
        containment: String,
        unenforced: Vec<String>,
    }
    let asked = async { Connection::open(&places.socket()).await?.call("Status", json!({})).await };
    let Ok(answer) = tokio::time::timeout(SILENCE_MAX, asked).await else {
        let found = "the socket is there, and no host answers behind it";
        let remedy = "see `systemctl --user status klbr` and `journalctl --user -u klbr`";
        return Some(vec![Finding::fail("host", found, Some(remedy))]);
    };
    let answer: Result<Answer, ClientError> = answer;
    match answer {
        Ok(Answer { status }) => {
            let found = format!("running, version {}, process {}", status.version, status.pid);
            let host = if status.version == env!("CARGO_PKG_VERSION") {
                Finding::ok("host", found)
            } else {
                let remedy = format!("restart it: this program is version {}", env!("CARGO_PKG_VERSION"));
                Finding::warn("host", found, remedy)
            };
            Some(vec![held_by(&status.containment, &status.unenforced), host])
        }
        Err(ClientError::NoHost { .. }) => None,
        Err(error) => Some(vec![Finding::fail("host", error.to_string(), None)]),
    }
}

fn tell(finding: &Finding, text: &mut String) {
    let word = match finding.verdict {
        Verdict::Ok => "ok",
        Verdict::Warn => "warn",
        Verdict::Fail => "FAIL",
    };
    text.push_str(&format!("{word:<5} {:<14} {}", finding.check, show::safe(&finding.found)));
    if let Some(remedy) = &finding.remedy {
        text.push_str(&format!("\n{:<20} to do: {}", "", show::safe(remedy)));
    }
}
