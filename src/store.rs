//! The durable log: SQLite, one writer thread, a few readers.
//!
//! An append is one transaction with everything that it projects to. Must not know why anything is
//! appended.

mod append;
mod error;
mod events;
mod ledger;
mod lock;
mod open;
mod project;
mod readers;
mod sessions;
mod verify;
mod workers;
mod writer;

pub use error::StoreError;
pub use events::EventFilter;
pub use ledger::{DeliveryState, EffectRow, HeldRow};
pub use sessions::{Block, OpenTurn, OpenWait, SessionRow};
pub use verify::{Report, verify};
pub use workers::{ExecutionRow, GenerationRow};

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use tokio::sync::watch;

use crate::event::NewEvent;
use crate::id::EventId;

/// The name of the database in a data directory.
pub const FILE_NAME: &str = "klbr.db";

/// The log of one data directory. A cheap handle.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    writer: writer::Writer,
    readers: readers::Readers,
    head: watch::Receiver<EventId>,
}

impl Store {
    /// Opens the log, or makes an empty one; blocks while it does. The directory is this process's
    /// until [`Store::close`].
    pub fn open(data: &Path) -> Result<Self, StoreError> {
        let opened = open::open(data)?;
        let failure = error::FirstFailure::default();
        let readers = readers::Readers::new(opened.path, failure.clone());
        let log = writer::Log { connection: opened.connection, data: data.to_owned(), failure };
        let (writer, head) = writer::Writer::start(log, opened.lock)?;
        Ok(Self { inner: Arc::new(Inner { writer, readers, head }) })
    }

    /// Runs `job` in a transaction and answers when it is on disk. A job that fails changes nothing.
    pub async fn write<T, F>(&self, job: F) -> Result<T, StoreError>
    where
        F: FnOnce(&mut Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        self.inner.writer.run(job).await
    }

    /// Appends one event with what it projects to.
    pub async fn append(&self, event: NewEvent) -> Result<EventId, StoreError> {
        self.write(move |transaction| transaction.append(event)).await
    }

    /// Runs `job` on one state of the log, beside the writer.
    pub async fn read<T, F>(&self, job: F) -> Result<T, StoreError>
    where
        F: FnOnce(&Snapshot<'_>) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        self.inner.readers.run(job).await
    }

    /// The newest committed event, now and whenever it changes; 0 in an empty log.
    pub fn head(&self) -> watch::Receiver<EventId> {
        self.inner.head.clone()
    }

    /// Finishes what is queued, closes the database and lets the directory go.
    pub async fn close(&self) {
        self.inner.readers.close().await;
        self.inner.writer.close().await;
    }
}

/// One state of the log.
pub struct Snapshot<'a> {
    connection: &'a Connection,
}

/// A state of the log that is being extended.
pub struct Transaction<'a> {
    snapshot: Snapshot<'a>,
    /// The newest event, the transaction's own included.
    newest: EventId,
    /// Why it cannot be committed any more.
    refused: Option<StoreError>,
}

impl<'a> std::ops::Deref for Transaction<'a> {
    type Target = Snapshot<'a>;
    fn deref(&self) -> &Snapshot<'a> {
        &self.snapshot
    }
}
