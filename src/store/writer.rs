//! The one thread that writes. What is queued when it is free goes into one commit.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};

use super::error::{FirstFailure, trying};
use super::lock::Lock;
use super::{Snapshot, StoreError, Transaction};
use crate::id::EventId;
use crate::limits::{GROUP_COMMIT_MAX, WRITER_QUEUE_MAX};

/// The way to the writer thread.
pub(super) struct Writer {
    /// Gone once the log is closed.
    jobs: Mutex<Option<mpsc::Sender<Box<dyn Job>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// One transaction that somebody waits for.
trait Job: Send {
    /// Runs it; an error asks for its rollback.
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), StoreError>;
    /// Tells whoever waits, after the commit or instead of it.
    fn answer(self: Box<Self>, outcome: Result<(), StoreError>);
}

struct Typed<T, F> {
    job: Option<F>,
    value: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Job for Typed<T, F>
where
    F: FnOnce(&mut Transaction<'_>) -> Result<T, StoreError> + Send,
    T: Send,
{
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        let Some(job) = self.job.take() else { return Err(StoreError::Panicked) };
        // A panic must not take the writer, and everybody's log, with it.
        let value =
            catch_unwind(AssertUnwindSafe(|| job(transaction))).unwrap_or(Err(StoreError::Panicked))?;
        self.value = Some(value);
        Ok(())
    }

    fn answer(self: Box<Self>, outcome: Result<(), StoreError>) {
        let Self { value, reply, .. } = *self;
        let value = outcome.and_then(|()| value.ok_or(StoreError::Panicked));
        // Whoever asked may have gone away; what was committed stays committed.
        let _ = reply.send(value);
    }
}

impl Writer {
    pub(super) fn start(log: Log, lock: Lock) -> Result<(Self, watch::Receiver<EventId>), StoreError> {
        let newest = Snapshot { connection: &log.connection }.head()?;
        let (head, head_receiver) = watch::channel(newest);
        let (jobs, queue) = mpsc::channel(WRITER_QUEUE_MAX);
        let thread = std::thread::Builder::new()
            // The kernel keeps 15 characters.
            .name("klbr-log-writer".to_owned())
            .spawn(move || {
                write(log, queue, &head);
                // The lock outlives the connection: nobody opens a database that is being closed.
                drop(lock);
            })
            .map_err(|error| StoreError::Thread(Arc::new(error)))?;
        Ok((Self { jobs: Mutex::new(Some(jobs)), thread: Mutex::new(Some(thread)) }, head_receiver))
    }

    pub(super) async fn run<T, F>(&self, job: F) -> Result<T, StoreError>
    where
        F: FnOnce(&mut Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let jobs = lock(&self.jobs).clone().ok_or(StoreError::Closed)?;
        let job = Box::new(Typed { job: Some(job), value: None, reply });
        jobs.send(job).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Lets the thread finish what is queued, and waits for its end.
    pub(super) async fn close(&self) {
        drop(lock(&self.jobs).take());
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            // The thread has answered every panic; joining cannot fail in a way that helps anyone.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What the writer thread owns.
pub(super) struct Log {
    pub(super) connection: Connection,
    pub(super) data: PathBuf,
    pub(super) failure: FirstFailure,
}

fn write(log: Log, mut queue: mpsc::Receiver<Box<dyn Job>>, head: &watch::Sender<EventId>) {
    let mut group = Vec::with_capacity(GROUP_COMMIT_MAX);
    while let Some(job) = queue.blocking_recv() {
        group.push(job);
        while group.len() < GROUP_COMMIT_MAX {
            let Ok(job) = queue.try_recv() else { break };
            group.push(job);
        }
        if let Some(error) = log.failure.get() {
            answer_all(&mut group, error);
            continue;
        }
        if let Err(error) = commit(&log, &mut group, head) {
            if error.is_final() {
                log.failure.remember(&error);
            }
            // Remembered before it is answered: whoever hears of it finds the log failed.
            answer_all(&mut group, &error);
        }
    }
    // A failed checkpoint leaves a longer sidecar, and loses nothing.
    let _ = log.connection.close();
}

/// Runs a group in one transaction and answers everybody in it. An error is the log's own: nothing
/// of the group was written, and nobody was answered.
fn commit(log: &Log, group: &mut Vec<Box<dyn Job>>, head: &watch::Sender<EventId>) -> Result<(), StoreError> {
    // A borrow of the head that lived on in the match would lock its sender out.
    let newest = *head.borrow();
    match run_group(&log.connection, group, newest) {
        Ok((answers, newest)) => {
            // First: whoever is answered finds its event at or below the head.
            head.send_if_modified(|head| std::mem::replace(head, newest) != newest);
            for (job, answer) in group.drain(..).zip(answers) {
                job.answer(answer);
            }
            Ok(())
        }
        Err(error) => {
            if !log.connection.is_autocommit() {
                // SQLite has rolled back most failed transactions by itself.
                let _ = log.connection.execute_batch("ROLLBACK");
            }
            Err(error.on(&log.data))
        }
    }
}

fn answer_all(group: &mut Vec<Box<dyn Job>>, error: &StoreError) {
    for job in group.drain(..) {
        job.answer(Err(error.clone()));
    }
}

type Answers = (Vec<Result<(), StoreError>>, EventId);

fn run_group(
    connection: &Connection,
    group: &mut [Box<dyn Job>],
    mut newest: EventId,
) -> Result<Answers, StoreError> {
    let execute = |sql: &'static str| {
        connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute([]))
            .map_err(trying("write"))
    };
    execute("BEGIN IMMEDIATE")?;
    // A job that is alone is its transaction: it needs no way to fail without its neighbours.
    let alone = group.len() == 1;
    let mut answers = Vec::with_capacity(group.len());
    for job in group.iter_mut() {
        if !alone {
            execute("SAVEPOINT job")?;
        }
        let mut transaction = Transaction { snapshot: Snapshot { connection }, newest, refused: None };
        let outcome = job.run(&mut transaction);
        let outcome = transaction.refused.map_or(outcome, Err);
        let outcome = if connection.is_autocommit() { outcome.and(Err(StoreError::Undone)) } else { outcome };
        match &outcome {
            Ok(()) => newest = transaction.newest,
            // SQLite undid the whole transaction, the neighbours' part included.
            Err(error) if error.is_final() || connection.is_autocommit() => return Err(error.clone()),
            Err(_) if alone => {}
            Err(_) => drop(execute("ROLLBACK TO job")?),
        }
        if !alone {
            execute("RELEASE job")?;
        }
        answers.push(outcome);
    }
    let worth_keeping = answers.iter().any(Result::is_ok);
    execute(if worth_keeping { "COMMIT" } else { "ROLLBACK" })?;
    Ok((answers, newest))
}
