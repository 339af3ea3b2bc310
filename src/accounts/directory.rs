//! Reads the credential directory. Blocks on the file system, so it runs outside of requests.
//!
//! Nothing in the directory can hold the reader up or make it stop: what is not a small regular file
//! is left aside with a reason, and depth and number of files are bounded. The result does not depend
//! on the order in which the file system lists its entries.

mod file;
mod lock;
mod scan;
mod walk;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    domain::identity::{Login, PathId},
    protocol::credential_file::{Fault, Malformed, NotCodex, Shape},
};

pub(super) use self::file::{open_regular as open, read_up_to as read};
pub use self::{
    lock::{DirectoryInUse, Lock},
    scan::{Depth, Scanner},
};

pub const FILE_BYTES_MAX: u64 = 1024 * 1024;
pub(super) const FILES_MAX: usize = 10_000;

/// Folders within folders that are looked into.
pub(super) const DEPTH_MAX: usize = 8;

/// What the directory held when it was read.
#[derive(Debug)]
pub struct Reading {
    /// By path. Of several names of one file only the first is here.
    pub files: Vec<FileReading>,
    /// Parts of the directory that were not looked at.
    pub unread: Vec<FileProblem>,
    /// Those of them whose files may be there all the same: folders that could not be listed.
    pub lost_folders: Vec<PathId>,
}

/// One file.
#[derive(Clone, Debug)]
pub struct FileReading {
    pub path_id: PathId,
    /// The path to open it by.
    pub path: PathBuf,
    /// The same without links: the file itself, to be replaced when it is written.
    pub target: PathBuf,
    pub state: FileState,
    /// What an operator should mend though the file was read.
    pub notices: Vec<Reason>,
}

#[derive(Clone, Debug)]
pub enum FileState {
    Parsed(Parsed),
    /// In order, but no login of ChatGPT.
    Ignored(NotCodex),
    /// A login was here; its account is gone at once.
    LoggedOut,
    /// What is wrong may pass, as when an editor is half way through writing.
    Problem(Reason),
}

/// A file that holds a login. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Parsed {
    pub login: Arc<Login>,
    pub shape: Shape,
    /// What is wrong with it all the same.
    pub faults: Arc<[Fault]>,
}

/// Something that an operator should know of one file or folder.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct FileProblem {
    pub path: PathId,
    pub reason: Reason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
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

/// Reads all credential files at and below `root`.
///
/// # Errors
/// A directory that is missing or cannot be listed. What is wrong below it is in the result.
pub fn read_all(root: &Path, follow_symlinks: bool) -> Result<Reading, DirectoryError> {
    Scanner::new(root.to_owned(), follow_symlinks).scan(Depth::Full)
}

fn unreadable(error: &io::Error) -> Reason {
    Reason::Unreadable(error.kind())
}

fn name(root: &Path, path: &Path) -> PathId {
    PathId::from_relative(path.strip_prefix(root).unwrap_or(path))
}

// === impl Reading ===

impl Reading {
    /// Everything that an operator should know, by path.
    pub fn problems(&self) -> Vec<FileProblem> {
        let mut problems = self.unread.clone();
        for file in &self.files {
            let reasons = file.problem().into_iter().chain(file.mendable());
            problems
                .extend(reasons.map(|reason| FileProblem { path: file.path_id.clone(), reason }));
        }
        problems.sort_by(|a, b| a.path.cmp(&b.path));
        problems
    }
}

// === impl FileReading ===

impl FileReading {
    /// What keeps the file from being used.
    pub fn problem(&self) -> Option<Reason> {
        match &self.state {
            FileState::Problem(reason) => Some(*reason),
            FileState::Parsed(_) | FileState::Ignored(_) | FileState::LoggedOut => None,
        }
    }

    /// What is wrong with the file though it is used.
    pub fn mendable(&self) -> impl Iterator<Item = Reason> {
        let faults = match &self.state {
            FileState::Parsed(it) => &it.faults[..],
            FileState::Ignored(_) | FileState::LoggedOut | FileState::Problem(_) => &[],
        };
        faults.iter().copied().map(Reason::Fault).chain(self.notices.iter().copied())
    }
}

// === impl Reason ===

impl Reason {
    /// Whether the file counts all the same.
    pub fn is_notice(&self) -> bool {
        matches!(self, Self::Fault(_) | Self::LinkLeaves | Self::OpenToOthers { .. })
    }
}
