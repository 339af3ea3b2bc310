//! The accounts that may be picked, and what is known of them while the process runs.
//!
//! The accounts are an immutable snapshot that is swapped whole; what changes with each request lives
//! beside it, by account, and outlasts the swap. The locks are short and never held over an await.

mod keep;
mod lease;
mod publish;
mod runtime;

use std::{collections::HashMap, sync::Arc};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::{
    domain::{
        account::{Account, AuthId},
        credential::Fingerprint,
        health::{HealthRecord, Readiness, Report, Tier},
        reconcile::Change,
        select::{Candidate, Selection, select},
    },
    storage::Storage,
};

use self::{keep::Keeper, publish::Aside};

pub use self::{
    lease::{Lease, Stage},
    runtime::Runtime,
};

/// The pool.
#[derive(Debug)]
pub struct Pool {
    current: ArcSwap<Snapshot>,
    /// The number of picks so far; its lock makes a pick and its consequences one step.
    picks: Mutex<u64>,
    /// What is known of accounts that are not in the pool now. Its lock lets one publisher in at a
    /// time.
    aside: Mutex<Aside>,
    /// The last accounts that were renamed: the new id, and the one before.
    announced: ArcSwap<HashMap<AuthId, AuthId>>,
    keeper: Keeper,
}

/// The accounts at one moment, sorted by id.
#[derive(Debug, Default)]
pub struct Snapshot {
    pub revision: u64,
    pub entries: Vec<Entry>,
}

/// An account with its running state.
#[derive(Clone, Debug)]
pub struct Entry {
    pub account: Arc<Account>,
    pub runtime: Arc<Runtime>,
}

/// An account for one attempt.
#[derive(Debug)]
pub struct Pick {
    pub account: Arc<Account>,
    /// The standing by which it was picked.
    pub tier: Tier,
    pub lease: Lease,
}

// === impl Pool ===

impl Pool {
    /// A pool that keeps nothing beyond the process.
    pub fn new() -> Self {
        Self::with(Keeper::nowhere(), Aside::default())
    }

    /// A pool that keeps what is held against its accounts, and begins with what was kept before.
    pub fn kept(storage: Storage, records: HashMap<AuthId, HealthRecord>, now: Timestamp) -> Self {
        Self::with(Keeper::in_database(storage), Aside::restored(records, now))
    }

    fn with(keeper: Keeper, aside: Aside) -> Self {
        Self {
            current: ArcSwap::from_pointee(Snapshot::default()),
            picks: Mutex::new(0),
            announced: ArcSwap::default(),
            aside: Mutex::new(aside),
            keeper,
        }
    }

    /// Says what accounts will be called, before anybody else names them so. Whoever holds a
    /// snapshot from before finds them by the new name too.
    pub fn announce(&self, changes: &[Change]) {
        let renamed: HashMap<AuthId, AuthId> = changes
            .iter()
            .filter_map(|change| match change {
                Change::Renamed { from, to } => Some((to.clone(), from.clone())),
                Change::Added { .. }
                | Change::Removed { .. }
                | Change::Updated { .. }
                | Change::Purged { .. } => None,
            })
            .collect();
        if !renamed.is_empty() {
            self.announced.store(Arc::new(renamed));
        }
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Picks an account and takes its lease, in one step. `None` if no account may serve that
    /// `tried` does not name.
    pub fn pick(&self, snapshot: &Snapshot, tried: &[AuthId], now: Timestamp) -> Option<Pick> {
        let mut picks = self.picks.lock();
        let candidates = snapshot.entries.iter().map(|entry| entry.candidate(tried, now));
        let Selection::Use { index, tier } = select(candidates) else {
            return None;
        };
        let entry = snapshot.entries.get(index)?;
        Some(entry.lease(tier, &mut picks))
    }

    /// Takes the lease of this very account. `None` if it may not serve now.
    pub fn take(&self, snapshot: &Snapshot, id: &AuthId, now: Timestamp) -> Option<Pick> {
        let mut picks = self.picks.lock();
        let entry = snapshot.find(id).or_else(|| snapshot.find(self.announced.load().get(id)?))?;
        let tier = entry.candidate(&[], now).tier?;
        Some(entry.lease(tier, &mut picks))
    }

    /// Takes in the end of the attempt that holds the lease. It says nothing about an account that
    /// has left the pool since, even if it is back.
    pub fn report(&self, lease: &Lease, report: &Report, now: Timestamp) {
        lease.runtime.change(&self.keeper, |health, incarnation| {
            if incarnation == lease.incarnation {
                health.apply(report, now);
            }
        });
    }

    /// Holds a credential for refused, without an attempt: its refresh token is dead. Another
    /// credential than the one in use is not concerned.
    pub fn reject(&self, id: &AuthId, fingerprint: Fingerprint) {
        if let Some(entry) = self.current.load().find(id) {
            entry.runtime.change(&self.keeper, |health, _| health.reject(fingerprint));
        }
    }

    /// Ends every rest of an account, at an operator's word. `false` if the pool does not have it.
    pub fn clear_cooldown(&self, id: &AuthId) -> bool {
        let current = self.current.load();
        let Some(entry) = current.find(id) else { return false };
        entry.runtime.change(&self.keeper, |health, _| health.clear_cooldown());
        true
    }

    /// Turns that hold a lease of any account, also of one that has left the pool since.
    pub fn active_turns(&self) -> u32 {
        let aside = self.aside.lock().active_turns();
        let here = self.current.load().entries.iter().map(|it| it.runtime.active_turns()).sum();
        aside.saturating_add(here)
    }

    /// Every account of the snapshot and whether it may serve; one that is switched off may not,
    /// whatever its readiness.
    pub fn census(&self, snapshot: &Snapshot, now: Timestamp) -> Vec<(Arc<Account>, Readiness)> {
        let one = |entry: &Entry| (Arc::clone(&entry.account), entry.runtime.readiness(now));
        snapshot.entries.iter().map(one).collect()
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

// === impl Snapshot ===

impl Snapshot {
    pub fn find(&self, id: &AuthId) -> Option<&Entry> {
        let place = self.entries.binary_search_by(|entry| entry.account.id.cmp(id)).ok()?;
        self.entries.get(place)
    }
}

// === impl Entry ===

impl Entry {
    /// Takes a lease, as the newest of all picks.
    fn lease(&self, tier: Tier, picks: &mut u64) -> Pick {
        *picks += 1;
        let lease = Lease::acquire(&self.runtime, *picks);
        Pick { account: Arc::clone(&self.account), tier, lease }
    }

    fn candidate(&self, tried: &[AuthId], now: Timestamp) -> Candidate<'_> {
        let runtime = &self.runtime;
        Candidate {
            id: &self.account.id,
            tier: runtime.tier(now).filter(|_| self.account.eligibility.is_open()),
            tried: tried.contains(&self.account.id),
            active_turns: runtime.active_turns(),
            last_used: runtime.last_used(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::domain::{
        account::{AccountId, Label},
        credential::{AccessToken, Credential},
        identity::{Claims, Login, LoginFile, PathId, resolve},
        outcome::{Class, ErrorFacts},
        reconcile::Change,
    };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn file(path: &str, account: &str, token: &str) -> LoginFile {
        let login = Login {
            top_account_id: AccountId::parse(account),
            tokens_account_id: None,
            id_token: Claims::default(),
            access_token: Claims::default(),
            email: None,
            credential: Credential::new(AccessToken::new(token.into()).unwrap(), None),
            enabled: true,
        };
        LoginFile::new(PathId::from_relative(Path::new(path)), login)
    }

    fn accounts(files: Vec<LoginFile>) -> Vec<Account> {
        let label = Label::parse("paaaaaa").unwrap();
        resolve(files, at(0)).into_iter().map(|it| it.labelled(label.clone())).collect()
    }

    /// One account for each letter.
    fn pool(letters: &str) -> Pool {
        let pool = Pool::new();
        pool.publish(named(letters), &[]);
        pool
    }

    fn named(letters: &str) -> Vec<Account> {
        let one = |letter: char| file(&letter.to_string(), &letter.to_string(), "token");
        accounts(letters.chars().map(one).collect())
    }

    fn name(account: &Account) -> String {
        account.account_id.as_ref().unwrap().as_str().to_owned()
    }

    fn pick(pool: &Pool, now: i64) -> Option<Pick> {
        pool.pick(&pool.snapshot(), &[], at(now))
    }

    fn report(pick: &Pick, class: Class, started: i64) -> Report {
        Report {
            class,
            retry_after: None,
            facts: ErrorFacts::default(),
            started_at: at(started),
            fingerprint: pick.account.credential.fingerprint,
        }
    }

    fn active(pool: &Pool) -> u32 {
        pool.snapshot().entries.iter().map(|it| it.runtime.active_turns()).sum()
    }

    fn readiness(pool: &Pool, account: &AuthId, now: i64) -> Readiness {
        pool.snapshot().find(account).unwrap().runtime.readiness(at(now))
    }

    #[test]
    fn three_copies_of_one_account_weigh_no_more_than_one_file() {
        for hold in [false, true] {
            let pool = Pool::new();
            let copies = [("1", "A"), ("2", "A"), ("3", "A"), ("4", "B")];
            let files = copies.map(|(path, account)| file(path, account, path));
            pool.publish(accounts(files.to_vec()), &[]);
            let (mut of_a, mut held) = (0, Vec::new());
            for _ in 0..1_000 {
                let pick = pick(&pool, 0).unwrap();
                of_a += u32::from(name(&pick.account) == "A");
                held.extend(hold.then_some(pick));
            }
            assert_eq!(of_a, 500);
        }
    }

    #[test]
    fn whoever_runs_fewer_turns_is_picked() {
        let pool = pool("AB");
        let first = pick(&pool, 0).unwrap();
        let second = pick(&pool, 0).unwrap();
        assert_ne!(first.account.id, second.account.id);
        drop(second);
        let third = pick(&pool, 0).unwrap();
        assert_ne!(first.account.id, third.account.id);
    }

    #[test]
    fn a_lease_is_given_back_at_whatever_stage_it_ends() {
        let pool = pool("A");
        let stages: [fn(&mut Lease); 3] = [|_| {}, Lease::sending, Lease::commit];
        for (stage, wanted) in
            stages.into_iter().zip([Stage::Acquired, Stage::Sending, Stage::Committed])
        {
            let mut lease = pick(&pool, 0).unwrap().lease;
            stage(&mut lease);
            assert_eq!((lease.stage(), active(&pool)), (wanted, 1));
            lease.sending();
            assert!(lease.stage() >= wanted, "no way back");
            drop(lease);
            assert_eq!(active(&pool), 0);
        }
        pick(&pool, 0).unwrap().lease.end();
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _pick = pick(&pool, 0).unwrap();
            panic!("a turn breaks off");
        }));
        assert!(broken.is_err());
        assert_eq!(active(&pool), 0);
    }

    #[test]
    fn each_account_is_tried_once() {
        let pool = pool("ABC");
        let mut tried = Vec::new();
        while let Some(pick) = pool.pick(&pool.snapshot(), &tried, at(0)) {
            tried.push(pick.account.id.clone());
        }
        tried.sort();
        tried.dedup();
        assert_eq!(tried.len(), 3);
    }

    #[test]
    fn a_cooling_account_is_passed_over_until_its_time() {
        let pool = pool("A");
        let first = pick(&pool, 0).unwrap();
        pool.report(&first.lease, &report(&first, Class::Quota, 0), at(0));
        assert!(pick(&pool, 59).is_none());
        assert!(pick(&pool, 60).is_some());
    }

    #[test]
    fn an_avoided_account_is_picked_last() {
        let pool = pool("AB");
        let first = pick(&pool, 0).unwrap();
        pool.report(&first.lease, &report(&first, Class::Transient, 0), at(0));
        let other = pick(&pool, 1).unwrap();
        assert_eq!((other.tier, other.account.id == first.account.id), (Tier::Ready, false));
        let tried = [other.account.id.clone()];
        let last = pool.pick(&pool.snapshot(), &tried, at(1)).unwrap();
        assert_eq!((last.tier, &last.account.id), (Tier::Avoid, &first.account.id));
    }

    #[test]
    fn running_state_outlasts_a_new_snapshot() {
        let pool = pool("AB");
        let held = pick(&pool, 0).unwrap();
        pool.report(&held.lease, &report(&held, Class::Quota, 0), at(0));
        pool.publish(named("ABC"), &[]);
        let snapshot = pool.snapshot();
        assert_eq!((snapshot.revision, snapshot.entries.len(), active(&pool)), (2, 3, 1));
        assert!(matches!(readiness(&pool, &held.account.id, 1), Readiness::Cooling { .. }));
        drop(held);
        assert_eq!(active(&pool), 0, "a lease of the old snapshot counts in the new one");
    }

    #[test]
    fn a_new_credential_ends_a_rejection() {
        let pool = pool("A");
        let held = pick(&pool, 0).unwrap();
        let refused = report(&held, Class::Credential, 0);
        pool.report(&held.lease, &refused, at(0));
        assert_eq!(readiness(&pool, &held.account.id, 9), Readiness::NeedsLogin);
        pool.publish(named("A"), &[]);
        assert!(pick(&pool, 9).is_none(), "the same credential is no new one");
        pool.publish(accounts(vec![file("a", "A", "renewed")]), &[]);
        assert!(pick(&pool, 9).is_some());
        // The old credential is refused once more, by a request that had it in hand.
        pool.report(&held.lease, &refused, at(9));
        assert_eq!(readiness(&pool, &held.account.id, 9), Readiness::Ready);
    }

    #[test]
    fn an_account_is_found_by_its_new_id_before_the_pool_shows_it() {
        let pool = pool("A");
        let before = pool.snapshot();
        let from = before.entries[0].account.id.clone();
        let mut renamed = named("A");
        renamed[0].id = AuthId::parse("acc_00000000000000000000").unwrap();
        let to = renamed[0].id.clone();
        let changes = [Change::Renamed { from: from.clone(), to: to.clone() }];
        assert!(pool.take(&before, &to, at(0)).is_none(), "nobody has said so yet");
        pool.announce(&changes);
        assert_eq!(pool.take(&before, &to, at(0)).unwrap().account.id, from);
        pool.publish(renamed, &changes);
        let late = pool.take(&before, &to, at(0)).unwrap();
        assert_eq!(late.account.id, from, "a request may still hold the snapshot from before");
        assert_eq!(pool.take(&pool.snapshot(), &to, at(0)).unwrap().account.id, to);
        assert_eq!(active(&pool), 1, "its turn counts under the new id");
    }

    #[test]
    fn an_old_snapshot_does_not_bring_back_who_was_switched_off_or_removed() {
        let pool = pool("AB");
        let old = pool.snapshot();
        let mut accounts = named("A");
        accounts[0].eligibility.disabled = true;
        pool.publish(accounts, &[]);
        assert!(pool.pick(&old, &[], at(0)).is_none());
        pool.publish(named("A"), &[]);
        assert_eq!(name(&pool.pick(&old, &[], at(0)).unwrap().account), "A");
    }

    #[test]
    fn a_report_about_an_account_that_is_gone_is_no_fault() {
        let pool = pool("A");
        let held = pick(&pool, 0).unwrap();
        pool.publish(Vec::new(), &[]);
        pool.report(&held.lease, &report(&held, Class::Quota, 0), at(0));
        pool.publish(named("A"), &[]);
        assert_eq!(readiness(&pool, &held.account.id, 0), Readiness::Ready);
    }

    #[test]
    fn an_account_that_comes_back_has_its_rest_and_its_turns_and_no_old_debts() {
        let pool = pool("A");
        let (resting, running) = (pick(&pool, 0).unwrap(), pick(&pool, 0).unwrap());
        pool.report(&resting.lease, &report(&resting, Class::Quota, 0), at(0));
        pool.publish(Vec::new(), &[]);
        assert_eq!(pool.active_turns(), 2, "they run on");
        pool.publish(named("A"), &[]);
        assert!(matches!(readiness(&pool, &resting.account.id, 1), Readiness::Cooling { .. }));
        assert_eq!(active(&pool), 2);
        // The turn began before the account left: it neither blames nor clears.
        pool.report(&running.lease, &report(&running, Class::Credential, 1), at(1));
        pool.report(&running.lease, &report(&running, Class::Success, 1), at(1));
        assert!(matches!(readiness(&pool, &resting.account.id, 1), Readiness::Cooling { .. }));
        drop(running);
        assert_eq!(active(&pool), 1);
        let fresh = pick(&pool, 60).unwrap();
        pool.report(&fresh.lease, &report(&fresh, Class::Credential, 60), at(60));
        assert_eq!(readiness(&pool, &fresh.account.id, 60), Readiness::NeedsLogin);
    }

    #[test]
    fn a_purged_account_begins_anew_but_its_turns_still_count() {
        let pool = pool("A");
        let held = pick(&pool, 0).unwrap();
        let id = held.account.id.clone();
        pool.report(&held.lease, &report(&held, Class::Quota, 0), at(0));
        pool.publish(Vec::new(), &[Change::Removed { id: id.clone() }]);
        pool.publish(Vec::new(), &[Change::Purged { id: id.clone() }]);
        assert_eq!(pool.active_turns(), 1);
        pool.publish(named("A"), &[]);
        assert_eq!((readiness(&pool, &id, 1), active(&pool)), (Readiness::Ready, 1));
        pool.report(&held.lease, &report(&held, Class::Quota, 2), at(2));
        assert_eq!(readiness(&pool, &id, 2), Readiness::Ready);
    }

    #[test]
    fn running_state_follows_an_account_to_its_new_id() {
        let pool = Pool::new();
        // A blank account id is none, so the path names the account.
        let unknown = accounts(vec![file("a", "", "token")]);
        pool.publish(unknown, &[]);
        let held = pick(&pool, 0).unwrap();
        pool.report(&held.lease, &report(&held, Class::Quota, 0), at(0));
        let (from, known) = (held.account.id.clone(), named("A"));
        let to = known[0].id.clone();
        pool.publish(known, &[Change::Renamed { from: from.clone(), to: to.clone() }]);
        assert!(matches!(readiness(&pool, &to, 1), Readiness::Cooling { .. }));
        assert_eq!(active(&pool), 1);
        pool.report(&held.lease, &report(&held, Class::Success, 1), at(1));
        assert_eq!(readiness(&pool, &to, 1), Readiness::Ready, "the turn is still the account's");
        assert!(pool.snapshot().find(&from).is_none());
    }

    #[test]
    fn an_operator_ends_a_rest() {
        let pool = pool("A");
        let held = pick(&pool, 0).unwrap();
        pool.report(&held.lease, &report(&held, Class::Quota, 0), at(0));
        assert!(pool.clear_cooldown(&held.account.id));
        assert_eq!(readiness(&pool, &held.account.id, 1), Readiness::Ready);
        pool.publish(Vec::new(), &[]);
        assert!(!pool.clear_cooldown(&held.account.id));
    }

    #[test]
    fn the_census_names_everyone() {
        let pool = pool("AB");
        let held = pick(&pool, 0).unwrap();
        pool.report(&held.lease, &report(&held, Class::Workspace, 0), at(0));
        let census = pool.census(&pool.snapshot(), at(0));
        let ready = census.iter().filter(|it| it.1 == Readiness::Ready).count();
        assert_eq!((census.len(), ready), (2, 1));
    }

    /// One step of a request, for the test below.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Pick,
        Refused,
        Succeeded,
        Publish,
    }

    #[test]
    fn whatever_the_order_of_two_requests_no_turn_is_lost_and_no_rest_is_cut_short() {
        use Step::{Pick as P, Publish, Refused, Succeeded};
        // Two requests and a publisher, in every order that keeps each one's own.
        let (one, two, other) = ([P, Refused], [P, Succeeded], [Publish]);
        let mut orders = 0;
        for mask in 0..3_usize.pow(5) {
            let turns: Vec<usize> = (0..5).map(|at| mask / 3_usize.pow(at) % 3).collect();
            let count = |who| turns.iter().filter(|it| **it == who).count();
            if [count(0), count(1), count(2)] != [2, 2, 1] {
                continue;
            }
            orders += 1;
            let pool = pool("A");
            let (mut places, mut held) = ([0; 3], [None, None]);
            let (mut refused_at, mut started) = (None, [0; 2]);
            for (now, who) in (0..).zip(turns) {
                let step = [&one[..], &two, &other][who][places[who]];
                places[who] += 1;
                match step {
                    P => {
                        held[who] = pick(&pool, now);
                        started[who] = now;
                        assert_eq!(held[who].is_some(), refused_at.is_none(), "a rest holds");
                    }
                    Publish => pool.publish(named("A"), &[]),
                    Refused | Succeeded => {
                        let Some(pick) = held[who].take() else { continue };
                        let refused = matches!(step, Refused);
                        let class = if refused { Class::Quota } else { Class::Success };
                        pool.report(&pick.lease, &report(&pick, class, started[who]), at(now));
                        refused_at = if refused { Some(now) } else { refused_at };
                    }
                }
                let leases = held.iter().flatten().count();
                assert_eq!(active(&pool), u32::try_from(leases).unwrap());
            }
            assert!(refused_at.is_some() && pick(&pool, 5).is_none(), "the refusal outlasts all");
        }
        assert_eq!(orders, 30);
    }
}
