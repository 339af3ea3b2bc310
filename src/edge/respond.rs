//! Writes the answers that the gateway gives in its own name.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use pingora::http::ResponseHeader;
use pingora_core::Result;
use pingora_proxy::Session;

use crate::{
    domain::refusal::Refusal,
    gateway::turn::StoredAnswer,
    protocol::{headers::X_REQUEST_ID, refusal},
};

pub(super) async fn refuse(
    session: &mut Session,
    refused: &Refusal,
    request_id: &str,
) -> Result<()> {
    let body = Bytes::from(refusal::body(refused, request_id));
    let mut head = ResponseHeader::build(refused.kind.status(), Some(6))?;
    head.insert_header(header::CONTENT_TYPE, "application/json")?;
    head.insert_header(X_REQUEST_ID, request_id)?;
    if let Some(seconds) = refused.retry_after {
        head.insert_header(header::RETRY_AFTER, seconds.to_string())?;
    }
    if let Some(methods) = refused.allow {
        head.insert_header(header::ALLOW, methods)?;
    }
    send(session, head, body).await
}

/// Tells an upstream's answer as it was.
pub(super) async fn verbatim(session: &mut Session, answer: StoredAnswer) -> Result<()> {
    let mut head = ResponseHeader::build(answer.status, Some(answer.headers.len()))?;
    copy(&mut head, &answer.headers)?;
    send(session, head, answer.body).await
}

pub(super) async fn json(
    session: &mut Session,
    status: StatusCode,
    body: impl Into<Bytes>,
) -> Result<()> {
    let mut head = ResponseHeader::build(status, Some(4))?;
    head.insert_header(header::CONTENT_TYPE, "application/json")?;
    head.insert_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))?;
    send(session, head, body.into()).await
}

/// An answer without a body.
pub(super) async fn empty(session: &mut Session, status: StatusCode) -> Result<()> {
    send(session, ResponseHeader::build(status, Some(1))?, Bytes::new()).await
}

async fn send(session: &mut Session, mut head: ResponseHeader, body: Bytes) -> Result<()> {
    head.insert_header(header::CONTENT_LENGTH, body.len().to_string())?;
    let bodiless = body.is_empty() || session.req_header().method == http::Method::HEAD;
    session.write_response_header(Box::new(head), bodiless).await?;
    if !bodiless {
        session.write_response_body(Some(body), true).await?;
    }
    Ok(())
}

fn copy(head: &mut ResponseHeader, headers: &HeaderMap) -> Result<()> {
    for (name, value) in headers {
        if name != header::CONTENT_LENGTH {
            head.append_header(name.clone(), value.clone())?;
        }
    }
    Ok(())
}
