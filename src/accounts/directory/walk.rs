//! Which files there are, before any is opened.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{DEPTH_MAX, FILES_MAX, FileProblem, Reason, name, unreadable};
use crate::domain::identity::PathId;

/// A walk through the directory.
pub(super) struct Walk<'a> {
    root: &'a Path,
    pub(super) plain: Vec<PathBuf>,
    pub(super) links: Vec<PathBuf>,
    pub(super) unread: Vec<FileProblem>,
    pub(super) lost: Vec<PathId>,
}

/// An entry of a folder that is worth a look.
enum Entry {
    Folder(PathBuf),
    File(PathBuf),
    Link(PathBuf),
}

// === impl Walk ===

impl<'a> Walk<'a> {
    /// Lists the directory and what is below it, each list sorted.
    ///
    /// # Errors
    /// If the directory itself cannot be listed.
    pub(super) fn through(root: &'a Path) -> io::Result<Self> {
        let entries = list(root)?;
        let mut walk = Self {
            root,
            plain: Vec::new(),
            links: Vec::new(),
            unread: Vec::new(),
            lost: Vec::new(),
        };
        walk.take(entries, 0);
        walk.plain.sort();
        walk.links.sort();
        Ok(walk)
    }

    /// Whether there is nothing at all.
    pub(super) fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.links.is_empty() && self.unread.is_empty()
    }

    fn take(&mut self, entries: Vec<Entry>, depth: usize) {
        for entry in entries {
            if self.plain.len() + self.links.len() >= FILES_MAX {
                // Said once; the folders above find the same and stop.
                if self.unread.last().is_none_or(|it| it.reason != Reason::TooMany) {
                    self.leave(entry.path(), Reason::TooMany);
                }
                return;
            }
            match entry {
                Entry::File(path) => self.plain.push(path),
                Entry::Link(path) => self.links.push(path),
                Entry::Folder(path) if depth == DEPTH_MAX => self.leave(&path, Reason::TooDeep),
                Entry::Folder(path) => match list(&path) {
                    Ok(entries) => self.take(entries, depth + 1),
                    // It was removed since its parent was listed, and its files with it.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => {
                        self.lost.push(name(self.root, &path));
                        self.leave(&path, unreadable(&error));
                    }
                },
            }
        }
    }

    fn leave(&mut self, path: &Path, reason: Reason) {
        self.unread.push(FileProblem { path: name(self.root, path), reason });
    }
}

// === impl Entry ===

impl Entry {
    fn path(&self) -> &Path {
        match self {
            Self::Folder(path) | Self::File(path) | Self::Link(path) => path,
        }
    }
}

/// The entries of a folder that are worth a look, by name.
fn list(folder: &Path) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        let (kind, path) = (entry.file_type()?, entry.path());
        if matches!(name.first(), None | Some(b'.' | b'~' | b'#')) {
            continue;
        }
        match name.ends_with(b".json") {
            true if kind.is_symlink() => {
                // A folder behind a link is not entered, so its name means nothing.
                if !fs::metadata(&path).is_ok_and(|it| it.is_dir()) {
                    entries.push(Entry::Link(path));
                }
            }
            true => entries.push(Entry::File(path)),
            false if kind.is_dir() => entries.push(Entry::Folder(path)),
            false => {}
        }
    }
    entries.sort_by(|a, b| a.path().cmp(b.path()));
    Ok(entries)
}
