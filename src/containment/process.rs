//! Containment without a service manager: a subreaper shim per generation.
//!
//! Three lines, one behind the other. The shim kills all below it when its worker ends or its
//! lifeline does. The host is a subreaper too: what is orphaned by the death of a shim comes to it,
//! and it kills that. And what outlives both is found by its environment when the next host starts.
//! A process that sheds its environment and outlives both is not found: this is the weakest
//! containment, and `klbr status` says so.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{WaitOptions, getpid, set_child_subreaper};
use tokio::process::{Child, ChildStdin, Command};

use super::tree::{Process, Table, kill_pass};
use crate::config::Sandbox;

use super::{
    Boxed, Contained, Containment, ContainmentError, DATA_VARIABLE, Exit, Launch, Life, UNIT_VARIABLE,
};

/// Longest time that leftovers are tried to be killed.
const LEFTOVERS_SECONDS_MAX: u64 = 10;
/// Pause between two looks at what is left.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// What counts as left over from a shim that died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orphans {
    /// Every child that this process did not start itself: right for a host, which starts nothing
    /// but shims.
    All,
    /// Only processes with the unit's name in their environment: right where this process has other
    /// children.
    Named,
}

/// The shims that run.
type Shims = Arc<Mutex<HashSet<i32>>>;

/// See the module.
pub struct ProcessContainment {
    program: PathBuf,
    data_tag: String,
    orphans: Orphans,
    shims: Shims,
    unenforced: Vec<String>,
}

impl ProcessContainment {
    /// Makes this process the second line. `program` is the `klbr` whose `contain` is the first;
    /// `data_tag` names the data directory that everything started here belongs to.
    pub fn new(program: &Path, data_tag: &str, orphans: Orphans) -> Result<Self, ContainmentError> {
        set_child_subreaper(Some(getpid())).map_err(|error| ContainmentError::SetUp {
            doing: "become the reaper of orphans",
            source: error.into(),
        })?;
        let (program, data_tag) = (program.to_owned(), data_tag.to_owned());
        Ok(Self { program, data_tag, orphans, shims: Shims::default(), unenforced: vec![] })
    }

    /// Names what `sandbox` asks for: nothing of it is enforced here.
    #[must_use]
    pub fn with_sandbox(mut self, sandbox: &Sandbox) -> Self {
        let mut names = vec!["sandbox.home", "sandbox.read_only", "sandbox.read_write"];
        names.extend((!sandbox.network).then_some("sandbox.network"));
        names.extend(sandbox.memory_max.is_some().then_some("sandbox.memory_max"));
        names.extend(sandbox.tasks_max.is_some().then_some("sandbox.tasks_max"));
        self.unenforced = names.into_iter().map(str::to_owned).collect();
        self
    }

    fn spawn(&self, launch: Launch) -> Result<Contained, ContainmentError> {
        let failed = |source| ContainmentError::Start { unit: launch.unit.clone(), source };
        // Held until the shim is known: between fork and exec it looks like an orphan.
        let mut shims = lock(&self.shims);
        let mut child = Command::new(&self.program)
            .arg("contain")
            .arg("--")
            .args(&launch.argv)
            .env_clear()
            .envs(launch.env.iter().map(|(name, value)| (name, value)))
            .env(UNIT_VARIABLE, &launch.unit)
            .env(DATA_VARIABLE, &self.data_tag)
            .current_dir(&launch.cwd)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(lifeline), Some(stdout), Some(stderr)) = pipes else {
            return Err(failed(std::io::Error::other("its pipes are missing")));
        };
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).unwrap_or(0);
        shims.insert(pid);
        drop(shims);
        let own = |pipe: std::io::Result<std::os::fd::OwnedFd>| {
            pipe.and_then(tokio::net::unix::pipe::Receiver::from_owned_fd).map_err(failed)
        };
        let (stdout, stderr) = (own(stdout.into_owned_fd())?, own(stderr.into_owned_fd())?);
        let life = ProcessLife {
            child,
            lifeline: Some(lifeline),
            pid,
            unit: launch.unit,
            data_tag: self.data_tag.clone(),
            orphans: self.orphans,
            shims: Arc::clone(&self.shims),
            ended: None,
        };
        Ok(Contained { stdout, stderr, life: Box::new(life) })
    }
}

impl Containment for ProcessContainment {
    fn name(&self) -> &'static str {
        "process"
    }

    fn unenforced(&self) -> Vec<String> {
        self.unenforced.clone()
    }

    fn start(&self, launch: Launch) -> Boxed<'_, Result<Contained, ContainmentError>> {
        Box::pin(async move { self.spawn(launch) })
    }

    fn stop_leftovers(&self) -> Boxed<'_, Result<usize, ContainmentError>> {
        let tag = self.data_tag.clone();
        Box::pin(async move {
            let what = format!("an earlier host ({DATA_VARIABLE}={tag})");
            let killed = kill_until_gone(what, move |table| {
                let own = getpid().as_raw_nonzero().get();
                let found = table.with_variable(DATA_VARIABLE, &tag);
                found.into_iter().filter(|process| process.pid != own).collect()
            });
            tokio::task::spawn_blocking(killed).await.unwrap_or(Ok(0))
        })
    }

    fn holds(&self, pid: u32) -> bool {
        let Ok(pid) = i32::try_from(pid) else { return false };
        let shims = lock(&self.shims).clone();
        let table = Table::above(pid);
        table.is_below(pid, &shims) || table.inherits_variable(pid, DATA_VARIABLE, &self.data_tag)
    }
}

fn lock(shims: &Shims) -> std::sync::MutexGuard<'_, HashSet<i32>> {
    shims.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills what `find` finds until it finds nothing; how many there were at most.
fn kill_until_gone(
    what: String,
    find: impl Fn(&Table) -> Vec<Process>,
) -> impl FnOnce() -> Result<usize, ContainmentError> {
    move || {
        let end = Instant::now() + Duration::from_secs(LEFTOVERS_SECONDS_MAX);
        let mut most = 0;
        loop {
            let left = kill_pass(&find);
            if left == 0 {
                return Ok(most);
            }
            most = most.max(left);
            if Instant::now() > end {
                return Err(ContainmentError::Survivors { what, left, seconds: LEFTOVERS_SECONDS_MAX });
            }
            std::thread::sleep(LOOK_PAUSE);
        }
    }
}

/// The life of one shim and all below it.
struct ProcessLife {
    child: Child,
    /// Dropping it tells the shim to kill.
    lifeline: Option<ChildStdin>,
    pid: i32,
    unit: String,
    data_tag: String,
    orphans: Orphans,
    shims: Shims,
    ended: Option<Exit>,
}

impl Life for ProcessLife {
    fn wait(&mut self) -> Boxed<'_, Exit> {
        Box::pin(async move {
            if let Some(exit) = self.ended {
                return exit;
            }
            let exit = exit_of(self.child.wait().await.ok());
            self.sweep().await;
            lock(&self.shims).remove(&self.pid);
            self.ended = Some(exit);
            exit
        })
    }

    fn kill(&mut self) -> Boxed<'_, Exit> {
        drop(self.lifeline.take());
        self.wait()
    }
}

impl ProcessLife {
    /// What the shim did not live to kill.
    async fn sweep(&self) {
        let (unit, orphans, shims) = (self.unit.clone(), self.orphans, Arc::clone(&self.shims));
        let data_tag = self.data_tag.clone();
        let find = move |table: &Table| {
            let mut found = table.with_variable(UNIT_VARIABLE, &unit);
            if orphans == Orphans::All {
                let strays = strays(&shims);
                // What names another unit of ours belongs to that one's own end.
                let other = |pid| table.inherits_variable(pid, DATA_VARIABLE, &data_tag);
                found.extend(strays.into_iter().filter(|stray| !other(stray.pid)));
            }
            found
        };
        let swept = tokio::task::spawn_blocking(kill_until_gone(self.unit.clone(), find)).await;
        match swept {
            Ok(Ok(0)) => {}
            Ok(Ok(killed)) => tracing::warn!(klbr_unit = %self.unit, killed, "killed what its shim had left"),
            Ok(Err(error)) => tracing::error!(klbr_unit = %self.unit, "{error}"),
            Err(_) => tracing::error!(klbr_unit = %self.unit, "the sweep for orphans panicked"),
        }
    }
}

/// Everything below this process that is not below a shim; those of them that have ended are reaped.
fn strays(shims: &Shims) -> Vec<Process> {
    let shims = lock(shims);
    let table = Table::read();
    let own = getpid().as_raw_nonzero().get();
    for pid in table.ended_children(own) {
        if let Some(pid) = rustix::process::Pid::from_raw(pid).filter(|_| !shims.contains(&pid)) {
            // Reaping is all that is wanted of it.
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
    table.descendants(own, &shims)
}

fn exit_of(status: Option<ExitStatus>) -> Exit {
    use std::os::unix::process::ExitStatusExt as _;
    Exit {
        code: status.and_then(|status| status.code()),
        signal: status.and_then(|status| status.signal()),
        out_of_memory: false,
    }
}
