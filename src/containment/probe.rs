//! `klbr probe`: what a sandbox keeps from a worker, tried from inside of it.
//!
//! `klbr probe CHECK...`, each `hidden=PATH`, `socket=PATH`, `unwritable=FOLDER`, `emptied=FOLDER`,
//! `limit=FILE:NUMBER`, `signal=PID`, `cgroup`, `network` or `privileges`. Prints the checks that do not
//! hold, one a line. It does nothing that would last.

use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::fs::{Mode, OFlags};

/// `f_type` of a tmpfs, statfs(2).
const TMPFS_MAGIC: i64 = 0x0102_1994;
/// The kernel rounds a limit down to pages.
const PAGE_BYTES: u64 = 65_536;

/// One thing that a sandbox promises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// What is there cannot be opened.
    Hidden(PathBuf),
    /// Nobody listens there for the worker.
    Socket(PathBuf),
    /// No file can be made in this folder.
    Unwritable(PathBuf),
    /// This folder is an empty one of its own.
    Emptied(PathBuf),
    /// A limit of the control group is in force.
    Limit {
        /// Its file.
        file: &'static str,
        /// Its value.
        value: u64,
    },
    /// This process cannot be signalled.
    Signal(u32),
    /// The worker cannot leave its control group.
    ControlGroup,
    /// There is no network.
    Network,
    /// No capability, and none to be had.
    Privileges,
}

const LIMIT_FILES: &[&str] = &["memory.max", "pids.max"];

impl Check {
    /// As an argument of `klbr probe`, and as it is printed.
    pub fn argument(&self) -> String {
        match self {
            Self::Hidden(path) => format!("hidden={}", path.display()),
            Self::Socket(path) => format!("socket={}", path.display()),
            Self::Unwritable(path) => format!("unwritable={}", path.display()),
            Self::Emptied(path) => format!("emptied={}", path.display()),
            Self::Limit { file, value } => format!("limit={file}:{value}"),
            Self::Signal(pid) => format!("signal={pid}"),
            Self::ControlGroup => "cgroup".to_owned(),
            Self::Network => "network".to_owned(),
            Self::Privileges => "privileges".to_owned(),
        }
    }

    fn parse(argument: &str) -> Option<Self> {
        let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
        let path = || PathBuf::from(value);
        Some(match name {
            "hidden" => Self::Hidden(path()),
            "socket" => Self::Socket(path()),
            "unwritable" => Self::Unwritable(path()),
            "emptied" => Self::Emptied(path()),
            "limit" => {
                let (file, value) = value.split_once(':')?;
                let file = LIMIT_FILES.iter().find(|known| **known == file)?;
                Self::Limit { file, value: value.parse().ok()? }
            }
            "signal" => Self::Signal(value.parse().ok()?),
            "cgroup" => Self::ControlGroup,
            "network" => Self::Network,
            "privileges" => Self::Privileges,
            _ => return None,
        })
    }

    /// What is not enforced where it does not hold, for an operator: a setting, or words.
    pub fn promise(&self) -> String {
        match self {
            Self::Hidden(path) => format!("hiding {}", path.display()),
            Self::Socket(path) => format!("hiding the socket {}", path.display()),
            Self::Unwritable(_) | Self::Emptied(_) => "sandbox.home".to_owned(),
            Self::Limit { file: "memory.max", .. } => "sandbox.memory_max".to_owned(),
            Self::Limit { .. } => "sandbox.tasks_max".to_owned(),
            Self::Signal(_) => "signals to other processes of this user (needs systemd 257)".to_owned(),
            Self::ControlGroup => "staying in its control group".to_owned(),
            Self::Network => "sandbox.network".to_owned(),
            Self::Privileges => "no privileges".to_owned(),
        }
    }

    fn holds(&self) -> bool {
        match self {
            Self::Hidden(path) => std::fs::File::open(path).is_err(),
            Self::Socket(path) => std::os::unix::net::UnixStream::connect(path).is_err(),
            Self::Unwritable(folder) => !writable(folder),
            Self::Emptied(folder) => rustix::fs::statfs(folder).is_ok_and(|on| is_tmpfs(on.f_type)),
            Self::Limit { file, value } => std::fs::read_to_string(own_group().join(file))
                .ok()
                .and_then(|text| text.trim().parse::<u64>().ok())
                .is_some_and(|found| found <= *value && found.saturating_add(PAGE_BYTES) > *value),
            Self::Signal(pid) => i32::try_from(*pid)
                .ok()
                .and_then(rustix::process::Pid::from_raw)
                .is_none_or(|pid| rustix::process::test_kill_process(pid).is_err()),
            Self::ControlGroup => {
                let processes = own_group().join("cgroup.procs");
                std::fs::OpenOptions::new().write(true).open(processes).is_err()
            }
            Self::Network => {
                rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)
                    .is_err()
            }
            Self::Privileges => has_no_privileges(),
        }
    }
}

/// Prints which of the checks that `arguments` (those after `probe`) name do not hold.
pub fn run(arguments: &[std::ffi::OsString]) -> ExitCode {
    let mut output = std::io::stdout().lock();
    for argument in arguments {
        let Some(check) = argument.to_str().and_then(Check::parse) else {
            let _ = writeln!(std::io::stderr(), "klbr probe: no such check: {}", argument.to_string_lossy());
            return ExitCode::from(64);
        };
        if !check.holds() && writeln!(output, "{}", check.argument()).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

#[expect(clippy::useless_conversion, reason = "its type differs between architectures")]
fn is_tmpfs(kind: rustix::fs::FsWord) -> bool {
    i64::try_from(kind).is_ok_and(|kind| kind == TMPFS_MAGIC)
}

fn writable(folder: &Path) -> bool {
    // An unnamed file leaves nothing behind, whatever happens.
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR).is_ok()
}

/// The folder of the control group that this process is in.
fn own_group() -> PathBuf {
    let own = std::fs::read("/proc/self/cgroup").unwrap_or_default();
    let line =
        own.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"0::/")).unwrap_or_default();
    Path::new("/sys/fs/cgroup").join(std::ffi::OsStr::from_bytes(line))
}

fn has_no_privileges() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim_matches([':', '\t']))
    };
    let none = |name| value(name).is_some_and(|set| set.bytes().all(|digit| digit == b'0'));
    value("NoNewPrivs") == Some("1") && ["CapPrm", "CapEff", "CapBnd", "CapAmb"].into_iter().all(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_is_read_as_it_was_written() {
        let checks = [
            Check::Hidden("/a b=c".into()),
            Check::Socket("/s".into()),
            Check::Unwritable("/h".into()),
            Check::Emptied("/h".into()),
            Check::Limit { file: "memory.max", value: 1 << 31 },
            Check::Limit { file: "pids.max", value: 64 },
            Check::Signal(7),
            Check::ControlGroup,
            Check::Network,
            Check::Privileges,
        ];
        for check in checks {
            assert_eq!(Check::parse(&check.argument()), Some(check));
        }
        for wrong in ["", "colour", "limit=/etc/passwd:3", "limit=memory.max", "signal=x"] {
            assert_eq!(Check::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn without_a_sandbox_nothing_holds_that_could() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let checks = [
            Check::Hidden(file.clone()),
            Check::Socket(socket),
            Check::Unwritable(folder.path().to_owned()),
            Check::Limit { file: "memory.max", value: 4096 },
            Check::Signal(std::process::id()),
            Check::Network,
        ];
        for check in checks {
            assert!(!check.holds(), "{check:?}");
        }
        std::fs::remove_file(&file).unwrap();
        assert!(Check::Hidden(file).holds());
    }
}
