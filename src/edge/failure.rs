//! What Pingora's errors mean for an attempt.

use http::StatusCode;
use pingora_core::{Error, ErrorSource, ErrorType};

use super::ctx::Attempting;
use crate::{
    domain::refusal::{Kind, Refusal},
    gateway::turn::Attempt,
};

/// How often a dead pooled connection may be replaced within one attempt.
const REDIALS_MAX: u8 = 2;

/// Whether a pooled connection was dead before it said a word: the upstream closed it while it
/// idled. That says nothing about the account, which gets a new connection.
pub(super) fn is_stale(attempting: &Attempting, error: &Error, reused: bool) -> bool {
    let closed = matches!(
        error.root_etype(),
        ErrorType::WriteError
            | ErrorType::ReadError
            | ErrorType::ConnectionClosed
            | ErrorType::H2Error
    );
    // Pingora itself marks what an h2 upstream has not begun to process.
    let unprocessed = *error.root_etype() == ErrorType::H2Error && error.retry();
    (reused || unprocessed)
        && closed
        && *error.esource() != ErrorSource::Downstream
        && !attempting.turn.committed
        && !attempting.progress.response_begun()
        && attempting.attempt.redials < REDIALS_MAX
}

/// An answer that another account is to better.
pub(super) fn refused_answer(status: StatusCode) -> Box<Error> {
    Error::explain(ErrorType::HTTPStatus(status.as_u16()), "another account may do better")
        .into_up()
}

/// The refusal for an error nobody has an answer to.
pub(super) fn unexplained(error: &Error) -> Refusal {
    tracing::error!(kind = error.etype().as_str(), "A request ended without an answer");
    Refusal::new(Kind::Internal, "The gateway has made a mistake. Its log tells more.")
}

/// One line for the operator; without the peer and the path, which Pingora's own text has.
pub(super) fn log(attempt: &Attempt, error: &Error) {
    tracing::warn!(
        account = %attempt.account.label,
        kind = error.root_etype().as_str(),
        "The connection of account {} to the upstream failed: {}",
        attempt.account.label,
        error.root_etype().as_str(),
    );
}
