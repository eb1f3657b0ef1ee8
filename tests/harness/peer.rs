//! A real HTTP server that answers what it is told to: the other end of a route, with its faults.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// What the server does with one request.
#[derive(Clone)]
pub enum Act {
    /// Sends these pieces, each flushed, and closes.
    Send(Vec<Vec<u8>>),
    /// As above, and then says nothing and keeps the connection open.
    SendAndHang(Vec<Vec<u8>>),
    /// Waits before it goes on with the rest.
    Pause(Duration, Box<Act>),
}

/// One request that came.
#[derive(Clone, Debug)]
pub struct Asked {
    pub head: String,
    pub body: String,
}

impl Asked {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The text of the `messages` array, as it stands in the body.
    pub fn messages(&self) -> &str {
        let start = self.body.find("\"messages\":").unwrap() + "\"messages\":".len();
        let end = self.body.find(",\"tools\":").unwrap();
        &self.body[start..end]
    }
}

pub struct Peer {
    pub port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
    closed: Arc<Mutex<usize>>,
}

impl Peer {
    /// Answers each request with the next act; the last one is repeated.
    pub fn start(acts: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let closed = Arc::<Mutex<usize>>::default();
        let (seen, gone) = (Arc::clone(&asked), Arc::clone(&closed));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (acts, seen, gone) = (acts.clone(), Arc::clone(&seen), Arc::clone(&gone));
                std::thread::spawn(move || serve(stream.unwrap(), &acts, &seen, &gone));
            }
        });
        Self { port, asked, closed }
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Connections that hung and were closed by the other side.
    pub fn closed(&self) -> usize {
        *self.closed.lock().unwrap()
    }

    pub fn route(&self, more: &str) -> String {
        format!("base_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\n{more}", self.port)
    }
}

fn serve(mut stream: TcpStream, acts: &[Act], seen: &Mutex<Vec<Asked>>, gone: &Mutex<usize>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        head.push_str(&line);
        if line == "\r\n" {
            break;
        }
    }
    let length = head
        .lines()
        .find_map(|line| {
            line.to_lowercase().strip_prefix("content-length:").map(|v| v.trim().parse().unwrap())
        })
        .unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let number = {
        let mut seen = seen.lock().unwrap();
        seen.push(Asked { head, body: String::from_utf8(body).unwrap() });
        seen.len() - 1
    };
    perform(&mut stream, acts[number.min(acts.len() - 1)].clone(), gone);
}

fn perform(stream: &mut TcpStream, act: Act, gone: &Mutex<usize>) {
    match act {
        Act::Pause(pause, rest) => {
            std::thread::sleep(pause);
            perform(stream, *rest, gone);
        }
        Act::Send(pieces) => write(stream, &pieces),
        Act::SendAndHang(pieces) => {
            write(stream, &pieces);
            // Until the other side closes.
            let mut rest = [0; 64];
            while stream.read(&mut rest).is_ok_and(|count| count > 0) {}
            *gone.lock().unwrap() += 1;
        }
    }
}

fn write(stream: &mut TcpStream, pieces: &[Vec<u8>]) {
    for piece in pieces {
        // The other side may have had enough.
        if stream.write_all(piece).and_then(|()| stream.flush()).is_err() {
            return;
        }
        if pieces.len() > 1 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A head with these header lines, for a body that ends with the connection.
pub fn head(status: u16, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    head.into_bytes()
}

pub fn refusal(status: u16, headers: &[(&str, &str)], body: &Value) -> Act {
    Act::Send(vec![[head(status, headers), body.to_string().into_bytes()].concat()])
}

fn event(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// A streamed answer in pieces, as servers send it.
pub fn stream(deltas: &[Value], finish: &str) -> Vec<u8> {
    let mut body = String::new();
    for delta in deltas {
        body.push_str(&event(&json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})));
    }
    body.push_str(&event(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})));
    body.push_str(&event(&json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2}})));
    body.push_str("data: [DONE]\n\n");
    body.into_bytes()
}

pub fn sse_head() -> Vec<u8> {
    head(200, &[("content-type", "text/event-stream")])
}

/// An answer with text and calls of the tool `name` with these arguments.
pub fn answer(text: &str, calls: &[(&str, &str)]) -> Act {
    let mut deltas = vec![json!({"role": "assistant", "content": text})];
    for (index, (name, arguments)) in calls.iter().enumerate() {
        deltas.push(json!({"tool_calls": [{"index": index, "id": format!("c{index}"), "type": "function",
            "function": {"name": name, "arguments": arguments}}]}));
    }
    let finish = if calls.is_empty() { "stop" } else { "tool_calls" };
    Act::Send(vec![sse_head(), stream(&deltas, finish)])
}

/// An answer that runs this cell.
pub fn cell(code: &str) -> Act {
    answer("", &[("python", &json!({"code": code}).to_string())])
}
