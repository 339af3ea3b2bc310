//! Where the pool keeps what is held against accounts, so that a restart does not forget it.

use crate::{
    accounts::store,
    domain::{account::AuthId, health::HealthRecord},
    storage::Storage,
};

/// Queues records for the database. No request waits for it.
#[derive(Debug)]
pub(super) struct Keeper(Option<Storage>);

// === impl Keeper ===

impl Keeper {
    pub(super) fn nowhere() -> Self {
        Self(None)
    }

    pub(super) fn in_database(storage: Storage) -> Self {
        Self(Some(storage))
    }

    pub(super) fn keep(&self, account: &AuthId, record: &HealthRecord) {
        if let Some(storage) = &self.0 {
            let (account, record) = (account.clone(), record.clone());
            storage.queue(move |connection| store::save_health(connection, &account, &record));
        }
    }
}
