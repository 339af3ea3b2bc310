//! Health and metrics, for whoever watches the gateway.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::header;

use super::AdminState;

const JSON: &str = "application/json";

/// The text format of Prometheus.
const EXPOSITION: &str = "text/plain; version=0.0.4";

pub(super) async fn metrics(State(state): State<AdminState>) -> Response {
    ([(header::CONTENT_TYPE, EXPOSITION)], state.gateway.scrape()).into_response()
}

pub(super) async fn healthz() -> Response {
    ([(header::CONTENT_TYPE, JSON)], r#"{"status":"ok"}"#).into_response()
}

pub(super) async fn readyz(State(state): State<AdminState>) -> Response {
    let (status, body) = state.gateway.readiness();
    (status, [(header::CONTENT_TYPE, JSON)], body).into_response()
}
