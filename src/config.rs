//! The configuration file and the places of things, parsed once, strictly.
//!
//! Must not open anything but the file that it is given.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::limits;

mod changes;
mod python;
mod sandbox;

pub use changes::Changes;
pub use python::python_path;
pub use sandbox::{Sandbox, SandboxHome};

/// Why there is no usable configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path}; make one with `klbr init`")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is larger than [`limits::CONFIG_BYTES_MAX`].
    #[error("the configuration {path} has {bytes} bytes, the limit is {}", limits::CONFIG_BYTES_MAX)]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// The file is not what it must be. Nothing of its text is repeated: a key may stand in it.
    #[error("the configuration {path}, line {line}, column {column}: {problem}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// In characters, counted from 1.
        column: usize,
        /// What is wrong.
        problem: String,
    },
    /// A setting is well-formed and means nothing.
    #[error("in {path}, `{setting}` {problem}")]
    Setting {
        /// The file.
        path: PathBuf,
        /// The setting's dotted name.
        setting: String,
        /// What is wrong, and what to write instead.
        problem: String,
    },
    /// The Python package that workers run is nowhere.
    #[error(
        "the Python package `klbr` is not in {}; name its folder with `python_path` or KLBR_PYTHON_PATH",
        shown(looked_in)
    )]
    NoPython {
        /// Every place that was looked in.
        looked_in: Vec<PathBuf>,
    },
}

fn shown(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// `klbr.toml`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The directory that the agent works in.
    pub workspace: PathBuf,
    /// How workers are held.
    #[serde(default)]
    pub containment: ContainmentChoice,
    /// The interpreter of workers: a path, or a name that is looked up in `PATH`.
    #[serde(default = "default_python")]
    pub python: PathBuf,
    /// Where the `klbr` Python package lies; unset is beside the program.
    #[serde(default)]
    pub python_path: Option<PathBuf>,
    /// What becomes of a model's text at a turn's end.
    #[serde(default)]
    pub final_text: FinalText,
    /// The route in use.
    pub route: RouteChoice,
    /// All routes by name.
    pub routes: BTreeMap<String, RouteConfig>,
    /// What bounds the agent.
    #[serde(default)]
    pub limits: Limits,
    /// What a worker may see.
    #[serde(default)]
    pub sandbox: Sandbox,
}

/// `containment`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContainmentChoice {
    /// The strongest one that works here.
    #[default]
    Auto,
    /// A unit of the service manager per generation.
    Systemd,
    /// A control group per generation.
    Cgroup,
    /// A subreaper per generation.
    Process,
}

/// `final_text`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FinalText {
    /// It is delivered like a `local.send`, where the turn sent nothing itself.
    #[default]
    Deliver,
    /// It stays in the log.
    Record,
}

/// `[route]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteChoice {
    /// Name of a `[routes.NAME]`.
    #[serde(rename = "use")]
    pub name: String,
}

/// `[routes.NAME]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// What answers.
    #[serde(default)]
    pub kind: RouteKind,
    /// Start of the URL, up to and without `/chat/completions`.
    #[serde(default)]
    pub base_url: Option<String>,
    /// The model's name for the route.
    #[serde(default)]
    pub model: Option<String>,
    /// Name of the environment variable that holds the key.
    #[serde(default)]
    pub api_key_env: Option<String>,
    /// Name of the systemd credential that holds the key.
    #[serde(default)]
    pub api_key_credential: Option<String>,
    /// Which request fields the route is declared to accept.
    #[serde(default = "default_profile")]
    pub profile: String,
    /// Size of the model's context.
    #[serde(default)]
    pub context_tokens: Option<u64>,
    /// Longest silence before the first byte of an answer, and between two pieces of it.
    #[serde(default = "default_idle_timeout_ms")]
    pub idle_timeout_ms: u64,
    /// Longest time for the whole answer.
    #[serde(default = "default_total_timeout_ms")]
    pub total_timeout_ms: u64,
    /// Longest time to reach the server.
    #[serde(default = "default_connect_timeout_ms")]
    pub connect_timeout_ms: u64,
    /// Attempts of one request, the first included.
    #[serde(default = "default_attempts")]
    pub attempts: u32,
    /// The file that a `script` route replays.
    #[serde(default)]
    pub script: Option<PathBuf>,
    /// Request fields that are passed through.
    #[serde(default)]
    pub options: toml::Table,
}

/// `kind` of a route.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RouteKind {
    /// OpenAI-compatible chat completions over HTTP.
    #[default]
    Http,
    /// The operator is the model: an input is a cell, its output is the answer.
    Manual,
    /// A file of answers.
    Script,
}

/// `[limits]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Sessions of one host.
    pub sessions: usize,
    /// From the start of a worker to its `hello`.
    pub hello_ms: u64,
    /// From a cooperative interrupt to the hard stop.
    pub interrupt_grace_ms: u64,
    /// From the wish to stop to the end of the host.
    pub stop_grace_ms: u64,
    /// Steps of one turn.
    pub steps_per_turn: u32,
    /// Model requests of one session in any hour.
    pub requests_per_hour: u32,
    /// Tokens of one session in any day, as its routes count them.
    pub tokens_per_day: u64,
    /// Longest time that one cell may run; zero is no bound.
    pub cell_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: limits::SESSIONS_DEFAULT,
            hello_ms: limits::HELLO_MS_DEFAULT,
            interrupt_grace_ms: limits::INTERRUPT_GRACE_MS_DEFAULT,
            stop_grace_ms: limits::STOP_GRACE_MS_DEFAULT,
            steps_per_turn: limits::STEPS_PER_TURN_DEFAULT,
            requests_per_hour: limits::REQUESTS_PER_HOUR_DEFAULT,
            tokens_per_day: limits::TOKENS_PER_DAY_DEFAULT,
            cell_ms: limits::CELL_MS_DEFAULT,
        }
    }
}

fn default_python() -> PathBuf {
    PathBuf::from("python3")
}
fn default_profile() -> String {
    "plain".to_owned()
}
fn default_idle_timeout_ms() -> u64 {
    300_000
}
fn default_total_timeout_ms() -> u64 {
    1_800_000
}
fn default_connect_timeout_ms() -> u64 {
    15_000
}
fn default_attempts() -> u32 {
    5
}

impl Config {
    /// Reads and checks a configuration file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let read = |source| ConfigError::Read { path: path.to_owned(), source };
        let bytes = std::fs::metadata(path).map_err(read)?.len();
        if bytes > limits::CONFIG_BYTES_MAX {
            return Err(ConfigError::TooLarge { path: path.to_owned(), bytes });
        }
        Self::parse(&std::fs::read_to_string(path).map_err(read)?, path)
    }

    /// Parses the text of a configuration file; `path` is for messages and for relative paths.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let mut config: Self = toml::from_str(text).map_err(|error| not_valid(&error, text, path))?;
        config.check().map_err(|(setting, problem)| ConfigError::Setting {
            path: path.to_owned(),
            setting,
            problem,
        })?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        for route in config.routes.values_mut() {
            // `join` leaves an absolute path as it is.
            route.script = route.script.take().map(|script| folder.join(script));
        }
        Ok(config)
    }

    /// The route in use.
    pub fn route(&self) -> Option<(&str, &RouteConfig)> {
        self.routes.get_key_value(&self.route.name).map(|(name, route)| (name.as_str(), route))
    }

    fn check(&self) -> Result<(), (String, String)> {
        let wrong = |setting: &str, problem: &str| Err((setting.to_owned(), problem.to_owned()));
        if !self.workspace.is_absolute() {
            return wrong("workspace", "must be an absolute path");
        }
        if !self.routes.contains_key(&self.route.name) {
            let known: Vec<_> = self.routes.keys().map(String::as_str).collect();
            let problem = format!("is {:?}, and the routes are: {}", self.route.name, known.join(", "));
            return Err(("route.use".to_owned(), problem));
        }
        for (name, route) in &self.routes {
            route.check().map_err(|(field, problem)| (format!("routes.{name}.{field}"), problem))?;
        }
        self.sandbox.check().map_err(|(field, problem)| (format!("sandbox.{field}"), problem))?;
        let limits = &self.limits;
        let positive = [
            ("limits.sessions", limits.sessions as u64),
            ("limits.steps_per_turn", u64::from(limits.steps_per_turn)),
            ("limits.requests_per_hour", u64::from(limits.requests_per_hour)),
            ("limits.tokens_per_day", limits.tokens_per_day),
            ("limits.stop_grace_ms", limits.stop_grace_ms),
        ];
        match positive.iter().find(|(_, value)| *value == 0) {
            Some((setting, _)) => wrong(setting, "must be at least 1"),
            None => Ok(()),
        }
    }
}

impl RouteConfig {
    fn check(&self) -> Result<(), (&'static str, String)> {
        let wrong = |field, problem: &str| Err((field, problem.to_owned()));
        if self.attempts == 0 {
            return wrong("attempts", "must be at least 1");
        }
        if self.api_key_env.is_some() && self.api_key_credential.is_some() {
            return wrong("api_key_env", "and api_key_credential cannot both be set; keep one");
        }
        match self.kind {
            RouteKind::Manual => Ok(()),
            RouteKind::Script if self.script.is_none() => {
                wrong("script", "is missing; name a file of one {\"text\",\"code\"} a line")
            }
            RouteKind::Script => Ok(()),
            RouteKind::Http => match &self.base_url {
                None => wrong("base_url", "is missing; for example \"http://127.0.0.1:8080/v1\""),
                Some(url) if !url.starts_with("http://") && !url.starts_with("https://") => {
                    wrong("base_url", "must start with http:// or https://")
                }
                Some(_) if self.model.is_none() => wrong("model", "is missing; name the model to ask for"),
                Some(_) => Ok(()),
            },
        }
    }
}

fn not_valid(error: &toml::de::Error, text: &str, path: &Path) -> ConfigError {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let of_line = before.rsplit('\n').next().unwrap_or_default();
    ConfigError::Parse {
        path: path.to_owned(),
        line: before.matches('\n').count() + 1,
        column: of_line.chars().count() + 1,
        problem: without_values(error.message()),
    }
}

/// A message such as `invalid type: string "sk-...", expected u64` without what the string was.
fn without_values(message: &str) -> String {
    let quoted = [(" \"", '"'), ("unknown variant `", '`')];
    for (opens, closes) in quoted {
        if let Some((before, rest)) = message.split_once(opens) {
            // A string may hold its own quotation mark, a name cannot.
            let end = if closes == '"' { rest.rsplit_once(closes) } else { rest.split_once(closes) };
            let named = opens.trim_end_matches(closes).trim_end();
            let kept = if closes == '"' { "" } else { named };
            return format!("{before}{kept}{}", end.map_or("", |(_, after)| after));
        }
    }
    message.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANUAL: &str = "workspace = \"/w\"\n[route]\nuse = \"me\"\n[routes.me]\nkind = \"manual\"\n";

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text, Path::new("/etc/klbr/klbr.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn an_error_repeats_nothing_that_may_be_a_key() {
        let cases = [
            format!("{MANUAL}api_key = \"sk-secret\"\n"),
            format!("{MANUAL}attempts = \"sk-\\\"secret\"\n"),
            format!("{MANUAL}api_key_env = sk-secret\n"),
            format!("{MANUAL}api_key_env = \"sk-secret\n"),
            format!("{MANUAL}kind = \"sk-secret\"\n"),
            format!("containment = \"sk-secret\"\n{MANUAL}"),
        ];
        for text in cases {
            let error = parse(&text).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
            assert!(error.contains(", line ") && error.contains(", column "), "{error}");
        }
    }

    #[test]
    fn the_shortest_configuration_has_every_default() {
        let config = parse(MANUAL).unwrap();

        assert_eq!(config.limits, Limits::default());
        assert_eq!(config.containment, ContainmentChoice::Auto);
        assert_eq!(config.route().map(|(name, route)| (name, route.kind)), Some(("me", RouteKind::Manual)));
    }

    #[test]
    fn an_unknown_setting_is_named_with_its_line() {
        let error = parse(&format!("colour = 3\n{MANUAL}")).unwrap_err();

        assert!(error.contains("line 1") && error.contains("colour"), "{error}");
    }

    #[test]
    fn a_setting_that_means_nothing_is_named() {
        let cases = [
            (MANUAL.replace("\"/w\"", "\"w\""), "`workspace`"),
            (MANUAL.replace("use = \"me\"", "use = \"you\""), "the routes are: me"),
            (MANUAL.replace("\"manual\"", "\"script\""), "`routes.me.script`"),
            (MANUAL.replace("kind = \"manual\"", "model = \"m\""), "`routes.me.base_url`"),
            (MANUAL.replace("kind = \"manual\"", "base_url = \"ftp://x\""), "http://"),
            (MANUAL.replace("kind = \"manual\"", "base_url = \"http://x/v1\""), "`routes.me.model`"),
            (format!("{MANUAL}attempts = 0\n"), "`routes.me.attempts`"),
            (format!("{MANUAL}[limits]\nsteps_per_turn = 0\n"), "`limits.steps_per_turn`"),
            (format!("{MANUAL}[sandbox]\nmemory_max = \"2 GB\"\n"), "`sandbox.memory_max`"),
            (format!("{MANUAL}[sandbox]\ntasks_max = 0\n"), "`sandbox.tasks_max`"),
            (format!("{MANUAL}[sandbox]\nread_only = [\"x\"]\n"), "`sandbox.read_only`"),
        ];
        for (text, expected) in cases {
            let error = parse(&text).unwrap_err();

            assert!(error.contains(expected), "{error}");
        }
    }
}
