//! What becomes of an attempt: its answer goes to the client, or another account tries.
//!
//! Invariant: once an answer is delivered the turn is committed, and nothing is repeated after
//! that.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use jiff::{SignedDuration, Timestamp, fmt::rfc2822};

use super::{
    Gateway,
    hold::Release,
    turn::{Attempt, StoredAnswer, Turn},
};
use crate::{
    domain::{
        health::Report,
        outcome::{Class, ErrorFacts},
    },
    protocol::{error_body, headers},
    telemetry::labels::{AttemptOutcome, FailoverReason, ReplayRefusal},
};

/// The beginning of an upstream answer.
#[derive(Debug)]
pub struct Answer<'a> {
    pub status: StatusCode,
    pub headers: &'a HeaderMap,
    pub seen: Seen<'a>,
}

/// What was read of an answer's body before deciding.
#[derive(Debug)]
pub enum Seen<'a> {
    Nothing,
    ErrorBody { bytes: &'a Bytes, complete: bool },
    Stream { bytes: &'a [Bytes], release: &'a Release },
}

/// Where an attempt was when it broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Not one byte of the request was sent.
    Connect,
    /// The request was sent, in part or whole, and no answer came.
    BeforeAnswer,
    /// The upstream stayed silent for longer than it may.
    Timeout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The client gets this answer.
    Deliver,
    /// Another account may try, and nothing of this answer is shown.
    Another,
    /// The same account tries once more, once its credential has been renewed.
    Renew,
}

// === impl Gateway ===

impl Gateway {
    /// Judges the beginning of an answer, and tells the pool what it says about the account.
    pub fn judge(&self, turn: &mut Turn, attempt: &mut Attempt, answer: &Answer<'_>) -> Verdict {
        let (class, facts) = classify(answer);
        let now = self.clock.now();
        if class == Class::Credential && !attempt.renewed {
            turn.record(attempt, class);
            self.metrics.attempt(class.into());
            return Verdict::Renew;
        }
        // What somebody else has put into the file may be refused as well, and be renewed the next
        // time.
        if class == Class::Credential && self.refresher.may_help(&attempt.account) {
            return self.put_off(turn, attempt);
        }
        // A stream that is let go without output has proved nothing yet; its end will tell.
        if !matches!(answer.seen, Seen::Stream { release: Release::Limit, .. }) {
            self.report(attempt, class, retry_after(answer.headers, now), facts);
        }
        self.metrics.attempt(class.into());
        if !class.is_another_accounts_chance() {
            turn.committed = true;
            // Nothing is repeated from here on, and a stream may last long.
            turn.request.body = Arc::default();
            attempt.lease.commit();
            self.keep_session(turn, attempt, class, answer, now);
            return Verdict::Deliver;
        }
        self.give_up(turn, attempt, class, answer)
    }

    /// A session stays with the account that has answered it; nothing moves before that.
    fn keep_session(
        &self,
        turn: &Turn,
        attempt: &Attempt,
        class: Class,
        answer: &Answer<'_>,
        now: Timestamp,
    ) {
        let account = &attempt.account.id;
        self.sessions.issued(turn.request.tenant.user.as_str(), answer.headers, account, now);
        let answered = class == Class::Success
            && matches!(answer.seen, Seen::Nothing | Seen::Stream { release: Release::Output, .. });
        if answered && let Some(session) = &turn.request.session {
            self.sessions.commit(session, account, now);
        }
    }

    /// An answer broke off after it had begun. Another account could not go on with it.
    pub fn cut(&self) {
        self.metrics.replay_refused(ReplayRefusal::OutputBegun);
    }

    /// An attempt broke before anything of its answer was shown; another account may try.
    pub fn lost(&self, turn: &mut Turn, attempt: &Attempt, loss: Loss) {
        turn.record(attempt, Class::Transport);
        let outcome = match loss {
            Loss::Connect => AttemptOutcome::Unreachable,
            Loss::BeforeAnswer => AttemptOutcome::Transport,
            Loss::Timeout => AttemptOutcome::TimedOut,
        };
        self.metrics.attempt(outcome);
        self.count_failover(outcome);
        turn.counted += 1;
        let failures = &mut turn.failures;
        match loss {
            Loss::Connect => failures.connect += 1,
            Loss::BeforeAnswer => failures.transport += 1,
            Loss::Timeout => failures.timeout += 1,
        }
    }

    /// Tells the pool what an attempt says about its account.
    pub(super) fn report(
        &self,
        attempt: &Attempt,
        class: Class,
        retry_after: Option<SignedDuration>,
        facts: ErrorFacts,
    ) {
        let report = Report {
            class,
            retry_after,
            facts,
            started_at: attempt.started_at,
            fingerprint: attempt.account.credential.fingerprint,
        };
        self.pool.report(&attempt.lease, &report, self.clock.now());
    }

    pub(super) fn count_failover(&self, outcome: AttemptOutcome) {
        if let Some(reason) = FailoverReason::of(outcome) {
            self.metrics.failover(reason);
        }
    }

    /// Another account tries; this one keeps its login and is asked for later.
    fn put_off(&self, turn: &mut Turn, attempt: &Attempt) -> Verdict {
        self.report(attempt, Class::Transient, None, ErrorFacts::default());
        turn.record(attempt, Class::Credential);
        turn.failures.renewal += 1;
        self.metrics.attempt(Class::Credential.into());
        self.count_failover(Class::Credential.into());
        Verdict::Another
    }

    fn give_up(
        &self,
        turn: &mut Turn,
        attempt: &Attempt,
        class: Class,
        answer: &Answer<'_>,
    ) -> Verdict {
        turn.record(attempt, class);
        match &answer.seen {
            Seen::Stream { release: Release::Broken, .. } => turn.failures.transport += 1,
            Seen::Stream { .. } | Seen::ErrorBody { .. } | Seen::Nothing => {
                turn.failures.answered += 1;
            }
        }
        if class == Class::ModelUnsupported {
            turn.unsupported.push(attempt.account.id.clone());
        }
        // Refusals that cost the upstream nothing must not keep a pool of many limited accounts
        // from finding its good ones.
        if !matches!(answer.status.as_u16(), 401 | 402 | 403 | 429) {
            turn.counted += 1;
        }
        // The state of a pool account's login is not the client's to know.
        if class != Class::Credential
            && let Some(body) = whole_body(&answer.seen)
        {
            let mut headers = answer.headers.clone();
            headers::clean_response(&mut headers, attempt.account.shown_to_nobody());
            turn.last = Some(StoredAnswer { status: answer.status, headers, body });
        }
        self.count_failover(class.into());
        Verdict::Another
    }
}

fn classify(answer: &Answer<'_>) -> (Class, ErrorFacts) {
    match &answer.seen {
        Seen::ErrorBody { bytes, .. } => {
            let facts = error_body::parse(bytes);
            let content_type = answer.headers.get(header::CONTENT_TYPE);
            let html = error_body::is_html(content_type.map(HeaderValue::as_bytes), bytes);
            (Class::of_status(answer.status, html, &facts), facts)
        }
        Seen::Stream { release: Release::Failed(facts), .. } => {
            (Class::of_stream(facts), facts.clone())
        }
        Seen::Stream { release: Release::Ended | Release::Broken, .. } => {
            (Class::Transport, ErrorFacts::default())
        }
        Seen::Stream { release: Release::Output | Release::Limit, .. } | Seen::Nothing => {
            (Class::of_status(answer.status, false, &ErrorFacts::default()), ErrorFacts::default())
        }
    }
}

fn whole_body(seen: &Seen<'_>) -> Option<Bytes> {
    match seen {
        Seen::ErrorBody { bytes, complete: true } => Some((*bytes).clone()),
        Seen::Stream { bytes, release: Release::Failed(_) | Release::Ended } => {
            Some(bytes.concat().into())
        }
        Seen::ErrorBody { .. } | Seen::Stream { .. } | Seen::Nothing => None,
    }
}

/// Reads `Retry-After`: whole seconds, or a date.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<SignedDuration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(SignedDuration::from_secs(seconds.into()));
    }
    let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(date.duration_since(now)).filter(|it| it.is_positive())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_given_in_seconds_or_as_a_date() {
        let now: Timestamp = "2026-12-01T10:00:00Z".parse().unwrap();
        let table = [
            ("30", Some(30)),
            ("0", Some(0)),
            ("Tue, 01 Dec 2026 10:01:30 GMT", Some(90)),
            ("Tue, 01 Dec 2026 09:00:00 GMT", None),
            ("1.5", None),
            ("soon", None),
        ];
        for (text, seconds) in table {
            let headers = HeaderMap::from_iter([(header::RETRY_AFTER, text.parse().unwrap())]);
            assert_eq!(retry_after(&headers, now).map(|it| it.as_secs()), seconds, "{text}");
        }
    }
}
