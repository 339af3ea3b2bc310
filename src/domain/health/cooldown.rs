//! What an account rests for, until when, and who said so. Pure.

use jiff::Timestamp;

use super::{COOLDOWN_DEFAULT, CoolingKind, Health};

/// The rest of an account that lasts longest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cooldown {
    pub until: Timestamp,
    pub kind: CoolingKind,
    pub source: CooldownSource,
}

/// Where the end of a rest comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CooldownSource {
    /// The answer named the time at which the quota comes back.
    ResetsAt,
    /// The answer named a wait.
    RetryAfter,
    /// The answer named nothing, so a short rest is assumed.
    Assumed,
}

// === impl Health ===

impl Health {
    /// The rest that lasts longest, whether or not the account could serve without it.
    pub fn cooldown(&self, now: Timestamp) -> Option<Cooldown> {
        let (until, kind) = self.longest_rest(now)?;
        let source = match &kind {
            // The upstream's own wait is the only one that rests an account for this.
            CoolingKind::Transient => CooldownSource::RetryAfter,
            CoolingKind::Quota { resets_at: Some(reset), .. } if *reset == until => {
                CooldownSource::ResetsAt
            }
            CoolingKind::Quota { .. } => {
                CooldownSource::judge(self.quota.as_ref().map(|it| it.seen_at), until)
            }
            CoolingKind::Workspace => {
                CooldownSource::judge(self.workspace.as_ref().map(|it| it.seen_at), until)
            }
        };
        Some(Cooldown { until, kind, source })
    }
}

// === impl CooldownSource ===

impl CooldownSource {
    /// A rest is not kept with its source, so its length has to tell.
    fn judge(seen_at: Option<Timestamp>, until: Timestamp) -> Self {
        let assumed = seen_at.and_then(|it| it.checked_add(COOLDOWN_DEFAULT).ok());
        if assumed == Some(until) { Self::Assumed } else { Self::RetryAfter }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::domain::{
        credential::Fingerprint,
        health::Report,
        outcome::{Class, ErrorFacts},
    };

    const USED: Fingerprint = Fingerprint::from_bytes([1; 16]);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    #[test]
    fn the_source_of_a_rest_is_told() {
        use CooldownSource::{Assumed, ResetsAt, RetryAfter};
        let table = [
            (Class::Quota, None, None, Some((60, Assumed))),
            (Class::Quota, Some(90), None, Some((90, RetryAfter))),
            (Class::Quota, None, Some(600), Some((600, ResetsAt))),
            (Class::Quota, Some(700), Some(600), Some((700, RetryAfter))),
            (Class::Workspace, None, None, Some((60, Assumed))),
            (Class::Workspace, Some(30), None, Some((30, RetryAfter))),
            (Class::Transient, Some(30), None, Some((30, RetryAfter))),
            (Class::Transient, None, None, None),
            (Class::Success, None, None, None),
        ];
        for (class, wait, reset, wanted) in table {
            let resets_at = reset.map(|it: i64| at(it).as_second());
            let report = Report {
                class,
                retry_after: wait.map(SignedDuration::from_secs),
                facts: ErrorFacts { resets_at, ..ErrorFacts::default() },
                started_at: at(0),
                fingerprint: USED,
            };
            let mut health = Health::new(USED);
            health.apply(&report, at(0));
            let told = |health: &Health| health.cooldown(at(1)).map(|it| (it.until, it.source));
            let wanted = wanted.map(|(second, source)| (at(second), source));
            assert_eq!(told(&health), wanted, "{class:?} {wait:?} {reset:?}");
            health.reject(USED);
            assert_eq!(told(&health), wanted, "a refused credential hides no rest");
            assert_eq!(health.cooldown(at(10_000)), None);
        }
    }
}
