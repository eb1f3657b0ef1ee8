//! The control protocol, strictly: the shared fixture, and streams of bytes that nobody would send.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;

use klbr::cell::{HookSlot, OutputRecord, OutputStream, Role};
use klbr::id::{ExecutionId, GenerationId, OperationId, RequestId, SessionId};
use klbr::limits::*;
use klbr::wire::envelope::{Address, WireError, decode, encode, encode_reply};
use klbr::wire::frame::{FrameDecoder, encode_frame};
use klbr::wire::message::*;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Remembers the largest single allocation of this thread.
struct Watching;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

#[expect(unsafe_code, reason = "an allocator cannot be written without; it hands on to the system's")]
// SAFETY: every call is handed on unchanged.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no memory of it.
        let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(layout.size())));
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(size)));
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

fn address() -> Address {
    Address { session: SessionId::root(), generation: GenerationId::numbered(1) }
}

fn fixture() -> Value {
    serde_json::from_str(include_str!("runtime-fixtures/envelopes.json")).unwrap()
}

fn payload(case: &Value) -> Vec<u8> {
    match case["text"].as_str() {
        Some(text) => text.as_bytes().to_vec(),
        None => {
            let hex = case["hex"].as_str().unwrap();
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
        }
    }
}

#[test]
fn what_the_fixture_accepts_is_accepted_and_comes_back() {
    let fixture = fixture();
    let cases = fixture["accepted"].as_array().unwrap();
    assert!(cases.len() >= 60, "{}", cases.len());
    for case in cases {
        let message =
            decode(&payload(case), &address()).unwrap_or_else(|error| panic!("{}: {error}", case["name"]));
        let frame = encode(&message, &address()).unwrap();

        assert_eq!(decode(&frame[4..], &address()).unwrap(), message, "{}", case["name"]);
    }
}

#[test]
fn what_the_fixture_refuses_is_refused() {
    let fixture = fixture();
    let cases = fixture["refused"].as_array().unwrap();
    assert!(cases.len() >= 120, "{}", cases.len());
    let accepted: Vec<&Value> = cases
        .iter()
        .filter(|case| decode(&payload(case), &address()).is_ok())
        .map(|case| &case["name"])
        .collect();

    assert_eq!(accepted, Vec::<&Value>::new());
}

#[test]
fn the_bounds_of_a_message_have_two_sides() {
    let execute = |bytes: usize| {
        let message = Message::Execute { id: id("x"), code: "#".repeat(bytes) };
        encode(&message, &address()).is_ok()
    };
    assert_eq!((execute(CODE_BYTES_MAX), execute(CODE_BYTES_MAX + 1)), (true, false));
    let cell = |records: usize, bytes: usize, error: usize| {
        let record = |text: String| json!({"stream": "stdout", "text": text});
        let mut output = vec![record(String::new()); records - 1];
        output.push(record("x".repeat(bytes)));
        let result = json!({"kind": "cell", "status": "ok", "output": output, "truncated_bytes": 0, "error": "e".repeat(error)});
        let envelope = json!({"version": 1, "session_id": "root", "generation": "g-1",
            "message": {"kind": "completed", "id": "x", "result": result}});
        decode(envelope.to_string().as_bytes(), &address()).is_ok()
    };
    assert!(cell(OUTPUT_RECORDS_MAX, OUTPUT_BYTES_MAX, ERROR_BYTES_MAX));
    assert!(!cell(OUTPUT_RECORDS_MAX + 1, 1, 1));
    assert!(!cell(1, OUTPUT_BYTES_MAX + 1, 1));
    assert!(!cell(1, 1, ERROR_BYTES_MAX + 1));
}

#[test]
fn a_reply_that_does_not_fit_says_so_instead() {
    let reply = |bytes: usize| {
        let result = ReplyResult::Ok { value: Value::from("x".repeat(bytes)) };
        let frame = encode_reply(execution("x"), request("r"), result, &address()).unwrap();
        assert!(frame.len() <= FRAME_BYTES_MAX + 4);
        match decode(&frame[4..], &address()).unwrap() {
            Message::HostReply { result: ReplyResult::Error { code, .. }, .. } => Some(code),
            _ => None,
        }
    };

    assert_eq!(reply(FRAME_BYTES_MAX - 300), None);
    assert_eq!(reply(FRAME_BYTES_MAX), Some(ErrorCode::ReplyTooLarge));
    let value = Message::Invoke {
        id: id("o"),
        slot: HookSlot::AttentionPlan,
        input: "x".repeat(FRAME_BYTES_MAX).into(),
    };
    assert!(matches!(encode(&value, &address()), Err(WireError::Frame(_))));
}

fn id(text: &str) -> OperationId {
    OperationId::parse(text).unwrap()
}
fn execution(text: &str) -> ExecutionId {
    ExecutionId::parse(text).unwrap()
}
fn request(text: &str) -> RequestId {
    RequestId::parse(text).unwrap()
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..6).prop_map(|map| json!(map)),
        ]
    })
}

fn any_request() -> impl Strategy<Value = Request> {
    let text = any::<String>;
    let texts = || prop::collection::vec(any::<String>(), 0..4);
    let count = || 0..=i64::MAX as u64;
    prop_oneof![
        text().prop_map(|text| Request::LocalSend { text }),
        (prop::option::of(0.0..1e9f64), text())
            .prop_map(|(seconds, reason)| Request::RuntimeWait { seconds, reason }),
        Just(Request::RuntimeInspect {}),
        text().prop_map(|slot| Request::HooksDescribe { slot }),
        (texts(), text(), prop::collection::btree_map(text(), text(), 0..3), count(), count()).prop_map(
            |(argv, cwd, env, timeout_ms, max_output_bytes): (_, _, BTreeMap<_, _>, _, _)| {
                Request::WorkspaceRun { argv, cwd, env, timeout_ms, max_output_bytes }
            }
        ),
        (text(), count())
            .prop_map(|(path, expected_epoch)| Request::BehaviorActivate { path, expected_epoch }),
        (text(), any::<bool>()).prop_map(|(candidate_id, session)| Request::OrientationStage {
            text: candidate_id.clone(),
            target: candidate_id.clone(),
            candidate_id,
            scope: if session { Scope::Session {} } else { Scope::Global {} },
        }),
        (text(), any_json())
            .prop_map(|(request_id, result)| Request::PeerSubmitResult { request_id, result }),
        (text(), text(), texts()).prop_map(|(peer_id, content, evidence)| Request::PeerSend {
            peer_id,
            request_id: content.clone(),
            content,
            evidence
        }),
        (text(), any_json()).prop_map(|(target, payload)| Request::RemoteCall {
            namespace_id: target.clone(),
            namespace_generation: target.clone(),
            operation_id: target.clone(),
            operation: target.clone(),
            target,
            payload,
        }),
    ]
}

fn any_message() -> impl Strategy<Value = Message> {
    let name = || "[A-Za-z0-9_.-]{1,128}";
    let optional = || prop::option::of(any::<String>());
    let records = prop::collection::vec((0..3usize, any::<String>()), 0..5).prop_map(|records| {
        let streams = [OutputStream::Stdout, OutputStream::Stderr, OutputStream::Result];
        records
            .into_iter()
            .map(|(stream, text)| OutputRecord { stream: streams[stream], text })
            .collect::<Vec<_>>()
    });
    prop_oneof![
        (any::<String>(), optional(), any::<bool>(), optional()).prop_map(
            |(token, revision, hooks, skills)| {
                Message::Hello {
                    token,
                    role: if hooks { Role::Hooks } else { Role::Workbench },
                    revision,
                    slots: if hooks { HookSlot::ALL.to_vec() } else { vec![] },
                    skills_revision: skills,
                }
            }
        ),
        (name(), any::<String>()).prop_map(|(name, code)| Message::Execute { id: id(&name), code }),
        (name(), any_json()).prop_map(|(name, input)| Message::Invoke {
            id: id(&name),
            slot: HookSlot::DeliveryReview,
            input
        }),
        (name(), name(), any_request()).prop_map(|(r, x, asked)| Message::HostRequest {
            id: request(&r),
            execution_id: execution(&x),
            request: asked
        }),
        (name(), any_json()).prop_map(|(name, value)| Message::HostReply {
            id: request(&name),
            execution_id: execution(&name),
            result: ReplyResult::Ok { value }
        }),
        (name(), any::<String>()).prop_map(|(name, message)| Message::HostReply {
            id: request(&name),
            execution_id: execution(&name),
            result: ReplyResult::Error { code: ErrorCode::Stale, message }
        }),
        (name(), records, 0..=i64::MAX as u64, optional()).prop_map(
            |(name, output, truncated_bytes, error)| {
                let status = WorkerCellStatus::Error;
                Message::Completed {
                    id: id(&name),
                    result: Completion::Cell { status, output, truncated_bytes, error },
                }
            }
        ),
        (name(), any_json()).prop_map(|(name, value)| Message::Completed {
            id: id(&name),
            result: Completion::Hook { value }
        }),
        (name(), any::<String>()).prop_map(|(name, error)| Message::Completed {
            id: id(&name),
            result: Completion::Failed { error }
        }),
        name().prop_map(|name| Message::Interrupt { id: id(&name) }),
        Just(Message::Shutdown {}),
    ]
}

/// Reads a stream that arrives in these pieces: the messages before the first fault.
fn read(pieces: &[&[u8]]) -> (Vec<Message>, bool) {
    let mut decoder = FrameDecoder::default();
    let mut messages = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next() {
                Ok(Some(payload)) => match decode(&payload, &address()) {
                    Ok(message) => messages.push(message),
                    Err(_) => return (messages, false),
                },
                Ok(None) => break,
                Err(_) => return (messages, false),
            }
        }
    }
    (messages, decoder.finish().is_ok())
}

proptest! {
    // Debug builds are slow at making arbitrary messages; more cases: PROPTEST_CASES.
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_message_comes_back_as_it_was(message in any_message()) {
        let frame = encode(&message, &address()).unwrap();
        let (read, whole) = read(&[&frame]);

        prop_assert!(whole);
        prop_assert_eq!(read, vec![message]);
    }

    #[test]
    fn a_stream_is_the_same_however_it_is_cut_and_joined(
        messages in prop::collection::vec(any_message(), 1..5),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let stream: Vec<u8> = messages.iter().flat_map(|message| encode(message, &address()).unwrap()).collect();
        let mut bounds: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        bounds.extend([0, stream.len()]);
        bounds.sort_unstable();
        let pieces: Vec<&[u8]> = bounds.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();

        prop_assert_eq!(read(&pieces), (messages, true));
    }

    #[test]
    fn a_damaged_stream_gives_an_error_or_messages_and_never_much_memory(
        messages in prop::collection::vec(any_message(), 1..4),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..=255), 0..4),
        end in any::<prop::sample::Index>(),
    ) {
        let mut stream: Vec<u8> = messages.iter().flat_map(|message| encode(message, &address()).unwrap()).collect();
        for (at, mask) in &flips {
            let at = at.index(stream.len());
            stream[at] ^= mask;
        }
        stream.truncate(end.index(stream.len() + 1));
        let bound = FRAME_BYTES_MAX.min(16 * stream.len() + 65_536);
        LARGEST.with(|largest| largest.set(0));
        let (read, _) = read(&[&stream]);
        let largest = LARGEST.with(Cell::get);

        prop_assert!(largest <= bound, "{} bytes at once for a stream of {}", largest, stream.len());
        if flips.is_empty() {
            prop_assert!(messages.starts_with(&read));
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = read(&[&bytes]);
        if let Ok(frame) = encode_frame(&bytes) {
            let _ = read(&[&frame]);
        }
    }
}
