//! A hook worker that fails: what it was to review is held with the reason, nothing is sent or lost.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod harness;

use harness::TestHost;
use serde_json::json;

/// A host whose next hook worker misbehaves in this way; later ones are real.
fn host_with(mode: &str) -> TestHost {
    let mut host = TestHost::stopped();
    host.use_fake_worker("hooks", mode, "");
    host.start();
    host
}

fn ends(host: &TestHost) -> Vec<String> {
    let ended = host.events("generation.ended");
    let hooks = ended.iter().filter(|event| event["payload"]["role"] == "hooks");
    hooks.map(|event| event["payload"]["reason"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_review_that_fails_holds_the_text_and_the_next_one_is_asked_again() {
    let modes: [(&str, &str, &[&str]); 7] = [
        ("hook_fails", "no opinion", &[]),
        ("hook_answers_nonsense", "not a decision", &[]),
        ("hook_speaks_to_the_operator", "refused", &[]),
        ("hook_completes_a_cell", "it ended", &["protocol"]),
        ("hook_completes_another", "it ended", &["protocol"]),
        ("hook_exits", "it ended", &["exited"]),
        ("hook_hangs", "2000 ms", &["hook_timeout"]),
    ];
    for (mode, words, ended) in modes {
        let mut host = host_with(mode);
        let record = host.exec("receipt = await local.send('private')\nreceipt['status'], receipt['reason']");
        let shown = record["output"][0]["text"].as_str().unwrap();

        assert!(shown.starts_with("('held'"), "{mode}: {record}");
        assert!(shown.contains(words), "{mode}: {record}");
        assert_eq!(host.events("delivery.sent"), Vec::<serde_json::Value>::new(), "{mode}");
        assert_eq!(host.events("delivery.held")[0]["payload"]["text"], "private", "{mode}");
        if ended.is_empty() {
            // It lives on: it failed a call, and not the protocol.
            assert_eq!(ends(&host), Vec::<String>::new(), "{mode}");
        } else {
            host.await_events("kernel.reset", 3);
            assert_eq!(ends(&host), ended, "{mode}");
            assert_eq!(host.say("'public'"), "'public'", "{mode}: a new hook worker reviews");
        }
        host.stop();
        host.verify();
    }
}

#[test]
fn a_hook_worker_that_does_not_start_holds_what_is_sent_until_one_does() {
    for (mode, words) in [("exits_at_once", "status 3"), ("wrong_release", "serves the release")] {
        let host = host_with(mode);
        let held = host.exec("(await local.send('early'))['reason']");
        assert!(held["output"][0]["text"].as_str().unwrap().contains(words), "{held}");

        host.await_events("kernel.reset", 2);
        assert_eq!(host.exec("(await local.send('late'))['status']")["output"][0]["text"], "'confirmed'");
        let id = host.events("delivery.held")[0]["payload"]["effect_id"].as_str().unwrap().to_owned();
        host.ok(&["held", "release", &id]);
        assert_eq!(harness::texts(&host.events("delivery.sent")), ["late", "early"]);
    }
}

#[test]
fn calls_behind_a_hook_that_hangs_have_their_own_budget_and_none_is_lost() {
    let host = host_with("hook_hangs");
    let record = host.exec(
        "import asyncio\n\
         receipts = await asyncio.gather(*(local.send(str(n)) for n in range(20)))\n\
         sorted({receipt['status'] for receipt in receipts}), len({r['effect_id'] for r in receipts})",
    );

    assert_eq!(record["output"][0]["text"], "(['held'], 20)", "{record}");
    let mut texts: Vec<String> = host
        .events("delivery.held")
        .iter()
        .map(|event| event["payload"]["text"].as_str().unwrap().to_owned())
        .collect();
    texts.sort_by_key(|text| text.parse::<u32>().unwrap());
    assert_eq!(json!(texts), json!((0..20).map(|n: u32| n.to_string()).collect::<Vec<_>>()));
}
