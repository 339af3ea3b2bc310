//! The last word on a request that no account could serve: the most useful answer there is. Pure.
//!
//! «Useful» is measured by the real client: it shows a used-up limit as a clear text with the time
//! it ends, waits exactly as long as it is told to for a short rest, and retries a 5xx for half a
//! minute without saying why.

use jiff::Timestamp;

use super::turn::{Failures, StoredAnswer};
use crate::domain::{
    account::Eligibility,
    health::{CoolingKind, Readiness},
    refusal::{Kind, Refusal, UsageLimit},
};

/// A rest that a client may as well sit out.
const SHORT_REST_SECONDS: i64 = 60;

/// When a renewal that failed may be tried again.
const RENEWAL_REST_SECONDS: u64 = 5;

/// How a request ends that no account served.
#[derive(Debug)]
pub enum Ending {
    Refuse(Refusal),
    Verbatim(StoredAnswer),
}

/// One account, as this request sees it.
#[derive(Clone, Debug)]
pub struct Standing {
    pub eligibility: Eligibility,
    pub readiness: Readiness,
    pub tried: bool,
    /// It said that it does not serve the model.
    pub unsupported: bool,
}

/// What came of the attempts.
#[derive(Debug)]
pub struct Search<'a> {
    pub model: Option<&'a str>,
    pub failures: Failures,
    pub last: Option<StoredAnswer>,
}

/// Decides on the last word, in the order of usefulness.
pub fn last_word(standings: &[Standing], search: Search<'_>, now: Timestamp) -> Ending {
    let usable: Vec<&Standing> = standings.iter().filter(|it| it.is_usable()).collect();
    if usable.is_empty() {
        return Ending::Refuse(nobody(standings));
    }
    if usable.iter().all(|it| it.unsupported) {
        return Ending::Refuse(no_model(search.model));
    }
    if let Some(limit) = quota_limit(&usable) {
        return Ending::Refuse(used_up(limit));
    }
    let resting: Vec<Timestamp> = usable.iter().filter_map(|it| it.rests_until()).collect();
    if resting.len() == usable.len() {
        return Ending::Refuse(all_rest(standings, &resting, now));
    }
    if search.failures.only_unreachable() {
        return Ending::Refuse(Refusal::new(
            Kind::UpstreamUnreachable,
            "The gateway cannot reach the Codex service. Its operator should look at the network \
             and at upstream.codex_base_url.",
        ));
    }
    if usable.iter().any(|it| !it.tried && it.rests_until().is_none()) {
        return Ending::Refuse(
            Refusal::new(
                Kind::RateLimitExceeded,
                "Several accounts failed in a row and others were not tried yet. Try again.",
            )
            .retry_after(1),
        );
    }
    attempts_failed(search)
}

fn attempts_failed(search: Search<'_>) -> Ending {
    let failures = search.failures;
    if let Some(last) = search.last {
        return Ending::Verbatim(last);
    }
    if failures.renewal > 0 {
        return Ending::Refuse(
            Refusal::new(
                Kind::AccountRefreshFailed,
                "The sign-in service did not renew an account's login just now, and no other \
                 account could serve. Try again.",
            )
            .retry_after(RENEWAL_REST_SECONDS),
        );
    }
    if failures.timeout > 0 {
        return Ending::Refuse(Refusal::new(
            Kind::UpstreamTimeout,
            "The Codex service did not begin to answer in time. Try again.",
        ));
    }
    Ending::Refuse(Refusal::new(
        Kind::UpstreamTransportError,
        "The connection to the Codex service broke before it answered. Try again.",
    ))
}

/// Nobody can serve anything: names each cause and how many accounts have it.
fn nobody(standings: &[Standing]) -> Refusal {
    Refusal::new(
        Kind::NoAccountAvailable,
        format!("No account can serve now: {}.", causes(standings)),
    )
}

fn causes(standings: &[Standing]) -> String {
    let count = |matches: fn(&Standing) -> bool| standings.iter().filter(|it| matches(it)).count();
    let causes = [
        (count(|it| it.eligibility.disabled), "disabled"),
        (count(|it| !it.eligibility.disabled && it.eligibility.paused), "paused"),
        (count(|it| it.eligibility.out_of_sight), "whose files cannot be read"),
        (
            count(|it| it.eligibility.is_open() && matches!(it.readiness, Readiness::NeedsLogin)),
            "in need of a new sign-in",
        ),
        (count(|it| it.is_usable() && it.rests_until().is_some()), "resting after a limit"),
    ];
    let named: Vec<String> = causes
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, cause)| format!("{count} {cause}"))
        .collect();
    if named.is_empty() {
        "the pool has none. The gateway's operator puts an auth.json into its credential directory"
            .to_owned()
    } else {
        named.join(", ")
    }
}

fn no_model(model: Option<&str>) -> Refusal {
    let model = model.unwrap_or_default();
    Refusal::new(
        Kind::ModelNotFound,
        format!("No account of this gateway serves the model \"{model}\". Choose another model."),
    )
}

/// The earliest end of the limits, if every account has run into one. A refusal that did not tell
/// when it ends was about a burst, not about a limit.
fn quota_limit(usable: &[&Standing]) -> Option<UsageLimit> {
    let limits: Option<Vec<(Timestamp, UsageLimit)>> = usable
        .iter()
        .map(|it| match &it.readiness {
            Readiness::Cooling {
                kind: CoolingKind::Quota { resets_at: Some(end), plan_type },
                ..
            } => {
                let limit =
                    UsageLimit { resets_at: Some(end.as_second()), plan_type: plan_type.clone() };
                Some((*end, limit))
            }
            Readiness::Ready
            | Readiness::Avoid { .. }
            | Readiness::NeedsLogin
            | Readiness::Cooling { .. } => None,
        })
        .collect();
    limits?.into_iter().min_by_key(|(end, _)| *end).map(|(_, limit)| limit)
}

fn used_up(limit: UsageLimit) -> Refusal {
    let until = limit
        .resets_at
        .and_then(|it| Timestamp::from_second(it).ok())
        .map_or_else(String::new, |it| format!(" until {it}"));
    Refusal::new(
        Kind::UsageLimitReached,
        format!("Every account of this gateway has used up its limit{until}. Try again then."),
    )
    .limit(limit)
}

fn all_rest(standings: &[Standing], resting: &[Timestamp], now: Timestamp) -> Refusal {
    let first = resting.iter().min().copied().unwrap_or(now);
    let seconds = first.duration_since(now).as_secs_f64().ceil().max(1.0) as i64;
    if seconds <= SHORT_REST_SECONDS {
        return Refusal::new(
            Kind::RateLimitExceeded,
            format!("Every account rests for a moment. The first is back in {seconds} seconds."),
        )
        .retry_after(seconds.unsigned_abs());
    }
    Refusal::new(
        Kind::NoAccountAvailable,
        format!("No account can serve before {first}: {}.", causes(standings)),
    )
}

// === impl Standing ===

impl Standing {
    fn is_usable(&self) -> bool {
        self.eligibility.is_open() && !matches!(self.readiness, Readiness::NeedsLogin)
    }

    fn rests_until(&self) -> Option<Timestamp> {
        match &self.readiness {
            Readiness::Cooling { until, .. } => Some(*until),
            Readiness::Ready | Readiness::Avoid { .. } | Readiness::NeedsLogin => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-12-01T10:00:00Z".parse().unwrap()
    }

    fn after(seconds: i64) -> Timestamp {
        Timestamp::from_second(now().as_second() + seconds).unwrap()
    }

    fn off() -> Eligibility {
        Eligibility { disabled: true, ..Eligibility::default() }
    }

    fn standing(readiness: Readiness) -> Standing {
        Standing { eligibility: Eligibility::default(), readiness, tried: true, unsupported: false }
    }

    fn quota(seconds: i64) -> Standing {
        let kind = CoolingKind::Quota {
            resets_at: Some(after(seconds)),
            plan_type: Some(format!("plan{seconds}")),
        };
        standing(Readiness::Cooling { until: after(900), kind })
    }

    fn resting(seconds: i64) -> Standing {
        standing(Readiness::Cooling { until: after(seconds), kind: CoolingKind::Workspace })
    }

    fn search(failures: Failures, last: Option<u16>) -> Search<'static> {
        let last = last.map(|status| StoredAnswer {
            status: http::StatusCode::from_u16(status).unwrap(),
            headers: http::HeaderMap::new(),
            body: bytes::Bytes::new(),
        });
        Search { model: Some("gpt-5.5"), failures, last }
    }

    fn word(standings: &[Standing], search: Search<'_>) -> String {
        match last_word(standings, search, now()) {
            Ending::Verbatim(answer) => format!("verbatim {}", answer.status.as_u16()),
            Ending::Refuse(refusal) => format!(
                "{}{}",
                refusal.kind.code(),
                refusal.retry_after.map_or_else(String::new, |it| format!(" after {it}"))
            ),
        }
    }

    #[test]
    fn the_most_useful_answer_wins() {
        let ready = || standing(Readiness::Ready);
        let login = || standing(Readiness::NeedsLogin);
        let disabled = || Standing { eligibility: off(), ..ready() };
        let unsupported = || Standing { unsupported: true, ..ready() };
        let untried = || Standing { tried: false, ..ready() };
        let avoided = || standing(Readiness::Avoid { until: after(30) });
        let none = Failures::default();
        let answered = Failures { answered: 1, ..none };
        let connect = Failures { connect: 2, ..none };
        let broke = Failures { transport: 1, ..none };
        let timeout = Failures { timeout: 1, ..none };
        let renewal = Failures { renewal: 1, ..none };
        let both = Failures { connect: 1, ..renewal };
        let table = [
            (vec![], none, None, "no_account_available"),
            (vec![login(), disabled()], answered, Some(500), "no_account_available"),
            (vec![unsupported(), login()], answered, Some(404), "model_not_found"),
            (vec![quota(600), quota(300), login()], answered, None, "usage_limit_reached"),
            (vec![quota(600), resting(20)], answered, None, "rate_limit_exceeded after 20"),
            (vec![resting(61), quota(600)], answered, None, "no_account_available"),
            (vec![quota(600), untried()], answered, Some(500), "rate_limit_exceeded after 1"),
            (vec![ready()], connect, None, "upstream_unreachable"),
            (vec![ready(), quota(9)], connect, Some(429), "upstream_unreachable"),
            (vec![avoided()], answered, Some(500), "verbatim 500"),
            (vec![ready()], broke, None, "upstream_transport_error"),
            (vec![ready()], timeout, None, "upstream_timeout"),
            (vec![avoided()], renewal, None, "account_refresh_failed after 5"),
            (vec![avoided(), ready()], both, None, "account_refresh_failed after 5"),
            (vec![avoided(), ready()], renewal, Some(500), "verbatim 500"),
            (vec![avoided(), untried()], renewal, None, "rate_limit_exceeded after 1"),
        ];
        for (standings, failures, last, expected) in table {
            assert_eq!(word(&standings, search(failures, last)), expected, "{standings:?}");
        }
    }

    #[test]
    fn a_used_up_pool_tells_the_earliest_reset_and_its_plan() {
        let search = search(Failures::default(), None);
        let Ending::Refuse(refusal) = last_word(&[quota(600), quota(300)], search, now()) else {
            panic!("not a refusal");
        };
        let limit = refusal.limit.unwrap();
        assert_eq!(limit.resets_at, Some(after(300).as_second()));
        assert_eq!(limit.plan_type.as_deref(), Some("plan300"));
    }

    #[test]
    fn a_pool_that_cannot_serve_names_each_cause_and_its_count() {
        let standings = [
            standing(Readiness::NeedsLogin),
            standing(Readiness::NeedsLogin),
            Standing { eligibility: off(), ..standing(Readiness::Ready) },
        ];
        let search = search(Failures::default(), None);
        let Ending::Refuse(refusal) = last_word(&standings, search, now()) else {
            panic!("not a refusal");
        };
        assert!(refusal.message.contains("1 disabled, 2 in need of a new sign-in"), "{refusal:?}");
    }
}
