//! Where a change of files or tokens stands, for tests that stop a process just there.

use std::{fmt, sync::Arc};

/// A point that was reached. Between two of them at most one thing happens to what is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The sign-in service is about to be asked: nothing has happened yet.
    Asking,
    /// It has answered: the old refresh token is spent, and the new one is in memory only.
    Answered,
    /// A file is about to be replaced.
    Begun(Written),
    /// Beside it there is another, empty one.
    Made(Written),
    /// The other holds everything, and may not be on disk.
    Filled(Written),
    /// The other is on disk.
    Synced(Written),
    /// The other has the name now.
    Replaced(Written),
    /// The name is on disk.
    Settled(Written),
    /// A file is about to be removed.
    Removing(Written),
    /// It is gone.
    Removed(Written),
}

/// What kind of file a step is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Written {
    Credential,
    Journal,
}

/// Is told of every step. By default nobody listens.
#[derive(Clone, Default)]
pub struct Steps(Option<Arc<dyn Fn(Step) + Send + Sync>>);

// === impl Steps ===

impl Steps {
    pub fn new(told: impl Fn(Step) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(told)))
    }

    pub fn reached(&self, step: Step) {
        if let Some(told) = &self.0 {
            told(step);
        }
    }
}

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steps").field("heard", &self.0.is_some()).finish()
    }
}
