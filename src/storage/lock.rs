//! One process per database, by an advisory lock that dies with the process.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use super::StorageError;

const NAME: &str = "codex-edge.lock";

#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "the lock lives as long as its file")] File);

// === impl Lock ===

impl Lock {
    pub(super) fn acquire(data_dir: &Path) -> Result<Self, StorageError> {
        let path = data_dir.join(NAME);
        let unusable = |source| StorageError::DataDir { path: data_dir.to_owned(), source };
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(unusable)?;
        take(&mut file, path, File::try_lock)?.map_err(unusable)?;
        // Only told to whoever comes second; the lock does not depend on it.
        let told = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        told.map_err(unusable)?;
        Ok(Self(file))
    }

    /// Whether the lock could be taken. Holds it shared for a moment, so that two who look do not
    /// see each other.
    pub(super) fn probe(data_dir: &Path) -> Result<(), StorageError> {
        let path = data_dir.join(NAME);
        match OpenOptions::new().read(true).open(&path) {
            Ok(mut file) => take(&mut file, path, File::try_lock_shared)?
                .map_err(|source| StorageError::DataDir { path: data_dir.to_owned(), source }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(StorageError::DataDir { path: data_dir.to_owned(), source }),
        }
    }
}

fn take(
    file: &mut File,
    path: PathBuf,
    lock: impl FnOnce(&File) -> Result<(), TryLockError>,
) -> Result<io::Result<()>, StorageError> {
    match lock(file) {
        Ok(()) => Ok(Ok(())),
        Err(TryLockError::Error(error)) => Ok(Err(error)),
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
            Err(StorageError::InUse { path, pid })
        }
    }
}
