//! All the names by which the directory knows a file. Blocks on the file system.

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::accounts::directory::DEPTH_MAX;

/// A file, whatever its name: its device and its number there.
pub(super) type Inode = (u64, u64);

/// The file behind a path, and how many names it has, links not counted.
pub(super) fn inode(path: &Path) -> Option<(Inode, u64)> {
    let facts = fs::metadata(path).ok()?;
    Some(((facts.dev(), facts.ino()), facts.nlink()))
}

/// The entries at and below `root` that lead to one of these files, by themselves or as a link.
/// What cannot be looked into is left out.
pub(super) fn leading_to(root: &Path, files: &HashSet<Inode>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    look(root, files, 0, &mut found);
    found.sort();
    found
}

fn look(folder: &Path, files: &HashSet<Inode>, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.as_encoded_bytes();
        if matches!(name.first(), None | Some(b'.' | b'~' | b'#')) {
            continue;
        }
        if name.ends_with(b".json") {
            if inode(&path).is_some_and(|(inode, _)| files.contains(&inode)) {
                found.push(path);
            }
        } else if depth < DEPTH_MAX && entry.file_type().is_ok_and(|it| it.is_dir()) {
            look(&path, files, depth + 1, found);
        }
    }
}
