//! Whether the gateway can serve now, and why not if it cannot.

use http::StatusCode;
use serde::Serialize;

use super::Gateway;
use crate::{
    domain::{account::Eligibility, health::Readiness},
    telemetry::{labels::AccountState, metrics::AccountReading},
};

#[derive(Serialize)]
struct Report {
    ready: bool,
    /// What keeps the gateway from serving; empty if nothing does.
    reasons: Vec<String>,
}

/// The pool in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCount {
    pub total: usize,
    pub able: usize,
    pub disabled: usize,
    pub paused: usize,
    pub out_of_sight: usize,
    pub needs_login: usize,
    pub cooling: usize,
}

// === impl Gateway ===

impl Gateway {
    /// The answer of `/readyz`: its status and its body.
    pub fn readiness(&self) -> (StatusCode, Vec<u8>) {
        let reasons = self.reasons_against_serving();
        let ready = reasons.is_empty();
        let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        // A struct of strings always serialises.
        (status, serde_json::to_vec(&Report { ready, reasons }).unwrap_or_default())
    }

    /// Counts the accounts by what they can do now.
    pub fn count_pool(&self) -> PoolCount {
        let mut count = PoolCount::default();
        for (account, readiness) in self.pool.census(&self.pool.snapshot(), self.clock.now()) {
            count.total += 1;
            match state_of(account.eligibility, &readiness) {
                AccountState::Ready | AccountState::Avoided => count.able += 1,
                AccountState::Cooling => count.cooling += 1,
                AccountState::NeedsLogin => count.needs_login += 1,
                AccountState::Disabled => count.disabled += 1,
                AccountState::Paused => count.paused += 1,
                AccountState::OutOfSight => count.out_of_sight += 1,
            }
        }
        count
    }

    /// The scrape: what was counted, and the pool as it is at this moment.
    pub fn scrape(&self) -> String {
        let snapshot = self.pool.snapshot();
        let now = self.clock.now();
        let readings = snapshot.entries.iter().map(|entry| {
            let readiness = entry.runtime.readiness(now);
            let until = match &readiness {
                Readiness::Cooling { until, .. } => until.as_second(),
                Readiness::Ready | Readiness::Avoid { .. } | Readiness::NeedsLogin => 0,
            };
            AccountReading {
                label: entry.account.label.as_str(),
                state: state_of(entry.account.eligibility, &readiness),
                active_turns: entry.runtime.active_turns().into(),
                cooldown_until: until,
            }
        });
        self.metrics.set_accounts(readings);
        self.metrics.active_turns.set(self.pool.active_turns().into());
        self.metrics.encode()
    }

    fn reasons_against_serving(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.is_draining() {
            reasons.push("the gateway is being stopped or replaced".to_owned());
        }
        let count = self.count_pool();
        if count.able > 0 {
            return reasons;
        }
        if count.total == 0 {
            reasons.push("the pool has no account: put an auth.json into auth.dir".to_owned());
        }
        for (number, what) in [
            (count.needs_login, "in need of a new sign-in"),
            (count.cooling, "resting after a limit"),
            (count.disabled, "disabled"),
            (count.paused, "paused"),
            (count.out_of_sight, "out of sight: auth.dir cannot be read"),
        ] {
            if number > 0 {
                reasons.push(format!("{number} of {} accounts are {what}", count.total));
            }
        }
        reasons
    }
}

fn state_of(eligibility: Eligibility, readiness: &Readiness) -> AccountState {
    match readiness {
        _ if eligibility.disabled => AccountState::Disabled,
        _ if eligibility.paused => AccountState::Paused,
        _ if eligibility.out_of_sight => AccountState::OutOfSight,
        Readiness::Ready => AccountState::Ready,
        Readiness::Avoid { .. } => AccountState::Avoided,
        Readiness::Cooling { .. } => AccountState::Cooling,
        Readiness::NeedsLogin => AccountState::NeedsLogin,
    }
}
