//! One file: what it looks like from outside, and its bytes.

use std::{
    fs::{self, File, OpenOptions},
    io::Read,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use zeroize::Zeroizing;

use super::{FILE_BYTES_MAX, Reason, unreadable};

/// What tells cheaply that a file has changed. Equal ones do not prove that it has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outside {
    pub(super) place: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    pub(super) mode: u32,
}

// === impl Outside ===

impl Outside {
    /// Looks at a regular file without opening it.
    ///
    /// # Errors
    /// A file that is none, or cannot be looked at.
    pub(super) fn of(path: &Path) -> Result<Self, Reason> {
        let facts = fs::symlink_metadata(path).map_err(|error| unreadable(&error))?;
        if facts.is_file() { Ok(Self::new(&facts)) } else { Err(Reason::NotRegular) }
    }

    fn new(facts: &fs::Metadata) -> Self {
        Self {
            place: (facts.dev(), facts.ino()),
            size: facts.len(),
            modified: (facts.mtime(), facts.mtime_nsec()),
            changed: (facts.ctime(), facts.ctime_nsec()),
            mode: facts.mode() & 0o7777,
        }
    }
}

/// Opens a regular file. Nothing else is opened, since opening a device may do something; what takes
/// the file's place in between does not make it wait.
pub(super) fn open(path: &Path) -> Result<(File, Outside), Reason> {
    let (file, facts) = open_regular(path)?;
    Ok((file, Outside::new(&facts)))
}

/// The same, with all that is known of the file.
pub(in crate::accounts) fn open_regular(path: &Path) -> Result<(File, fs::Metadata), Reason> {
    Outside::of(path)?;
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(|error| unreadable(&error))?;
    let facts = file.metadata().map_err(|error| unreadable(&error))?;
    if !facts.is_file() {
        return Err(Reason::NotRegular);
    }
    Ok((file, facts))
}

pub(super) fn read(file: File, outside: &Outside) -> Result<Zeroizing<Vec<u8>>, Reason> {
    read_up_to(file, outside.size)
}

/// Reads a file of about this length.
pub(in crate::accounts) fn read_up_to(
    file: File,
    length: u64,
) -> Result<Zeroizing<Vec<u8>>, Reason> {
    if length > FILE_BYTES_MAX {
        return Err(Reason::TooLarge);
    }
    // Room for all of it at once: a buffer that grows leaves copies of the tokens behind.
    let room = usize::try_from(length).unwrap_or_default() + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    let mut bounded = file.take(FILE_BYTES_MAX + 1);
    bounded.read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
    if bounded.limit() == 0 { Err(Reason::TooLarge) } else { Ok(bytes) }
}
