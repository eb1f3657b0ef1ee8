//! Two routes that need no network: the operator as the model, and a file of answers.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::json;

use super::failure::{Failure, FailureClass};
use super::{Answer, Latest, Question, RouteError};
use crate::cell::{OutputRecord, OutputStream};
use crate::event::{ToolCall, Usage};

/// The tool that offline routes call.
const TOOL: &str = "python";

/// The operator is the model: what they say is a cell, and its output is the answer.
pub(super) fn manual(question: &Question) -> Answer {
    let inputs: Vec<&str> = question
        .latest
        .iter()
        .filter_map(|latest| match latest {
            Latest::Input { text } => Some(text.as_str()),
            Latest::CellResult { .. } | Latest::Wake { .. } | Latest::Note { .. } => None,
        })
        .collect();
    if !inputs.is_empty() {
        return answer(String::new(), Some(inputs.join("\n")), question.answered);
    }
    let result = question.latest.iter().rev().find_map(|latest| match latest {
        Latest::CellResult { output, error, .. } => Some(shown(output, error.as_deref())),
        Latest::Input { .. } | Latest::Wake { .. } | Latest::Note { .. } => None,
    });
    answer(result.unwrap_or_default(), None, question.answered)
}

/// A cell's output as Python would have shown it.
fn shown(output: &[OutputRecord], error: Option<&str>) -> String {
    let mut text = String::new();
    let mut line = |piece: &str, own_line: bool| {
        if own_line && !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(piece);
    };
    for record in output {
        line(&record.text, record.stream == OutputStream::Result);
    }
    if let Some(error) = error {
        line(error, true);
    }
    text.truncate(text.trim_end_matches('\n').len());
    text
}

fn answer(text: String, code: Option<String>, answered: u64) -> Answer {
    let calls: Vec<ToolCall> = code
        .map(|code| ToolCall {
            id: format!("call_{}", answered + 1),
            name: TOOL.to_owned(),
            arguments: json!({"code": code}).to_string(),
            extra_content: None,
        })
        .into_iter()
        .collect();
    let finish = if calls.is_empty() { "stop" } else { "tool_calls" };
    Answer {
        text,
        reasoning: None,
        calls,
        finish_reason: Some(finish.to_owned()),
        usage: Usage::default(),
        usage_raw: None,
        duration_ms: 0,
        attempts: 1,
    }
}

/// A file of answers, one `{"text": ..., "code": ...}` a line.
#[derive(Debug)]
pub(super) struct Script {
    path: PathBuf,
    lines: Vec<Line>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    code: Option<String>,
}

impl Script {
    /// Reads the whole file. Empty lines and lines that start with `#` are passed over.
    pub(super) fn read(route: &str, path: &Path) -> Result<Self, RouteError> {
        let text = std::fs::read_to_string(path).map_err(|source| RouteError::Script {
            route: route.to_owned(),
            path: path.to_owned(),
            source,
        })?;
        let mut lines = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            lines.push(serde_json::from_str(line).map_err(|error| RouteError::ScriptLine {
                route: route.to_owned(),
                path: path.to_owned(),
                line: number,
                problem: error.to_string(),
            })?);
        }
        Ok(Self { path: path.to_owned(), lines })
    }

    /// The answer after `answered` others.
    pub(super) fn answer(&self, answered: u64) -> Result<Answer, Failure> {
        let line = usize::try_from(answered).ok().and_then(|index| self.lines.get(index)).cloned();
        let Some(Line { text, code }) = line else {
            let message = format!(
                "the script {} has {} answers, and all were given; add lines, or use another route",
                self.path.display(),
                self.lines.len()
            );
            return Err(Failure::new(FailureClass::ScriptEnded, message));
        };
        Ok(answer(text.unwrap_or_default(), code, answered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::CellStatus;

    fn question(latest: Vec<Latest>) -> Question {
        Question { messages: "[]".into(), tools: "", latest, answered: 3 }
    }

    #[test]
    fn an_input_is_a_cell_and_its_output_is_the_answer() {
        let asked = manual(&question(vec![
            Latest::Wake { text: "w".into() },
            Latest::Input { text: "x = 1".into() },
            Latest::Input { text: "x".into() },
        ]));
        assert_eq!(asked.calls[0].arguments, r#"{"code":"x = 1\nx"}"#);
        assert_eq!(asked.calls[0].id, "call_4");

        let record = |stream, text: &str| OutputRecord { stream, text: text.into() };
        let output = vec![record(OutputStream::Stdout, "a"), record(OutputStream::Result, "1")];
        let result = |error: Option<&str>| Latest::CellResult {
            status: CellStatus::Ok,
            output: output.clone(),
            error: error.map(str::to_owned),
        };
        assert_eq!(manual(&question(vec![result(None)])).text, "a\n1");
        assert_eq!(manual(&question(vec![result(Some("Traceback\n"))])).text, "a\n1\nTraceback");
    }

    #[test]
    fn a_wake_without_an_input_has_no_answer() {
        let answer = manual(&question(vec![Latest::Wake { text: "w".into() }]));

        assert_eq!((answer.text.as_str(), answer.calls.len()), ("", 0));
    }

    #[test]
    fn a_script_gives_its_lines_in_order_and_then_says_that_it_ended() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# demo\n\n{\"code\":\"1\"}\n{\"text\":\"done\"}\n").unwrap();
        let script = Script::read("s", file.path()).unwrap();

        assert_eq!(script.answer(0).unwrap().calls.len(), 1);
        assert_eq!(script.answer(1).unwrap().text, "done");
        assert_eq!(script.answer(2).unwrap_err().class, FailureClass::ScriptEnded);

        std::fs::write(file.path(), "{\"code\":\"1\"}\n{\"cod\":\"1\"}\n").unwrap();
        let error = Script::read("s", file.path()).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
