//! The configuration that `klbr init` writes: every setting, with what it means.

use crate::limits;

/// A whole configuration file. Settings at their default are comments.
pub(super) fn config(workspace: &str) -> String {
    let workspace = quoted(workspace);
    let Defaults { sessions, hello, interrupt_grace, stop_grace, steps, requests, tokens, cell } =
        Defaults::new();
    format!(
        r#"# klbr's configuration; klbr.toml(5) has more. A line that starts with # shows a default or an example.

# The directory that the agent works in. An absolute path.
workspace = {workspace}

# How workers are held, so that a stop leaves nothing of them: "auto" takes the strongest means that
# works here; "systemd", "cgroup" or "process" insist on one.
#containment = "auto"

# The Python of the workers: a path, or a name that is looked up in PATH. 3.11 or later.
#python = "python3"

# Where the Python package klbr lies. Without it, beside the program.
#python_path = "/usr/lib/klbr/python"

# What becomes of the text of a model's answer at the end of a turn that sent nothing itself:
# "deliver" sends it to you, "record" only keeps it in the log.
#final_text = "deliver"

# The route in use: the name of one of the sections below.
[route]
use = "manual"

# You are the model: the text of each input is run as a cell of Python, and its output is the answer.
[routes.manual]
kind = "manual"

# A model behind an OpenAI-compatible server. Remove the # signs, and write use = "local" above.
#[routes.local]
# The start of the URL, without /chat/completions.
#base_url = "http://127.0.0.1:8080/v1"
#model = "qwen3-8b"
# The key never stands in this file: name the environment variable that has it, or the systemd
# credential (LoadCredential=).
#api_key_env = "OPENAI_API_KEY"
#api_key_credential = "openai"
# Which request fields the server accepts: "plain", "openai", "openai-legacy", "openrouter", "deepseek", ...
#profile = "plain"
# The size of the model's context, in tokens.
#context_tokens = 32768
# Milliseconds: to reach the server, of silence in an answer, for a whole answer.
#connect_timeout_ms = 15000
#idle_timeout_ms = 300000
#total_timeout_ms = 1800000
# How often one request is tried, the first time included.
#attempts = 5
# Request fields that are passed through as they are.
#[routes.local.options]
#temperature = 0

# Answers from a file, for demonstrations and tests: one {{"text":...,"code":...}} a line.
#[routes.replay]
#kind = "script"
#script = "answers.jsonl"

[limits]
# Sessions of this host.
#sessions = {sessions}
# Milliseconds from the start of a worker until it has to be ready.
#hello_ms = {hello}
# Milliseconds from an interrupt to the hard stop of a workbench that does not heed it.
#interrupt_grace_ms = {interrupt_grace}
# Milliseconds that the host takes at most for an orderly stop.
#stop_grace_ms = {stop_grace}
# Model answers in one turn.
#steps_per_turn = {steps}
# Model requests of a session in any hour.
#requests_per_hour = {requests}
# Tokens of a session in any day, as the route counts them.
#tokens_per_day = {tokens}
# Milliseconds that one cell may run; 0 is no bound.
#cell_ms = {cell}

# What a worker may see. `klbr status` names what the containment cannot enforce here.
[sandbox]
# The home directory: "hidden", "read-only" or "read-write". The workspace can always be written.
#home = "read-only"
# More paths to read, and to write.
#read_only = []
#read_write = []
# Whether workers reach the network.
#network = true
# Memory, and the number of processes and threads, of one generation. Without them, no bound.
#memory_max = "2G"
#tasks_max = 512
"#
    )
}

/// The defaults that the comments name.
struct Defaults {
    sessions: usize,
    hello: u64,
    interrupt_grace: u64,
    stop_grace: u64,
    steps: u32,
    requests: u32,
    tokens: u64,
    cell: u64,
}

impl Defaults {
    fn new() -> Self {
        Self {
            sessions: limits::SESSIONS_DEFAULT,
            hello: limits::HELLO_MS_DEFAULT,
            interrupt_grace: limits::INTERRUPT_GRACE_MS_DEFAULT,
            stop_grace: limits::STOP_GRACE_MS_DEFAULT,
            steps: limits::STEPS_PER_TURN_DEFAULT,
            requests: limits::REQUESTS_PER_HOUR_DEFAULT,
            tokens: limits::TOKENS_PER_DAY_DEFAULT,
            cell: limits::CELL_MS_DEFAULT,
        }
    }
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(control))),
            plain => quoted.push(plain),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Limits, RouteKind, Sandbox};
    use std::path::Path;

    #[test]
    fn the_template_is_a_valid_configuration_for_any_workspace() {
        for workspace in ["/w", "/with space/ö", "/\"quoted\" \\ and\nlines\u{1}"] {
            let config = Config::parse(&config(workspace), Path::new("/klbr.toml")).unwrap();

            assert_eq!(config.workspace, Path::new(workspace));
            assert_eq!((config.limits, config.sandbox.clone()), (Limits::default(), Sandbox::default()));
            assert_eq!(
                config.route().map(|(name, route)| (name, route.kind)),
                Some(("manual", RouteKind::Manual))
            );
        }
    }

    #[test]
    fn every_commented_setting_is_one_that_the_program_knows() {
        let uncommented: String = config("/w")
            .lines()
            // An example setting has no space after its sign; a sentence has one.
            .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line))
            // The two places for a key exclude each other.
            .filter(|line| !line.starts_with("api_key_credential"))
            .flat_map(|line| [line, "\n"])
            .collect();
        let config = Config::parse(&uncommented, Path::new("/klbr.toml")).unwrap();

        assert_eq!(config.limits, Limits::default());
        assert_eq!(config.routes.len(), 3);
    }
}
