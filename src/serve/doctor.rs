//! `klbr doctor`: what a host needs, looked at without being one.
//!
//! Nothing here changes anything, and nothing of it needs a host to run.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::Serialize;

use super::contain;
use super::{ServeOptions, chain, open_route, run_folder};
use crate::config::{Config, ContainmentChoice, RouteKind, python_path};

/// Oldest interpreter that workers run on.
const PYTHON_MIN: (u32, u32) = (3, 11);
/// Longest time for an interpreter to say its version.
const PYTHON_MAX: Duration = Duration::from_secs(20);
/// Less than this is too little for a log that is to grow for months.
const FREE_BYTES_LOW: u64 = 256 * 1_048_576;
/// Where the login manager notes whose services outlive their sessions.
const LINGER: &str = "/var/lib/systemd/linger";
/// A folder that is there where systemd is process 1 (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";
/// Prints its version; nothing of the user's is imported.
const VERSION: &str = "import sys; print('%d.%d.%d' % sys.version_info[:3])";

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// A host runs, with less than it could have.
    Warn,
    /// A host does not run, or not as it is configured.
    Fail,
}

/// What was found about one thing.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// The thing.
    pub check: &'static str,
    /// How bad it is.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do, where something is to be done.
    pub remedy: Option<String>,
}

impl Finding {
    /// As it should be.
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, found: found.into(), remedy: None }
    }

    /// Less than there could be.
    pub fn warn(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Warn, found: found.into(), remedy: Some(remedy.into()) }
    }

    /// It does not work. An error's own text may say what to do.
    pub fn fail(check: &'static str, found: impl Into<String>, remedy: Option<&str>) -> Self {
        Self { check, verdict: Verdict::Fail, found: found.into(), remedy: remedy.map(str::to_owned) }
    }
}

/// Looks at everything. With `host_runs` the containment is left to what the host says of it.
pub async fn examine(options: &ServeOptions, host_runs: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let config = match Config::load(&options.config) {
        Ok(config) => config,
        Err(error) => {
            findings.push(Finding::fail("configuration", chain(&error), None));
            findings.push(data(&options.data));
            findings.extend(linger());
            return findings;
        }
    };
    findings.push(Finding::ok("configuration", options.config.display().to_string()));
    findings.push(python(&config).await);
    findings.push(packages(&config));
    findings.push(data(&options.data));
    findings.push(workspace(&config.workspace));
    if !host_runs {
        findings.push(containment(options, &config).await);
    }
    findings.extend(linger());
    findings.push(route(options, &config, host_runs).await);
    findings
}

async fn python(config: &Config) -> Finding {
    let program = config.python.display();
    let remedy = format!(
        "install Python {}.{} or later, or name another interpreter with `python` in the configuration",
        PYTHON_MIN.0, PYTHON_MIN.1
    );
    let fail = |found: String| Finding::fail("python", found, Some(&remedy));
    let mut asked = tokio::process::Command::new(&config.python);
    asked.args(["-I", "-S", "-c", VERSION]).stdin(Stdio::null()).kill_on_drop(true);
    let said = match tokio::time::timeout(PYTHON_MAX, asked.output()).await {
        Ok(Ok(said)) => said,
        Ok(Err(error)) => return fail(format!("{program} cannot be started: {error}")),
        Err(_) => return fail(format!("{program} said nothing within {} s", PYTHON_MAX.as_secs())),
    };
    let text = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    match version(&text) {
        Some(found) if found >= PYTHON_MIN => Finding::ok("python", format!("{program}, version {text}")),
        Some(_) => fail(format!("{program} is version {text}")),
        None => fail(format!("{program} is no Python: it ended with {} and said {text:?}", said.status)),
    }
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

fn packages(config: &Config) -> Finding {
    match python_path(config) {
        Ok(path) => Finding::ok("packages", path.display().to_string()),
        Err(error) => Finding::fail("packages", error.to_string(), None),
    }
}

fn data(path: &Path) -> Finding {
    use std::os::unix::fs::PermissionsExt as _;
    let shown = path.display();
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => {
            return Finding::fail("data", format!("{shown}: {error}"), Some("make it with `klbr init`"));
        }
    };
    if !path.join("klbr.db").exists() {
        return Finding::fail("data", format!("{shown} has no log"), Some("make it with `klbr init`"));
    }
    if let Ok(space) = rustix::fs::statvfs(path) {
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if free < FREE_BYTES_LOW {
            let found = format!("{shown} has {} MiB left on its disk", free / 1_048_576);
            return Finding::warn("data", found, "make room: without it no input is accepted");
        }
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        let remedy = format!("chmod 700 {shown}");
        return Finding::warn("data", format!("{shown} is open to other users"), remedy);
    }
    Finding::ok("data", shown.to_string())
}

fn workspace(path: &Path) -> Finding {
    let shown = path.display();
    if !path.is_dir() {
        let found = format!("{shown} is no directory");
        return Finding::fail("workspace", found, Some("make it, or name another with `workspace`"));
    }
    match rustix::fs::access(path, rustix::fs::Access::WRITE_OK) {
        Ok(()) => Finding::ok("workspace", shown.to_string()),
        Err(error) => {
            let found = format!("{shown} cannot be written: {error}");
            Finding::warn("workspace", found, "give it to the user that klbr runs as")
        }
    }
}

async fn containment(options: &ServeOptions, config: &Config) -> Finding {
    let name = "containment";
    if config.containment == ContainmentChoice::Process {
        return Finding::ok(name, "process, as configured: no sandbox, and no unit per worker");
    }
    if config.containment == ContainmentChoice::Cgroup {
        let error = super::ServeError::NoSuchContainment("cgroup");
        return Finding::fail(name, error.to_string(), None);
    }
    let (Ok(data), Ok(workspace)) = (options.data.canonicalize(), config.workspace.canonicalize()) else {
        return Finding::warn(
            name,
            "not tried: the data directory or the workspace is not there",
            "make them first",
        );
    };
    let around = contain::surroundings(options, config, &data, &workspace);
    match contain::systemd(config, &run_folder::data_tag(&data), around).await {
        Ok(containment) => held_by(containment.name(), &containment.unenforced()),
        Err(error) if config.containment == ContainmentChoice::Auto => Finding::warn(
            name,
            format!("process: {}", chain(&error)),
            "workers run without a sandbox until that works",
        ),
        Err(error) => Finding::fail(name, chain(&error), None),
    }
}

/// How workers are held, as a host would say it.
pub fn held_by(containment: &str, unenforced: &[String]) -> Finding {
    let name = "containment";
    match unenforced {
        [] => Finding::ok(name, containment),
        missing => Finding::warn(
            name,
            format!("{containment}, without: {}", missing.join(", ")),
            "this machine cannot enforce it; klbr.toml(5) says what each needs",
        ),
    }
}

/// Whether the user's services live on when the user logs out; `None` where that question has no meaning.
fn linger() -> Option<Finding> {
    let uid = rustix::process::getuid();
    if uid.is_root() || !Path::new(BOOTED).exists() {
        return None;
    }
    let listed = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = name_of(uid.as_raw(), &listed).or_else(|| std::env::var("USER").ok())?;
    Some(if Path::new(LINGER).join(&user).exists() {
        Finding::ok("linger", format!("services of {user} live on after a logout and start with the machine"))
    } else {
        Finding::warn(
            "linger",
            format!("services of {user} end with the last logout"),
            format!("loginctl enable-linger {user}"),
        )
    })
}

/// The user's name in passwd(5).
fn name_of(uid: u32, listed: &str) -> Option<String> {
    listed.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid.to_string()).then(|| name.to_owned())
    })
}

async fn route(options: &ServeOptions, config: &Config, host_runs: bool) -> Finding {
    let name = "route";
    let route = match open_route(config, &options.config) {
        Ok(route) => route,
        Err(error) => {
            let credential = config.route().is_some_and(|(_, route)| route.api_key_credential.is_some());
            let inside = std::env::var_os("CREDENTIALS_DIRECTORY").is_some();
            if credential && !inside {
                let found = "its key is a credential of the service, which only the host can read";
                return if host_runs {
                    Finding::ok(name, format!("the host has taken it up; {found}"))
                } else {
                    Finding::warn(name, format!("not tried: {found}"), "start the host, and look again")
                };
            }
            return Finding::fail(name, chain(&error), None);
        }
    };
    let shown = format!("{}, model {}", route.name(), route.model().unwrap_or("none"));
    if route.kind() != RouteKind::Http {
        return Finding::ok(name, format!("{shown}; it needs no network"));
    }
    match route.reach().await {
        Ok(()) => Finding::ok(name, format!("{shown}; the server answers")),
        Err(failure) => {
            let remedy = "look at base_url, at the key and at the network";
            Finding::fail(name, format!("{shown}: {}", failure.message), Some(remedy))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_compared_by_its_numbers() {
        assert!(version("3.11.2") >= Some(PYTHON_MIN) && version("3.9.18") < Some(PYTHON_MIN));
        assert_eq!((version(""), version("three"), version("3")), (None, None, None));
    }

    #[test]
    fn a_user_is_found_by_number() {
        let listed = "root:x:0:0:root:/root:/bin/sh\nbroken\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert_eq!(name_of(1000, listed).as_deref(), Some("ada"));
        assert_eq!(name_of(100, listed), None);
    }

    #[test]
    fn a_data_directory_is_there_has_a_log_and_is_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        assert_eq!(data(&path).verdict, Verdict::Fail);

        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(data(&path).verdict, Verdict::Fail);

        std::fs::write(path.join("klbr.db"), "").unwrap();
        assert_eq!(data(&path).verdict, Verdict::Ok);

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(data(&path).verdict, Verdict::Warn);
    }
}
