//! The operator socket bears every client, and no client is another's burden.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test fails the test")]

use klbr::limits::OPERATOR_CONNECTIONS_MAX;
use klbr::operator::Fault;
use klbr::operator::listener::Listener;
use klbr::operator::message::Call;
use klbr::operator::server::{Admission, CallEnd, Replies, Server, Service};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// No test may hang longer than this.
const PATIENCE: Duration = Duration::from_secs(60);

/// A service of its own: what is tested here is not what the methods do.
#[derive(Clone, Default)]
struct Toy {
    streams: Arc<AtomicUsize>,
}

struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Service for Toy {
    const INTERFACE: &'static str = "org.klbr.Toy";
    const DESCRIPTION: &'static str = "interface org.klbr.Toy\nmethod Echo(text: string) -> (text: string)\n";

    async fn call(&self, call: Call, replies: &mut Replies<'_>) -> Result<(), CallEnd> {
        let mut parameters = call.parameters;
        match call.method.as_str() {
            "Echo" => {
                let text: String = parameters.required("text")?;
                parameters.finish()?;
                replies.last(&json!({"text": text})).await
            }
            "Watch" => {
                let _counted = Counted::new(&self.streams);
                replies.more(&json!({"n": 0})).await?;
                tokio::select! {
                    () = replies.stopping() => Err(Fault::Stopping.into()),
                    () = replies.gone() => Err(CallEnd::Gone),
                }
            }
            "Flood" => {
                let _counted = Counted::new(&self.streams);
                let much = "x".repeat(64 * 1024);
                loop {
                    replies.more(&json!({"text": much})).await?;
                }
            }
            method => Err(Fault::MethodNotFound(method.to_owned()).into()),
        }
    }
}

struct Bench {
    _folder: tempfile::TempDir,
    path: PathBuf,
    toy: Toy,
    server: Server,
}

fn start(inside_worker: fn(u32) -> bool) -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("klbr.sock");
    let toy = Toy::default();
    let admission =
        Admission { uid: Some(rustix::process::geteuid().as_raw()), inside_worker: Arc::new(inside_worker) };
    let server = Server::with(Listener::bind(&path).unwrap(), toy.clone(), admission);
    Bench { _folder: folder, path, toy, server }
}

fn outside(_: u32) -> bool {
    false
}

async fn connect(path: &Path) -> UnixStream {
    UnixStream::connect(path).await.unwrap()
}

fn echo(text: &str) -> Vec<u8> {
    let mut call = json!({"method": "org.klbr.Toy.Echo", "parameters": {"text": text}}).to_string();
    call.push('\0');
    call.into_bytes()
}

fn call(method: &str, more: bool) -> Vec<u8> {
    let mut call = json!({"method": method, "more": more}).to_string();
    call.push('\0');
    call.into_bytes()
}

/// Reads one message; `None` at the end of the stream.
async fn message(stream: &mut UnixStream) -> Option<Value> {
    let read = async {
        let mut bytes = Vec::new();
        loop {
            match stream.read_u8().await {
                Ok(0) => return Some(serde_json::from_slice(&bytes).unwrap()),
                Ok(byte) => bytes.push(byte),
                Err(_) => return None,
            }
        }
    };
    tokio::time::timeout(PATIENCE, read).await.expect("a message or the end")
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let wait = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test]
async fn pipelined_calls_are_answered_in_order() {
    let bench = start(outside);
    let mut stream = connect(&bench.path).await;
    let calls: Vec<u8> = (0..200).flat_map(|n| echo(&n.to_string())).collect();
    stream.write_all(&calls).await.unwrap();
    for n in 0..200 {
        assert_eq!(message(&mut stream).await, Some(json!({"parameters": {"text": n.to_string()}})));
    }
    bench.server.stop().await;
}

#[tokio::test]
async fn a_oneway_call_has_no_reply_and_no_error() {
    let bench = start(outside);
    let mut stream = connect(&bench.path).await;
    for method in ["org.klbr.Toy.Echo", "org.klbr.Toy.Nothing", "org.other.Thing"] {
        let call = json!({"method": method, "oneway": true, "parameters": {"text": "x"}}).to_string() + "\0";
        stream.write_all(call.as_bytes()).await.unwrap();
    }
    stream.write_all(&echo("the only answer")).await.unwrap();

    assert_eq!(message(&mut stream).await, Some(json!({"parameters": {"text": "the only answer"}})));
}

#[tokio::test]
async fn garbage_is_named_and_ends_its_connection_alone() {
    let bench = start(outside);
    let mut other = connect(&bench.path).await;
    for garbage in
        [&b"\0"[..], b"\xff\xfe\0", b"hello\0", b"[1]\0", b"{\"method\":7}\0", b"{\"method\":\"a.b\"}{}\0"]
    {
        let mut stream = connect(&bench.path).await;
        stream.write_all(garbage).await.unwrap();
        let expected =
            json!({"error": "org.varlink.service.InvalidParameter", "parameters": {"parameter": "message"}});

        assert_eq!(message(&mut stream).await, Some(expected), "{garbage:?}");
        assert_eq!(message(&mut stream).await, None, "{garbage:?}");
    }
    other.write_all(&echo("still here")).await.unwrap();

    assert_eq!(message(&mut other).await, Some(json!({"parameters": {"text": "still here"}})));
}

#[tokio::test]
async fn a_wrong_call_leaves_its_connection_usable() {
    let bench = start(outside);
    let mut stream = connect(&bench.path).await;
    stream.write_all(&call("org.klbr.Nowhere.Echo", false)).await.unwrap();
    stream.write_all(&call("org.klbr.Toy.Nothing", false)).await.unwrap();
    stream.write_all(&call("org.klbr.Toy.Echo", false)).await.unwrap();
    stream.write_all(&echo("fine")).await.unwrap();
    let mut errors = Vec::new();
    for _ in 0..3 {
        errors.push(message(&mut stream).await.unwrap()["error"].clone());
    }

    assert_eq!(
        errors,
        ["InterfaceNotFound", "MethodNotFound", "InvalidParameter"]
            .map(|e| format!("org.varlink.service.{e}"))
    );
    assert_eq!(message(&mut stream).await, Some(json!({"parameters": {"text": "fine"}})));
}

#[tokio::test]
async fn ten_megabytes_get_a_clear_answer_though_the_client_is_still_sending() {
    let bench = start(outside);
    let mut stream = connect(&bench.path).await;
    stream.write_all(&vec![b'x'; 10_000_000]).await.unwrap();
    let answer = message(&mut stream).await.unwrap();

    assert_eq!(answer["error"], "org.klbr.Operator.TooLarge");
    assert!(answer["parameters"]["message"].as_str().unwrap().contains("8388608"), "{answer}");
    assert_eq!(message(&mut stream).await, None);
}

#[tokio::test]
async fn of_a_thousand_clients_those_over_the_limit_are_told_and_room_is_given_back() {
    // Both ends of every connection are in this process.
    let mut files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    files.current = files.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, files).unwrap();
    let bench = start(outside);
    let mut streams = Vec::new();
    for _ in 0..1000 {
        let mut stream = connect(&bench.path).await;
        // The answer of one that was turned away is there to read even where the write fails.
        let _ = stream.write_all(&echo("me")).await;
        streams.push(stream);
    }
    let (mut served, mut busy) = (0, 0);
    for stream in &mut streams {
        match message(stream).await {
            Some(answer) if answer["error"] == "org.klbr.Operator.Busy" => busy += 1,
            Some(answer) if answer["parameters"]["text"] == "me" => served += 1,
            other => panic!("{other:?}"),
        }
    }

    assert_eq!((served, busy), (OPERATOR_CONNECTIONS_MAX, 1000 - OPERATOR_CONNECTIONS_MAX));

    drop(streams);
    let path = bench.path.clone();
    let again = async {
        loop {
            let mut stream = connect(&path).await;
            let _ = stream.write_all(&echo("again")).await;
            if message(&mut stream).await == Some(json!({"parameters": {"text": "again"}})) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("room for a new client");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_closed_and_holds_up_nobody() {
    let bench = start(outside);
    let mut deaf = connect(&bench.path).await;
    deaf.write_all(&call("org.klbr.Toy.Flood", true)).await.unwrap();
    let flooded = bench.toy.streams.clone();
    until("the flood has begun", || flooded.load(Ordering::SeqCst) == 1).await;
    let mut other = connect(&bench.path).await;
    other.write_all(&echo("meanwhile")).await.unwrap();

    assert_eq!(message(&mut other).await, Some(json!({"parameters": {"text": "meanwhile"}})));

    until("the deaf client is closed", || flooded.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn a_stream_ends_with_its_reader_but_not_with_the_end_of_its_sending() {
    let bench = start(outside);
    let mut stream = connect(&bench.path).await;
    stream.write_all(&call("org.klbr.Toy.Watch", true)).await.unwrap();
    stream.shutdown().await.unwrap();

    assert_eq!(message(&mut stream).await, Some(json!({"parameters": {"n": 0}, "continues": true})));
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(bench.toy.streams.load(Ordering::SeqCst), 1);

    drop(stream);
    until("the stream ends", || bench.toy.streams.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn a_stop_tells_streams_and_closes_everything() {
    let bench = start(outside);
    let mut idle = connect(&bench.path).await;
    let mut stream = connect(&bench.path).await;
    stream.write_all(&call("org.klbr.Toy.Watch", true)).await.unwrap();
    message(&mut stream).await.unwrap();
    tokio::time::timeout(PATIENCE, bench.server.stop()).await.expect("the server stops");

    assert_eq!(message(&mut stream).await.unwrap()["error"], "org.klbr.Operator.Stopping");
    assert_eq!((message(&mut stream).await, message(&mut idle).await), (None, None));
    assert!(!bench.path.exists());
}

#[tokio::test]
async fn a_process_inside_a_worker_is_refused() {
    let bench = start(|pid| pid == std::process::id());
    let mut stream = connect(&bench.path).await;
    let answer = message(&mut stream).await.unwrap();

    assert_eq!(answer["error"], "org.klbr.Operator.PermissionDenied");
    assert!(answer["parameters"]["message"].as_str().unwrap().contains("inside a worker"), "{answer}");
    assert_eq!(message(&mut stream).await, None);
}

#[tokio::test]
async fn another_user_is_refused_even_where_the_file_lets_them_in() {
    use std::os::unix::fs::PermissionsExt as _;
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can call as another user");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("klbr.sock");
    let admission = Admission { uid: Some(0), inside_worker: Arc::new(outside) };
    let _server = Server::with(Listener::bind(&path).unwrap(), Toy::default(), admission);
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let client =
        "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(4096))";
    let answer = tokio::process::Command::new("python3")
        .args(["-c", client])
        .arg(&path)
        .current_dir("/")
        .uid(65_534)
        .output()
        .await
        .unwrap();
    let answer = String::from_utf8_lossy(&answer.stdout).into_owned();

    assert!(answer.contains("PermissionDenied") && answer.contains("uid 65534"), "{answer}");
}

#[tokio::test]
async fn the_service_describes_itself() {
    let bench = start(outside);
    let mut stream = connect(&bench.path).await;
    stream.write_all(&call("org.varlink.service.GetInfo", false)).await.unwrap();
    let info = message(&mut stream).await.unwrap();
    let ask = json!({"method": "org.varlink.service.GetInterfaceDescription",
                     "parameters": {"interface": "org.klbr.Toy"}});
    stream.write_all(format!("{ask}\0").as_bytes()).await.unwrap();
    let description = message(&mut stream).await.unwrap();

    assert_eq!(info["parameters"]["interfaces"], json!(["org.varlink.service", "org.klbr.Toy"]));
    assert_eq!(description["parameters"]["description"], Toy::DESCRIPTION);
}
