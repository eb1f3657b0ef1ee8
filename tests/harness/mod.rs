//! A real host in a folder of its own, driven through the real program.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    dead_code,
    unreachable_pub,
    reason = "every test file uses a part of it, says what it skips, and fails where it cannot go on"
)]

pub mod peer;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

pub const KLBR: &str = env!("CARGO_BIN_EXE_klbr");
/// Far beyond what anything here takes: a bound against hangs, not a measurement.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A host, running or not, with its data.
pub struct TestHost {
    pub folder: tempfile::TempDir,
    child: Option<Child>,
    /// Put in front of `klbr serve`.
    pub wrapper: Vec<String>,
}

impl TestHost {
    /// A running host on the manual route.
    pub fn manual() -> Self {
        let mut host = Self::stopped();
        host.start();
        host
    }

    /// A running host on a script of these cells and texts.
    pub fn scripted(lines: &[Value]) -> Self {
        let mut host = Self::stopped();
        host.use_script(lines);
        host.start();
        host
    }

    /// An initialised host that does not run. Its path has a space and letters beyond ASCII.
    pub fn stopped() -> Self {
        let folder = tempfile::Builder::new().prefix("klbr tést ").tempdir().unwrap();
        let host = Self { folder, child: None, wrapper: vec![] };
        std::fs::create_dir(host.path("work")).unwrap();
        let made =
            host.command(&["init", "--workspace", host.path("work").to_str().unwrap()]).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        host
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn config(&self) -> String {
        std::fs::read_to_string(self.path("klbr.toml")).unwrap()
    }

    /// Replaces the configuration's route.
    pub fn use_route(&self, route: &str) {
        self.use_config(&format!("[route]\nuse = \"test\"\n[routes.test]\n{route}\n"));
    }

    /// Replaces the configuration, the workspace excepted.
    pub fn use_config(&self, rest: &str) {
        let workspace = Value::from(self.path("work").to_str().unwrap());
        std::fs::write(self.path("klbr.toml"), format!("workspace = {workspace}\n{rest}")).unwrap();
    }

    pub fn use_script(&self, lines: &[Value]) {
        let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
        std::fs::write(self.path("script.jsonl"), lines.join("\n")).unwrap();
        self.use_route("kind = \"script\"\nscript = \"script.jsonl\"");
    }

    /// The next worker of this role misbehaves in this way (`fake_worker.py`); later ones are real.
    pub fn use_fake_worker(&self, role: &str, mode: &str, limits: &str) {
        let fake = self.path("fake worker");
        std::fs::write(&fake, include_str!("fake_worker.py")).unwrap();
        std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(self.path("mode"), format!("{role} {mode}")).unwrap();
        self.use_config(&format!(
            "python = {}\n[route]\nuse = \"m\"\n[routes.m]\nkind = \"manual\"\n[limits]\n{limits}",
            Value::from(fake.to_str().unwrap())
        ));
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(KLBR);
        command.args(arguments);
        self.place(&mut command);
        command
    }

    fn place(&self, command: &mut Command) {
        command
            .env("KLBR_DATA", self.path("data"))
            .env("KLBR_CONFIG", self.path("klbr.toml"))
            .env("KLBR_SOCKET", self.path("klbr.sock"))
            .env("NO_COLOR", "1")
            .env("KLBR_ALLOW_ROOT", "1")
            // Without a service manager, whatever the machine has: tests/systemd.rs has its own.
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .env_remove("DBUS_SESSION_BUS_ADDRESS")
            .stdin(Stdio::null());
    }

    /// Starts `klbr serve` and waits until it answers.
    pub fn start(&mut self) {
        self.spawn();
        let end = Instant::now() + PATIENCE;
        while self.json(&["status", "--json"]).first().is_none_or(|status| status["running"] != true) {
            let ended = self.child.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "the host ended ({ended:?}): {}", self.errors());
            assert!(Instant::now() < end, "the host does not answer: {}", self.errors());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts `klbr serve` and waits for nothing.
    pub fn spawn(&mut self) {
        let errors = std::fs::File::options().append(true).create(true).open(self.path("errors")).unwrap();
        let mut command = match self.wrapper.split_first() {
            None => Command::new(KLBR),
            Some((program, rest)) => {
                let mut command = Command::new(program);
                command.args(rest).arg(KLBR);
                command
            }
        };
        self.place(&mut command);
        let child = command.arg("serve").stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
        self.child = Some(child);
    }

    /// What the host wrote to standard error, of every start.
    pub fn errors(&self) -> String {
        std::fs::read_to_string(self.path("errors")).unwrap_or_default()
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// A line of the host's `/proc/PID/status`, in KiB.
    pub fn memory_kib(&self, name: &str) -> u64 {
        memory_kib(self.pid(), name)
    }

    /// SIGKILL, and the end of the process.
    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// SIGTERM; its exit status and standard output.
    pub fn stop(&mut self) -> Output {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.wait()
    }

    /// The end of a host that ends by itself.
    pub fn wait(&mut self) -> Output {
        let mut child = self.child.take().unwrap();
        let end = Instant::now() + PATIENCE;
        while child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < end, "the host does not end: {}", self.errors());
            std::thread::sleep(Duration::from_millis(10));
        }
        child.wait_with_output().unwrap()
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Standard output of a command that must succeed.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(
            output.status.success(),
            "klbr {arguments:?}: {}\n{}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// The objects that a command prints.
    pub fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let output = self.run(arguments);
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// What a turn delivered, as a person sees it.
    pub fn say(&self, text: &str) -> String {
        self.ok(&["send", text, "--wait", "--timeout", "60"]).trim_end().to_owned()
    }

    /// Every event of the log.
    pub fn log(&self) -> Vec<Value> {
        self.json(&["log", "--json"])
    }

    pub fn events(&self, kind: &str) -> Vec<Value> {
        self.json(&["log", "--json", "--kind", kind])
    }

    /// Waits until there are this many events of a kind.
    pub fn await_events(&self, kind: &str, count: usize) -> Vec<Value> {
        let end = Instant::now() + PATIENCE;
        loop {
            let events = self.events(kind);
            if events.len() >= count {
                return events;
            }
            assert!(Instant::now() < end, "no {kind} number {count}: {}", self.errors());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn exec(&self, code: &str) -> Value {
        self.json(&["exec", code, "--json", "--timeout", "60"]).remove(0)
    }

    /// Processes that belong to this data directory, the host itself excepted.
    pub fn workers(&self) -> Vec<u32> {
        let data = self.path("data").canonicalize().unwrap();
        let tag = klbr::id::Digest::of(std::os::unix::ffi::OsStrExt::as_bytes(data.as_os_str()));
        with_variable(&format!("KLBR_DATA_TAG={}", &tag.as_str()[..16]))
    }

    /// Waits until nothing of the host's workers is left.
    pub fn await_no_workers(&self) {
        let end = Instant::now() + PATIENCE;
        while !self.workers().is_empty() {
            assert!(Instant::now() < end, "still there: {:?}", self.workers());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The log checked against its own events. The host must not be writing.
    pub fn verify(&self) {
        let report = klbr::store::verify(&self.path("data")).unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
    }
}

impl Drop for TestHost {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // The test is over; its shims kill what is below them.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A line of a process's `/proc/PID/status`, in KiB.
pub fn memory_kib(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(&format!("{name}:"))).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Processes with this in their environment.
pub fn with_variable(variable: &str) -> Vec<u32> {
    let holds = |pid: &u32| {
        let path = PathBuf::from(format!("/proc/{pid}"));
        let zombie = std::fs::read_to_string(path.join("stat")).is_ok_and(|stat| stat.contains(") Z "));
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        !zombie && environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(holds).collect()
}

/// The kinds of these events, in order.
pub fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["kind"].as_str().unwrap()).collect()
}

/// The texts of these events.
pub fn texts(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["payload"]["text"].as_str().unwrap()).collect()
}

/// Whether the test runs as root; where it does not and needs to, it says so.
pub fn is_root(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: {what} needs root");
    }
    root
}

/// The interpreter of `make venv` if it has this module; where it has not, the test says so.
pub fn venv_python(module: &str) -> Option<PathBuf> {
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv/bin/python");
    let python = if made.exists() { made } else { PathBuf::from("python3") };
    let known = Command::new(&python).args(["-c", &format!("import {module}")]).output();
    if known.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    eprintln!("SKIPPED: {} has no module `{module}`; `make venv` installs it", python.display());
    None
}

/// A path for messages.
pub fn shown(path: &Path) -> String {
    path.display().to_string()
}
