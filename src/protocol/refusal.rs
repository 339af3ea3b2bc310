//! The bytes of the gateway's own answers. Pure.

use serde::Serialize;

use crate::domain::refusal::Refusal;

/// The members of an error that has no refusal behind it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ErrorText<'a> {
    pub message: &'a str,
    pub r#type: &'static str,
    pub code: &'static str,
}

#[derive(Serialize)]
struct Body<'a> {
    error: Error<'a>,
}

#[derive(Clone, Copy, Serialize)]
struct Error<'a> {
    #[serde(flatten)]
    text: ErrorText<'a>,
    param: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan_type: Option<&'a str>,
    /// Seconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    resets_at: Option<i64>,
    request_id: &'a str,
}

/// The JSON body of a refusal on the native routes.
pub fn body(refusal: &Refusal, request_id: &str) -> Vec<u8> {
    let text = ErrorText {
        message: &refusal.message,
        r#type: refusal.kind.error_type(),
        code: refusal.kind.code(),
    };
    let limit = refusal.limit.as_ref();
    write(&Error {
        plan_type: limit.and_then(|it| it.plan_type.as_deref()),
        resets_at: limit.and_then(|it| it.resets_at),
        ..Error::new(text, request_id)
    })
}

/// The JSON body of any other error of ours.
pub fn error_body(text: ErrorText<'_>, request_id: &str) -> Vec<u8> {
    write(&Error::new(text, request_id))
}

fn write(error: &Error<'_>) -> Vec<u8> {
    // A struct of strings and numbers always serialises.
    serde_json::to_vec(&Body { error: *error }).unwrap_or_default()
}

// === impl Error ===

impl<'a> Error<'a> {
    fn new(text: ErrorText<'a>, request_id: &'a str) -> Self {
        Self { text, param: None, plan_type: None, resets_at: None, request_id }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::refusal::{Kind, UsageLimit};

    #[test]
    fn a_refusal_has_every_member_of_the_error_shape() {
        let refusal = Refusal::new(Kind::InvalidApiKey, "no such \"key\"");
        let body: serde_json::Value =
            serde_json::from_slice(&super::body(&refusal, "req_1")).unwrap();
        assert_eq!(
            body,
            serde_json::json!({"error": {
                "message": "no such \"key\"", "type": "authentication_error",
                "code": "invalid_api_key", "param": null, "request_id": "req_1",
            }})
        );
    }

    #[test]
    fn a_used_up_limit_tells_when_it_ends_and_for_which_plan() {
        let limit = UsageLimit { resets_at: Some(1_796_083_600), plan_type: Some("pro".into()) };
        let refusal = Refusal::new(Kind::UsageLimitReached, "used up").limit(limit);
        let body: serde_json::Value =
            serde_json::from_slice(&super::body(&refusal, "req_1")).unwrap();
        assert_eq!(body["error"]["resets_at"], 1_796_083_600);
        assert_eq!(body["error"]["plan_type"], "pro");
        assert_eq!(body["error"]["type"], "usage_limit_reached");
    }

    #[test]
    fn every_kind_of_refusal_fills_every_member() {
        for kind in [
            Kind::InvalidRequest,
            Kind::UnsupportedContentEncoding,
            Kind::RequestTimeout,
            Kind::InvalidApiKey,
            Kind::KeyDisabled,
            Kind::OriginNotAllowed,
            Kind::NotFound,
            Kind::ModelNotFound,
            Kind::NotSupported,
            Kind::MethodNotAllowed,
            Kind::PayloadTooLarge,
            Kind::WebsocketUnavailable,
            Kind::HeadersTooLarge,
            Kind::UsageLimitReached,
            Kind::RateLimitExceeded,
            Kind::UpstreamUnreachable,
            Kind::UpstreamTransportError,
            Kind::UpstreamTimeout,
            Kind::NoAccountAvailable,
            Kind::Draining,
            Kind::Overloaded,
            Kind::Internal,
        ] {
            let body = super::body(&Refusal::new(kind, "what happened"), "req_1");
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            for member in ["message", "type", "code", "request_id"] {
                let filled = body["error"][member].as_str().is_some_and(|it| !it.is_empty());
                assert!(filled, "{kind:?} has no {member}: {body}");
            }
            assert!(body["error"]["param"].is_null());
            assert!(kind.status().as_u16() >= 400);
        }
    }
}
