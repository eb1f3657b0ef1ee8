//! The whole program from outside: a data directory is made, a host runs, scripts speak to it.
#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// No step may hang longer than this.
const PATIENCE: Duration = Duration::from_secs(60);

/// A host of its own in a folder whose name has a space and a letter outside ASCII.
struct Home {
    folder: tempfile::TempDir,
    python: PathBuf,
    host: Option<Child>,
}

/// Policy that holds what has the word "secret" in it.
const HOOKS: &str = "
from klbr.policy import Allow, Hold, Wake
def attention(request, context):
    return Wake(0)
def delivery(request, context):
    return Hold('it has the word') if 'secret' in request.text else Allow()
";

impl Home {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("k ö ").tempdir().unwrap();
        Self { folder, python: Path::new(env!("CARGO_MANIFEST_DIR")).join("python"), host: None }
    }

    /// As [`Home::new`], with [`HOOKS`] in the place of the shipped ones.
    fn with_hooks_of_its_own() -> Self {
        let mut home = Self::new();
        let python = home.path("python");
        let shipped = std::mem::replace(&mut home.python, python);
        let hooks = home.python.join("klbr_hooks");
        let package = hooks.join("klbr_hooks");
        std::fs::create_dir_all(&package).unwrap();
        std::os::unix::fs::symlink(shipped.join("klbr"), home.python.join("klbr")).unwrap();
        for name in ["klbr_hooks/__init__.py", "manifest.json"] {
            std::fs::copy(shipped.join("klbr_hooks").join(name), hooks.join(name)).unwrap();
        }
        std::fs::write(package.join("defaults.py"), HOOKS).unwrap();
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_klbr"));
        command
            .args(arguments)
            .env_clear()
            .env("KLBR_ALLOW_ROOT", "1")
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .env("LC_ALL", "tr_TR.UTF-8")
            .env("KLBR_CONFIG", self.path("configuration/klbr.toml"))
            .env("KLBR_DATA", self.path("data"))
            .env("KLBR_SOCKET", self.path("klbr.sock"))
            .env("KLBR_PYTHON_PATH", &self.python)
            .stdin(Stdio::null());
        command
    }

    /// Exit status, standard output, standard error.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let output = self.command(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    fn objects(&self, arguments: &[&str]) -> Vec<Value> {
        let (_, stdout, stderr) = self.run(arguments);
        let parsed = stdout.lines().map(serde_json::from_str).collect::<Result<_, _>>();
        parsed.unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"))
    }

    fn init(&self) -> Vec<Value> {
        let workspace = self.path("work");
        self.objects(&["init", "--json", "--workspace", workspace.to_str().unwrap()])
    }

    /// Initialises, and runs a host until it answers.
    fn serve(mut self) -> Self {
        self.init();
        let mut command = self.command(&["serve"]);
        command.stdout(Stdio::piped()).stderr(std::fs::File::create(self.path("host.log")).unwrap());
        self.host = Some(command.spawn().unwrap());
        self.until("the host answers", || self.objects(&["status", "--json"])[0]["running"] == true);
        self
    }

    fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            let log = || std::fs::read_to_string(self.path("host.log")).unwrap_or_default();
            assert!(start.elapsed() < PATIENCE, "never: {what}\n{}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn terminate(&mut self) -> (Option<i32>, String) {
        let host = self.host.take().unwrap();
        let pid = rustix::process::Pid::from_child(&host);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let output = host.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(host) = &mut self.host {
            // It may have ended by itself, which the test has noticed.
            let _ = host.kill();
            let _ = host.wait();
        }
    }
}

#[test]
fn init_makes_what_is_missing_once_and_changes_nothing_after_that() {
    let home = Home::new();
    let first = home.init();
    let config = home.path("configuration/klbr.toml");
    std::fs::write(&config, format!("# mine\n{}", std::fs::read_to_string(&config).unwrap())).unwrap();
    let again = home.init();
    let states = |steps: &[Value]| steps.iter().map(|step| step["state"].to_string()).collect::<Vec<_>>();

    assert_eq!(states(&first), vec!["\"made\""; 7]);
    assert_eq!(states(&again), vec!["\"found\""; 7]);
    assert!(std::fs::read_to_string(&config).unwrap().starts_with("# mine\n"));
    assert_eq!(std::fs::metadata(home.path("data")).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(home.path("work").is_dir() && home.path("data/skills").is_dir());
}

#[test]
fn init_beside_a_running_host_leaves_its_log_alone() {
    let home = Home::new().serve();

    assert_eq!(home.init().last().unwrap()["state"], "in_use");
    assert_eq!(home.run(&["send", "1", "--wait"]).0, Some(0));
}

#[test]
fn init_with_a_wrong_configuration_or_data_directory_is_6() {
    let home = Home::new();
    home.init();
    std::fs::write(home.path("configuration/klbr.toml"), "colour = 3\n").unwrap();
    let (status, stdout, stderr) = home.run(&["init"]);
    assert_eq!((status, stdout.as_str()), (Some(6), ""));
    assert!(stderr.contains("colour"), "{stderr}");

    let other = Home::new();
    std::fs::write(other.path("data"), "a file").unwrap();
    assert_eq!(other.run(&["init"]).0, Some(6));
}

#[test]
fn an_input_is_answered_and_the_log_has_it() {
    let home = Home::new().serve();
    let (status, stdout, stderr) = home.run(&["send", "sum(range(10))", "--wait"]);
    assert_eq!((status, stdout.as_str(), stderr.as_str()), (Some(0), "45\n", ""));

    let kinds = |arguments: &[&str]| -> Vec<String> {
        let events = home.objects(arguments);
        events.iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
    };
    let lane = ["operator.input", "delivery.sent", "turn.ended"];
    assert_eq!(kinds(&["follow", "--json", "--since", "0", "--count", "3"]), lane);
    assert_eq!(
        kinds(&["log", "--json", "--kind", "operator.input", "--kind", "turn.ended"]),
        [lane[0], lane[2]]
    );
    assert_eq!(kinds(&["log", "--json", "--limit", "1"]), ["turn.ended"]);

    let all = home.objects(&["log", "--json"]);
    let ids: Vec<_> = all.iter().map(|event| event["event_id"].as_i64().unwrap()).collect();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
    let after = home.objects(&["log", "--json", "--since", &ids[2].to_string()]);
    assert_eq!(after, all[3..]);
    assert_eq!(home.run(&["log", "--session", "nobody"]).0, Some(4));
}

#[test]
fn a_log_of_many_pages_comes_whole_and_in_order() {
    let home = Home::new().serve();
    for n in 0..10 {
        assert_eq!(home.run(&["send", &n.to_string(), "--wait"]).0, Some(0));
    }
    let log = home.objects(&["log", "--json"]);
    let ids: Vec<_> = log.iter().map(|event| event["event_id"].as_i64().unwrap()).collect();
    let count = log.len().to_string();

    assert!(log.len() > 2 * klbr::limits::OPERATOR_FETCH_EVENTS, "{count} events are not many pages");
    assert!(ids.iter().copied().eq(1..=i64::try_from(log.len()).unwrap()), "{ids:?}");
    assert_eq!(home.objects(&["follow", "--json", "--all", "--since", "0", "--count", &count]), log);
}

#[test]
fn follow_shows_what_comes_after_it_began() {
    let home = Home::new().serve();
    let mut follow =
        home.command(&["follow", "--json", "--count", "3"]).stdout(Stdio::piped()).spawn().unwrap();
    // Nothing tells that a follower has begun but an event that it shows.
    let start = Instant::now();
    while follow.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < PATIENCE);
        home.run(&["send", "1 + 1", "--wait"]);
    }
    let output = follow.wait_with_output().unwrap();

    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 3);
}

#[test]
fn exec_has_the_workbench_of_the_session_and_a_timeout_spares_its_namespace() {
    let home = Home::new().serve();
    assert_eq!(home.run(&["send", "x = 20", "--wait"]).0, Some(0));
    assert_eq!(home.run(&["exec", "x += 1; x * 2"]), (Some(0), "42\n".to_owned(), String::new()));

    let (status, _, stderr) = home.run(&["exec", "1/0"]);
    assert_eq!(status, Some(1));
    assert!(stderr.contains("ZeroDivisionError"), "{stderr}");

    assert_eq!(home.run(&["exec", "while True: pass", "--timeout", "1"]).0, Some(5));
    assert_eq!(home.run(&["exec", "x"]), (Some(0), "21\n".to_owned(), String::new()));

    assert_eq!(home.run(&["reset"]).0, Some(0));
    assert_eq!(home.run(&["exec", "x"]).0, Some(1));
}

#[test]
fn a_held_text_waits_for_the_operators_decision() {
    let home = Home::with_hooks_of_its_own().serve();
    for _ in 0..2 {
        let secret = "await local.send('a secret')\nNone";
        let (_, stdout, stderr) = home.run(&["send", secret, "--wait"]);
        assert!(!stdout.contains("secret") && stderr.contains("held as"), "{stdout}{stderr}");
    }
    let held = home.objects(&["held", "--json"]);
    let id = |at: usize| held[at]["effect_id"].as_str().unwrap();
    let released = home.objects(&["held", "release", id(0), "--json"]);
    let discarded = home.objects(&["held", "discard", id(1), "--json"]);

    assert_eq!(
        (&released[0]["kind"], &discarded[0]["kind"]),
        (&"delivery.sent".into(), &"delivery.discarded".into())
    );
    assert!(home.objects(&["held", "--json"]).is_empty());
    assert_eq!(home.run(&["held", "release", id(0)]).0, Some(4));
}

#[test]
fn a_cell_cannot_speak_as_its_operator_not_even_through_a_daemon() {
    let home = Home::new().serve();
    let code = r#"
import socket, subprocess, sys, tempfile
client = """
import os, socket, sys
if sys.argv[2] == 'daemon':
    if os.fork(): os._exit(0)
    os.setsid()
    if os.fork(): os._exit(0)
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
open(sys.argv[3], 'wb').write(s.recv(4096))
os.rename(sys.argv[3], sys.argv[3] + '.done')
"""
import asyncio, os
for how in ["child", "daemon"]:
    answer = os.path.join(tempfile.mkdtemp(), "answer")
    subprocess.run([sys.executable, "-c", client, SOCKET, how, answer], check=True)
    while not os.path.exists(answer + ".done"):
        await asyncio.sleep(0.01)
    print(b"PermissionDenied" in open(answer + ".done", "rb").read())
"#;
    let code = code.replace("SOCKET", &format!("{:?}", home.path("klbr.sock").to_str().unwrap()));

    let (_, stdout, stderr) = home.run(&["exec", &code, "--timeout", "30"]);
    assert_eq!(stdout, "True\nTrue\n", "{stderr}");
}

#[test]
fn a_second_host_is_refused_and_a_stop_is_orderly_and_silent() {
    let mut home = Home::new().serve();
    let (status, stdout, stderr) = home.run(&["serve"]);
    assert_eq!((status, stdout.as_str()), (Some(6), ""));
    assert!(stderr.contains("in use by process"), "{stderr}");

    assert_eq!(home.terminate(), (Some(0), String::new()));
    assert!(!home.path("klbr.sock").exists());
    assert_eq!(home.run(&["send", "x"]).0, Some(3));
}
