//! A lease: one turn counted at its account.

use std::sync::Arc;

use super::Runtime;

/// Counts one turn as active at its account until it is dropped, however the turn ends.
#[derive(Debug)]
#[must_use = "an attempt counts only while its lease is held"]
pub struct Lease {
    pub(super) runtime: Arc<Runtime>,
    /// Which of the account's stays in the pool the lease was taken in.
    pub(super) incarnation: u64,
    stage: Stage,
}

/// How far an attempt has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Acquired,
    /// Bytes may have reached the upstream.
    Sending,
    /// Bytes of the answer went to the client.
    Committed,
}

// === impl Lease ===

impl Lease {
    /// `pick` counts the picks of the pool.
    pub(super) fn acquire(runtime: &Arc<Runtime>, pick: u64) -> Self {
        let incarnation = runtime.begin_turn(pick);
        Self { runtime: Arc::clone(runtime), incarnation, stage: Stage::Acquired }
    }

    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// The request may reach the upstream from now on.
    pub fn sending(&mut self) {
        self.stage = self.stage.max(Stage::Sending);
    }

    /// The answer reaches the client from now on.
    pub fn commit(&mut self) {
        self.stage = self.stage.max(Stage::Committed);
    }

    /// Ends the turn; the same as dropping the lease, said aloud.
    pub fn end(self) {}
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.runtime.end_turn();
    }
}
