//! Containment by the user's service manager: a transient service per generation.
//!
//! The control group is what is killed and what is waited for: nothing leaves it, whatever it forks and
//! however it detaches, and killing it needs no bus. Inside runs the same shim as everywhere, whose
//! lifeline ends the unit when the host ends. The properties and their reasons: docs/decisions/0007-systemd.md.

mod bus;
mod cgroup;
mod properties;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::unix::pipe;

use self::bus::Manager;
use self::cgroup::ControlGroup;
pub use self::properties::Surroundings;
use super::process::ProcessContainment;
use super::{
    Boxed, Contained, Containment, ContainmentError, DATA_VARIABLE, Exit, Launch, Life, UNIT_VARIABLE,
};
use crate::config::Sandbox;

/// The slice of all workers.
pub const SLICE: &str = "klbr-workers.slice";
/// What every unit of a generation is named like.
const UNITS: &str = "klbr-gen-*.service";

/// See the module.
pub struct SystemdContainment {
    program: PathBuf,
    data_tag: String,
    sandbox: Sandbox,
    surroundings: Surroundings,
    manager: Arc<Manager>,
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
        let manager = Arc::new(Manager::connect().await?);
        let (data_tag, sandbox) = (data_tag.to_owned(), sandbox.clone());
        let containment = Self { program, data_tag, sandbox, surroundings, manager, last_line };
        containment.probe().await?;
        Ok(containment)
    }

    async fn probe(&self) -> Result<(), ContainmentError> {
        let launch = Launch {
            unit: format!("klbr-gen-0-{:08x}", std::process::id()),
            argv: vec!["/bin/true".into()],
            env: vec![],
            cwd: self.surroundings.workspace.clone(),
            read_only: vec![],
            read_write: vec![],
        };
        let unit = launch.unit.clone();
        let mut contained = self.launch(launch).await?;
        match contained.life.wait().await {
            Exit { code: Some(0), .. } => Ok(()),
            exit => Err(ContainmentError::Failed { unit, result: format!("the probe ended with {exit:?}") }),
        }
    }

    async fn launch(&self, launch: Launch) -> Result<Contained, ContainmentError> {
        let name = format!("{}.service", launch.unit);
        let failed = |source| ContainmentError::Start { unit: name.clone(), source };
        let (stdin, lifeline) = pair().map_err(failed)?;
        let (from_stdout, stdout) = pair().map_err(failed)?;
        let (from_stderr, stderr) = pair().map_err(failed)?;
        let mut launch = launch;
        launch.env.push((UNIT_VARIABLE.into(), launch.unit.clone().into()));
        launch.env.push((DATA_VARIABLE.into(), self.data_tag.clone().into()));
        let own = |pipe| pipe::Receiver::from_owned_fd(pipe).map_err(failed);
        let (from_stdout, from_stderr) = (own(from_stdout)?, own(from_stderr)?);
        let foreign = self.manager.environment().await?;
        let properties = properties::of(
            &launch,
            &self.program,
            &self.sandbox,
            &self.surroundings,
            &foreign,
            [&stdin, &stdout, &stderr],
        );
        self.manager.start(&name, properties).await?;
        let group = self.manager.control_group(&name).await?;
        let life = UnitLife {
            name,
            group: ControlGroup::of(&group),
            manager: Arc::clone(&self.manager),
            lifeline: Some(lifeline),
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

/// The reading and the writing end of a pipe.
fn pair() -> std::io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

impl Containment for SystemdContainment {
    fn name(&self) -> &'static str {
        "systemd"
    }

    fn unenforced(&self) -> Vec<String> {
        let mut names = Vec::new();
        let controllers = cgroup::controllers();
        let has = |name: &str| controllers.iter().any(|controller| controller == name);
        if self.sandbox.memory_max.is_some() && !has("memory") {
            names.push("sandbox.memory_max".to_owned());
        }
        if self.sandbox.tasks_max.is_some() && !has("pids") {
            names.push("sandbox.tasks_max".to_owned());
        }
        names
    }

    fn start(&self, launch: Launch) -> Boxed<'_, Result<Contained, ContainmentError>> {
        Box::pin(self.launch(launch))
    }

    fn stop_leftovers(&self) -> Boxed<'_, Result<usize, ContainmentError>> {
        Box::pin(async move { Ok(self.stop_units().await? + self.last_line.stop_leftovers().await?) })
    }

    fn stop_timeout(&self) -> Boxed<'_, Option<Duration>> {
        Box::pin(async move {
            let unit = self.surroundings.unit.as_deref()?;
            self.manager.stop_timeout_of(unit).await
        })
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
    ended: Option<Exit>,
}

impl Life for UnitLife {
    fn wait(&mut self) -> Boxed<'_, Exit> {
        Box::pin(async move {
            if let Some(exit) = self.ended {
                return exit;
            }
            self.group.emptied().await;
            let exit = self.manager.exit_of(&self.name).await;
            self.manager.forget(&self.name).await;
            self.ended = Some(exit);
            exit
        })
    }

    fn kill(&mut self) -> Boxed<'_, Exit> {
        Box::pin(async move {
            drop(self.lifeline.take());
            if self.ended.is_none() {
                self.group.kill_until_empty(&self.name, &self.manager).await;
            }
            self.wait().await
        })
    }
}
