//! Who may come in, and with what: everything that can be said of a request by its head alone.
//!
//! Nothing here touches an account.

use std::{sync::Arc, time::Instant};

use http::{HeaderMap, Method, Uri, Version, header};

use super::Gateway;
use crate::{
    config::Config,
    domain::refusal::{Kind, Refusal},
    protocol::{
        headers,
        route::{self, NoRoute, Operation},
    },
    telemetry::labels::Phase,
    users::keys::{Refused, Tenant},
};

/// The most that request headers may take together.
const HEADERS_MAX: usize = 64 * 1024;

/// A request head, whatever framework read it.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    pub method: &'a Method,
    pub uri: &'a Uri,
    pub version: Version,
    pub headers: &'a HeaderMap,
}

/// A request that may go on.
#[derive(Debug)]
pub enum Admission {
    /// Answered by the edge itself, for anybody.
    Open(Operation),
    /// For a user of the gateway.
    Tenant { operation: Operation, tenant: Tenant, config: Arc<Config> },
}

// === impl Gateway ===

impl Gateway {
    /// Decides on a request by its head.
    ///
    /// # Errors
    /// The refusal, which needs neither the body nor an account.
    pub fn admit(&self, head: Head<'_>) -> Result<Admission, Refusal> {
        let began = Instant::now();
        let admitted = self.decide(head);
        self.metrics.overhead(Phase::Admit, began.elapsed());
        admitted
    }

    fn decide(&self, head: Head<'_>) -> Result<Admission, Refusal> {
        check_form(head)?;
        let upgrade = head.headers.contains_key(header::UPGRADE);
        let operation = route::resolve(head.method, head.uri.path(), upgrade).map_err(no_route)?;
        if operation.is_open() {
            return Ok(Admission::Open(operation));
        }
        let config = self.config();
        check_origin(head.headers, &config.server.allowed_origins)?;
        let tenant = self.authenticate(head.headers)?;
        if self.is_draining() {
            return Err(Refusal::new(
                Kind::Draining,
                "This gateway is being stopped or replaced. Try again in a moment.",
            )
            .retry_after(1));
        }
        if operation == Operation::ResponsesSocket {
            return Err(Refusal::new(
                Kind::WebsocketUnavailable,
                "This gateway does not speak WebSocket. Use HTTP; Codex does so by itself.",
            ));
        }
        Ok(Admission::Tenant { operation, tenant, config })
    }

    fn authenticate(&self, headers: &HeaderMap) -> Result<Tenant, Refusal> {
        let key = headers::client_key(headers).ok_or_else(|| {
            Refusal::new(
                Kind::InvalidApiKey,
                "This gateway needs a client key: send \"Authorization: Bearer cek_…\". \
                 \"codex-edge users create NAME\" makes one.",
            )
        })?;
        self.keyring.authenticate(key, self.clock.now()).map_err(|refused| match refused {
            Refused::Unknown => Refusal::new(
                Kind::InvalidApiKey,
                "This client key is not known here. Ask the gateway's operator for a new one.",
            ),
            Refused::Disabled => Refusal::new(
                Kind::KeyDisabled,
                "This client key is disabled or has expired. Ask the gateway's operator.",
            ),
        })
    }
}

/// Refuses what two parsers on the way could read in two ways, and what is too large to read.
fn check_form(head: Head<'_>) -> Result<(), Refusal> {
    let size: usize =
        head.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if size > HEADERS_MAX {
        return Err(Refusal::new(
            Kind::HeadersTooLarge,
            format!("The request headers are larger than {HEADERS_MAX} bytes together."),
        ));
    }
    let ambiguous = |what: &str| {
        Err(Refusal::new(Kind::InvalidRequest, format!("The request is ambiguous: {what}.")))
    };
    for (name, what) in [
        (header::HOST, "it names several hosts"),
        (header::CONTENT_LENGTH, "it gives several lengths"),
        (header::TRANSFER_ENCODING, "it gives several transfer encodings"),
        (header::CONTENT_TYPE, "it gives several content types"),
        (header::CONTENT_ENCODING, "it gives several content encodings"),
    ] {
        if head.headers.get_all(name).iter().nth(1).is_some() {
            return ambiguous(what);
        }
    }
    let has = |name| head.headers.contains_key(name);
    if has(header::TRANSFER_ENCODING) && has(header::CONTENT_LENGTH) {
        return ambiguous("it gives a length and a transfer encoding");
    }
    if head.version <= Version::HTTP_11 && head.uri.scheme().is_some() {
        return ambiguous("its target is a whole URL");
    }
    if head.version == Version::HTTP_11 && !has(header::HOST) {
        return ambiguous("it names no host");
    }
    Ok(())
}

/// A browser page of somebody else must not use a key that a browser extension or proxy adds.
fn check_origin(headers: &HeaderMap, allowed: &[String]) -> Result<(), Refusal> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    if allowed.iter().any(|it| it.as_bytes() == origin.as_bytes()) {
        return Ok(());
    }
    Err(Refusal::new(
        Kind::OriginNotAllowed,
        "Web pages of this origin may not use the gateway. Its operator can list the origin in \
         server.allowed_origins.",
    ))
}

fn no_route(reason: NoRoute) -> Refusal {
    match reason {
        NoRoute::Ambiguous => Refusal::new(
            Kind::InvalidRequest,
            "The request's path can be read in two ways. Send it plain, without escapes.",
        ),
        NoRoute::NotFound => Refusal::new(
            Kind::NotFound,
            "There is nothing at this path. Codex needs a base URL that ends in /v1/codex.",
        ),
        NoRoute::NotSupported => Refusal::new(
            Kind::NotSupported,
            "This gateway does not serve this part of the API. Codex itself works without it.",
        ),
        NoRoute::MethodNotAllowed { allow } => Refusal::new(
            Kind::MethodNotAllowed,
            format!("This path does not take the method. It takes {allow}."),
        )
        .allow(allow),
    }
}
