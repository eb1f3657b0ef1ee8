//! Routes to a model: HTTP, and two that need no network.
//!
//! Must not know what a session is, or what the text means.

mod failure;
mod http;
mod key;
mod offline;
mod request;
mod retry;
pub mod sse;
pub mod stream;
pub mod usage;

pub use failure::{Failure, FailureClass};
pub use key::ApiKey;

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use crate::cell::OutputRecord;
use crate::config::{RouteConfig, RouteKind};
use crate::event::{CellStatus, ToolCall, Usage};

/// Why a route cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// The named variable is not set.
    #[error("route {route}: the environment has no {variable}, which api_key_env names")]
    NoVariable {
        /// The route.
        route: String,
        /// The variable.
        variable: String,
    },
    /// A credential is named, and no service manager gave any.
    #[error(
        "route {route}: the service manager gave no credentials; give the service LoadCredential={credential}:PATH, \
         which api_key_credential names"
    )]
    NoCredentials {
        /// The route.
        route: String,
        /// The credential.
        credential: String,
    },
    /// The named credential cannot be read.
    #[error(
        "route {route}: the credential {path} cannot be read; give it to the service with LoadCredential="
    )]
    Credential {
        /// The route.
        route: String,
        /// Its file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The key has characters that no header may carry.
    #[error("route {route}: the key from {from} is empty or has characters that a header cannot carry")]
    Key {
        /// The route.
        route: String,
        /// The variable or file.
        from: String,
    },
    /// The script cannot be read.
    #[error("route {route}: the script {path} cannot be read")]
    Script {
        /// The route.
        route: String,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line of the script is not an answer.
    #[error("route {route}: {path} line {line} is not {{\"text\", \"code\"}}: {problem}")]
    ScriptLine {
        /// The route.
        route: String,
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// A setting is missing that the configuration should have been refused without.
    #[error("route {route}: {setting} is missing")]
    Missing {
        /// The route.
        route: String,
        /// The setting.
        setting: &'static str,
    },
    /// An option cannot be sent.
    #[error("route {route}: the options cannot be written as JSON: {problem}")]
    Options {
        /// The route.
        route: String,
        /// What is wrong.
        problem: String,
    },
}

/// One question to a model.
#[derive(Debug, Clone)]
pub struct Question {
    /// The `messages` field, a JSON array: sent byte for byte.
    pub messages: Arc<str>,
    /// The `tools` field, a JSON array: sent byte for byte; empty is not sent.
    pub tools: &'static str,
    /// What entered the transcript since the model's last response: offline routes read this.
    pub latest: Vec<Latest>,
    /// Answers that this route has given in this session.
    pub answered: u64,
}

/// Something that entered a transcript.
#[derive(Debug, Clone, PartialEq)]
pub enum Latest {
    /// Somebody said something.
    Input {
        /// Exactly what arrived.
        text: String,
    },
    /// A cell ended.
    CellResult {
        /// How.
        status: CellStatus,
        /// What it wrote.
        output: Vec<OutputRecord>,
        /// Its traceback.
        error: Option<String>,
    },
    /// The session woke without an input.
    Wake {
        /// What the model is told.
        text: String,
    },
    /// The host observed something, or refused a call.
    Note {
        /// What the model is told.
        text: String,
    },
}

/// A model's whole answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Its text; empty where there was none.
    pub text: String,
    /// The reasoning that the route showed.
    pub reasoning: Option<String>,
    /// Its calls.
    pub calls: Vec<ToolCall>,
    /// As the route sent it.
    pub finish_reason: Option<String>,
    /// Counts that the route sent.
    pub usage: Usage,
    /// The usage object, as sent.
    pub usage_raw: Option<Value>,
    /// Milliseconds of the attempt that succeeded.
    pub duration_ms: u64,
    /// Attempts, that one included.
    pub attempts: u32,
}

/// A route. A cheap handle.
#[derive(Clone)]
pub struct Route {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    model: Option<String>,
    context_tokens: Option<u64>,
    kind: Kind,
}

enum Kind {
    Http(Box<http::Http>),
    Manual,
    Script(offline::Script),
}

impl Route {
    /// Makes a route of its configuration. Nothing is sent yet.
    pub fn open(name: &str, config: &RouteConfig, key: Option<ApiKey>) -> Result<Self, RouteError> {
        let kind = match config.kind {
            RouteKind::Http => Kind::Http(Box::new(http::Http::new(name, config, key)?)),
            RouteKind::Manual => Kind::Manual,
            RouteKind::Script => {
                let missing = || RouteError::Missing { route: name.to_owned(), setting: "script" };
                let path = config.script.as_deref().ok_or_else(missing)?;
                Kind::Script(offline::Script::read(name, path)?)
            }
        };
        let inner = Inner {
            name: name.to_owned(),
            model: config.model.clone(),
            context_tokens: config.context_tokens,
            kind,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Its name in the configuration.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The model asked for.
    pub fn model(&self) -> Option<&str> {
        self.inner.model.as_deref()
    }

    /// What answers.
    pub fn kind(&self) -> RouteKind {
        match self.inner.kind {
            Kind::Http(_) => RouteKind::Http,
            Kind::Manual => RouteKind::Manual,
            Kind::Script(_) => RouteKind::Script,
        }
    }

    /// Size of the model's context, where it is declared.
    pub fn context_tokens(&self) -> Option<u64> {
        self.inner.context_tokens
    }

    /// Whether the server answers and takes the key, asked once for its list of models. A server that
    /// has no such list answers too.
    pub async fn reach(&self) -> Result<(), Failure> {
        match &self.inner.kind {
            Kind::Http(http) => http.reach().await,
            Kind::Manual | Kind::Script(_) => Ok(()),
        }
    }

    /// Asks, and asks again where that can help. Dropping the future ends the request.
    pub async fn ask(&self, question: Question) -> Result<Answer, Failure> {
        match &self.inner.kind {
            Kind::Http(http) => http.ask(&question).await,
            Kind::Manual => Ok(offline::manual(&question)),
            Kind::Script(script) => script.answer(question.answered),
        }
    }
}
