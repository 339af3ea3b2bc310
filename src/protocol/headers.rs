//! Which headers pass, in either direction. Deny lists: an unknown name passes. Pure.
//!
//! One policy serves HTTP and WebSocket handshakes, towards every upstream route.

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Headers of a request that never reach the upstream.
///
/// Credentials are rebuilt from the account; hop-by-hop headers end here; forwarding headers would
/// tell the upstream who the client is.
const REQUEST_DENIED: &[&str] = &[
    // credentials and identity
    "authorization",
    "x-api-key",
    "api-key",
    "cookie",
    "chatgpt-account-id",
    "openai-organization",
    "openai-project",
    "x-openai-fedramp",
    "x-openai-account-routing-override",
    "x-openai-actor-authorization",
    "x-openai-agent-assertion",
    "x-oai-attestation",
    // this hop
    "host",
    "content-length",
    "expect",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    // the way the request came
    "forwarded",
    "via",
    "x-real-ip",
    "true-client-ip",
    "x-client-ip",
    // the browser it came from
    "origin",
    "referer",
];

const REQUEST_DENIED_PREFIXES: &[&str] = &[
    "x-forwarded-",
    "cf-",
    "fly-",
    "x-amzn-",
    "proxy-",
    "sec-fetch-",
    "sec-websocket-",
    "x-codex-edge-",
];

/// Headers of an answer that never reach the client: cookies and promises of the upstream's host,
/// and what belongs to the hop behind us.
const RESPONSE_DENIED: &[&str] = &[
    "set-cookie",
    "server",
    "alt-svc",
    "strict-transport-security",
    "report-to",
    "nel",
    "chatgpt-account-id",
    // Names the catalogue of one account. Codex fetches its list anew on every turn while this
    // differs from the list's own ETag.
    "x-models-etag",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

const RESPONSE_DENIED_PREFIXES: &[&str] = &["proxy-"];

/// The header that Codex clients use for a key beside `Authorization`.
pub const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
pub const CHATGPT_ACCOUNT_ID: HeaderName = HeaderName::from_static("chatgpt-account-id");
pub const X_OPENAI_FEDRAMP: HeaderName = HeaderName::from_static("x-openai-fedramp");
/// State of a turn that belongs to the account which issued it.
pub const X_CODEX_TURN_STATE: HeaderName = HeaderName::from_static("x-codex-turn-state");
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What every client key begins with.
pub const CLIENT_KEY_PREFIX: &[u8] = b"cek_";

/// Tells which request headers pass. Made once per request, since `Connection` may name more.
#[derive(Debug)]
pub struct RequestPolicy {
    nominated: Vec<Vec<u8>>,
}

// === impl RequestPolicy ===

impl RequestPolicy {
    pub fn of(headers: &HeaderMap) -> Self {
        Self { nominated: nominated(headers) }
    }

    /// Whether the header reaches the upstream.
    pub fn passes(&self, name: &HeaderName) -> bool {
        let name = name.as_str();
        !is_denied(name, REQUEST_DENIED, REQUEST_DENIED_PREFIXES)
            && !self.nominated.iter().any(|it| it == name.as_bytes())
    }
}

/// The further hop-by-hop headers that `Connection` names, in lower case.
fn nominated(headers: &HeaderMap) -> Vec<Vec<u8>> {
    let values = headers.get_all(header::CONNECTION).iter();
    values
        .flat_map(|value| value.as_bytes().split(|it| *it == b','))
        .map(|name| name.trim_ascii().to_ascii_lowercase())
        .filter(|name| !name.is_empty())
        .collect()
}

/// The headers of an upstream answer that must not reach the client: those of the deny list, and
/// whatever holds the account's id or an e-mail address.
pub fn denied_in_response(headers: &HeaderMap, account_id: Option<&str>) -> Vec<HeaderName> {
    let id = account_id.filter(|id| !id.is_empty()).map(memchr::memmem::Finder::new);
    let hops = nominated(headers);
    let passes = |name: &HeaderName, value: &HeaderValue| {
        let value = value.as_bytes();
        !is_denied(name.as_str(), RESPONSE_DENIED, RESPONSE_DENIED_PREFIXES)
            && id.as_ref().is_none_or(|id| id.find(value).is_none())
            && !holds_email(value)
            && !hops.iter().any(|it| it == name.as_str().as_bytes())
    };
    let denied = headers.iter().filter(|(name, value)| !passes(name, value));
    denied.map(|(name, _)| name.clone()).collect()
}

/// Removes from an answer, or its trailers, what must not reach the client.
pub fn clean_response(headers: &mut HeaderMap, account_id: Option<&str>) {
    for name in denied_in_response(headers, account_id) {
        headers.remove(name);
    }
}

/// The client key of a request: a bearer counts first, but one that is no client key gives way to
/// `X-API-Key`, so that a client with a login of its own can still bring a key.
pub fn client_key(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(bearer_token);
    let api_key = headers.get(X_API_KEY).map(HeaderValue::as_bytes);
    let is_key = |it: &&[u8]| it.starts_with(CLIENT_KEY_PREFIX);
    bearer.filter(is_key).or(api_key.filter(is_key)).or(bearer).or(api_key)
}

fn bearer_token(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = value.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

fn is_denied(name: &str, names: &[&str], prefixes: &[&str]) -> bool {
    names.contains(&name) || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether any word of the value looks like an e-mail address. Nothing that Codex reads does.
fn holds_email(value: &[u8]) -> bool {
    memchr::memchr_iter(b'@', value).any(|at| {
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"._%+-".contains(byte);
        let host: &[u8] = &value[at + 1..];
        let host_len = host.iter().take_while(|it| is_part(it)).count();
        value[..at].last().is_some_and(is_part) && host[..host_len].contains(&b'.')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HeaderName {
        HeaderName::from_bytes(text.as_bytes()).unwrap()
    }

    #[test]
    fn credentials_hops_and_origins_stay_here() {
        let policy = RequestPolicy::of(&HeaderMap::new());
        for denied in [
            "Authorization",
            "X-API-Key",
            "api-key",
            "Cookie",
            "ChatGPT-Account-ID",
            "OpenAI-Organization",
            "x-openai-fedramp",
            "x-openai-account-routing-override",
            "Host",
            "Content-Length",
            "Transfer-Encoding",
            "X-Forwarded-For",
            "CF-Connecting-IP",
            "Fly-Client-IP",
            "X-Amzn-Trace-Id",
            "Proxy-Authorization",
            "Sec-Fetch-Site",
            "Sec-WebSocket-Key",
            "X-Codex-Edge-Anything",
            "Origin",
            "Referer",
            "Expect",
        ] {
            assert!(!policy.passes(&name(denied)), "{denied}");
        }
    }

    #[test]
    fn the_clients_own_headers_pass() {
        let policy = RequestPolicy::of(&HeaderMap::new());
        for passes in [
            "session-id",
            "session_id",
            "thread-id",
            "content-encoding",
            "content-type",
            "accept",
            "x-codex-turn-metadata",
            "x-openai-subagent",
            "x-oai-something",
            "x-responsesapi-include-timing-metrics",
            "originator",
            "version",
            "user-agent",
            "x-never-heard-of",
        ] {
            assert!(policy.passes(&name(passes)), "{passes}");
        }
    }

    #[test]
    fn connection_may_name_further_hop_headers() {
        let mut headers = HeaderMap::new();
        headers.append("connection", HeaderValue::from_static("keep-alive, X-Codex-Foo"));
        headers.append("connection", HeaderValue::from_static("x-bar"));
        let policy = RequestPolicy::of(&headers);
        assert!(!policy.passes(&name("x-codex-foo")));
        assert!(!policy.passes(&name("x-bar")));
        assert!(policy.passes(&name("x-baz")));
        let mut odd = HeaderMap::new();
        odd.append("connection", HeaderValue::from_bytes(b"x-foo, \xff").unwrap());
        odd.append("x-foo", HeaderValue::from_static("1"));
        assert!(!RequestPolicy::of(&odd).passes(&name("x-foo")));
        assert!(denied_in_response(&odd, None).contains(&name("x-foo")));
    }

    #[test]
    fn an_answer_shows_neither_cookies_nor_the_account() {
        let passes = |header: &str, value: &'static str| {
            let headers = HeaderMap::from_iter([(name(header), HeaderValue::from_static(value))]);
            denied_in_response(&headers, Some("ws-1234")).is_empty()
        };
        assert!(!passes("set-cookie", "__cf_bm=1"));
        assert!(!passes("Server", "cloudflare"));
        assert!(!passes("x-models-etag", "\"a\""));
        assert!(!passes("x-debug", "account=ws-1234;"));
        assert!(!passes("x-user", "someone@example.com"));
        assert!(passes("openai-model", "gpt-5.5"));
        assert!(passes("x-codex-primary-used-percent", "12"));
        assert!(passes("retry-after", "3"));
    }

    #[test]
    fn a_foreign_bearer_gives_way_to_a_key() {
        let key = |pairs: &[(&'static str, &'static str)]| {
            let headers: HeaderMap = pairs
                .iter()
                .map(|(name, value)| {
                    (HeaderName::from_static(name), HeaderValue::from_static(value))
                })
                .collect();
            client_key(&headers).map(|it| String::from_utf8_lossy(it).into_owned())
        };
        assert_eq!(key(&[("authorization", "Bearer cek_a")]).as_deref(), Some("cek_a"));
        assert_eq!(key(&[("x-api-key", "cek_b")]).as_deref(), Some("cek_b"));
        assert_eq!(
            key(&[("authorization", "Bearer cek_a"), ("x-api-key", "cek_b")]).as_deref(),
            Some("cek_a")
        );
        assert_eq!(
            key(&[("authorization", "Bearer eyJ0"), ("x-api-key", "cek_b")]).as_deref(),
            Some("cek_b")
        );
        assert_eq!(key(&[("authorization", "bearer  eyJ0 ")]).as_deref(), Some("eyJ0"));
        assert_eq!(key(&[("authorization", "Basic eyJ0")]), None);
        assert_eq!(key(&[]), None);
    }
}
