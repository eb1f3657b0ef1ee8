//! What the log costs against SQLite itself, as ratios of one run: absolute times are the machine's.
//!
//! `cargo bench --bench store`; `TMPDIR` says which disk is measured.
#![allow(missing_docs, reason = "a program, not an interface")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement that cannot go on ends")]

use std::path::Path;
use std::time::{Duration, Instant};

use klbr::event::{
    Body, ModelRequested, ModelResponded, NewEvent, OperatorInput, SessionOpened, Source, StepEnded,
    TurnEndReason, TurnEnded, TurnStarted, Usage, WakeCause,
};
use klbr::id::{Digest, EventId, SessionId};
use klbr::store::{FILE_NAME, Store, StoreError, Transaction};

/// Events of one measurement of a writer.
const WRITES: usize = 2_000;
/// Rounds that take turns, so that a disk's moods meet both sides alike; the median counts.
const ROUNDS: usize = 5;
/// Tasks that append side by side.
const WRITERS: usize = 64;
/// Events of the log that is opened.
const LOG_EVENTS: i64 = 1_000_000;

const TEXT: &str = "please look at the failing build and say what broke it, in one paragraph";

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut bare, mut one, mut many) = (vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        bare.push(bare_writer());
        one.push(runtime.block_on(store_writer()));
        many.push(runtime.block_on(store_writers()));
    }
    let (bare, one, many) = (median(bare), median(one), median(many));
    println!("bare rusqlite, one row a commit   {bare:>9.0} events/s");
    println!("one writer                        {one:>9.0} events/s = {:.2} of bare", one / bare);
    println!("{WRITERS} writers                        {many:>9.0} events/s = {:.1} of one", many / one);

    let empty = tempfile::tempdir().unwrap();
    runtime.block_on(async { opened(empty.path()).await.close().await });
    let full = tempfile::tempdir().unwrap();
    let filling = Instant::now();
    runtime.block_on(fill(full.path()));
    let bytes = std::fs::metadata(full.path().join(FILE_NAME)).unwrap().len();
    println!(
        "filled a log with {LOG_EVENTS} events ({} MiB) in {:.1} s",
        bytes >> 20,
        filling.elapsed().as_secs_f64()
    );
    let (mut small, mut large) = (vec![], vec![]);
    for _ in 0..21 {
        small.push(runtime.block_on(open_time(empty.path())).as_secs_f64());
        large.push(runtime.block_on(open_time(full.path())).as_secs_f64());
    }
    let (small, large) = (median(small), median(large));
    println!("open an empty log                 {:>9.2} ms", small * 1e3);
    println!(
        "open {LOG_EVENTS} events               {:>9.2} ms = {:.2} of empty",
        large * 1e3,
        large / small
    );
    runtime.block_on(reads(full.path()));
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn event(body: Body) -> NewEvent {
    NewEvent {
        session: SessionId::root(),
        source: Source::operator(),
        execution: None,
        at_ms: 1_789_325_940_000,
        body,
    }
}

fn input() -> NewEvent {
    event(Body::OperatorInput(OperatorInput { text: TEXT.to_owned() }))
}

async fn opened(data: &Path) -> Store {
    let store = Store::open(data).unwrap();
    if store.read(|snapshot| snapshot.sessions()).await.unwrap().is_empty() {
        store.append(event(Body::SessionOpened(SessionOpened { parent: None }))).await.unwrap();
    }
    store
}

/// The log's settings, a table like its own, and nothing else: no index, no projection, no thread.
fn bare_writer() -> f64 {
    let data = tempfile::tempdir().unwrap();
    let connection = rusqlite::Connection::open(data.path().join("bare.db")).unwrap();
    connection
        .execute_batch(
            "PRAGMA journal_mode = wal; PRAGMA synchronous = full; PRAGMA foreign_keys = on;
             CREATE TABLE events (id INTEGER PRIMARY KEY, session TEXT NOT NULL, kind TEXT NOT NULL,
                 source TEXT NOT NULL, execution TEXT, at_ms INTEGER NOT NULL, payload TEXT NOT NULL) STRICT;",
        )
        .unwrap();
    let start = Instant::now();
    for _ in 0..WRITES {
        let event = input();
        let payload = event.body.payload_json().unwrap();
        connection
            .prepare_cached(
                "INSERT INTO events (session, kind, source, execution, at_ms, payload) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )
            .unwrap()
            .execute(rusqlite::params![
                event.session.as_str(),
                event.body.kind(),
                event.source.0,
                None::<&str>,
                event.at_ms,
                payload
            ])
            .unwrap();
    }
    WRITES as f64 / start.elapsed().as_secs_f64()
}

async fn store_writer() -> f64 {
    let data = tempfile::tempdir().unwrap();
    let store = opened(data.path()).await;
    let start = Instant::now();
    for _ in 0..WRITES {
        store.append(input()).await.unwrap();
    }
    let rate = WRITES as f64 / start.elapsed().as_secs_f64();
    store.close().await;
    rate
}

async fn store_writers() -> f64 {
    let data = tempfile::tempdir().unwrap();
    let store = opened(data.path()).await;
    let each = 10 * WRITES / WRITERS;
    let start = Instant::now();
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..WRITERS {
        let store = store.clone();
        writers.spawn(async move {
            for _ in 0..each {
                store.append(input()).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    let rate = (each * WRITERS) as f64 / start.elapsed().as_secs_f64();
    store.close().await;
    rate
}

async fn open_time(data: &Path) -> Duration {
    let start = Instant::now();
    let store = Store::open(data).unwrap();
    store.read(|s| Ok((s.open_executions()?, s.open_requests()?, s.open_responses()?))).await.unwrap();
    store.read(|s| Ok((s.open_effects()?, s.open_generations()?, s.sessions()?))).await.unwrap();
    let elapsed = start.elapsed();
    store.close().await;
    elapsed
}

/// Whole turns of six events, many to a commit.
async fn fill(data: &Path) {
    let store = opened(data).await;
    let mut turn = 0;
    while store.head().borrow().0 < LOG_EVENTS {
        store
            .write(move |transaction| {
                for turn in turn + 1..=turn + 2_000 {
                    one_turn(transaction, turn)?;
                }
                Ok(())
            })
            .await
            .unwrap();
        turn += 2_000;
    }
    store.close().await;
}

fn one_turn(transaction: &mut Transaction<'_>, turn: u64) -> Result<(), StoreError> {
    let said = transaction.append(input())?;
    transaction.append(event(Body::TurnStarted(TurnStarted { turn, cause: WakeCause::Input })))?;
    let request = transaction.append(event(Body::ModelRequested(ModelRequested {
        turn,
        step: 1,
        route: "local".to_owned(),
        model: None,
        digest: Digest::of(b""),
        bytes: 10_000,
        shared_prefix_bytes: 9_000,
        not_extension: None,
        adopted: vec![said],
    })))?;
    let response = transaction.append(event(Body::ModelResponded(Box::new(ModelResponded {
        request,
        text: TEXT.to_owned(),
        reasoning: None,
        calls: vec![],
        finish_reason: None,
        usage: Usage { total_tokens: Some(100), ..Usage::default() },
        usage_raw: None,
        duration_ms: 1,
    }))))?;
    transaction.append(event(Body::StepEnded(StepEnded { turn, step: 1, response, results: vec![] })))?;
    let reason = TurnEndReason::Answered;
    transaction.append(event(Body::TurnEnded(TurnEnded { turn, reason, detail: None })))?;
    Ok(())
}

/// What is asked all the time must not grow with the log.
async fn reads(data: &Path) {
    let store = Store::open(data).unwrap();
    let root = SessionId::root;
    let timed =
        |name: &'static str, elapsed: Duration| println!("{name:<34}{:>9.0} us", elapsed.as_secs_f64() * 1e6);
    for (name, session, kinds) in [
        ("newest 50 of a session", Some(root()), vec![]),
        (
            "newest 50 of a session's kinds",
            Some(root()),
            vec!["operator.input", "turn.ended", "delivery.sent"],
        ),
        ("newest 50 of a kind never used", None, vec!["delivery.held"]),
    ] {
        let filter =
            klbr::store::EventFilter { session, kinds: kinds.into_iter().map(str::to_owned).collect() };
        let mut times = vec![];
        for _ in 0..21 {
            let filter = filter.clone();
            let start = Instant::now();
            store.read(move |s| s.events_before(EventId(i64::MAX), &filter, 50)).await.unwrap();
            times.push(start.elapsed());
        }
        times.sort();
        timed(name, times[times.len() / 2]);
    }
    store.close().await;
}
