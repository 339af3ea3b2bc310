//! An account as the management shows it.
//!
//! Every member is always there; what nothing fills yet is null, empty or zero.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    accounts::manage::{self, RuntimeState, Status},
    admin::AdminState,
    domain::{
        account::{AccountId, Source},
        health::{Cooldown, CooldownSource},
    },
};

/// How connections leave that no proxy is set for.
const DIRECT: &str = "direct";

#[derive(Debug, Serialize, Deserialize)]
pub struct AuthList {
    /// By id.
    pub auths: Vec<ShownAuth>,
    pub directory: ShownDirectory,
    /// What is wrong with files, whoever's they are.
    pub problems: Vec<ShownProblem>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct AuthAnswer {
    pub auth: ShownAuth,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ShownDirectory {
    pub state: DirectoryState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DirectoryState {
    Ok,
    AuthDirUnavailable,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShownProblem {
    pub path: String,
    pub reason: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShownAuth {
    pub auth_id: String,
    pub account_id: Option<String>,
    pub label: String,
    pub selector: Option<String>,
    /// `identified` or `unidentified`.
    pub identity_state: String,
    pub identity_conflict: bool,
    pub manageable: bool,
    pub email_masked: Option<String>,
    pub plan: Option<String>,
    /// Tells the users of one workspace apart, and names none.
    pub seat: Option<String>,
    pub sources: Vec<ShownSource>,
    #[serde(flatten)]
    pub switches: ShownSwitches,
    /// `active`, `cooling` or `unavailable`.
    pub runtime_state: String,
    pub reason: Option<String>,
    pub token_expires_at: Option<Timestamp>,
    pub last_refresh_at: Option<Timestamp>,
    pub cooldown: Option<ShownCooldown>,
    pub quota: Vec<()>,
    pub models: Vec<String>,
    pub session_binding_count: usize,
    pub active_turns: u32,
    pub active_sockets: u32,
    pub last_error: Option<String>,
    pub egress: String,
}

/// What operators have decided.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ShownSwitches {
    /// Neither is every file switched off, nor is the account paused.
    pub enabled: bool,
    pub paused: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShownSource {
    pub path: String,
    /// `in_use`, `standby` or `disabled`.
    pub state: String,
    pub problem: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShownCooldown {
    pub until: Timestamp,
    /// `resets_at`, `retry_after` or `assumed`.
    pub source: String,
    /// `quota`, `workspace` or `transient`.
    pub kind: String,
}

// === impl AuthList ===

impl AuthList {
    pub(super) fn of(state: &AdminState) -> Self {
        let view = state.accounts.reconciler.view();
        let directory =
            if view.available { DirectoryState::Ok } else { DirectoryState::AuthDirUnavailable };
        let bindings = state.gateway.sessions.count_by_account(state.accounts.clock.now());
        let auths = state.accounts.statuses().into_iter().map(|status| {
            let bound = bindings.get(&status.account.id).copied().unwrap_or_default();
            ShownAuth::of(&status, bound)
        });
        let problem = |it: &crate::accounts::directory::FileProblem| ShownProblem {
            path: it.path.to_string(),
            reason: it.reason.to_string(),
        };
        Self {
            auths: auths.collect(),
            directory: ShownDirectory { state: directory },
            problems: view.problems.iter().map(problem).collect(),
        }
    }
}

// === impl AuthAnswer ===

impl AuthAnswer {
    pub(super) fn of(state: &AdminState, status: Status) -> Self {
        let bindings = state.gateway.sessions.count_by_account(state.accounts.clock.now());
        let bound = bindings.get(&status.account.id).copied().unwrap_or_default();
        Self { auth: ShownAuth::of(&status, bound) }
    }
}

// === impl ShownAuth ===

impl ShownAuth {
    fn of(status: &Status, session_binding_count: usize) -> Self {
        let account = &*status.account;
        let identified = account.id.is_identified();
        let credential = &account.credential;
        Self {
            auth_id: account.id.to_string(),
            account_id: account.account_id.as_ref().map(AccountId::as_str).map(str::to_owned),
            label: account.label.to_string(),
            selector: None,
            identity_state: if identified { "identified" } else { "unidentified" }.to_owned(),
            identity_conflict: account.identity_conflict,
            manageable: identified,
            email_masked: account.email.as_ref().map(ToString::to_string),
            plan: account.plan.clone(),
            seat: account.seat.as_ref().map(|it| it.digest()),
            sources: account.sources.iter().map(ShownSource::of).collect(),
            switches: ShownSwitches {
                enabled: !account.eligibility.disabled && !account.eligibility.paused,
                paused: account.eligibility.paused,
            },
            runtime_state: word(status.runtime_state()).to_owned(),
            reason: status.reason().map(str::to_owned),
            token_expires_at: credential.expires_at,
            last_refresh_at: credential.last_refresh,
            cooldown: status.cooldown.as_ref().map(ShownCooldown::of),
            quota: Vec::new(),
            models: Vec::new(),
            session_binding_count,
            active_turns: status.active_turns,
            active_sockets: 0,
            last_error: status.last_error().map(str::to_owned),
            egress: DIRECT.to_owned(),
        }
    }
}

fn word(state: RuntimeState) -> &'static str {
    match state {
        RuntimeState::Active => "active",
        RuntimeState::Cooling => "cooling",
        RuntimeState::Unavailable => "unavailable",
    }
}

// === impl ShownSource ===

impl ShownSource {
    fn of(source: &Source) -> Self {
        let state = match source {
            Source { enabled: false, .. } => "disabled",
            Source { representative: true, .. } => "in_use",
            Source { .. } => "standby",
        };
        Self {
            path: source.path.to_string(),
            state: state.to_owned(),
            problem: source.problem.as_deref().map(str::to_owned),
        }
    }
}

// === impl ShownCooldown ===

impl ShownCooldown {
    fn of(cooldown: &Cooldown) -> Self {
        let source = match cooldown.source {
            CooldownSource::ResetsAt => "resets_at",
            CooldownSource::RetryAfter => "retry_after",
            CooldownSource::Assumed => "assumed",
        };
        Self {
            until: cooldown.until,
            source: source.to_owned(),
            kind: manage::word(&cooldown.kind).to_owned(),
        }
    }
}
