//! What the service manager is told while a host runs: patience, that it is ready, alive, stopping.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::clock;
use crate::session::{Host, Status};
use crate::store::Store;
use crate::systemd::notify;

/// How often a manager is asked for more time while a host opens its log.
const PATIENCE_EVERY: Duration = Duration::from_secs(5);
/// The time that is asked for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Shortest time between two status lines.
const STATUS_PAUSE: Duration = Duration::from_millis(500);
/// Sessions that a status line names.
const STATUS_SESSIONS_MAX: usize = 8;

/// Asks for more time again and again until it is dropped: opening a large log after a crash may take
/// longer than a start may, and nothing else runs meanwhile.
pub(super) struct Patience {
    _until_dropped: Sender<()>,
}

impl Patience {
    pub(super) fn start() -> Self {
        let (until_dropped, dropped) = channel::<()>();
        let ask = move || {
            while dropped.recv_timeout(PATIENCE_EVERY) == Err(RecvTimeoutError::Timeout) {
                notify::extend(PATIENCE, "opening the log");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("klbr-patience".to_owned()).spawn(ask) {
            tracing::debug!(%error, "the manager is not asked for patience");
        }
        Self { _until_dropped: until_dropped }
    }
}

/// Tells the manager that the host is alive, each time after the log's writer has answered: a model
/// that takes long is no reason to start again, a log that cannot be written is.
pub(super) fn feed(store: Store) -> Option<Fed> {
    let every = notify::watchdog()? / 3;
    Some(Fed(tokio::spawn(async move {
        loop {
            if let Err(error) = store.write(|_| Ok(())).await {
                // The host ends by itself where the log has failed for good.
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the log does not answer the watchdog"
                );
                return;
            }
            notify::alive();
            tokio::time::sleep(every).await;
        }
    })))
}

/// Ends with the host.
pub(super) struct Fed(JoinHandle<()>);

impl Drop for Fed {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Keeps the unit's status line true: what each session does.
pub(super) fn show(host: Host, store: Store) -> Fed {
    Fed(tokio::spawn(async move {
        let mut head = store.head();
        let mut last = String::new();
        loop {
            head.borrow_and_update();
            if let Ok(status) = host.status().await {
                let line = line(&status);
                if line != last {
                    notify::status(&line);
                    last = line;
                }
            }
            tokio::time::sleep(STATUS_PAUSE).await;
            if head.changed().await.is_err() {
                return;
            }
        }
    }))
}

fn line(status: &Status) -> String {
    let sessions = status.sessions.iter().map(|session| {
        let until =
            session.wait_deadline_ms.map(|ms| format!(" until {}", clock::rfc3339(ms).unwrap_or_default()));
        format!("{} {}{}", session.id, session.state, until.unwrap_or_default())
    });
    let mut parts: Vec<String> = sessions.take(STATUS_SESSIONS_MAX).collect();
    if status.held > 0 {
        parts.push(format!("{} held", status.held));
    }
    parts.join(", ")
}
