//! The one thread that writes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Instant,
};

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
    losses: Arc<Losses>,
}

/// Queued changes that did not come about since one last did.
#[derive(Debug, Default)]
struct Losses(AtomicU64);

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
        Self { jobs: Some(jobs), metrics, thread: Mutex::new(Some(thread)), losses: Arc::default() }
    }

    /// Leaves a job to the writer. Neither waits nor fails: what comes of it is told in the log.
    pub(super) fn queue(
        &self,
        job: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()> + Send + 'static,
    ) {
        let losses = Arc::clone(&self.losses);
        let boxed: Job = Box::new(move |connection| match in_transaction(connection, job) {
            Ok(()) => losses.end(),
            Err(error) => losses.add(&error),
        });
        let Some(jobs) = self.jobs.as_ref() else { return };
        if jobs.try_send(boxed).is_err() {
            self.losses.add(&"its queue is full");
        }
        self.metrics.store_queue_depth.set(depth(jobs));
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

// === impl Losses ===

impl Losses {
    /// Told once, until a change comes about again.
    fn add(&self, reason: &dyn std::fmt::Display) {
        if self.0.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::error!(
                code = "store_write_failed",
                "The database did not take a change, and a restart will not know it: {reason}"
            );
        }
    }

    fn end(&self) {
        // Most of the time there is nothing to write.
        if self.0.load(Ordering::Relaxed) == 0 {
            return;
        }
        let lost = self.0.swap(0, Ordering::Relaxed);
        tracing::warn!(lost, "The database takes changes again; {lost} were lost");
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
