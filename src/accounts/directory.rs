//! Reads the credential directory. Blocks on the file system, so it runs outside of requests.
//!
//! Nothing in the directory can hold the reader up or make it stop: what is not a small regular file
//! is left aside with a reason, and depth and number of files are bounded. The result does not depend
//! on the order in which the file system lists its entries.

use std::{
    collections::{BTreeSet, HashSet},
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use zeroize::Zeroizing;

use crate::{
    domain::identity::PathId,
    protocol::credential_file::{self, CredentialFile, Fault, Malformed, NotCodex, Rejection},
};

const FILE_BYTES_MAX: u64 = 1024 * 1024;
const FILES_MAX: usize = 10_000;

/// Folders within folders that are looked into.
const DEPTH_MAX: usize = 8;

/// What the directory held when it was read.
#[derive(Debug)]
pub struct Reading {
    /// By path. Of several names of one file only the first is here.
    pub files: Vec<FileReading>,
    /// Parts of the directory that were not looked at.
    pub unread: Vec<FileProblem>,
}

/// One file.
#[derive(Debug)]
pub struct FileReading {
    pub path_id: PathId,
    /// The path to open it by.
    pub path: PathBuf,
    pub state: FileState,
    /// What an operator should mend though the file was read.
    pub notices: Vec<Reason>,
}

#[derive(Debug)]
pub enum FileState {
    Parsed(Box<CredentialFile>),
    /// In order, but no login of ChatGPT.
    Ignored(NotCodex),
    /// A login was here; its account is gone at once.
    LoggedOut,
    /// What is wrong may pass, as when an editor is half way through writing.
    Problem(Reason),
}

/// Something that an operator should know of one file or folder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct FileProblem {
    pub path: PathId,
    pub reason: Reason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error(transparent)]
    Malformed(Malformed),
    #[error(transparent)]
    Fault(Fault),
    #[error("it cannot be read: {0}")]
    Unreadable(io::ErrorKind),
    #[error("it is no regular file, and is left aside")]
    NotRegular,
    #[error("it is larger than {FILE_BYTES_MAX} bytes, and is left aside")]
    TooLarge,
    #[error("it is a link out of the directory, which `auth.follow_symlinks = false` forbids")]
    LinkForbidden,
    #[error("it is a link out of the directory")]
    LinkLeaves,
    #[error("another file has the same name in another Unicode form: rename one of them")]
    NameTaken,
    #[error("others can read or change it (mode {mode:04o}): run `chmod 600` on it")]
    OpenToOthers { mode: u32 },
    #[error("it lies deeper than {DEPTH_MAX} folders, and is not looked into")]
    TooDeep,
    #[error("the directory holds more than {FILES_MAX} files: from this one on none is read")]
    TooMany,
}

#[derive(Debug, thiserror::Error)]
#[error("the credential directory {} cannot be read", path.display())]
pub struct DirectoryError {
    pub path: PathBuf,
    #[source]
    pub source: io::Error,
}

/// A walk through the directory.
struct Walk<'a> {
    root: &'a Path,
    plain: Vec<PathBuf>,
    links: Vec<PathBuf>,
    unread: Vec<FileProblem>,
}

/// An entry of a folder that is worth a look.
enum Entry {
    Folder(PathBuf),
    File(PathBuf),
    Link(PathBuf),
}

/// Reads all credential files at and below `root`.
///
/// # Errors
/// A directory that is missing or cannot be listed. What is wrong below it is in the result.
pub fn read_all(root: &Path, follow_symlinks: bool) -> Result<Reading, DirectoryError> {
    let failed = |source| DirectoryError { path: root.to_owned(), source };
    let home = fs::canonicalize(root).map_err(failed)?;
    let mut walk = Walk { root, plain: Vec::new(), links: Vec::new(), unread: Vec::new() };
    let entries = list(root).map_err(failed)?;
    walk.take(entries, 0);
    let Walk { mut plain, mut links, unread, .. } = walk;
    plain.sort();
    links.sort();
    let (mut files, mut seen) = (Vec::new(), HashSet::new());
    for path in plain {
        files.extend(read_file(root, path.clone(), &path, &mut seen));
    }
    // Links come last, so that a file inside the directory goes by its own name.
    for path in links {
        match fs::canonicalize(&path) {
            Err(error) => files.push(FileReading::problem(root, path, unreadable(&error))),
            Ok(target) if target.starts_with(&home) => {
                files.extend(read_file(root, path, &target, &mut seen));
            }
            Ok(_) if !follow_symlinks => {
                files.push(FileReading::problem(root, path, Reason::LinkForbidden));
            }
            Ok(target) => files.extend(read_file(root, path, &target, &mut seen).map(|mut it| {
                if !matches!(it.state, FileState::Problem(_)) {
                    it.notices.push(Reason::LinkLeaves);
                }
                it
            })),
        }
    }
    files.sort_by(|a, b| (&a.path_id, &a.path).cmp(&(&b.path_id, &b.path)));
    refuse_taken_names(&mut files);
    Ok(Reading { files, unread })
}

/// Two names that are one in Unicode's composed form would be one account to the rest of the program.
fn refuse_taken_names(files: &mut [FileReading]) {
    let mut names = BTreeSet::new();
    for file in files {
        if !names.insert(file.path_id.clone()) {
            file.state = FileState::Problem(Reason::NameTaken);
        }
    }
}

/// Reads one file, unless it was seen under another name. `opened` is `path` without links.
fn read_file(
    root: &Path,
    path: PathBuf,
    opened: &Path,
    seen: &mut HashSet<(u64, u64)>,
) -> Option<FileReading> {
    let (file, facts) = match open(opened) {
        Ok(both) => both,
        Err(reason) => return Some(FileReading::problem(root, path, reason)),
    };
    if !seen.insert((facts.dev(), facts.ino())) {
        return None;
    }
    let mut reading = match read(file, facts.len()) {
        Ok(bytes) => FileReading::parsed(root, path, &bytes),
        Err(reason) => FileReading::problem(root, path, reason),
    };
    let mode = facts.mode() & 0o7777;
    if mode & 0o077 != 0 && !matches!(reading.state, FileState::Ignored(_)) {
        reading.notices.push(Reason::OpenToOthers { mode });
    }
    Some(reading)
}

/// Opens a regular file. Nothing else is opened, since opening a device may do something; what takes
/// the file's place in between does not make it wait.
fn open(path: &Path) -> Result<(File, fs::Metadata), Reason> {
    if !fs::symlink_metadata(path).map_err(|error| unreadable(&error))?.is_file() {
        return Err(Reason::NotRegular);
    }
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(|error| unreadable(&error))?;
    let facts = file.metadata().map_err(|error| unreadable(&error))?;
    if !facts.is_file() {
        return Err(Reason::NotRegular);
    }
    Ok((file, facts))
}

fn read(file: File, length: u64) -> Result<Zeroizing<Vec<u8>>, Reason> {
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

fn unreadable(error: &io::Error) -> Reason {
    Reason::Unreadable(error.kind())
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

// === impl Reading ===

impl Reading {
    /// Everything that an operator should know, by path.
    pub fn problems(&self) -> Vec<FileProblem> {
        let mut problems = self.unread.clone();
        for file in &self.files {
            let mut add = |reason: Reason| {
                problems.push(FileProblem { path: file.path_id.clone(), reason });
            };
            match &file.state {
                FileState::Problem(reason) => add(*reason),
                FileState::Parsed(it) => {
                    it.faults.iter().copied().map(Reason::Fault).for_each(&mut add)
                }
                FileState::Ignored(_) | FileState::LoggedOut => {}
            }
            file.notices.iter().copied().for_each(add);
        }
        problems.sort_by(|a, b| a.path.cmp(&b.path));
        problems
    }
}

// === impl FileReading ===

impl FileReading {
    fn problem(root: &Path, path: PathBuf, reason: Reason) -> Self {
        let state = FileState::Problem(reason);
        Self { path_id: name(root, &path), path, state, notices: Vec::new() }
    }

    fn parsed(root: &Path, path: PathBuf, bytes: &[u8]) -> Self {
        let state = match credential_file::parse(bytes) {
            Ok(file) => FileState::Parsed(Box::new(file)),
            Err(Rejection::NotCodex(reason)) => FileState::Ignored(reason),
            Err(Rejection::LoggedOut) => FileState::LoggedOut,
            Err(Rejection::Malformed(reason)) => FileState::Problem(Reason::Malformed(reason)),
        };
        Self { path_id: name(root, &path), path, state, notices: Vec::new() }
    }
}

// === impl Reason ===

impl Reason {
    /// Whether the file counts all the same.
    pub fn is_notice(&self) -> bool {
        matches!(self, Self::Fault(_) | Self::LinkLeaves | Self::OpenToOthers { .. })
    }
}

// === impl Walk ===

impl Walk<'_> {
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
                    Err(error) => self.leave(&path, unreadable(&error)),
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

fn name(root: &Path, path: &Path) -> PathId {
    PathId::from_relative(path.strip_prefix(root).unwrap_or(path))
}
