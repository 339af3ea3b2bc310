//! What is known of one account while the process runs.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use jiff::Timestamp;
use parking_lot::Mutex;

use super::keep::Keeper;
use crate::domain::{
    account::{Account, AuthId},
    credential::Fingerprint,
    health::{Cooldown, Health, HealthRecord, Readiness, Tier},
};

/// What is known of an account while the process runs.
#[derive(Debug)]
pub struct Runtime {
    /// Whether the newest snapshot lets the account be picked. An older snapshot that a request
    /// still holds must not bring back what was switched off or removed since.
    selectable: AtomicBool,
    active_turns: AtomicU32,
    last_used: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The account's id as the newest snapshot has it.
    id: AuthId,
    /// Counts how often the account has left the pool.
    incarnation: u64,
    health: Health,
    /// What was kept of it last.
    kept: HealthRecord,
}

// === impl Runtime ===

impl Runtime {
    /// `kept` is what the database holds of the health.
    pub(super) fn new(id: AuthId, health: Health, kept: HealthRecord) -> Self {
        Self {
            selectable: AtomicBool::new(false),
            active_turns: AtomicU32::new(0),
            last_used: AtomicU64::new(0),
            state: Mutex::new(State { id, incarnation: 0, health, kept }),
        }
    }

    pub fn active_turns(&self) -> u32 {
        self.active_turns.load(Ordering::Relaxed)
    }

    pub fn readiness(&self, now: Timestamp) -> Readiness {
        self.state.lock().health.readiness(now)
    }

    /// The rest that lasts longest, for operators.
    pub fn cooldown(&self, now: Timestamp) -> Option<Cooldown> {
        self.state.lock().health.cooldown(now)
    }

    pub(super) fn last_used(&self) -> u64 {
        self.last_used.load(Ordering::Relaxed)
    }

    pub(super) fn tier(&self, now: Timestamp) -> Option<Tier> {
        if !self.selectable.load(Ordering::Acquire) {
            return None;
        }
        self.state.lock().health.tier(now)
    }

    /// Gives the incarnation that the turn belongs to.
    pub(super) fn begin_turn(&self, pick: u64) -> u64 {
        self.last_used.store(pick, Ordering::Relaxed);
        self.active_turns.fetch_add(1, Ordering::Relaxed);
        self.state.lock().incarnation
    }

    pub(super) fn end_turn(&self) {
        self.active_turns.fetch_sub(1, Ordering::Relaxed);
    }

    /// Changes the health, and has kept what is to be kept of it. The change learns the
    /// incarnation.
    pub(super) fn change<T>(
        &self,
        keeper: &Keeper,
        change: impl FnOnce(&mut Health, u64) -> T,
    ) -> T {
        let mut state = self.state.lock();
        let State { incarnation, health, .. } = &mut *state;
        let outcome = change(health, *incarnation);
        state.keep(keeper);
        outcome
    }

    /// The account is in the pool from now on, or goes on being there.
    pub(super) fn enter(&self, account: &Account, keeper: &Keeper) {
        let mut state = self.state.lock();
        if state.id != account.id {
            state.id = account.id.clone();
            // What was kept under the other id may not have followed.
            state.kept = HealthRecord::default();
        }
        state.health.adopt(account.credential.fingerprint);
        state.keep(keeper);
        self.selectable.store(account.eligibility.is_open(), Ordering::Release);
    }

    /// The account is not in the pool any more. What runs with it says nothing about it from now on.
    pub(super) fn leave(&self) {
        self.selectable.store(false, Ordering::Release);
        self.state.lock().incarnation += 1;
    }

    /// Nothing is known of the account any more but the turns that still run.
    pub(super) fn forget(&self) {
        let mut state = self.state.lock();
        state.health = Health::new(Fingerprint::from_bytes([0; 16]));
        state.kept = HealthRecord::default();
        self.last_used.store(0, Ordering::Relaxed);
    }
}

// === impl State ===

impl State {
    fn keep(&mut self, keeper: &Keeper) {
        let record = self.health.record();
        if record != self.kept {
            keeper.keep(&self.id, &record);
            self.kept = record;
        }
    }
}
