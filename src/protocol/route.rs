//! Which operation a request line names. An allow list: what is not here does not exist. Pure.

use http::Method;

/// Everything the edge serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    Models,
    Responses,
    /// `GET responses` with `Upgrade`.
    ResponsesSocket,
    /// `HEAD responses`, by which the client's doctor probes whether anybody is there.
    ResponsesProbe,
    Healthz,
    Readyz,
}

/// Why a request line names no operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoute {
    NotFound,
    /// Known to the protocol, not served here.
    NotSupported,
    MethodNotAllowed {
        allow: &'static str,
    },
    /// A path that two parsers could read in two ways.
    Ambiguous,
}

/// The prefixes below which the native operations live, longest first.
const NATIVE_PREFIXES: &[&str] = &["/v1/codex/", "/backend-api/codex/", "/v1/"];

/// What a path must not contain: forms that a proxy in front or behind may read differently.
const AMBIGUOUS: &[&str] = &["//", "/./", "/../", ";", "\\", "%2e", "%2f", "%5c", "%00"];

/// Voice is out of scope on every prefix.
const VOICE: &[&str] = &["realtime", "live"];

/// Translated routes that exist in the interface and are not served yet.
const TRANSLATED: &[&str] = &["/v1/chat/completions", "/v1/messages"];

/// Resolves a request line. `path` is without its query; `upgrade` tells of an `Upgrade` header.
///
/// # Errors
/// Says why there is no such operation.
pub fn resolve(method: &Method, path: &str, upgrade: bool) -> Result<Operation, NoRoute> {
    if is_ambiguous(path) {
        return Err(NoRoute::Ambiguous);
    }
    match path {
        "/healthz" => return only_get(method, Operation::Healthz),
        "/readyz" => return only_get(method, Operation::Readyz),
        _ => {}
    }
    if TRANSLATED.contains(&path) {
        return Err(NoRoute::NotSupported);
    }
    let name = NATIVE_PREFIXES.iter().find_map(|prefix| path.strip_prefix(prefix));
    match name {
        Some("models") => only_get(method, Operation::Models),
        Some("responses") => responses(method, upgrade),
        Some(name) if VOICE.contains(&name.split('/').next().unwrap_or_default()) => {
            Err(NoRoute::NotSupported)
        }
        Some(_) | None => Err(NoRoute::NotFound),
    }
}

fn responses(method: &Method, upgrade: bool) -> Result<Operation, NoRoute> {
    match *method {
        Method::POST => Ok(Operation::Responses),
        Method::HEAD => Ok(Operation::ResponsesProbe),
        Method::GET if upgrade => Ok(Operation::ResponsesSocket),
        _ => Err(NoRoute::MethodNotAllowed { allow: "POST, HEAD" }),
    }
}

fn only_get(method: &Method, operation: Operation) -> Result<Operation, NoRoute> {
    if *method == Method::GET {
        Ok(operation)
    } else {
        Err(NoRoute::MethodNotAllowed { allow: "GET" })
    }
}

fn is_ambiguous(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    !path.starts_with('/')
        || path.ends_with("/.")
        || path.ends_with("/..")
        || path.bytes().any(|it| it.is_ascii_control() || !it.is_ascii())
        || AMBIGUOUS.iter().any(|form| lower.contains(form))
}

// === impl Operation ===

impl Operation {
    /// The path below the upstream's Codex base URL; `None` for what the edge answers itself.
    pub fn upstream_path(self) -> Option<&'static str> {
        match self {
            Self::Models => Some("/models"),
            Self::Responses | Self::ResponsesSocket => Some("/responses"),
            Self::ResponsesProbe | Self::Healthz | Self::Readyz => None,
        }
    }

    /// Whether a request has a JSON body to be read and repeated.
    pub fn has_body(self) -> bool {
        matches!(self, Self::Responses)
    }

    /// Whether anybody may ask, without a client key.
    pub fn is_open(self) -> bool {
        self.upstream_path().is_none()
    }

    /// Whether the answer is a stream of events, of which the first ones may be held back.
    pub fn is_streamed(self) -> bool {
        matches!(self, Self::Responses | Self::ResponsesSocket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prefix_has_the_native_operations() {
        for prefix in ["/v1/codex", "/backend-api/codex", "/v1"] {
            let at = |name: &str| format!("{prefix}/{name}");
            assert_eq!(resolve(&Method::GET, &at("models"), false), Ok(Operation::Models));
            assert_eq!(resolve(&Method::POST, &at("responses"), false), Ok(Operation::Responses));
            assert_eq!(
                resolve(&Method::HEAD, &at("responses"), false),
                Ok(Operation::ResponsesProbe)
            );
            assert_eq!(
                resolve(&Method::GET, &at("responses"), true),
                Ok(Operation::ResponsesSocket)
            );
        }
    }

    #[test]
    fn what_is_not_listed_does_not_exist() {
        let table = [
            (Method::GET, "/", NoRoute::NotFound),
            (Method::GET, "/v1", NoRoute::NotFound),
            (Method::GET, "/v1/codex/", NoRoute::NotFound),
            (Method::POST, "/v2/responses", NoRoute::NotFound),
            (Method::POST, "/v1/codex/leases", NoRoute::NotFound),
            (Method::POST, "/v1/codex/realtime", NoRoute::NotSupported),
            (Method::GET, "/v1/realtime/calls", NoRoute::NotSupported),
            (Method::GET, "/backend-api/codex/realtime", NoRoute::NotSupported),
            (Method::POST, "/v1/chat/completions", NoRoute::NotSupported),
            (Method::GET, "/v1/responses", NoRoute::MethodNotAllowed { allow: "POST, HEAD" }),
            (Method::OPTIONS, "/v1/models", NoRoute::MethodNotAllowed { allow: "GET" }),
            (Method::POST, "/healthz", NoRoute::MethodNotAllowed { allow: "GET" }),
        ];
        for (method, path, reason) in table {
            assert_eq!(resolve(&method, path, false), Err(reason), "{method} {path}");
        }
    }

    #[test]
    fn a_path_with_two_readings_is_refused_before_routing() {
        for path in [
            "//v1/responses",
            "/v1//responses",
            "/v1/./responses",
            "/v1/codex/../responses",
            "/v1/%2e%2e/responses",
            "/v1/%2E/responses",
            "/v1%2fresponses",
            "/v1/responses;x=1",
            "/v1\\responses",
            "/v1/responses/..",
            "v1/responses",
            "/v1/résponses",
        ] {
            assert_eq!(resolve(&Method::POST, path, false), Err(NoRoute::Ambiguous), "{path}");
        }
    }
}
