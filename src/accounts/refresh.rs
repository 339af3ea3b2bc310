//! Renews tokens: once per refresh token, whoever asks.
//!
//! A renewal runs on the accounts' own runtime. Who waits for it may leave; the renewal goes on,
//! since the refresh token is spent by then. Before it asks the sign-in service it looks whether
//! somebody else has renewed the tokens already, and takes theirs.

mod due;
mod duty;
mod flights;
mod memory;
mod pace;
mod renewal;

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::timeout;

use self::{
    duty::Pending,
    flights::{Flights, Landing, Pilot, Seat},
    memory::Memory,
    pace::Pace,
};
use super::{
    files::{CredentialFiles, Steps},
    journal::{Journal, Unpersisted},
    oauth::{OAuth, RefreshReason},
    pool::{Entry, Pool},
    reconciler::Reconciler,
    tasks::Tasks,
};
use crate::{
    clock::Clock,
    config::Auth,
    domain::{
        account::Account,
        credential::{Fingerprint, RefreshToken},
        health::Readiness,
    },
    telemetry::{
        labels::{LabelSet, RefreshResult},
        metrics::Metrics,
    },
};

/// How long anybody waits for a renewal that may have to queue behind others. It goes on then too.
const PATIENCE: Duration = Duration::from_secs(60);

/// A handle. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Refresher(Arc<Shared>);

/// What a refresher works with.
#[derive(Debug)]
pub struct Parts {
    pub config: Arc<Auth>,
    pub oauth: OAuth,
    pub files: CredentialFiles,
    pub journal: Journal,
    pub reconciler: Reconciler,
    pub pool: Arc<Pool>,
    pub metrics: Arc<Metrics>,
    pub clock: Clock,
    pub tasks: Tasks,
    pub steps: Steps,
    /// Tokens of an earlier process that are still to be written to their files.
    pub unpersisted: Vec<Unpersisted>,
}

/// How a renewal ended for those who waited for it.
#[derive(Clone, Debug)]
pub enum Renewal {
    /// The account as the pool holds it now, with another credential than it had.
    Fresh(Arc<Account>),
    /// Only a new sign-in helps; the pool knows it.
    NeedsLogin,
    /// It may work the next time.
    Passing,
    /// The account has left the pool in the meantime, or its file belongs to another one now.
    Gone,
}

#[derive(Debug)]
struct Shared {
    parts: Parts,
    flights: Flights,
    pace: Pace,
    memory: Mutex<Memory>,
    pending: Mutex<Pending>,
}

// === impl Refresher ===

impl Refresher {
    pub fn new(mut parts: Parts) -> Self {
        let pace = Pace::new(parts.config.refresh_parallel, parts.config.refresh_spacing);
        let pending = Pending::new(std::mem::take(&mut parts.unpersisted), parts.clock.elapsed());
        let (flights, memory) = (Flights::default(), Mutex::default());
        Self(Arc::new(Shared { parts, flights, pace, memory, pending: Mutex::new(pending) }))
    }

    /// Renews the credential that `account` holds, or takes a newer one from its files. Goes on
    /// though the caller leaves.
    pub async fn renew(&self, account: &Account, reason: RefreshReason) -> Renewal {
        if let Some(settled) = self.is_settled(account) {
            return settled;
        }
        let Some(token) = &account.credential.refresh else {
            return self.do_without(account, reason).await;
        };
        if self.0.memory.lock().has_just_failed(token.fingerprint(), self.elapsed()) {
            return Renewal::Passing;
        }
        let landing = self.board(account, token, reason).landing();
        let landing = timeout(PATIENCE, landing).await.unwrap_or(Landing::Passing);
        self.renewal(account, landing)
    }

    /// Whether the account's token has run out and could be renewed now: as the sign-in service
    /// sees the time, and not again right after it was renewed.
    pub fn has_run_out(&self, account: &Account) -> bool {
        let credential = &account.credential;
        let Some(token) = &credential.refresh else { return false };
        let (elapsed, now) = (self.elapsed(), self.0.parts.clock.now());
        let memory = self.0.memory.lock();
        credential.has_expired(memory.true_time(now))
            && !memory.is_young(credential.fingerprint, elapsed)
            && memory.rests_until(token.fingerprint(), elapsed).is_none()
    }

    /// Whether an account whose credential was refused may still be helped: the credential did not
    /// come from the sign-in service just now, and its refresh token may be good.
    pub fn may_help(&self, account: &Account) -> bool {
        let Some(token) = &account.credential.refresh else { return false };
        let (access, elapsed) = (account.credential.fingerprint, self.elapsed());
        let memory = self.0.memory.lock();
        !memory.is_spent(token.fingerprint()) && !memory.was_given(access, elapsed)
    }

    /// What is known without asking anybody: the pool may hold another credential by now.
    fn is_settled(&self, account: &Account) -> Option<Renewal> {
        let Some(entry) = self.locate(account) else { return Some(Renewal::Gone) };
        let held = &entry.account;
        if held.credential.fingerprint == account.credential.fingerprint {
            return None;
        }
        Some(match entry.runtime.readiness(self.0.parts.clock.now()) {
            Readiness::NeedsLogin => Renewal::NeedsLogin,
            Readiness::Ready | Readiness::Avoid { .. } | Readiness::Cooling { .. } => {
                Renewal::Fresh(Arc::clone(held))
            }
        })
    }

    /// Without a refresh token nothing can be asked, but the files may hold another credential.
    async fn do_without(&self, account: &Account, reason: RefreshReason) -> Renewal {
        self.0.parts.reconciler.look().await;
        if let Some(settled) = self.is_settled(account) {
            self.tell(account, RefreshResult::Adopted);
            return settled;
        }
        // Until the upstream refuses it, the token is good.
        if reason == RefreshReason::UnauthorizedRecovery {
            self.reject(account);
        }
        self.tell(account, RefreshResult::NoRefreshToken);
        Renewal::NeedsLogin
    }

    /// A seat in the renewal of this token, which begins if it is not under way.
    fn board(&self, account: &Account, token: &RefreshToken, reason: RefreshReason) -> Seat {
        let (seat, pilot) = self.0.flights.board(token.fingerprint());
        if let Some(pilot) = pilot {
            self.fly(pilot, account.clone(), token.clone(), reason);
        }
        seat
    }

    fn fly(&self, pilot: Pilot, account: Account, token: RefreshToken, reason: RefreshReason) {
        let refresher = self.clone();
        self.0.parts.tasks.finish(async move {
            let landing = refresher.carry_out(&account, &token, reason).await;
            pilot.land(landing);
        });
    }

    /// What a landing means to one of those who waited.
    fn renewal(&self, account: &Account, landing: Landing) -> Renewal {
        match landing {
            Landing::Fresh(fingerprint) => {
                let held = self.locate(account).or_else(|| self.holder(fingerprint));
                match held {
                    None => Renewal::Gone,
                    Some(it)
                        if it.account.credential.fingerprint == account.credential.fingerprint =>
                    {
                        Renewal::Passing
                    }
                    Some(it) => Renewal::Fresh(it.account),
                }
            }
            Landing::NeedsLogin => {
                self.reject(account);
                Renewal::NeedsLogin
            }
            Landing::Passing => Renewal::Passing,
            Landing::Gone => Renewal::Gone,
        }
    }

    /// The account in the pool as it is now. Its id may have changed, since it is better known.
    fn locate(&self, account: &Account) -> Option<Entry> {
        let snapshot = self.0.parts.pool.snapshot();
        let found = snapshot.find(&account.id).cloned();
        found.or_else(|| self.holder(account.credential.fingerprint))
    }

    fn holder(&self, access: Fingerprint) -> Option<Entry> {
        let snapshot = self.0.parts.pool.snapshot();
        let holds = |it: &&Entry| it.account.credential.fingerprint == access;
        snapshot.entries.iter().find(holds).cloned()
    }

    fn reject(&self, account: &Account) {
        self.0.parts.pool.reject(&account.id, account.credential.fingerprint);
    }

    fn elapsed(&self) -> Duration {
        self.0.parts.clock.elapsed()
    }

    /// Counts a renewal, and writes its line.
    fn tell(&self, account: &Account, result: RefreshResult) {
        self.0.parts.metrics.refreshed(result);
        let (label, word) = (&account.label, result.label());
        match result {
            RefreshResult::Refreshed | RefreshResult::Adopted => {
                tracing::info!(account = %label, result = word, "Account {label} has new tokens: {word}");
            }
            RefreshResult::NotPersisted => tracing::error!(
                account = %label, result = word,
                "The new tokens of account {label} are in memory and in the journal, but not in every \
                 file of it. Make the credential directory writable; the gateway keeps trying"
            ),
            RefreshResult::OtherAccount => tracing::warn!(
                account = %label, result = word,
                "The sign-in service gave tokens of another account for account {label}, which takes \
                 its place in that file"
            ),
            RefreshResult::NoRefreshToken | RefreshResult::Terminal => tracing::warn!(
                account = %label, result = word,
                "Account {label} needs a new sign-in ({word}): codex-edge accounts login"
            ),
            RefreshResult::Passing => tracing::warn!(
                account = %label, result = word,
                "The tokens of account {label} could not be renewed just now"
            ),
        }
    }
}
