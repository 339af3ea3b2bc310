//! Renewing the credential of an account that is about to make an attempt, or that was refused.
//!
//! Nothing here blocks: a renewal runs elsewhere and is waited for, and it goes on if the waiting
//! request ends.

use std::{sync::Arc, time::Instant};

use super::{
    Gateway,
    ending::Ending,
    turn::{Attempt, Turn},
};
use crate::{
    accounts::{oauth::RefreshReason, refresh::Renewal},
    domain::{
        account::Account,
        outcome::{Class, ErrorFacts},
    },
    telemetry::labels::Phase,
};

// === impl Gateway ===

impl Gateway {
    /// Begins the next attempt. After a refused credential that is the same account once more, if
    /// its credential can be renewed; else it is an account that was not tried yet.
    ///
    /// # Errors
    /// The answer that ends the request.
    pub async fn next_attempt(
        &self,
        turn: &mut Turn,
        refused: Option<Attempt>,
    ) -> Result<Attempt, Box<Ending>> {
        if let Some(refused) = refused
            && let Some(attempt) = self.recover(turn, refused).await
        {
            return Ok(attempt);
        }
        loop {
            let attempt = self.dispatch(turn)?;
            if let Some(attempt) = self.refreshed(attempt).await {
                return Ok(attempt);
            }
        }
    }

    /// The attempt of an account whose credential was refused, with a new credential and the same
    /// lease. `None` if there is none to be had; the pool knows about the account then.
    async fn recover(&self, turn: &mut Turn, attempt: Attempt) -> Option<Attempt> {
        match self.renew(&attempt, RefreshReason::UnauthorizedRecovery).await {
            Renewal::Fresh(account) => return Some(self.again(attempt, account)),
            Renewal::NeedsLogin | Renewal::Gone => turn.failures.answered += 1,
            Renewal::Passing => {
                turn.failures.renewal += 1;
                self.report(&attempt, Class::Transient, None, ErrorFacts::default());
            }
        }
        self.count_failover(Class::Credential.into());
        None
    }

    /// The attempt, with another credential if its own has expired. `None` if the account cannot
    /// make it.
    async fn refreshed(&self, attempt: Attempt) -> Option<Attempt> {
        if !self.refresher.has_run_out(&attempt.account) {
            return Some(attempt);
        }
        match self.renew(&attempt, RefreshReason::ProactiveExpiry).await {
            Renewal::Fresh(account) => Some(self.again(attempt, account)),
            // The upstream may see the end of the token otherwise than we do.
            Renewal::Passing => Some(attempt),
            Renewal::NeedsLogin | Renewal::Gone => None,
        }
    }

    async fn renew(&self, attempt: &Attempt, reason: RefreshReason) -> Renewal {
        let began = Instant::now();
        let renewal = self.refresher.renew(&attempt.account, reason).await;
        self.metrics.overhead(Phase::Refresh, began.elapsed());
        renewal
    }

    fn again(&self, attempt: Attempt, account: Arc<Account>) -> Attempt {
        Attempt {
            account,
            started: Instant::now(),
            started_at: self.clock.now(),
            lease: attempt.lease,
            reason: attempt.reason,
            renewed: true,
            redials: 0,
            addresses_tried: 0,
        }
    }
}
