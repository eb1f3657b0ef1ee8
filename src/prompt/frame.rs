//! The line in front of what the model reads, and the words of results and observations.
//!
//! Derived from the durable event at every assembly, never stored, never parsed back.

use crate::cell::OutputRecord;
use crate::clock;
use crate::event::{CellCompleted, CellStatus, EffectState, GenerationEnded, LedgerEntry, Wake, WakeCause};

/// `[2026-09-13T18:59:00Z · operator]`, or `time unknown` where the event has no usable time.
pub fn line(at_ms: i64, label: &str) -> String {
    match clock::rfc3339(at_ms) {
        Some(time) => format!("[{time} · {label}]"),
        None => format!("[time unknown · {label}]"),
    }
}

/// The result of a cell, as the model reads it.
pub fn cell_result(at_ms: i64, cell: &CellCompleted) -> String {
    let label = match cell.duration_ms {
        Some(ms) => format!("ran {ms}ms"),
        None => "duration unknown".to_owned(),
    };
    let mut text = line(at_ms, &label);
    let mut part = |piece: &str| {
        if !piece.is_empty() {
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(piece);
        }
    };
    part(&shown(&cell.output));
    if cell.truncated_bytes > 0 {
        part(&format!("[{} bytes of output were cut here]", cell.truncated_bytes));
    }
    part(cell.error.as_deref().unwrap_or_default());
    match cell.status {
        CellStatus::Ok | CellStatus::Error => {}
        CellStatus::Yielded => part("[the turn ended here: the wait was accepted]"),
        CellStatus::Interrupted => part("[interrupted]"),
        CellStatus::Failed => part("[the cell did not complete]"),
    }
    for entry in &cell.ledger {
        part(&ledger_line(entry));
    }
    text
}

/// Output as Python would have shown it: the records one after the other, a result on a line of
/// its own.
pub fn shown(output: &[OutputRecord]) -> String {
    let mut text = String::new();
    for record in output {
        let on_own_line = record.stream == crate::cell::OutputStream::Result;
        if on_own_line && !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&record.text);
    }
    text.truncate(text.trim_end_matches('\n').len());
    text
}

fn ledger_line(entry: &LedgerEntry) -> String {
    let fate = match entry.state {
        EffectState::Committed => "took effect; do not repeat it",
        EffectState::Refused => "was refused and had no effect",
        EffectState::Uncertain | EffectState::Intended => "may or may not have taken effect; check first",
        EffectState::NeverStarted => "was asked for and had no effect",
    };
    let proof = entry.event.map(|event| format!(" ({})", event.reference())).unwrap_or_default();
    format!("[request {} {} {fate}{proof}]", entry.request, entry.method)
}

/// What the model is told when it wakes without an input.
pub fn wake(at_ms: i64, wake: &Wake) -> String {
    let words = match wake.cause {
        WakeCause::Input => "something arrived",
        WakeCause::Deadline => "the time that you asked to wait is over",
        WakeCause::Resumed => "the host was restarted in the middle of this turn; it goes on here",
    };
    format!("{}\n{words}", line(at_ms, "wake"))
}

/// What the model is told when its workbench is gone.
pub fn generation_ended(at_ms: i64, ended: &GenerationEnded) -> String {
    format!(
        "{}\nworkbench generation {} ended ({}): the names that earlier cells defined are gone",
        line(at_ms, "host"),
        ended.generation,
        ended.reason,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::OutputStream;
    use crate::id::{EventId, ExecutionId, GenerationId, RequestId};

    fn cell(status: CellStatus) -> CellCompleted {
        CellCompleted {
            execution: ExecutionId::numbered(1),
            generation: GenerationId::numbered(1),
            status,
            output: vec![
                OutputRecord { stream: OutputStream::Stdout, text: "a".into() },
                OutputRecord { stream: OutputStream::Result, text: "42\n".into() },
            ],
            truncated_bytes: 0,
            error: None,
            duration_ms: Some(420),
            ledger: vec![],
        }
    }

    #[test]
    fn a_result_carries_its_time_and_duration() {
        let text = cell_result(1_789_334_242_000, &cell(CellStatus::Ok));

        assert_eq!(text, "[2026-09-13T21:17:22Z · ran 420ms]\na\n42");
    }

    #[test]
    fn a_time_that_nobody_knows_is_not_invented() {
        assert_eq!(line(0, "operator"), "[time unknown · operator]");
    }

    #[test]
    fn a_cell_that_did_not_complete_says_what_became_of_each_request() {
        let mut dead = cell(CellStatus::Failed);
        dead.output.clear();
        dead.error = Some("the worker was killed by signal 9".into());
        let entry = |n: &str, state, event| LedgerEntry {
            request: RequestId::parse(n).unwrap(),
            method: "local.send".into(),
            state,
            event,
        };
        dead.ledger = vec![
            entry("r-1", EffectState::Committed, Some(EventId(7))),
            entry("r-2", EffectState::Uncertain, None),
            entry("r-3", EffectState::NeverStarted, None),
        ];
        dead.duration_ms = None;

        assert_eq!(
            cell_result(0, &dead),
            "[time unknown · duration unknown]\nthe worker was killed by signal 9\n\
             [the cell did not complete]\n\
             [request r-1 local.send took effect; do not repeat it (event:7)]\n\
             [request r-2 local.send may or may not have taken effect; check first]\n\
             [request r-3 local.send was asked for and had no effect]"
        );
    }
}
