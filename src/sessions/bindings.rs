//! Which account holds which session.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;

use super::{Digest, memory::Memory};
use crate::domain::{account::AuthId, reconcile::Change};

/// The bindings, and which of them are out of reach since their account is.
#[derive(Debug)]
pub(super) struct Bindings {
    memory: Memory<AuthId>,
    /// Accounts that are gone and may come back.
    hidden: HashSet<AuthId>,
    /// What accounts are called now that a turn may still know by an older id.
    renamed: HashMap<AuthId, AuthId>,
}

// === impl Bindings ===

impl Bindings {
    pub(super) fn new(max: usize) -> Self {
        Self { memory: Memory::new(max), hidden: HashSet::new(), renamed: HashMap::new() }
    }

    /// Takes a binding over from the database. It is out of reach until its account is seen.
    pub(super) fn restore(
        &mut self,
        digest: Digest,
        account: AuthId,
        now: Timestamp,
        until: Timestamp,
    ) {
        self.hidden.insert(account.clone());
        self.memory.put(digest, account, now, until);
    }

    pub(super) fn get(&mut self, digest: &Digest, now: Timestamp) -> Option<AuthId> {
        self.memory.get(digest, now).filter(|it| !self.hidden.contains(it))
    }

    /// Gives the account's id of today if the binding is new or has moved.
    pub(super) fn put(
        &mut self,
        digest: Digest,
        account: &AuthId,
        now: Timestamp,
        until: Timestamp,
    ) -> Option<AuthId> {
        let account = self.of_today(account).clone();
        let before = self.memory.put(digest, account.clone(), now, until);
        (before.as_ref() != Some(&account)).then_some(account)
    }

    /// The id that the account has now.
    pub(super) fn of_today<'a>(&'a self, account: &'a AuthId) -> &'a AuthId {
        self.renamed.get(account).unwrap_or(account)
    }

    pub(super) fn count(&self, now: Timestamp) -> HashMap<AuthId, usize> {
        let mut counts = HashMap::new();
        for account in self.memory.values(now).filter(|it| !self.hidden.contains(*it)) {
            *counts.entry(account.clone()).or_default() += 1;
        }
        counts
    }

    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Added { id, .. } => {
                self.hidden.remove(id);
                self.renamed.remove(id);
            }
            Change::Removed { id } => {
                self.hidden.insert(id.clone());
            }
            Change::Renamed { from, to } => {
                // What the new id held before is not the living account's.
                if self.hidden.remove(to) {
                    self.memory.forget(to);
                }
                self.hidden.remove(from);
                self.memory.replace(from, to);
                self.renamed.values_mut().filter(|it| *it == from).for_each(|it| *it = to.clone());
                self.renamed.remove(to);
                self.renamed.insert(from.clone(), to.clone());
            }
            // A turn that still runs with it may bind a session again: that stays out of reach.
            Change::Purged { id } => self.memory.forget(id),
            Change::Updated { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::domain::credential::Fingerprint;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn id(digit: char) -> AuthId {
        AuthId::parse(&format!("acc_{}", digit.to_string().repeat(20))).unwrap()
    }

    fn until() -> Timestamp {
        NOW + SignedDuration::from_hours(1)
    }

    fn added(digit: char) -> Change {
        Change::Added { id: id(digit), fingerprint: Fingerprint::from_bytes([0; 16]) }
    }

    /// One session, held by the account 1.
    fn bound() -> Bindings {
        let mut bindings = Bindings::new(10);
        assert_eq!(bindings.put([1; 32], &id('1'), NOW, until()), Some(id('1')));
        bindings
    }

    #[test]
    fn a_renewal_is_no_news_and_a_move_is() {
        let mut bindings = bound();
        assert_eq!(bindings.put([1; 32], &id('1'), NOW, until()), None);
        assert_eq!(bindings.put([1; 32], &id('2'), NOW, until()), Some(id('2')));
    }

    #[test]
    fn the_sessions_of_an_account_that_is_gone_come_back_with_it() {
        let mut bindings = bound();
        bindings.apply(&Change::Removed { id: id('1') });
        assert_eq!(bindings.get(&[1; 32], NOW), None);
        assert!(bindings.count(NOW).is_empty());
        bindings.apply(&added('1'));
        assert_eq!(bindings.get(&[1; 32], NOW), Some(id('1')));
        assert_eq!(bindings.count(NOW), HashMap::from([(id('1'), 1)]));
    }

    #[test]
    fn a_purge_is_for_good() {
        let mut bindings = bound();
        bindings.apply(&Change::Removed { id: id('1') });
        bindings.apply(&Change::Purged { id: id('1') });
        bindings.put([2; 32], &id('1'), NOW, until());
        assert!(bindings.count(NOW).is_empty(), "it is not back");
        bindings.apply(&added('1'));
        assert_eq!(bindings.get(&[1; 32], NOW), None);
    }

    #[test]
    fn sessions_follow_a_new_id_and_so_do_turns_that_know_the_old_one() {
        let mut bindings = bound();
        bindings.put([2; 32], &id('2'), NOW, until());
        bindings.apply(&Change::Removed { id: id('2') });
        bindings.apply(&Change::Renamed { from: id('1'), to: id('2') });
        assert_eq!(bindings.get(&[1; 32], NOW), Some(id('2')));
        assert_eq!(bindings.get(&[2; 32], NOW), None, "another account had the id before");
        assert_eq!(bindings.put([3; 32], &id('1'), NOW, until()), Some(id('2')));
        bindings.apply(&Change::Renamed { from: id('2'), to: id('3') });
        assert_eq!(bindings.put([4; 32], &id('1'), NOW, until()), Some(id('3')));
        bindings.apply(&added('1'));
        assert_eq!(bindings.put([5; 32], &id('1'), NOW, until()), Some(id('1')), "a new account");
    }

    #[test]
    fn what_was_kept_is_out_of_reach_until_its_account_is_seen() {
        let mut bindings = Bindings::new(10);
        bindings.restore([1; 32], id('1'), NOW, until());
        assert_eq!(bindings.get(&[1; 32], NOW), None);
        bindings.apply(&added('1'));
        assert_eq!(bindings.get(&[1; 32], NOW), Some(id('1')));
    }
}
