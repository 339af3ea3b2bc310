//! Puts a file in the place of another, whole or not at all, whenever the process dies.
//!
//! The new file is written beside the old one, for its owner only from its first moment, is on disk
//! before it takes the name, and is removed if it never does. What a killed process leaves behind
//! goes by a name of its own, is locked while it is in use, and is cleared away at the next start.

use std::{
    ffi::OsStr,
    fs::{self, File, Metadata, Permissions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt, PermissionsExt, fchown},
    path::Path,
};

use tempfile::NamedTempFile;

use super::steps::{Step, Steps, Written};

/// Begins with a dot, so that nobody takes it for a credential file.
const PREFIX: &str = ".codex-edge-";
const SUFFIX: &str = ".tmp";

/// A file that is whole and on disk, and has not got its name yet.
#[derive(Debug)]
pub(in crate::accounts) struct Replacement {
    temp: NamedTempFile,
    kind: Written,
    steps: Steps,
}

/// Whom a new file belongs to.
#[derive(Clone, Copy, Debug)]
pub(in crate::accounts) enum Ownership<'a> {
    /// This process alone, mode 0600.
    Own,
    /// Owner and group of this one, mode 0600.
    Of(&'a Metadata),
    /// Owner, group and mode of this one.
    Like(&'a Metadata),
}

/// Removes what a killed process left in `folder`. A file that another process is just writing is
/// locked, and stays.
pub(in crate::accounts) fn clear_leftovers(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !is_leftover(&entry.file_name()) || !entry.file_type()?.is_file() {
            continue;
        }
        let path = entry.path();
        if File::open(&path).is_ok_and(|file| file.try_lock().is_ok()) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

fn is_leftover(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(PREFIX.as_bytes()) && name.ends_with(SUFFIX.as_bytes())
}

/// Makes the names in `folder` survive a loss of power.
pub(in crate::accounts) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// The folder that a file is in.
pub(in crate::accounts) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    }
}

// === impl Replacement ===

impl Replacement {
    /// Writes `bytes` into a file without a name of its own in `folder`.
    pub(in crate::accounts) fn write(
        folder: &Path,
        bytes: &[u8],
        ownership: Ownership<'_>,
        kind: Written,
        steps: &Steps,
    ) -> io::Result<Self> {
        steps.reached(Step::Begun(kind));
        let owner_only = Permissions::from_mode(0o600);
        let mut temp = tempfile::Builder::new()
            .prefix(PREFIX)
            .suffix(SUFFIX)
            .permissions(owner_only.clone())
            .tempfile_in(folder)?;
        // Only tells others that the file is in use: where nothing can be locked, it does not matter.
        drop(temp.as_file().try_lock());
        // The mode that was asked for is cut by the umask, never widened; this makes it exact.
        temp.as_file().set_permissions(owner_only)?;
        steps.reached(Step::Made(kind));
        temp.write_all(bytes)?;
        give(temp.as_file(), ownership)?;
        steps.reached(Step::Filled(kind));
        temp.as_file().sync_all()?;
        steps.reached(Step::Synced(kind));
        Ok(Self { temp, kind, steps: steps.clone() })
    }

    /// Takes the name `path`, in the same folder, from whatever file has it.
    pub(in crate::accounts) fn replace(self, path: &Path) -> io::Result<()> {
        self.temp.persist(path).map_err(|failed| failed.error)?;
        self.steps.reached(Step::Replaced(self.kind));
        sync_folder(folder_of(path))?;
        self.steps.reached(Step::Settled(self.kind));
        Ok(())
    }

    /// Takes the name `path`, in the same folder, if no file has it; else gives itself back.
    pub(in crate::accounts) fn place(self, path: &Path) -> io::Result<Option<Self>> {
        let Self { temp, kind, steps } = self;
        match temp.persist_noclobber(path) {
            Ok(_) => {}
            Err(taken) if taken.error.kind() == io::ErrorKind::AlreadyExists => {
                return Ok(Some(Self { temp: taken.file, kind, steps }));
            }
            Err(failed) => return Err(failed.error),
        }
        steps.reached(Step::Replaced(kind));
        sync_folder(folder_of(path))?;
        steps.reached(Step::Settled(kind));
        Ok(None)
    }
}

/// Gives a new file away as far as this process may. What is not permitted is no error, since a
/// file with another owner is better than a lost token.
fn give(file: &File, ownership: Ownership<'_>) -> io::Result<()> {
    let (like, mode) = match ownership {
        Ownership::Own => return Ok(()),
        Ownership::Of(like) => (like, 0o600),
        Ownership::Like(like) => (like, like.mode() & 0o777),
    };
    let now = file.metadata()?;
    let is_same = now.uid() == like.uid() && now.gid() == like.gid();
    let mut mode = mode;
    if !is_same && fchown(file, Some(like.uid()), Some(like.gid())).is_err() {
        let keeps_group = now.gid() == like.gid() || fchown(file, None, Some(like.gid())).is_ok();
        if !keeps_group {
            // What was for one group is not for another.
            mode &= !0o070;
        }
        tracing::warn!(
            "A credential file has another owner now, since this process may not keep the old one: \
             run the gateway as the owner of the files, or chown them to its user"
        );
    }
    file.set_permissions(Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn write(folder: &Path, bytes: &[u8]) -> Replacement {
        let (kind, steps) = (Written::Credential, Steps::default());
        Replacement::write(folder, bytes, Ownership::Own, kind, &steps).unwrap()
    }

    fn names(folder: &Path) -> Vec<PathBuf> {
        fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect()
    }

    #[test]
    fn a_new_file_is_its_owners_only_and_takes_no_name_that_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        assert!(write(folder.path(), b"1").place(&one).unwrap().is_none());
        let again = write(folder.path(), b"2").place(&one).unwrap().unwrap();
        assert!(again.place(&two).unwrap().is_none());
        assert_eq!((fs::read(&one).unwrap(), fs::read(&two).unwrap()), (b"1".into(), b"2".into()));
        assert_eq!(fs::metadata(&two).unwrap().mode() & 0o777, 0o600);
        assert_eq!(names(folder.path()).len(), 2);
    }

    #[test]
    fn what_is_not_used_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        drop(write(folder.path(), b"1"));
        let failed = write(folder.path(), b"1").replace(&folder.path().join("no/such/folder"));
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(names(folder.path()), Vec::<PathBuf>::new());
    }

    #[test]
    fn only_what_a_dead_process_left_is_cleared_away() {
        let folder = tempfile::tempdir().unwrap();
        let in_use = write(folder.path(), b"1");
        let other = folder.path().join(".codex-edge-notes");
        fs::write(&other, b"").unwrap();
        fs::write(folder.path().join(".codex-edge-abc.tmp"), b"").unwrap();
        clear_leftovers(folder.path()).unwrap();
        let mut left = [other, in_use.temp.path().to_owned()];
        left.sort();
        let mut found = names(folder.path());
        found.sort();
        assert_eq!(found, left);
    }
}
