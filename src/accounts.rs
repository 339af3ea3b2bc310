//! The pool of accounts, and how it comes from the credential files.

pub mod directory;
pub mod labels;
pub mod pool;
pub mod store;

use std::path::Path;

use jiff::Timestamp;
use rand::Rng;

use self::{
    directory::{DirectoryError, FileProblem, FileState},
    labels::{LabelError, Labels},
};
use crate::domain::{
    account::{Account, AuthId, Label},
    identity::{self, LoginFile},
};

/// What the directory holds, as accounts.
#[derive(Debug)]
pub struct Loaded {
    /// Sorted by id.
    pub accounts: Vec<Account>,
    /// What an operator should know, by path.
    pub problems: Vec<FileProblem>,
    /// Labels made now, to be kept in the database before they are shown.
    pub minted: Vec<(AuthId, Label)>,
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Label(#[from] LabelError),
}

/// Reads the directory and groups its files into accounts. Blocks on the file system.
///
/// # Errors
/// A directory that cannot be read, or labels that run out. A bad file is a problem in the result.
pub fn load(
    directory: &Path,
    follow_symlinks: bool,
    labels: &mut Labels,
    random: &mut impl Rng,
    now: Timestamp,
) -> Result<Loaded, LoadError> {
    let reading = directory::read_all(directory, follow_symlinks)?;
    let problems = reading.problems();
    let files = reading.files.into_iter().filter_map(|file| match file.state {
        FileState::Parsed(parsed) => Some(LoginFile { path: file.path_id, login: parsed.login }),
        FileState::Ignored(_) | FileState::LoggedOut | FileState::Problem(_) => None,
    });
    let (mut accounts, mut minted) = (Vec::new(), Vec::new());
    for resolved in identity::resolve(files.collect(), now) {
        let label = match labels.get(&resolved.id) {
            Some(label) => label.clone(),
            None => {
                let label = labels.mint(&resolved.id, random)?;
                minted.push((resolved.id.clone(), label.clone()));
                label
            }
        };
        accounts.push(resolved.labelled(label));
    }
    Ok(Loaded { accounts, problems, minted })
}
