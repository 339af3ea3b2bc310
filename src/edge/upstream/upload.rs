//! Sends a request body while listening for an answer that comes before its end.

use std::time::Duration;

use bytes::Bytes;
use pingora_core::{
    Error, ErrorType, OrErr, Result,
    protocols::http::{
        client::HttpSession,
        v1::client::HttpSession as Http1Session,
        v2::{client::Http2Session, write_body as write_h2_body},
    },
};

use crate::gateway::body::{BodyReader, RequestBody};

/// One write to an HTTP/1.1 upstream, so that an early answer is seen soon.
const PIECE: usize = 64 * 1024;

/// How long an upstream that stopped reading may take to say why.
const LAST_WORDS: Duration = Duration::from_secs(2);

pub(super) struct Upload {
    /// The whole body was sent.
    pub(super) complete: bool,
    /// A response head was read already.
    pub(super) answered: bool,
}

pub(super) async fn send(
    session: &mut HttpSession<()>,
    body: &RequestBody,
    write_timeout: Option<Duration>,
) -> Result<Upload> {
    match session {
        HttpSession::H1(session) => send_h1(session, body.reader()).await,
        HttpSession::H2(session) if body.is_empty() => {
            session.finish_request_body()?;
            Ok(Upload { complete: true, answered: false })
        }
        HttpSession::H2(session) => send_h2(session, body.reader(), write_timeout).await,
        HttpSession::Custom(()) => Error::e_explain(ErrorType::InternalError, "no such session"),
    }
}

async fn next(reader: &mut BodyReader<'_>) -> Result<Option<Bytes>> {
    reader.next().await.or_err(ErrorType::InternalError, "reading the request body back")
}

async fn send_h1(session: &mut Http1Session, mut reader: BodyReader<'_>) -> Result<Upload> {
    while let Some(mut chunk) = next(&mut reader).await? {
        while !chunk.is_empty() {
            let piece = chunk.split_to(chunk.len().min(PIECE));
            if !reader.is_at_first_piece() && has_answered(session).await? {
                return Ok(Upload { complete: false, answered: true });
            }
            if let Err(error) = session.write_body(&piece).await {
                return last_words(session.read_response(), error).await;
            }
        }
    }
    session.finish_body().await?;
    Ok(Upload { complete: true, answered: false })
}

/// An upstream that stopped reading may have answered before: its answer is worth more than the
/// error of our write.
async fn last_words<T>(
    answer: impl Future<Output = Result<T>>,
    error: Box<Error>,
) -> Result<Upload> {
    match tokio::time::timeout(LAST_WORDS, answer).await {
        Ok(Ok(_)) => Ok(Upload { complete: false, answered: true }),
        Ok(Err(_)) | Err(_) => Err(error),
    }
}

/// Looks once whether a final head has come. Reading is cancel safe: what was read stays in the
/// session.
async fn has_answered(session: &mut Http1Session) -> Result<bool> {
    tokio::select! {
        biased;
        read = session.read_response() => {
            read?;
            Ok(session.resp_header().is_some_and(|it| !it.status.is_informational()))
        }
        () = std::future::ready(()) => Ok(false),
    }
}

async fn send_h2(
    session: &mut Http2Session,
    mut reader: BodyReader<'_>,
    write_timeout: Option<Duration>,
) -> Result<Upload> {
    let Some(mut writer) = session.take_request_body_writer() else {
        return Error::e_explain(ErrorType::InternalError, "the body was sent already");
    };
    let write = async {
        let mut current = next(&mut reader).await?;
        while let Some(chunk) = current {
            current = next(&mut reader).await?;
            write_h2_body(&mut writer, chunk, current.is_none(), write_timeout).await?;
        }
        Ok::<_, Box<Error>>(())
    };
    tokio::pin!(write);
    tokio::select! {
        biased;
        written = &mut write => match written {
            Ok(()) => Ok(Upload { complete: true, answered: false }),
            Err(error) => last_words(session.read_response_header(), error).await,
        },
        read = session.read_response_header() => {
            read?;
            // An early success wants the rest; an early refusal does not, and the stream is reset
            // when the writer goes.
            let welcome = session.response_header().is_some_and(|it| !it.status.is_client_error()
                && !it.status.is_server_error());
            if welcome {
                // The answer is there already, whatever becomes of the rest.
                let complete = write.await.is_ok();
                return Ok(Upload { complete, answered: true });
            }
            Ok(Upload { complete: false, answered: true })
        }
    }
}
