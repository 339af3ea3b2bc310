//! New accounts for the pool, and what becomes of those that leave it.

use std::{
    collections::{HashMap, hash_map::Entry as Place},
    sync::Arc,
};

use jiff::Timestamp;

use super::{Entry, Pool, Runtime, Snapshot};
use crate::domain::{
    account::{Account, AuthId},
    health::{Health, HealthRecord},
    reconcile::Change,
};

/// What is known of accounts that are not in the pool, until they come back or are purged.
#[derive(Debug, Default)]
pub(super) struct Aside {
    by_account: HashMap<AuthId, Arc<Runtime>>,
    /// Purged accounts with turns that still run.
    running_on: HashMap<AuthId, Arc<Runtime>>,
}

// === impl Pool ===

impl Pool {
    /// Replaces the accounts. One that stays or is renamed keeps its running state, one that was
    /// away gets it back, and one with a new credential is freed from what was held against the old
    /// one.
    pub fn publish(&self, mut accounts: Vec<Account>, changes: &[Change]) {
        let mut aside = self.aside.lock();
        let old = self.current.load();
        accounts.sort_by(|a, b| a.id.cmp(&b.id));
        accounts.dedup_by(|a, b| a.id == b.id);
        let runtime = |it: &Entry| (it.account.id.clone(), Arc::clone(&it.runtime));
        let mut here: HashMap<AuthId, Arc<Runtime>> = old.entries.iter().map(runtime).collect();
        for change in changes {
            match change {
                Change::Renamed { from, to } => aside.rename(&mut here, from, to),
                Change::Purged { id } => aside.purge(id),
                Change::Added { .. } | Change::Removed { .. } | Change::Updated { .. } => {}
            }
        }
        let entries = accounts.into_iter().map(|account| {
            let known = here.remove(&account.id).or_else(|| aside.take(&account.id));
            let runtime = known.unwrap_or_else(|| {
                let health = Health::new(account.credential.fingerprint);
                Arc::new(Runtime::new(account.id.clone(), health, HealthRecord::default()))
            });
            runtime.enter(&account, &self.keeper);
            Entry { account: Arc::new(account), runtime }
        });
        let new = Snapshot { revision: old.revision + 1, entries: entries.collect() };
        for (id, runtime) in here {
            runtime.leave();
            aside.by_account.insert(id, runtime);
        }
        aside.running_on.retain(|_, it| it.active_turns() > 0);
        self.current.store(Arc::new(new));
    }
}

// === impl Aside ===

impl Aside {
    /// Accounts that this process has not seen yet, and what was kept of their health.
    pub(super) fn restored(records: HashMap<AuthId, HealthRecord>, now: Timestamp) -> Self {
        let restored = records.into_iter().map(|(id, record)| {
            let health = Health::restore(&record, now);
            (id.clone(), Arc::new(Runtime::new(id, health, record)))
        });
        Self { by_account: restored.collect(), running_on: HashMap::new() }
    }

    pub(super) fn active_turns(&self) -> u32 {
        let runtimes = self.by_account.values().chain(self.running_on.values());
        runtimes.map(|it| it.active_turns()).sum()
    }

    fn take(&mut self, id: &AuthId) -> Option<Arc<Runtime>> {
        self.by_account.remove(id).or_else(|| self.running_on.remove(id))
    }

    /// Whoever had the new id before is gone for good: it was not in the pool.
    fn rename(&mut self, here: &mut HashMap<AuthId, Arc<Runtime>>, from: &AuthId, to: &AuthId) {
        let Some(runtime) = here.remove(from).or_else(|| self.take(from)) else { return };
        match here.entry(to.clone()) {
            Place::Vacant(place) => {
                place.insert(runtime);
                self.purge(to);
            }
            // The planner renames no account into one that is there.
            Place::Occupied(_) => {
                self.by_account.insert(from.clone(), runtime);
            }
        }
    }

    fn purge(&mut self, id: &AuthId) {
        if let Some(runtime) = self.by_account.remove(id) {
            runtime.forget();
            self.running_on.insert(id.clone(), runtime);
        }
    }
}
