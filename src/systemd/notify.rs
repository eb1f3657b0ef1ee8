//! What the service manager is told: ready, what runs, alive, stopping.

use std::time::Duration;

use sd_notify::NotifyState;

/// Says that the host is ready, and what runs.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Says what runs and waits.
pub fn status(status: &str) {
    tell(&[NotifyState::Status(status)]);
}

/// Asks for more time until the host is ready.
pub fn extend(time: Duration, status: &str) {
    let usec = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    tell(&[NotifyState::ExtendTimeoutUsec(usec), NotifyState::Status(status)]);
}

/// Says that the configuration is read again; [`ready`] ends that.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "the service manager is not told of a reload"),
    }
}

/// Says that the host is on its way down.
pub fn stopping(status: &str) {
    tell(&[NotifyState::Stopping, NotifyState::Status(status)]);
}

/// Says that the host is alive.
pub fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// How often the manager wants to hear that; `None` where it does not watch.
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager could not be told");
    }
}
