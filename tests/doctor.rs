//! `klbr doctor`: each thing that can be missing is named, with what to do.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod harness;

use std::os::unix::fs::PermissionsExt as _;

use harness::TestHost;
use harness::peer::{Act, Peer, head, refusal};
use serde_json::{Value, json};

/// Exit status, and what was found by check.
fn doctor(host: &TestHost) -> (i32, Value) {
    let output = host.run(&["doctor", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let found = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let by_check = found.map(|finding| (finding["check"].as_str().unwrap().to_owned(), finding));
    (output.status.code().unwrap(), Value::Object(by_check.collect()))
}

#[test]
fn a_running_host_is_well_and_its_own_word_counts() {
    let mut host = TestHost::stopped();
    host.use_route("kind = \"manual\"");
    host.start();
    let (status, found) = doctor(&host);

    assert_eq!(status, 0, "{found}");
    for check in ["configuration", "python", "packages", "data", "workspace", "route", "host"] {
        assert_eq!(found[check]["verdict"], "ok", "{found}");
    }
    // The tests' hosts have no service manager: a warning, and no failure.
    assert_eq!(found["containment"]["verdict"], "warn", "{found}");
    assert!(found["containment"]["found"].as_str().unwrap().starts_with("process"), "{found}");
    let pid = host.pid().to_string();
    assert!(found["host"]["found"].as_str().unwrap().contains(&pid), "{found}");
    let text = host.ok(&["doctor"]);
    assert!(text.contains("ok    python") && text.contains("to do:"), "{text}");
}

#[test]
fn a_host_that_does_not_run_is_no_fault() {
    let host = TestHost::stopped();
    host.use_route("kind = \"manual\"");
    let (status, found) = doctor(&host);

    assert_eq!((status, &found["host"]), (0, &Value::Null), "{found}");
    assert_eq!(found["containment"]["verdict"], "warn", "{found}");
    assert!(found["containment"]["found"].as_str().unwrap().contains("service manager"), "{found}");
}

#[test]
fn what_is_missing_is_named_with_what_to_do() {
    let host = TestHost::stopped();
    // Not a Python at all, and one that is too old: stand-ins, because no old one can be had here.
    let stand_in = |name: &str, says: &str| {
        let path = host.path(name);
        std::fs::write(&path, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        format!("python = {}", Value::from(path.to_str().unwrap()))
    };
    let cases = [
        (stand_in("old python", "3.10.12"), "python", "is version 3.10.12", "install Python 3.11"),
        (stand_in("no python", "hello"), "python", "is no Python", "install Python 3.11"),
        ("python = \"/nowhere/python\"".to_owned(), "python", "/nowhere/python", "install Python 3.11"),
    ];
    let config = host.config();
    for (line, check, says, remedy) in cases {
        std::fs::write(host.path("klbr.toml"), format!("{line}\n{config}")).unwrap();
        let (status, found) = doctor(&host);
        assert_eq!(status, 1, "{found}");
        assert!(found[check]["found"].as_str().unwrap().contains(says), "{found}");
        assert!(found[check]["remedy"].as_str().unwrap().contains(remedy), "{found}");
    }

    std::fs::write(host.path("klbr.toml"), format!("colour = 1\n{config}")).unwrap();
    let (status, found) = doctor(&host);
    assert_eq!(status, 1, "{found}");
    assert!(found["configuration"]["found"].as_str().unwrap().contains("line 1"), "{found}");
}

#[test]
fn a_route_is_tried_without_a_question() {
    let host = TestHost::stopped();
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    host.use_route(&format!("base_url = \"http://127.0.0.1:{dead}/v1\"\nmodel = \"m\""));
    let (status, found) = doctor(&host);
    assert_eq!((status, found["route"]["verdict"].as_str()), (1, Some("fail")), "{found}");
    assert!(found["route"]["found"].as_str().unwrap().contains("check base_url"), "{found}");

    let refused = refusal(401, &[], &json!({"error": {"message": "no such key"}}));
    let moved = Act::Send(vec![head(307, &[("location", "http://127.0.0.1:9/")])]);
    let listless = refusal(404, &[], &json!({"error": {"message": "no such page"}}));
    for (act, status, says) in
        [(refused, 1, "api_key_env"), (moved, 1, "307"), (listless, 0, "the server answers")]
    {
        let peer = Peer::start(vec![act]);
        host.use_route(&peer.route(""));
        let (found_status, found) = doctor(&host);
        assert_eq!(found_status, status, "{found}");
        assert!(found["route"]["found"].as_str().unwrap().contains(says), "{found}");
        assert_eq!(peer.asked().len(), 1);
    }
}
