//! One gateway per credential directory, by an advisory lock that dies with the process.
//!
//! The lock is on the directory itself: two gateways with data directories of their own would
//! otherwise trade in each other's refresh tokens.

use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
};

/// Held as long as the directory is worked with.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "the lock lives as long as its file")] Option<File>);

#[derive(Debug, thiserror::Error)]
#[error(
    "another codex-edge is using the credential directory {}. Stop it first, or give this one another auth.dir",
    .0.display()
)]
pub struct DirectoryInUse(pub PathBuf);

// === impl Lock ===

impl Lock {
    /// # Errors
    /// If another process holds it. A directory that cannot be opened is not locked, and neither is
    /// one whose file system knows no such lock.
    pub fn acquire(directory: &Path) -> Result<Self, DirectoryInUse> {
        let Ok(file) = File::open(directory) else { return Ok(Self(None)) };
        match file.try_lock() {
            Ok(()) => Ok(Self(Some(file))),
            Err(TryLockError::WouldBlock) => Err(DirectoryInUse(directory.to_owned())),
            Err(TryLockError::Error(error)) => {
                tracing::warn!(
                    "The credential directory cannot be locked ({}): see to it that no other \
                     gateway uses it",
                    error.kind()
                );
                Ok(Self(None))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_gateway_is_kept_out_until_the_first_has_gone() {
        let folder = tempfile::tempdir().unwrap();
        let first = Lock::acquire(folder.path()).unwrap();
        let refused = Lock::acquire(folder.path()).unwrap_err();
        assert!(refused.to_string().contains("auth.dir"));
        drop(first);
        assert!(Lock::acquire(folder.path()).is_ok());
    }
}
