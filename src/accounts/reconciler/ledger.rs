//! What is kept of accounts beyond their files: labels, pauses, and who is gone since when.
//!
//! The database holds the same. What it does not take is tried again at the next look, and until
//! then holds in memory.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use jiff::Timestamp;
use rand::Rng;

use crate::{
    accounts::{
        labels::{LabelError, Labels},
        store::{self, Entry, Known},
    },
    domain::{
        account::{AuthId, Label},
        reconcile::{Change, Held},
    },
    storage::{Storage, StorageError},
};

#[derive(Debug)]
pub struct Ledger {
    storage: Storage,
    labels: Labels,
    paused: BTreeSet<AuthId>,
    /// Accounts without a file, and since when, on the clock that nobody sets.
    tombstones: BTreeMap<AuthId, Duration>,
    /// What the database has not taken yet, in order.
    unsaved: Vec<Entry>,
    /// It was told that the database takes nothing.
    told: bool,
}

// === impl Ledger ===

impl Ledger {
    /// Takes over what the database holds. Until a file proves otherwise, every account is gone.
    pub fn new(storage: Storage, known: Vec<Known>, elapsed: Duration) -> Self {
        let mut ledger = Self {
            storage,
            labels: Labels::default(),
            paused: BTreeSet::new(),
            tombstones: BTreeMap::new(),
            unsaved: Vec::new(),
            told: false,
        };
        let mut labels = HashMap::new();
        for account in known {
            if account.paused {
                ledger.paused.insert(account.id.clone());
            }
            // Of others nothing is left to be purged.
            if !account.removed || account.has_rows {
                ledger.tombstones.insert(account.id.clone(), elapsed);
            }
            labels.insert(account.id, account.label);
        }
        ledger.labels = Labels::new(labels);
        ledger
    }

    /// Writes down who is still gone after the first look.
    pub(super) fn bury(&mut self) {
        self.unsaved.extend(self.tombstones.keys().cloned().map(Entry::Removed));
    }

    pub(super) fn paused(&self) -> &BTreeSet<AuthId> {
        &self.paused
    }

    pub(super) fn label(&self, id: &AuthId) -> Option<&Label> {
        self.labels.get(id)
    }

    /// The label of an account, a new one if it has none.
    pub(super) fn label_of(
        &mut self,
        id: &AuthId,
        random: &mut impl Rng,
    ) -> Result<Label, LabelError> {
        if let Some(label) = self.labels.get(id) {
            return Ok(label.clone());
        }
        let label = self.labels.mint(id, random)?;
        self.unsaved.push(Entry::Labelled(id.clone(), label.clone()));
        Ok(label)
    }

    /// Takes note of a change.
    pub(super) fn note(&mut self, change: &Change, elapsed: Duration) {
        match change {
            Change::Added { id, .. } => {
                self.tombstones.remove(id);
                if self.labels.get(id).is_some() {
                    self.unsaved.push(Entry::Returned(id.clone()));
                }
            }
            Change::Removed { id } => {
                self.tombstones.insert(id.clone(), elapsed);
                self.unsaved.push(Entry::Removed(id.clone()));
            }
            Change::Renamed { from, to } => {
                self.labels.rename(from, to);
                if self.paused.remove(from) {
                    self.paused.insert(to.clone());
                }
                self.tombstones.remove(from);
                self.tombstones.remove(to);
                self.unsaved.push(Entry::Renamed { from: from.clone(), to: to.clone() });
            }
            Change::Purged { id } => {
                self.tombstones.remove(id);
                self.unsaved.push(Entry::Purged(id.clone()));
            }
            Change::Updated { .. } => {}
        }
    }

    /// Accounts that have been gone for `grace` and that no unreadable file may describe.
    pub(super) fn due(&self, grace: Duration, held: &Held, elapsed: Duration) -> Vec<AuthId> {
        if held.everyone {
            return Vec::new();
        }
        let due = |(id, since): &(&AuthId, &Duration)| {
            **since + grace <= elapsed && !held.accounts.contains(*id)
        };
        self.tombstones.iter().filter(due).map(|(id, _)| id.clone()).collect()
    }

    /// When the next account will have been gone for `grace`, if that is to come.
    pub(super) fn next_due(&self, grace: Duration, elapsed: Duration) -> Option<Duration> {
        let due = self.tombstones.values().map(|since| *since + grace);
        due.filter(|due| *due > elapsed).min()
    }

    /// Keeps or lifts an operator's pause.
    ///
    /// # Errors
    /// If the database does not take it; nothing is changed then.
    pub(super) fn pause(
        &mut self,
        id: &AuthId,
        paused: bool,
        now: Timestamp,
    ) -> Result<(), StorageError> {
        // The row that is changed may not be there yet.
        self.save(now);
        let row = id.clone();
        self.storage.write_blocking(move |it| store::set_paused(it, &row, paused))?;
        if paused {
            self.paused.insert(id.clone());
        } else {
            self.paused.remove(id);
        }
        Ok(())
    }

    /// Has the database take what it has not taken yet.
    pub(super) fn save(&mut self, now: Timestamp) {
        if self.unsaved.is_empty() {
            return;
        }
        let entries = self.unsaved.clone();
        match self.storage.write_blocking(move |it| store::write(it, &entries, now)) {
            Ok(()) => {
                self.unsaved.clear();
                if self.told {
                    tracing::warn!("The database takes the accounts' changes again");
                }
                self.told = false;
            }
            Err(error) => {
                if !self.told {
                    tracing::error!(
                        code = "store_write_failed",
                        "Changes of accounts are kept in memory only and are tried again: {error}"
                    );
                }
                self.told = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rand::{SeedableRng, rngs::StdRng};

    use super::*;
    use crate::{domain::credential::Fingerprint, telemetry::metrics::Metrics};

    const GRACE: Duration = Duration::from_secs(60);

    fn id(digit: char) -> AuthId {
        AuthId::parse(&format!("acc_{}", digit.to_string().repeat(20))).unwrap()
    }

    fn storage(folder: &tempfile::TempDir) -> Storage {
        Storage::open(folder.path(), Arc::new(Metrics::new().unwrap())).unwrap()
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn reread(storage: &Storage) -> Vec<Known> {
        storage.write_blocking(|it| store::known(it)).unwrap()
    }

    fn batch(storage: &Storage, sql: &'static str) {
        storage.write_blocking(move |it| it.execute_batch(sql)).unwrap();
    }

    fn added(digit: char) -> Change {
        Change::Added { id: id(digit), fingerprint: Fingerprint::from_bytes([0; 16]) }
    }

    #[test]
    fn what_the_database_does_not_take_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let storage = storage(&folder);
        let mut ledger = Ledger::new(storage.clone(), Vec::new(), Duration::ZERO);
        batch(&storage, "ALTER TABLE accounts RENAME TO away");
        let label = ledger.label_of(&id('1'), &mut StdRng::seed_from_u64(1)).unwrap();
        ledger.save(Timestamp::UNIX_EPOCH);
        assert_eq!(ledger.label(&id('1')), Some(&label), "it holds in memory");
        assert!(
            ledger.pause(&id('1'), true, Timestamp::UNIX_EPOCH).is_err()
                && ledger.paused().is_empty()
        );
        batch(&storage, "ALTER TABLE away RENAME TO accounts");
        ledger.note(&Change::Removed { id: id('1') }, secs(1));
        ledger.save(Timestamp::UNIX_EPOCH);
        let kept = reread(&storage);
        assert_eq!((kept.len(), &kept[0].label, kept[0].removed), (1, &label, true));
    }

    #[test]
    fn whoever_is_gone_for_long_is_due_unless_a_file_may_be_theirs() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::new(storage(&folder), Vec::new(), Duration::ZERO);
        ledger.note(&Change::Removed { id: id('1') }, secs(10));
        ledger.note(&Change::Removed { id: id('2') }, secs(20));
        let nobody = Held::default();
        assert_eq!(ledger.next_due(GRACE, secs(20)), Some(secs(70)));
        assert!(ledger.due(GRACE, &nobody, secs(69)).is_empty());
        assert_eq!(ledger.due(GRACE, &nobody, secs(70)), [id('1')]);
        let one = Held { accounts: [id('1')].into(), everyone: false };
        assert_eq!(ledger.due(GRACE, &one, secs(80)), [id('2')]);
        let everyone = Held { accounts: BTreeSet::new(), everyone: true };
        assert!(ledger.due(GRACE, &everyone, secs(80)).is_empty());
        ledger.note(&added('1'), secs(80));
        ledger.note(&Change::Purged { id: id('2') }, secs(80));
        assert!(ledger.due(GRACE, &nobody, secs(999)).is_empty());
    }

    #[test]
    fn at_a_start_everybody_is_gone_until_a_file_proves_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let storage = storage(&folder);
        let mut first = Ledger::new(storage.clone(), Vec::new(), Duration::ZERO);
        for digit in ['1', '2'] {
            first.label_of(&id(digit), &mut rand::rng()).unwrap();
        }
        first.save(Timestamp::UNIX_EPOCH);
        let mut second = Ledger::new(storage.clone(), reread(&storage), secs(5));
        second.note(&added('1'), secs(5));
        second.bury();
        second.save(Timestamp::UNIX_EPOCH);
        assert_eq!(second.due(GRACE, &Held::default(), secs(65)), [id('2')]);
        let removed: Vec<AuthId> =
            reread(&storage).into_iter().filter(|it| it.removed).map(|it| it.id).collect();
        assert_eq!(removed, [id('2')]);
        // Of an account that was purged nothing is left to be purged again.
        second.note(&Change::Purged { id: id('2') }, secs(65));
        second.save(Timestamp::UNIX_EPOCH);
        let third = Ledger::new(storage.clone(), reread(&storage), Duration::ZERO);
        assert_eq!(third.due(GRACE, &Held::default(), secs(60)), [id('1')]);
    }
}
