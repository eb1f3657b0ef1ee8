//! The other end: one connection to a host's operator socket.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::path::{Path, PathBuf};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::message::Inbox;
use crate::limits::OPERATOR_REPLY_BYTES_MAX;

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("no host can be reached at {path}")]
    NoHost {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The connection ended before the answer did.
    #[error("the host at {path} went away before it had answered")]
    Lost {
        /// The socket.
        path: PathBuf,
    },
    /// The host answered with an error.
    #[error("{}", refusal(name, message))]
    Refused {
        /// The qualified name of the error.
        name: String,
        /// What is wrong.
        message: String,
        /// What to do about it; empty where the host did not say.
        remedy: String,
    },
    /// What answers is not a host of this interface.
    #[error("what answers at {path} does not speak org.klbr.Operator: {problem}")]
    Foreign {
        /// The socket.
        path: PathBuf,
        /// What it said instead.
        problem: String,
    },
}

fn refusal(name: &str, message: &str) -> String {
    if message.is_empty() { format!("the host answered {name}") } else { message.to_owned() }
}

/// One connection. Its calls are answered one after another.
#[derive(Debug)]
pub struct Connection {
    path: PathBuf,
    stream: UnixStream,
    inbox: Inbox,
}

/// One reply of a call.
#[derive(Debug)]
pub struct Reply<T> {
    /// The parameters of the reply.
    pub parameters: T,
    /// Whether another one follows.
    pub continues: bool,
}

/// Whether a call takes several replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replies {
    /// Exactly one.
    One,
    /// One or more.
    Many,
}

impl Connection {
    /// Connects to a host.
    pub async fn open(path: &Path) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(path)
            .await
            .map_err(|source| ClientError::NoHost { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), stream, inbox: Inbox::new(OPERATOR_REPLY_BYTES_MAX) })
    }

    /// Calls a method of `org.klbr.Operator` that has one reply.
    pub async fn call<T: DeserializeOwned>(
        &mut self,
        method: &str,
        parameters: impl Serialize,
    ) -> Result<T, ClientError> {
        self.send(method, parameters, Replies::One).await?;
        Ok(self.reply().await?.parameters)
    }

    /// Returns once a host answers at all, whatever it is able to do.
    pub async fn answers(&mut self) -> Result<(), ClientError> {
        self.write("org.varlink.service.GetInfo", serde_json::json!({}), Replies::One).await;
        self.reply::<serde_json::Value>().await.map(|_| ())
    }

    /// Sends a call; its replies are taken by [`Connection::reply`].
    pub async fn send(
        &mut self,
        method: &str,
        parameters: impl Serialize,
        replies: Replies,
    ) -> Result<(), ClientError> {
        self.write(&format!("{}.{method}", super::INTERFACE), parameters, replies).await;
        Ok(())
    }

    async fn write(&mut self, method: &str, parameters: impl Serialize, replies: Replies) {
        let call = serde_json::json!({
            "method": method,
            "parameters": parameters,
            "more": replies == Replies::Many,
        });
        let mut bytes = call.to_string().into_bytes();
        bytes.push(0);
        // A host that turns us away answers and closes before it has read this: its answer says
        // more than the failed write, and without one the read finds the connection lost.
        let _ = self.stream.write_all(&bytes).await;
    }

    /// Takes the next reply. Leaving early loses nothing: the next call goes on with the same one.
    pub async fn reply<T: DeserializeOwned>(&mut self) -> Result<Reply<T>, ClientError> {
        #[derive(Deserialize)]
        struct Wire {
            error: Option<String>,
            parameters: Option<Box<RawValue>>,
            continues: Option<bool>,
        }
        let message = self.receive().await?;
        let wire: Wire = serde_json::from_slice(&message).map_err(|error| self.foreign(&error))?;
        let parameters = wire.parameters.as_deref().map_or("{}", RawValue::get);
        match wire.error {
            Some(name) => Err(refused(name, parameters)),
            None => Ok(Reply {
                parameters: serde_json::from_str(parameters).map_err(|error| self.foreign(&error))?,
                continues: wire.continues.unwrap_or(false),
            }),
        }
    }

    async fn receive(&mut self) -> Result<Vec<u8>, ClientError> {
        let mut chunk = vec![0; 64 * 1024];
        loop {
            match self.inbox.take() {
                Ok(Some(message)) => return Ok(message),
                Ok(None) => {}
                Err(error) => return Err(self.foreign(&error)),
            }
            match self.stream.read(&mut chunk).await {
                Ok(0) | Err(_) => return Err(ClientError::Lost { path: self.path.clone() }),
                Ok(count) => self.inbox.push(&chunk[..count]),
            }
        }
    }

    fn foreign(&self, problem: &dyn std::fmt::Display) -> ClientError {
        ClientError::Foreign { path: self.path.clone(), problem: problem.to_string() }
    }
}

fn refused(name: String, parameters: &str) -> ClientError {
    #[derive(Deserialize, Default)]
    struct Words {
        message: Option<String>,
        remedy: Option<String>,
        parameter: Option<String>,
    }
    let words: Words = serde_json::from_str(parameters).unwrap_or_default();
    let parameter =
        words.parameter.map(|parameter| format!("the host does not take the parameter `{parameter}`"));
    let message = words.message.or(parameter).unwrap_or_default();
    ClientError::Refused { name, message, remedy: words.remedy.unwrap_or_default() }
}
