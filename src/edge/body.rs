//! Reads a request's body from the client into the gateway.

use std::time::Duration;

use http::header;
use pingora_core::{Error, ErrorType, Result};
use pingora_proxy::Session;

use crate::{
    domain::refusal::{Kind, Refusal},
    gateway::{body::RequestBody, intake::Intake},
    protocol::request::Inspection,
};

/// How long a client may pause within a body.
const PAUSE: Duration = Duration::from_secs(30);

/// The most of a refused body that is read, and how long.
const DISCARD_MAX: usize = 128 << 20;
const DISCARD_TIME: Duration = Duration::from_secs(2);

/// Why there is no body.
pub(super) enum NoBody {
    Refused(Refusal),
    /// The client went away.
    Gone(Box<Error>),
}

/// Reads the whole body.
pub(super) async fn take_in(
    session: &mut Session,
    mut intake: Intake,
) -> Result<(RequestBody, Inspection), NoBody> {
    if expects_continue(session) {
        invite(session).await.map_err(NoBody::Gone)?;
    }
    loop {
        let read = tokio::time::timeout(PAUSE, session.read_request_body());
        let Ok(read) = read.await else {
            return Err(NoBody::Refused(too_slow()));
        };
        match read.map_err(no_more)? {
            Some(piece) => intake.push(piece).await.map_err(NoBody::Refused)?,
            None => return intake.finish().await.map_err(NoBody::Refused),
        }
    }
}

/// Pingora has a timeout of its own for a pause; everything else means that the client is gone.
fn no_more(error: Box<Error>) -> NoBody {
    if *error.root_etype() == ErrorType::ReadTimedout {
        return NoBody::Refused(too_slow());
    }
    NoBody::Gone(error)
}

fn too_slow() -> Refusal {
    Refusal::new(Kind::RequestTimeout, "The request body did not arrive in time. Send it again.")
}

/// Reads what is left of a refused body and forgets it, within bounds. Closing on a client that is
/// still sending would reset the connection, and the answer with it.
pub(super) async fn discard(session: &mut Session) {
    let reading = async {
        let mut rest = DISCARD_MAX;
        while let Ok(Some(piece)) = session.read_request_body().await {
            match rest.checked_sub(piece.len()) {
                Some(less) => rest = less,
                None => return,
            }
        }
    };
    // Past the time the connection is closed all the same.
    let _ = tokio::time::timeout(DISCARD_TIME, reading).await;
}

fn expects_continue(session: &Session) -> bool {
    session
        .get_header(header::EXPECT)
        .is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// Answers `Expect: 100-continue`. Pingora marks a connection for closing when anything is written
/// before the body was read, which an interim answer is no reason for.
async fn invite(session: &mut Session) -> Result<()> {
    session.set_close_on_response_before_downstream_finish(false);
    let written = session.write_continue_response().await;
    session.set_close_on_response_before_downstream_finish(true);
    written
}
