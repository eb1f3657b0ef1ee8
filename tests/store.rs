//! The log keeps its promises on a real disk.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use klbr::clock::now_ms;
use klbr::event::*;
use klbr::id::*;
use klbr::store::{EventFilter, Store, StoreError, verify};
use serde_json::json;

fn event(body: Body) -> NewEvent {
    NewEvent { session: SessionId::root(), source: Source::host(), execution: None, at_ms: now_ms(), body }
}

fn input(text: &str) -> NewEvent {
    event(Body::OperatorInput(OperatorInput { text: text.to_owned() }))
}

fn requested(turn: u64, adopted: Vec<EventId>) -> NewEvent {
    event(Body::ModelRequested(ModelRequested {
        turn,
        step: 1,
        route: "r".into(),
        model: None,
        digest: Digest::of(b""),
        bytes: 0,
        shared_prefix_bytes: 0,
        not_extension: None,
        adopted,
    }))
}

fn responded(request: EventId, calls: usize) -> NewEvent {
    let call =
        ToolCall { id: "c".into(), name: "python".into(), arguments: "{}".into(), extra_content: None };
    event(Body::ModelResponded(Box::new(ModelResponded {
        request,
        text: String::new(),
        reasoning: None,
        calls: vec![call; calls],
        finish_reason: None,
        usage: Usage { total_tokens: Some(10), ..Usage::default() },
        usage_raw: None,
        duration_ms: 1,
    })))
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

async fn rooted(data: &Path) -> Store {
    let store = Store::open(data).unwrap();
    if store.read(|s| s.sessions()).await.unwrap().is_empty() {
        store.append(event(Body::SessionOpened(SessionOpened { parent: None }))).await.unwrap();
    }
    store
}

#[test]
fn an_event_comes_back_as_it_was_and_the_head_follows() {
    let data = tempfile::tempdir().unwrap();
    run(async {
        let store = rooted(data.path()).await;
        let said = input("héllo\n\u{1f642}");
        let id = store.append(said.clone()).await.unwrap();

        let back = store.read(move |s| s.event(id)).await.unwrap().unwrap();
        assert_eq!((back.body, back.at_ms, back.source), (said.body, said.at_ms, said.source));
        assert_eq!(*store.head().borrow(), id);
        let filter = EventFilter { session: None, kinds: vec!["operator.input".into()] };
        let page = store.read(move |s| s.events_after(EventId(0), &filter, 10)).await.unwrap();
        assert_eq!(page.iter().map(|event| event.id).collect::<Vec<_>>(), [id]);
        store.close().await;
    });
}

#[test]
fn a_job_that_fails_leaves_nothing_and_its_neighbours_stand() {
    let data = tempfile::tempdir().unwrap();
    run(async {
        let store = rooted(data.path()).await;
        let before = *store.head().borrow();
        let bad = store.write(|transaction| {
            transaction.append(input("lost"))?;
            transaction.append(event(Body::TurnEnded(TurnEnded {
                turn: 9,
                reason: TurnEndReason::Answered,
                detail: None,
            })))
        });
        let panics = store.write(|transaction| -> Result<(), StoreError> {
            transaction.append(input("lost too"))?;
            panic!("in a job")
        });
        let good = store.append(input("kept"));
        let (bad, panics, good) = tokio::join!(bad, panics, good);

        assert!(matches!(bad, Err(StoreError::Projection(_))), "{bad:?}");
        assert!(matches!(panics, Err(StoreError::Panicked)), "{panics:?}");
        let after = store.read(move |s| s.events_after(before, &EventFilter::default(), 10)).await.unwrap();
        assert_eq!(after.iter().map(|event| event.id).collect::<Vec<_>>(), [good.unwrap()]);
        store.close().await;
    });
}

#[test]
fn an_input_is_taken_up_once() {
    let data = tempfile::tempdir().unwrap();
    run(async {
        let store = rooted(data.path()).await;
        let said = store.append(input("once")).await.unwrap();
        store
            .append(event(Body::TurnStarted(TurnStarted { turn: 1, cause: WakeCause::Input })))
            .await
            .unwrap();
        let root = SessionId::root();
        let pending = store.read(move |s| s.pending_inputs(&root)).await.unwrap();
        let request = store.append(requested(1, pending.clone())).await.unwrap();
        let again = store.append(requested(1, vec![said])).await;
        store.append(responded(request, 0)).await.unwrap();

        assert_eq!(pending, [said]);
        assert!(matches!(again, Err(StoreError::Projection(_))), "{again:?}");
        let root = SessionId::root();
        assert_eq!(store.read(move |s| s.pending_inputs(&root)).await.unwrap(), []);
        store.close().await;
    });
}

#[test]
fn a_call_enters_the_transcript_only_with_all_its_results() {
    let data = tempfile::tempdir().unwrap();
    run(async {
        let store = rooted(data.path()).await;
        let said = store.append(input("go")).await.unwrap();
        store
            .append(event(Body::TurnStarted(TurnStarted { turn: 1, cause: WakeCause::Input })))
            .await
            .unwrap();
        let request = store.append(requested(1, vec![said])).await.unwrap();
        let response = store.append(responded(request, 2)).await.unwrap();
        let blocks = || async {
            let root = SessionId::root();
            let blocks = store.read(move |s| s.transcript(&root, 0)).await.unwrap();
            blocks.iter().map(|block| (block.seq, block.event, block.call)).collect::<Vec<_>>()
        };
        assert_eq!(blocks().await, [(1, said, None)]);

        let refused = |text: &str| CallResult::Refused { message: text.into() };
        let step = |results| event(Body::StepEnded(StepEnded { turn: 1, step: 1, response, results }));
        let short = store.append(step(vec![refused("a")])).await;
        assert!(matches!(short, Err(StoreError::Projection(_))), "{short:?}");
        let ended = store.append(step(vec![refused("a"), refused("b")])).await.unwrap();

        let expected = [(1, said, None), (2, response, None), (3, ended, Some(0)), (4, ended, Some(1))];
        assert_eq!(blocks().await, expected);
        store.close().await;
    });
}

#[test]
fn an_effect_is_intended_once_and_delivered_once() {
    let data = tempfile::tempdir().unwrap();
    run(async {
        let store = rooted(data.path()).await;
        let execution = ExecutionId::numbered(1);
        let request = RequestId::parse("r-1").unwrap();
        let effect_id = EffectId::of_request(&execution, &request);
        let of_cell = |body| NewEvent { execution: Some(execution.clone()), ..event(body) };
        let intent = of_cell(Body::EffectIntended(EffectIntended {
            effect_id: effect_id.clone(),
            request: request.clone(),
            method: "local.send".into(),
            digest: Digest::of(b"x"),
        }));
        let sent = of_cell(Body::DeliverySent(DeliverySent {
            text: "t".into(),
            effect_id: effect_id.clone(),
            released: false,
        }));
        store.append(intent.clone()).await.unwrap();
        let delivered = store.append(sent.clone()).await.unwrap();
        store
            .append(of_cell(Body::EffectSettled(EffectSettled {
                effect_id: effect_id.clone(),
                request: request.clone(),
                state: EffectState::Committed,
                event: Some(delivered),
                receipt: json!({"status": "confirmed"}),
            })))
            .await
            .unwrap();

        assert!(matches!(store.append(intent).await, Err(StoreError::Projection(_))));
        assert!(matches!(store.append(sent).await, Err(StoreError::Projection(_))));
        let (of, name) = (execution.clone(), request.clone());
        let row = store.read(move |s| s.effect(&of, &name)).await.unwrap().unwrap();
        assert_eq!((row.state, row.event), (EffectState::Committed, Some(delivered)));
        store.close().await;
        assert_eq!(verify(data.path()).unwrap().problems, Vec::<String>::new());
    });
}

#[test]
fn the_log_itself_refuses_to_change() {
    let data = tempfile::tempdir().unwrap();
    run(async {
        let store = rooted(data.path()).await;
        store.append(input("first")).await.unwrap();
        store.close().await;
    });
    let connection = rusqlite::Connection::open(data.path().join("klbr.db")).unwrap();
    for statement in ["UPDATE events SET payload = '{}'", "DELETE FROM events"] {
        let error = connection.execute(statement, []).unwrap_err().to_string();

        assert!(error.contains("an event is never"), "{error}");
    }
}

#[test]
fn a_second_host_is_told_who_has_the_directory() {
    let data = tempfile::tempdir().unwrap();
    run(async {
        let store = rooted(data.path()).await;
        let second = Store::open(data.path()).err().unwrap();

        assert!(matches!(&second, StoreError::Locked { pid, .. } if *pid == std::process::id().to_string()));
        store.close().await;
        assert!(Store::open(data.path()).is_ok(), "closing lets the directory go");
    });
}

#[test]
fn what_cannot_be_used_is_named() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("file");
    std::fs::write(&file, "x").unwrap();
    assert!(matches!(Store::open(&file), Err(StoreError::NotADirectory { .. })));

    let garbage = data.path().join("garbage");
    std::fs::create_dir(&garbage).unwrap();
    std::fs::write(
        garbage.join("klbr.db"),
        "this is not a database, and it is long enough to be read".repeat(40),
    )
    .unwrap();
    assert!(matches!(Store::open(&garbage), Err(StoreError::NotADatabase { .. })));

    let newer = data.path().join("newer");
    run(async { rooted(&newer).await.close().await });
    let connection = rusqlite::Connection::open(newer.join("klbr.db")).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    assert!(matches!(Store::open(&newer), Err(StoreError::NewerSchema { found: 99, .. })));
}

#[test]
fn a_directory_is_made_private() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join("a b/ä");
    run(async { rooted(&path).await.close().await });

    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_damaged_projection_is_found() {
    let data = tempfile::tempdir().unwrap();
    run(async {
        let store = rooted(data.path()).await;
        store.append(input("x")).await.unwrap();
        store.close().await;
    });
    assert_eq!(verify(data.path()).unwrap().problems, Vec::<String>::new());
    let connection = rusqlite::Connection::open(data.path().join("klbr.db")).unwrap();
    connection.execute("DELETE FROM arrivals", []).unwrap();

    assert_eq!(verify(data.path()).unwrap().problems, ["the table arrivals is not what the events say"]);
}
