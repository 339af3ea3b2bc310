//! The one thread that writes.

use std::{sync::Arc, thread::JoinHandle, time::Instant};

use parking_lot::Mutex;
use rusqlite::{Connection, Transaction};
use tokio::sync::{mpsc, oneshot};

use super::StorageError;
use crate::telemetry::metrics::Metrics;

/// Jobs that may wait. Whoever finds the queue full waits for room.
const QUEUE: usize = 1_024;

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

pub(super) struct Writer {
    /// `None` only while the writer is being ended.
    jobs: Option<mpsc::Sender<Job>>,
    metrics: Arc<Metrics>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

// === impl Writer ===

impl Writer {
    pub(super) fn start(mut connection: Connection, metrics: Arc<Metrics>) -> Self {
        let (jobs, mut waiting) = mpsc::channel::<Job>(QUEUE);
        let measured = Arc::clone(&metrics);
        let thread = std::thread::spawn(move || {
            while let Some(job) = waiting.blocking_recv() {
                measured.store_queue_depth.set(i64::try_from(waiting.len()).unwrap_or(i64::MAX));
                let began = Instant::now();
                job(&mut connection);
                measured.store_write(began.elapsed());
            }
        });
        Self { jobs: Some(jobs), metrics, thread: Mutex::new(Some(thread)) }
    }

    pub(super) async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StorageError> {
        let (reply, outcome) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or(StorageError::WriterGone)?;
        jobs.send(boxed(job, reply)).await.map_err(|_| StorageError::WriterGone)?;
        self.metrics.store_queue_depth.set(depth(jobs));
        outcome.await.map_err(|_| StorageError::WriterGone)?.map_err(StorageError::Write)
    }

    pub(super) fn write_blocking<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StorageError> {
        let (reply, outcome) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or(StorageError::WriterGone)?;
        jobs.blocking_send(boxed(job, reply)).map_err(|_| StorageError::WriterGone)?;
        outcome.blocking_recv().map_err(|_| StorageError::WriterGone)?.map_err(StorageError::Write)
    }
}

impl Drop for Writer {
    /// Waits for the jobs that were taken on.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.lock().take() {
            // A writer that panicked has told so already.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

fn depth(jobs: &mpsc::Sender<Job>) -> i64 {
    i64::try_from(jobs.max_capacity() - jobs.capacity()).unwrap_or(i64::MAX)
}

fn boxed<T: Send + 'static>(
    job: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    reply: oneshot::Sender<rusqlite::Result<T>>,
) -> Job {
    Box::new(move |connection| {
        let outcome = in_transaction(connection, job);
        // Whoever asked may have gone; the change stands all the same.
        let _ = reply.send(outcome);
    })
}

fn in_transaction<T>(
    connection: &mut Connection,
    job: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let transaction = connection.transaction()?;
    let value = job(&transaction)?;
    transaction.commit()?;
    Ok(value)
}
