//! The sign-in service: `/oauth/*` and the device code.

use std::collections::HashMap;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use serde_json::{Value, json};

use super::{body::SimBody, script::Issue, serve::Visit, tokens::Refused};

/// `POST /oauth/token`, whose body is a form or JSON.
pub(super) fn token(visit: Visit, issue: &Issue, body: &[u8]) -> Response<SimBody> {
    let given = fields(body);
    let get = |key: &str| given.get(key).map_or("", String::as_str);
    let now = visit.upstream.now();
    let answered = {
        let mut authority = visit.upstream.authority.lock();
        match get("grant_type") {
            "refresh_token" => authority.refresh(get("refresh_token"), now, issue),
            "authorization_code" => {
                authority.exchange(get("code"), get("code_verifier"), get("redirect_uri"), now)
            }
            grant if grant.ends_with("token-exchange") => {
                Ok(json!({"access_token": "sk-sim-canary-api-key"}))
            }
            _ => Err(Refused(400, json!({"error": "unsupported_grant_type"}))),
        }
    };
    match answered {
        Ok(value) => visit.json_with(200, &value, &issue.headers),
        Err(Refused(status, value)) => visit.json(status, &value),
    }
}

/// `GET /oauth/authorize`: the user agrees at once.
pub(super) fn authorize(visit: Visit) -> Response<SimBody> {
    let given = fields(visit.head.uri.query().unwrap_or_default().as_bytes());
    let get = |key: &str| given.get(key).map_or("", String::as_str);
    let redirect = get("redirect_uri");
    let code = visit.upstream.authority.lock().authorize(get("code_challenge"), redirect);
    let Some(code) = code.filter(|_| !redirect.is_empty()) else {
        return visit.json(400, &json!({"error": "invalid_request"}));
    };
    let joint = if redirect.contains('?') { '&' } else { '?' };
    let target = format!("{redirect}{joint}code={code}&state={}", escape(get("state")));
    let mut headers = HeaderMap::new();
    if let Ok(target) = HeaderValue::from_str(&target) {
        headers.insert("location", target);
    }
    visit.respond(302, headers, Bytes::new())
}

pub(super) fn device_begin(visit: Visit) -> Response<SimBody> {
    let (id, user_code) = visit.upstream.authority.lock().device_begin();
    let expires = visit.upstream.now() + 900;
    let value = json!({
        "device_auth_id": id, "user_code": user_code, "interval": visit.upstream.options.device_interval.to_string(),
        "expires_at": expires.to_string(),
    });
    visit.json(200, &value)
}

pub(super) fn device_poll(visit: Visit, body: &[u8]) -> Response<SimBody> {
    let given = fields(body);
    let get = |key: &str| given.get(key).map_or("", String::as_str);
    let found =
        visit.upstream.authority.lock().device_poll(get("device_auth_id"), get("user_code"));
    match found {
        Some(value) => visit.json(200, &value),
        None => visit.json(403, &json!({"error": {"code": "deviceauth_authorization_pending"}})),
    }
}

/// `POST /oauth/revoke`: the family of this refresh token is dead.
pub(super) fn revoke(visit: Visit, body: &[u8]) -> Response<SimBody> {
    let given = fields(body);
    if let Some(token) = given.get("token") {
        visit.upstream.authority.lock().revoke(token);
    }
    visit.json(200, &json!({}))
}

/// The string members of a JSON object, or the fields of a form.
fn fields(body: &[u8]) -> HashMap<String, String> {
    if let Ok(Value::Object(members)) = serde_json::from_slice::<Value>(body) {
        let texts = members.into_iter();
        return texts
            .filter_map(|(key, value)| value.as_str().map(|text| (key, text.to_owned())))
            .collect();
    }
    let text = String::from_utf8_lossy(body);
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (unescape(key), unescape(value))).collect()
}

/// Takes the escapes off a form's key or value.
fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = (byte == b'%')
            .then(|| bytes.get(at + 1..at + 3))
            .flatten()
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        plain.push(match (escaped, byte) {
            (Some(escaped), _) => escaped,
            (None, b'+') => b' ',
            (None, other) => other,
        });
        at += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&plain).into_owned()
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_and_objects_read_alike() {
        let form = fields(b"grant_type=authorization_code&redirect_uri=http%3A%2F%2Fx%2Fcb&a=b+c");
        assert_eq!(form["redirect_uri"], "http://x/cb");
        assert_eq!(form["a"], "b c");
        assert_eq!(fields(br#"{"token":"x","n":1}"#).len(), 1);
    }

    #[test]
    fn a_broken_escape_stays_as_it_is() {
        assert_eq!(unescape("%zz%4"), "%zz%4");
        assert_eq!(unescape(&escape("ä b&c")), "ä b&c");
    }
}
