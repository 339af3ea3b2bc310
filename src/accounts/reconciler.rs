//! Keeps the pool true to the credential directory.
//!
//! One thread looks, plans and carries out; whoever needs to know that it has looked asks it and
//! waits. No request does.

mod core;
mod inbox;
mod ledger;
mod overlays;
mod thread;
mod told;
mod watch;

use std::{collections::HashMap, io, path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use tokio::sync::oneshot;

use super::directory::FileProblem;
use crate::{
    domain::{
        account::AuthId,
        credential::Fingerprint,
        identity::{Login, PathId},
        reconcile::Change,
    },
    storage::StorageError,
};

use self::{inbox::Inbox, thread::Thread};

pub use self::{
    core::{Core, CoreParts},
    ledger::Ledger,
};

/// Hears of every change, in order, before the pool shows it.
pub type Subscriber = Box<dyn Fn(&[Change]) + Send + Sync>;

/// A handle to the one that looks. Cheap to clone; the last one to go ends it. The default one
/// looks at nothing.
#[derive(Clone, Debug, Default)]
pub struct Reconciler {
    inbox: Arc<Inbox>,
    view: Arc<ArcSwap<DirectoryView>>,
    _thread: Option<Arc<Thread>>,
}

/// What the last look found, for operators.
#[derive(Clone, Debug, Default)]
pub struct DirectoryView {
    /// The directory could be listed.
    pub available: bool,
    pub problems: Vec<FileProblem>,
    pub paths: HashMap<PathId, PathBuf>,
}

/// Tokens that this process got for others.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// The refresh token that was traded in.
    pub old: Fingerprint,
    pub new: Arc<Login>,
    /// Whether every copy holds the new tokens; else they live in memory until it does.
    pub persisted: bool,
}

// === impl Reconciler ===

impl Reconciler {
    /// Goes on looking from now on. `core` has looked once already.
    pub(super) fn start(core: Core) -> io::Result<Self> {
        let (inbox, view) = (Arc::<Inbox>::default(), core.view());
        let thread = Thread::start(core, Arc::clone(&inbox))?;
        Ok(Self { inbox, view, _thread: Some(Arc::new(thread)) })
    }

    /// Looks now, and returns once the pool shows what the directory holds.
    pub async fn look(&self) {
        let looked = self.ask();
        // If nobody looks any more, nothing is left to wait for.
        let _ = looked.await;
    }

    /// The same, for a thread that may block.
    pub fn look_blocking(&self) {
        let _ = self.ask().blocking_recv();
    }

    /// Takes note of tokens that were refreshed, before the next look.
    pub fn rotated(&self, rotation: Rotation) {
        self.inbox.rotated(rotation);
    }

    /// Keeps an account from new work, or lets it back, and returns once the pool does so. Survives
    /// restarts.
    ///
    /// # Errors
    /// If the database does not take it; nothing is changed then.
    pub async fn set_paused(&self, account: &AuthId, paused: bool) -> Result<(), StorageError> {
        let (reply, done) = oneshot::channel();
        self.inbox.pause(inbox::Pause { account: account.clone(), paused, reply });
        done.await.unwrap_or(Err(StorageError::WriterGone))
    }

    pub fn view(&self) -> Arc<DirectoryView> {
        self.view.load_full()
    }

    fn ask(&self) -> oneshot::Receiver<()> {
        let (reply, looked) = oneshot::channel();
        self.inbox.look(reply);
        looked
    }
}
