//! Why a question got no answer, by what can be done about it.

use serde_json::Value;

/// A question without an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// What kind of failure.
    pub class: FailureClass,
    /// For the operator: what, where, what to do. No key, no text of the request.
    pub message: String,
    /// HTTP status, where there was an answer.
    pub http_status: Option<u16>,
    /// Attempts that were made.
    pub attempts: u32,
    /// When the route wants to be asked again, in milliseconds from now.
    pub retry_after_ms: Option<u64>,
}

/// The kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// No connection, or it broke before an answer came.
    Unreachable,
    /// No answer in time.
    TimedOut,
    /// The key is missing, wrong, or not allowed to do this.
    Unauthorized,
    /// Too many requests for now.
    RateLimited,
    /// The account's money or quota is used up.
    QuotaExhausted,
    /// The server is too busy, or broken.
    Overloaded,
    /// The request is larger than the model's context.
    ContextOverflow,
    /// The server does not know a parameter.
    UnsupportedParameter,
    /// The server refuses the request as it is.
    InvalidRequest,
    /// A filter ended the answer.
    ContentFiltered,
    /// The answer broke off, or the server put an error into it.
    StreamError,
    /// The answer is not what the protocol says.
    BadAnswer,
    /// The script has no line left.
    ScriptEnded,
}

impl FailureClass {
    /// The class's name in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed_out",
            Self::Unauthorized => "unauthorized",
            Self::RateLimited => "rate_limited",
            Self::QuotaExhausted => "quota_exhausted",
            Self::Overloaded => "overloaded",
            Self::ContextOverflow => "context_overflow",
            Self::UnsupportedParameter => "unsupported_parameter",
            Self::InvalidRequest => "invalid_request",
            Self::ContentFiltered => "content_filtered",
            Self::StreamError => "stream_error",
            Self::BadAnswer => "bad_answer",
            Self::ScriptEnded => "script_ended",
        }
    }

    /// Whether asking again may help.
    pub fn is_retryable(self) -> bool {
        match self {
            Self::Unreachable | Self::TimedOut | Self::RateLimited | Self::Overloaded | Self::StreamError => {
                true
            }
            Self::Unauthorized
            | Self::QuotaExhausted
            | Self::ContextOverflow
            | Self::UnsupportedParameter
            | Self::InvalidRequest
            | Self::ContentFiltered
            | Self::BadAnswer
            | Self::ScriptEnded => false,
        }
    }
}

impl Failure {
    /// A failure of one attempt.
    pub fn new(class: FailureClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), http_status: None, attempts: 1, retry_after_ms: None }
    }
}

/// What an answer with a status other than 2xx means. `error` is the body's `error` object, or the
/// body itself where it has none.
pub(super) fn class_of(status: u16, error: &Value) -> FailureClass {
    let words = [&error["code"], &error["type"], &error["message"], &error["status"]]
        .map(|value| value.as_str().unwrap_or_default().to_lowercase())
        .join(" ");
    let says = |needles: &[&str]| needles.iter().any(|needle| words.contains(needle));
    match status {
        401 | 403 => FailureClass::Unauthorized,
        402 => FailureClass::QuotaExhausted,
        429 if says(&["insufficient_quota", "billing", "exceeded your current quota", "credit"]) => {
            FailureClass::QuotaExhausted
        }
        429 => FailureClass::RateLimited,
        408 | 409 | 500..=599 => FailureClass::Overloaded,
        _ if says(CONTEXT_WORDS) => FailureClass::ContextOverflow,
        _ if status == 413 => FailureClass::ContextOverflow,
        _ if unsupported_parameter(error).is_some() => FailureClass::UnsupportedParameter,
        _ => FailureClass::InvalidRequest,
    }
}

/// How servers say that a request is larger than the context.
const CONTEXT_WORDS: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size",
    "context size",
    "context length",
    "context window",
    "maximum context",
    "prompt is too long",
    "too many tokens",
    "input is too long",
    "input token count",
];

/// The parameter that a server does not know, where it names one.
pub(super) fn unsupported_parameter(error: &Value) -> Option<String> {
    let message = error["message"].as_str().unwrap_or_default().to_lowercase();
    let complains =
        ["not supported", "unsupported", "unrecognized", "unknown parameter", "extra inputs", "unexpected"]
            .iter()
            .any(|needle| message.contains(needle));
    let parameter = error["param"].as_str().filter(|name| !name.is_empty())?;
    complains.then(|| parameter.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_class_is_what_the_server_meant() {
        let cases = [
            (401, json!({"message": "Incorrect API key"}), FailureClass::Unauthorized),
            (429, json!({"code": "rate_limit_exceeded"}), FailureClass::RateLimited),
            (429, json!({"code": "insufficient_quota"}), FailureClass::QuotaExhausted),
            (503, json!({}), FailureClass::Overloaded),
            (529, json!({"type": "overloaded_error"}), FailureClass::Overloaded),
            (400, json!({"type": "exceed_context_size_error"}), FailureClass::ContextOverflow),
            (400, json!({"code": "context_length_exceeded"}), FailureClass::ContextOverflow),
            (400, json!({"message": "x is not supported", "param": "x"}), FailureClass::UnsupportedParameter),
            (400, json!({"message": "bad"}), FailureClass::InvalidRequest),
            (404, json!({"message": "no such model"}), FailureClass::InvalidRequest),
        ];
        for (status, error, expected) in cases {
            assert_eq!(class_of(status, &error), expected, "{status} {error}");
        }
    }
}
