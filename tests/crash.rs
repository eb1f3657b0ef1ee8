//! `kill -9` of the host at any moment: nothing sent twice, nothing confirmed lost, nothing left over.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod harness;

use std::collections::BTreeSet;
use std::time::Duration;

use harness::{TestHost, texts};
use serde_json::{Value, json};

/// Steps of the scripted turn that is killed again and again.
const STEPS: usize = 24;
/// Hosts that are killed in it.
const KILLS: u64 = 12;

fn execution(event: &Value) -> &str {
    event["execution_id"].as_str().unwrap()
}

#[test]
fn a_host_that_is_killed_again_and_again_sends_nothing_twice_and_loses_nothing_that_it_confirmed() {
    let mut lines: Vec<Value> = (0..STEPS)
        .map(|step| {
            json!({"code": format!(
                "import subprocess\nsubprocess.Popen(['setsid', 'sleep', '600'])\n\
                 r = await local.send('m-{step}')\nopen('confirmed', 'a').write(r['status'] + ' m-{step}\\n')"
            )})
        })
        .collect();
    lines.push(json!({"code": "r = await local.send('the end')"}));
    lines.push(json!({"text": "the turn has spoken: this stays in the log"}));
    let mut host = TestHost::stopped();
    host.use_script(&lines);
    host.start();
    host.ok(&["send", "go"]);
    for round in 0..KILLS {
        // Different moments of a step, which takes some tens of milliseconds.
        std::thread::sleep(Duration::from_millis(40 + round * 37 % 90));
        host.kill();
        host.await_no_workers();
        host.verify();
        host.start();
    }
    host.await_events("turn.ended", 1);

    let sent = host.events("delivery.sent");
    let texts = texts(&sent);
    let distinct: BTreeSet<&str> = texts.iter().copied().collect();
    assert_eq!(texts.len(), distinct.len(), "sent twice: {texts:?}");
    assert!(texts.contains(&"the end"));
    // What the cell was told is confirmed is on the lane.
    let confirmed = std::fs::read_to_string(host.path("work/confirmed")).unwrap_or_default();
    for line in confirmed.lines() {
        let text = line.strip_prefix("confirmed ").unwrap();
        assert!(distinct.contains(text), "confirmed and lost: {text}");
    }
    // Each of the model's answers was used once, by one cell.
    let started = host.events("cell.started");
    let codes: BTreeSet<&str> =
        started.iter().map(|cell| cell["payload"]["code"].as_str().unwrap()).collect();
    assert_eq!(codes.len(), started.len(), "a cell ran twice");
    // Every cell has one end, and the input was taken up once.
    let ends: Vec<Value> = host.events("cell.completed");
    assert_eq!(ends.len(), started.len());
    assert_eq!(ends.iter().map(execution).collect::<BTreeSet<_>>().len(), ends.len());
    let input = host.events("operator.input")[0]["event_id"].clone();
    let adopted: Vec<Value> = host
        .events("model.requested")
        .iter()
        .flat_map(|r| r["payload"]["adopted"].as_array().unwrap().clone())
        .collect();
    assert_eq!(adopted.iter().filter(|id| **id == input).count(), 1);
    let hosts = host.events("host.started");
    assert_eq!(hosts.len() as u64, KILLS + 1);
    assert!(host.events("turn.ended").len() == 1 && host.events("turn.started").len() == 1);
    host.stop();
    host.verify();
}

#[test]
fn a_cell_that_the_host_left_is_told_with_what_became_of_its_requests() {
    let mut host = TestHost::stopped();
    host.use_script(&[
        json!({"code": "await local.send('before')\nimport time\ntime.sleep(60)"}),
        json!({"text": "after"}),
    ]);
    host.start();
    host.ok(&["send", "go"]);
    let sent = host.await_events("delivery.sent", 1).remove(0);
    host.await_events("effect.settled", 1);
    host.kill();
    host.start();
    host.await_events("turn.ended", 1);

    let cell = host.events("cell.completed").remove(0);
    let payload = &cell["payload"];
    assert_eq!((&payload["status"], &payload["duration_ms"]), (&json!("interrupted"), &Value::Null));
    let expected = json!([{"request": payload["ledger"][0]["request"], "method": "local.send", "state": "committed",
        "event": sent["event_id"]}]);
    assert_eq!(payload["ledger"], expected);
    assert_eq!(texts(&host.events("delivery.sent")), ["before"], "the turn had spoken itself");
    let wake = host.events("wake").remove(0);
    assert_eq!(wake["payload"]["cause"], "resumed");
}

#[test]
fn leftovers_of_a_host_and_shim_that_were_killed_together_are_found_at_the_next_start() {
    let mut host = TestHost::manual();
    host.say("import subprocess\np = [subprocess.Popen(['setsid', 'sleep', '600']) for _ in range(5)]");
    let children = host.workers();
    let pid = |number: u32| rustix::process::Pid::from_raw(i32::try_from(number).unwrap()).unwrap();
    // Stopped first, so that no shim has time to do its work.
    let shims: Vec<u32> = children
        .into_iter()
        .filter(|child| {
            let command = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            command.split(|byte| *byte == 0).nth(1) == Some(b"contain")
        })
        .collect();
    assert!(!shims.is_empty());
    for shim in &shims {
        rustix::process::kill_process(pid(*shim), rustix::process::Signal::STOP).unwrap();
    }
    host.kill();
    for shim in &shims {
        rustix::process::kill_process(pid(*shim), rustix::process::Signal::KILL).unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    let left = host.workers();
    assert!(left.len() >= 5, "the sleepers were to be left over: {left:?}");
    host.start();

    // The new host's own hook worker carries the same tag.
    assert!(left.iter().all(|pid| !host.workers().contains(pid)));
}

#[test]
fn an_unsent_answer_is_sent_once_after_a_restart() {
    let mut host = TestHost::stopped();
    host.use_script(&[json!({"text": "the answer"})]);
    host.start();
    // Review waits for the hook worker, which takes longer to start than these hosts live: they die
    // between the answer and its delivery.
    for _ in 0..6 {
        host.ok(&["send", "go"]);
        std::thread::sleep(Duration::from_millis(4));
        host.kill();
        host.start();
    }
    let inputs = host.events("operator.input").len();
    host.await_events("turn.ended", 1);

    assert_eq!(inputs, 6);
    let sent = host.events("delivery.sent");
    assert_eq!(texts(&sent).iter().filter(|text| **text == "the answer").count(), 1);
}
