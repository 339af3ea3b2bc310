//! Which account makes the next attempt, or the last word if none can.

use std::time::Instant;

use jiff::Timestamp;

use super::{
    Gateway,
    ending::{self, Ending, Search, Standing},
    turn::{Attempt, Turn},
};
use crate::{
    accounts::pool::{Pick, Snapshot},
    domain::select::Reason,
    telemetry::labels::Phase,
};

// === impl Gateway ===

impl Gateway {
    /// Begins the next attempt with an account that was not tried yet. Takes the account's lease.
    ///
    /// The pool is asked anew for each attempt, so that an account which has just been disabled or
    /// has just run into a limit is not taken on old knowledge.
    ///
    /// # Errors
    /// The answer that ends the request.
    pub(super) fn dispatch(&self, turn: &mut Turn) -> Result<Attempt, Box<Ending>> {
        let now = self.clock.now();
        let snapshot = self.pool.snapshot();
        let routing = &turn.request.config.routing;
        let exhausted = turn.counted >= routing.max_attempts.get()
            || (turn.failures.any() && turn.search_began.elapsed() >= routing.attempt_deadline);
        let began = Instant::now();
        let pick = if exhausted { None } else { self.choose(&snapshot, turn, now) };
        self.metrics.overhead(Phase::Select, began.elapsed());
        if let Some((pick, reason)) = pick {
            self.metrics.selection(reason);
            turn.tried.push(pick.account.id.clone());
            return Ok(Attempt {
                account: pick.account,
                started: Instant::now(),
                started_at: now,
                lease: pick.lease,
                reason,
                renewed: false,
                redials: 0,
                addresses_tried: 0,
            });
        }
        let standings: Vec<Standing> = self
            .pool
            .census(&snapshot, now)
            .into_iter()
            .map(|(account, readiness)| Standing {
                eligibility: account.eligibility,
                tried: turn.tried.contains(&account.id),
                unsupported: turn.unsupported.contains(&account.id),
                readiness,
            })
            .collect();
        let search = Search {
            model: turn.request.model.as_deref(),
            failures: turn.failures,
            last: turn.last.take(),
        };
        Err(Box::new(ending::last_word(&standings, search, now)))
    }

    /// The account that holds the session comes first; a failed one is followed by whoever is next.
    fn choose(&self, snapshot: &Snapshot, turn: &Turn, now: Timestamp) -> Option<(Pick, Reason)> {
        if !turn.tried.is_empty() {
            let pick = self.pool.pick(snapshot, &turn.tried, now)?;
            return Some((pick, Reason::Failover));
        }
        let session = turn.request.session.as_ref();
        let bound = session
            .and_then(|session| self.sessions.lookup(session, now))
            .and_then(|account| self.pool.take(snapshot, &account, now));
        match bound {
            Some(pick) => Some((pick, Reason::Bound)),
            None => Some((self.pool.pick(snapshot, &[], now)?, Reason::PoolRank)),
        }
    }
}
