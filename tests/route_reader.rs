//! Every answer that real routes were seen to send is read as it was meant, however it is cut.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod harness;

use std::path::PathBuf;

use harness::peer::{Act, Peer, head};
use klbr::config::Config;
use klbr::event::Usage;
use klbr::route::sse::SseDecoder;
use klbr::route::stream::Reading;
use klbr::route::{ApiKey, Failure, Question, Route};
use serde_json::{Value, json};

fn fixtures() -> Vec<(String, Value)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/runtime-fixtures/routes");
    let mut found: Vec<(String, Value)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|suffix| suffix == "json"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(found.len() >= 14, "the fixtures are there: {}", found.len());
    found
}

fn read_stream(pieces: &[&[u8]]) -> Reading {
    let mut decoder = SseDecoder::default();
    let mut reading = Reading::default();
    let mut events = Vec::new();
    for piece in pieces {
        events.extend(decoder.push(piece).unwrap());
    }
    events.extend(decoder.finish());
    for event in events.iter().take_while(|event| *event != b"[DONE]") {
        reading.take_piece(&serde_json::from_slice(event).unwrap());
    }
    reading
}

fn counts(usage: &Usage) -> Value {
    let count = |count: Option<u64>| count.map_or(json!("absent"), |count| json!(count));
    json!({
        "prompt_tokens": count(usage.prompt_tokens),
        "completion_tokens": count(usage.completion_tokens),
        "cached_prompt_tokens": count(usage.cached_prompt_tokens),
        "cache_write_tokens": count(usage.cache_write_tokens),
        "uncached_prompt_tokens": count(usage.uncached_prompt_tokens),
        "reasoning_tokens": count(usage.reasoning_tokens),
    })
}

/// What was read, in the words of the fixtures.
fn as_expected(reading: &Reading) -> Value {
    let calls: Vec<Value> = reading
        .calls
        .iter()
        .map(|call| {
            let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
            let mut value = json!({"id": call.id, "name": call.name, "arguments": arguments});
            if let Some(extra) = &call.extra_content {
                value["extra_content"] = extra.clone();
            }
            value
        })
        .collect();
    json!({
        "text": reading.text,
        "reasoning": reading.reasoning,
        "tool_calls": calls,
        "finish_reason": reading.finish_reason,
        "usage": reading.usage_raw.as_ref().map_or(json!("absent"), |_| counts(&reading.usage())),
        "error_class": reading.failure().map(|failure| failure.class.as_str()),
    })
}

fn check(name: &str, reading: &Reading, expect: &Value) {
    let read = as_expected(reading);
    for (key, value) in read.as_object().unwrap() {
        assert_eq!(value, &expect[key], "{name}: {key}");
    }
    if let Some(total) = expect.get("total_tokens") {
        assert_eq!(json!(reading.usage().total_tokens), *total, "{name}: total_tokens");
    }
}

#[test]
fn a_stream_is_read_the_same_at_every_cut() {
    let mut streams = 0;
    for (name, fixture) in fixtures() {
        let Some(sse) = fixture["sse"].as_str() else { continue };
        streams += 1;
        let bytes = sse.as_bytes();
        check(&name, &read_stream(&[bytes]), &fixture["expect"]);
        let marked: Vec<usize> = fixture["split_after_bytes"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|at| usize::try_from(at.as_u64().unwrap()).unwrap())
            .collect();
        let bounds: Vec<usize> = [vec![0], marked, vec![bytes.len()]].concat();
        let pieces: Vec<&[u8]> = bounds.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        check(&name, &read_stream(&pieces), &fixture["expect"]);
        let whole = as_expected(&read_stream(&[bytes]));
        for cut in 0..bytes.len() {
            assert_eq!(
                as_expected(&read_stream(&[&bytes[..cut], &bytes[cut..]])),
                whole,
                "{name} cut at {cut}"
            );
        }
    }
    assert!(streams >= 9, "{streams}");
}

#[test]
fn a_body_that_is_the_whole_answer_is_read_too() {
    for (name, fixture) in fixtures() {
        if fixture["http_status"] == 200 && fixture["body"].is_object() {
            let mut reading = Reading::default();
            reading.take_whole(&fixture["body"]);

            check(&name, &reading, &fixture["expect"]);
        }
    }
}

fn ask(peer: &Peer, more: &str) -> Result<klbr::route::Answer, Failure> {
    let text = format!("workspace = \"/w\"\n[route]\nuse = \"r\"\n[routes.r]\n{}", peer.route(more));
    let config = Config::parse(&text, std::path::Path::new("/klbr.toml")).unwrap();
    let key = ApiKey::resolve("r", &config.routes["r"]).unwrap();
    let route = Route::open("r", &config.routes["r"], key).unwrap();
    let question = Question { messages: "[]".into(), tools: "[]", latest: vec![], answered: 0 };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(route.ask(question))
}

#[test]
fn over_http_every_answer_has_its_class() {
    for (name, fixture) in fixtures() {
        let body = match fixture["sse"].as_str() {
            Some(sse) => sse.to_owned(),
            None => fixture["body_text"].as_str().map_or_else(|| fixture["body"].to_string(), str::to_owned),
        };
        let headers: Vec<(&str, &str)> = fixture["headers"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str().unwrap()))
            .collect();
        let status = u16::try_from(fixture["http_status"].as_u64().unwrap()).unwrap();
        let peer = Peer::start(vec![Act::Send(vec![head(status, &headers), body.into_bytes()])]);
        let outcome = ask(&peer, "attempts = 1");
        let expect = &fixture["expect"];

        let class = outcome.as_ref().err().map(|failure| failure.class.as_str());
        assert_eq!(json!(class), expect["error_class"], "{name}");
        if let Ok(answer) = &outcome {
            assert_eq!(json!(answer.text), expect["text"], "{name}");
        }
        if let Err(failure) = &outcome {
            if let Some(retryable) = expect.get("retryable") {
                assert_eq!(json!(failure.class.is_retryable()), *retryable, "{name}");
            }
            if let Some(pause) = expect.get("retry_after_ms") {
                assert_eq!(json!(failure.retry_after_ms), *pause, "{name}");
            }
            for words in ["error_param", "error_message"] {
                if let Some(words) = expect[words].as_str() {
                    assert!(failure.message.contains(words), "{name}: {}", failure.message);
                }
            }
        }
    }
}
