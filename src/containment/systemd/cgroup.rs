//! One control group: whether anything is in it, and the end of all that is.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::bus::Manager;

/// Where control groups are seen.
const ROOT: &str = "/sys/fs/cgroup";
/// A second look, should the kernel's notice be missed.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Pause between two attempts at killing.
const KILL_PAUSE: Duration = Duration::from_millis(20);

/// A control group of the unified hierarchy. One that is gone is empty.
#[derive(Debug, Clone)]
pub(super) struct ControlGroup {
    folder: PathBuf,
}

impl ControlGroup {
    /// The group of this name, as the service manager gives it: `/user.slice/...`.
    pub(super) fn of(name: &str) -> Self {
        Self { folder: Path::new(ROOT).join(name.trim_start_matches('/')) }
    }

    /// Whether a process is in it or below it.
    pub(super) fn is_populated(&self) -> bool {
        // The name of a unit that has no group any more is empty: that is the root, which is nobody's.
        self.folder != Path::new(ROOT)
            && std::fs::read_to_string(self.folder.join("cgroup.events"))
                .is_ok_and(|events| events.lines().any(|line| line == "populated 1"))
    }

    /// Waits until it is empty.
    pub(super) async fn emptied(&self) {
        #[expect(
            deprecated,
            reason = "the safe form; what is registered is an open file that nobody else closes"
        )]
        let watched = std::fs::File::open(self.folder.join("cgroup.events"))
            .and_then(|file| AsyncFd::with_interest(OwnedFd::from(file), Interest::PRIORITY));
        while self.is_populated() {
            match &watched {
                Ok(events) => {
                    let changed = tokio::time::timeout(LOOK_AGAIN, events.ready(Interest::PRIORITY)).await;
                    if let Ok(Ok(mut guard)) = changed {
                        guard.clear_ready();
                        // The kernel says it again only after it was read.
                        read_again(events.get_ref());
                    }
                }
                Err(_) => tokio::time::sleep(KILL_PAUSE).await,
            }
        }
    }

    /// Kills all that is in it, until nothing is.
    pub(super) async fn kill_until_empty(&self, unit: &str, manager: &Manager) {
        while self.is_populated() {
            // At once, where control groups are writable: not for a host that is a hardened unit itself.
            if std::fs::write(self.folder.join("cgroup.kill"), "1").is_err() {
                if let Err(error) = manager.kill(unit).await {
                    tracing::debug!(
                        klbr_unit = unit,
                        error = &error as &dyn std::error::Error,
                        "it is not killed by the manager"
                    );
                    self.kill_each();
                }
            }
            // Bounded by the kernel, not by us: what was killed and waits for a disk is still there.
            let _ = tokio::time::timeout(KILL_PAUSE, self.emptied()).await;
        }
    }

    /// Without anybody's help: each process by itself, again and again.
    fn kill_each(&self) {
        let listed = std::fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        for pid in
            listed.lines().filter_map(|line| line.parse().ok()).filter_map(rustix::process::Pid::from_raw)
        {
            // One that has ended meanwhile is what was wanted.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

fn read_again(events: &OwnedFd) {
    // Its content is read by path: this only tells the kernel that the news were seen.
    let _ = rustix::io::pread(events, &mut [0_u8; 128], 0);
}
