//! Connections that read beside the writer, opened as they are needed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::error::{FirstFailure, trying};
use super::{Snapshot, StoreError, open};
use crate::limits::READ_POOL_SIZE;

/// At most [`READ_POOL_SIZE`] reads at one time; more wait.
pub(super) struct Readers {
    path: PathBuf,
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
    failure: FirstFailure,
}

impl Readers {
    pub(super) fn new(path: PathBuf, failure: FirstFailure) -> Self {
        Self { path, idle: Arc::default(), permits: Arc::new(Semaphore::new(READ_POOL_SIZE)), failure }
    }

    pub(super) async fn run<T, F>(&self, job: F) -> Result<T, StoreError>
    where
        F: FnOnce(&Snapshot<'_>) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let (path, idle, failure) = (self.path.clone(), Arc::clone(&self.idle), self.failure.clone());
        let read = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let kept = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = match kept {
                Some(connection) => connection,
                None => open::reader(&path)?,
            };
            let value = read(&connection, job);
            if let Err(error @ StoreError::Corrupt(_)) = &value {
                // Writing into a damaged database damages more of it.
                failure.remember(error);
            }
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            value
        });
        read.await.unwrap_or(Err(StoreError::Panicked))
    }

    /// Waits for the reads that run, and closes every connection.
    pub(super) async fn close(&self) {
        let all = u32::try_from(READ_POOL_SIZE).unwrap_or(u32::MAX);
        let waited = self.permits.acquire_many(all).await;
        self.permits.close();
        drop(waited);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// One read transaction: the job sees one state of the log.
fn read<T, F>(connection: &Connection, job: F) -> Result<T, StoreError>
where
    F: FnOnce(&Snapshot<'_>) -> Result<T, StoreError>,
{
    let transaction = connection.unchecked_transaction().map_err(trying("read"))?;
    let value =
        catch_unwind(AssertUnwindSafe(|| job(&Snapshot { connection }))).unwrap_or(Err(StoreError::Panicked));
    drop(transaction);
    value
}
