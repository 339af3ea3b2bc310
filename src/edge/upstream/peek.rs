//! Reads the beginning of an answer ahead of its delivery.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use http::HeaderValue;
use pingora_core::Result;

use super::{control::Peeked, session::AttemptSession};
use crate::gateway::hold::{Hold, HoldLimits, Release};

/// The most of an error body that is looked at, kept and told again.
const ERROR_BODY_MAX: usize = 64 * 1024;

/// How long an error body may take; after that it is decided on by its status.
pub(super) const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads the body of an error answer.
pub(super) async fn error_body(session: &mut AttemptSession, deadline: Instant) -> Result<Peeked> {
    let mut bytes = BytesMut::new();
    let mut complete = false;
    while bytes.len() < ERROR_BODY_MAX {
        match tokio::time::timeout_at(deadline.into(), session.read_ahead()).await {
            Ok(Ok(Some(piece))) => bytes.extend_from_slice(&piece),
            Ok(Ok(None)) => {
                complete = true;
                break;
            }
            Ok(Err(error)) => {
                session.break_off(error);
                break;
            }
            Err(_) => break,
        }
    }
    Ok(Peeked::ErrorBody { bytes: bytes.freeze(), complete })
}

/// Reads a stream up to its first output, or as far as it may be held.
pub(super) async fn stream(
    session: &mut AttemptSession,
    limits: &HoldLimits,
    encoding: Option<&HeaderValue>,
) -> Result<Peeked> {
    let mut hold = Hold::new(limits, encoding);
    // The wait begins at this attempt's response head.
    let deadline = Instant::now() + limits.time;
    let release = loop {
        match tokio::time::timeout_at(deadline.into(), session.read_ahead()).await {
            Err(_) => break Release::Limit,
            Ok(Ok(Some(piece))) => {
                if let Some(release) = hold.feed(&piece) {
                    break release;
                }
            }
            Ok(Ok(None)) => break hold.end(),
            Ok(Err(error)) => {
                session.break_off(error);
                break Release::Broken;
            }
        }
    };
    Ok(Peeked::Stream { bytes: session.held(), release })
}
