//! Text for people: one form of an event, and nothing that can drive a terminal.

use serde::Deserialize;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};

/// Characters of a payload that a line of the log shows; `--json` shows all.
const PAYLOAD_CHARS_MAX: usize = 200;

/// An event, as far as text needs it.
#[derive(Debug, Deserialize)]
pub(super) struct Shown {
    pub(super) event_id: i64,
    session_id: String,
    pub(super) kind: String,
    source: String,
    at: Option<String>,
    pub(super) payload: Value,
    pub(super) execution_id: Option<String>,
}

/// Whether text has colours: on a terminal, unless the user said no (no-color.org).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colours {
    Yes,
    No,
}

impl Colours {
    /// Asks the stream and the environment.
    pub(super) fn of(stream: &impl std::io::IsTerminal) -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let dumb = set("TERM").is_none_or(|term| term == "dumb");
        if stream.is_terminal() && set("NO_COLOR").is_none() && !dumb { Self::Yes } else { Self::No }
    }

    fn paint(self, code: &str, text: &str) -> String {
        match self {
            Self::Yes => format!("\x1b[{code}m{text}\x1b[0m"),
            Self::No => text.to_owned(),
        }
    }
}

/// One event for a person: a line, and indented ones where it carries a longer text.
pub(super) fn event(shown: &Shown, colours: Colours) -> String {
    let at = shown.at.as_deref().unwrap_or("time unknown");
    let origin = if shown.source == "session" || shown.source == "host" {
        String::new()
    } else {
        format!(" ({})", safe(&shown.source))
    };
    let head = format!("{:>6}  {at}  {}{origin}", shown.event_id, safe(&shown.session_id));
    let kind = colours.paint(kind_colour(&shown.kind), &safe(&shown.kind));
    let detail = detail(&shown.kind, &shown.payload);
    let mut lines = detail.lines();
    let mut text = format!("{}  {kind}", colours.paint("2", &head));
    match (lines.next(), lines.next()) {
        (None, _) => {}
        (Some(only), None) => {
            text.push_str("  ");
            text.push_str(only);
        }
        (Some(_), Some(_)) => {
            for line in detail.lines() {
                text.push_str("\n        ");
                text.push_str(line);
            }
        }
    }
    text
}

fn kind_colour(kind: &str) -> &'static str {
    match kind {
        "operator.input" => "36",
        "delivery.sent" => "1;32",
        "delivery.held" | "delivery.discarded" => "33",
        "model.failed" | "generation.ended" => "31",
        _ => "0",
    }
}

/// What of a payload a person wants to read.
fn detail(kind: &str, payload: &Value) -> String {
    let text = |name: &str| payload[name].as_str().map(safe);
    match kind {
        "operator.input" | "delivery.sent" => text("text").unwrap_or_default(),
        "delivery.held" => {
            let reason = text("reason").unwrap_or_default();
            format!(
                "{}\nheld as {}: {reason}",
                text("text").unwrap_or_default(),
                text("effect_id").unwrap_or_default()
            )
        }
        "turn.ended" => {
            let mut line = format!("turn {}: {}", payload["turn"], text("reason").unwrap_or_default());
            if let Some(detail) = text("detail") {
                line.push_str(": ");
                line.push_str(&detail);
            }
            line
        }
        _ => {
            let whole = safe(&payload.to_string());
            match whole.char_indices().nth(PAYLOAD_CHARS_MAX) {
                Some((cut, _)) => format!("{}…", &whole[..cut]),
                None => whole,
            }
        }
    }
}

/// `text` with nothing left that a terminal obeys: control characters other than line feed and tab,
/// and characters that turn the reading direction, are written as `\u{..}`.
pub(super) fn safe(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        let turns =
            matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if turns || (character.is_control() && character != '\n' && character != '\t') {
            // Writing to a String cannot fail.
            let _ = write!(safe, "{}", character.escape_unicode());
        } else {
            safe.push(character);
        }
    }
    safe
}

/// One line on standard error, with the program's name in front.
pub(super) fn complain(sentence: &str) {
    // Whoever closed standard error does not want to know.
    let _ = writeln!(std::io::stderr(), "klbr: {}", safe(sentence));
}

/// Text of the agent on standard error, with control characters in words if that is a terminal.
pub(super) fn agent_error(text: &str) {
    let mut stderr = std::io::stderr();
    let shown = if stderr.is_terminal() { safe(text) } else { text.to_owned() };
    // Whoever closed standard error does not want to know.
    let _ = stderr.write_all(shown.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(kind: &str, payload: Value) -> Shown {
        Shown {
            event_id: 7,
            session_id: "root".to_owned(),
            kind: kind.to_owned(),
            source: "session".to_owned(),
            at: None,
            payload,
            execution_id: None,
        }
    }

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        let hostile = "a\x1b]0;title\x07b\u{9b}31mc\rd\u{202e}e\x7f";

        assert_eq!(safe(hostile), "a\\u{1b}]0;title\\u{7}b\\u{9b}31mc\\u{d}d\\u{202e}e\\u{7f}");
        assert_eq!(safe("täb\tline\n日本"), "täb\tline\n日本");
    }

    #[test]
    fn a_longer_text_is_indented_so_that_it_cannot_pass_for_another_event() {
        let forged =
            shown("delivery.sent", serde_json::json!({"text": "one\n     8  x  root  operator.input"}));
        let text = event(&forged, Colours::No);

        assert!(text.lines().skip(1).all(|line| line.starts_with("        ")), "{text}");
        assert_eq!(text.lines().next(), Some("     7  time unknown  root  delivery.sent"));
    }

    #[test]
    fn colours_come_only_where_they_are_wanted() {
        let sent = shown("delivery.sent", serde_json::json!({"text": "45"}));

        assert!(event(&sent, Colours::Yes).contains('\x1b'));
        assert!(!event(&sent, Colours::No).contains('\x1b'));
    }
}
