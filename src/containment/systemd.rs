//! Containment by the user's service manager: a transient service per generation.
//!
//! The control group is what is killed and what is waited for: nothing leaves it, whatever it forks and
//! however it detaches, and killing it needs no bus. Inside runs the same shim as everywhere, whose
//! lifeline ends the unit when the host ends. The properties and their reasons: docs/decisions/0007-systemd.md.

mod bus;
mod cgroup;
mod ends;
mod properties;
mod spawn;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

use self::bus::{Bus, Manager};
use self::cgroup::ControlGroup;
use self::ends::Ends;
pub use self::properties::Surroundings;
pub use self::spawn::{SPAWN_SOCKET, SpawnedContainment};
use super::probe::Check;
use super::process::ProcessContainment;
use super::{
    Boxed, Contained, Containment, ContainmentError, DATA_VARIABLE, Exit, Launch, Life, UNIT_VARIABLE,
};
use crate::config::Sandbox;

/// The slice of all workers.
pub const SLICE: &str = "klbr-workers.slice";
/// What every unit of a generation is named like.
const UNITS: &str = "klbr-gen-*.service";
/// The first version that has `PrivatePIDs=`.
const PRIVATE_PIDS_SINCE: u32 = 257;
/// Time for the shim of a unit that the host has no rights in to end it, before the manager is asked.
const LIFELINE_GRACE: Duration = Duration::from_millis(200);
/// What is read of a probe.
const PROBE_BYTES_MAX: u64 = 65_536;
/// A unit name is used once.
static PROBES: AtomicU32 = AtomicU32::new(0);

/// See the module.
pub struct SystemdContainment {
    program: PathBuf,
    data_tag: String,
    sandbox: Sandbox,
    surroundings: Surroundings,
    manager: Arc<Manager>,
    /// Whether a worker sees its own processes only.
    private_pids: bool,
    /// What the probe found.
    unenforced: Vec<String>,
    /// What is left of a host that had no service manager is found by its environment still.
    last_line: ProcessContainment,
}

impl SystemdContainment {
    /// Finds the manager and tries it with a throw-away unit, sandbox and all.
    pub async fn new(
        data_tag: &str,
        sandbox: &Sandbox,
        surroundings: Surroundings,
        last_line: ProcessContainment,
    ) -> Result<Self, ContainmentError> {
        // The manager starts it by its path: what /proc shows of this process would be the manager's own.
        let program = std::env::current_exe()
            .map_err(|source| ContainmentError::SetUp { doing: "find this program's own file", source })?;
        let manager = Arc::new(Manager::connect(Bus::User).await?);
        let (data_tag, sandbox) = (data_tag.to_owned(), sandbox.clone());
        let private_pids = manager.version().await? >= PRIVATE_PIDS_SINCE;
        let mut containment = Self {
            program,
            data_tag,
            sandbox,
            surroundings,
            manager,
            last_line,
            private_pids,
            unenforced: Vec::new(),
        };
        let unenforced = match containment.probe().await {
            // Where the kernel lets no new /proc be mounted, such as inside of some containers.
            Err(ContainmentError::Failed { .. }) if private_pids => {
                containment.private_pids = false;
                containment.probe().await?
            }
            other => other?,
        };
        containment.unenforced = unenforced;
        Ok(containment)
    }

    async fn probe(&self) -> Result<Vec<String>, ContainmentError> {
        let number = PROBES.fetch_add(1, Ordering::Relaxed) ^ std::process::id() << 8;
        let unit = format!("klbr-gen-0-{number:08x}");
        probe(self, unit, &self.program, &self.sandbox, &self.surroundings).await
    }

    async fn launch(&self, launch: Launch) -> Result<Contained, ContainmentError> {
        let name = format!("{}.service", launch.unit);
        let failed = |source| ContainmentError::Start { unit: name.clone(), source };
        let (stdin, lifeline) = pair().map_err(failed)?;
        let (from_stdout, stdout) = stream().map_err(failed)?;
        let (from_stderr, stderr) = stream().map_err(failed)?;
        let mut launch = launch;
        mark(&mut launch, &self.data_tag);
        let foreign = self.manager.environment().await?;
        let properties = properties::of(
            &launch,
            &self.program,
            &self.sandbox,
            &self.surroundings,
            &foreign,
            self.private_pids,
            [&stdin, &stdout, &stderr],
        );
        self.manager.start(&name, properties).await?;
        let group = self.manager.control_group(&name).await?;
        let life = UnitLife {
            name,
            group: ControlGroup::of(&group),
            manager: Arc::clone(&self.manager),
            lifeline: Some(lifeline),
            ends: None,
            ended: None,
        };
        Ok(Contained { stdout: from_stdout, stderr: from_stderr, life: Box::new(life) })
    }

    /// Ends the units of this data directory that nobody waits for.
    async fn stop_units(&self) -> Result<usize, ContainmentError> {
        let mut stopped = 0;
        let mark = format!("{DATA_VARIABLE}={}", self.data_tag);
        for name in self.manager.units_like(UNITS).await? {
            if !self.manager.environment_of(&name).await?.contains(&mark) {
                continue;
            }
            let group = ControlGroup::of(&self.manager.control_group(&name).await?);
            stopped += usize::from(group.is_populated());
            group.kill_until_empty(&name, &self.manager).await;
            self.manager.forget(&name).await;
        }
        Ok(stopped)
    }
}

/// What of the sandbox does not hold, as a throw-away worker finds it.
async fn probe(
    containment: &dyn Containment,
    unit: String,
    program: &Path,
    sandbox: &Sandbox,
    around: &Surroundings,
) -> Result<Vec<String>, ContainmentError> {
    let checks = properties::checks(sandbox, around);
    let mut argv: Vec<OsString> = vec![program.into(), "probe".into()];
    argv.extend(checks.iter().map(|check| check.argument().into()));
    let launch = Launch {
        unit: unit.clone(),
        argv,
        env: vec![],
        cwd: around.workspace.clone(),
        read_only: vec![],
        read_write: vec![],
        control: None,
    };
    let mut contained = containment.start(launch).await?;
    let (exit, said, complained) = tokio::join!(
        contained.life.wait(),
        last_words(&mut contained.stdout),
        last_words(&mut contained.stderr)
    );
    if exit.code != Some(0) {
        let result = format!("the probe ended with {exit:?}; it wrote: {}", complained.trim());
        return Err(ContainmentError::Failed { unit, result });
    }
    let found = checks.iter().filter(|check| said.lines().any(|line| line == check.argument()));
    let promises: BTreeSet<String> = found.map(Check::promise).collect();
    Ok(promises.into_iter().collect())
}

/// All that is written until nobody can write any more, within a bound of memory.
async fn last_words(output: &mut pipe::Receiver) -> String {
    let mut text = Vec::new();
    // What cannot be read was not said.
    let _ = output.take(PROBE_BYTES_MAX).read_to_end(&mut text).await;
    String::from_utf8_lossy(&text).into_owned()
}

/// Names the unit and its data directory in the environment of all that a launch starts.
fn mark(launch: &mut Launch, data_tag: &str) {
    launch.env.push((UNIT_VARIABLE.into(), launch.unit.clone().into()));
    launch.env.push((DATA_VARIABLE.into(), data_tag.into()));
}

/// A pipe from what is started to here.
fn stream() -> std::io::Result<(pipe::Receiver, OwnedFd)> {
    let (reading, writing) = pair()?;
    Ok((pipe::Receiver::from_owned_fd(reading)?, writing))
}

/// The reading and the writing end of a pipe.
fn pair() -> std::io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

impl Containment for SystemdContainment {
    fn name(&self) -> &'static str {
        "systemd"
    }

    fn unenforced(&self) -> Vec<String> {
        self.unenforced.clone()
    }

    fn start(&self, launch: Launch) -> Boxed<'_, Result<Contained, ContainmentError>> {
        Box::pin(self.launch(launch))
    }

    fn stop_leftovers(&self) -> Boxed<'_, Result<usize, ContainmentError>> {
        Box::pin(async move { Ok(self.stop_units().await? + self.last_line.stop_leftovers().await?) })
    }

    fn stop_timeout(&self) -> Boxed<'_, Option<Duration>> {
        Box::pin(self.manager.stop_timeout_of(self.surroundings.unit.as_deref()))
    }

    fn holds(&self, pid: u32) -> bool {
        let group = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("cgroup"));
        let inside = format!("/{SLICE}/klbr-gen-");
        group.is_ok_and(|group| group.contains(&inside)) || self.last_line.holds(pid)
    }
}

/// The life of one unit.
struct UnitLife {
    name: String,
    group: ControlGroup,
    manager: Arc<Manager>,
    /// Dropping it tells the shim to kill.
    lifeline: Option<OwnedFd>,
    /// What the manager tells of a unit that it forgets at once.
    ends: Option<Ends>,
    ended: Option<Exit>,
}

impl Life for UnitLife {
    fn wait(&mut self) -> Boxed<'_, Exit> {
        Box::pin(async move {
            if let Some(exit) = self.ended {
                return exit;
            }
            self.group.emptied().await;
            let exit = match &mut self.ends {
                Some(ends) => ends.exit().await,
                None => {
                    let exit = self.manager.exit_of(&self.name).await;
                    self.manager.forget(&self.name).await;
                    exit
                }
            };
            self.ended = Some(exit);
            exit
        })
    }

    fn kill(&mut self) -> Boxed<'_, Exit> {
        Box::pin(async move {
            drop(self.lifeline.take());
            if self.ended.is_none() && self.ends.is_some() {
                // The shim does it by itself, and where there is no polkit nobody else does it soon.
                let _ = tokio::time::timeout(LIFELINE_GRACE, self.group.emptied()).await;
            }
            if self.ended.is_none() {
                self.group.kill_until_empty(&self.name, &self.manager).await;
            }
            self.wait().await
        })
    }
}
