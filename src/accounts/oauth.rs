//! Calls to the sign-in service.

use std::sync::Arc;

use http::{HeaderValue, Request, StatusCode, header};
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

use crate::{
    config::BaseUrl,
    domain::{account::AuthId, credential::RefreshToken},
    egress::{Answer, CallError, Egress},
    protocol::oauth::{self, Refused},
};

pub use crate::protocol::oauth::{DeviceCode, DeviceGrant, RefreshReason, Tokens};

/// More than any answer of the service holds.
const BODY_MAX: usize = 64 * 1024;

/// The sign-in service, as reached through an account's own egress.
#[derive(Clone, Debug)]
pub struct OAuth {
    base: BaseUrl,
    egress: Arc<Egress>,
}

/// Names no token and no answer's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OAuthError {
    /// No retry helps: the login is over. The code is one of the known ones, or a generic word.
    #[error("the sign-in service refused for good: {0}")]
    Terminal(&'static str),
    #[error("the sign-in service answered {0}")]
    Status(StatusCode),
    /// It has not heard the question.
    #[error("the sign-in service cannot be reached")]
    Unreachable,
    #[error("the sign-in service did not answer in time")]
    TimedOut,
    /// It may have heard the question.
    #[error("the connection to the sign-in service was lost")]
    Lost,
    #[error("the sign-in service's answer cannot be understood")]
    Unreadable,
}

#[derive(Clone, Copy)]
enum Form {
    Json,
    UrlEncoded,
}

// === impl OAuth ===

impl OAuth {
    pub fn new(base: BaseUrl, egress: Arc<Egress>) -> Self {
        Self { base, egress }
    }

    /// Trades a refresh token in, once.
    ///
    /// # Errors
    /// See [`OAuthError`].
    pub async fn refresh(
        &self,
        account: Option<&AuthId>,
        token: &RefreshToken,
        reason: RefreshReason,
    ) -> Result<Tokens, OAuthError> {
        self.tokens(account, Form::Json, oauth::refresh_body(token, reason)).await
    }

    /// Where a browser signs in.
    pub fn authorize_url(&self, redirect_uri: &str, challenge: &str, state: &str) -> String {
        let query = oauth::authorize_query(redirect_uri, challenge, state);
        format!("{}/oauth/authorize?{query}", self.base)
    }

    /// Takes the code of a sign-in for tokens.
    ///
    /// # Errors
    /// See [`OAuthError`].
    pub async fn exchange(
        &self,
        code: &SecretString,
        verifier: &SecretString,
        redirect_uri: &str,
    ) -> Result<Tokens, OAuthError> {
        let (code, verifier) = (code.expose_secret(), verifier.expose_secret());
        let body = oauth::exchange_body(code, verifier, redirect_uri);
        self.tokens(None, Form::UrlEncoded, body).await
    }

    /// Begins a sign-in on another device.
    ///
    /// # Errors
    /// See [`OAuthError`].
    pub async fn device_begin(&self) -> Result<DeviceCode, OAuthError> {
        let body = Zeroizing::new(oauth::device_begin_body());
        let path = "/api/accounts/deviceauth/usercode";
        let answer = self.post(None, path, Form::Json, body).await?;
        if !answer.status.is_success() {
            return Err(refused(&answer));
        }
        let page = format!("{}/codex/device", self.base);
        oauth::device_code(&answer.body, page).ok_or(OAuthError::Unreadable)
    }

    /// Whether the user has agreed; `None` while not.
    ///
    /// # Errors
    /// See [`OAuthError`].
    pub async fn device_poll(&self, code: &DeviceCode) -> Result<Option<DeviceGrant>, OAuthError> {
        let body = oauth::device_poll_body(code);
        let path = "/api/accounts/deviceauth/token";
        let answer = self.post(None, path, Form::Json, body).await?;
        match answer.status {
            StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => {
                oauth::device_grant(&answer.body).map(Some).ok_or(OAuthError::Unreadable)
            }
            _ => Err(refused(&answer)),
        }
    }

    /// Takes what the device poll gave for tokens.
    ///
    /// # Errors
    /// See [`OAuthError`].
    pub async fn device_exchange(&self, grant: &DeviceGrant) -> Result<Tokens, OAuthError> {
        self.exchange(&grant.code, &grant.verifier, oauth::DEVICE_REDIRECT).await
    }

    async fn tokens(
        &self,
        account: Option<&AuthId>,
        form: Form,
        body: Zeroizing<Vec<u8>>,
    ) -> Result<Tokens, OAuthError> {
        let answer = self.post(account, "/oauth/token", form, body).await?;
        if !answer.status.is_success() {
            return Err(refused(&answer));
        }
        let date = answer.headers.get(header::DATE).map(HeaderValue::as_bytes);
        oauth::tokens(&answer.body, date).ok_or(OAuthError::Unreadable)
    }

    async fn post(
        &self,
        account: Option<&AuthId>,
        path: &str,
        form: Form,
        mut body: Zeroizing<Vec<u8>>,
    ) -> Result<Answer, OAuthError> {
        let request = Request::post(format!("{}{path}", self.base))
            .header(header::CONTENT_TYPE, form.content_type())
            .header(header::ACCEPT, "application/json")
            .header("originator", oauth::ORIGINATOR)
            .body(std::mem::take(&mut *body))
            .map_err(|_| OAuthError::Unreachable)?;
        Ok(self.egress.client(account).send(request, BODY_MAX).await?)
    }
}

fn refused(answer: &Answer) -> OAuthError {
    match oauth::refused(answer.status, &answer.body) {
        Refused::Terminal(code) => OAuthError::Terminal(code),
        Refused::Passing(status) => OAuthError::Status(status),
    }
}

// === impl Form ===

impl Form {
    fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::UrlEncoded => "application/x-www-form-urlencoded",
        }
    }
}

// === impl OAuthError ===

impl From<CallError> for OAuthError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Unmakeable | CallError::Unreachable => Self::Unreachable,
            CallError::TimedOut => Self::TimedOut,
            CallError::Lost => Self::Lost,
            CallError::TooLarge(_) => Self::Unreadable,
        }
    }
}
