//! What every request passes through: the host check, the key check, and the finish of answers.

use std::net::IpAddr;

use axum::{
    body::Body,
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};

use super::{AdminState, fault::Fault, host};
use crate::protocol::headers::X_REQUEST_ID;

/// What a browser must not do with an answer.
const GUARDS: [(HeaderName, HeaderValue); 2] = [
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
];

/// Gives the answer its request id, and a fault its bytes.
pub(super) async fn finish(request: Request, next: Next) -> Response {
    let id = format!("req_{:032x}", rand::random::<u128>());
    let mut response = next.run(request).await;
    if let Some(fault) = response.extensions_mut().remove::<Fault>() {
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        // The length of the empty body that stands for a fault.
        response.headers_mut().remove(header::CONTENT_LENGTH);
        *response.body_mut() = Body::from(fault.body(&id));
    }
    let headers = response.headers_mut();
    headers.extend(GUARDS);
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert(X_REQUEST_ID, id);
    }
    response
}

/// Turns away who came here by a name that is not this listener's.
pub(super) async fn check_host(
    State(state): State<AdminState>,
    request: Request,
    next: Next,
) -> Response {
    let ours = is_for_us(request.uri(), request.headers(), state.listen.ip());
    if ours { next.run(request).await } else { Fault::Misdirected.into_response() }
}

/// Lets only the operator into the management.
pub(super) async fn check_key(
    State(state): State<AdminState>,
    request: Request,
    next: Next,
) -> Response {
    let Some(key) = &state.key else {
        return Fault::NotFound("management is off: no admin key is set").into_response();
    };
    let token = bearer(request.headers());
    if token.is_some_and(|it| key.matches(it)) {
        next.run(request).await
    } else {
        let mut response = Fault::InvalidAdminKey.into_response();
        let challenge = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        response
    }
}

/// A target in absolute form names a host beside the header; every name that is given must be ours.
fn is_for_us(target: &Uri, headers: &HeaderMap, own: IpAddr) -> bool {
    let mut named = headers.get_all(header::HOST).iter().peekable();
    let known = |it: &HeaderValue| it.to_str().is_ok_and(|it| host::is_ours(it, own));
    named.peek().is_some()
        && named.all(known)
        && target.authority().is_none_or(|it| host::is_ours(it.as_str(), own))
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(only), None) = (given.next(), given.next()) else { return None };
    let (scheme, token) = only.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}
