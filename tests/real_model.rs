//! The main job against a real model server: llama.cpp's own, with a model whose answers are known.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod harness;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use harness::{TestHost, kinds, texts, venv_python};

/// A server that ends with its standard input, and so with this test.
struct ModelServer {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl ModelServer {
    fn start(python: &Path, context_tokens: u32, key: Option<&str>) -> Self {
        let here = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/model-server");
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("markov.gguf");
        let made = Command::new(python)
            .arg(here.join("make_model.py"))
            .args([&model, &here.join("template.jinja")])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut child = Command::new(python)
            .arg(here.join("serve.py"))
            .arg(&model)
            .args([port.to_string(), context_tokens.to_string()])
            .args(key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("listening"), "{line}");
        Self { child, port, _folder: folder }
    }

    fn route(&self, more: &str) -> String {
        format!("base_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"markov\"\n{more}", self.port)
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        // The test is over, and nothing of the server is kept.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_model_calls_a_cell_sees_its_result_and_answers_on_a_cached_prefix() {
    let Some(python) = venv_python("xllamacpp, gguf") else { return };
    let server = ModelServer::start(&python, 65_536, Some("sesame"));
    let mut host = TestHost::stopped();
    host.use_route(&server.route("api_key_env = \"KLBR_TEST_KEY\"\n[routes.test.options]\ntemperature = 0"));
    host.wrapper = vec!["env".to_owned(), "KLBR_TEST_KEY=sesame".to_owned()];
    host.start();

    assert_eq!(host.say("what is six times seven?"), "done");
    assert_eq!(host.say("and again?"), "done");

    let cells = host.events("cell.completed");
    let outputs: Vec<_> = cells.iter().map(|cell| cell["payload"].to_string()).collect();
    assert_eq!(outputs.len(), 2, "{cells:#?}");
    assert!(outputs.iter().all(|output| output.contains("42")), "{outputs:?}");
    assert_eq!(texts(&host.events("delivery.sent")), ["done", "done"]);
    assert_eq!(kinds(&host.events("model.responded")).len(), 4);

    // The server's own prefix cache says that each request extends the one before it.
    for pair in host.events("model.responded").windows(2) {
        let usage = |at: usize, field: &str| pair[at]["payload"]["usage"][field].as_u64().unwrap();
        let (before, cached) = (usage(0, "prompt_tokens"), usage(1, "cached_prompt_tokens"));
        assert!(cached + 1 >= before, "{cached} of {before} tokens came from the cache");
        assert!(pair[1]["payload"]["usage_raw"].is_object());
    }
    host.stop();
    host.verify();
}

#[test]
fn a_wrong_key_and_a_full_context_are_told_in_the_servers_own_words() {
    let Some(python) = venv_python("xllamacpp, gguf") else { return };
    let server = ModelServer::start(&python, 512, Some("sesame"));
    let mut host = TestHost::stopped();
    host.use_route(&server.route(""));
    host.start();
    let failed = host.run(&["send", "hello", "--wait", "--timeout", "60"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(host.events("model.failed")[0]["payload"]["class"] == "unauthorized", "{:?}", host.log());
    host.stop();

    host.use_route(&server.route("api_key_env = \"KLBR_TEST_KEY\""));
    host.wrapper = vec!["env".to_owned(), "KLBR_TEST_KEY=sesame".to_owned()];
    host.start();
    let failed = host.run(&["send", &"x".repeat(4_000), "--wait", "--timeout", "60"]);
    assert_eq!(failed.status.code(), Some(1));
    let failures = host.events("model.failed");
    let failure = &failures.last().unwrap()["payload"];
    assert!(failure["message"].as_str().unwrap().contains("context"), "{failure}");
}
