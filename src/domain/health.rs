//! What the answers of the upstream say about an account's fitness. Pure.
//!
//! The facts are kept apart, since each is cleared by something else: a rejected credential by a new
//! one, a lock by its deadline, a transient failure by a success. A report counts only if it is about
//! the credential in use, and a success clears only what was seen before its request began.

mod cooldown;
mod record;

use jiff::{SignedDuration, Timestamp};

use super::{
    credential::Fingerprint,
    outcome::{Class, ErrorFacts},
};

pub use self::{
    cooldown::{Cooldown, CooldownSource},
    record::{BlockRecord, HealthRecord, QuotaRecord},
};

/// How long a refusal without a usable time rests the account.
const COOLDOWN_DEFAULT: SignedDuration = SignedDuration::from_secs(60);

/// The longest `Retry-After` that is believed.
const RETRY_AFTER_MAX: SignedDuration = SignedDuration::from_hours(24);

/// The farthest reset that is believed: the longest window lasts a week.
const RESET_MAX: SignedDuration = SignedDuration::from_hours(8 * 24);

/// How long an account is avoided after its first, second, … transient failure in a row.
const AVOID: [SignedDuration; 4] = [
    SignedDuration::from_secs(5),
    SignedDuration::from_secs(30),
    SignedDuration::from_mins(2),
    SignedDuration::from_mins(10),
];

/// What is known about an account beside its files.
#[derive(Clone, Debug)]
pub struct Health {
    /// The credential in use; reports about another one say nothing about this one.
    credential: Fingerprint,
    rejected: bool,
    quota: Option<QuotaLock>,
    workspace: Option<Block>,
    transient: Option<Backoff>,
}

/// Whether an account may serve now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// It failed a moment ago: it serves if nothing better is left.
    Avoid {
        until: Timestamp,
    },
    /// It cannot serve before `until`.
    Cooling {
        until: Timestamp,
        kind: CoolingKind,
    },
    /// Its credential was refused; only a new one brings it back.
    NeedsLogin,
}

/// Why an account cools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoolingKind {
    /// `resets_at` is what the upstream told, and absent if it told nothing believable.
    Quota {
        resets_at: Option<Timestamp>,
        plan_type: Option<String>,
    },
    Workspace,
    Transient,
}

/// The standing of an account in the selection, best first. Whoever may not serve has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    Ready,
    Avoid,
}

/// What the end of one attempt says about its account.
#[derive(Clone, Debug)]
pub struct Report {
    pub class: Class,
    pub retry_after: Option<SignedDuration>,
    pub facts: ErrorFacts,
    /// When the attempt began.
    pub started_at: Timestamp,
    /// The credential that the attempt used.
    pub fingerprint: Fingerprint,
}

#[derive(Clone, Debug)]
struct QuotaLock {
    seen_at: Timestamp,
    until: Timestamp,
    resets_at: Option<Timestamp>,
    plan_type: Option<String>,
}

#[derive(Clone, Debug)]
struct Block {
    seen_at: Timestamp,
    until: Timestamp,
}

#[derive(Clone, Debug)]
struct Backoff {
    seen_at: Timestamp,
    /// Failures in a row, from one on.
    strikes: usize,
    avoid_until: Timestamp,
    /// The time the upstream itself asked for.
    hard_until: Option<Timestamp>,
}

// === impl Health ===

impl Health {
    /// An account of which nothing bad is known.
    pub fn new(credential: Fingerprint) -> Self {
        Self { credential, rejected: false, quota: None, workspace: None, transient: None }
    }

    /// Takes note of the credential that is used from now on. A new one clears what was held
    /// against the old one and nothing else.
    pub fn adopt(&mut self, credential: Fingerprint) {
        if self.credential != credential {
            self.credential = credential;
            self.rejected = false;
        }
    }

    /// Holds the credential for refused, if it is the one in use.
    pub fn reject(&mut self, credential: Fingerprint) {
        self.rejected |= self.credential == credential;
    }

    /// What the account may do now, with the reason that lasts longest.
    pub fn readiness(&self, now: Timestamp) -> Readiness {
        if self.rejected {
            return Readiness::NeedsLogin;
        }
        if let Some((until, kind)) = self.longest_rest(now) {
            return Readiness::Cooling { until, kind };
        }
        match &self.transient {
            Some(it) if now < it.avoid_until => Readiness::Avoid { until: it.avoid_until },
            Some(_) | None => Readiness::Ready,
        }
    }

    fn longest_rest(&self, now: Timestamp) -> Option<(Timestamp, CoolingKind)> {
        let quota = self.quota.as_ref().map(|lock| {
            let QuotaLock { until, resets_at, plan_type, .. } = lock.clone();
            (until, CoolingKind::Quota { resets_at, plan_type })
        });
        let workspace = self.workspace.as_ref().map(|it| (it.until, CoolingKind::Workspace));
        let transient = self.transient.as_ref().and_then(|it| it.hard_until);
        let transient = transient.map(|until| (until, CoolingKind::Transient));
        [transient, workspace, quota]
            .into_iter()
            .flatten()
            .filter(|(until, _)| now < *until)
            .max_by_key(|(until, _)| *until)
    }

    /// The same answer as [`Health::readiness`], as much of it as the selection needs.
    pub fn tier(&self, now: Timestamp) -> Option<Tier> {
        let rests = |until: Option<Timestamp>| until.is_some_and(|until| now < until);
        let transient = self.transient.as_ref();
        if self.rejected
            || rests(self.quota.as_ref().map(|it| it.until))
            || rests(self.workspace.as_ref().map(|it| it.until))
            || rests(transient.and_then(|it| it.hard_until))
        {
            return None;
        }
        Some(if rests(transient.map(|it| it.avoid_until)) { Tier::Avoid } else { Tier::Ready })
    }

    /// Takes in the end of an attempt.
    pub fn apply(&mut self, report: &Report, now: Timestamp) {
        if report.fingerprint != self.credential {
            return;
        }
        match report.class {
            Class::Success => self.succeed(report.started_at),
            Class::Credential => self.rejected = true,
            Class::Quota => self.lock_quota(report, now),
            Class::Workspace => self.block_workspace(report, now),
            Class::Transient => self.back_off(report, now),
            // The caller, the model and the way to the upstream are no fault of the account.
            Class::Caller | Class::ModelUnsupported | Class::Transport => {}
        }
    }

    fn succeed(&mut self, started_at: Timestamp) {
        self.quota.take_if(|it| it.seen_at <= started_at);
        self.workspace.take_if(|it| it.seen_at <= started_at);
        self.transient.take_if(|it| it.seen_at <= started_at);
    }

    fn lock_quota(&mut self, report: &Report, now: Timestamp) {
        let resets_at = reset(&report.facts, now);
        let lock = QuotaLock {
            seen_at: now,
            until: deadline(report.retry_after, resets_at, now),
            resets_at,
            plan_type: report.facts.plan_type.clone(),
        };
        match &mut self.quota {
            // The later deadline holds, but the lock counts as seen anew.
            Some(held) if lock.until < held.until => held.seen_at = now,
            held => *held = Some(lock),
        }
    }

    fn block_workspace(&mut self, report: &Report, now: Timestamp) {
        let until = deadline(report.retry_after, reset(&report.facts, now), now);
        let until = self.workspace.as_ref().map_or(until, |held| held.until.max(until));
        self.workspace = Some(Block { seen_at: now, until });
    }

    fn back_off(&mut self, report: &Report, now: Timestamp) {
        let asked = report.retry_after.and_then(|wait| after(now, believed(wait)?));
        let held = self.transient.as_ref();
        let strikes = match held {
            None => 1,
            // Attempts that ran side by side fail of one cause, and count once.
            Some(held) if report.started_at < held.seen_at => held.strikes,
            Some(held) => (held.strikes + 1).min(AVOID.len()),
        };
        let avoid_until = after(now, AVOID[strikes - 1]).unwrap_or(now);
        let avoid_until = held.map_or(avoid_until, |it| it.avoid_until.max(avoid_until));
        let hard_until = held.and_then(|it| it.hard_until).max(asked);
        self.transient = Some(Backoff { seen_at: now, strikes, avoid_until, hard_until });
    }
}

/// How long a refusal rests the account: until everything that was told has passed.
fn deadline(
    retry_after: Option<SignedDuration>,
    resets_at: Option<Timestamp>,
    now: Timestamp,
) -> Timestamp {
    let asked = retry_after.and_then(|wait| after(now, believed(wait)?));
    asked.max(resets_at).or_else(|| after(now, COOLDOWN_DEFAULT)).unwrap_or(now)
}

/// The time at which the quota comes back, if the answer tells one that can be.
fn reset(facts: &ErrorFacts, now: Timestamp) -> Option<Timestamp> {
    let absolute = facts.resets_at.and_then(|second| Timestamp::from_second(second).ok());
    let relative = facts.resets_in_seconds.filter(|seconds| *seconds > 0);
    let relative = || relative.and_then(|seconds| after(now, SignedDuration::from_secs(seconds)));
    let latest = after(now, RESET_MAX)?;
    let plausible = |reset: &Timestamp| now < *reset && *reset <= latest;
    absolute.filter(plausible).or_else(|| relative().filter(plausible))
}

/// A wait of no length says nothing; a very long one is cut.
fn believed(wait: SignedDuration) -> Option<SignedDuration> {
    wait.is_positive().then(|| wait.min(RETRY_AFTER_MAX))
}

fn after(now: Timestamp, wait: SignedDuration) -> Option<Timestamp> {
    now.checked_add(wait).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Fingerprint = Fingerprint::from_bytes([1; 16]);
    const OLD: Fingerprint = Fingerprint::from_bytes([0; 16]);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    fn secs(seconds: i64) -> Option<SignedDuration> {
        Some(SignedDuration::from_secs(seconds))
    }

    /// A report about an attempt that began at `started`.
    fn report(class: Class, started: i64) -> Report {
        Report {
            class,
            retry_after: None,
            facts: ErrorFacts::default(),
            started_at: at(started),
            fingerprint: NEW,
        }
    }

    fn quota(started: i64, resets_at: i64) -> Report {
        let second = Some(at(resets_at).as_second());
        let facts = ErrorFacts { resets_at: second, ..ErrorFacts::default() };
        Report { facts, ..report(Class::Quota, started) }
    }

    /// Readiness as text: `ready`, `avoid 5`, `quota 60`, … with the seconds at which it ends.
    fn shown(health: &Health, now: i64) -> String {
        let readiness = health.readiness(at(now));
        let tier = match readiness {
            Readiness::Ready => Some(Tier::Ready),
            Readiness::Avoid { .. } => Some(Tier::Avoid),
            Readiness::Cooling { .. } | Readiness::NeedsLogin => None,
        };
        assert_eq!(health.tier(at(now)), tier, "both views agree");
        let second = |until: Timestamp| until.as_second() - 1_000_000;
        match readiness {
            Readiness::Ready => "ready".to_owned(),
            Readiness::Avoid { until } => format!("avoid {}", second(until)),
            Readiness::NeedsLogin => "needs login".to_owned(),
            Readiness::Cooling { until, kind } => {
                let kind = match kind {
                    CoolingKind::Quota { .. } => "quota",
                    CoolingKind::Workspace => "workspace",
                    CoolingKind::Transient => "transient",
                };
                format!("{kind} {}", second(until))
            }
        }
    }

    fn after_one(report: &Report) -> Health {
        let mut health = Health::new(NEW);
        health.apply(report, at(0));
        health
    }

    #[test]
    fn each_class_has_its_effect() {
        let table = [
            (Class::Success, "ready"),
            (Class::Caller, "ready"),
            (Class::ModelUnsupported, "ready"),
            (Class::Transport, "ready"),
            (Class::Credential, "needs login"),
            (Class::Workspace, "workspace 60"),
            (Class::Quota, "quota 60"),
            (Class::Transient, "avoid 5"),
        ];
        for (class, wanted) in table {
            assert_eq!(shown(&after_one(&report(class, 0)), 0), wanted, "{class:?}");
        }
    }

    #[test]
    fn a_rest_lasts_as_long_as_the_answer_says_within_reason() {
        let (hour, day) = (3_600, 86_400);
        let table = [
            ("nothing is said", None, None, None, 60),
            ("seconds to wait", secs(7), None, None, 7),
            ("no wait at all", secs(0), None, None, 60),
            ("a wait backwards", secs(-9), None, None, 60),
            ("a wait without end", secs(9 * day), None, None, day),
            ("a time of reset", None, Some(hour), None, hour),
            ("a reset in the past", None, Some(-1), None, 60),
            ("a reset beyond all windows", None, Some(8 * day + 1), None, 60),
            ("a reset in a week", None, Some(7 * day), None, 7 * day),
            ("seconds to the reset", None, None, Some(hour), hour),
            ("a wrong time, but right seconds", None, Some(-1), Some(hour), hour),
            ("endless seconds", None, None, Some(i64::MAX), 60),
            ("both, the reset later", secs(60), Some(hour), None, hour),
            ("both, the wait later", secs(hour), Some(60), None, hour),
            ("a wrong reset beside a wait", secs(9), Some(-1), None, 9),
        ];
        for (name, retry_after, resets_at, resets_in_seconds, wanted) in table {
            let resets_at = resets_at.map(|second| at(second).as_second());
            let facts = ErrorFacts { resets_at, resets_in_seconds, ..ErrorFacts::default() };
            for (class, kind) in [(Class::Quota, "quota"), (Class::Workspace, "workspace")] {
                let report = Report { retry_after, facts: facts.clone(), ..report(class, 0) };
                assert_eq!(shown(&after_one(&report), 0), format!("{kind} {wanted}"), "{name}");
            }
        }
    }

    #[test]
    fn a_rest_ends_by_itself() {
        let health = after_one(&report(Class::Quota, 0));
        assert_eq!(shown(&health, 59), "quota 60");
        assert_eq!(shown(&health, 60), "ready");
    }

    #[test]
    fn the_lock_tells_the_true_reset_and_the_plan() {
        let mut locked = quota(0, 3_600);
        locked.facts.plan_type = Some("pro".into());
        let Readiness::Cooling { kind, .. } = after_one(&locked).readiness(at(1)) else {
            panic!("it rests")
        };
        let (resets_at, plan_type) = (Some(at(3_600)), Some("pro".into()));
        assert_eq!(kind, CoolingKind::Quota { resets_at, plan_type });
    }

    #[test]
    fn of_two_refusals_the_later_deadline_holds() {
        for order in [[3_600, 7_200], [7_200, 3_600]] {
            let mut health = Health::new(NEW);
            for (second, reset) in (0..).zip(order) {
                health.apply(&quota(0, reset), at(second));
            }
            assert_eq!(shown(&health, 2), "quota 7200");
        }
    }

    #[test]
    fn a_success_that_began_before_a_rest_clears_nothing() {
        for class in [Class::Quota, Class::Workspace, Class::Transient] {
            let mut health = Health::new(NEW);
            health.apply(&report(class, 0), at(10));
            let rests = shown(&health, 11);
            health.apply(&report(Class::Success, 9), at(11));
            assert_eq!(shown(&health, 11), rests, "{class:?}");
            health.apply(&report(Class::Success, 10), at(12));
            assert_eq!(shown(&health, 12), "ready", "{class:?}");
        }
    }

    #[test]
    fn failures_in_a_row_are_avoided_longer_and_longer() {
        let mut health = Health::new(NEW);
        let mut now = 0;
        for wait in [5, 30, 120, 600, 600] {
            health.apply(&report(Class::Transient, now), at(now));
            assert_eq!(shown(&health, now), format!("avoid {}", now + wait));
            now += wait;
            assert_eq!(shown(&health, now), "ready");
        }
        health.apply(&report(Class::Success, now), at(now + 1));
        health.apply(&report(Class::Transient, now + 1), at(now + 1));
        assert_eq!(shown(&health, now + 1), format!("avoid {}", now + 6));
    }

    #[test]
    fn failures_side_by_side_count_once() {
        let mut health = Health::new(NEW);
        for _ in 0..50 {
            health.apply(&report(Class::Transient, 0), at(1));
        }
        assert_eq!(shown(&health, 1), "avoid 6");
    }

    #[test]
    fn an_overloaded_upstream_that_names_a_time_is_taken_at_its_word() {
        let asked = Report { retry_after: secs(3), ..report(Class::Transient, 0) };
        let health = after_one(&asked);
        assert_eq!(shown(&health, 2), "transient 3");
        assert_eq!(shown(&health, 3), "avoid 5");
    }

    #[test]
    fn a_report_about_another_credential_counts_for_nothing() {
        for class in [Class::Credential, Class::Quota, Class::Workspace, Class::Transient] {
            let stale = Report { fingerprint: OLD, ..report(class, 0) };
            assert_eq!(shown(&after_one(&stale), 0), "ready", "{class:?}");
        }
        let mut health = after_one(&report(Class::Transient, -1));
        health.apply(&Report { fingerprint: OLD, ..report(Class::Success, 0) }, at(1));
        assert_eq!(shown(&health, 1), "avoid 5");
    }

    #[test]
    fn a_new_credential_clears_the_rejection_and_keeps_the_lock() {
        let mut health = after_one(&report(Class::Credential, 0));
        health.apply(&quota(0, 3_600), at(0));
        health.apply(&report(Class::Success, 1), at(2));
        assert_eq!(shown(&health, 2), "needs login", "only a new credential helps");
        health.apply(&quota(2, 3_600), at(3));
        health.adopt(NEW);
        assert_eq!(shown(&health, 3), "needs login", "the same one is no new one");
        health.adopt(OLD);
        assert_eq!(shown(&health, 3), "quota 3600");
    }
}
