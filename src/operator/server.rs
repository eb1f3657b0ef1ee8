//! Connections: who is let in, what is read, and what a client that does not read costs (itself).
//!
//! Calls of one connection run one after another, and nothing is read ahead of them, so a
//! connection holds at most one message and one page. Must not know what the methods do.

use serde::Serialize;
use serde_json::json;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::fault::Fault;
use super::listener::Listener;
use super::message::{self, Call, Inbox};
use super::methods::Operator;
use crate::limits;
use crate::session::Host;

/// How often a connection looks whether a peer that stopped sending has left altogether.
const GONE_POLL_MS: u64 = 250;
/// Pause after a failed `accept`, such as one without a free descriptor.
const ACCEPT_PAUSE_MS: u64 = 100;

/// Who may speak.
#[derive(Clone)]
pub struct Admission {
    /// The user whose host this is: besides root the only one that may speak. `None` where the socket's
    /// mode and group say who may.
    pub uid: Option<u32>,
    /// Whether a process is inside a worker of this host.
    pub inside_worker: Arc<dyn Fn(u32) -> bool + Send + Sync>,
}

/// What answers the calls of one Varlink interface.
pub trait Service: Send + Sync + 'static {
    /// The interface's name.
    const INTERFACE: &'static str;
    /// The interface's description in Varlink's own language.
    const DESCRIPTION: &'static str;

    /// Answers one call, by zero or more continuing replies and a last one, or by a fault.
    fn call(&self, call: Call, replies: &mut Replies<'_>)
    -> impl Future<Output = Result<(), CallEnd>> + Send;
}

/// Why a call ended without its last reply.
#[derive(Debug)]
pub enum CallEnd {
    /// With an error for the caller.
    Fault(Fault),
    /// The caller has left, or does not read.
    Gone,
}

impl From<Fault> for CallEnd {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// A running server: it owns every connection, and none outlives [`Server::stop`].
#[derive(Debug)]
pub struct Server {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Server {
    /// Serves the operator's interface to this process's user and to root, or to the socket's group, but
    /// to nobody inside a worker.
    pub fn start(
        listener: Listener,
        host: Host,
        inside_worker: Arc<dyn Fn(u32) -> bool + Send + Sync>,
    ) -> Self {
        let uid = listener.owner();
        Self::with(listener, Operator::new(host), Admission { uid, inside_worker })
    }

    /// Serves any interface to whom `admission` lets in.
    pub fn with<S: Service>(listener: Listener, service: S, admission: Admission) -> Self {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            if let Err(error) = accept(listener, Arc::new(service), admission, stopped).await {
                tracing::error!(%error, "the operator socket cannot be served");
            }
        });
        Self { stop, task }
    }

    /// Accepts no more, tells streams and running cells' callers that the host is stopping, and
    /// returns when every connection is closed: within [`limits::OPERATOR_DRAIN_MS_MAX`].
    pub async fn stop(self) {
        // Without a receiver the task has ended, and there is nothing to tell.
        let _ = self.stop.send(true);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the operator's server ended badly");
        }
    }
}

async fn accept<S: Service>(
    listener: Listener,
    service: Arc<S>,
    admission: Admission,
    mut stop: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let socket = listener.socket.try_clone()?;
    socket.set_nonblocking(true)?;
    let socket = tokio::net::UnixListener::from_std(socket)?;
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            () = stopped(&mut stop) => break,
            accepted = socket.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) if connections.len() >= limits::OPERATOR_CONNECTIONS_MAX => turn_away(&stream),
            Ok((stream, _)) => {
                let (service, admission, stop) = (Arc::clone(&service), admission.clone(), stop.clone());
                connections.spawn(async move { converse(stream, &*service, &admission, stop).await });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept an operator's connection");
                tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
            }
        }
    }
    drop(socket);
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(Duration::from_millis(limits::OPERATOR_DRAIN_MS_MAX), drained).await.is_err() {
        tracing::warn!(connections = connections.len(), "operator connections are cut off");
        connections.shutdown().await;
    }
    Ok(())
}

/// Returns when the host stops; a sender that is gone means the same.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Says `Busy` without waiting: an empty socket buffer has room for it.
fn turn_away(stream: &UnixStream) {
    let limit = limits::OPERATOR_CONNECTIONS_MAX;
    let busy = Fault::Busy(format!("the host has {limit} connections, which is its limit"));
    // Whoever cannot take even this is turned away all the same.
    let _ = stream.try_write(&message::error_reply(&busy));
}

async fn converse<S: Service>(
    stream: UnixStream,
    service: &S,
    admission: &Admission,
    mut stop: watch::Receiver<bool>,
) {
    let last_words = match admission.check(&stream) {
        Ok(()) => answer_calls(&stream, service, &mut stop).await,
        Err(fault) => Some(fault),
    };
    if let Some(fault) = last_words {
        if write(&stream, &message::error_reply(&fault)).await.is_ok() {
            linger(&stream).await;
        }
    }
}

/// Answers until the client leaves; a fault that it returns is the connection's last message.
async fn answer_calls<S: Service>(
    stream: &UnixStream,
    service: &S,
    stop: &mut watch::Receiver<bool>,
) -> Option<Fault> {
    let mut inbox = Inbox::new(limits::OPERATOR_MESSAGE_BYTES_MAX);
    loop {
        let received = tokio::select! {
            received = receive(stream, &mut inbox) => received,
            () = stopped(stop) => return None,
        };
        let call = match received {
            Received::Message(bytes) => match Call::parse(&bytes) {
                Ok(call) => call,
                Err(fault) => return Some(fault),
            },
            Received::TooLarge(error) => return Some(Fault::TooLarge(error.to_string())),
            Received::End => return None,
        };
        let mut replies = Replies { stream, stop: stop.clone(), oneway: call.oneway };
        let ended = match call.interface.as_str() {
            "org.varlink.service" => introspect::<S>(call, &mut replies).await,
            interface if interface == S::INTERFACE => service.call(call, &mut replies).await,
            _ => Err(Fault::InterfaceNotFound(call.interface).into()),
        };
        match ended {
            Ok(()) => {}
            Err(CallEnd::Fault(fault)) => {
                if replies.write(&message::error_reply(&fault)).await.is_err() {
                    return None;
                }
            }
            Err(CallEnd::Gone) => return None,
        }
    }
}

enum Received {
    Message(Vec<u8>),
    TooLarge(message::MessageTooLarge),
    End,
}

async fn receive(stream: &UnixStream, inbox: &mut Inbox) -> Received {
    let mut chunk = vec![0; 16 * 1024];
    loop {
        match inbox.take() {
            Ok(Some(message)) => return Received::Message(message),
            Ok(None) => {}
            Err(error) => return Received::TooLarge(error),
        }
        if stream.readable().await.is_err() {
            return Received::End;
        }
        match stream.try_read(&mut chunk) {
            Ok(0) => return Received::End,
            Ok(count) => inbox.push(&chunk[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return Received::End,
        }
    }
}

/// Writes within the time that a client has for reading.
async fn write(stream: &UnixStream, mut bytes: &[u8]) -> Result<(), CallEnd> {
    let all = async {
        while !bytes.is_empty() {
            stream.writable().await?;
            match stream.try_write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    match tokio::time::timeout(Duration::from_millis(limits::OPERATOR_WRITE_MS_MAX), all).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(CallEnd::Gone),
        Err(_) => {
            tracing::warn!(limit_ms = limits::OPERATOR_WRITE_MS_MAX, "an operator's client does not read");
            Err(CallEnd::Gone)
        }
    }
}

/// Lets a client that is still sending finish and read our last message: a close with unread input
/// would reset the connection under it.
async fn linger(stream: &UnixStream) {
    // A socket that cannot be shut down is closed already.
    let _ = rustix::net::shutdown(stream, rustix::net::Shutdown::Write);
    let drain = async {
        let mut chunk = vec![0; 64 * 1024];
        while stream.readable().await.is_ok() {
            match stream.try_read(&mut chunk) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    };
    // Out of time is as good as done.
    let _ = tokio::time::timeout(Duration::from_millis(limits::OPERATOR_LINGER_MS_MAX), drain).await;
}

impl Admission {
    fn check(&self, stream: &UnixStream) -> Result<(), Fault> {
        let peer = stream
            .peer_cred()
            .map_err(|_| Fault::PermissionDenied("the system does not say who calls".to_owned()))?;
        if let Some(uid) = self.uid.filter(|uid| peer.uid() != *uid && peer.uid() != 0) {
            let message = format!("this host belongs to uid {uid}, and uid {} calls", peer.uid());
            return Err(Fault::PermissionDenied(message));
        }
        // A peer without a number is outside our process namespace, and our workers are inside.
        let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid != 0);
        match pid {
            Some(pid) if (self.inside_worker)(pid) => {
                let message = format!("process {pid} is inside a worker: an agent is not its own operator");
                Err(Fault::PermissionDenied(message))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Where a call's replies go.
pub struct Replies<'a> {
    stream: &'a UnixStream,
    stop: watch::Receiver<bool>,
    oneway: bool,
}

impl Replies<'_> {
    /// Sends a reply that others follow.
    pub async fn more(&mut self, parameters: &(impl Serialize + Sync)) -> Result<(), CallEnd> {
        self.send(parameters, true).await
    }

    /// Sends the last reply.
    pub async fn last(&mut self, parameters: &(impl Serialize + Sync)) -> Result<(), CallEnd> {
        self.send(parameters, false).await
    }

    /// Returns when the caller can read no more replies. Never for a oneway call: its caller has
    /// left on purpose.
    pub async fn gone(&self) {
        let poll = Duration::from_millis(GONE_POLL_MS);
        // The end of the caller's sending is not its end: `printf ... | socat` still reads.
        while !self.oneway && self.stream.ready(Interest::READABLE).await.is_ok() {
            match self.stream.ready(Interest::WRITABLE).await {
                Ok(ready) if ready.is_write_closed() => return,
                Ok(_) => tokio::time::sleep(poll).await,
                Err(_) => return,
            }
        }
        if self.oneway {
            std::future::pending::<()>().await;
        }
    }

    /// Returns when the host is on its way down.
    pub async fn stopping(&self) {
        stopped(&mut self.stop.clone()).await;
    }

    async fn send(&mut self, parameters: &(impl Serialize + Sync), continues: bool) -> Result<(), CallEnd> {
        let bytes = message::reply(parameters, continues)
            .map_err(|error| Fault::Internal(format!("a reply cannot be written as JSON: {error}")))?;
        self.write(&bytes).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), CallEnd> {
        if self.oneway { Ok(()) } else { write(self.stream, bytes).await }
    }
}

/// `org.varlink.service`, which every Varlink service has.
async fn introspect<S: Service>(call: Call, replies: &mut Replies<'_>) -> Result<(), CallEnd> {
    let mut parameters = call.parameters;
    match call.method.as_str() {
        "GetInfo" => {
            parameters.finish()?;
            let info = json!({
                "vendor": "klbr",
                "product": "klbr",
                "version": env!("CARGO_PKG_VERSION"),
                "url": env!("CARGO_PKG_HOMEPAGE"),
                "interfaces": ["org.varlink.service", S::INTERFACE],
            });
            replies.last(&info).await
        }
        "GetInterfaceDescription" => {
            let interface: String = parameters.required("interface")?;
            parameters.finish()?;
            let description = match interface.as_str() {
                "org.varlink.service" => include_str!("org.varlink.service.varlink"),
                name if name == S::INTERFACE => S::DESCRIPTION,
                _ => return Err(Fault::InterfaceNotFound(interface).into()),
            };
            replies.last(&json!({"description": description})).await
        }
        _ => Err(Fault::MethodNotFound(format!("{}.{}", call.interface, call.method)).into()),
    }
}
