//! The HTTP client for all that is not relayed: sign-in, catalogue, usage.
//!
//! It follows no redirect, heeds no proxy of the environment, and reads no more of an answer than
//! its caller bears. Nothing of a request or an answer is in its errors.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, Request, StatusCode};
use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::CertificateDer};
use zeroize::Zeroizing;

use super::trust::{self, TrustError};
use crate::config::Upstream;

/// How long one call may take from its first to its last byte.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(30);

/// Names the client whose protocol is spoken, and who really speaks it.
const USER_AGENT: &str =
    concat!("codex_cli_rs/0.171.0 (codex-edge ", env!("CARGO_PKG_VERSION"), ")");

/// A client. Cheap to clone; the clones share their connections.
#[derive(Clone, Debug)]
pub struct HttpClient {
    inner: reqwest::Client,
}

/// A whole answer.
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// Wiped on drop, since it may hold tokens.
    pub body: Zeroizing<Vec<u8>>,
}

/// Why there is no answer. Names nothing of what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("the request cannot be made")]
    Unmakeable,
    /// Not one byte of the request was sent.
    #[error("the server cannot be reached")]
    Unreachable,
    /// The server may have acted on the request.
    #[error("the server did not answer in time")]
    TimedOut,
    /// The server may have acted on the request.
    #[error("the connection to the server was lost")]
    Lost,
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
}

// === impl HttpClient ===

impl HttpClient {
    /// Reads certificates, and so blocks for a moment.
    pub(super) fn new(upstream: &Upstream) -> Result<Self, TrustError> {
        let extra = upstream.ca_file.as_deref();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trust::platform());
        if let Some(extra) = extra {
            let extras: Vec<CertificateDer<'static>> = trust::extras(extra)?;
            roots.add_parsable_certificates(extras);
        }
        let unusable = |_| TrustError::Unusable;
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let inner = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .user_agent(USER_AGENT)
            .connect_timeout(upstream.connect_timeout)
            .timeout(TOTAL_TIMEOUT)
            .build()
            .map_err(|_| TrustError::Unusable)?;
        Ok(Self { inner })
    }

    /// Makes one call and reads its answer, up to `body_max` bytes.
    ///
    /// # Errors
    /// See [`CallError`]. Every status is an answer.
    pub async fn send(
        &self,
        request: Request<Vec<u8>>,
        body_max: usize,
    ) -> Result<Answer, CallError> {
        let request = reqwest::Request::try_from(request).map_err(|_| CallError::Unmakeable)?;
        let mut response = self.inner.execute(request).await.map_err(fault)?;
        let status = response.status();
        let headers = std::mem::take(response.headers_mut());
        let mut body = Zeroizing::new(Vec::new());
        while let Some(piece) = response.chunk().await.map_err(fault)? {
            if body.len() + piece.len() > body_max {
                return Err(CallError::TooLarge(body_max));
            }
            body.extend_from_slice(&piece);
        }
        Ok(Answer { status, headers, body })
    }
}

fn fault(error: reqwest::Error) -> CallError {
    if error.is_builder() {
        CallError::Unmakeable
    } else if error.is_connect() {
        CallError::Unreachable
    } else if error.is_timeout() {
        CallError::TimedOut
    } else {
        CallError::Lost
    }
}

// === impl Answer ===

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").field("status", &self.status).finish_non_exhaustive()
    }
}
