//! The pool of accounts, and how it comes from the credential files.

pub mod directory;
pub mod files;
pub mod import;
pub mod journal;
pub mod labels;
pub mod login;
pub mod manage;
pub mod oauth;
pub mod pool;
pub mod reconciler;
pub mod refresh;
pub mod store;
pub mod tasks;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Timestamp;
use rand::Rng;

use self::{
    directory::{DirectoryError, DirectoryInUse, FileProblem, FileState},
    files::{CredentialFiles, Steps},
    journal::{Journal, RecoveryError, Unpersisted},
    labels::{LabelError, Labels},
    oauth::OAuth,
    pool::Pool,
    reconciler::{Core, CoreParts, Ledger, Reconciler, Rotation, Subscriber},
    refresh::Refresher,
    tasks::Tasks,
};
use crate::{
    clock::Clock,
    config::{Auth, BaseUrl},
    domain::{
        account::{Account, AuthId, Label},
        identity::{self, LoginFile},
    },
    egress::Egress,
    storage::{Storage, StorageError},
    telemetry::metrics::Metrics,
};

/// Everything about accounts that the rest of the program works with. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Accounts {
    pub pool: Arc<Pool>,
    pub reconciler: Reconciler,
    pub refresher: Refresher,
    pub oauth: OAuth,
    pub files: CredentialFiles,
    pub storage: Storage,
    pub metrics: Arc<Metrics>,
    pub clock: Clock,
    pub tasks: Tasks,
    /// The section `auth` of the configuration, as the process began with it.
    pub config: Arc<Auth>,
}

/// What accounts are made of.
pub struct Parts {
    pub config: Auth,
    pub data_dir: PathBuf,
    pub auth_base_url: BaseUrl,
    pub storage: Storage,
    pub metrics: Arc<Metrics>,
    pub egress: Arc<Egress>,
    pub clock: Clock,
    pub tasks: Tasks,
    /// Who hears of changes beside the pool, in this order.
    pub subscribers: Vec<Subscriber>,
}

/// Why there are no accounts to work with.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{0} ({cause}): give it to the gateway's user", cause = .0.source)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    InUse(#[from] DirectoryInUse),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("cannot use the journal of renewed tokens below the data directory: {}", .0.kind())]
    Journal(#[source] std::io::Error),
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    #[error("cannot start the thread that watches the credential directory: {0}")]
    Thread(#[source] std::io::Error),
}

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

/// Reads the directory once and groups its files into accounts, for whoever runs no gateway. Blocks
/// on the file system.
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
        FileState::Parsed(parsed) => Some(LoginFile::new(file.path_id, parsed.login)),
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

// === impl Accounts ===

impl Accounts {
    /// Takes over what the database knows, looks at the directory, and goes on looking. The pool is
    /// filled when this returns. Blocks on files and the database.
    ///
    /// # Errors
    /// A directory that cannot be read or that another process works with, or a database that
    /// cannot be read.
    pub fn open(parts: Parts) -> Result<Self, OpenError> {
        let Parts { storage, metrics, clock, tasks, .. } = parts;
        let config = Arc::new(parts.config);
        let files =
            CredentialFiles::new(config.dir.clone(), config.follow_symlinks, Steps::default());
        let journal =
            Journal::open(&parts.data_dir, Steps::default()).map_err(OpenError::Journal)?;
        let lock = directory::Lock::acquire(&config.dir)?;
        let known = storage.write_blocking(|it| Ok((store::known(it)?, store::healths(it)?)))?;
        let (known, healths) = known;
        let pool = Arc::new(Pool::kept(storage.clone(), healths, clock.now()));
        let recovered = journal::recover(&files, &journal, clock.now())?;
        let core = Core::open(CoreParts {
            config: Arc::clone(&config),
            ledger: Ledger::new(storage.clone(), known, clock.elapsed()),
            subscribers: parts.subscribers,
            pool: Arc::clone(&pool),
            clock: clock.clone(),
            metrics: Arc::clone(&metrics),
            lock,
        })?;
        let reconciler = Reconciler::start(core).map_err(OpenError::Thread)?;
        for Unpersisted { entry, login } in &recovered.unpersisted {
            // Another account's tokens say nothing about the other files that hold the old one.
            if entry.only.is_none() {
                let new = Arc::clone(login);
                reconciler.rotated(Rotation { old: entry.old, new, persisted: false });
            }
        }
        if !recovered.unpersisted.is_empty() {
            reconciler.look_blocking();
        }
        let oauth = OAuth::new(parts.auth_base_url, parts.egress);
        let refresher = Refresher::new(refresh::Parts {
            config: Arc::clone(&config),
            oauth: oauth.clone(),
            files: files.clone(),
            journal,
            reconciler: reconciler.clone(),
            pool: Arc::clone(&pool),
            metrics: Arc::clone(&metrics),
            clock: clock.clone(),
            tasks: tasks.clone(),
            steps: Steps::default(),
            unpersisted: recovered.unpersisted,
        });
        refresher.start();
        Ok(Self {
            pool,
            reconciler,
            refresher,
            oauth,
            files,
            storage,
            metrics,
            clock,
            tasks,
            config,
        })
    }
}
