//! Bodies of management requests.

use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::StatusCode;
use serde::de::DeserializeOwned;

use super::{AdminState, fault::Fault};

/// A JSON object, and nothing else that would do for one.
pub(super) struct Object<T>(pub(super) T);

// === impl Object ===

impl<T: DeserializeOwned> FromRequest<AdminState> for Object<T> {
    type Rejection = Fault;

    async fn from_request(request: Request, state: &AdminState) -> Result<Self, Fault> {
        let body = Bytes::from_request(request, state).await.map_err(|rejection| {
            if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
                Fault::TooLarge
            } else {
                Fault::InvalidRequest("the body could not be read".to_owned())
            }
        })?;
        // A list would do for a struct as well, as far as the parser goes.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(Fault::InvalidRequest("the body must be a JSON object".to_owned()));
        }
        serde_json::from_slice(&body)
            .map(Self)
            .map_err(|error| Fault::InvalidRequest(format!("the body does not fit: {error}")))
    }
}
