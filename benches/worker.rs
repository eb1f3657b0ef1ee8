//! What a cell costs between host and worker, as a multiple of a raw round trip of the same run.
//!
//! `cargo bench --bench worker`
#![allow(missing_docs, reason = "a program, not an interface")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement that cannot go on ends")]

mod floor;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use floor::{Echo, line, median, micros};
use klbr::cell::Role;
use klbr::containment::process::{Orphans, ProcessContainment};
use klbr::id::{ExecutionId, GenerationId, SessionId};
use klbr::wire::message::ReplyResult;
use klbr::worker::workbench::{Started, Workbench, WorkerEvent};
use klbr::worker::{Times, WorkerSpec};
use serde_json::json;

const ROUNDS: usize = 20;
/// Round trips and cells of one round.
const EACH: usize = 100;
/// Requests of one cell: as many as a cell may make.
const REQUESTS: usize = 128;

fn main() {
    floor::be_the_echo();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(measure());
}

async fn measure() {
    let folder = tempfile::tempdir().unwrap();
    let containment =
        ProcessContainment::new(Path::new(env!("CARGO_BIN_EXE_klbr")), "bench", Orphans::Named).unwrap();
    let spec = WorkerSpec {
        role: Role::Workbench,
        session: SessionId::root(),
        generation: GenerationId::numbered(1),
        unit: "klbr-bench".to_owned(),
        python: PathBuf::from("python3"),
        python_path: Path::new(env!("CARGO_MANIFEST_DIR")).join("python"),
        workspace: folder.path().to_owned(),
        run_dir: folder.path().join("run"),
        release: None,
        skills: None,
        times: Times::default(),
    };
    let mut started = Workbench::start(spec, Arc::new(containment)).await.unwrap();
    let (mut echo, mut python) = (Echo::start(), Echo::python());
    let mut number = 0;
    cells(&mut started, &mut number).await;
    let (mut raw, mut to_python, mut cell, mut request) = (vec![], vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        raw.extend(echo.round_trips(EACH));
        to_python.extend(python.round_trips(EACH));
        cell.extend(cells(&mut started, &mut number).await);
        request.push(requests(&mut started, &mut number).await);
    }
    let (raw, to_python) = (median(&raw), median(&to_python));
    println!("raw round trip of 200 bytes, both sides native {raw:>9.1} us");
    println!("the same, the other side a bare CPython        {to_python:>9.1} us");
    for (of, floor) in [("native raw", raw), ("CPython raw", to_python)] {
        line("cell `1+1`, p50", median(&cell), "us", floor, of, "6");
        line("request, answered at once, p50", median(&request), "us", floor, of, "6");
    }
    started.workbench.stop(klbr::worker::state::StopReason::Retired).await;
}

/// Microseconds of each of some cells, one after the other.
async fn cells(started: &mut Started, number: &mut u64) -> Vec<f64> {
    let mut times = Vec::new();
    for _ in 0..EACH {
        let start = Instant::now();
        run(started, number, "1+1").await;
        times.push(micros(start.elapsed()));
    }
    times
}

async fn run(started: &mut Started, number: &mut u64, code: &str) {
    *number += 1;
    let execution = ExecutionId::parse(format!("x-{number}")).unwrap();
    started.workbench.execute(execution, code.to_owned()).await.unwrap();
    loop {
        match started.events.recv().await.unwrap() {
            WorkerEvent::Request { execution, id, .. } => {
                let value = json!({"now": "2026-09-13T18:59:00Z", "now_ms": 1_789_325_940_000_u64});
                started.workbench.reply(execution, id, ReplyResult::Ok { value }).await.unwrap();
            }
            WorkerEvent::Completed { .. } => return,
            WorkerEvent::Ended(ended) => panic!("{ended:?}"),
        }
    }
}

/// Microseconds of one request, by the time of a cell that makes many.
async fn requests(started: &mut Started, number: &mut u64) -> f64 {
    let code = format!("for _ in range({REQUESTS}): await runtime.inspect()");
    let start = Instant::now();
    run(started, number, &code).await;
    micros(start.elapsed()) / f64::from(u32::try_from(REQUESTS).unwrap())
}
