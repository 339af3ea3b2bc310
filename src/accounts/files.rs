//! Changes credential files: atomically, with everything in them that is not ours. Blocks on the
//! file system.
//!
//! No file is ever written in place: a new one takes its name, with its mode and, where permitted,
//! its owner. A link stays, and the file it leads to is replaced. A file with several names in the
//! directory becomes several files with the same content. A file that another program has changed
//! in the meantime is left alone.

mod found;
mod names;
pub(in crate::accounts) mod replace;
pub mod steps;

use std::{
    collections::{BTreeSet, HashSet},
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use zeroize::Zeroizing;

pub use self::{
    found::FoundFile,
    steps::{Step, Steps, Written},
};
use self::{
    found::{Current, Unchanged, has_same_tokens, is_same_account, put_in_place, reread},
    replace::{Ownership, Replacement, clear_leftovers, folder_of, sync_folder},
};
use super::directory::{self, DirectoryError, FILE_BYTES_MAX, FileState};
use crate::{
    domain::identity::PathId,
    protocol::credential_file::rewrite::{self, NewTokens, RewriteError},
};

/// How often a file is read anew that others change while it is being replaced.
const TRIES: usize = 4;

/// The credential directory, to be changed. Cheap to clone; all clones take turns.
#[derive(Clone, Debug)]
pub struct CredentialFiles(Arc<Shared>);

/// What became of each file that was to get new tokens.
#[derive(Clone, Debug, Default)]
pub struct Rotated {
    pub files: Vec<(PathId, Outcome)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It holds the new tokens.
    Written,
    /// It no longer held the old ones, and was left alone.
    Changed,
    /// It still holds the old ones.
    Failed(io::ErrorKind),
}

/// Why the directory was not changed as asked. Names files as operators know them.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error(
        "{path} cannot be changed ({kind}): make its folder writable for the gateway, or free space"
    )]
    File { path: PathId, kind: io::ErrorKind },
    #[error("{path} was left as it is: {source}")]
    Rewrite {
        path: PathId,
        #[source]
        source: RewriteError,
    },
    #[error("{path} has been changed by another program in the meantime: look at it and try again")]
    Changed { path: PathId },
    #[error("{because}; and {path} cannot be put back: switch it by hand")]
    Stuck { path: PathId, because: Box<Self> },
    #[error("no credential file can be made ({0}): make the credential directory writable")]
    Create(io::ErrorKind),
}

#[derive(Debug)]
struct Shared {
    root: PathBuf,
    follow_symlinks: bool,
    steps: Steps,
    /// Held by the one that changes anything.
    turn: Mutex<()>,
}

/// A file that is ready to be switched, or was.
struct Switch<'a> {
    file: &'a FoundFile,
    before: Current,
    after: Zeroizing<Vec<u8>>,
}

// === impl CredentialFiles ===

impl CredentialFiles {
    pub fn new(root: PathBuf, follow_symlinks: bool, steps: Steps) -> Self {
        let turn = Mutex::new(());
        Self(Arc::new(Shared { root, follow_symlinks, steps, turn }))
    }

    /// Whether there is no directory at all.
    pub fn have_no_directory(&self) -> bool {
        self.0.root.try_exists().is_ok_and(|it| !it)
    }

    /// Every file that holds a login now.
    ///
    /// # Errors
    /// A directory that cannot be read.
    pub fn read(&self) -> Result<Vec<FoundFile>, DirectoryError> {
        let reading = directory::read_all(&self.0.root, self.0.follow_symlinks)?;
        let files = reading.files.into_iter().filter_map(|file| match file.state {
            FileState::Parsed(parsed) => Some(FoundFile {
                path: file.path_id,
                target: fs::canonicalize(&file.path).ok()?,
                entry: file.path,
                login: parsed.login,
                shape: parsed.shape,
            }),
            FileState::Ignored(_) | FileState::LoggedOut | FileState::Problem(_) => None,
        });
        Ok(files.collect())
    }

    /// Sees what the file holds now; whether it is still where it was, with a login.
    pub fn read_again(&self, file: &mut FoundFile) -> bool {
        let now = reread(file).ok();
        now.map(|it| file.login = Arc::new(it.login)).is_some()
    }

    /// Puts new tokens into every given file that still holds the tokens it was found with.
    pub fn rotate(&self, files: &[FoundFile], tokens: &NewTokens) -> Rotated {
        let _turn = self.0.turn.lock();
        let outcomes = self.by_all_names(files).into_iter().map(|file| {
            let outcome = match self.rotate_one(&file, tokens) {
                Ok(()) => Outcome::Written,
                Err(Unchanged::Changed) => Outcome::Changed,
                Err(Unchanged::Failed(kind)) => Outcome::Failed(kind),
                Err(Unchanged::Rewrite(_)) => Outcome::Failed(io::ErrorKind::InvalidData),
            };
            (file.path, outcome)
        });
        Rotated { files: outcomes.collect() }
    }

    /// Switches every given file off or on, or none: if one fails, the earlier ones are put back.
    ///
    /// # Errors
    /// The first file that cannot be switched.
    pub fn set_disabled(&self, files: &[FoundFile], disabled: bool) -> Result<(), WriteError> {
        let _turn = self.0.turn.lock();
        let files = self.by_all_names(files);
        let mut ready = Vec::new();
        for file in &files {
            let switch = self.prepare_switch(file, disabled);
            ready.extend(switch.map_err(|it| it.of(&file.path))?);
        }
        let mut done = Vec::new();
        for (switch, replacement) in ready {
            let result = put_in_place(replacement, switch.file, &switch.before.facts);
            let path = switch.file.path.clone();
            done.push(switch);
            if let Err(unchanged) = result {
                return Err(self.put_back(&done, unchanged.of(&path)));
            }
        }
        Ok(())
    }

    /// Makes a file named after `stem`, or, where there is one, with a number behind. It is for its
    /// owner only, who is the directory's where permitted.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(&self, stem: &str, bytes: &[u8]) -> Result<PathId, WriteError> {
        let _turn = self.0.turn.lock();
        let failed = |error: io::Error| WriteError::Create(error.kind());
        let Shared { root, steps, .. } = &*self.0;
        let facts = fs::metadata(root).map_err(failed)?;
        let (owner, kind) = (Ownership::Of(&facts), Written::Credential);
        let mut file = Replacement::write(root, bytes, owner, kind, steps).map_err(failed)?;
        let stem = clean(stem);
        for number in 1..=directory::FILES_MAX {
            let name = match number {
                1 => format!("{stem}.json"),
                _ => format!("{stem}-{number}.json"),
            };
            match file.place(&root.join(&name)).map_err(failed)? {
                None => return Ok(PathId::from_relative(Path::new(&name))),
                Some(again) => file = again,
            }
        }
        Err(WriteError::Create(io::ErrorKind::AlreadyExists))
    }

    /// Deletes every given file under all its names in the directory. Of a link only the link.
    ///
    /// # Errors
    /// If a file holds another account now, and nothing is deleted; or the first one that cannot be
    /// deleted, while the others are.
    pub fn remove(&self, files: &[FoundFile]) -> Result<(), WriteError> {
        let _turn = self.0.turn.lock();
        let Shared { root, steps, .. } = &*self.0;
        let (mut entries, mut inodes) = (BTreeSet::new(), HashSet::new());
        for file in files {
            match reread(file) {
                Ok(now) if is_same_account(&now.login, &file.login) => {
                    inodes.insert((now.facts.dev(), now.facts.ino()));
                    entries.insert(file.entry.clone());
                }
                // What is left may be a link that leads nowhere.
                Err(Unchanged::Failed(io::ErrorKind::NotFound)) => {
                    entries.insert(file.entry.clone());
                }
                Ok(_) => return Err(Unchanged::Changed.of(&file.path)),
                Err(other) => return Err(other.of(&file.path)),
            }
        }
        entries.extend(names::leading_to(root, &inodes));
        let mut result = Ok(());
        for entry in entries {
            steps.reached(Step::Removing(Written::Credential));
            let removed = fs::remove_file(&entry).and_then(|()| sync_folder(folder_of(&entry)));
            steps.reached(Step::Removed(Written::Credential));
            if let Err(error) = removed
                && error.kind() != io::ErrorKind::NotFound
            {
                result = result.and(Err(Unchanged::from(error).of(&self.name(&entry))));
            }
        }
        result
    }

    /// Clears away what a process left behind that was killed while it wrote.
    ///
    /// # Errors
    /// A directory that cannot be read.
    pub fn clear_leftovers(&self) -> Result<(), DirectoryError> {
        let _turn = self.0.turn.lock();
        let reading = directory::read_all(&self.0.root, self.0.follow_symlinks)?;
        let mut folders = BTreeSet::from([self.0.root.clone()]);
        for file in reading.files {
            folders.insert(folder_of(&file.path).to_owned());
            folders.extend(fs::canonicalize(&file.path).map(|it| folder_of(&it).to_owned()));
        }
        for folder in folders {
            if let Err(error) = clear_leftovers(&folder) {
                tracing::warn!(
                    kind = %error.kind(),
                    "Files that a killed process left beside the credential files cannot be removed"
                );
            }
        }
        Ok(())
    }

    fn rotate_one(&self, file: &FoundFile, tokens: &NewTokens) -> Result<(), Unchanged> {
        for _ in 0..TRIES {
            let now = reread(file)?;
            if tokens.are_in(&now.login) {
                return Ok(());
            }
            if !has_same_tokens(&now.login, &file.login) {
                return Err(Unchanged::Changed);
            }
            let after = rewrite::rotate(&now.bytes, tokens)?;
            match put_in_place(self.write(file, &after, &now.facts)?, file, &now.facts) {
                Err(Unchanged::Changed) => {}
                other => return other,
            }
        }
        Err(Unchanged::Failed(io::ErrorKind::ResourceBusy))
    }

    /// `None` if the file is switched already.
    fn prepare_switch<'a>(
        &self,
        file: &'a FoundFile,
        disabled: bool,
    ) -> Result<Option<(Switch<'a>, Replacement)>, Unchanged> {
        let before = reread(file)?;
        if !is_same_account(&before.login, &file.login) {
            return Err(Unchanged::Changed);
        }
        let after = rewrite::set_disabled(&before.bytes, disabled)?;
        if after == before.bytes {
            return Ok(None);
        }
        let replacement = self.write(file, &after, &before.facts)?;
        Ok(Some((Switch { file, before, after }, replacement)))
    }

    /// Gives files that were switched their old content, and the error that says how that went.
    fn put_back(&self, done: &[Switch<'_>], error: WriteError) -> WriteError {
        for Switch { file, before, after } in done.iter().rev() {
            let result = reread(file).and_then(|now| {
                // The last one may have failed before it took the name.
                if now.bytes != *after {
                    return Ok(());
                }
                put_in_place(self.write(file, &before.bytes, &now.facts)?, file, &now.facts)
            });
            match result {
                // What others have changed or removed in the meantime is not ours to put back.
                Ok(()) | Err(Unchanged::Changed | Unchanged::Failed(io::ErrorKind::NotFound)) => {}
                Err(Unchanged::Failed(_) | Unchanged::Rewrite(_)) => {
                    return WriteError::Stuck { path: file.path.clone(), because: Box::new(error) };
                }
            }
        }
        error
    }

    fn write(
        &self,
        file: &FoundFile,
        bytes: &[u8],
        like: &Metadata,
    ) -> Result<Replacement, Unchanged> {
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(Unchanged::Failed(io::ErrorKind::FileTooLarge));
        }
        let (folder, like, kind) =
            (folder_of(&file.target), Ownership::Like(like), Written::Credential);
        Ok(Replacement::write(folder, bytes, like, kind, &self.0.steps)?)
    }

    /// The files, and for one that has several names in the directory the other names too.
    fn by_all_names(&self, files: &[FoundFile]) -> Vec<FoundFile> {
        let mut all = files.to_vec();
        for file in files {
            let Some((inode, names)) = names::inode(&file.target) else { continue };
            if names < 2 {
                continue;
            }
            for entry in names::leading_to(&self.0.root, &HashSet::from([inode])) {
                let Ok(target) = fs::canonicalize(&entry) else { continue };
                if all.iter().all(|it| it.target != target) {
                    all.push(FoundFile { path: self.name(&entry), entry, target, ..file.clone() });
                }
            }
        }
        all
    }

    fn name(&self, entry: &Path) -> PathId {
        PathId::from_relative(entry.strip_prefix(&self.0.root).unwrap_or(entry))
    }
}

/// A name for a file that every file system takes and the reader of the directory looks at.
fn clean(stem: &str) -> String {
    let fit = |letter: char| {
        if letter.is_ascii_alphanumeric() || "-_@+.".contains(letter) { letter } else { '-' }
    };
    let stem: String = stem.chars().map(fit).take(100).collect();
    let stem = stem.trim_matches(['.', '-']);
    if stem.is_empty() { "account".to_owned() } else { stem.to_owned() }
}

// === impl Rotated ===

impl Rotated {
    /// Whether no file holds the old tokens any more.
    pub fn is_complete(&self) -> bool {
        !self.files.iter().any(|(_, outcome)| matches!(outcome, Outcome::Failed(_)))
    }
}
