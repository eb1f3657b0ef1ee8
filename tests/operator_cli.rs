//! The command line keeps its contract with scripts: what is printed where, and the exit status.
//!
//! The host behind it is a toy that answers as a test wants, so that every answer can be had.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test fails the test")]

use klbr::operator::listener::Listener;
use klbr::operator::message::Call;
use klbr::operator::server::{Admission, CallEnd, Replies, Server, Service};
use klbr::operator::{DESCRIPTION, Fault, INTERFACE};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;
use tokio::sync::Notify;

const PATIENCE: Duration = Duration::from_secs(60);

/// Answers every call from a script, and remembers the calls.
#[derive(Clone, Default)]
struct Puppet {
    input: Option<Value>,
    events: Vec<Value>,
    outcome: Option<Value>,
    /// The newest cells of the log, for `exec`'s look at its own.
    cells: Vec<Value>,
    refuse: Option<Fault>,
    calls: Arc<Mutex<Vec<String>>>,
    executing: Arc<Notify>,
    interrupted: Arc<Notify>,
}

impl Service for Puppet {
    const INTERFACE: &'static str = INTERFACE;
    const DESCRIPTION: &'static str = DESCRIPTION;

    async fn call(&self, call: Call, replies: &mut Replies<'_>) -> Result<(), CallEnd> {
        self.calls.lock().unwrap().push(call.method.clone());
        if let Some(fault) = self.refuse.clone() {
            return Err(fault.into());
        }
        match call.method.as_str() {
            "Send" => replies.last(&json!({"event": self.input})).await,
            "Follow" => {
                for event in &self.events {
                    replies.more(&json!({"event": event})).await?;
                }
                replies.gone().await;
                Err(CallEnd::Gone)
            }
            "Log" if call.more => {
                for event in &self.events {
                    replies.more(&json!({"events": [event]})).await?;
                }
                replies.last(&json!({"events": []})).await
            }
            "Log" => replies.last(&json!({"events": self.cells})).await,
            "Exec" => {
                self.executing.notify_one();
                let Some(outcome) = &self.outcome else {
                    tokio::select! {
                        () = replies.gone() => return Err(CallEnd::Gone),
                        () = self.interrupted.notified() => {}
                    }
                    let outcome =
                        outcome("interrupted", &[("stdout", "so far\n")], Some("KeyboardInterrupt"));
                    return replies.last(&json!({"outcome": outcome})).await;
                };
                replies.last(&json!({"outcome": outcome})).await
            }
            "Interrupt" => {
                self.interrupted.notify_one();
                replies.last(&json!({"interrupted": {"execution_id": "x-1", "turn": null}})).await
            }
            "Reset" => replies.last(&json!({"generation": "g-2"})).await,
            "Held" => {
                let row = json!({"effect_id": "e-1", "session_id": "root", "event_id": 3, "text": "a\nb",
                                 "reason": "secret", "at": null, "at_ms": 0});
                replies.last(&json!({"held": [row]})).await
            }
            method => Err(Fault::MethodNotFound(method.to_owned()).into()),
        }
    }
}

fn event(id: i64, kind: &str, payload: &Value) -> Value {
    json!({"event_id": id, "session_id": "root", "kind": kind, "source": "session",
           "at": "2026-09-13T18:59:00Z", "at_ms": 1_789_325_940_000_i64, "payload": payload})
}

fn outcome(status: &str, output: &[(&str, &str)], error: Option<&str>) -> Value {
    let output: Vec<_> =
        output.iter().map(|(stream, text)| json!({"stream": stream, "text": text})).collect();
    json!({"event_id": 9, "execution_id": "x-1", "status": status, "output": output,
           "truncated_bytes": 0, "error": error})
}

/// The log of one turn that took input 5 up.
fn turn(end: &Value) -> Puppet {
    Puppet {
        input: Some(event(5, "operator.input", &json!({"text": "t"}))),
        events: vec![
            event(6, "delivery.sent", &json!({"text": "of the turn before", "effect_id": "e-0"})),
            event(7, "turn.started", &json!({"turn": 2, "cause": "input"})),
            event(8, "model.requested", &json!({"turn": 2, "step": 1, "adopted": [5]})),
            event(9, "delivery.sent", &json!({"text": "one\ntwo", "effect_id": "e-1"})),
            event(10, "delivery.held", &json!({"text": "no", "effect_id": "e-2", "reason": "secret"})),
            event(11, end["kind"].as_str().unwrap(), &end["payload"]),
        ],
        ..Puppet::default()
    }
}

struct Stage {
    folder: tempfile::TempDir,
    socket: PathBuf,
    _server: Option<Server>,
}

fn stage(puppet: Option<&Puppet>) -> Stage {
    let folder = tempfile::Builder::new().prefix("klbr ö ").tempdir().unwrap();
    let socket = folder.path().join("the socket");
    let admission =
        Admission { uid: Some(rustix::process::geteuid().as_raw()), inside_worker: Arc::new(|_| false) };
    let server = puppet.map(|it| Server::with(Listener::bind(&socket).unwrap(), it.clone(), admission));
    Stage { folder, socket, _server: server }
}

impl Stage {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_klbr"));
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .env("LC_ALL", "tr_TR.UTF-8")
            .env("KLBR_SOCKET", &self.socket)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    async fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        self.run_with(arguments, b"").await
    }

    async fn run_with(&self, arguments: &[&str], input: &[u8]) -> (Option<i32>, String, String) {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let ended = async {
            // A command that refuses does not read all of it.
            let _ = stdin.write_all(input).await;
            drop(stdin);
            child.wait_with_output().await.unwrap()
        };
        parts(&tokio::time::timeout(PATIENCE, ended).await.expect("klbr ends"))
    }
}

fn parts(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn answered() -> Value {
    json!({"kind": "turn.ended", "payload": {"turn": 2, "reason": "answered", "detail": null}})
}

#[tokio::test]
async fn send_wait_prints_what_the_turn_delivered_and_nothing_else() {
    let stage = stage(Some(&turn(&answered())));

    let (status, stdout, stderr) = stage.run(&["send", "t", "--wait", "--timeout", "50"]).await;
    assert_eq!((status, stdout.as_str()), (Some(0), "one\ntwo\n"));
    assert_eq!(stderr, "klbr: held as e-2: secret\n");
}

#[tokio::test]
async fn send_wait_json_prints_the_input_the_deliveries_and_the_end_one_a_line() {
    let wait = json!({"kind": "wait.accepted", "payload": {"turn": 2, "seconds": null}});
    let stage = stage(Some(&turn(&wait)));
    let (status, stdout, stderr) = stage.run(&["send", "t", "--wait", "--json"]).await;
    let ids: Vec<_> = stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["event_id"].as_i64().unwrap())
        .collect();

    assert_eq!((status, ids, stderr.as_str()), (Some(0), vec![5, 9, 10, 11], ""));
}

#[tokio::test]
async fn a_failed_turn_is_1_and_a_turn_without_end_is_5() {
    let failed = json!({"kind": "turn.ended",
                        "payload": {"turn": 2, "reason": "route_failed", "detail": "no answer"}});
    let (status, stdout, stderr) = stage(Some(&turn(&failed))).run(&["send", "t", "--wait"]).await;

    assert_eq!((status, stdout.as_str()), (Some(1), "one\ntwo\n"));
    assert!(stderr.contains("route failed") && stderr.contains("no answer"), "{stderr}");

    let other = json!({"kind": "turn.ended", "payload": {"turn": 1, "reason": "answered"}});
    let endless = turn(&other);
    let (status, ..) = stage(Some(&endless)).run(&["send", "t", "--wait", "--timeout", "0.2"]).await;

    assert_eq!(status, Some(5));
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_3_like_no_host_at_all() {
    let puppet = Puppet {
        input: Some(json!({"event": "of another shape"})),
        outcome: Some(json!({"status": 7})),
        ..Puppet::default()
    };
    let stage = stage(Some(&puppet));
    for arguments in [["send", "x"], ["exec", "x"]] {
        let (status, stdout, stderr) = stage.run(&arguments).await;

        assert_eq!((status, stdout.as_str()), (Some(3), ""), "{stderr}");
        assert!(stderr.contains("cannot be read"), "{stderr}");
    }
}

#[tokio::test]
async fn a_refusal_is_4_with_its_remedy() {
    let puppet = Puppet {
        refuse: Some(Fault::UnknownSession("there is no session `p`".to_owned())),
        ..Puppet::default()
    };
    let stage = stage(Some(&puppet));
    for arguments in [
        &["send", "t", "--session", "p"][..],
        &["follow", "--session", "p"],
        &["log", "--session", "p"],
        &["exec", "1", "--session", "p"],
        &["interrupt"],
        &["reset"],
        &["held"],
        &["held", "release", "e-1"],
        &["held", "discard", "e-1"],
        &["status"],
    ] {
        let (status, stdout, stderr) = stage.run(arguments).await;

        assert_eq!((status, stdout.as_str()), (Some(4), ""), "{arguments:?}");
        assert_eq!(stderr, "klbr: there is no session `p`; `klbr status` lists the sessions\n");
    }
}

#[tokio::test]
async fn without_a_host_there_is_3_and_a_way_on_but_status_answers() {
    let stage = stage(None);
    for verb in [&["send", "t"][..], &["follow"], &["log"], &["exec", "1"], &["held"], &["reset"]] {
        let (status, stdout, stderr) = stage.run(verb).await;

        assert_eq!((status, stdout.as_str(), stderr.lines().count()), (Some(3), "", 1), "{verb:?}");
        assert!(stderr.contains("the socket") && stderr.contains("klbr serve"), "{stderr}");
    }
    let (status, stdout, _) = stage.run(&["status", "--json"]).await;
    let object: Value = serde_json::from_str(&stdout).unwrap();

    assert_eq!(
        (status, &object["running"], &object["config_valid"]),
        (Some(0), &json!(false), &json!(false))
    );
}

#[tokio::test]
async fn wrong_usage_is_2_and_what_is_too_large_is_4() {
    let stage = stage(None);
    for wrong in [
        &["nonsense"][..],
        &[],
        &["send", "a", "b"],
        &["send", "a", "--timeout", "3"],
        &["exec", "1", "--timeout", "0"],
        &["follow", "--since", "-1"],
        &["log", "--session", "no/such"],
        &["held", "release"],
    ] {
        let (status, stdout, stderr) = stage.run(wrong).await;

        assert_eq!((status, stdout.as_str(), stderr.is_empty()), (Some(2), "", false), "{wrong:?}");
    }
    let (status, _, stderr) = stage.run_with(&["send", "-"], b"caf\xe9").await;
    assert_eq!((status, stderr.as_str()), (Some(2), "klbr: standard input is not UTF-8 at byte 3\n"));

    for (verb, limit) in [("send", 1_048_576), ("exec", 262_144)] {
        let (status, _, stderr) = stage.run_with(&[verb, "-"], &vec![b'a'; limit + 1]).await;
        assert_eq!(status, Some(4));
        assert!(stderr.contains(&limit.to_string()), "{stderr}");
    }
}

#[tokio::test]
async fn the_largest_input_arrives_even_where_json_escapes_every_byte() {
    let stage = stage(Some(&turn(&answered())));
    let (status, stdout, stderr) = stage.run_with(&["send"], &vec![1; 1_048_576]).await;

    assert_eq!((status, stdout.as_str(), stderr.as_str()), (Some(0), "event:5\n", ""));
}

#[tokio::test]
async fn exec_shows_a_cell_as_python_would() {
    let records = [("stdout", "out\n"), ("stderr", "err\n"), ("result", "42")];
    let fine = Puppet { outcome: Some(outcome("ok", &records, None)), ..Puppet::default() };
    let raised = Puppet { outcome: Some(outcome("error", &[], Some("Traceback ..."))), ..Puppet::default() };

    let shown = stage(Some(&fine)).run(&["exec", "x"]).await;
    assert_eq!(shown, (Some(0), "out\n42\n".to_owned(), "err\n".to_owned()));
    let shown = stage(Some(&raised)).run(&["exec", "x"]).await;
    assert_eq!(shown, (Some(1), String::new(), "Traceback ...\n".to_owned()));

    let (status, stdout, stderr) = stage(Some(&raised)).run(&["exec", "x", "--json"]).await;
    let object: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((status, object, stderr), (Some(1), raised.outcome.unwrap(), String::new()));
}

fn own_cell() -> Vec<Value> {
    let mut started = event(6, "cell.started", &json!({"origin": {"by": "operator"}, "code": "mine"}));
    started["execution_id"] = json!("x-1");
    vec![started]
}

/// Runs `klbr exec mine`, presses Ctrl-C once the cell is asked for, and says how it ended.
async fn interrupt(puppet: &Puppet) -> (Option<i32>, String, Vec<String>) {
    let stage = stage(Some(puppet));
    let mut command = stage.command(&["exec", "mine"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    tokio::time::timeout(PATIENCE, puppet.executing.notified()).await.expect("the cell is asked for");
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.expect("klbr ends").unwrap();
    let (status, stdout, _) = parts(&output);
    (status, stdout, puppet.calls.lock().unwrap().clone())
}

#[tokio::test]
async fn ctrl_c_interrupts_the_callers_own_cell_and_is_130() {
    let puppet = Puppet { cells: own_cell(), ..Puppet::default() };
    let (status, stdout, calls) = interrupt(&puppet).await;

    assert_eq!((status, stdout.as_str()), (Some(130), "so far\n"));
    assert_eq!(calls, ["Exec", "Log", "Interrupt"]);
}

#[tokio::test]
async fn ctrl_c_does_not_touch_a_cell_that_the_callers_is_waiting_behind() {
    let mut others = own_cell();
    others[0]["payload"]["origin"] = json!({"by": "model", "turn": 1});
    let puppet = Puppet { cells: others, ..Puppet::default() };
    let (status, _, calls) = interrupt(&puppet).await;

    assert_eq!((status, calls), (Some(130), vec!["Exec".to_owned(), "Log".to_owned()]));
}

#[tokio::test]
async fn a_cell_that_runs_out_of_time_is_interrupted_and_is_5() {
    let puppet = Puppet { cells: own_cell(), ..Puppet::default() };
    let (status, stdout, stderr) = stage(Some(&puppet)).run(&["exec", "mine", "--timeout", "0.2"]).await;

    assert_eq!((status, stdout.as_str()), (Some(5), "so far\n"));
    assert!(stderr.ends_with("klbr: the cell did not end within 0.2 s\n"), "{stderr}");
    assert!(puppet.calls.lock().unwrap().contains(&"Interrupt".to_owned()));
}

#[tokio::test]
async fn a_reader_that_has_seen_enough_ends_log_quietly() {
    let mut puppet = turn(&answered());
    puppet.events = vec![event(1, "operator.input", &json!({"text": "x".repeat(50_000)})); 200];
    let stage = stage(Some(&puppet));
    let mut child =
        stage.command(&["log", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).await.unwrap();
    drop(reader);
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.expect("klbr ends").unwrap();

    assert!(serde_json::from_str::<Value>(&line).is_ok());
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[tokio::test]
async fn follow_ends_with_its_reader_though_nothing_happens() {
    let stage = stage(Some(&turn(&answered())));
    let mut child = stage.command(&["follow", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..6 {
        reader.read_line(&mut String::new()).await.unwrap();
    }
    drop(reader);
    let status = tokio::time::timeout(PATIENCE, child.wait()).await.expect("klbr ends").unwrap();

    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn follow_ends_after_its_count() {
    let stage = stage(Some(&turn(&answered())));
    let (status, stdout, _) = stage.run(&["follow", "--json", "--count", "2"]).await;

    assert_eq!((status, stdout.lines().count()), (Some(0), 2));
}

#[tokio::test]
async fn held_texts_are_listed() {
    let stage = stage(Some(&Puppet::default()));

    let (_, stdout, _) = stage.run(&["held"]).await;
    assert_eq!(stdout, "e-1  time unknown  root  secret\n        a\n        b\n");
    let (_, stdout, _) = stage.run(&["held", "list", "--json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&stdout).unwrap()["effect_id"], "e-1");
}

#[tokio::test]
async fn on_a_terminal_the_agent_cannot_send_escapes_and_no_color_is_respected() {
    let mut puppet = turn(&answered());
    puppet.events =
        vec![event(1, "delivery.sent", &json!({"text": "\u{1b}]0;owned\u{7}", "effect_id": "e-1"}))];
    let stage = stage(Some(&puppet));
    let on_terminal =
        "import os,pty,sys\nstatus=pty.spawn(sys.argv[1:])\nsys.exit(os.waitstatus_to_exitcode(status))";
    let mut shown = Vec::new();
    for no_color in ["", "1"] {
        let command = stage.command(&[]);
        let program = command.as_std().get_program().to_owned();
        let mut python = Command::new("python3");
        python
            .args(["-c", on_terminal])
            .arg(&program)
            .args(["log"])
            .env("TERM", "xterm")
            .env("NO_COLOR", no_color);
        python.env("KLBR_SOCKET", &stage.socket).env("HOME", stage.folder.path()).stdin(Stdio::null());
        let output = tokio::time::timeout(PATIENCE, python.output()).await.expect("klbr ends").unwrap();
        let (status, stdout, stderr) = parts(&output);
        assert_eq!(status, Some(0), "{stdout}{stderr}");
        assert!(!stdout.contains("\u{1b}]") && stdout.contains("\\u{1b}]0;owned\\u{7}"), "{stdout:?}");
        shown.push(stdout.contains('\u{1b}'));
    }

    assert_eq!(shown, [true, false]);
}
