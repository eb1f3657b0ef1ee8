//! What a generation's unit may see and do, as properties of systemd.exec(5) and systemd.resource-control(5).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use zbus::zvariant::{Fd, Value};

use super::super::Launch;
use super::super::probe::Check;
use super::SLICE;
use super::bus::Properties;
use crate::config::{Sandbox, SandboxHome};

/// Microseconds between the end of the main process and the hard stop of what it left.
const STOP_USEC: u64 = 2_000_000;
/// `EPERM`, which a refused system call returns instead of killing its caller.
const EPERM: i32 = 1;
/// Everything recursive, as a mount (systemd's bind mounts take MS_REC).
const RECURSIVE: u64 = 16_384;
/// What a unit gets from its manager and a worker must not have.
const NOT_FOR_WORKERS: &[&str] = &[
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
    "NOTIFY_SOCKET",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "CREDENTIALS_DIRECTORY",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "MANAGERPID",
    "SYSTEMD_EXEC_PID",
    "SSH_AUTH_SOCK",
];

/// What of a home directory no worker reads.
const SECRETS: &[&str] = &[".ssh", ".gnupg", ".netrc", ".config/klbr", ".aws", ".kube"];

/// Places around a host that its workers are kept from, or need.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// The data directory.
    pub data: PathBuf,
    /// The configuration file.
    pub config: PathBuf,
    /// The operator socket.
    pub socket: PathBuf,
    /// The directory that the agent works in.
    pub workspace: PathBuf,
    /// The interpreter.
    pub python: PathBuf,
    /// The user's home directory, where there is one.
    pub home: Option<PathBuf>,
    /// The user's runtime directory, where there is one.
    pub runtime: Option<PathBuf>,
    /// The service that this host itself is, of the manager that holds its workers.
    pub unit: Option<String>,
}

/// The properties of a unit that runs `launch` below the shim.
///
/// `PrivateUsers` is what makes the others work for a user's manager: without it systemd 252 does
/// nothing about them and says nothing.
pub(super) fn of<'a>(
    launch: &Launch,
    program: &Path,
    sandbox: &Sandbox,
    around: &Surroundings,
    foreign: &[String],
    private_pids: bool,
    [stdin, stdout, stderr]: [&'a OwnedFd; 3],
) -> Properties<'a> {
    let mut properties: Properties<'a> = vec![
        ("Description", "A worker of klbr".into()),
        ("Type", "exec".into()),
        ("CollectMode", "inactive-or-failed".into()),
        ("AddRef", true.into()),
        ("Slice", SLICE.into()),
        ("TimeoutStopUSec", STOP_USEC.into()),
        ("OOMPolicy", "kill".into()),
        ("Nice", 10_i32.into()),
        ("UMask", 0o077_u32.into()),
        ("LimitCORE", 0_u64.into()),
        // Not ExecStartEx, which would spare us the dollar signs: systemd 252 writes that down as a key that
        // it does not know, and takes the unit for a broken one after the next daemon-reload.
        ("ExecStart", Value::from(vec![(text(program), command(launch, program), false)])),
        ("Environment", Value::from(variables(launch))),
        ("UnsetEnvironment", Value::from(unset(launch, foreign))),
        ("WorkingDirectory", text(&launch.cwd).into()),
        ("StandardInputFileDescriptor", Fd::from(stdin.as_fd()).into()),
        ("StandardOutputFileDescriptor", Fd::from(stdout.as_fd()).into()),
        ("StandardErrorFileDescriptor", Fd::from(stderr.as_fd()).into()),
    ];
    if let Some(unit) = &around.unit {
        properties.push(("StopPropagatedFrom", Value::from(vec![unit.clone()])));
        // And after it: the host drains first.
        properties.push(("Before", Value::from(vec![unit.clone()])));
    }
    properties.extend(privileges());
    properties.extend(files(launch, program, sandbox, around));
    let mut families = vec!["AF_UNIX", "AF_NETLINK"];
    if sandbox.network {
        families.extend(["AF_INET", "AF_INET6"]);
    }
    if private_pids {
        properties.push(("PrivatePIDs", "yes".into()));
    }
    properties.push(("PrivateNetwork", (!sandbox.network).into()));
    properties.push(("RestrictAddressFamilies", Value::from((true, families))));
    if let Some(bytes) = sandbox.memory_max_bytes() {
        properties.push(("MemoryMax", bytes.into()));
        properties.push(("MemorySwapMax", 0_u64.into()));
    }
    if let Some(tasks) = sandbox.tasks_max {
        properties.push(("TasksMax", tasks.into()));
    }
    properties
}

fn privileges<'a>() -> Properties<'a> {
    let yes = [
        "NoNewPrivileges",
        "PrivateUsers",
        "PrivateTmp",
        "PrivateDevices",
        "PrivateIPC",
        "ProtectHostname",
        "ProtectClock",
        "ProtectKernelTunables",
        "ProtectKernelModules",
        "ProtectControlGroups",
        "RestrictRealtime",
        "RestrictSUIDSGID",
        "LockPersonality",
    ];
    let mut properties: Properties<'a> = yes.into_iter().map(|name| (name, true.into())).collect();
    properties.extend([
        ("CapabilityBoundingSet", 0_u64.into()),
        ("RestrictNamespaces", 0_u64.into()),
        ("KeyringMode", "private".into()),
        ("ProtectSystem", "strict".into()),
        ("SystemCallArchitectures", Value::from(vec!["native"])),
        ("SystemCallFilter", Value::from((true, vec!["@system-service"]))),
        ("SystemCallFilter", Value::from((false, vec!["@privileged"]))),
        ("SystemCallErrorNumber", EPERM.into()),
    ]);
    properties
}

/// What a probe inside of such a unit is to find.
pub(super) fn checks(sandbox: &Sandbox, around: &Surroundings) -> Vec<Check> {
    let mut checks = vec![Check::ControlGroup, Check::Privileges, Check::Signal(std::process::id())];
    checks.extend([around.data.join("klbr.db"), around.config.clone()].map(Check::Hidden));
    checks.push(Check::Socket(around.socket.clone()));
    checks.push(Check::Socket("/run/dbus/system_bus_socket".into()));
    if let Some(runtime) = &around.runtime {
        let below = ["bus", "systemd/private", "klbr.sock"];
        checks.extend(below.into_iter().map(|name| Check::Socket(runtime.join(name))));
    }
    if let Some(home) = &around.home {
        match sandbox.home {
            SandboxHome::Hidden => checks.push(Check::Emptied(home.clone())),
            SandboxHome::ReadOnly => checks.push(Check::Unwritable(home.clone())),
            SandboxHome::ReadWrite => {}
        }
        if sandbox.home != SandboxHome::Hidden {
            // The data directory is an empty one instead, which can be opened.
            let secrets = SECRETS.iter().map(|name| home.join(name)).filter(|path| *path != around.data);
            checks.extend(secrets.map(Check::Hidden));
        }
    }
    if !sandbox.network {
        checks.push(Check::Network);
    }
    if let Some(value) = sandbox.memory_max_bytes() {
        checks.push(Check::Limit { file: "memory.max", value });
    }
    if let Some(value) = sandbox.tasks_max {
        checks.push(Check::Limit { file: "pids.max", value });
    }
    // What cannot be written as an argument cannot be tried.
    checks.retain(|check| !check.argument().contains(['\n', char::REPLACEMENT_CHARACTER]));
    checks
}

/// What of the file system is there.
fn files<'a>(launch: &Launch, program: &Path, sandbox: &Sandbox, around: &Surroundings) -> Properties<'a> {
    let home = match sandbox.home {
        SandboxHome::Hidden => "tmpfs",
        SandboxHome::ReadOnly => "read-only",
        SandboxHome::ReadWrite => "no",
    };
    let mut hidden: Vec<PathBuf> = [
        "/run/dbus",
        "/run/systemd/private",
        "/run/systemd/io.systemd.Manager",
        "/run/systemd/journal/socket",
        "/run/systemd/journal/stdout",
        "/run/klbr.sock",
        "/run/klbr-spawn.sock",
        "/etc/klbr",
        "/var/lib/klbr",
    ]
    .into_iter()
    .map(PathBuf::from)
    .collect();
    hidden.extend([around.config.clone(), around.socket.clone()]);
    if let Some(runtime) = &around.runtime {
        let below = ["bus", "systemd", "klbr.sock", "klbr-ingress.sock", "gnupg", "keyring", "credentials"];
        hidden.extend(below.into_iter().map(|name| runtime.join(name)));
    }
    if let (Some(folder), true) = (&around.home, sandbox.home != SandboxHome::Hidden) {
        hidden.extend(SECRETS.iter().map(|name| folder.join(name)));
    }
    // The data directory is an empty one, in which only what this launch names is there.
    let covered = |path: &PathBuf| path.starts_with(&around.data);
    hidden.retain(|path| !covered(path));
    let mut read_only: Vec<PathBuf> = launch.read_only.clone();
    read_only.extend(sandbox.read_only.iter().cloned());
    read_only.push(program.to_owned());
    if around.python.is_absolute() {
        // An interpreter in the home directory comes with the folder that it is installed in.
        let prefix = around.python.canonicalize().ok().and_then(|path| {
            path.parent()
                .and_then(Path::parent)
                .filter(|prefix| *prefix != Path::new("/"))
                .map(Path::to_owned)
        });
        read_only.extend(prefix);
    }
    let mut read_write: Vec<PathBuf> = vec![launch.cwd.clone()];
    read_write.extend(launch.read_write.iter().cloned());
    read_write.extend(sandbox.read_write.iter().cloned());
    let inaccessible: Vec<String> = hidden.iter().map(|path| format!("-{}", text(path))).collect();
    vec![
        ("ProtectHome", home.into()),
        ("InaccessiblePaths", Value::from(inaccessible)),
        ("TemporaryFileSystem", Value::from(vec![(text(&around.data), "ro".to_owned())])),
        ("BindReadOnlyPaths", Value::from(binds(&read_only))),
        ("BindPaths", Value::from(binds(&read_write))),
    ]
}

fn binds(paths: &[PathBuf]) -> Vec<(String, String, bool, u64)> {
    paths.iter().map(|path| (text(path), text(path), true, RECURSIVE)).collect()
}

fn command(launch: &Launch, program: &Path) -> Vec<String> {
    let shim = [text(program), "contain".to_owned(), "--".to_owned()];
    let words = shim.into_iter().chain(launch.argv.iter().map(text));
    // A dollar sign is the manager's, two are one of ours (systemd.service(5), COMMAND LINES).
    words.map(|word| word.replace('$', "$$")).collect()
}

fn variables(launch: &Launch) -> Vec<String> {
    launch.env.iter().map(|(name, value)| format!("{}={}", text(name), text(value))).collect()
}

/// What the manager has in its own environment is not for workers: a key may be among it.
fn unset(launch: &Launch, foreign: &[String]) -> Vec<String> {
    let given = |name: &str| launch.env.iter().any(|(own, _)| own == OsStr::new(name));
    let names = foreign.iter().filter_map(|entry| entry.split_once('=')).map(|(name, _)| name);
    // The manager refuses a list that names one twice.
    let names: BTreeSet<&str> = names.chain(NOT_FOR_WORKERS.iter().copied()).collect();
    names.into_iter().filter(|name| !given(name)).map(str::to_owned).collect()
}

/// D-Bus strings are UTF-8; a path that is not cannot be named to the manager.
fn text(path: impl AsRef<OsStr>) -> String {
    String::from_utf8_lossy(path.as_ref().as_bytes()).into_owned()
}
