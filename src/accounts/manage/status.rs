//! How an account stands, for operators. Pure.

use std::sync::Arc;

use jiff::Timestamp;

use crate::{
    accounts::pool::Entry,
    domain::{
        account::Account,
        health::{Cooldown, CoolingKind, Readiness},
    },
};

/// One account at one moment.
#[derive(Clone, Debug)]
pub struct Status {
    pub account: Arc<Account>,
    pub readiness: Readiness,
    /// Also where the account could not serve anyway.
    pub cooldown: Option<Cooldown>,
    pub active_turns: u32,
}

/// Where an account stands, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeState {
    Active,
    Cooling,
    Unavailable,
}

// === impl Status ===

impl Status {
    pub(super) fn of(entry: &Entry, now: Timestamp) -> Self {
        Self {
            account: Arc::clone(&entry.account),
            readiness: entry.runtime.readiness(now),
            cooldown: entry.runtime.cooldown(now),
            active_turns: entry.runtime.active_turns(),
        }
    }

    pub fn runtime_state(&self) -> RuntimeState {
        if !self.account.eligibility.is_open() {
            return RuntimeState::Unavailable;
        }
        match &self.readiness {
            Readiness::Ready | Readiness::Avoid { .. } => RuntimeState::Active,
            Readiness::Cooling { .. } => RuntimeState::Cooling,
            Readiness::NeedsLogin => RuntimeState::Unavailable,
        }
    }

    /// What keeps the account from work, or puts it behind the others; what an operator has
    /// decided comes first.
    pub fn reason(&self) -> Option<&'static str> {
        let eligibility = self.account.eligibility;
        if eligibility.disabled {
            Some("disabled")
        } else if eligibility.paused {
            Some("paused")
        } else if eligibility.out_of_sight {
            Some("auth_dir_unavailable")
        } else {
            self.last_error()
        }
    }

    /// What went wrong last and still counts.
    pub fn last_error(&self) -> Option<&'static str> {
        match &self.readiness {
            Readiness::Ready => None,
            Readiness::Avoid { .. } => Some("transient"),
            Readiness::Cooling { kind, .. } => Some(word(kind)),
            Readiness::NeedsLogin => Some("needs_login"),
        }
    }
}

/// The name of a kind of rest.
pub fn word(kind: &CoolingKind) -> &'static str {
    match kind {
        CoolingKind::Quota { .. } => "quota",
        CoolingKind::Workspace => "workspace",
        CoolingKind::Transient => "transient",
    }
}
