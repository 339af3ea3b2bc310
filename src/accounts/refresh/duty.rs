//! What is done for accounts that nobody asks about: tokens are renewed before they end, and what
//! could not be written is written later.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;

use super::{RefreshReason, Refresher, due, renewal::blocking};
use crate::{
    accounts::{
        journal::{self, Entry, Recovered, Unpersisted},
        pool,
        reconciler::Rotation,
    },
    domain::{
        credential::{Fingerprint, RefreshToken},
        health::Readiness,
        identity::Login,
    },
};

/// How often it is looked whether anything is due. It costs a walk over the pool.
const EVERY: Duration = Duration::from_secs(5);

/// Tokens that are not in every file of theirs, by the refresh token that they came for.
#[derive(Debug, Default)]
pub(super) struct Pending(HashMap<Fingerprint, Owed>);

#[derive(Debug)]
pub(super) struct Owed {
    pub(super) entry: Entry,
    pub(super) login: Arc<Login>,
    pub(super) journaled: bool,
    /// Since when, on the clock that nobody sets.
    pub(super) since: Duration,
}

// === impl Refresher ===

impl Refresher {
    /// Does its duty until the last handle is gone.
    pub fn start(&self) {
        let shared = Arc::downgrade(&self.0);
        self.0.parts.tasks.run(async move {
            while let Some(shared) = shared.upgrade() {
                Self(shared).tick().await;
                tokio::time::sleep(EVERY).await;
            }
        });
    }

    /// Begins what is due now, and tries again to write what could not be written. Does not wait
    /// for renewals.
    pub async fn tick(&self) {
        let parts = &self.0.parts;
        let (ours, elapsed) = (parts.clock.now(), self.elapsed());
        for entry in &parts.pool.snapshot().entries {
            if self.is_due(entry, ours, elapsed)
                && let Some(token) = &entry.account.credential.refresh
            {
                drop(self.board(&entry.account, token, RefreshReason::ProactiveExpiry));
            }
        }
        if !self.0.pending.lock().0.is_empty() {
            self.catch_up().await;
        }
    }

    /// Accounts that are switched off or paused are renewed too, so that they can come back.
    fn is_due(&self, entry: &pool::Entry, ours: Timestamp, elapsed: Duration) -> bool {
        let account = &entry.account;
        let credential = &account.credential;
        let Some(token) = credential.refresh.as_ref().map(RefreshToken::fingerprint) else {
            return false;
        };
        let needs_login = matches!(entry.runtime.readiness(ours), Readiness::NeedsLogin);
        let memory = self.0.memory.lock();
        due::due(account).is_some_and(|due| due <= memory.true_time(ours))
            && !needs_login
            && !account.eligibility.out_of_sight
            && !memory.is_spent(token)
            && !memory.is_young(credential.fingerprint, elapsed)
            && memory.rests_until(token, elapsed).is_none()
    }

    /// Writes what the files lack.
    async fn catch_up(&self) {
        let (owed, unjournaled) = self.0.pending.lock().owed();
        let parts = &self.0.parts;
        let (files, journal, now) = (parts.files.clone(), parts.journal.clone(), parts.clock.now());
        let recovered = blocking(move || {
            let put = unjournaled.into_iter().filter(|it| journal.put(it).is_ok());
            let put: Vec<Fingerprint> = put.map(|it| it.old).collect();
            journal::recover(&files, &journal, now).map(|it| (put, it))
        });
        let Some(Ok((put, recovered))) = recovered.await else { return };
        // A file that is away may come back as long as an account that is away may.
        let gone = self.elapsed().saturating_sub(parts.config.removal_grace);
        let written = {
            let mut pending = self.0.pending.lock();
            let done = owed.into_iter().filter(|it| pending.is_paid(it, &recovered, gone));
            let done = done.collect();
            pending.settle(&put, &done)
        };
        if written.is_empty() {
            return;
        }
        for Owed { entry, login: new, .. } in written {
            if entry.only.is_none() {
                parts.reconciler.rotated(Rotation { old: entry.old, new, persisted: true });
            }
        }
        parts.reconciler.look().await;
        tracing::info!("Renewed tokens that could not be written are in their files now");
    }
}

// === impl Pending ===

impl Pending {
    pub(super) fn new(unpersisted: Vec<Unpersisted>, elapsed: Duration) -> Self {
        let owed = unpersisted.into_iter().map(|it| {
            let Unpersisted { entry, login } = it;
            (entry.old, Owed { entry, login, journaled: true, since: elapsed })
        });
        Self(owed.collect())
    }

    pub(super) fn add(&mut self, owed: Owed) {
        self.0.insert(owed.entry.old, owed);
    }

    /// Whether every file holds what was owed to it, or none has been there since before `gone`.
    fn is_paid(&self, old: &Fingerprint, recovered: &Recovered, gone: Duration) -> bool {
        let is_old = || self.0.get(old).is_some_and(|it| it.since < gone);
        !recovered.unpersisted.iter().any(|it| it.entry.old == *old)
            && (!recovered.without_file.contains(old) || is_old())
    }

    /// The token, and those in files that it has come for.
    pub(super) fn line_of(&self, token: Fingerprint) -> BTreeSet<Fingerprint> {
        let mut line = BTreeSet::from([token]);
        loop {
            let known = line.len();
            let came_for = |it: &&Owed| {
                let new = it.entry.tokens.refresh.as_ref().map(RefreshToken::fingerprint);
                new.is_some_and(|new| line.contains(&new))
            };
            let earlier: Vec<Fingerprint> =
                self.0.values().filter(came_for).map(|it| it.entry.old).collect();
            line.extend(earlier);
            if line.len() == known {
                return line;
            }
        }
    }

    /// All that is owed now, and what of it is not in the journal either.
    fn owed(&self) -> (Vec<Fingerprint>, Vec<Entry>) {
        let unjournaled = self.0.values().filter(|it| !it.journaled);
        (self.0.keys().copied().collect(), unjournaled.map(|it| it.entry.clone()).collect())
    }

    /// Takes note of what is in the journal now, and gives what is `done`. What has come to be owed
    /// in the meantime is not among that.
    fn settle(&mut self, journaled: &[Fingerprint], done: &BTreeSet<Fingerprint>) -> Vec<Owed> {
        for old in journaled {
            if let Some(owed) = self.0.get_mut(old) {
                owed.journaled = true;
            }
        }
        let done = self.0.extract_if(|old, it| it.journaled && done.contains(old));
        done.map(|(_, it)| it).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::credential::AccessToken,
        protocol::credential_file::{self, rewrite::NewTokens},
    };

    fn owed(pending: &mut Pending, old: u8) {
        let file = br#"{"tokens":{"access_token":"a","refresh_token":"r"}}"#;
        let login = Arc::new(credential_file::parse(file).unwrap().login);
        let access = AccessToken::new("b".into()).unwrap();
        let (refresh, id_token, account_id) = (None, None, None);
        let last_refresh = Timestamp::UNIX_EPOCH;
        let tokens = NewTokens { access, refresh, id_token, account_id, last_refresh };
        let entry = Entry { old: Fingerprint::from_bytes([old; 16]), tokens, only: None };
        pending.add(Owed { entry, login, journaled: true, since: Duration::ZERO });
    }

    #[test]
    fn what_comes_to_be_owed_while_older_debts_are_paid_stays_owed() {
        let mut pending = Pending::default();
        owed(&mut pending, 1);
        let (before, _) = pending.owed();
        owed(&mut pending, 2);
        assert_eq!(pending.settle(&[], &before.into_iter().collect()).len(), 1);
        assert_eq!(pending.owed().0, [Fingerprint::from_bytes([2; 16])]);
    }
}
