//! Which account serves a request. Pure, and the same for the same input.
//!
//! The rank is the account's standing, then how many turns it runs, then how long ago it was used,
//! then its id. While no two turns overlap, this is an exact round robin; an account that drops out
//! leaves its share to all others alike.

use super::{account::AuthId, health::Tier};

/// One account as the selection sees it.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    pub id: &'a AuthId,
    /// `None` if the account may not serve now, for whatever reason.
    pub tier: Option<Tier>,
    /// Whether this request has been at the account already.
    pub tried: bool,
    pub active_turns: u32,
    /// When the account was picked last, as a number that grows with every pick; 0 is never.
    pub last_used: u64,
}

/// The answer of [`select`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The place of the chosen candidate.
    Use { index: usize, tier: Tier },
    /// No candidate may serve that this request has not tried.
    None,
}

/// Why an account was chosen for an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It holds the session.
    Bound,
    /// Another first request of the same session is with it just now.
    Reserved,
    /// It has the best rank in the pool.
    PoolRank,
    /// It has a worse rank than the account that would fit best, since that one has its hands full.
    Spill,
    /// Another account failed in this request.
    Failover,
    /// It rests, and this request finds out whether it still has to.
    Probe,
    /// The configuration or the model's name says so.
    Direct,
}

/// Picks the best candidate.
pub fn select<'a>(candidates: impl IntoIterator<Item = Candidate<'a>>) -> Selection {
    let ranked = candidates.into_iter().enumerate().filter_map(|(index, it)| {
        let tier = it.tier.filter(|_| !it.tried)?;
        Some(((tier, it.active_turns, it.last_used, it.id), index))
    });
    match ranked.min() {
        Some(((tier, ..), index)) => Selection::Use { index, tier },
        None => Selection::None,
    }
}

// === impl Reason ===

impl Reason {
    /// The name in logs and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Bound => "bound",
            Self::Reserved => "reserved",
            Self::PoolRank => "pool_rank",
            Self::Spill => "spill",
            Self::Failover => "failover",
            Self::Probe => "probe",
            Self::Direct => "direct",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: Option<Tier> = Some(Tier::Ready);
    const AVOID: Option<Tier> = Some(Tier::Avoid);
    const OUT: Option<Tier> = None;

    /// Standing, whether tried, active turns, last use.
    type Row = (Option<Tier>, bool, u32, u64);

    fn ids(count: usize) -> Vec<AuthId> {
        let id = |number| AuthId::parse(&format!("acc_{number:020}")).unwrap();
        (0..count).map(id).collect()
    }

    fn picked(rows: &[Row]) -> Option<usize> {
        let ids = ids(rows.len());
        let candidates = rows.iter().zip(&ids).map(|(row, id)| Candidate {
            id,
            tier: row.0,
            tried: row.1,
            active_turns: row.2,
            last_used: row.3,
        });
        match select(candidates) {
            Selection::Use { index, .. } => Some(index),
            Selection::None => None,
        }
    }

    #[test]
    fn the_rank_is_standing_then_load_then_age_then_id() {
        let table: [(&str, &[Row], Option<usize>); 9] = [
            ("nobody is there", &[], None),
            ("standing before load", &[(AVOID, false, 0, 0), (READY, false, 9, 9)], Some(1)),
            ("load before age", &[(READY, false, 1, 0), (READY, false, 0, 9)], Some(1)),
            ("age before id", &[(READY, false, 1, 8), (READY, false, 1, 7)], Some(1)),
            ("the id at last", &[(READY, false, 1, 7), (READY, false, 1, 7)], Some(0)),
            (
                "an avoided one if nothing is better",
                &[(AVOID, false, 5, 5), (OUT, false, 0, 0)],
                Some(0),
            ),
            ("never a tried one", &[(READY, true, 0, 0), (AVOID, false, 5, 5)], Some(1)),
            ("never one that may not", &[(OUT, false, 0, 0)], None),
            ("nobody if all are tried", &[(READY, true, 0, 0), (AVOID, true, 0, 0)], None),
        ];
        for (name, rows, wanted) in table {
            assert_eq!(picked(rows), wanted, "{name}");
        }
    }

    #[test]
    fn without_overlap_it_is_an_exact_round_robin() {
        let mut rows: Vec<Row> = vec![(READY, false, 0, 0); 4];
        for turn in 1..=40_u64 {
            let at = picked(&rows).unwrap();
            assert_eq!(at, usize::try_from((turn - 1) % 4).unwrap());
            rows[at].3 = turn;
        }
    }

    #[test]
    fn an_account_that_drops_out_leaves_its_share_to_all_others() {
        let mut rows: Vec<Row> = vec![(READY, false, 0, 0); 4];
        rows[1].0 = OUT;
        let mut shares = [0_u32; 4];
        for turn in 1..=300_u64 {
            let at = picked(&rows).unwrap();
            rows[at].3 = turn;
            shares[at] += 1;
        }
        assert_eq!(shares, [100, 0, 100, 100]);
    }
}
