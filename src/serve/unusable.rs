//! A host that cannot start, and says so to everybody who asks.
//!
//! A service manager that holds the socket would start it again for every caller, give up after a few,
//! and leave the callers without a word.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::signals::{Signals, Wish};
use super::{ServeError, ServeOptions, chain};
use crate::init::{self, InitOptions};
use crate::notice;
use crate::operator::fault::Fault;
use crate::operator::listener::Listener;
use crate::operator::message::Call;
use crate::operator::server::{Admission, CallEnd, Replies, Server, Service};
use crate::systemd::notify;

/// After a caller was told, and before the next attempt.
const PAUSE: Duration = Duration::from_millis(500);

/// Answers every call with the error. Returns when it is time for another attempt, or to stop.
pub(super) async fn answer(listener: Listener, error: &ServeError, signals: &mut Signals) -> Wish {
    let problem = chain(error);
    tracing::error!(message_id = notice::UNUSABLE, "{problem}");
    let told = Arc::new(Notify::new());
    let service = Unusable { problem: problem.clone(), told: Arc::clone(&told) };
    // Nothing runs that could be inside a worker.
    let admission = Admission { uid: listener.owner(), inside_worker: Arc::new(|_| false) };
    let server = Server::with(listener, service, admission);
    notify::ready(&format!("unusable: {problem}"));
    let wish = tokio::select! {
        wish = signals.next() => wish,
        () = alive() => Wish::Reload,
        () = async {
            told.notified().await;
            tokio::time::sleep(PAUSE).await;
        } => Wish::Reload,
    };
    if wish == Wish::Stop {
        notify::stopping("stopping");
    }
    server.stop().await;
    wish
}

/// A host that answers is no hanging one. Never ends.
async fn alive() {
    let Some(every) = notify::watchdog() else { return std::future::pending().await };
    loop {
        notify::alive();
        tokio::time::sleep(every / 3).await;
    }
}

/// Makes what a first start needs, where that is what was missing: the unit's own `klbr init` ran with
/// the configuration that has been mended since.
pub(super) async fn initialise(options: &ServeOptions) {
    let made = InitOptions {
        config: options.config.clone(),
        data: options.data.clone(),
        workspace: None,
        config_only: false,
    };
    match tokio::task::spawn_blocking(move || init::init(&made)).await {
        Ok(Ok(_)) => tracing::info!(data = %options.data.display(), "made what was missing"),
        // The next attempt to start says it to whoever asks.
        Ok(Err(error)) => tracing::error!("{}", chain(&error)),
        Err(error) => tracing::error!(%error, "klbr init"),
    }
}

struct Unusable {
    problem: String,
    told: Arc<Notify>,
}

impl Service for Unusable {
    const INTERFACE: &'static str = crate::operator::INTERFACE;
    const DESCRIPTION: &'static str = crate::operator::DESCRIPTION;

    async fn call(&self, _call: Call, _replies: &mut Replies<'_>) -> Result<(), CallEnd> {
        self.told.notify_one();
        Err(Fault::Unusable(self.problem.clone()).into())
    }
}
