//! Why a request to the admin listener fails, and how that is told.
//!
//! A handler only names the fault. The bytes are made where the request id is known.

use std::borrow::Cow;

use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::{
    protocol::refusal::{self, ErrorText},
    users::UserError,
};

pub(super) const NO_USER: &str =
    "there is no such user: \"codex-edge users list\" shows those there are";

/// One way to fail. No message holds a key, a path or an e-mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Misdirected,
    InvalidAdminKey,
    InvalidRequest(String),
    NotFound(&'static str),
    MethodNotAllowed,
    NameTaken(String),
    TooLarge,
    /// Too much is under way already.
    Busy(String),
    /// A service that the gateway depends on.
    Unreachable(String),
    AuthUnidentified(String),
    AccountAmbiguous(String),
    ReauthRequired(String),
    RefreshFailed(String),
    AuthDirUnavailable(String),
    /// Another program has a hand in the files too.
    FilesChanged(String),
    /// The file system did not take a change.
    FilesFailed(String),
    /// Its cause is in the log.
    Internal,
}

// === impl Fault ===

impl Fault {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Self::InvalidAdminKey => StatusCode::UNAUTHORIZED,
            Self::InvalidRequest(_) | Self::ReauthRequired(_) => StatusCode::BAD_REQUEST,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::NameTaken(_)
            | Self::AuthUnidentified(_)
            | Self::AccountAmbiguous(_)
            | Self::FilesChanged(_) => StatusCode::CONFLICT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Busy(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Unreachable(_) => StatusCode::BAD_GATEWAY,
            Self::RefreshFailed(_) | Self::AuthDirUnavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::FilesFailed(_) | Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Misdirected => "misdirected_request",
            Self::InvalidAdminKey => "invalid_admin_key",
            Self::InvalidRequest(_) => "invalid_request",
            Self::NotFound(_) => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::NameTaken(_) => "name_taken",
            Self::TooLarge => "payload_too_large",
            Self::Busy(_) => "rate_limit_exceeded",
            Self::Unreachable(_) => "upstream_unreachable",
            Self::AuthUnidentified(_) => "auth_unidentified",
            Self::AccountAmbiguous(_) => "account_ambiguous",
            Self::ReauthRequired(_) => "account_reauth_required",
            Self::RefreshFailed(_) => "account_refresh_failed",
            Self::AuthDirUnavailable(_) => "auth_dir_unavailable",
            Self::FilesChanged(_) => "credential_file_changed",
            Self::FilesFailed(_) => "credential_file_failed",
            Self::Internal => "internal_error",
        }
    }

    fn error_type(&self) -> &'static str {
        match self {
            Self::InvalidAdminKey => "authentication_error",
            Self::Busy(_) => "rate_limit_error",
            Self::Unreachable(_)
            | Self::RefreshFailed(_)
            | Self::AuthDirUnavailable(_)
            | Self::FilesFailed(_)
            | Self::Internal => "server_error",
            Self::Misdirected
            | Self::InvalidRequest(_)
            | Self::NotFound(_)
            | Self::MethodNotAllowed
            | Self::NameTaken(_)
            | Self::AuthUnidentified(_)
            | Self::AccountAmbiguous(_)
            | Self::ReauthRequired(_)
            | Self::FilesChanged(_)
            | Self::TooLarge => "invalid_request_error",
        }
    }

    fn message(&self) -> Cow<'_, str> {
        match self {
            Self::Misdirected => "this host name is not one of the admin listener's: use its \
                                  address, or localhost"
                .into(),
            Self::InvalidAdminKey => "the admin key is missing or wrong: send the key file's \
                                      content as \"Authorization: Bearer …\""
                .into(),
            Self::InvalidRequest(message)
            | Self::Busy(message)
            | Self::Unreachable(message)
            | Self::AuthUnidentified(message)
            | Self::AccountAmbiguous(message)
            | Self::ReauthRequired(message)
            | Self::RefreshFailed(message)
            | Self::AuthDirUnavailable(message)
            | Self::FilesChanged(message)
            | Self::FilesFailed(message) => message.into(),
            Self::NotFound(message) => (*message).into(),
            Self::MethodNotAllowed => "this route has no such method: the Allow header names \
                                       those it has"
                .into(),
            Self::NameTaken(name) => {
                format!("there is a user {name} already: choose another name").into()
            }
            Self::TooLarge => "the body is too large for a management request".into(),
            Self::Internal => "the gateway could not do this: its log tells why".into(),
        }
    }

    pub(super) fn body(&self, request_id: &str) -> Vec<u8> {
        let message = self.message();
        let text = ErrorText { message: &message, r#type: self.error_type(), code: self.code() };
        refusal::error_body(text, request_id)
    }
}

impl From<UserError> for Fault {
    fn from(error: UserError) -> Self {
        match error {
            UserError::NotFound => Self::NotFound(NO_USER),
            UserError::NameTaken { name } => Self::NameTaken(name),
            UserError::BadName => Self::InvalidRequest(error.to_string()),
            UserError::Storage(error) => {
                tracing::error!(%error, "A change of the users failed: {error}");
                Self::Internal
            }
        }
    }
}

impl IntoResponse for Fault {
    /// An answer without a body yet; it carries the fault to where the request id is known.
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}
