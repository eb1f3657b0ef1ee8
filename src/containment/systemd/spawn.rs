//! Containment by the system's manager, for a host that may start nothing: `klbr-worker.socket` starts an
//! instance of the static `klbr-worker@.service` for every connection to it.
//!
//! What the sandbox is, the unit says and not the host; the host looks whether it is what was configured.
//! The unit that a connection belongs to is the manager's word about a process that the kernel names, never
//! the worker's own.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::UnixStream;

use super::bus::{Bus, Manager};
use super::cgroup::ControlGroup;
use super::ends::Ends;
use super::properties::Surroundings;
use super::{LIFELINE_GRACE, SLICE, UnitLife, mark, probe, stream};
use crate::config::Sandbox;
use crate::containment::{Boxed, Contained, Containment, ContainmentError, Launch, accepted};

/// The socket of `klbr-worker.socket`.
pub const SPAWN_SOCKET: &str = "/run/klbr-spawn.sock";
/// What its instances are named like.
const UNITS: &str = "klbr-worker@*.service";
/// Longest time from a connection to the first word of its unit.
const START_MAX: Duration = Duration::from_secs(20);

/// See the module.
pub struct SpawnedContainment {
    socket: PathBuf,
    program: PathBuf,
    data_tag: String,
    surroundings: Surroundings,
    manager: Arc<Manager>,
    unenforced: Vec<String>,
}

impl SpawnedContainment {
    /// Finds the manager and tries it with a throw-away unit.
    pub async fn new(
        data_tag: &str,
        sandbox: &Sandbox,
        surroundings: Surroundings,
    ) -> Result<Self, ContainmentError> {
        let program = std::env::current_exe()
            .map_err(|source| ContainmentError::SetUp { doing: "find this program's own file", source })?;
        let manager = Arc::new(Manager::connect(Bus::System).await?);
        let (socket, data_tag) = (PathBuf::from(SPAWN_SOCKET), data_tag.to_owned());
        let mut containment =
            Self { socket, program, data_tag, surroundings, manager, unenforced: Vec::new() };
        let unit = "klbr-gen-0-00000000".to_owned();
        let found =
            probe(&containment, unit, &containment.program, sandbox, &containment.surroundings).await?;
        containment.unenforced = found;
        Ok(containment)
    }

    async fn launch(&self, mut launch: Launch) -> Result<Contained, ContainmentError> {
        let failed = |source| ContainmentError::Start { unit: launch.unit.clone(), source };
        let (from_stdout, stdout) = stream().map_err(failed)?;
        let (from_stderr, stderr) = stream().map_err(failed)?;
        mark(&mut launch, &self.data_tag);
        let order = accepted::order(&launch).ok_or_else(|| {
            let problem = "its paths and variables have to be UTF-8, and short enough for one message";
            ContainmentError::Start { unit: launch.unit.clone(), source: std::io::Error::other(problem) }
        })?;
        let (connection, pid) = self.connect().await?;
        let (path, name) = self.manager.unit_of(pid).await?;
        if !is_instance(&name) {
            return Err(ContainmentError::Impostor { socket: self.socket.clone(), found: name });
        }
        // All before it is told what to run: it cannot end unheard.
        let ends = Ends::of(&self.manager, &path).await?;
        let group = ControlGroup::of(&self.manager.control_group(&name).await?);
        let lifeline = connection.into_std().map(OwnedFd::from);
        let lifeline = lifeline.map_err(|source| ContainmentError::Start { unit: name.clone(), source })?;
        let mut handed: Vec<BorrowedFd<'_>> = vec![stdout.as_fd(), stderr.as_fd()];
        handed.extend(launch.control.as_ref().map(|control| control.as_fd()));
        accepted::send(&lifeline, &order, &handed)
            .map_err(|source| ContainmentError::Start { unit: name.clone(), source })?;
        tracing::info!(klbr_unit = name, runs = launch.unit, "a unit of the system runs it");
        let manager = Arc::clone(&self.manager);
        let life = UnitLife { name, group, manager, lifeline: Some(lifeline), ends: Some(ends), ended: None };
        Ok(Contained { stdout: from_stdout, stderr: from_stderr, life: Box::new(life) })
    }

    /// A connection to a new unit, and the number of its main process.
    async fn connect(&self) -> Result<(UnixStream, u32), ContainmentError> {
        let unanswered = |source| ContainmentError::NoSpawner { socket: self.socket.clone(), source };
        let socket = rustix::net::socket_with(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|error| unanswered(error.into()))?;
        // Before there is anybody to say anything: who says it comes with it.
        rustix::net::sockopt::set_socket_passcred(&socket, true).map_err(|error| unanswered(error.into()))?;
        let address =
            rustix::net::SocketAddrUnix::new(&self.socket).map_err(|error| unanswered(error.into()))?;
        rustix::net::connect(&socket, &address).map_err(|error| unanswered(error.into()))?;
        let stream = std::os::unix::net::UnixStream::from(socket);
        stream.set_nonblocking(true).map_err(unanswered)?;
        let stream = UnixStream::from_std(stream).map_err(unanswered)?;
        let first = stream.async_io(Interest::READABLE, || accepted::who_is_there(&stream));
        let pid = tokio::time::timeout(START_MAX, first)
            .await
            .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
            .map_err(unanswered)?;
        let pid = pid.ok_or_else(|| unanswered(std::io::Error::other("nobody knows who it is")))?;
        Ok((stream, pid))
    }

    /// Ends what an earlier host left: nobody else has such units.
    async fn stop_units(&self) -> Result<usize, ContainmentError> {
        let mut stopped = 0;
        for name in self.manager.units_like(UNITS).await? {
            // One that has ended meanwhile is what was wanted.
            let Ok(group) = self.manager.control_group(&name).await else { continue };
            let group = ControlGroup::of(&group);
            stopped += usize::from(group.is_populated());
            let _ = tokio::time::timeout(LIFELINE_GRACE, group.emptied()).await;
            group.kill_until_empty(&name, &self.manager).await;
        }
        Ok(stopped)
    }
}

fn is_instance(name: &str) -> bool {
    name.starts_with("klbr-worker@") && name.ends_with(".service")
}

impl Containment for SpawnedContainment {
    fn name(&self) -> &'static str {
        "systemd"
    }

    fn unenforced(&self) -> Vec<String> {
        self.unenforced.clone()
    }

    fn hands_over(&self) -> bool {
        true
    }

    fn start(&self, launch: Launch) -> Boxed<'_, Result<Contained, ContainmentError>> {
        Box::pin(self.launch(launch))
    }

    fn stop_leftovers(&self) -> Boxed<'_, Result<usize, ContainmentError>> {
        Box::pin(self.stop_units())
    }

    fn stop_timeout(&self) -> Boxed<'_, Option<Duration>> {
        Box::pin(self.manager.stop_timeout_of(self.surroundings.unit.as_deref()))
    }

    /// Of another user and without a way to the socket: what can be seen of it is looked at all the same.
    fn holds(&self, pid: u32) -> bool {
        let group = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("cgroup"));
        group.is_ok_and(|group| group.contains(&format!("/{SLICE}/")))
    }
}
