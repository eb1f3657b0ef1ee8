//! The main job: an operator's message becomes a cell, and a reviewed answer comes back.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod harness;

use harness::{TestHost, kinds, texts};
use serde_json::{Value, json};

#[test]
fn an_input_becomes_a_cell_and_a_reviewed_answer() {
    let host = TestHost::manual();
    let printed = host.json(&["send", "sum(range(10))", "--wait", "--json"]);

    assert_eq!(kinds(&printed), ["operator.input", "delivery.sent", "turn.ended"]);
    assert_eq!(printed[1]["payload"]["text"], "45");
    assert_eq!(printed[1]["source"], "session");
    let mut log = host.log();
    // The hook worker comes up beside everything else.
    log.retain(|event| event["payload"]["role"] != "hooks");
    let path: Vec<&str> = kinds(&log).into_iter().skip_while(|kind| *kind != "operator.input").collect();
    assert_eq!(
        path,
        [
            "operator.input",
            "attention.planned",
            "turn.started",
            "prompt.header",
            "model.requested",
            "model.responded",
            "kernel.reset",
            "cell.started",
            "cell.completed",
            "step.ended",
            "model.requested",
            "model.responded",
            "step.ended",
            "effect.intended",
            "delivery.sent",
            "effect.settled",
            "turn.ended",
        ]
    );
}

#[test]
fn names_stay_from_one_cell_to_the_next() {
    let host = TestHost::manual();
    host.say("x = 41");

    assert_eq!(host.say("x + 1"), "42");
    assert_eq!(host.exec("x")["output"], json!([{"stream": "result", "text": "41"}]));
}

#[test]
fn a_request_extends_the_one_before_it_and_says_so() {
    let host = TestHost::manual();
    host.say("1");
    host.say("2");
    let requests = host.events("model.requested");
    let bytes = |request: &Value, name: &str| request["payload"][name].as_u64().unwrap();

    assert_eq!(requests[0]["payload"]["not_extension"], "session_start");
    for pair in requests.windows(2) {
        assert_eq!(pair[1]["payload"]["not_extension"], Value::Null);
        assert_eq!(bytes(&pair[1], "shared_prefix_bytes"), bytes(&pair[0], "bytes"));
        assert!(bytes(&pair[1], "bytes") > bytes(&pair[0], "bytes"));
    }
}

#[test]
fn a_wait_ends_the_turn_and_wakes_by_its_deadline() {
    let host = TestHost::manual();
    let printed =
        host.json(&["send", "await runtime.wait(0.3, reason='nap')\nprint('never')", "--wait", "--json"]);
    let wait = printed.last().unwrap();
    assert_eq!(wait["kind"], "wait.accepted");
    let wake = host.await_events("wake", 1).remove(0);

    assert_eq!(wake["payload"], json!({"cause": "deadline", "wait": wait["event_id"]}));
    let cell = host.events("cell.completed").remove(0);
    assert_eq!(
        (cell["payload"]["status"].as_str(), &cell["payload"]["output"]),
        (Some("yielded"), &json!([]))
    );
    let late = wake["at_ms"].as_i64().unwrap() - wait["payload"]["deadline_ms"].as_i64().unwrap();
    assert!(late >= 0, "woken {late} ms early");
}

#[test]
fn a_wait_outlives_its_host() {
    let mut host = TestHost::manual();
    host.json(&["send", "await runtime.wait(1, reason='nap')", "--wait", "--json"]);
    host.kill();
    std::thread::sleep(std::time::Duration::from_millis(1_200));
    host.start();

    let wakes = host.await_events("wake", 1);
    host.await_events("turn.ended", 1);
    assert_eq!(wakes[0]["payload"]["cause"], "deadline");
    assert_eq!(host.events("wake").len(), 1);
}

#[test]
fn what_review_holds_is_sent_only_by_the_operator() {
    let host = TestHost::manual();
    let key = "-----BEGIN OPENSSH PRIVATE KEY-----";
    let printed = host.json(&["send", &format!("await local.send('{key}')"), "--wait", "--json"]);
    assert_eq!(kinds(&printed)[1], "delivery.held");
    let held = host.json(&["held", "--json"]);
    let effect = held[0]["effect_id"].as_str().unwrap();

    let released = host.json(&["held", "release", effect, "--json"]);
    assert_eq!(released[0]["payload"]["text"], key);
    assert_eq!(host.run(&["held", "release", effect]).status.code(), Some(4), "it was released already");
    assert_eq!(host.json(&["held", "--json"]), Vec::<Value>::new());
    let sent = host.events("delivery.sent");
    assert_eq!(texts(&sent).iter().filter(|text| **text == key).count(), 1);
}

#[test]
fn a_turn_that_spoke_itself_does_not_repeat_its_output() {
    let host = TestHost::manual();
    host.say("receipt = await local.send('hello')\nreceipt['status']");

    assert_eq!(texts(&host.events("delivery.sent")), ["hello"]);
    assert_eq!(
        host.say("receipt['status'], receipt['event_id'] > 0, receipt['reason']"),
        "('confirmed', True, None)"
    );
}

#[test]
fn an_interrupt_ends_the_turn_and_keeps_the_names() {
    for code in ["import time\ntime.sleep(60)", "import asyncio\nawait asyncio.sleep(60)", "while True: pass"]
    {
        let host = TestHost::manual();
        host.say("kept = 7");
        host.ok(&["send", code]);
        host.await_events("cell.started", 2);
        std::thread::sleep(std::time::Duration::from_millis(300));
        host.ok(&["interrupt"]);
        let ended = host.await_events("turn.ended", 2);

        assert_eq!(ended[1]["payload"]["reason"], "interrupted");
        assert_eq!(host.say("kept"), "7", "{code}");
        assert_eq!(host.events("generation.ended"), Vec::<Value>::new());
    }
}

#[test]
fn a_cell_that_ignores_its_interrupt_is_stopped_hard() {
    let mut host = TestHost::stopped();
    host.use_config(
        "[route]\nuse = \"m\"\n[routes.m]\nkind = \"manual\"\n[limits]\ninterrupt_grace_ms = 300\n",
    );
    host.start();
    host.ok(&[
        "send",
        "import time\nwhile True:\n    try: time.sleep(9)\n    except KeyboardInterrupt: pass",
    ]);
    host.await_events("cell.started", 1);
    std::thread::sleep(std::time::Duration::from_millis(300));
    host.ok(&["interrupt"]);
    host.await_events("turn.ended", 1);

    let ended = host.events("generation.ended");
    assert_eq!(ended[0]["payload"]["reason"], "interrupt_grace");
    assert_eq!(host.events("cell.completed")[0]["payload"]["status"], "interrupted");
    assert_eq!(host.say("'back'"), "'back'");
}

#[test]
fn a_reset_gives_a_new_workbench_and_the_model_is_told() {
    let host = TestHost::manual();
    host.say("x = 1");
    host.ok(&["reset"]);
    assert!(host.say("x").contains("NameError"));

    let adopted = host
        .events("model.requested")
        .iter()
        .filter_map(|request| request["payload"]["adopted"].as_array().cloned())
        .flatten()
        .collect::<Vec<_>>();
    let ended = host.events("generation.ended").remove(0);
    assert!(adopted.contains(&ended["event_id"]));
    assert_eq!(ended["payload"]["reason"], "operator");
}

#[test]
fn an_operators_cell_is_an_execution_like_any_other() {
    let host = TestHost::manual();
    let outcome = host.exec(
        "info = await runtime.inspect()\nawait local.send('from exec')\ninfo['execution_id'], info['step']",
    );

    let id = outcome["execution_id"].as_str().unwrap();
    assert_eq!(outcome["output"][0]["text"], format!("('{id}', None)"));
    assert_eq!(texts(&host.events("delivery.sent")), ["from exec"]);
    let refused =
        host.exec("try:\n    await runtime.wait(1)\nexcept klbr.HostError as error:\n    print(error.code)");
    assert_eq!(refused["output"][0]["text"], "refused\n");
}

#[test]
fn the_newest_events_are_as_many_as_were_asked_for() {
    let host = TestHost::manual();
    host.exec("for n in range(100):\n    await local.send(str(n))");
    let all = host.json(&["log", "--json"]);
    assert!(all.len() > 300, "{}", all.len());

    for wanted in [0, 1, 256, 257, 300, all.len(), all.len() + 1] {
        let newest = host.json(&["log", "--json", "-n", &wanted.to_string()]);

        assert_eq!(newest, all[all.len().saturating_sub(wanted)..], "{wanted}");
    }
}

#[test]
fn what_is_not_there_yet_says_so() {
    let host = TestHost::manual();
    let outcome = host.exec(
        "import klbr\ntry:\n    await workspace.info()\nexcept klbr.HostError as error:\n    print(error.code)",
    );

    assert_eq!(outcome["output"][0]["text"], "unavailable\n");
}

#[test]
fn the_policy_can_be_looked_at() {
    let host = TestHost::manual();
    let outcome = host.exec(
        "slots = await hooks.list()\none = await hooks.describe('delivery.review')\n\
         [s['slot'] for s in slots], one['budget_ms'], one['epoch'], sorted(one['input_schema']['required'])",
    );

    let expected = "(['attention.plan', 'delivery.review'], 2000, 1, ['destination', 'effect_id', 'text'])";
    assert_eq!(outcome["output"][0]["text"], expected);
}

#[test]
fn the_instructions_are_those_that_the_transcript_pinned() {
    let mut host = TestHost::stopped();
    std::fs::write(host.path("work/AGENTS.md"), "Prefer short names.\n").unwrap();
    host.start();
    host.say("1");
    std::fs::write(host.path("work/AGENTS.md"), "Changed.\n").unwrap();
    let outcome = host.exec(
        "i = await runtime.instructions()\n\
         [s['name'] for s in i['sources']], 'Prefer short names.' in i['text'], i['digest'] == i['pinned_digest'], i['complete']",
    );

    assert_eq!(outcome["output"][0]["text"], "(['contract', 'workspace'], True, True, True)");
}

#[test]
fn an_agent_is_not_its_own_operator() {
    let host = TestHost::manual();
    let code = format!(
        "import subprocess\nr = subprocess.run([{:?}, '--socket', {:?}, 'send', 'forged'], capture_output=True, text=True)\n\
         r.returncode, 'inside a worker' in r.stderr",
        harness::KLBR,
        harness::shown(&host.path("klbr.sock"))
    );
    let outcome = host.exec(&code);

    assert_eq!(outcome["output"][0]["text"], "(4, True)");
    assert_eq!(host.events("operator.input"), Vec::<Value>::new());
}

#[test]
fn a_grandchild_that_holds_the_streams_holds_up_nothing() {
    let host = TestHost::manual();
    for streams in ["", "1>&- ", "2>&- "] {
        let code = format!(
            "import subprocess\n_ = subprocess.run(['sh', '-c', '(setsid sleep 600 {streams}&)'])\n'done'"
        );
        assert_eq!(host.exec(&code)["output"][0]["text"], "'done'");
    }
    host.ok(&["reset"]);

    assert_eq!(host.events("generation.ended").len(), 1);
    assert_eq!(host.exec("1")["status"], "ok");
}

#[test]
fn a_script_is_replayed_line_by_line_and_its_end_is_said() {
    let host = TestHost::scripted(&[
        json!({"code": "n = 2"}),
        json!({"code": "n * 21"}),
        json!({"text": "it is 42"}),
    ]);
    assert_eq!(host.say("go"), "it is 42");
    let output = host.run(&["send", "more", "--wait", "--timeout", "60"]);

    assert_eq!(output.status.code(), Some(1));
    let ended = host.events("turn.ended");
    assert_eq!(ended[1]["payload"]["reason"], "route_failed");
    assert!(ended[1]["payload"]["detail"].as_str().unwrap().contains("3 answers"));
}

#[test]
fn an_orderly_stop_leaves_nothing_and_says_nothing_on_standard_output() {
    let mut host = TestHost::manual();
    host.say("import subprocess\np = subprocess.Popen(['setsid', 'sleep', '600'])");
    assert!(!host.workers().is_empty());
    let output = host.stop();

    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0));
    assert_eq!(host.workers(), Vec::<u32>::new());
    host.verify();
}

#[test]
fn a_stop_in_mid_cell_is_recorded_and_the_turn_goes_on_later() {
    let mut host =
        TestHost::scripted(&[json!({"code": "import time\ntime.sleep(60)"}), json!({"text": "went on"})]);
    host.ok(&["send", "go"]);
    host.await_events("cell.started", 1);
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(host.stop().status.code(), Some(0));
    host.start();
    host.await_events("turn.ended", 1);

    assert_eq!(texts(&host.events("delivery.sent")), ["went on"]);
    let cells = host.events("cell.completed");
    assert_eq!((cells.len(), &cells[0]["payload"]["status"]), (1, &json!("interrupted")));
    host.verify();
}
