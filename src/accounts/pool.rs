//! The accounts that may be picked, and what is known of them while the process runs.
//!
//! The accounts are an immutable snapshot that is swapped whole; what changes with each request lives
//! beside it, by account, and outlasts the swap. The locks are short and never held over an await.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::domain::{
    account::{Account, AuthId},
    health::{Health, Readiness, Report, Tier},
    select::{Candidate, Selection, select},
};

/// The pool.
#[derive(Debug)]
pub struct Pool {
    current: ArcSwap<Snapshot>,
    /// The number of picks so far; its lock makes a pick and its consequences one step.
    picks: Mutex<u64>,
    /// Lets one publisher in at a time.
    publishing: Mutex<()>,
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

/// What is known of an account while the process runs.
#[derive(Debug)]
pub struct Runtime {
    /// Whether the newest snapshot lets the account be picked. An older snapshot that a request
    /// still holds must not bring back what was switched off or removed since.
    selectable: AtomicBool,
    active_turns: AtomicU32,
    last_used: AtomicU64,
    health: Mutex<Health>,
}

/// An account for one attempt.
#[derive(Debug)]
pub struct Pick {
    pub account: Arc<Account>,
    /// The standing by which it was picked.
    pub tier: Tier,
    pub lease: Lease,
}

/// Counts one turn as active at its account until it is dropped, however the turn ends.
#[derive(Debug)]
#[must_use = "an attempt counts only while its lease is held"]
pub struct Lease {
    runtime: Arc<Runtime>,
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

// === impl Pool ===

impl Pool {
    pub fn new() -> Self {
        Self {
            current: ArcSwap::from_pointee(Snapshot::default()),
            picks: Mutex::new(0),
            publishing: Mutex::new(()),
        }
    }

    /// Replaces the accounts. An account that stays keeps its running state; one with a new
    /// credential is freed from what was held against the old one.
    pub fn publish(&self, mut accounts: Vec<Account>) {
        let _one_at_a_time = self.publishing.lock();
        let old = self.current.load();
        accounts.sort_by(|a, b| a.id.cmp(&b.id));
        accounts.dedup_by(|a, b| a.id == b.id);
        let entries = accounts.into_iter().map(|account| {
            let kept = old.find(&account.id).map(|it| Arc::clone(&it.runtime));
            let fingerprint = account.credential.fingerprint;
            let runtime = kept.unwrap_or_else(|| Arc::new(Runtime::new(Health::new(fingerprint))));
            runtime.health.lock().adopt(fingerprint);
            runtime.selectable.store(account.enabled, Ordering::Release);
            Entry { account: Arc::new(account), runtime }
        });
        let new = Snapshot { revision: old.revision + 1, entries: entries.collect() };
        for gone in old.entries.iter().filter(|it| new.find(&it.account.id).is_none()) {
            gone.runtime.selectable.store(false, Ordering::Release);
        }
        self.current.store(Arc::new(new));
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
        let entry = snapshot.find(id)?;
        let tier = entry.candidate(&[], now).tier?;
        Some(entry.lease(tier, &mut picks))
    }

    /// Takes in the end of an attempt. An account that is gone needs no report.
    pub fn report(&self, id: &AuthId, report: &Report, now: Timestamp) {
        if let Some(entry) = self.current.load().find(id) {
            entry.runtime.health.lock().apply(report, now);
        }
    }

    /// Turns that hold a lease of any account of the newest snapshot.
    pub fn active_turns(&self) -> u32 {
        self.current.load().entries.iter().map(|entry| entry.runtime.active_turns()).sum()
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
        self.runtime.last_used.store(*picks, Ordering::Relaxed);
        let lease = Lease::acquire(&self.runtime);
        Pick { account: Arc::clone(&self.account), tier, lease }
    }

    fn candidate(&self, tried: &[AuthId], now: Timestamp) -> Candidate<'_> {
        let runtime = &self.runtime;
        Candidate {
            id: &self.account.id,
            tier: runtime.tier(now).filter(|_| self.account.enabled),
            tried: tried.contains(&self.account.id),
            active_turns: runtime.active_turns(),
            last_used: runtime.last_used.load(Ordering::Relaxed),
        }
    }
}

// === impl Runtime ===

impl Runtime {
    fn new(health: Health) -> Self {
        Self {
            selectable: AtomicBool::new(false),
            active_turns: AtomicU32::new(0),
            last_used: AtomicU64::new(0),
            health: Mutex::new(health),
        }
    }

    pub fn active_turns(&self) -> u32 {
        self.active_turns.load(Ordering::Relaxed)
    }

    pub fn readiness(&self, now: Timestamp) -> Readiness {
        self.health.lock().readiness(now)
    }

    fn tier(&self, now: Timestamp) -> Option<Tier> {
        if !self.selectable.load(Ordering::Acquire) {
            return None;
        }
        self.health.lock().tier(now)
    }
}

// === impl Lease ===

impl Lease {
    fn acquire(runtime: &Arc<Runtime>) -> Self {
        runtime.active_turns.fetch_add(1, Ordering::Relaxed);
        Self { runtime: Arc::clone(runtime), stage: Stage::Acquired }
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
        self.runtime.active_turns.fetch_sub(1, Ordering::Relaxed);
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
        LoginFile { path: PathId::from_relative(Path::new(path)), login }
    }

    fn accounts(files: Vec<LoginFile>) -> Vec<Account> {
        let label = Label::parse("paaaaaa").unwrap();
        resolve(files, at(0)).into_iter().map(|it| it.labelled(label.clone())).collect()
    }

    /// One account for each letter.
    fn pool(letters: &str) -> Pool {
        let pool = Pool::new();
        pool.publish(named(letters));
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
            pool.publish(accounts(files.to_vec()));
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
        pool.report(&first.account.id, &report(&first, Class::Quota, 0), at(0));
        assert!(pick(&pool, 59).is_none());
        assert!(pick(&pool, 60).is_some());
    }

    #[test]
    fn an_avoided_account_is_picked_last() {
        let pool = pool("AB");
        let first = pick(&pool, 0).unwrap();
        pool.report(&first.account.id, &report(&first, Class::Transient, 0), at(0));
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
        pool.report(&held.account.id, &report(&held, Class::Quota, 0), at(0));
        pool.publish(named("ABC"));
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
        pool.report(&held.account.id, &refused, at(0));
        assert_eq!(readiness(&pool, &held.account.id, 9), Readiness::NeedsLogin);
        pool.publish(named("A"));
        assert!(pick(&pool, 9).is_none(), "the same credential is no new one");
        pool.publish(accounts(vec![file("a", "A", "renewed")]));
        assert!(pick(&pool, 9).is_some());
        // The old credential is refused once more, by a request that had it in hand.
        pool.report(&held.account.id, &refused, at(9));
        assert_eq!(readiness(&pool, &held.account.id, 9), Readiness::Ready);
    }

    #[test]
    fn an_old_snapshot_does_not_bring_back_who_was_switched_off_or_removed() {
        let pool = pool("AB");
        let old = pool.snapshot();
        let mut accounts = named("A");
        accounts[0].enabled = false;
        pool.publish(accounts);
        assert!(pool.pick(&old, &[], at(0)).is_none());
        pool.publish(named("A"));
        assert_eq!(name(&pool.pick(&old, &[], at(0)).unwrap().account), "A");
    }

    #[test]
    fn a_report_about_an_account_that_is_gone_is_no_fault() {
        let pool = pool("A");
        let held = pick(&pool, 0).unwrap();
        pool.publish(Vec::new());
        pool.report(&held.account.id, &report(&held, Class::Quota, 0), at(0));
        pool.publish(named("A"));
        assert_eq!(readiness(&pool, &held.account.id, 0), Readiness::Ready);
    }

    #[test]
    fn the_census_names_everyone() {
        let pool = pool("AB");
        let held = pick(&pool, 0).unwrap();
        pool.report(&held.account.id, &report(&held, Class::Workspace, 0), at(0));
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
                    Publish => pool.publish(named("A")),
                    Refused | Succeeded => {
                        let Some(pick) = held[who].take() else { continue };
                        let refused = matches!(step, Refused);
                        let class = if refused { Class::Quota } else { Class::Success };
                        pool.report(&pick.account.id, &report(&pick, class, started[who]), at(now));
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
