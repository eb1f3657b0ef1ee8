//! Lives of workers, as the log has them: their numbers, their beginnings, their ends.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cell::Role;
use crate::clock;
use crate::containment::Containment;
use crate::event::{Body, GenerationEnded, KernelReset, NewEvent, ResetReason, Source};
use crate::id::{Digest, GenerationId, SessionId};
use crate::store::{Store, StoreError};
use crate::worker::{Ended, Hello, Times, WorkerSpec};

/// What every worker of this host is made with.
pub struct Workshop {
    /// What holds them.
    pub containment: Arc<dyn Containment>,
    /// The interpreter.
    pub python: PathBuf,
    /// Where the `klbr` package lies.
    pub python_path: PathBuf,
    /// The directory that cells work in.
    pub workspace: PathBuf,
    /// A private directory for control sockets.
    pub run: PathBuf,
    /// Where releases of hook source lie.
    pub releases: PathBuf,
    /// What bounds a worker's life.
    pub times: Mutex<Times>,
    /// The log.
    pub store: Store,
    /// Highest number given out, logged or not: a generation that failed to start used one up.
    pub numbers: Mutex<HashMap<(SessionId, Role), u64>>,
}

impl Workshop {
    /// What the next generation of this session and role is started with.
    pub(super) async fn next(
        &self,
        session: &SessionId,
        role: Role,
        release: Option<&Digest>,
    ) -> Result<WorkerSpec, StoreError> {
        let of = session.clone();
        let logged = self.store.read(move |snapshot| snapshot.next_generation_number(&of, role)).await?;
        let number = {
            let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
            let last = numbers.entry((session.clone(), role)).or_default();
            *last = logged.max(*last + 1);
            *last
        };
        let unit = format!("klbr-gen-{number}-{}", random_hex());
        Ok(WorkerSpec {
            role,
            session: session.clone(),
            generation: GenerationId::numbered(number),
            run_dir: self.run.join(&unit),
            unit,
            python: self.python.clone(),
            python_path: self.python_path.clone(),
            workspace: self.workspace.clone(),
            release: release.map(|digest| self.releases.join(digest.as_str())),
            skills: None,
            times: *self.times.lock().unwrap_or_else(PoisonError::into_inner),
        })
    }

    /// The beginning of a generation, for the log.
    pub(super) fn reset_event(
        &self,
        spec: &WorkerSpec,
        hello: &Hello,
        reason: ResetReason,
        namespace_lost: bool,
    ) -> NewEvent {
        let body = Body::KernelReset(KernelReset {
            role: spec.role,
            generation: spec.generation.clone(),
            unit: spec.unit.clone(),
            containment: self.containment.name().to_owned(),
            reason,
            namespace_lost,
            skills_revision: hello.skills_revision.clone(),
            revision: hello.revision.clone(),
            slots: hello.slots.clone(),
        });
        host_event(&spec.session, body)
    }
}

/// The end of a generation, for the log.
pub(super) fn ended_event(
    session: &SessionId,
    role: Role,
    generation: &GenerationId,
    ended: &Ended,
) -> NewEvent {
    let body = Body::GenerationEnded(GenerationEnded {
        role,
        generation: generation.clone(),
        reason: ended.reason.as_str().to_owned(),
        detail: ended.detail.clone(),
        exit_code: ended.exit_code,
        signal: ended.signal,
        stdout_tail: ended.stdout_tail.clone(),
        stderr_tail: ended.stderr_tail.clone(),
    });
    host_event(session, body)
}

/// An event that the host observed itself.
pub(super) fn host_event(session: &SessionId, body: Body) -> NewEvent {
    NewEvent {
        session: session.clone(),
        source: Source::host(),
        execution: None,
        at_ms: clock::now_ms(),
        body,
    }
}

/// Eight hexadecimal digits that make a unit's name its own on this machine and boot.
fn random_hex() -> String {
    let number = getrandom::u32().unwrap_or_else(|_| std::process::id() ^ u32::from_le_bytes(clock_bytes()));
    format!("{number:08x}")
}

fn clock_bytes() -> [u8; 4] {
    let [a, b, c, d, ..] = clock::now_ms().to_le_bytes();
    [a, b, c, d]
}
