//! The hooks. Each asks the gateway one question and passes the answer on.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, header};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora_core::{
    Error, ErrorSource, ErrorType, Result, modules::http::HttpModules, upstreams::peer::HttpPeer,
};
use pingora_proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};

use super::{
    attempts::fail,
    ctx::{Attempting, Next, Phase, RequestCtx},
    failure, heads, respond,
    upstream::{
        connector,
        control::{AttemptControl, Peeked},
    },
};
use crate::{
    gateway::{
        Gateway,
        ending::Ending,
        hold::HoldLimits,
        judge::{Answer, Loss, Seen, Verdict},
        settle::{Closing, End},
    },
    protocol::headers::{self, X_REQUEST_ID},
};

/// The edge as Pingora sees it.
#[derive(Debug)]
pub struct Edge {
    pub gateway: Arc<Gateway>,
}

#[async_trait]
impl ProxyHttp for Edge {
    type CTX = RequestCtx;

    fn new_ctx(&self) -> RequestCtx {
        RequestCtx::new(self.gateway.flights.enter())
    }

    /// None of Pingora's modules touches a body that must pass unchanged.
    fn init_downstream_modules(&self, _: &mut HttpModules) {}

    async fn early_request_filter(&self, session: &mut Session, _: &mut RequestCtx) -> Result<()> {
        let config = self.gateway.config();
        // Pingora keeps an HTTP/1.1 connection forever unless each request says otherwise.
        let stays = !self.gateway.is_draining() && !session.is_process_shutting_down();
        session.set_keepalive(stays.then_some(config.server.keepalive_timeout.as_secs()));
        session.set_read_timeout(Some(Duration::from_secs(30)));
        session.set_write_timeout(Some(Duration::from_secs(60)));
        session.set_total_drain_timeout(Some(Duration::from_secs(5)));
        Ok(())
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut RequestCtx) -> Result<bool> {
        self.receive(session, ctx).await
    }

    async fn upstream_peer(
        &self,
        session: &mut Session,
        ctx: &mut RequestCtx,
    ) -> Result<Box<HttpPeer>> {
        self.next_attempt(session, ctx).await?;
        let attempting = match ctx.attempting("upstream_peer") {
            Ok(attempting) => attempting,
            Err(refusal) => return fail(refusal, ctx),
        };
        let Attempting { turn, attempt, next, .. } = attempting;
        let upstream = &turn.request.config.upstream;
        let origin = &upstream.codex_base_url;
        let redial = if attempt.redials == 0 { 0 } else { rand::random() };
        let peer = self.gateway.egress.peer(&attempt.account.id, origin, upstream, redial);
        match peer.await {
            Ok(mut peer) => {
                connector::mark(&mut peer);
                Ok(Box::new(peer))
            }
            Err(error) => {
                tracing::warn!(%error, "Cannot reach the upstream: {error}");
                *next = Next::Another;
                self.gateway.lost(turn, attempt, Loss::Connect);
                let mut error = Error::because(ErrorType::ConnectError, "egress", error);
                error.set_retry(true);
                Err(error)
            }
        }
    }

    async fn upstream_request_filter(
        &self,
        _: &mut Session,
        request: &mut RequestHeader,
        ctx: &mut RequestCtx,
    ) -> Result<()> {
        let attempting = match ctx.attempting("upstream_request_filter") {
            Ok(attempting) => attempting,
            Err(refusal) => return fail(refusal, ctx),
        };
        let Attempting { turn, attempt, progress, .. } = attempting;
        let config = &turn.request.config;
        let origin = &config.upstream.codex_base_url;
        let (account, gateway) = (&attempt.account, &self.gateway);
        let foreign_state = gateway.sessions.is_foreign_state(
            turn.request.tenant.user.as_str(),
            &request.headers,
            &account.id,
            gateway.clock.now(),
        );
        let mut head = heads::upstream_request(
            request,
            turn.request.operation,
            origin,
            account,
            foreign_state,
        )?;
        let streamed = turn.request.operation.is_streamed();
        head.extensions_mut().insert(AttemptControl {
            body: Arc::clone(&turn.request.body),
            hold: streamed.then(|| HoldLimits {
                time: config.routing.hold_back,
                bytes: config.routing.hold_back_bytes.as_usize(),
            }),
            header_timeout: config.upstream.header_timeout,
            progress: Arc::clone(progress),
        });
        *request = head;
        Ok(())
    }

    async fn upstream_response_filter(
        &self,
        _: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut RequestCtx,
    ) -> Result<()> {
        let peeked = response.extensions_mut().remove::<Peeked>();
        let attempting = match ctx.attempting("upstream_response_filter") {
            Ok(attempting) => attempting,
            Err(refusal) => return fail(refusal, ctx),
        };
        let Attempting { turn, attempt, next, .. } = attempting;
        let answer = Answer {
            status: response.status,
            headers: &response.headers,
            seen: match &peeked {
                None => Seen::Nothing,
                Some(Peeked::ErrorBody { bytes, complete }) => {
                    Seen::ErrorBody { bytes, complete: *complete }
                }
                Some(Peeked::Stream { bytes, release }) => Seen::Stream { bytes, release },
            },
        };
        *next = match self.gateway.judge(turn, attempt, &answer) {
            Verdict::Deliver => Next::Same,
            Verdict::Renew => Next::Renew,
            Verdict::Another => Next::Another,
        };
        if *next != Next::Same {
            return Err(failure::refused_answer(response.status));
        }
        heads::clean_response(response, &attempt.account);
        ctx.tally.upstream_request_id = response
            .headers
            .get(X_REQUEST_ID)
            .and_then(|it| it.to_str().ok())
            .map(|it| it.chars().take(128).collect());
        if matches!(peeked, Some(Peeked::Stream { .. })) {
            ctx.tally.observe(response.headers.get(header::CONTENT_ENCODING));
        }
        Ok(())
    }

    fn upstream_response_trailer_filter(
        &self,
        _: &mut Session,
        trailers: &mut HeaderMap,
        ctx: &mut RequestCtx,
    ) -> Result<()> {
        if let Phase::Attempting(attempting) = &ctx.phase {
            headers::clean_response(trailers, attempting.attempt.account.shown_to_nobody());
        }
        Ok(())
    }

    fn response_body_filter(
        &self,
        _: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        ctx: &mut RequestCtx,
    ) -> Result<Option<Duration>> {
        ctx.tally.feed(body.as_ref(), end, ctx.began);
        Ok(None)
    }

    fn fail_to_connect(
        &self,
        _: &mut Session,
        _: &HttpPeer,
        ctx: &mut RequestCtx,
        mut error: Box<Error>,
    ) -> Box<Error> {
        let again =
            self.tries_next_address(ctx) || self.after_loss(ctx, &error, Some(Loss::Connect));
        error.set_retry(again);
        error
    }

    /// Pingora never repeats a POST by itself. The session keeps the whole body, so it can be
    /// repeated as long as nothing of an answer was shown.
    fn error_while_proxy(
        &self,
        _: &HttpPeer,
        _: &mut Session,
        mut error: Box<Error>,
        ctx: &mut RequestCtx,
        reused: bool,
    ) -> Box<Error> {
        error.retry.decide_reuse(reused);
        let again = match &mut ctx.phase {
            Phase::Attempting(attempting) if failure::is_stale(attempting, &error, reused) => {
                attempting.attempt.redials += 1;
                attempting.next = Next::Redial;
                true
            }
            Phase::Received | Phase::Choosing(_) | Phase::Attempting(_) | Phase::Settled => {
                self.after_loss(ctx, &error, None)
            }
        };
        error.set_retry(again);
        error
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        ctx: &mut RequestCtx,
    ) -> FailToProxy {
        let begun = session.response_written().is_some_and(|it| !it.status.is_informational());
        if begun || *error.esource() == ErrorSource::Downstream {
            return FailToProxy { error_code: 0, can_reuse_downstream: false };
        }
        ctx.end = End::Refused;
        let ending =
            ctx.ending.take().unwrap_or_else(|| Ending::Refuse(failure::unexplained(error)));
        let (status, written) = match ending {
            Ending::Refuse(refusal) => {
                let written = respond::refuse(session, &refusal, &ctx.request_id).await;
                (refusal.kind.status(), written)
            }
            Ending::Verbatim(answer) => {
                let status = answer.status;
                (status, respond::verbatim(session, answer).await)
            }
        };
        FailToProxy { error_code: status.as_u16(), can_reuse_downstream: written.is_ok() }
    }

    async fn logging(&self, session: &mut Session, error: Option<&Error>, ctx: &mut RequestCtx) {
        if error.is_some_and(|it| *it.esource() == ErrorSource::Downstream) {
            ctx.end = End::ClientGone;
        }
        let (turn, attempt) = match ctx.take_phase() {
            Phase::Attempting(attempting) => (Some(attempting.turn), Some(attempting.attempt)),
            Phase::Choosing(turn) => (Some(*turn), None),
            Phase::Received | Phase::Settled => (None, None),
        };
        self.gateway.settle(
            turn,
            attempt,
            &Closing {
                request_id: &ctx.request_id,
                route: ctx.route,
                transport: ctx.tally.transport(),
                status: session.response_written().map(|it| it.status),
                began: ctx.began,
                first_byte: ctx.tally.first_byte,
                end: ctx.end,
                usage: ctx.tally.usage,
                outcome: &ctx.tally.outcome,
                upstream_request_id: ctx.tally.upstream_request_id.as_deref(),
            },
        );
    }

    /// Pingora's own lines hold paths and queries; [`Gateway::settle`] writes ours.
    fn suppress_error_log(&self, _: &Session, _: &RequestCtx, _: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _: &Session,
        _: &RequestCtx,
        _: &Error,
        _: ProxyWarnLogContext,
    ) -> bool {
        true
    }

    fn request_summary(&self, _: &Session, ctx: &RequestCtx) -> String {
        ctx.request_id.clone()
    }
}
