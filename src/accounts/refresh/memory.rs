//! What renewals leave behind in this process: spent tokens, rests, and how far the clock is off.
//!
//! Pure; times are those of a clock that nobody sets. Everything is kept by fingerprint, so nothing
//! here is a token.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};

use super::due;
use crate::domain::credential::Fingerprint;

/// A difference between two clocks below this is none.
const SKEW_MIN: SignedDuration = SignedDuration::from_secs(60);

/// A credential this young is not renewed for its age or its end, whatever it says of them.
const YOUTH: Duration = Duration::from_secs(60);

/// The same for one that has run out by our time from its first moment: one of the clocks is wrong,
/// and the next credential would be no better.
const YOUTH_OF_EXPIRED: Duration = Duration::from_secs(60 * 60);

/// After a failure nobody calls again for so long, however much it is wanted.
const REST_MIN: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Refresh tokens that are good for nothing any more: used, or refused for good.
    spent: HashSet<Fingerprint>,
    /// By access token: how it came, and until when it is young.
    young: HashMap<Fingerprint, (Came, Duration)>,
    /// By refresh token: the failures in a row.
    resting: HashMap<Fingerprint, Rest>,
    /// What to add to our clock to get the sign-in service's.
    skew: SignedDuration,
}

/// How a credential came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// In a file that somebody else has written.
    Found,
    /// From the sign-in service.
    Given,
    /// From there too, and it had run out already.
    GivenExpired,
}

#[derive(Clone, Copy, Debug)]
struct Rest {
    failures: usize,
    since: Duration,
    until: Duration,
}

// === impl Memory ===

impl Memory {
    pub(super) fn spend(&mut self, token: Fingerprint) {
        self.spent.insert(token);
        self.resting.remove(&token);
    }

    pub(super) fn is_spent(&self, token: Fingerprint) -> bool {
        self.spent.contains(&token)
    }

    /// This credential has just come in the place of another one.
    pub(super) fn came(&mut self, access: Fingerprint, came: Came, elapsed: Duration) {
        self.young.retain(|_, (_, until)| elapsed < *until);
        let youth = match came {
            Came::Found | Came::Given => YOUTH,
            Came::GivenExpired => YOUTH_OF_EXPIRED,
        };
        self.young.insert(access, (came, elapsed + youth));
    }

    pub(super) fn is_young(&self, access: Fingerprint, elapsed: Duration) -> bool {
        self.young.get(&access).is_some_and(|(_, until)| elapsed < *until)
    }

    /// Whether the credential is young and came from the sign-in service itself.
    pub(super) fn was_given(&self, access: Fingerprint, elapsed: Duration) -> bool {
        let held = self.young.get(&access);
        held.is_some_and(|(came, until)| *came != Came::Found && elapsed < *until)
    }

    /// The token was taken; it may still be good.
    pub(super) fn succeeded(&mut self, token: Fingerprint) {
        self.resting.remove(&token);
    }

    pub(super) fn failed(&mut self, token: Fingerprint, elapsed: Duration) {
        let failures = self.resting.get(&token).map_or(0, |it| it.failures) + 1;
        let wait = Duration::try_from(due::backoff(failures)).unwrap_or_default();
        self.resting.insert(token, Rest { failures, since: elapsed, until: elapsed + wait });
    }

    /// When the tokens may be renewed again before anybody needs it.
    pub(super) fn rests_until(&self, token: Fingerprint, elapsed: Duration) -> Option<Duration> {
        self.resting.get(&token).map(|it| it.until).filter(|until| elapsed < *until)
    }

    /// Whether the last failure is so fresh that not even a refused request asks again.
    pub(super) fn has_just_failed(&self, token: Fingerprint, elapsed: Duration) -> bool {
        self.resting.get(&token).is_some_and(|it| elapsed < it.since + REST_MIN)
    }

    /// Learns from the sign-in service what time it is.
    pub(super) fn told_time(&mut self, theirs: Timestamp, ours: Timestamp) {
        let skew = theirs.duration_since(ours);
        self.skew = if skew.abs() > SKEW_MIN { skew } else { SignedDuration::ZERO };
    }

    /// The time as the sign-in service sees it.
    pub(super) fn true_time(&self, ours: Timestamp) -> Timestamp {
        ours.checked_add(self.skew).unwrap_or(ours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Fingerprint = Fingerprint::from_bytes([1; 16]);
    const B: Fingerprint = Fingerprint::from_bytes([2; 16]);

    fn second(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_failure_rests_its_own_tokens_longer_each_time_until_they_are_spent() {
        let mut memory = Memory::default();
        memory.failed(A, second(100));
        assert_eq!(memory.rests_until(A, second(100)), Some(second(130)));
        assert_eq!(memory.rests_until(A, second(130)), None);
        assert_eq!(memory.rests_until(B, second(100)), None);
        assert!(memory.has_just_failed(A, second(104)) && !memory.has_just_failed(A, second(105)));
        memory.failed(A, second(130));
        assert_eq!(memory.rests_until(A, second(130)), Some(second(190)));
        memory.succeeded(A);
        memory.failed(A, second(190));
        assert_eq!(memory.rests_until(A, second(190)), Some(second(220)));
        memory.spend(A);
        assert!(memory.is_spent(A) && memory.rests_until(A, second(190)).is_none());
    }

    #[test]
    fn a_credential_is_young_for_a_minute_or_if_it_came_expired_for_an_hour() {
        let mut memory = Memory::default();
        memory.came(A, Came::Found, second(0));
        assert!(memory.is_young(A, second(59)) && !memory.was_given(A, second(59)));
        memory.came(A, Came::Given, second(0));
        assert!(memory.is_young(A, second(59)) && !memory.is_young(A, second(60)));
        assert!(memory.was_given(A, second(59)) && !memory.was_given(A, second(60)));
        assert!(!memory.is_young(B, second(0)));
        memory.came(B, Came::GivenExpired, second(0));
        assert!(memory.is_young(B, second(3_599)) && !memory.is_young(B, second(3_600)));
    }

    #[test]
    fn only_a_clock_that_is_well_off_is_corrected() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let mut memory = Memory::default();
        memory.told_time(at(1_060), at(1_000));
        assert_eq!(memory.true_time(at(5)), at(5));
        memory.told_time(at(100), at(1_000));
        assert_eq!(memory.true_time(at(1_000)), at(100));
        memory.told_time(at(1_000), at(1_000));
        assert_eq!(memory.true_time(at(5)), at(5));
    }
}
