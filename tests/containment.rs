//! Stop means stop: whatever a cell started is gone, and nothing else is.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod harness;

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use harness::{PATIENCE, TestHost};

/// Ways out that a cell's children know. Each one makes processes that have `MARK` as an argument.
const ESCAPES: &[(&str, &str)] = &[
    ("setsid", "import subprocess\nsubprocess.Popen(['setsid', 'sleep', MARK])"),
    (
        "double fork",
        "import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        \
         os.execvp('sleep', ['sleep', MARK])\n    os._exit(0)\nos.wait()",
    ),
    (
        "an empty environment in a session of its own",
        "import subprocess\nsubprocess.Popen(['setsid', 'env', '-i', '/bin/sleep', MARK])",
    ),
    (
        "deaf to signals",
        "import subprocess\nsubprocess.Popen(['setsid', 'sh', '-c', \
         \"trap '' TERM INT HUP QUIT; while :; do sleep $0; done\", MARK])",
    ),
    (
        "stopped",
        "import os, signal, subprocess\np = subprocess.Popen(['setsid', 'sleep', MARK])\n\
         os.kill(p.pid, signal.SIGSTOP)",
    ),
    (
        "a tree",
        "import subprocess\nsubprocess.Popen(['setsid', 'sh', '-c', \
         'for i in 1 2 3 4 5; do (for j in 1 2 3 4 5; do setsid sleep $0 & done; sleep $0) & done; wait', MARK])",
    ),
    (
        "a daemon that holds standard error only",
        "import subprocess\nsubprocess.Popen(['setsid', 'sleep', MARK], stdin=subprocess.DEVNULL, \
         stdout=subprocess.DEVNULL)",
    ),
    (
        "a bomb",
        // Each process makes two and goes on; how many there are at once is bounded for the machine's sake.
        "import subprocess\nsubprocess.Popen(['setsid', 'sh', '-c', \
         'ulimit -u 4000 2>/dev/null; n=0; while [ $n -lt 300 ]; do n=$((n+1)); \
          (setsid sleep 0.01; setsid sleep $0) & done; \
          while :; do (setsid sleep 0.02 $0 &); done', MARK])",
    ),
];

/// Processes with this argument.
fn marked(mark: &str) -> Vec<u32> {
    let has = |pid: &u32| {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).any(|argument| argument == mark.as_bytes())
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(has).collect()
}

/// A number of seconds that nothing else on the machine sleeps for.
fn new_mark() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("1{:06}{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Lets a cell start what escapes, and waits until it is there.
fn escape(host: &TestHost, code: &str) -> String {
    let mark = new_mark();
    let record = host.exec(&format!("MARK = '{mark}'\n{code}"));
    assert_eq!(record["status"], "ok", "{record}");
    until("nothing was started", || !marked(&mark).is_empty());
    mark
}

fn all_gone(mark: &str, how: &str) {
    until(&format!("{how}: still there: {:?}", marked(mark)), || marked(mark).is_empty());
    // It stays so: nothing is left that could make more.
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(marked(mark), Vec::<u32>::new(), "{how}");
}

/// A process that is none of the host's business.
struct Bystander(Child);

impl Bystander {
    fn start() -> Self {
        let child = Command::new("sleep").arg("600").stdin(Stdio::null()).process_group(0).spawn().unwrap();
        Self(child)
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        // The test is over.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_reset_leaves_nothing_of_the_workbench() {
    let mut bystander = Bystander::start();
    let host = TestHost::manual();
    for (name, code) in ESCAPES {
        let mark = escape(&host, code);
        host.ok(&["reset"]);
        // No patience here: the command says that it is done.
        assert_eq!(marked(&mark), Vec::<u32>::new(), "{name}");
        all_gone(&mark, name);
    }

    assert!(bystander.lives());
    assert_eq!(host.say("6 * 7"), "42");
}

#[test]
fn the_orderly_end_of_a_host_leaves_nothing() {
    for (name, code) in ESCAPES {
        let mut host = TestHost::manual();
        let mark = escape(&host, code);
        assert!(host.stop().status.success(), "{name}");
        assert_eq!(marked(&mark), Vec::<u32>::new(), "{name}");
        all_gone(&mark, name);
    }
}

#[test]
fn the_sudden_end_of_a_host_leaves_nothing() {
    let mut bystander = Bystander::start();
    for (name, code) in ESCAPES {
        let mut host = TestHost::manual();
        let mark = escape(&host, code);
        host.kill();
        all_gone(&mark, name);
        host.await_no_workers();
    }

    assert!(bystander.lives());
}

#[test]
fn the_sudden_end_of_a_worker_or_its_shim_leaves_nothing() {
    let host = TestHost::manual();
    for (name, code) in ESCAPES {
        for victim in ["os.getpid()", "os.getppid()"] {
            let mark = escape(&host, code);
            host.run(&[
                "exec",
                &format!("import os, signal, time\nos.kill({victim}, signal.SIGKILL)\ntime.sleep(60)"),
            ]);
            all_gone(&mark, &format!("{name}, {victim} killed"));
        }
    }

    assert_eq!(host.say("6 * 7"), "42");
}

#[test]
fn a_worker_that_is_stopped_by_a_signal_does_not_outlive_its_host() {
    let mut host = TestHost::manual();
    let mark = escape(&host, ESCAPES[0].1);
    host.ok(&["send", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)"]);
    host.await_events("cell.started", 2);
    host.kill();
    all_gone(&mark, "a stopped worker");
    host.await_no_workers();
}

#[test]
fn a_daemon_that_holds_a_stream_open_holds_up_nothing() {
    for stream in ["", ", stdout=subprocess.DEVNULL", ", stderr=subprocess.DEVNULL"] {
        let mut host = TestHost::manual();
        let mark =
            escape(&host, &format!("import subprocess\nsubprocess.Popen(['setsid', 'sleep', MARK]{stream})"));
        // Cells go on, and so do a failing worker, a reset and the end of the host.
        assert_eq!(host.say("6 * 7"), "42");
        host.run(&["exec", "import os\nos._exit(1)"]);
        all_gone(&mark, "the worker's exit");
        let mark =
            escape(&host, &format!("import subprocess\nsubprocess.Popen(['setsid', 'sleep', MARK]{stream})"));
        assert!(host.stop().status.success());
        all_gone(&mark, "the host's end");
    }
}

#[test]
fn a_host_that_starts_after_a_crash_stops_what_the_crash_left() {
    let mut host = TestHost::manual();
    let mark = escape(&host, ESCAPES[0].1);
    // Shims that are stopped cannot do their work when the host dies: the last line is the next host.
    for pid in host.workers() {
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    }
    host.kill();
    assert_ne!(marked(&mark), Vec::<u32>::new(), "nothing is left to be stopped");
    host.start();
    all_gone(&mark, "leftovers");
    assert_eq!(host.say("6 * 7"), "42");
}
