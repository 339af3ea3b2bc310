//! What the end of an attempt says about the account that made it. Pure.
//!
//! One classifier serves the HTTP head, the event inside a stream and the WebSocket frame, so the
//! three transports can never disagree about a failure.

use http::StatusCode;

/// The error members of an upstream answer, wherever they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorFacts {
    /// `error.code`, or `code`.
    pub code: Option<String>,
    /// `error.type`.
    pub kind: Option<String>,
    /// `error.plan_type`.
    pub plan_type: Option<String>,
    /// `error.resets_at`, seconds since the Unix epoch.
    pub resets_at: Option<i64>,
    /// `error.resets_in_seconds`.
    pub resets_in_seconds: Option<i64>,
}

/// Who or what is at fault, and so who may be tried next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// The account answered.
    Success,
    /// The request itself is refused; no other account would take it.
    Caller,
    /// The account's credential is refused.
    Credential,
    /// The account's workspace may not do this.
    Workspace,
    /// The account has used up what it may use.
    Quota,
    /// The account does not serve this model.
    ModelUnsupported,
    /// The upstream is in trouble for a moment.
    Transient,
    /// The answer did not come from the upstream's application at all.
    Transport,
}

/// Codes that mean a used-up quota, on every carrier.
const QUOTA_CODES: &[&str] =
    &["rate_limit_exceeded", "usage_limit_reached", "insufficient_quota", "rate_limit_reached"];

/// Codes that mean an overloaded or broken upstream, on every carrier.
const TRANSIENT_CODES: &[&str] = &["server_error", "server_is_overloaded", "slow_down"];

/// Codes of a 403 that concern the credential; every other one concerns the workspace.
const CREDENTIAL_CODES: &[&str] = &[
    "account_deactivated",
    "authentication_error",
    "invalid_api_key",
    "invalid_token",
    "token_expired",
    "token_invalidated",
    "token_revoked",
    "unauthorized",
];

/// Codes by which an account says that it does not serve a model.
const MODEL_CODES: &[&str] = &["model_not_found", "model_not_supported", "unsupported_model"];

// === impl Class ===

impl Class {
    /// Classifies the head of an HTTP answer, or the status of a WebSocket error frame.
    ///
    /// `html` tells that the body is a web page: a proxy or a challenge in between answered then,
    /// which says nothing about the account.
    pub fn of_status(status: StatusCode, html: bool, facts: &ErrorFacts) -> Self {
        let code = facts.code.as_deref().or(facts.kind.as_deref()).unwrap_or_default();
        match status.as_u16() {
            200..=399 => Self::Success,
            401 => Self::Credential,
            403 if html => Self::Transport,
            403 if CREDENTIAL_CODES.contains(&code) => Self::Credential,
            403 => Self::Workspace,
            402 | 429 if facts.is("usage_not_included") => Self::Workspace,
            402 | 429 => Self::Quota,
            400 | 404 if MODEL_CODES.contains(&code) => Self::ModelUnsupported,
            408 => Self::Transient,
            500.. => Self::Transient,
            _ => Self::Caller,
        }
    }

    /// Classifies a failure event (`response.failed`, `error`) inside a stream that began well.
    ///
    /// Unknown codes are the caller's: they are relayed and never repeated elsewhere.
    pub fn of_stream(facts: &ErrorFacts) -> Self {
        let Some(code) = facts.code.as_deref().or(facts.kind.as_deref()) else {
            return Self::Transient;
        };
        match code {
            _ if QUOTA_CODES.contains(&code) => Self::Quota,
            _ if TRANSIENT_CODES.contains(&code) => Self::Transient,
            "usage_not_included" => Self::Workspace,
            _ => Self::Caller,
        }
    }

    /// Whether another account may do better.
    pub fn is_another_accounts_chance(self) -> bool {
        match self {
            Self::Success | Self::Caller => false,
            Self::Credential
            | Self::Workspace
            | Self::Quota
            | Self::ModelUnsupported
            | Self::Transient
            | Self::Transport => true,
        }
    }

    /// The metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Caller => "caller",
            Self::Credential => "credential",
            Self::Workspace => "workspace",
            Self::Quota => "quota",
            Self::ModelUnsupported => "model_unsupported",
            Self::Transient => "transient",
            Self::Transport => "transport",
        }
    }
}

// === impl ErrorFacts ===

impl ErrorFacts {
    /// Whether the error's code or its type is `name`.
    pub fn is(&self, name: &str) -> bool {
        self.code.as_deref() == Some(name) || self.kind.as_deref() == Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(code: &str) -> ErrorFacts {
        ErrorFacts { code: (!code.is_empty()).then(|| code.to_owned()), ..ErrorFacts::default() }
    }

    #[test]
    fn a_status_has_one_class() {
        let table = [
            (200, false, "", Class::Success),
            (304, false, "", Class::Success),
            (400, false, "", Class::Caller),
            (400, false, "model_not_supported", Class::ModelUnsupported),
            (401, false, "", Class::Credential),
            (402, false, "", Class::Quota),
            (403, false, "", Class::Workspace),
            (403, false, "token_expired", Class::Credential),
            (403, true, "", Class::Transport),
            (404, false, "", Class::Caller),
            (404, false, "model_not_found", Class::ModelUnsupported),
            (408, false, "", Class::Transient),
            (413, false, "", Class::Caller),
            (429, false, "", Class::Quota),
            (429, false, "usage_not_included", Class::Workspace),
            (500, false, "", Class::Transient),
            (529, false, "", Class::Transient),
        ];
        for (status, html, code, class) in table {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(Class::of_status(status, html, &facts(code)), class, "{status} {code}");
        }
    }

    #[test]
    fn a_failure_inside_a_stream_has_one_class() {
        let table = [
            ("rate_limit_exceeded", Class::Quota),
            ("usage_limit_reached", Class::Quota),
            ("insufficient_quota", Class::Quota),
            ("usage_not_included", Class::Workspace),
            ("server_error", Class::Transient),
            ("server_is_overloaded", Class::Transient),
            ("slow_down", Class::Transient),
            ("", Class::Transient),
            ("context_length_exceeded", Class::Caller),
            ("invalid_prompt", Class::Caller),
            ("cyber_policy", Class::Caller),
            ("previous_response_not_found", Class::Caller),
            ("something_new", Class::Caller),
        ];
        for (code, class) in table {
            assert_eq!(Class::of_stream(&facts(code)), class, "{code}");
        }
    }
}
