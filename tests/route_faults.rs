//! What routes do wrong, over real connections: each a clear class, nothing invented, nothing hung.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod harness;

use std::time::Duration;

use harness::peer::{Act, Peer, answer, cell, head, refusal, sse_head, stream};
use harness::{TestHost, texts};
use klbr::config::Config;
use klbr::limits::{ROUTE_BODY_BYTES_MAX, SSE_LINE_BYTES_MAX};
use klbr::route::{Answer, ApiKey, Failure, FailureClass, Question, Route};
use serde_json::{Value, json};

fn route(text: &str) -> Route {
    let text = format!("workspace = \"/w\"\n[route]\nuse = \"r\"\n[routes.r]\n{text}");
    let config = Config::parse(&text, std::path::Path::new("/klbr.toml")).unwrap();
    let key = ApiKey::resolve("r", &config.routes["r"]).unwrap();
    Route::open("r", &config.routes["r"], key).unwrap()
}

fn question() -> Question {
    Question { messages: "[]".into(), tools: "[]", latest: vec![], answered: 0 }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn ask(peer: &Peer, more: &str) -> Result<Answer, Failure> {
    run(route(&peer.route(more)).ask(question()))
}

fn class(outcome: Result<Answer, Failure>) -> FailureClass {
    outcome.unwrap_err().class
}

fn bytes(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    pieces.iter().map(|piece| piece.to_vec()).collect()
}

#[test]
fn a_server_that_is_not_there_is_unreachable() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = format!("base_url = \"http://127.0.0.1:{port}/v1\"\nmodel = \"m\"\nattempts = 2");
    let failure = run(route(&text).ask(question())).unwrap_err();

    assert_eq!((failure.class, failure.attempts), (FailureClass::Unreachable, 2));
    assert!(failure.message.contains(&format!("127.0.0.1:{port}")), "{}", failure.message);
}

#[test]
fn a_server_that_says_nothing_is_timed_out_at_every_point() {
    let silent = [
        vec![],
        vec![sse_head()],
        vec![sse_head(), b"data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n".to_vec()],
    ];
    for pieces in silent {
        let peer = Peer::start(vec![Act::SendAndHang(pieces)]);
        assert_eq!(class(ask(&peer, "attempts = 1\nidle_timeout_ms = 150")), FailureClass::TimedOut);
    }
    let peer = Peer::start(vec![Act::Pause(Duration::from_millis(50), Box::new(answer("late", &[])))]);
    assert_eq!(ask(&peer, "idle_timeout_ms = 5000").unwrap().text, "late");
}

#[test]
fn an_answer_without_end_is_bounded_by_its_total_time() {
    let drip = vec![b": keep-alive\n\n".to_vec(); 4_000];
    let peer = Peer::start(vec![Act::Send([vec![sse_head()], drip].concat())]);
    let outcome = ask(&peer, "attempts = 1\nidle_timeout_ms = 5000\ntotal_timeout_ms = 300");

    assert_eq!(class(outcome), FailureClass::TimedOut);
}

#[test]
fn a_refusal_is_not_repeated_and_an_overload_is() {
    let unauthorized = Peer::start(vec![refusal(401, &[], &json!({"error": {"message": "bad key"}}))]);
    assert_eq!(class(ask(&unauthorized, "")), FailureClass::Unauthorized);
    assert_eq!(unauthorized.asked().len(), 1);

    let error = json!({"error": {"message": "oops"}});
    let overloaded =
        Peer::start(vec![refusal(500, &[], &error), refusal(503, &[], &error), answer("at last", &[])]);
    let answer = ask(&overloaded, "").unwrap();
    assert_eq!((answer.text.as_str(), answer.attempts), ("at last", 3));
    let asked = overloaded.asked();
    assert!(asked.iter().all(|request| request.body == asked[0].body), "the same bytes every time");
}

#[test]
fn both_forms_of_retry_after_are_waited_for() {
    let error = json!({"error": {"message": "slow down"}});
    let seconds = Peer::start(vec![refusal(429, &[("retry-after", "1")], &error), answer("ok", &[])]);
    let started = std::time::Instant::now();
    assert_eq!(ask(&seconds, "").unwrap().text, "ok");
    assert!(started.elapsed() >= Duration::from_secs(1));

    let date = httpdate::fmt_http_date(std::time::SystemTime::now() + Duration::from_secs(2));
    let dated = Peer::start(vec![refusal(429, &[("retry-after", &date)], &error), answer("ok", &[])]);
    let started = std::time::Instant::now();
    assert_eq!(ask(&dated, "").unwrap().text, "ok");
    assert!(started.elapsed() >= Duration::from_millis(900), "{:?}", started.elapsed());

    let tomorrow = Peer::start(vec![refusal(429, &[("retry-after", "86400")], &error)]);
    let failure = ask(&tomorrow, "").unwrap_err();
    assert_eq!((failure.class, tomorrow.asked().len()), (FailureClass::RateLimited, 1));
    assert!(failure.message.contains("86400 s"), "{}", failure.message);
}

#[test]
fn garbage_is_a_bad_answer_and_a_cut_is_a_stream_error() {
    let garbage = Peer::start(vec![Act::Send(bytes(&[&sse_head(), b"data: {not json}\n\n"]))]);
    assert_eq!(class(ask(&garbage, "attempts = 1")), FailureClass::BadAnswer);
    let no_http = Peer::start(vec![Act::Send(bytes(&[b"\x00\xff\xfe garbage\r\n\r\n"]))]);
    assert_eq!(class(ask(&no_http, "attempts = 1")), FailureClass::Unreachable);
    let not_json = Peer::start(vec![Act::Send(bytes(&[
        &head(200, &[("content-type", "application/json")]),
        b"<html>",
    ]))]);
    assert_eq!(class(ask(&not_json, "attempts = 1")), FailureClass::BadAnswer);

    let whole = stream(
        &[json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "python",
        "arguments": "{\"code\": \"1"}}]})],
        "tool_calls",
    );
    let cut = &whole[..whole.iter().position(|byte| *byte == b'\n').unwrap() + 2];
    let cut = Peer::start(vec![Act::Send(bytes(&[&sse_head(), cut])), answer("whole", &[])]);
    let answer = ask(&cut, "").unwrap();
    assert_eq!((answer.text.as_str(), answer.calls.len(), answer.attempts), ("whole", 0, 2));
}

#[test]
fn a_line_and_an_answer_have_their_bounds() {
    let endless = Peer::start(vec![Act::Send(bytes(&[&sse_head(), &vec![b'x'; SSE_LINE_BYTES_MAX + 2]]))]);
    assert_eq!(class(ask(&endless, "attempts = 1")), FailureClass::BadAnswer);

    let comment = [b": ".to_vec(), vec![b'y'; 1_000_000], b"\n".to_vec()].concat();
    let flood = comment.repeat(ROUTE_BODY_BYTES_MAX / comment.len() + 1);
    let flood = Peer::start(vec![Act::Send(bytes(&[&sse_head(), &flood]))]);
    let failure = ask(&flood, "attempts = 1").unwrap_err();
    assert_eq!(failure.class, FailureClass::BadAnswer);
    assert!(failure.message.contains(&ROUTE_BODY_BYTES_MAX.to_string()), "{}", failure.message);
}

#[test]
fn a_redirect_is_not_followed_and_the_key_goes_nowhere_else() {
    let elsewhere = Peer::start(vec![answer("stolen", &[])]);
    let target = format!("http://127.0.0.1:{}/v1/chat/completions", elsewhere.port);
    let peer = Peer::start(vec![Act::Send(vec![head(307, &[("location", &target)])])]);

    assert_eq!(class(ask(&peer, "attempts = 1")), FailureClass::InvalidRequest);
    assert_eq!(elsewhere.asked().len(), 0);
}

#[test]
fn dropping_the_question_closes_the_connection() {
    let peer = Peer::start(vec![Act::SendAndHang(vec![sse_head()])]);
    let route = route(&peer.route(""));
    run(async {
        let asked = tokio::time::timeout(Duration::from_millis(300), route.ask(question())).await;
        assert!(asked.is_err());
        drop(route);
        let end = std::time::Instant::now() + harness::PATIENCE;
        while peer.closed() == 0 {
            assert!(std::time::Instant::now() < end, "the connection stays open");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

fn host_on(peer: &Peer, more: &str) -> TestHost {
    let mut host = TestHost::stopped();
    host.use_route(&peer.route(more));
    host.start();
    host
}

#[test]
fn a_conversation_over_http_extends_its_bytes_and_never_has_an_orphan_call() {
    let peer = Peer::start(vec![
        cell("x = 6"),
        answer("", &[("python", "{\"code\": \"x * 7\"}"), ("python", "{\"code\": \"x\"}")]),
        answer("", &[("shell", "{}")]),
        answer("", &[("python", "{\"code\": ")]),
        answer("it is 42", &[]),
    ]);
    let host = host_on(&peer, "");
    assert_eq!(host.say("go"), "it is 42");

    let asked = peer.asked();
    assert_eq!(asked.len(), 5);
    for pair in asked.windows(2) {
        let (before, after) = (pair[0].messages(), pair[1].messages());
        assert!(after.starts_with(&before[..before.len() - 1]), "not an extension:\n{before}\n{after}");
    }
    for request in &asked {
        let body = request.json();
        let messages = body["messages"].as_array().unwrap();
        let calls: Vec<&Value> = messages
            .iter()
            .flat_map(|message| message["tool_calls"].as_array().into_iter().flatten())
            .map(|call| &call["id"])
            .collect();
        let results: Vec<&Value> =
            messages.iter().filter(|m| m["role"] == "tool").map(|m| &m["tool_call_id"]).collect();
        assert_eq!(calls, results, "every call has its result, in order");
    }
    let last = asked[4].json();
    let results: Vec<&str> = last["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    assert!(results[1].ends_with("\n42") && results[2].ends_with("\n6"), "{results:?}");
    assert!(results[3].contains("no tool \"shell\""), "{results:?}");
    assert!(results[4].contains("Nothing was run"), "{results:?}");
    // What the log says was sent is what was sent.
    let requests = host.events("model.requested");
    for (request, asked) in requests.iter().zip(&asked) {
        let messages = asked.messages();
        let digest = klbr::id::Digest::of(&messages.as_bytes()[1..messages.len() - 1]);
        assert_eq!(request["payload"]["digest"], digest.as_str());
    }
}

#[test]
fn the_bytes_after_a_restart_extend_those_before_it() {
    let peer = Peer::start(vec![cell("x = 1"), answer("one", &[]), cell("x"), answer("two", &[])]);
    let mut host = host_on(&peer, "");
    host.say("first");
    host.kill();
    host.start();
    host.say("second");

    let asked = peer.asked();
    for pair in asked.windows(2) {
        let (before, after) = (pair[0].messages(), pair[1].messages());
        assert!(after.starts_with(&before[..before.len() - 1]), "not an extension:\n{before}\n{after}");
    }
    assert!(asked[2].messages().contains("names that earlier cells defined are gone"));
    assert!(host.events("model.requested").iter().skip(1).all(|r| r["payload"]["not_extension"].is_null()));
}

#[test]
fn a_route_that_fails_ends_the_turn_with_the_reason_and_the_next_input_goes_on() {
    let peer =
        Peer::start(vec![refusal(400, &[], &json!({"error": {"message": "no"}})), answer("fine", &[])]);
    let host = host_on(&peer, "");
    let output = host.run(&["send", "one", "--wait", "--timeout", "60"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(host.events("model.failed")[0]["payload"]["class"], "invalid_request");
    assert_eq!(host.say("two"), "fine");

    let last = peer.asked()[1].json();
    let users = last["messages"].as_array().unwrap().iter().filter(|m| m["role"] == "user").count();
    assert_eq!(users, 2, "the first input is not lost");
}

#[test]
fn an_interrupt_reaches_a_slow_model_and_an_operators_cell_need_not_wait_for_it() {
    let peer = Peer::start(vec![Act::SendAndHang(vec![sse_head()])]);
    let host = host_on(&peer, "");
    host.ok(&["send", "go"]);
    host.await_events("model.requested", 1);
    assert_eq!(host.exec("6 * 7")["output"][0]["text"], "42");
    host.ok(&["interrupt"]);
    let ended = host.await_events("turn.ended", 1).remove(0);

    assert_eq!(ended["payload"]["reason"], "interrupted");
    assert_eq!(host.events("model.failed")[0]["payload"]["class"], "interrupted");
}

#[test]
fn an_input_in_mid_turn_is_read_at_the_next_step() {
    let peer = Peer::start(vec![
        cell("import time\nwhile not open('go', 'a+').tell(): time.sleep(0.01)"),
        answer("both", &[]),
    ]);
    let host = host_on(&peer, "");
    host.ok(&["send", "first"]);
    host.await_events("cell.started", 1);
    host.ok(&["send", "second"]);
    std::fs::write(host.path("work/go"), "x").unwrap();
    host.await_events("turn.ended", 1);

    let contents: Vec<String> = peer.asked()[1].json()["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["content"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert!(contents.last().unwrap().ends_with("· operator]\nsecond"), "{contents:?}");
    assert_eq!(texts(&host.events("delivery.sent")), ["both"]);
    assert_eq!(host.events("turn.started").len(), 1);
}

#[test]
fn a_host_that_is_stopped_while_it_asks_goes_on_later() {
    let peer = Peer::start(vec![Act::SendAndHang(vec![sse_head()]), answer("later", &[])]);
    let mut host = host_on(&peer, "");
    host.ok(&["send", "go"]);
    host.await_events("model.requested", 1);
    assert_eq!(host.stop().status.code(), Some(0));
    host.start();
    host.await_events("turn.ended", 1);

    assert_eq!(texts(&host.events("delivery.sent")), ["later"]);
    assert_eq!(host.events("model.failed")[0]["payload"]["class"], "abandoned");
}

#[test]
fn the_key_is_sent_and_stands_nowhere_else() {
    let secret = "sk-test-0123456789abcdef";
    let echo = json!({"error": {"message": format!("Incorrect API key provided: {secret}")}});
    let peer = Peer::start(vec![refusal(401, &[], &echo)]);
    let mut host = TestHost::stopped();
    host.use_route(&peer.route("api_key_env = \"KLBR_TEST_KEY\""));
    host.wrapper = vec!["env".to_owned(), format!("KLBR_TEST_KEY={secret}")];
    host.start();
    host.run(&["send", "go", "--wait", "--timeout", "60"]);

    assert!(peer.asked()[0].head.to_lowercase().contains(&format!("authorization: bearer {secret}")));
    assert!(!host.ok(&["log", "--json"]).contains(secret));
    assert!(!host.errors().contains(secret));
    let outcome = host.exec("import os\n[n for n in os.environ if 'KEY' in n]");
    assert_eq!(outcome["output"][0]["text"], "[]");
}

#[test]
fn limits_end_a_turn_with_their_name() {
    let peer = Peer::start(vec![cell("1")]);
    let mut host = TestHost::stopped();
    host.use_config(&format!(
        "[limits]\nsteps_per_turn = 3\n[route]\nuse = \"r\"\n[routes.r]\n{}",
        peer.route("")
    ));
    host.start();
    host.run(&["send", "go", "--wait", "--timeout", "60"]);

    let ended = host.events("turn.ended").remove(0);
    assert_eq!(ended["payload"]["reason"], "step_limit");
    assert!(ended["payload"]["detail"].as_str().unwrap().contains("limits.steps_per_turn"));
    assert_eq!(peer.asked().len(), 3);
}
