//! The signals that end a host, and the one that makes it read its configuration again.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::ServeError;

/// Listening from the moment it is made.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// What somebody wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
}

impl Signals {
    pub(super) fn listen() -> Result<Self, ServeError> {
        let listen = |kind| signal(kind).map_err(ServeError::Runtime);
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    pub(super) async fn next(&mut self) -> Wish {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Wish::Stop,
            _ = self.interrupt.recv() => Wish::Stop,
            _ = self.hangup.recv() => Wish::Reload,
        }
    }
}
