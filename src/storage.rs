//! SQLite: one database below the data directory, one writer thread, one process.
//!
//! Writes are jobs in a bounded queue; a request never waits for one. Whoever needs the outcome
//! awaits it.

mod files;
mod lock;
mod open;
mod writer;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::telemetry::metrics::Metrics;

pub use files::{is_open_to_others, prepare_data_dir, random_key_file, read_secret, write_secret};

/// The database. Cheap to clone; the last one to go ends the writer.
#[derive(Clone, Debug)]
pub struct Storage(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    writer: writer::Writer,
    /// Held as long as the process may write.
    _lock: lock::Lock,
}

#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    #[error(
        "cannot use the data directory {path}: {source}. Give server.data_dir a directory that this user may write"
    )]
    DataDir {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("another codex-edge{} is using {path}. Stop it first, or give this one another server.data_dir", holder(*.pid))]
    InUse { path: PathBuf, pid: Option<u32> },
    #[error(
        "the database {path} cannot be used: {source}. It was left as it is; restore a backup or move it away to begin anew"
    )]
    Unusable {
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    #[error(
        "the database {path} was written by a newer codex-edge (schema {found}, this one knows {known}). Use the newer program, or restore a backup"
    )]
    TooNew { path: PathBuf, found: i64, known: usize },
    #[error("the database {path} cannot be brought up to date: {source}. It was left as it is")]
    Migration {
        path: PathBuf,
        #[source]
        source: rusqlite_migration::Error,
    },
    #[error("the database did not take a change: {0}")]
    Write(#[source] rusqlite::Error),
    #[error("the database takes no more changes: its writer has stopped")]
    WriterGone,
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

// === impl Storage ===

impl Storage {
    /// Opens the database below `data_dir`, makes it if there is none, and brings it up to date.
    /// Blocks on the file system.
    ///
    /// # Errors
    /// If another process holds it, or it cannot be read, written or understood.
    pub fn open(data_dir: &Path, metrics: Arc<Metrics>) -> Result<Self, StorageError> {
        prepare_data_dir(data_dir)
            .map_err(|source| StorageError::DataDir { path: data_dir.to_owned(), source })?;
        let lock = lock::Lock::acquire(data_dir)?;
        let path = open::database_path(data_dir);
        let connection = open::open(&path)?;
        Ok(Self(Arc::new(Inner {
            path,
            writer: writer::Writer::start(connection, metrics),
            _lock: lock,
        })))
    }

    /// Says whether [`Storage::open`] would succeed, and changes nothing.
    ///
    /// # Errors
    /// The error that opening would give. A missing database is none.
    pub fn inspect(data_dir: &Path) -> Result<(), StorageError> {
        lock::Lock::probe(data_dir)?;
        open::inspect(&open::database_path(data_dir))
    }

    /// Runs a job on the writer's connection, inside a transaction, and waits for its outcome.
    ///
    /// # Errors
    /// If the job fails, which takes back all it did, or the writer is gone.
    pub async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StorageError> {
        self.0.writer.write(job).await.map_err(|it| self.explained(it))
    }

    /// The same for a thread that may block.
    ///
    /// # Errors
    /// As [`Storage::write`].
    pub fn write_blocking<T: Send + 'static>(
        &self,
        job: impl FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StorageError> {
        self.0.writer.write_blocking(job).map_err(|it| self.explained(it))
    }

    /// Leaves a change to the writer, inside a transaction. Never blocks and never fails: a full
    /// queue or a change that the database does not take is told in the log, and lost.
    pub fn queue(
        &self,
        job: impl FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<()> + Send + 'static,
    ) {
        self.0.writer.queue(job);
    }

    /// Damage may show only when the damaged page is read; then too it is told with advice.
    fn explained(&self, error: StorageError) -> StorageError {
        if let StorageError::Write(source) = error {
            return if open::tells_of_damage(&source) {
                StorageError::Unusable { path: self.0.path.clone(), source }
            } else {
                StorageError::Write(source)
            };
        }
        error
    }
}
