//! One worker's process and connection: the handshake, the frames, the end.

use std::ffi::OsString;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

use super::outbox::Outbox;
use super::tails::Tail;
use super::{EndReason, Ended, Hello, StartError, WorkerSpec, exit_words};
use crate::cell::Role;
use crate::containment::{Contained, Containment, Exit, Launch, Life};
use crate::limits::DRAIN_MS_MAX;
use crate::wire::envelope::{Address, decode, encode};
use crate::wire::frame::FrameDecoder;
use crate::wire::message::Message;

/// The longest path of a Unix socket, its end excluded.
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Variables of the host's environment that a worker gets as they are.
const PASSED_ON: &[&str] =
    &["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM"];

/// A worker that has said hello.
pub(super) struct Link {
    pub(super) address: Address,
    reader: Reader,
    outbox: Outbox,
    process: Process,
}

/// What comes from a worker.
pub(super) enum News {
    /// A message.
    Message(Message),
    /// The connection cannot be used any more; why.
    Broken(String),
    /// The process and all its descendants have ended.
    Exited,
}

struct Reader {
    socket: OwnedReadHalf,
    decoder: FrameDecoder,
    piece: Vec<u8>,
    ended: bool,
}

struct Process {
    life: Box<dyn Life>,
    stdout: Tail,
    stderr: Tail,
    exit: Option<Exit>,
}

impl Link {
    /// Starts a worker and waits for its hello.
    pub(super) async fn start(
        spec: &WorkerSpec,
        containment: &dyn Containment,
    ) -> Result<(Self, Hello), StartError> {
        let started = Self::start_in_folder(spec, containment).await;
        // The folder has done its work; what cannot be removed is removed with the run folder.
        let _ = std::fs::remove_dir_all(&spec.run_dir);
        started
    }

    async fn start_in_folder(
        spec: &WorkerSpec,
        containment: &dyn Containment,
    ) -> Result<(Self, Hello), StartError> {
        if containment.hands_over() {
            return Self::start_handed_over(spec, containment).await;
        }
        let socket = spec.run_dir.join("control.sock");
        let failed = |problem: String| StartError::Socket { path: socket.clone(), problem };
        if socket.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            return Err(failed(format!(
                "its path has {} bytes, the limit is {SOCKET_PATH_BYTES_MAX}; use a shorter data directory",
                socket.as_os_str().len()
            )));
        }
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&spec.run_dir)
            .map_err(|error| failed(error.to_string()))?;
        let token = token();
        let token_file = spec.run_dir.join("token");
        write_private(&token_file, &token).map_err(|error| failed(error.to_string()))?;
        let listener = UnixListener::bind(&socket).map_err(|error| failed(error.to_string()))?;
        let launch = Launch {
            unit: spec.unit.clone(),
            argv: argv(spec, Some((&socket, &token_file))),
            env: environment(spec),
            cwd: spec.workspace.clone(),
            read_only: [Some(&spec.python_path), spec.release.as_ref(), spec.skills.as_ref()]
                .into_iter()
                .flatten()
                .cloned()
                .collect(),
            read_write: vec![spec.run_dir.clone()],
            control: None,
        };
        let contained = containment.start(launch).await.map_err(|error| StartError::Containment { error })?;
        let process = Process::of(contained);
        let connected = async { Ok(listener.accept().await?.0) };
        greet(process, connected, spec, &token).await.map_err(|ended| StartError::Ended(Box::new(ended)))
    }

    /// Starts a worker whose connection is its standard input, and what it is told the first line on it.
    async fn start_handed_over(
        spec: &WorkerSpec,
        containment: &dyn Containment,
    ) -> Result<(Self, Hello), StartError> {
        let failed = |error: std::io::Error| StartError::Socket {
            path: spec.run_dir.join("control.sock"),
            problem: error.to_string(),
        };
        let token = token();
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(failed)?;
        let written = rustix::io::write(&ours, first_line(spec, &token).as_bytes());
        written.map_err(|error| failed(error.into()))?;
        ours.set_nonblocking(true).map_err(failed)?;
        let ours = UnixStream::from_std(ours).map_err(failed)?;
        let launch = Launch {
            unit: spec.unit.clone(),
            argv: argv(spec, None),
            env: environment(spec),
            cwd: spec.workspace.clone(),
            read_only: vec![],
            read_write: vec![],
            control: Some(theirs.into()),
        };
        let contained = containment.start(launch).await.map_err(|error| StartError::Containment { error })?;
        let process = Process::of(contained);
        let connected = std::future::ready(Ok(ours));
        greet(process, connected, spec, &token).await.map_err(|ended| StartError::Ended(Box::new(ended)))
    }

    /// The next news. Loses nothing when it is dropped and asked again.
    pub(super) async fn next(&mut self) -> News {
        while self.process.exit.is_none() {
            tokio::select! {
                biased;
                () = self.outbox.send_more(), if !self.outbox.is_empty() => {}
                news = self.reader.next(&self.address), if self.outbox.is_empty() => return news,
                exit = self.process.life.wait() => self.process.exit = Some(exit),
            }
        }
        // It has ended: what it said before that is still heard, for a bounded time.
        let rest = tokio::time::timeout(Duration::from_millis(DRAIN_MS_MAX), self.reader.next(&self.address));
        match rest.await {
            Ok(News::Message(message)) => News::Message(message),
            Ok(News::Broken(_) | News::Exited) | Err(_) => News::Exited,
        }
    }

    /// Waits until the process and all its descendants have ended.
    pub(super) async fn exited(&mut self) {
        if self.process.exit.is_none() {
            self.process.exit = Some(self.process.life.wait().await);
        }
    }

    /// Sends a frame, now or as soon as the worker reads what came before.
    pub(super) fn send_frame(&mut self, frame: Vec<u8>) {
        self.outbox.push(frame);
    }

    /// Sends a message, now or as soon as the worker reads what came before.
    pub(super) fn send(&mut self, message: &Message) {
        match encode(message, &self.address) {
            Ok(frame) => self.send_frame(frame),
            Err(error) => tracing::error!("a message could not be encoded: {error}"),
        }
    }

    /// Kills what is left, and says how it ended.
    pub(super) async fn finish(
        self,
        reason: EndReason,
        problem: Option<String>,
        cell_ms: Option<u64>,
    ) -> Ended {
        self.process.finish(reason, problem, cell_ms).await
    }
}

impl Reader {
    /// The next message, or why there will be none.
    async fn next(&mut self, address: &Address) -> News {
        loop {
            match self.decoder.next() {
                Ok(Some(payload)) => {
                    return match decode(&payload, address) {
                        Ok(message) => News::Message(message),
                        Err(error) => News::Broken(error.to_string()),
                    };
                }
                Ok(None) => {}
                Err(error) => return News::Broken(error.to_string()),
            }
            if self.ended {
                return News::Broken("it closed its connection".to_owned());
            }
            match self.socket.read(&mut self.piece).await {
                Ok(0) => match self.decoder.finish() {
                    Ok(()) => self.ended = true,
                    Err(error) => return News::Broken(error.to_string()),
                },
                Ok(count) => self.decoder.push(&self.piece[..count]),
                Err(error) => return News::Broken(format!("its connection failed: {error}")),
            }
        }
    }
}

impl Process {
    fn of(contained: Contained) -> Self {
        let Contained { stdout, stderr, life } = contained;
        Self { life, stdout: Tail::of(stdout), stderr: Tail::of(stderr), exit: None }
    }

    async fn finish(mut self, reason: EndReason, problem: Option<String>, cell_ms: Option<u64>) -> Ended {
        let exit = match self.exit {
            Some(exit) => exit,
            None => self.life.kill().await,
        };
        // Only where it was not us who ended it.
        let reason = match reason {
            EndReason::Exited | EndReason::Protocol if exit.out_of_memory => EndReason::OutOfMemory,
            reason => reason,
        };
        let (stdout_tail, stderr_tail) = tokio::join!(self.stdout.finish(), self.stderr.finish());
        let mut detail = reason.words().to_owned();
        if let Some(problem) = problem {
            detail = format!("{detail}: {problem}");
        }
        detail = format!("{detail}; {}", exit_words(exit));
        Ended { reason, detail, exit_code: exit.code, signal: exit.signal, stdout_tail, stderr_tail, cell_ms }
    }
}

/// Waits for one connection and its hello, in time, while the process lives.
async fn greet(
    mut process: Process,
    connected: impl Future<Output = std::io::Result<UnixStream>>,
    spec: &WorkerSpec,
    token: &str,
) -> Result<(Link, Hello), Ended> {
    let address = Address { session: spec.session.clone(), generation: spec.generation.clone() };
    let greeting = async {
        let stream = connected.await.map_err(|error| format!("no connection: {error}"))?;
        let (mut reader, write) = split(stream);
        match reader.next(&address).await {
            News::Message(message) => Ok((check_hello(message, spec, token)?, reader, write)),
            News::Broken(problem) => Err(problem),
            News::Exited => Err("it ended".to_owned()),
        }
    };
    let outcome = tokio::select! {
        outcome = tokio::time::timeout(spec.times.hello, greeting) => outcome,
        exit = process.life.wait() => {
            process.exit = Some(exit);
            return Err(process.finish(EndReason::Exited, None, None).await);
        }
    };
    match outcome {
        Ok(Ok((hello, reader, write))) => {
            Ok((Link { address, reader, outbox: Outbox::new(write), process }, hello))
        }
        Ok(Err(problem)) => {
            // A process that is already ending tells more by its exit and its last words.
            let grace = Duration::from_millis(DRAIN_MS_MAX);
            if let Ok(exit) = tokio::time::timeout(grace, process.life.wait()).await {
                process.exit = Some(exit);
            }
            Err(process.finish(EndReason::Protocol, Some(problem), None).await)
        }
        Err(_) => {
            let problem = format!("no hello within {} ms", spec.times.hello.as_millis());
            Err(process.finish(EndReason::HelloTimeout, Some(problem), None).await)
        }
    }
}

fn check_hello(message: Message, spec: &WorkerSpec, token: &str) -> Result<Hello, String> {
    let Message::Hello { token: given, role, revision, slots, skills_revision } = message else {
        return Err("its first message is not hello".to_owned());
    };
    // Both are random and of one use: how long the comparison takes tells nothing worth knowing.
    if given != token {
        return Err("its token is not the one it was given".to_owned());
    }
    if role != spec.role {
        return Err(format!(
            "it says that it is a {}, and was started as {}",
            role.as_str(),
            spec.role.as_str()
        ));
    }
    let expected = match role {
        Role::Workbench => &[][..],
        Role::Hooks => &crate::cell::HookSlot::ALL[..],
    };
    if slots != expected {
        return Err(format!("its slots are {slots:?}"));
    }
    // A release's folder is named by its digest: what answers for a slot is what was activated.
    let release = spec.release.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    if role == Role::Hooks && revision.as_deref() != release {
        return Err(format!("it serves the release {revision:?}, and was started for {release:?}"));
    }
    Ok(Hello { revision, slots, skills_revision })
}

fn split(stream: UnixStream) -> (Reader, OwnedWriteHalf) {
    let (socket, write) = stream.into_split();
    (Reader { socket, decoder: FrameDecoder::default(), piece: vec![0; 16 * 1024], ended: false }, write)
}

/// 32 random bytes in hexadecimal.
fn token() -> String {
    let mut bytes = [0; 32];
    // The system's source of randomness does not fail once it is there; a token that is not random
    // would be of this process and moment still.
    if getrandom::fill(&mut bytes).is_err() {
        return crate::id::Digest::of(format!("{:?}", std::time::Instant::now()).as_bytes()).to_string();
    }
    crate::id::Digest::of(&bytes).to_string()
}

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

/// The command line; without places for a worker that reads its first line instead.
fn argv(spec: &WorkerSpec, places: Option<(&Path, &Path)>) -> Vec<OsString> {
    let mut argv: Vec<OsString> = vec![spec.python.clone().into()];
    // The working directory is no place to import from before the worker is up, and the site
    // packages are loaded by the first import that needs them.
    argv.extend(["-P", "-S"].map(OsString::from));
    argv.extend(["-m", "klbr.worker"].map(OsString::from));
    let Some((socket, token_file)) = places else {
        argv.push("--inherited".into());
        return argv;
    };
    argv.extend(["--role", spec.role.as_str()].map(OsString::from));
    argv.extend(
        ["--session", spec.session.as_str(), "--generation", spec.generation.as_str()].map(OsString::from),
    );
    let paths = [("--socket", Some(socket)), ("--token-file", Some(token_file))];
    let more = [("--skills", spec.skills.as_deref()), ("--release", spec.release.as_deref())];
    for (option, path) in paths.into_iter().chain(more) {
        if let Some(path) = path {
            argv.push(option.into());
            argv.push(path.into());
        }
    }
    argv
}

/// What a worker is told that gets no arguments (klbr-protocol(7); `klbr/worker/options.py` reads it).
fn first_line(spec: &WorkerSpec, token: &str) -> String {
    let line = serde_json::json!({
        "role": spec.role.as_str(),
        "session": spec.session.as_str(),
        "generation": spec.generation.as_str(),
        "token": token,
        "skills": spec.skills,
        "release": spec.release,
    });
    format!("{line}\n")
}

/// What a worker's environment is made of: nothing of the service manager, no key.
fn environment(spec: &WorkerSpec) -> Vec<(OsString, OsString)> {
    let passed = std::env::vars_os().filter(|(name, _)| {
        name.to_str().is_some_and(|name| PASSED_ON.contains(&name) || name.starts_with("LC_"))
    });
    let mut environment: Vec<_> = passed.collect();
    environment.push(("PYTHONPATH".into(), spec.python_path.clone().into()));
    environment
}
