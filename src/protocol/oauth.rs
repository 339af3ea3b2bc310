//! What the sign-in service is asked, and what its answers mean. Pure.
//!
//! The shapes are those of Codex 0.171. Bodies that hold tokens are wiped on drop, and nothing of
//! an answer but a few known words ever leaves this module.

use std::time::Duration;

use http::StatusCode;
use jiff::{Timestamp, fmt::rfc2822};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::error_body;
use crate::domain::credential::{AccessToken, RefreshToken};

/// Codex's own client id: a refresh token is good for the client only that got it.
pub const CLIENT_ID: &str = "app_EMoamEEZ73f0CkXaXp7hrann";
pub const ORIGINATOR: &str = "codex_cli_rs";

/// The redirect address that the service itself puts on the codes of a device.
pub const DEVICE_REDIRECT: &str = "https://auth.openai.com/deviceauth/callback";

const SCOPE: &str = "openid profile email offline_access api.connectors.read api.connectors.invoke";

/// How often a device is asked for where the service does not say.
const INTERVAL: Duration = Duration::from_secs(5);

/// Waits outside of these bounds are not believed.
const INTERVAL_MIN: u64 = 1;
const INTERVAL_MAX: u64 = 60;

/// The longest id or code that is taken from an answer.
const WORD_BYTES_MAX: usize = 4096;

/// Why a refresh is asked for, as Codex tells it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefreshReason {
    UnauthorizedRecovery,
    ProactiveExpiry,
}

/// What the token endpoint gives. Members that are missing keep their old values.
#[derive(Clone, Default)]
pub struct Tokens {
    pub id_token: Option<SecretString>,
    pub access_token: Option<SecretString>,
    pub refresh_token: Option<SecretString>,
    /// The service's own time, by its `Date` header.
    pub server_time: Option<Timestamp>,
}

/// A code that somebody types in on another device.
#[derive(Clone, Debug)]
pub struct DeviceCode {
    pub user_code: String,
    /// Where to type it.
    pub verification_url: String,
    pub interval: Duration,
    pub expires_at: Option<Timestamp>,
    pub(crate) device_auth_id: SecretString,
}

/// What the device poll gives once the user has agreed.
#[derive(Clone)]
pub struct DeviceGrant {
    pub(crate) code: SecretString,
    pub(crate) verifier: SecretString,
}

/// What an answer other than a success says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// For good, with one of the known codes or a generic word.
    Terminal(&'static str),
    Passing(StatusCode),
}

#[derive(Deserialize)]
struct DeviceAnswer {
    device_auth_id: SecretText,
    #[serde(alias = "usercode")]
    user_code: String,
    interval: Option<Value>,
    expires_at: Option<Value>,
}

#[derive(Deserialize)]
struct GrantAnswer {
    authorization_code: SecretText,
    code_verifier: SecretText,
}

/// A text that is wiped on drop from the moment it has been read.
#[derive(Deserialize)]
#[serde(from = "String")]
struct SecretText(SecretString);

// === asking ===

/// The JSON that trades a refresh token in.
pub fn refresh_body(token: &RefreshToken, reason: RefreshReason) -> Zeroizing<Vec<u8>> {
    // Written by hand, since the order of the members is Codex's.
    let text = |text: &str| Value::from(text).to_string();
    let secret = Zeroizing::new(text(token.expose()));
    let body = format!(
        r#"{{"client_id":{},"grant_type":"refresh_token","refresh_token":{},"refresh_reason":{}}}"#,
        text(CLIENT_ID),
        *secret,
        text(reason.wire()),
    );
    Zeroizing::new(body.into_bytes())
}

/// The form that trades a sign-in's code in.
pub fn exchange_body(code: &str, verifier: &str, redirect_uri: &str) -> Zeroizing<Vec<u8>> {
    let fields = [
        ("grant_type", "authorization_code"),
        ("client_id", CLIENT_ID),
        ("code", code),
        ("redirect_uri", redirect_uri),
        ("code_verifier", verifier),
    ];
    Zeroizing::new(form(&fields).into_bytes())
}

/// The query of the page where a browser signs in.
pub fn authorize_query(redirect_uri: &str, challenge: &str, state: &str) -> String {
    form(&[
        ("response_type", "code"),
        ("client_id", CLIENT_ID),
        ("redirect_uri", redirect_uri),
        ("scope", SCOPE),
        ("code_challenge", challenge),
        ("code_challenge_method", "S256"),
        ("id_token_add_organizations", "true"),
        ("codex_cli_simplified_flow", "true"),
        ("state", state),
        ("originator", ORIGINATOR),
    ])
}

pub fn device_begin_body() -> Vec<u8> {
    json!({"client_id": CLIENT_ID}).to_string().into_bytes()
}

pub fn device_poll_body(code: &DeviceCode) -> Zeroizing<Vec<u8>> {
    let body = json!({
        "device_auth_id": code.device_auth_id.expose_secret(),
        "user_code": code.user_code,
    });
    Zeroizing::new(body.to_string().into_bytes())
}

/// Fields as `application/x-www-form-urlencoded`, where blanks may be `%20` too.
fn form(fields: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (key, value) in fields {
        if !text.is_empty() {
            text.push('&');
        }
        text.push_str(key);
        text.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                text.push(char::from(byte));
            } else {
                text.push('%');
                text.push(char::from(b"0123456789ABCDEF"[usize::from(byte >> 4)]));
                text.push(char::from(b"0123456789ABCDEF"[usize::from(byte & 15)]));
            }
        }
    }
    text
}

// === understanding ===

/// Reads the tokens of a success. `None` if it is no object. A token that no header could carry is
/// as good as missing; the others still count, since the one that was traded in for them is spent.
pub fn tokens(body: &[u8], date: Option<&[u8]>) -> Option<Tokens> {
    let mut answer: serde_json::Map<String, Value> = serde_json::from_slice(body).ok()?;
    let mut given = |key| match answer.remove(key) {
        Some(Value::String(text)) => {
            let text = SecretString::from(text);
            AccessToken::new(text.clone()).is_ok().then_some(text)
        }
        Some(_) | None => None,
    };
    Some(Tokens {
        id_token: given("id_token"),
        access_token: given("access_token"),
        refresh_token: given("refresh_token"),
        server_time: date.and_then(time_of),
    })
}

/// What a refusal of the token endpoint means.
pub fn refused(status: StatusCode, body: &[u8]) -> Refused {
    let facts = error_body::parse(body);
    let Some(code) = facts.code.as_deref() else { return Refused::Passing(status) };
    match (status.as_u16(), code) {
        (401, code) => Refused::Terminal(known(code)),
        (400, "invalid_grant") => Refused::Terminal("invalid_grant"),
        _ => Refused::Passing(status),
    }
}

/// The code, if it is one that says nothing but itself.
fn known(code: &str) -> &'static str {
    const KNOWN: &[&str] = &[
        "refresh_token_expired",
        "refresh_token_reused",
        "refresh_token_invalidated",
        "invalid_grant",
    ];
    KNOWN.iter().copied().find(|it| *it == code).unwrap_or("refused")
}

/// Reads the beginning of a device sign-in; `page` is where its user goes.
pub fn device_code(body: &[u8], page: String) -> Option<DeviceCode> {
    let answer: DeviceAnswer = serde_json::from_slice(body).ok()?;
    let id = answer.device_auth_id.0;
    let plain = |it: &str| {
        !it.is_empty() && it.len() <= WORD_BYTES_MAX && it.bytes().all(|it| it.is_ascii_graphic())
    };
    let seconds = answer.interval.as_ref().and_then(integer).and_then(|it| u64::try_from(it).ok());
    let interval =
        seconds.map_or(INTERVAL, |it| Duration::from_secs(it.clamp(INTERVAL_MIN, INTERVAL_MAX)));
    (plain(&answer.user_code) && plain(id.expose_secret())).then_some(DeviceCode {
        user_code: answer.user_code,
        verification_url: page,
        interval,
        expires_at: answer.expires_at.as_ref().and_then(moment),
        device_auth_id: id,
    })
}

/// Reads what an approved device gets.
pub fn device_grant(body: &[u8]) -> Option<DeviceGrant> {
    let answer: GrantAnswer = serde_json::from_slice(body).ok()?;
    Some(DeviceGrant { code: answer.authorization_code.0, verifier: answer.code_verifier.0 })
}

/// A number, or one in quotes.
fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.trim().parse().ok())
}

/// Seconds since the Unix epoch, or RFC 3339.
fn moment(value: &Value) -> Option<Timestamp> {
    match integer(value) {
        Some(seconds) => Timestamp::from_second(seconds).ok(),
        None => value.as_str()?.parse().ok(),
    }
}

fn time_of(date: &[u8]) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new().parse_timestamp(date).ok()
}

// === impl RefreshReason ===

impl RefreshReason {
    fn wire(self) -> &'static str {
        match self {
            Self::UnauthorizedRecovery => "unauthorized_recovery",
            Self::ProactiveExpiry => "proactive_expiry",
        }
    }
}

// === impl SecretText ===

impl From<String> for SecretText {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

// === impl Tokens ===

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokens(..)")
    }
}

// === impl DeviceGrant ===

impl std::fmt::Debug for DeviceGrant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DeviceGrant(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refresh_is_asked_for_in_codex_own_words() {
        let token = RefreshToken::new("rt\"canary".into()).unwrap();
        let body = refresh_body(&token, RefreshReason::UnauthorizedRecovery);
        let wanted = r#"{"client_id":"app_EMoamEEZ73f0CkXaXp7hrann","grant_type":"refresh_token","refresh_token":"rt\"canary","refresh_reason":"unauthorized_recovery"}"#;
        assert_eq!(std::str::from_utf8(&body).unwrap(), wanted);
        let body = refresh_body(&token, RefreshReason::ProactiveExpiry);
        assert!(body.ends_with(br#""refresh_reason":"proactive_expiry"}"#));
    }

    #[test]
    fn a_form_escapes_all_that_is_not_plain() {
        let body = exchange_body("c/1", "v~1", "http://127.0.0.1:1455/auth/callback");
        let wanted = "grant_type=authorization_code&client_id=app_EMoamEEZ73f0CkXaXp7hrann&code=c%2F1\
                      &redirect_uri=http%3A%2F%2F127.0.0.1%3A1455%2Fauth%2Fcallback&code_verifier=v~1";
        assert_eq!(std::str::from_utf8(&body).unwrap(), wanted);
    }

    #[test]
    fn only_a_known_end_is_final() {
        let table: &[(u16, &str, Refused)] = &[
            (
                401,
                r#"{"error":{"code":"refresh_token_expired"}}"#,
                Refused::Terminal("refresh_token_expired"),
            ),
            (
                401,
                r#"{"error":{"code":"refresh_token_reused"}}"#,
                Refused::Terminal("refresh_token_reused"),
            ),
            (401, r#"{"error":{"code":"canary"}}"#, Refused::Terminal("refused")),
            (401, r#"{"error":"invalid_grant"}"#, Refused::Terminal("invalid_grant")),
            (400, r#"{"error":"invalid_grant"}"#, Refused::Terminal("invalid_grant")),
            (400, r#"{"error":{"code":"invalid_grant"}}"#, Refused::Terminal("invalid_grant")),
            (400, r#"{"error":"invalid_request"}"#, Refused::Passing(StatusCode::BAD_REQUEST)),
            (401, "<html>", Refused::Passing(StatusCode::UNAUTHORIZED)),
            (401, "{}", Refused::Passing(StatusCode::UNAUTHORIZED)),
            (
                403,
                r#"{"error":{"code":"refresh_token_expired"}}"#,
                Refused::Passing(StatusCode::FORBIDDEN),
            ),
            (404, "", Refused::Passing(StatusCode::NOT_FOUND)),
            (429, r#"{"error":"invalid_grant"}"#, Refused::Passing(StatusCode::TOO_MANY_REQUESTS)),
            (
                500,
                r#"{"error":"invalid_grant"}"#,
                Refused::Passing(StatusCode::INTERNAL_SERVER_ERROR),
            ),
            (302, "", Refused::Passing(StatusCode::FOUND)),
        ];
        for (status, body, wanted) in table {
            let status = StatusCode::from_u16(*status).unwrap();
            assert_eq!(refused(status, body.as_bytes()), *wanted, "{status} {body}");
        }
    }

    #[test]
    fn an_answer_gives_what_it_has_and_nothing_that_cannot_be_sent() {
        let bad = ["7", "[[]]", r#""""#, r#""a\r\nx: y""#, r#""\u00e4""#, r#""a b""#];
        let names = ["id_token", "access_token", "refresh_token"];
        for (at, bad) in bad.iter().flat_map(|it| (0..3).map(move |at| (at, it))) {
            let member = |of| if of == at { (*bad).to_owned() } else { format!("\"{of}\"") };
            let members = [0, 1, 2].map(|of| format!("\"{}\":{}", names[of], member(of)));
            let read = tokens(format!("{{{}}}", members.join(",")).as_bytes(), None).unwrap();
            let read = [read.id_token, read.access_token, read.refresh_token];
            for (of, token) in read.iter().enumerate() {
                let wanted = (of != at).then(|| of.to_string());
                assert_eq!(token.as_ref().map(|it| it.expose_secret()), wanted.as_deref(), "{bad}");
            }
        }

        let date = Some(&b"Sun, 06 Nov 1994 08:49:37 GMT"[..]);
        let read =
            tokens(br#"{"access_token":"a","refresh_token":"","id_token":null,"x":1}"#, date);
        let read = read.unwrap();
        assert_eq!(read.access_token.unwrap().expose_secret(), "a");
        assert!(read.refresh_token.is_none() && read.id_token.is_none());
        assert_eq!(read.server_time.unwrap().as_second(), 784_111_777);
        assert!(tokens(b"{}", Some(b"yesterday")).unwrap().server_time.is_none());
        let twice = tokens(br#"{"access_token":"a","access_token":"b"}"#, None).unwrap();
        assert_eq!(twice.access_token.unwrap().expose_secret(), "b");
        for body in [&b""[..], b"[]", b"<html>"] {
            assert!(tokens(body, None).is_none(), "{}", body.escape_ascii());
        }
    }

    #[test]
    fn a_device_code_is_read_in_either_form() {
        let page = || "https://x/codex/device".to_owned();
        let body = br#"{"device_auth_id":"d","user_code":"AB-1","interval":"7","expires_at":"60"}"#;
        let code = device_code(body, page()).unwrap();
        assert_eq!((code.user_code.as_str(), code.interval.as_secs()), ("AB-1", 7));
        assert_eq!(code.expires_at.unwrap().as_second(), 60);
        let body = br#"{"device_auth_id":"d","usercode":"AB-1","interval":0,"expires_at":"1970-01-01T00:01:00Z"}"#;
        let code = device_code(body, page()).unwrap();
        assert_eq!((code.interval.as_secs(), code.expires_at.unwrap().as_second()), (1, 60));
        assert!(device_code(br#"{"device_auth_id":"d","user_code":"a\nb"}"#, page()).is_none());
        assert!(device_code(br#"{"user_code":"a"}"#, page()).is_none());
    }

    #[test]
    fn nothing_secret_shows() {
        let body = br#"{"authorization_code":"canary","code_verifier":"canary"}"#;
        let shown = format!("{:?}", device_grant(body).unwrap());
        assert!(!shown.contains("canary"), "{shown}");
        let code = device_code(br#"{"device_auth_id":"canary","user_code":"u"}"#, String::new());
        assert!(!format!("{code:?}").contains("canary"));
    }
}
