//! The units on a real systemd: `tests/systemd/testbed` boots one in a container, with what
//! `make install` would install, and the Python suites beside it run inside.
//!
//! Needs root and what a container needs. Where it cannot be had, the tests say that they are skipped.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Exit status of the test bed where it could not do its own work.
const BED_FAILED: i32 = 125;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn bed(arguments: &[&str], inside: &[&str]) -> Output {
    let mut command = Command::new(root().join("tests/systemd/testbed"));
    command.arg("run").args(arguments).arg("--").args(inside).output().unwrap()
}

/// Says so past what the test harness keeps of a test that passes.
fn skipped(what: &str) {
    use std::io::Write as _;
    // Where nobody reads there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}

/// Whether a systemd of this suite (`host`: this machine's own) boots here.
fn boots(os: &str) -> bool {
    static HOST: OnceLock<bool> = OnceLock::new();
    static TRIXIE: OnceLock<bool> = OnceLock::new();
    let known = if os == "host" { &HOST } else { &TRIXIE };
    *known.get_or_init(|| {
        if !rustix::process::geteuid().is_root() {
            skipped(&format!("units on a real systemd ({os}): needs root"));
            return false;
        }
        let tried = bed(&["--os", os], &["true"]);
        if !tried.status.success() {
            let why = String::from_utf8_lossy(&tried.stderr);
            skipped(&format!("units on a real systemd ({os}): none boots here\n{why}"));
        }
        tried.status.success()
    })
}

/// What `make install` installs, of the program under test.
fn stage() -> &'static Path {
    static STAGE: OnceLock<PathBuf> = OnceLock::new();
    STAGE.get_or_init(|| {
        let folder = tempfile::Builder::new().prefix("klbr-stage").tempdir().unwrap().keep();
        let installed = Command::new("make")
            .args(["-s", "install-built", "PREFIX=/usr"])
            .arg(format!("DESTDIR={}", folder.display()))
            .arg(format!("BUILT={}", env!("CARGO_BIN_EXE_klbr")))
            .current_dir(root())
            .output()
            .unwrap();
        assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
        folder
    })
}

/// Runs a suite inside of a machine of its own; what it said.
fn run_suite(machine: &[&str], name: &str) -> String {
    let staged = format!("{}:/stage", stage().display());
    let suites = format!("{}:/suite", root().join("tests/systemd").display());
    let mut arguments = machine.to_vec();
    arguments.extend(["--bind", &staged, "--bind", &suites, "--cwd", "/suite"]);
    // How often tests/systemd/test_kill.py starts and kills.
    let loops = std::env::var("KLBR_LOOPS").map(|loops| format!("KLBR_LOOPS={loops}"));
    if let Ok(loops) = &loops {
        arguments.extend(["--env", loops]);
    }
    let output = bed(&arguments, &["python3", "-B", "-m", "unittest", "-v", name]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_ne!(output.status.code(), Some(BED_FAILED), "the test bed failed: {said}");
    assert!(output.status.success(), "{machine:?}, {name}: {said}");
    said
}

/// Runs a suite in a container of this system, where one boots, and says what of it was skipped.
fn suite(os: &str, name: &str) {
    if !boots(os) {
        return;
    }
    for line in run_suite(&["--os", os], name).lines().filter(|line| line.contains("skipped ")) {
        skipped(&format!("{os}, {name}: {line}"));
    }
}

#[test]
fn the_users_units() {
    suite("host", "test_user");
}

#[test]
fn the_users_units_on_debian_13() {
    suite("trixie", "test_user");
}

#[test]
fn stops_reach_every_descendant() {
    suite("host", "test_kill");
}

#[test]
fn stops_reach_every_descendant_on_debian_13() {
    suite("trixie", "test_kill");
}

#[test]
fn a_worker_is_kept_inside() {
    suite("host", "test_sandbox");
}

#[test]
fn a_worker_is_kept_inside_on_debian_13() {
    suite("trixie", "test_sandbox");
}

#[test]
fn the_journal_tells_a_turn() {
    suite("host", "test_journal");
}

#[test]
fn the_journal_tells_a_turn_on_debian_13() {
    suite("trixie", "test_journal");
}

#[test]
fn what_is_missing_is_said() {
    suite("host", "test_without");
}

#[test]
fn what_is_missing_is_said_on_debian_13() {
    suite("trixie", "test_without");
}

#[test]
fn only_the_host_has_the_key() {
    suite("host", "test_credentials");
}

#[test]
fn only_the_host_has_the_key_on_debian_13() {
    suite("trixie", "test_credentials");
}

#[test]
fn the_machines_service() {
    suite("host", "test_system");
}

#[test]
fn the_machines_service_on_debian_13() {
    suite("trixie", "test_system");
}

#[test]
fn the_units_are_well_formed_and_closed() {
    suite("host", "test_units");
}

#[test]
fn the_units_are_well_formed_and_closed_on_debian_13() {
    suite("trixie", "test_units");
}

/// Takes minutes: `make test-vm`.
#[test]
#[ignore = "boots a virtual machine, for the controllers that a container lacks"]
fn limits_of_memory_and_tasks() {
    let said = run_suite(&["--backend", "vm", "--os", "trixie", "--timeout", "900"], "test_memory");
    assert!(!said.contains("skipped"), "{said}");
}

/// 252 has no such client.
#[test]
fn varlinkctl_speaks_to_the_host_on_debian_13() {
    suite("trixie", "test_varlinkctl");
}
