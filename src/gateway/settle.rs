//! The end of a request, told exactly once: metrics and one line of the access log.

use std::time::{Duration, Instant};

use http::StatusCode;

use super::{
    Gateway,
    turn::{Attempt, Turn},
};
use crate::{
    domain::outcome::{Class, ErrorFacts},
    protocol::events::Usage,
    telemetry::labels::{LabelSet, Phase, Route, TokenKind, Transport},
};

/// What the edge saw of a request, to its last byte.
#[derive(Debug)]
pub struct Closing<'a> {
    pub request_id: &'a str,
    pub route: Route,
    pub transport: Transport,
    pub status: Option<StatusCode>,
    pub began: Instant,
    pub first_byte: Option<Duration>,
    pub end: End,
    pub usage: Option<Usage>,
    pub outcome: &'a StreamOutcome,
    /// The request id of the upstream, where its answer was relayed.
    pub upstream_request_id: Option<&'a str>,
}

/// How a stream said that it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StreamOutcome {
    /// It said nothing, or was no stream.
    #[default]
    Untold,
    Completed,
    /// It was committed when it told of a failure: the client has that, and the pool should too.
    Failed(ErrorFacts),
}

/// How the request ended for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The whole answer was sent.
    Complete,
    /// The client left.
    ClientGone,
    /// The upstream broke off after the answer had begun.
    Cut,
    /// The gateway answered in its own name.
    Refused,
}

// === impl Gateway ===

impl Gateway {
    /// Closes a request's books. The attempt's lease ends with this call.
    pub fn settle(&self, turn: Option<Turn>, attempt: Option<Attempt>, closing: &Closing<'_>) {
        let settling = Instant::now();
        let took = closing.began.elapsed();
        let status = closing.status.map_or(0, |it| it.as_u16());
        self.metrics.request(closing.route, closing.transport, status);
        self.metrics.request_duration(closing.route, took);
        if let Some(first_byte) = closing.first_byte {
            self.metrics.time_to_first_byte(closing.route, first_byte);
        }
        if let Some(usage) = closing.usage {
            self.count_tokens(&usage);
        }
        let mut turn = turn;
        if let (Some(turn), Some(attempt)) = (&mut turn, &attempt)
            && turn.committed
        {
            let class = self.report_end(attempt, closing.outcome);
            turn.record(attempt, class);
        }
        let attempts = turn.as_ref().map(Turn::attempts).unwrap_or_default();
        tracing::info!(
            request_id = closing.request_id,
            upstream_request_id = closing.upstream_request_id,
            user = turn.as_ref().map(|it| it.request.tenant.user.as_str()),
            route = closing.route.label(),
            model = turn.as_ref().and_then(|it| it.request.model.as_deref()),
            account = attempts.last().map(|it| it.account.as_str()),
            selection = attempts.last().map(|it| it.reason.label()),
            attempts = attempts.len(),
            tried = %Tried(attempts),
            status,
            outcome = closing.end.label(),
            ttft_ms = closing.first_byte.map(millis),
            ms = millis(took),
            input_tokens = closing.usage.map(|it| it.input),
            output_tokens = closing.usage.map(|it| it.output),
            "{} {status} in {} ms",
            closing.route.label(),
            millis(took),
        );
        self.metrics.overhead(Phase::Settle, settling.elapsed());
    }

    /// Tells the pool how a committed stream ended.
    fn report_end(&self, attempt: &Attempt, outcome: &StreamOutcome) -> Class {
        let (class, facts) = match outcome {
            StreamOutcome::Untold => return Class::Success,
            StreamOutcome::Completed => (Class::Success, ErrorFacts::default()),
            StreamOutcome::Failed(facts) => (Class::of_stream(facts), facts.clone()),
        };
        self.report(attempt, class, None, facts);
        class
    }

    fn count_tokens(&self, usage: &Usage) {
        for (kind, count) in [
            (TokenKind::Input, usage.input),
            (TokenKind::CachedInput, usage.cached_input),
            (TokenKind::Output, usage.output),
            (TokenKind::Reasoning, usage.reasoning),
        ] {
            self.metrics.tokens(kind, count);
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// `account:outcome` of each attempt.
struct Tried<'a>(&'a [super::turn::AttemptRecord]);

impl std::fmt::Display for Tried<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, attempt) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(out, "{comma}{}:{}", attempt.account, attempt.outcome.label())?;
        }
        Ok(())
    }
}

// === impl End ===

impl End {
    pub fn label(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::ClientGone => "client_gone",
            Self::Cut => "cut",
            Self::Refused => "refused",
        }
    }
}
