//! One refresh at a time for each refresh token, among all processes of this machine.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

pub(super) const SUFFIX: &str = ".lock";

/// Held while a refresh token is traded in. Dies with the process.
#[derive(Debug)]
pub struct LineageLock {
    path: PathBuf,
    _file: File,
}

// === impl LineageLock ===

impl LineageLock {
    /// Waits until nobody else holds the lock at `path`.
    pub(super) fn wait(path: PathBuf) -> io::Result<Self> {
        loop {
            let file = open(&path)?;
            file.lock()?;
            if has_name(&file, &path)? {
                return Ok(Self { path, _file: file });
            }
            // Whoever had it took the file away, and others lock another one by now.
        }
    }

    /// Takes a lock away that a dead process left behind.
    pub(super) fn clear(path: PathBuf) -> io::Result<()> {
        let file = open(&path)?;
        if file.try_lock().is_ok() && has_name(&file, &path)? {
            fs::remove_file(&path)?;
        }
        Ok(())
    }
}

impl Drop for LineageLock {
    fn drop(&mut self) {
        // While it is still locked: who waits for it finds that the name is gone, and asks again.
        drop(fs::remove_file(&self.path));
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    options.custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW).open(path)
}

/// Whether this open file is the one at `path`.
fn has_name(file: &File, path: &Path) -> io::Result<bool> {
    let opened = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (opened.dev(), opened.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        thread,
    };

    use super::*;

    #[test]
    fn only_one_holds_it_and_nothing_is_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.lock");
        let (inside, turns) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let (path, inside, turns) = (path.clone(), inside.clone(), turns.clone());
                thread::spawn(move || {
                    for _ in 0..50 {
                        let lock = LineageLock::wait(path.clone()).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        turns.fetch_add(1, Ordering::SeqCst);
                        drop(lock);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|it| it.join().unwrap());
        assert_eq!(turns.load(Ordering::SeqCst), 400);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_lock_that_is_held_is_not_cleared_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.lock");
        let held = LineageLock::wait(path.clone()).unwrap();
        LineageLock::clear(path.clone()).unwrap();
        assert!(path.exists());
        drop(held);
        fs::write(&path, b"").unwrap();
        LineageLock::clear(path.clone()).unwrap();
        assert!(!path.exists());
    }
}
