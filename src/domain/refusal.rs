//! The answers the gateway gives in its own name, and what each one means. Pure.
//!
//! A refusal tells what happened, until when, and what to do. It never holds an account id, an
//! e-mail, a path or a token: an account appears by its public label only.

use http::StatusCode;

/// One answer of the gateway's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub kind: Kind,
    pub message: String,
    /// Whole seconds, at least 1.
    pub retry_after: Option<u64>,
    pub limit: Option<UsageLimit>,
    /// The methods a route has, for a 405.
    pub allow: Option<&'static str>,
}

/// What Codex needs to say when an account may work again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageLimit {
    /// Seconds since the Unix epoch.
    pub resets_at: Option<i64>,
    pub plan_type: Option<String>,
}

/// The kinds of refusal; each has one status and one code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    InvalidRequest,
    UnsupportedContentEncoding,
    RequestTimeout,
    InvalidApiKey,
    KeyDisabled,
    OriginNotAllowed,
    NotFound,
    ModelNotFound,
    NotSupported,
    MethodNotAllowed,
    PayloadTooLarge,
    WebsocketUnavailable,
    HeadersTooLarge,
    UsageLimitReached,
    RateLimitExceeded,
    UpstreamUnreachable,
    UpstreamTransportError,
    UpstreamTimeout,
    NoAccountAvailable,
    AccountRefreshFailed,
    Draining,
    Overloaded,
    Internal,
}

// === impl Refusal ===

impl Refusal {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None, limit: None, allow: None }
    }

    #[must_use]
    pub fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds.max(1)), ..self }
    }

    #[must_use]
    pub fn limit(self, limit: UsageLimit) -> Self {
        Self { limit: Some(limit), ..self }
    }

    #[must_use]
    pub fn allow(self, methods: &'static str) -> Self {
        Self { allow: Some(methods), ..self }
    }
}

// === impl Kind ===

impl Kind {
    pub fn status(self) -> StatusCode {
        match self {
            Self::InvalidRequest | Self::UnsupportedContentEncoding => StatusCode::BAD_REQUEST,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::InvalidApiKey => StatusCode::UNAUTHORIZED,
            Self::KeyDisabled | Self::OriginNotAllowed => StatusCode::FORBIDDEN,
            Self::NotFound | Self::ModelNotFound | Self::NotSupported => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::WebsocketUnavailable => StatusCode::UPGRADE_REQUIRED,
            Self::HeadersTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::UsageLimitReached | Self::RateLimitExceeded => StatusCode::TOO_MANY_REQUESTS,
            Self::UpstreamUnreachable | Self::UpstreamTransportError => StatusCode::BAD_GATEWAY,
            Self::UpstreamTimeout => StatusCode::GATEWAY_TIMEOUT,
            Self::NoAccountAvailable
            | Self::AccountRefreshFailed
            | Self::Draining
            | Self::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The member `error.code`.
    pub fn code(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::UnsupportedContentEncoding => "unsupported_content_encoding",
            Self::RequestTimeout => "request_timeout",
            Self::InvalidApiKey => "invalid_api_key",
            Self::KeyDisabled => "key_disabled",
            Self::OriginNotAllowed => "origin_not_allowed",
            Self::NotFound => "not_found",
            Self::ModelNotFound => "model_not_found",
            Self::NotSupported => "not_supported",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::PayloadTooLarge => "payload_too_large",
            Self::WebsocketUnavailable => "websocket_unavailable",
            Self::HeadersTooLarge => "headers_too_large",
            Self::UsageLimitReached => "usage_limit_reached",
            Self::RateLimitExceeded => "rate_limit_exceeded",
            Self::UpstreamUnreachable => "upstream_unreachable",
            Self::UpstreamTransportError => "upstream_transport_error",
            Self::UpstreamTimeout => "upstream_timeout",
            Self::NoAccountAvailable => "no_account_available",
            Self::AccountRefreshFailed => "account_refresh_failed",
            Self::Draining => "draining",
            Self::Overloaded => "overloaded",
            Self::Internal => "internal_error",
        }
    }

    /// The member `error.type`. Codex decides by it whether a 429 is final and shows its own clear
    /// text, so a used-up limit has the code's name here too.
    pub fn error_type(self) -> &'static str {
        match self {
            Self::UsageLimitReached => "usage_limit_reached",
            Self::RateLimitExceeded => "rate_limit_error",
            Self::InvalidApiKey => "authentication_error",
            Self::KeyDisabled | Self::OriginNotAllowed => "permission_error",
            Self::Internal
            | Self::UpstreamUnreachable
            | Self::UpstreamTransportError
            | Self::UpstreamTimeout
            | Self::NoAccountAvailable
            | Self::AccountRefreshFailed
            | Self::Draining
            | Self::Overloaded => "server_error",
            Self::InvalidRequest
            | Self::UnsupportedContentEncoding
            | Self::RequestTimeout
            | Self::NotFound
            | Self::ModelNotFound
            | Self::NotSupported
            | Self::MethodNotAllowed
            | Self::PayloadTooLarge
            | Self::WebsocketUnavailable
            | Self::HeadersTooLarge => "invalid_request_error",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_used_up_limit_is_told_in_the_one_form_codex_shows() {
        assert_eq!(Kind::UsageLimitReached.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(Kind::UsageLimitReached.code(), "usage_limit_reached");
        assert_eq!(Kind::UsageLimitReached.error_type(), "usage_limit_reached");
    }

    #[test]
    fn a_wait_is_never_zero_seconds() {
        let refusal = Refusal::new(Kind::RateLimitExceeded, "wait").retry_after(0);
        assert_eq!(refusal.retry_after, Some(1));
    }
}
