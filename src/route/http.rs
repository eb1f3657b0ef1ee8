//! OpenAI-compatible chat completions over HTTP, streamed.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap};
use reqwest::{Client, Response};
use serde_json::Value;

use super::failure::{Failure, FailureClass, class_of, unsupported_parameter};
use super::key::ApiKey;
use super::request::Template;
use super::retry::{Next, jitter, next, retry_after_ms};
use super::sse::SseDecoder;
use super::stream::Reading;
use super::{Answer, Question, RouteError};
use crate::config::RouteConfig;
use crate::limits::{ROUTE_BODY_BYTES_MAX, ROUTE_ERROR_BYTES_MAX};

/// Longest time to wait when only the server's presence is asked for.
const REACH_MAX: Duration = Duration::from_secs(10);

/// One endpoint.
pub(super) struct Http {
    name: String,
    url: String,
    template: Template,
    key: Option<ApiKey>,
    connect: Duration,
    idle: Duration,
    total: Duration,
    attempts: u32,
    /// Made at the first question: an idle host does not carry certificates and buffers.
    client: OnceLock<Client>,
}

impl Http {
    pub(super) fn new(name: &str, config: &RouteConfig, key: Option<ApiKey>) -> Result<Self, RouteError> {
        let missing = || RouteError::Missing { route: name.to_owned(), setting: "base_url" };
        let base = config.base_url.as_deref().ok_or_else(missing)?;
        Ok(Self {
            name: name.to_owned(),
            url: format!("{}/chat/completions", base.trim_end_matches('/')),
            template: Template::new(name, config)?,
            key,
            connect: Duration::from_millis(config.connect_timeout_ms),
            idle: Duration::from_millis(config.idle_timeout_ms),
            total: Duration::from_millis(config.total_timeout_ms),
            attempts: config.attempts,
            client: OnceLock::new(),
        })
    }

    /// Asks until there is an answer, or asking again cannot help.
    pub(super) async fn ask(&self, question: &Question) -> Result<Answer, Failure> {
        let body = self.template.body(question);
        let mut attempt = 1;
        loop {
            let failure = match self.attempt(body.clone()).await {
                Ok(answer) => return Ok(Answer { attempts: attempt, ..answer }),
                Err(failure) => Failure { attempts: attempt, ..failure },
            };
            match next(&failure, attempt, self.attempts, jitter()) {
                Next::GiveUp => return Err(self.explain(failure)),
                Next::Pause(pause) => {
                    let class = failure.class.as_str();
                    tracing::info!(route = %self.name, class, attempt, pause_ms = pause.as_millis(), "asking again");
                    tokio::time::sleep(pause).await;
                }
            }
            attempt += 1;
        }
    }

    /// Whether the server answers, and takes the key.
    pub(super) async fn reach(&self) -> Result<(), Failure> {
        let models = format!("{}/models", self.url.trim_end_matches("/chat/completions"));
        let mut request = self.client()?.get(models);
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key.authorization());
        }
        let response = match tokio::time::timeout(REACH_MAX.min(self.idle), request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.explain(self.broken(&error))),
            Err(_) => {
                let message = format!("{} said nothing for {} s", self.url, REACH_MAX.as_secs());
                return Err(Failure::new(FailureClass::TimedOut, message));
            }
        };
        match response.status().as_u16() {
            300..=399 | 401..=403 | 500..=599 => Err(self.explain(self.refused(response).await)),
            _ => Ok(()),
        }
    }

    async fn attempt(&self, body: String) -> Result<Answer, Failure> {
        let started = Instant::now();
        let reading = match tokio::time::timeout(self.total, self.read(body)).await {
            Ok(reading) => reading?,
            Err(_) => {
                let message =
                    format!("no whole answer within {} ms (total_timeout_ms)", self.total.as_millis());
                return Err(Failure::new(FailureClass::TimedOut, message));
            }
        };
        if let Some(failure) = reading.failure() {
            return Err(failure);
        }
        Ok(Answer {
            usage: reading.usage(),
            text: reading.text,
            reasoning: reading.reasoning,
            calls: reading.calls,
            finish_reason: reading.finish_reason,
            usage_raw: reading.usage_raw,
            duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            attempts: 1,
        })
    }

    async fn read(&self, body: String) -> Result<Reading, Failure> {
        let response = self.send(body).await?;
        if response.status().is_success() {
            self.read_answer(response).await
        } else {
            Err(self.refused(response).await)
        }
    }

    async fn send(&self, body: String) -> Result<Response, Failure> {
        let client = self.client()?;
        let mut request = client.post(&self.url).header(CONTENT_TYPE, "application/json").body(body);
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key.authorization());
        }
        match tokio::time::timeout(self.idle, request.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(self.broken(&error)),
            Err(_) => Err(self.silent()),
        }
    }

    /// Reads an answer of either kind: what was asked for is a stream, and some servers send a body.
    async fn read_answer(&self, mut response: Response) -> Result<Reading, Failure> {
        let is_json = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|kind| kind.trim_start().starts_with("application/json"));
        let mut reading = Reading::default();
        let mut decoder = SseDecoder::default();
        let (mut whole, mut bytes) = (Vec::new(), 0);
        loop {
            let piece = match tokio::time::timeout(self.idle, response.chunk()).await {
                Ok(Ok(Some(piece))) => piece,
                Ok(Ok(None)) => break,
                Ok(Err(error)) => return Err(self.broken_off(&reading, &error)),
                Err(_) => return Err(self.silent()),
            };
            bytes += piece.len();
            if bytes > ROUTE_BODY_BYTES_MAX {
                let message = format!("the answer is longer than {ROUTE_BODY_BYTES_MAX} bytes");
                return Err(Failure::new(FailureClass::BadAnswer, message));
            }
            if is_json {
                whole.extend_from_slice(&piece);
                continue;
            }
            let events = decoder
                .push(&piece)
                .map_err(|error| Failure::new(FailureClass::BadAnswer, error.to_string()))?;
            for event in events {
                if self.take(&mut reading, &event)? == Stream::Done {
                    return Ok(reading);
                }
            }
        }
        if is_json {
            let body = serde_json::from_slice(&whole).map_err(|error| {
                Failure::new(FailureClass::BadAnswer, format!("the answer is not JSON: {error}"))
            })?;
            reading.take_whole(&body);
        } else if let Some(event) = decoder.finish() {
            self.take(&mut reading, &event)?;
        }
        Ok(reading)
    }

    fn take(&self, reading: &mut Reading, event: &[u8]) -> Result<Stream, Failure> {
        if event.trim_ascii() == b"[DONE]" {
            return Ok(Stream::Done);
        }
        if event.trim_ascii().is_empty() {
            return Ok(Stream::GoesOn);
        }
        let piece: Value = serde_json::from_slice(event).map_err(|error| {
            let message = format!("an event of {}'s stream is not JSON: {error}", self.url);
            Failure::new(FailureClass::BadAnswer, message)
        })?;
        reading.take_piece(&piece);
        Ok(Stream::GoesOn)
    }

    async fn refused(&self, mut response: Response) -> Failure {
        let status = response.status().as_u16();
        let pause = {
            let headers: &HeaderMap = response.headers();
            let header = |name: &str| headers.get(name)?.to_str().ok().map(str::to_owned);
            retry_after_ms(header, SystemTime::now())
        };
        let mut body = Vec::new();
        while let Ok(Ok(Some(piece))) = tokio::time::timeout(self.idle, response.chunk()).await {
            body.extend_from_slice(&piece);
            if body.len() > ROUTE_ERROR_BYTES_MAX {
                body.truncate(ROUTE_ERROR_BYTES_MAX);
                break;
            }
        }
        let parsed: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        // Some servers send a list with the object in it.
        let object = if parsed.is_array() { &parsed[0] } else { &parsed };
        let error = if object["error"].is_object() { &object["error"] } else { object };
        let class = class_of(status, error);
        let words = error["message"].as_str().or_else(|| parsed["error"].as_str());
        let words = words.map_or_else(|| String::from_utf8_lossy(&body).into_owned(), str::to_owned);
        let mut message = format!("{} answered {status}: {}", self.url, self.safe(words.trim()));
        if let Some(parameter) = unsupported_parameter(error) {
            message.push_str(&format!("; take `{parameter}` out of the route's options"));
        }
        Failure { http_status: Some(status), retry_after_ms: pause, ..Failure::new(class, message) }
    }

    /// A server may repeat what it was sent: not the key, and not at length.
    fn safe(&self, words: &str) -> String {
        let words = self.key.as_ref().map_or_else(|| words.to_owned(), |key| key.redact(words));
        words.chars().take(600).collect()
    }

    fn broken(&self, error: &reqwest::Error) -> Failure {
        let class = if error.is_timeout() { FailureClass::TimedOut } else { FailureClass::Unreachable };
        Failure::new(class, format!("{} cannot be reached: {}", self.url, innermost(error)))
    }

    fn broken_off(&self, reading: &Reading, error: &reqwest::Error) -> Failure {
        // An answer that was whole before the connection broke is an answer; the caller's check of
        // the finish reason would say so, but the usage may be missing: ask again.
        let came =
            if reading.text.is_empty() && reading.calls.is_empty() { "before" } else { "in the middle of" };
        let message = format!("{} broke off {came} its answer: {}", self.url, innermost(error));
        Failure::new(FailureClass::StreamError, message)
    }

    fn silent(&self) -> Failure {
        let message = format!("{} said nothing for {} ms (idle_timeout_ms)", self.url, self.idle.as_millis());
        Failure::new(FailureClass::TimedOut, message)
    }

    /// The last failure, with what to do about it.
    fn explain(&self, mut failure: Failure) -> Failure {
        let advice = match failure.class {
            FailureClass::Unreachable => "; check base_url, and that the server runs",
            FailureClass::Unauthorized if self.key.is_none() => "; set api_key_env or api_key_credential",
            FailureClass::Unauthorized => "; check the key, and what it may use",
            FailureClass::QuotaExhausted => "; the account has to be looked at",
            FailureClass::RateLimited if failure.retry_after_ms.is_some_and(|ms| ms >= 1_000) => {
                let seconds = failure.retry_after_ms.unwrap_or(0) / 1_000;
                failure.message.push_str(&format!("; the server asks to come back in {seconds} s"));
                ""
            }
            FailureClass::TimedOut
            | FailureClass::RateLimited
            | FailureClass::Overloaded
            | FailureClass::ContextOverflow
            | FailureClass::UnsupportedParameter
            | FailureClass::InvalidRequest
            | FailureClass::ContentFiltered
            | FailureClass::StreamError
            | FailureClass::BadAnswer
            | FailureClass::ScriptEnded => "",
        };
        failure.message.push_str(advice);
        failure
    }

    fn client(&self) -> Result<&Client, Failure> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        // Fails only where a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .user_agent(concat!("klbr/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(self.connect)
            // A redirect would carry the request, and perhaps the key, where nobody configured.
            .redirect(reqwest::redirect::Policy::none())
            // One long-lived connection is kept; a machine that sleeps finds it dead and makes another.
            .pool_max_idle_per_host(1)
            .pool_idle_timeout(Duration::from_secs(60))
            .build()
            .map_err(|error| {
                Failure::new(
                    FailureClass::Unreachable,
                    format!("the HTTP client cannot be made: {}", innermost(&error)),
                )
            })?;
        Ok(self.client.get_or_init(|| client))
    }
}

#[derive(PartialEq, Eq)]
enum Stream {
    GoesOn,
    Done,
}

/// The last cause says what happened; those before it say where, and repeat the URL.
fn innermost(error: &reqwest::Error) -> String {
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
