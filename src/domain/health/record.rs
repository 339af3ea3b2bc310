//! What of an account's health outlasts the process. Pure.

use jiff::Timestamp;

use super::{Block, Health, QuotaLock, RESET_MAX, after};
use crate::domain::credential::Fingerprint;

/// The facts that are kept. A transient failure is not among them: it passes sooner than a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthRecord {
    /// The credential that was refused.
    pub rejected: Option<Fingerprint>,
    pub quota: Option<QuotaRecord>,
    pub workspace: Option<BlockRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaRecord {
    pub seen_at: Timestamp,
    pub until: Timestamp,
    pub resets_at: Option<Timestamp>,
    pub plan_type: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRecord {
    pub seen_at: Timestamp,
    pub until: Timestamp,
}

/// A fingerprint that no credential has.
const NO_CREDENTIAL: Fingerprint = Fingerprint::from_bytes([0; 16]);

// === impl Health ===

impl Health {
    /// What is to be kept.
    pub fn record(&self) -> HealthRecord {
        HealthRecord {
            rejected: self.rejected.then_some(self.credential),
            quota: self.quota.as_ref().map(|it| QuotaRecord {
                seen_at: it.seen_at,
                until: it.until,
                resets_at: it.resets_at,
                plan_type: it.plan_type.clone(),
            }),
            workspace: self
                .workspace
                .as_ref()
                .map(|it| BlockRecord { seen_at: it.seen_at, until: it.until }),
        }
    }

    /// What was kept, as far as it still holds. The credential in use has to be adopted before the
    /// account serves; another one than was refused is free.
    pub fn restore(record: &HealthRecord, now: Timestamp) -> Self {
        let latest = after(now, RESET_MAX).unwrap_or(Timestamp::MAX);
        // A clock that was wrong when the record was made, or is wrong now, locks nothing for good.
        let clamp = |until: Timestamp| (now < until).then(|| until.min(latest));
        let mut health = Self::new(record.rejected.unwrap_or(NO_CREDENTIAL));
        health.rejected = record.rejected.is_some();
        health.quota = record.quota.as_ref().and_then(|it| {
            Some(QuotaLock {
                seen_at: it.seen_at.min(now),
                until: clamp(it.until)?,
                resets_at: it.resets_at.and_then(clamp),
                plan_type: it.plan_type.clone(),
            })
        });
        health.workspace = record
            .workspace
            .as_ref()
            .and_then(|it| Some(Block { seen_at: it.seen_at.min(now), until: clamp(it.until)? }));
        health
    }

    /// Ends every rest, at an operator's word. Says whether there was one. A refused credential
    /// stays refused.
    pub fn clear_cooldown(&mut self) -> bool {
        let rested = self.quota.is_some() || self.workspace.is_some() || self.transient.is_some();
        (self.quota, self.workspace, self.transient) = (None, None, None);
        rested
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::domain::{
        health::{Readiness, Report},
        outcome::{Class, ErrorFacts},
    };

    const USED: Fingerprint = Fingerprint::from_bytes([1; 16]);
    const OTHER: Fingerprint = Fingerprint::from_bytes([2; 16]);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    fn refused(class: Class) -> Health {
        let mut health = Health::new(USED);
        let facts = ErrorFacts { resets_at: Some(at(600).as_second()), ..ErrorFacts::default() };
        let report =
            Report { class, retry_after: None, facts, started_at: at(0), fingerprint: USED };
        health.apply(&report, at(0));
        health
    }

    #[test]
    fn a_lock_comes_back_until_its_deadline() {
        for class in [Class::Quota, Class::Workspace] {
            let before = refused(class);
            let mut after = Health::restore(&before.record(), at(10));
            after.adopt(USED);
            assert_eq!(after.readiness(at(10)), before.readiness(at(10)));
            assert_eq!(after.record(), before.record());
            let late = Health::restore(&before.record(), at(600));
            assert_eq!(late.record(), HealthRecord::default(), "{class:?} is over");
        }
        let passing = refused(Class::Transient).record();
        assert_eq!(passing, HealthRecord::default());
    }

    #[test]
    fn a_deadline_that_cannot_be_is_cut() {
        let record = refused(Class::Quota).record();
        let long_before = at(0) - SignedDuration::from_hours(24 * 365);
        let quota = Health::restore(&record, long_before).record().quota.unwrap();
        assert_eq!(quota.until, long_before + RESET_MAX);
        assert_eq!(quota.seen_at, long_before, "so that a success can clear it");
    }

    #[test]
    fn a_refusal_comes_back_for_the_credential_that_was_refused_only() {
        let record = refused(Class::Credential).record();
        let readiness = |credential| {
            let mut health = Health::restore(&record, at(0));
            health.adopt(credential);
            health.readiness(at(0))
        };
        assert_eq!(readiness(USED), Readiness::NeedsLogin);
        assert_eq!(readiness(OTHER), Readiness::Ready);
    }

    #[test]
    fn an_operator_ends_a_rest_but_no_refusal() {
        let mut health = refused(Class::Quota);
        assert!(health.clear_cooldown());
        assert!(!health.clear_cooldown());
        assert_eq!(health.readiness(at(1)), Readiness::Ready);
        let mut health = refused(Class::Credential);
        assert!(!health.clear_cooldown());
        assert_eq!(health.readiness(at(1)), Readiness::NeedsLogin);
    }
}
