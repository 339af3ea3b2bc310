//! One upstream attempt: a real HTTP/1.1 or h2 session that uploads the request body itself and
//! looks at the beginning of the answer before anybody sees it.
//!
//! Invariant: everything read from the upstream is handed on exactly once and unchanged, the peeked
//! part first. Nothing is judged here; the hooks decide on what was peeked.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;
use http::{HeaderMap, Version, header};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora_core::{
    Error, ErrorType, OrErr, Result,
    protocols::{
        Digest, UniqueID, UniqueIDType,
        http::{
            client::HttpSession,
            custom::{BodyWrite, CustomMessageWrite, client::Session},
        },
        l4::socket::SocketAddr,
    },
};

use super::{control::AttemptControl, peek, upload};

pub struct AttemptSession {
    inner: HttpSession<()>,
    control: Option<AttemptControl>,
    /// The final head, until its body is asked for: a stream may last long, and its head is large.
    response: Option<ResponseHeader>,
    /// The upstream answered, and not with an error.
    welcome: bool,
    /// Peeked and not yet handed on.
    pending: VecDeque<Bytes>,
    /// What broke the answer while it was peeked at; told after `pending`.
    broken: Option<Box<Error>>,
    uploaded: bool,
    write_timeout: Option<Duration>,
}

/// The request body never comes through Pingora: the session has it already.
struct NoBody;

// === impl AttemptSession ===

impl AttemptSession {
    pub(super) fn new(inner: HttpSession<()>) -> Self {
        Self {
            inner,
            control: None,
            response: None,
            welcome: false,
            pending: VecDeque::new(),
            broken: None,
            uploaded: false,
            write_timeout: None,
        }
    }

    pub(super) fn into_inner(self) -> HttpSession<()> {
        self.inner
    }

    /// Whether the connection may serve another request. One that answered with an error may not
    /// have read our body and be closing.
    pub(super) fn is_reusable(&self) -> bool {
        self.uploaded && self.welcome && self.pending.is_empty() && self.broken.is_none()
    }

    fn inner_is_done(&mut self) -> Result<bool> {
        match &mut self.inner {
            HttpSession::H1(session) => Ok(session.is_body_done()),
            HttpSession::H2(session) => session.check_response_end_or_error(),
            HttpSession::Custom(()) => Ok(true),
        }
    }

    /// Sends the body and reads heads until the final one.
    async fn exchange_heads(&mut self, control: &AttemptControl) -> Result<()> {
        let mut answered = false;
        if !self.uploaded {
            let upload = upload::send(&mut self.inner, &control.body, self.write_timeout).await?;
            self.uploaded = upload.complete;
            answered = upload.answered;
        }
        let read = async {
            loop {
                if !answered {
                    self.inner.read_response_header().await?;
                }
                answered = false;
                match self.inner.response_header() {
                    Some(head) if head.status.is_informational() => {}
                    Some(head) => return Ok(head.clone()),
                    None => return Error::e_explain(ErrorType::InternalError, "no head was read"),
                }
            }
        };
        let Ok(head) = tokio::time::timeout(control.header_timeout, read).await else {
            control.progress.time_out();
            return Error::e_explain(ErrorType::ReadTimedout, "waiting for the response head");
        };
        let head = head?;
        self.welcome = head.status.as_u16() < 400;
        self.response = Some(head);
        control.progress.begin_response();
        Ok(())
    }

    /// Reads what has to be known of the answer before it is decided on.
    async fn peek(&mut self, control: &AttemptControl) -> Result<()> {
        let Some(head) = &self.response else { return Ok(()) };
        let peeked = if head.status.as_u16() >= 400 {
            let deadline = Instant::now() + peek::ERROR_BODY_TIMEOUT;
            peek::error_body(self, deadline).await?
        } else if let Some(limits) = &control.hold
            && is_event_stream(&head.headers)
        {
            let encoding = head.headers.get(header::CONTENT_ENCODING).cloned();
            peek::stream(self, limits, encoding.as_ref()).await?
        } else {
            return Ok(());
        };
        if let Some(head) = &mut self.response {
            head.extensions_mut().insert(peeked);
        }
        Ok(())
    }

    /// Reads one piece of the body; `None` at its end. Keeps it for delivery.
    pub(super) async fn read_ahead(&mut self) -> Result<Option<Bytes>> {
        if self.inner_is_done()? {
            return Ok(None);
        }
        let piece = self.inner.read_response_body().await?;
        if let Some(piece) = &piece {
            self.pending.push_back(piece.clone());
        }
        Ok(piece)
    }

    pub(super) fn held(&self) -> Vec<Bytes> {
        self.pending.iter().cloned().collect()
    }

    pub(super) fn break_off(&mut self, error: Box<Error>) {
        self.broken = Some(error);
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| {
        let value = value.as_bytes();
        value.len() >= 17 && value[..17].eq_ignore_ascii_case(b"text/event-stream")
    })
}

#[async_trait]
impl Session for AttemptSession {
    async fn write_request_header(&mut self, mut head: Box<RequestHeader>, _: bool) -> Result<()> {
        let control = head.extensions_mut().remove::<AttemptControl>();
        let Some(control) = control else {
            return Error::e_explain(ErrorType::InternalError, "an attempt without its control");
        };
        if !control.body.is_empty() || head.method == http::Method::POST {
            head.insert_header(header::CONTENT_LENGTH, control.body.len().to_string())?;
        }
        if let HttpSession::H2(session) = &self.inner {
            let tls = session.digest().is_some_and(|it| it.ssl_digest.is_some());
            to_h2(&mut head, tls)?;
        } else {
            head.set_version(Version::HTTP_11);
        }
        self.control = Some(control);
        self.inner.write_request_header(head).await
    }

    async fn read_response_header(&mut self) -> Result<()> {
        let Some(control) = self.control.clone() else {
            return Error::e_explain(ErrorType::InternalError, "no request was written");
        };
        self.exchange_heads(&control).await?;
        self.peek(&control).await?;
        // With it goes the body.
        self.control = None;
        Ok(())
    }

    async fn read_response_body(&mut self) -> Result<Option<Bytes>> {
        self.response = None;
        if let Some(piece) = self.pending.pop_front() {
            return Ok(Some(piece));
        }
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        self.inner.read_response_body().await
    }

    async fn check_response_end_or_error(&mut self, _: bool) -> Result<bool> {
        if !self.pending.is_empty() || self.broken.is_some() {
            return Ok(false);
        }
        self.inner_is_done()
    }

    fn response_header(&self) -> Option<&ResponseHeader> {
        self.response.as_ref()
    }

    fn response_finished(&self) -> bool {
        match &self.inner {
            HttpSession::H2(session) => session.response_finished(),
            HttpSession::H1(_) | HttpSession::Custom(()) => false,
        }
    }

    async fn read_trailers(&mut self) -> Result<Option<HeaderMap>> {
        match &mut self.inner {
            HttpSession::H2(session) => session.read_trailers().await,
            HttpSession::H1(_) | HttpSession::Custom(()) => Ok(None),
        }
    }

    fn take_request_body_writer(&mut self) -> Option<Box<dyn BodyWrite>> {
        Some(Box::new(NoBody))
    }

    async fn write_request_body(&mut self, _: Bytes, _: bool) -> Result<()> {
        Ok(())
    }

    async fn finish_request_body(&mut self) -> Result<()> {
        Ok(())
    }

    fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.inner.set_read_timeout(timeout);
    }

    fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.write_timeout = timeout;
        self.inner.set_write_timeout(timeout);
    }

    async fn shutdown(&mut self, _: u32, _: &str) {
        self.inner.shutdown().await;
    }

    fn was_upgraded(&self) -> bool {
        false
    }

    fn digest(&self) -> Option<&Digest> {
        self.inner.digest()
    }

    fn digest_mut(&mut self) -> Option<&mut Digest> {
        self.inner.digest_mut()
    }

    fn server_addr(&self) -> Option<&SocketAddr> {
        self.inner.server_addr()
    }

    fn client_addr(&self) -> Option<&SocketAddr> {
        self.inner.client_addr()
    }

    fn fd(&self) -> UniqueIDType {
        match &self.inner {
            HttpSession::H1(session) => session.id(),
            HttpSession::H2(session) => session.fd(),
            HttpSession::Custom(()) => 0,
        }
    }

    async fn finish_custom(&mut self) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_reader(
        &mut self,
    ) -> Option<Box<dyn Stream<Item = Result<Bytes>> + Unpin + Send + Sync + 'static>> {
        Some(Box::new(futures::stream::empty()))
    }

    async fn drain_custom_messages(&mut self) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_writer(&mut self) -> Option<Box<dyn CustomMessageWrite>> {
        Some(Box::new(()))
    }
}

/// h2 has the host in the URI and no header for it.
fn to_h2(head: &mut RequestHeader, tls: bool) -> Result<()> {
    let Some(host) = head.remove_header(&header::HOST) else {
        return Error::e_explain(ErrorType::InternalError, "a request without a host");
    };
    let path = head.uri.path_and_query().map_or("/", |it| it.as_str()).to_owned();
    let uri = http::Uri::builder()
        .scheme(if tls { "https" } else { "http" })
        .authority(host.as_bytes())
        .path_and_query(path)
        .build()
        .or_err(ErrorType::InternalError, "a base URL that is no URI")?;
    head.set_uri(uri);
    head.set_version(Version::HTTP_2);
    Ok(())
}

// === impl NoBody ===

#[async_trait]
impl BodyWrite for NoBody {
    async fn write_all_buf(&mut self, data: &mut Bytes) -> Result<()> {
        data.clear();
        Ok(())
    }

    async fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    async fn cleanup(&mut self) -> Result<()> {
        Ok(())
    }

    fn upgrade_body_writer(&mut self) {}
}
