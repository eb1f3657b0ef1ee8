//! A worker that breaks the protocol: a clear reason in the log, and the next worker works.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod harness;

use harness::TestHost;
use serde_json::{Value, json};

/// A host whose next workbench misbehaves in this way; later ones are real.
fn host_with(mode: &str) -> TestHost {
    let mut host = TestHost::stopped();
    host.use_fake_worker("workbench", mode, "hello_ms = 2000\ninterrupt_grace_ms = 300\n");
    host.start();
    host
}

/// The next cell works, nothing is left of the bad worker, and the log is whole.
fn goes_on(mut host: TestHost, mode: &str) {
    assert_eq!(host.say("6 * 7"), "42", "{mode}");
    host.stop();
    host.await_no_workers();
    host.verify();
}

fn last_end(host: &TestHost) -> Value {
    host.events("generation.ended").pop().unwrap()["payload"].clone()
}

#[test]
fn a_worker_that_is_never_ready_ends_the_turn_with_the_reason() {
    let modes = [
        ("exits_at_once", "status 3"),
        ("stopped_before_hello", "no hello within 2000 ms"),
        ("never_connects", "no hello within 2000 ms"),
        ("silent_before_hello", "no hello within 2000 ms"),
        ("half_a_frame_before_hello", "no hello within 2000 ms"),
        ("wrong_token", "token"),
        ("wrong_role", "started as workbench"),
        ("not_hello_first", "its first message is not hello"),
    ];
    for (mode, words) in modes {
        let host = host_with(mode);
        let failed = host.run(&["send", "1", "--wait", "--timeout", "60"]);
        let ended = host.events("turn.ended").remove(0);
        let detail = ended["payload"]["detail"].as_str().unwrap();

        assert_eq!(failed.status.code(), Some(1), "{mode}");
        assert_eq!(ended["payload"]["reason"], "workbench_failed", "{mode}");
        assert!(detail.contains(words), "{mode}: {detail}");
        let shown = String::from_utf8(failed.stderr).unwrap();
        assert!(shown.contains(words), "{mode}: the operator sees {shown}");
        goes_on(host, mode);
    }
}

#[test]
fn a_worker_that_breaks_the_protocol_is_killed_and_its_cell_failed() {
    let modes = [
        ("frame_too_large", "4294967295"),
        ("frame_of_length_zero", "length 0"),
        ("not_json", "not strict JSON"),
        ("closes_in_a_frame", "frame"),
        ("closes_its_connection", "closed its connection"),
        ("completes_another", ""),
        ("yields_without_a_wait", ""),
        ("speaks_as_host", "a message of the host's"),
    ];
    for (mode, words) in modes {
        let host = host_with(mode);
        let record = host.exec("1");
        let end = last_end(&host);
        let detail = end["detail"].as_str().unwrap();

        assert_eq!(record["status"], "failed", "{mode}: {record}");
        assert_eq!(end["reason"], "protocol", "{mode}: {end}");
        assert!(detail.contains(words), "{mode}: {detail}");
        assert!(record["error"].as_str().unwrap().contains(words), "{mode}: {record}");
        goes_on(host, mode);
    }
}

#[test]
fn a_worker_that_breaks_the_protocol_between_cells_is_replaced() {
    let modes = [
        ("hello_twice", "protocol", "hello twice"),
        ("completes_without_a_cell", "protocol", ""),
        ("completes_twice", "protocol", ""),
        ("killed_while_idle", "exited", "SIGKILL"),
    ];
    for (mode, reason, words) in modes {
        let host = host_with(mode);
        // What becomes of this cell depends on who is first; what follows does not.
        host.run(&["exec", "1", "--timeout", "60"]);
        host.await_events("generation.ended", 1);
        let end = host.events("generation.ended").remove(0)["payload"].clone();

        assert_eq!(end["reason"], reason, "{mode}: {end}");
        assert!(end["detail"].as_str().unwrap().contains(words), "{mode}: {end}");
        goes_on(host, mode);
    }
}

#[test]
fn a_worker_that_does_nothing_any_more_is_interrupted_and_then_killed() {
    for mode in ["silent_in_a_cell", "half_a_frame", "stopped_in_a_cell", "asks_and_never_reads"] {
        let host = host_with(mode);
        host.ok(&["send", "1"]);
        host.await_events("cell.started", 1);
        host.ok(&["interrupt"]);
        host.await_events("turn.ended", 1);

        assert!(host.memory_kib("VmHWM") < 64 * 1024, "{mode}: {} KiB", host.memory_kib("VmHWM"));
        assert_eq!(last_end(&host)["reason"], "interrupt_grace", "{mode}");
        goes_on(host, mode);
    }
}

#[test]
fn a_worker_that_is_killed_in_a_cell_or_while_it_ends_is_told_apart() {
    let host = host_with("killed_in_a_cell");
    assert!(host.exec("1")["error"].as_str().unwrap().contains("SIGKILL"));
    goes_on(host, "killed_in_a_cell");

    for mode in ["killed_while_it_shuts_down", "ignores_shutdown"] {
        let host = host_with(mode);
        assert_eq!(host.exec("1")["status"], "ok");
        host.ok(&["reset"]);
        assert_eq!(last_end(&host)["reason"], "operator", "{mode}");
        goes_on(host, mode);
    }
}

#[test]
fn the_bound_of_requests_in_one_cell_has_two_sides() {
    let host = host_with("thousand_requests");
    let record = host.exec("1");
    let codes: Value = serde_json::from_str(record["output"][0]["text"].as_str().unwrap()).unwrap();

    assert_eq!(codes, json!({"ok": 128, "too_many_requests": 872}));
    host.ok(&["reset"]);
    goes_on(host, "thousand_requests");
}

#[test]
fn a_cell_that_asks_for_a_thousand_things_at_once_is_answered_a_thousand_times() {
    let host = TestHost::manual();
    let record = host.exec(
        "import asyncio, collections, klbr\n\
         answers = await asyncio.gather(*(runtime.inspect() for _ in range(1000)), return_exceptions=True)\n\
         sorted(collections.Counter(getattr(answer, 'code', 'ok') for answer in answers).items())",
    );

    assert_eq!(record["output"][0]["text"], "[('ok', 128), ('too_many_requests', 872)]", "{record}");
    goes_on(host, "a thousand requests");
}

#[test]
fn a_request_of_another_scope_is_refused() {
    let host = host_with("foreign_scope");

    assert_eq!(host.exec("1")["output"][0]["text"], "scope_expired");
    host.ok(&["reset"]);
    goes_on(host, "foreign_scope");
}

#[test]
fn a_worker_without_standard_streams_works() {
    let host = host_with("closed_standard_streams");
    let record = host.exec("print('heard')\n2 + 2");

    assert_eq!(record["status"], "ok", "{record}");
    assert_eq!(
        (&record["output"][0]["text"], &record["output"][1]["text"]),
        (&json!("heard\n"), &json!("4"))
    );
    goes_on(host, "closed_standard_streams");
}

#[test]
fn flooded_streams_hold_up_nothing_and_keep_only_their_ends() {
    let host = host_with("floods_its_streams");
    let before = host.memory_kib("VmRSS");
    assert_eq!(host.exec("1")["status"], "ok");
    let grown = host.memory_kib("VmRSS").saturating_sub(before);
    host.ok(&["reset"]);
    let end = last_end(&host);

    assert!(grown < 8 * 1024, "the host grew by {grown} KiB");
    assert_eq!(end["stdout_tail"].as_str().unwrap().len(), klbr::limits::TAIL_BYTES_MAX);
    assert_eq!(end["stderr_tail"].as_str().unwrap().len(), klbr::limits::TAIL_BYTES_MAX);
    goes_on(host, "floods_its_streams");
}
