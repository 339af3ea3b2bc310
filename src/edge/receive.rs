//! A request until its first attempt: admitted, taken in, or answered by the edge itself.

use std::sync::Arc;

use http::{StatusCode, header};
use pingora_core::Result;
use pingora_proxy::Session;

use super::{
    body::{self, NoBody},
    ctx::{Phase, RequestCtx},
    proxy::Edge,
    raw_head, respond,
};
use crate::{
    config::Limits,
    domain::refusal::{Kind, Refusal},
    gateway::{
        admit::{Admission, Head},
        body::RequestBody,
        intake::Intake,
        settle::End,
        turn::{Turn, TurnRequest},
    },
    protocol::{
        request::Inspection,
        route::{self, Operation},
    },
    telemetry::labels::Route,
};

// === impl Edge ===

impl Edge {
    /// Whether the answer is already written.
    pub(super) async fn receive(
        &self,
        session: &mut Session,
        ctx: &mut RequestCtx,
    ) -> Result<bool> {
        let admitted = self.admit(session, ctx);
        let refusal = match admitted {
            Ok(Admission::Open(operation)) => {
                self.answer_openly(session, operation).await?;
                return Ok(true);
            }
            Ok(Admission::Tenant { operation, tenant, config }) => {
                match self.take_in(session, operation, &config.limits).await {
                    Ok((body, inspection)) => {
                        let headers = &session.req_header().headers;
                        let user = tenant.user.as_str();
                        let request = TurnRequest {
                            session: self.gateway.sessions.key_of(user, headers, &inspection),
                            model: inspection.model.name().ok().flatten().map(str::to_owned),
                            body: Arc::new(body),
                            began: ctx.began,
                            operation,
                            tenant,
                            config,
                        };
                        ctx.phase = Phase::Choosing(Box::new(Turn::new(request)));
                        return Ok(false);
                    }
                    Err(NoBody::Refused(refusal)) => refusal,
                    Err(NoBody::Gone(error)) => {
                        ctx.end = End::ClientGone;
                        return Err(error.into_down());
                    }
                }
            }
            Err(refusal) => refusal,
        };
        ctx.end = End::Refused;
        respond::refuse(session, &refusal, &ctx.request_id).await?;
        body::discard(session).await;
        Ok(true)
    }

    fn admit(&self, session: &Session, ctx: &mut RequestCtx) -> Result<Admission, Refusal> {
        if let Some(h1) = session.as_downstream().as_http1()
            && let Some(what) = raw_head::ambiguity(&h1.get_headers_raw_bytes())
        {
            let message = format!("The request is ambiguous: {what}.");
            return Err(Refusal::new(Kind::InvalidRequest, message));
        }
        let head = session.req_header();
        let admitted = self.gateway.admit(Head {
            method: &head.method,
            uri: &head.uri,
            version: head.version,
            headers: &head.headers,
        });
        let operation = match &admitted {
            Ok(Admission::Open(operation) | Admission::Tenant { operation, .. }) => Ok(*operation),
            // A refusal is counted where it happened.
            Err(_) => {
                let upgrade = head.headers.contains_key(header::UPGRADE);
                route::resolve(&head.method, head.uri.path(), upgrade)
            }
        };
        if let Ok(operation) = operation {
            ctx.route = route_of(operation);
        }
        admitted
    }

    /// The body, and what it says.
    async fn take_in(
        &self,
        session: &mut Session,
        operation: Operation,
        limits: &Limits,
    ) -> Result<(RequestBody, Inspection), NoBody> {
        if !operation.has_body() {
            return Ok((RequestBody::default(), Inspection::default()));
        }
        let reservation = self.gateway.budget.reserve();
        let folder = self.gateway.spill_folder.clone();
        let headers = &session.req_header().headers;
        let intake =
            Intake::begin(headers, limits, reservation, folder).map_err(NoBody::Refused)?;
        body::take_in(session, intake).await
    }

    async fn answer_openly(&self, session: &mut Session, operation: Operation) -> Result<()> {
        match operation {
            Operation::Readyz => {
                let (status, body) = self.gateway.readiness();
                respond::json(session, status, body).await
            }
            Operation::Healthz => {
                respond::json(session, StatusCode::OK, "{\"status\":\"ok\"}").await
            }
            Operation::ResponsesProbe
            | Operation::Models
            | Operation::Responses
            | Operation::ResponsesSocket => respond::empty(session, StatusCode::OK).await,
        }
    }
}

/// The metric label of an operation.
fn route_of(operation: Operation) -> Route {
    match operation {
        Operation::Models => Route::Models,
        Operation::Responses | Operation::ResponsesSocket | Operation::ResponsesProbe => {
            Route::Responses
        }
        Operation::Healthz | Operation::Readyz => Route::Health,
    }
}
