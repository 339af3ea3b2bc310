//! A credential file that was found, and what it is when it is to be changed. Blocks on the file
//! system.

use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::Arc,
};

use zeroize::Zeroizing;

use super::{WriteError, replace::Replacement};
use crate::{
    accounts::directory::{self, Reason},
    domain::{
        credential::RefreshToken,
        identity::{Login, PathId},
    },
    protocol::credential_file::{self, Shape, rewrite::RewriteError},
};

/// A file that holds a login.
#[derive(Clone, Debug)]
pub struct FoundFile {
    pub path: PathId,
    /// Its name in the directory, which may be a link.
    pub entry: PathBuf,
    /// The file itself.
    pub target: PathBuf,
    pub login: Arc<Login>,
    pub shape: Shape,
}

/// A file as it is now.
pub(super) struct Current {
    pub(super) bytes: Zeroizing<Vec<u8>>,
    pub(super) facts: Metadata,
    pub(super) login: Login,
}

/// Why one file was not changed.
pub(super) enum Unchanged {
    Changed,
    Failed(io::ErrorKind),
    Rewrite(RewriteError),
}

/// The file as it is now.
pub(super) fn reread(file: &FoundFile) -> Result<Current, Unchanged> {
    if fs::canonicalize(&file.entry)? != file.target {
        return Err(Unchanged::Changed);
    }
    let (handle, facts) = directory::open(&file.target)?;
    let bytes = directory::read(handle, facts.len())?;
    let parsed = credential_file::parse(&bytes).map_err(|_| Unchanged::Changed)?;
    Ok(Current { bytes, facts, login: parsed.login })
}

/// Replaces the file, if it is still the one that was read.
pub(super) fn put_in_place(
    replacement: Replacement,
    file: &FoundFile,
    read: &Metadata,
) -> Result<(), Unchanged> {
    // Not the time of its last change of any kind: another of its names may just have been replaced.
    let state = |it: &Metadata| (it.dev(), it.ino(), it.len(), it.mtime(), it.mtime_nsec());
    if state(&fs::symlink_metadata(&file.target)?) != state(read) {
        return Err(Unchanged::Changed);
    }
    Ok(replacement.replace(&file.target)?)
}

/// Whether a file still holds the token that is to be traded in.
pub(super) fn has_same_tokens(now: &Login, then: &Login) -> bool {
    let refresh = |it: &Login| it.credential.refresh.as_ref().map(RefreshToken::fingerprint);
    match (refresh(now), refresh(then)) {
        (None, None) => now.credential.fingerprint == then.credential.fingerprint,
        (now, then) => now == then,
    }
}

/// Whether a file is still of the account that it was found with, whatever its tokens are now.
pub(super) fn is_same_account(now: &Login, then: &Login) -> bool {
    let is_named = then.account_id().is_some() && now.account_id() == then.account_id();
    has_same_tokens(now, then) || is_named && now.access_token.users == then.access_token.users
}

// === impl Unchanged ===

impl Unchanged {
    pub(super) fn of(self, path: &PathId) -> WriteError {
        let path = path.clone();
        match self {
            Self::Changed => WriteError::Changed { path },
            Self::Failed(kind) => WriteError::File { path, kind },
            Self::Rewrite(source) => WriteError::Rewrite { path, source },
        }
    }
}

impl From<io::Error> for Unchanged {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.kind())
    }
}

impl From<RewriteError> for Unchanged {
    fn from(error: RewriteError) -> Self {
        Self::Rewrite(error)
    }
}

impl From<Reason> for Unchanged {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Unreadable(kind) => Self::Failed(kind),
            Reason::Malformed(_)
            | Reason::Fault(_)
            | Reason::NotRegular
            | Reason::TooLarge
            | Reason::LinkForbidden
            | Reason::LinkLeaves
            | Reason::NameTaken
            | Reason::OpenToOthers { .. }
            | Reason::TooDeep
            | Reason::TooMany => Self::Changed,
        }
    }
}
