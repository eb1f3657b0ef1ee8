//! Standard output: objects for scripts, text for people, and a quiet end when nobody reads on.

use rustix::event::{PollFd, PollFlags, Timespec};
use serde::Serialize;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use super::error::CliError;
use super::show;

/// How often a follower looks whether somebody still reads.
const CLOSED_POLL: Duration = Duration::from_secs(1);

/// Where a command's results go.
pub(super) struct Output {
    json: bool,
    terminal: bool,
}

impl Output {
    /// Results as JSON objects, or as text.
    pub(super) fn new(json: bool) -> Self {
        Self { json, terminal: io::stdout().is_terminal() }
    }

    /// Whether a script reads.
    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    /// Writes `object` on a line of its own for a script, or what `text` makes of it for a person.
    pub(super) fn object_or(
        &mut self,
        object: &impl Serialize,
        text: impl FnOnce(&mut String),
    ) -> Result<(), CliError> {
        let mut line = String::new();
        if self.json {
            line = serde_json::to_string(object).map_err(|error| CliError::Output(error.into()))?;
        } else {
            text(&mut line);
        }
        self.line(&line)
    }

    /// Writes a text and ends its last line.
    pub(super) fn line(&mut self, text: &str) -> Result<(), CliError> {
        let end = if text.ends_with('\n') { "" } else { "\n" };
        self.raw(&format!("{text}{end}"))
    }

    /// Writes text of the agent as it is; a terminal gets its control characters in words.
    pub(super) fn agent_line(&mut self, text: &str) -> Result<(), CliError> {
        if self.terminal { self.line(&show::safe(text)) } else { self.line(text) }
    }

    /// As [`Output::agent_line`], without ending the line.
    pub(super) fn agent_text(&mut self, text: &str) -> Result<(), CliError> {
        if self.terminal { self.raw(&show::safe(text)) } else { self.raw(text) }
    }

    /// Returns once nobody can read what would be written: `klbr follow | head -1` ends with its
    /// reader and not with the next event.
    pub(super) async fn closed(&self) {
        loop {
            let stdout = io::stdout();
            let mut poll = [PollFd::new(&stdout, PollFlags::empty())];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            // A failed poll says nothing; the next write will.
            let asked = rustix::event::poll(&mut poll, Some(&now));
            if asked.is_ok() && poll[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
                return;
            }
            tokio::time::sleep(CLOSED_POLL).await;
        }
    }

    fn raw(&mut self, text: &str) -> Result<(), CliError> {
        let mut stdout = io::stdout().lock();
        // Flushed at once: a follower's reader waits for each line.
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => CliError::OutputClosed,
            _ => CliError::Output(error),
        })
    }
}
