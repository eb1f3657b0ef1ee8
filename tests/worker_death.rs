//! A worker dies under its cell: the model is told what is known, and nothing hangs.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod harness;

use harness::{TestHost, texts};
use serde_json::{Value, json};

/// Runs a cell that kills its worker, through a model; the `cell.completed` of it.
fn death(code: &str) -> (TestHost, Value) {
    let host =
        TestHost::scripted(&[json!({"code": code}), json!({"code": "'alive'"}), json!({"text": "done"})]);
    host.ok(&["send", "go", "--wait", "--timeout", "60"]);
    assert_eq!(host.events("turn.ended")[0]["payload"]["reason"], "answered");
    let mut cells = host.events("cell.completed");
    assert_eq!(cells[1]["payload"]["output"][0]["text"], "'alive'", "the next cell runs in a new workbench");
    (host, cells.remove(0))
}

#[test]
fn every_death_is_told_by_what_was_seen() {
    let deaths = [
        ("import os\nos._exit(3)", "status 3"),
        ("import os\nos.abort()", "SIGABRT"),
        ("import ctypes\nctypes.memmove(0, 1, 1)", "SIGSEGV"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nimport time\ntime.sleep(60)", "SIGKILL"),
    ];
    for (code, words) in deaths {
        let (host, cell) = death(code);
        let error = cell["payload"]["error"].as_str().unwrap();

        assert_eq!(cell["payload"]["status"], "failed", "{code}");
        assert!(error.contains(words), "{code}: {error}");
        let ended = host.events("generation.ended");
        assert_eq!(ended.len(), 1, "{code}");
        assert_eq!(ended[0]["payload"]["reason"], "exited", "{code}");
    }
}

#[test]
fn the_last_words_of_a_dying_interpreter_are_kept() {
    let (_, cell) = death("import faulthandler, os\nfaulthandler.enable()\nos.abort()");

    assert!(cell["payload"]["error"].as_str().unwrap().contains("Fatal Python error"));
}

#[test]
fn what_a_dead_cell_had_sent_is_sent_once_and_named() {
    let (host, cell) = death("await local.send('once')\nimport os\nos._exit(1)");

    assert_eq!(texts(&host.events("delivery.sent")), ["once"]);
    let sent = host.events("delivery.sent").remove(0);
    let ledger = &cell["payload"]["ledger"];
    assert_eq!((&ledger[0]["state"], &ledger[0]["event"]), (&json!("committed"), &sent["event_id"]));
}

#[test]
fn a_request_that_was_under_way_comes_to_its_end_before_the_record() {
    let (host, cell) = death(
        "import asyncio, os\nt = asyncio.create_task(local.send('under way'))\nawait asyncio.sleep(0)\n\
         import time\ntime.sleep(0.02)\nos._exit(1)",
    );

    let ledger = &cell["payload"]["ledger"];
    match ledger[0]["state"].as_str() {
        Some("committed") => assert_eq!(texts(&host.events("delivery.sent")), ["under way"]),
        // It died before it had asked.
        None => assert_eq!(texts(&host.events("delivery.sent")), ["done"]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_worker_that_is_stopped_by_a_signal_can_still_be_killed() {
    let mut host = TestHost::stopped();
    host.use_config(
        "[route]\nuse = \"m\"\n[routes.m]\nkind = \"manual\"\n[limits]\ninterrupt_grace_ms = 200\n",
    );
    host.start();
    host.ok(&["send", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)"]);
    host.await_events("cell.started", 1);
    std::thread::sleep(std::time::Duration::from_millis(200));
    host.ok(&["interrupt"]);
    host.await_events("turn.ended", 1);

    assert_eq!(host.events("generation.ended")[0]["payload"]["reason"], "interrupt_grace");
    assert_eq!(host.say("1 + 1"), "2");
}

#[test]
fn a_cell_that_runs_too_long_is_ended() {
    let mut host = TestHost::stopped();
    host.use_config("[route]\nuse = \"m\"\n[routes.m]\nkind = \"manual\"\n[limits]\ncell_ms = 500\n");
    host.start();
    let printed = host.say("import time\ntime.sleep(60)");

    assert!(printed.contains("limits.cell_ms"), "{printed}");
    assert_eq!(host.events("generation.ended")[0]["payload"]["reason"], "cell_too_long");
}

#[test]
fn a_workbench_that_cannot_start_ends_the_turn_with_the_reason() {
    let mut host = TestHost::stopped();
    host.use_config("python = \"/no/such/python\"\n[route]\nuse = \"m\"\n[routes.m]\nkind = \"manual\"\n");
    host.start();
    let output = host.run(&["send", "1", "--wait", "--timeout", "60"]);

    assert_eq!(output.status.code(), Some(1));
    let ended = host.events("turn.ended").remove(0);
    assert_eq!(ended["payload"]["reason"], "workbench_failed");
    let detail = ended["payload"]["detail"].as_str().unwrap();
    assert!(detail.contains("/no/such/python"), "{detail}");
}

#[test]
fn a_workbench_that_died_while_it_was_idle_is_replaced() {
    let host = TestHost::manual();
    host.say("import os, threading\nthreading.Timer(0.2, os._exit, (9,)).start()");
    host.await_events("generation.ended", 1);

    assert_eq!(host.say("1 + 1"), "2");
    assert_eq!(host.events("cell.completed").last().unwrap()["payload"]["status"], "ok");
}
