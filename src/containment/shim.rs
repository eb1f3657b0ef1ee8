//! `klbr contain`: the small process between the host and a worker.
//!
//! Child subreaper of all that the worker starts, reaper of their zombies, and holder of a lifeline
//! to the host: when that ends, however the host died, it kills until nothing is left. No runtime,
//! no configuration, no log.
//!
//! `klbr contain -- PROGRAM [ARG...]` with the lifeline as standard input, or `klbr contain --accepted`
//! with a connection as standard input over which the host says what to run (`accepted.rs`). It ends like
//! the program: with its status, or by its signal.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, set_child_subreaper, wait,
};

use super::accepted;
use super::tree::{Table, kill_pass};

/// Status of `klbr contain` where it could not do its work; that of a shell for "not executable".
const CANNOT_START: u8 = 126;
/// Pause between two passes over what is left.
const PASS_PAUSE: Duration = Duration::from_millis(2);
/// Workers yield to the host: it must stay able to stop them.
const WORKER_NICE: i32 = 5;

/// Set once everything is to be killed; several may want it.
static KILLING: AtomicBool = AtomicBool::new(false);

/// Runs the program of `arguments` (those after `contain`) and ends like it.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let mut command = match command(arguments) {
        Ok(command) => command,
        Err(problem) => {
            complain(&problem);
            return ExitCode::from(64);
        }
    };
    // Not fatal: where it fails, the host's own sweep finds what escaped.
    let _ = set_child_subreaper(Some(getpid()));
    // A terminal's signals are not for workers.
    let _ = rustix::process::setsid();
    let worker = match command.process_group(0).spawn() {
        Ok(child) => child.id(),
        Err(error) => {
            complain(&format!("{}: {error}", command.get_program().to_string_lossy()));
            return ExitCode::from(CANNOT_START);
        }
    };
    // What was handed over is the worker's now.
    drop(command);
    let worker = i32::try_from(worker).ok().and_then(Pid::from_raw);
    if let Some(pid) = worker {
        // A worker without it runs all the same.
        let _ = rustix::process::setpriority_process(Some(pid), WORKER_NICE);
    }
    // Without a thread to hold the lifeline nothing may run.
    if std::thread::Builder::new().stack_size(64 * 1024).spawn(hold_lifeline).is_err() {
        kill_all();
    }
    mirror(reap(worker))
}

fn command(arguments: &[OsString]) -> Result<Command, String> {
    match arguments {
        [only] if only == "--accepted" => accepted::receive(),
        [separator, program, rest @ ..] if separator == "--" => {
            let mut command = Command::new(program);
            command.args(rest).stdin(Stdio::null());
            Ok(command)
        }
        _ => Err("usage: klbr contain -- PROGRAM [ARG...], or klbr contain --accepted".to_owned()),
    }
}

fn complain(text: &str) {
    use std::io::Write as _;
    // Nobody may be listening any more.
    let _ = writeln!(std::io::stderr(), "klbr contain: {text}");
}

/// Waits for the host to speak or to go away: both mean the same.
fn hold_lifeline() {
    let mut byte = [0];
    // An error is an end as well.
    let _ = std::io::stdin().read(&mut byte);
    kill_all();
}

/// Kills until this process itself ends, which it does when nothing is left to wait for.
fn kill_all() -> ! {
    if KILLING.swap(true, Ordering::SeqCst) {
        loop {
            std::thread::park();
        }
    }
    // Only root may; others have the workers' own niceness on their side.
    let _ = rustix::process::setpriority_process(None, -20);
    let own = getpid().as_raw_nonzero().get();
    loop {
        kill_pass(|table: &Table| table.descendants(own, &std::collections::HashSet::new()));
        std::thread::sleep(PASS_PAUSE);
    }
}

/// Waits for every child there is or comes to be; how the worker ended.
fn reap(worker: Option<Pid>) -> Option<WaitStatus> {
    let mut ended = None;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if Some(pid) == worker => {
                ended = Some(status);
                // What it leaves behind goes with it.
                let killer = std::thread::Builder::new().stack_size(256 * 1024).spawn(|| kill_all());
                if killer.is_err() {
                    // The lifeline's thread does it when the host lets go.
                    complain("cannot start a thread");
                }
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // No children: every descendant would be below one.
            Err(_) => return ended,
        }
    }
}

/// Ends like the worker did.
fn mirror(status: Option<WaitStatus>) -> ExitCode {
    let Some(status) = status else { return ExitCode::from(CANNOT_START) };
    if let Some(signal) = status.terminating_signal().and_then(Signal::from_named_raw) {
        // No core: it would be this process's, not the worker's.
        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
        // The standard library's handler of SIGSEGV and SIGBUS gives way at the first one.
        for _ in 0..3 {
            let _ = kill_process(getpid(), signal);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let code = status.exit_status().or(status.terminating_signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code & 0xff).unwrap_or(1))
}
