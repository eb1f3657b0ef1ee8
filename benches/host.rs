//! What a whole host costs: requests, deliveries, memory, output. Ratios to floors of the same run.
//!
//! `cargo bench --bench host`; `TMPDIR` says which disk is measured.
#![allow(missing_docs, reason = "a program, not an interface")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement that cannot go on ends")]

mod floor;
#[path = "../tests/harness/mod.rs"]
mod harness;

use std::time::Instant;

use floor::{Echo, line, median, micros};
use harness::{TestHost, memory_kib};

const ROUNDS: usize = 15;
/// Raw round trips of one round.
const RAW: usize = 200;

fn main() {
    floor::be_the_echo();
    let host = TestHost::manual();
    requests(&host);
    deliveries(&host);
    memory();
    output();
}

/// The median of a cell's own measurements, in microseconds.
fn timed_in_cell(host: &TestHost, request: &str, count: usize) -> f64 {
    let code = format!(
        "import time, statistics\ntimes = []\nfor n in range({count}):\n    \
         start = time.perf_counter_ns()\n    await {request}\n    \
         times.append(time.perf_counter_ns() - start)\nstatistics.median(times) / 1e3"
    );
    let record = host.exec(&code);
    record["output"][0]["text"].as_str().unwrap_or_else(|| panic!("{record}")).parse().unwrap()
}

fn requests(host: &TestHost) {
    let (mut echo, mut python) = (Echo::start(), Echo::python());
    let mut to_python = vec![];
    let (mut raw, mut inspect, mut exec) = (vec![], vec![], vec![]);
    timed_in_cell(host, "runtime.inspect()", 100);
    for _ in 0..ROUNDS {
        raw.extend(echo.round_trips(RAW));
        to_python.extend(python.round_trips(RAW));
        inspect.push(timed_in_cell(host, "runtime.inspect()", 100));
        let start = Instant::now();
        host.exec("1 + 1");
        exec.push(micros(start.elapsed()));
    }
    let (raw, to_python) = (median(&raw), median(&to_python));
    println!("raw round trip of 200 bytes, both sides native {raw:>9.1} us");
    println!("the same, the other side a bare CPython        {to_python:>9.1} us");
    line("runtime.inspect in a cell, p50", median(&inspect), "us", raw, "native raw", "6");
    line("runtime.inspect in a cell, p50", median(&inspect), "us", to_python, "CPython raw", "6");
    println!("klbr exec '1 + 1', a process of its own, p50   {:>9.1} us", median(&exec));
}

/// Microseconds of one commit of SQLite with the log's settings, on the same disk.
fn commits(count: usize) -> Vec<f64> {
    let data = tempfile::tempdir().unwrap();
    let connection = rusqlite::Connection::open(data.path().join("bare.db")).unwrap();
    connection
        .execute_batch(
            "PRAGMA journal_mode = wal; PRAGMA synchronous = full;
             CREATE TABLE events (id INTEGER PRIMARY KEY, payload TEXT NOT NULL) STRICT;",
        )
        .unwrap();
    let insert = |_| {
        let start = Instant::now();
        let row = ["a text of some fifty bytes, as a delivery has it...."];
        connection.prepare_cached("INSERT INTO events (payload) VALUES (?1)").unwrap().execute(row).unwrap();
        micros(start.elapsed())
    };
    (0..count).map(insert).collect()
}

fn deliveries(host: &TestHost) {
    let (mut commit, mut send) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        commit.extend(commits(50));
        send.push(timed_in_cell(host, "local.send('measured')", 50));
    }
    // A hook is asked through a worker of its own: what a request without a commit costs, once more.
    let hook = timed_in_cell(host, "runtime.inspect()", 100);
    let (commit, send) = (median(&commit), median(&send));
    println!("one commit of SQLite                           {commit:>9.1} us; a hook call {hook:.1} us");
    line("local.send with review, p50", send, "us", 2.0 * commit + hook, "2 commits and a hook call", "1");
}

fn memory() {
    let host = TestHost::manual();
    host.exec("1 + 1");
    std::thread::sleep(std::time::Duration::from_millis(300));
    let mib = |kib: u64| f64::from(u32::try_from(kib).unwrap()) / 1024.0;
    println!(
        "host idle, VmRSS                               {:>9.1} MiB (reach: 16)",
        mib(host.memory_kib("VmRSS"))
    );
    for pid in host.workers() {
        let name = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap().replace('\0', " ");
        let what = ["contain", "workbench", "hooks"].into_iter().find(|word| name.contains(word)).unwrap();
        println!(
            "{what:<15} idle, VmRSS                    {:>9.1} MiB (reach: 14)",
            mib(memory_kib(pid, "VmRSS"))
        );
    }
}

fn output() {
    let host = TestHost::manual();
    let worker: u32 =
        host.exec("import os\nos.getpid()")["output"][0]["text"].as_str().unwrap().parse().unwrap();
    for (what, code) in [
        ("print", "line = 'x' * 999\nfor _ in range(50_000): print(line)"),
        ("one write", "import sys\nsys.stdout.write('x' * 50_000_000) and None"),
        ("os.write", "import os\npiece = b'x' * 50_000\nfor _ in range(1_000): os.write(1, piece)"),
        ("a child", "import subprocess\nsubprocess.run(['head', '-c', '50000000', '/dev/zero']) and None"),
    ] {
        let before = (host.memory_kib("VmRSS"), memory_kib(worker, "VmRSS"));
        let start = Instant::now();
        let record = host.exec(code);
        assert_eq!(record["status"], "ok", "{record}");
        let after = (host.memory_kib("VmRSS"), memory_kib(worker, "VmRSS"));
        let grown = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
        println!(
            "50 MB by {what:<10} {:>6.0} ms; growth of host {:>6} KiB, of worker {:>6} KiB (reach: 8192)",
            start.elapsed().as_secs_f64() * 1e3,
            grown.0,
            grown.1
        );
    }
}
