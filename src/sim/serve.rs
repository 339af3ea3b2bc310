//! From the listening socket to the answer of one request.

use std::{io, sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::sleep,
};
use tokio_rustls::TlsAcceptor;

use super::{
    account::SimAccount,
    body::{SimBody, Ties},
    control, oauth,
    record::{Ended, Protocol, Recorded},
    routes,
    script::{Action, Answer, DropHead, Issue, Loss, Route},
    stage::Facts,
    turns,
    upstream::{Caller, Upstream},
    websocket,
    wire::{Ear, Socket, Wire},
};

pub(super) type Answered = io::Result<Response<SimBody>>;

/// A request on its way to its answer.
pub(super) struct Visit {
    pub(super) upstream: Arc<Upstream>,
    pub(super) route: Route,
    /// The account of the bearer, whatever else is wrong.
    pub(super) account: Option<Arc<SimAccount>>,
    pub(super) ties: Ties,
    pub(super) head: http::request::Parts,
    incoming: Option<Incoming>,
}

/// Takes connections for ever.
pub(super) async fn accept(
    listener: TcpListener,
    upstream: Arc<Upstream>,
    acceptor: Option<TlsAcceptor>,
) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((tcp, _)) = listener.accept().await else {
            // Out of file descriptors, most likely: others must end first.
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        connections.spawn(connection(tcp, Arc::clone(&upstream), acceptor.clone()));
    }
}

async fn connection(tcp: TcpStream, upstream: Arc<Upstream>, acceptor: Option<TlsAcceptor>) {
    // Small events must not wait for the peer's acknowledgement.
    let _ = tcp.set_nodelay(true);
    let wire = Wire::new(upstream.next(), acceptor.is_some());
    if upstream.recorder.on() {
        wire.listen();
    }
    upstream.register(&wire);
    let socket = Socket::new(tcp, Arc::clone(&wire));
    match acceptor {
        None => speak(socket, upstream, wire).await,
        Some(acceptor) => {
            if let Ok(stream) = acceptor.accept(socket).await {
                speak(stream, upstream, wire).await;
            }
        }
    }
}

/// Speaks HTTP until the peer or the script ends it.
async fn speak<S>(stream: S, upstream: Arc<Upstream>, wire: Arc<Wire>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(Ear::new(stream, Arc::clone(&wire)));
    let service = service_fn(|request| {
        let (upstream, wire) = (Arc::clone(&upstream), Arc::clone(&wire));
        async move { answer(upstream, wire, request).await }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).half_close(false).preserve_header_case(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(16 << 20)
        .max_concurrent_streams(1_000);
    let connection = builder.serve_connection_with_upgrades(io, service);
    tokio::select! {
        // How a connection ends is told by the records.
        _ = connection => {}
        () = wire.until_lost() => {}
    }
}

async fn answer(upstream: Arc<Upstream>, wire: Arc<Wire>, request: Request<Incoming>) -> Answered {
    let (head, incoming) = request.into_parts();
    if head.uri.path().starts_with("/__sim/") {
        let body = incoming.collect().await.map_err(io::Error::other)?.to_bytes();
        return Ok(control::answer(&upstream, &head, &body));
    }
    let route = routes::route_of(&head);
    let account = upstream.token_holder(&head.headers);
    let exchange = upstream.recorder.begin(|| recorded(&wire, &head, route, account.as_deref()));
    let ties = Ties { exchange, wire, release: upstream.releasable() };
    let mut visit = Visit { upstream, route, account, ties, head, incoming: Some(incoming) };
    let picked = visit.pick(None);
    if let Some(
        Action::Answer(Answer { after_body_bytes: Some(bytes), .. })
        | Action::Drop(DropHead { after_body_bytes: Some(bytes), .. }),
    ) = &picked
    {
        visit.read(*bytes).await?;
    } else if route != Route::WsHandshake {
        let body = visit.read(u64::MAX).await?;
        return visit.perform(picked, body).await;
    }
    visit.perform(picked, Bytes::new()).await
}

// === impl Visit ===

impl Visit {
    /// What the script has for this request, if anything.
    pub(super) fn pick(&self, model: Option<&str>) -> Option<Action> {
        let account = self.account.as_deref().map(|it| it.name.as_str());
        self.upstream.pick(Facts { account, route: self.route, model })
    }

    /// Reads the body, or its beginning of at least so many bytes.
    async fn read(&mut self, at_least: u64) -> io::Result<Bytes> {
        let Some(incoming) = &mut self.incoming else { return Ok(Bytes::new()) };
        let mut first = Bytes::new();
        let mut rest = BytesMut::new();
        let mut length = 0;
        while length < at_least {
            let Some(frame) = incoming.frame().await else { break };
            let Ok(data) = frame.map_err(io::Error::other)?.into_data() else { continue };
            self.ties.exchange.body(&data);
            length += data.len() as u64;
            if first.is_empty() && rest.is_empty() {
                // A body of one piece needs no copy.
                first = data;
                continue;
            }
            rest.extend_from_slice(&std::mem::take(&mut first));
            rest.extend_from_slice(&data);
        }
        Ok(if first.is_empty() { rest.freeze() } else { first })
    }

    /// Does what the script says, or what the real service does.
    async fn perform(mut self, picked: Option<Action>, body: Bytes) -> Answered {
        match picked {
            Some(Action::Answer(answer)) => {
                sleep_ms(answer.delay_ms).await;
                Ok(self.scripted(&answer))
            }
            Some(Action::Drop(DropHead { how, delay_ms, .. })) => {
                sleep_ms(delay_ms).await;
                self.lose(how).await?;
                Box::pin(self.normal(None, body)).await
            }
            other => self.normal(other, body).await,
        }
    }

    /// Loses the request; comes back only when a silence was released.
    async fn lose(&mut self, how: Loss) -> io::Result<()> {
        match how {
            Loss::Silence => {
                self.ties.release.clone().released().await;
                Ok(())
            }
            Loss::StreamError => {
                self.ties.exchange.end(Ended::Lost);
                Err(io::ErrorKind::ConnectionAborted.into())
            }
            Loss::Reset | Loss::Close => {
                self.ties.exchange.end(Ended::Lost);
                self.ties.wire.lose(how == Loss::Reset);
                std::future::pending().await
            }
        }
    }

    async fn normal(self, action: Option<Action>, body: Bytes) -> Answered {
        if self.route == Route::Responses {
            turns::answer(self, action, &body).await
        } else if self.route == Route::WsHandshake {
            Ok(websocket::handshake(self))
        } else if let (Route::OauthToken, Some(Action::Issue(issue))) = (self.route, action) {
            self.issue(issue, &body).await
        } else {
            Ok(routes::answer(self, &body))
        }
    }

    /// The token endpoint, whose answer comes late or not at all.
    async fn issue(self, issue: Issue, body: &[u8]) -> Answered {
        let wire = Arc::clone(&self.ties.wire);
        let answer = oauth::token(self, &issue, body);
        sleep_ms(issue.delay_ms).await;
        if issue.lose {
            wire.lose(true);
            return std::future::pending().await;
        }
        Ok(answer)
    }

    /// The caller if it may ask, else the refusal of the real service.
    pub(super) fn admit(&self) -> Result<Arc<SimAccount>, (u16, serde_json::Value)> {
        match self.upstream.caller(&self.head.headers) {
            Caller::Known(account) => Ok(account),
            Caller::Unknown { bearer } => Err(routes::unauthorized(bearer)),
            Caller::Mismatch => Err(routes::forbidden()),
        }
    }

    pub(super) fn scripted(self, answer: &Answer) -> Response<SimBody> {
        let mut headers = HeaderMap::new();
        if answer.json.is_some() {
            headers.insert("content-type", HeaderValue::from_static("application/json"));
        }
        overlay(&mut headers, &answer.headers);
        let body = answer_body(answer);
        self.respond(answer.status, headers, body)
    }

    pub(super) fn json(self, status: u16, value: &serde_json::Value) -> Response<SimBody> {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        self.respond(status, headers, Bytes::from(value.to_string()))
    }

    pub(super) fn json_with(
        self,
        status: u16,
        value: &serde_json::Value,
        scripted: &[(String, String)],
    ) -> Response<SimBody> {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        overlay(&mut headers, scripted);
        self.respond(status, headers, Bytes::from(value.to_string()))
    }

    pub(super) fn respond(self, status: u16, headers: HeaderMap, body: Bytes) -> Response<SimBody> {
        self.ties.exchange.status(status);
        let mut response = Response::new(SimBody::whole(body, self.ties));
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
        *response.headers_mut() = headers;
        response
    }
}

/// The bytes of a scripted answer.
pub(super) fn answer_body(answer: &Answer) -> Bytes {
    match (&answer.json, &answer.body, &answer.body_base64) {
        (Some(json), _, _) => Bytes::from(json.to_string()),
        (None, Some(text), _) => Bytes::from(text.clone()),
        (None, None, Some(base64)) => BASE64_STANDARD.decode(base64).unwrap_or_default().into(),
        (None, None, None) => Bytes::new(),
    }
}

/// Puts scripted headers over the normal ones: same name, new value; empty value, no header; a
/// name given twice is sent twice.
pub(super) fn overlay(headers: &mut HeaderMap, scripted: &[(String, String)]) {
    for (name, _) in scripted {
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
            headers.remove(name);
        }
    }
    for (name, value) in scripted.iter().filter(|(_, value)| !value.is_empty()) {
        let pair =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value.as_bytes()));
        if let (Ok(name), Ok(value)) = pair {
            headers.append(name, value);
        }
    }
}

pub(super) async fn sleep_ms(delay_ms: u64) {
    if delay_ms > 0 {
        sleep(Duration::from_millis(delay_ms)).await;
    }
}

fn recorded(
    wire: &Wire,
    head: &http::request::Parts,
    route: Route,
    account: Option<&SimAccount>,
) -> Recorded {
    let target = head.uri.path_and_query().map_or_else(String::new, ToString::to_string);
    let h2 = head.version == Version::HTTP_2;
    let raw = if h2 { None } else { raw_headers(wire, &head.method, &target) };
    let headers = raw.unwrap_or_else(|| {
        let pairs = head.headers.iter();
        pairs.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect()
    });
    Recorded {
        id: 0,
        connection: wire.id,
        protocol: if h2 { Protocol::Http2 } else { Protocol::Http1 },
        tls: wire.tls,
        method: head.method.to_string(),
        target,
        route,
        headers,
        account: account.map(|it| it.name.clone()),
        body: Vec::new(),
        body_length: 0,
        status: None,
        ended: Ended::Open,
    }
}

/// The headers as they were sent over HTTP/1.1, in their case and order.
fn raw_headers(wire: &Wire, method: &Method, target: &str) -> Option<Vec<(String, Vec<u8>)>> {
    let bytes = wire.take_head(&format!("{method} {target} HTTP/1."))?;
    let mut room = [httparse::EMPTY_HEADER; 128];
    let mut request = httparse::Request::new(&mut room);
    request.parse(&bytes).ok()?;
    let pairs = request.headers.iter();
    Some(pairs.map(|header| (header.name.to_owned(), header.value.to_vec())).collect())
}
