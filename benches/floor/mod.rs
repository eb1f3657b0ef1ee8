//! Floors of one run: what any program would pay here, by a process on the other side.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "each benchmark uses a part of it"
)]

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Bytes of the round trip that is compared with.
const ROUND_TRIP_BYTES: usize = 200;

/// The first argument that makes a benchmark the other side of its own floor.
const ECHO: &str = "echo-for-the-floor";

/// A process that sends back what it gets, through a blocking Unix socket.
pub struct Echo {
    child: Child,
    socket: UnixStream,
    _folder: tempfile::TempDir,
}

/// To be called first in `main`: where this process is the echo, it does not return.
pub fn be_the_echo() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_none_or(|argument| argument != ECHO) {
        return;
    }
    let mut socket = UnixStream::connect(&arguments[2]).unwrap();
    let mut bytes = [0; ROUND_TRIP_BYTES];
    while socket.read_exact(&mut bytes).is_ok() {
        socket.write_all(&bytes).unwrap();
    }
    std::process::exit(0);
}

/// The same in the language of the worker, as bare as it can be.
const PYTHON_ECHO: &str = "\
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
while data := s.recv(200): s.sendall(data)
";

impl Echo {
    /// This program on the other side.
    pub fn start() -> Self {
        let mut echo = Command::new(std::env::current_exe().unwrap());
        echo.arg(ECHO);
        Self::of(echo)
    }

    /// CPython on the other side.
    pub fn python() -> Self {
        let mut echo = Command::new("python3");
        echo.args(["-I", "-S", "-c", PYTHON_ECHO]);
        Self::of(echo)
    }

    fn of(mut echo: Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("echo.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let child = echo.arg(&path).spawn().unwrap();
        let (socket, _) = listener.accept().unwrap();
        Self { child, socket, _folder: folder }
    }

    /// One raw round trip of 200 bytes.
    pub fn round_trip(&mut self) -> Duration {
        let mut bytes = [7; ROUND_TRIP_BYTES];
        let start = Instant::now();
        self.socket.write_all(&bytes).unwrap();
        self.socket.read_exact(&mut bytes).unwrap();
        start.elapsed()
    }

    pub fn round_trips(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| micros(self.round_trip())).collect()
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // It is of no more use.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// One line of the report: a figure, and what it is a multiple of.
pub fn line(what: &str, value: f64, unit: &str, floor: f64, of: &str, reach: &str) {
    println!("{what:<46} {value:>9.1} {unit:<4} = {:>5.2} x {of} (reach: {reach})", value / floor);
}
