//! The control endpoints below `/__sim/`.

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, request::Parts};
use serde_json::{Value, json};

use super::{body::SimBody, quota::Quota, record::Recorded, script::Script, upstream::Upstream};

pub(super) fn answer(upstream: &Upstream, head: &Parts, body: &Bytes) -> Response<SimBody> {
    let (status, value) = match decide(upstream, head, body) {
        Ok(value) => (StatusCode::OK, value),
        Err((status, fault)) => (status, json!({"error": fault})),
    };
    let mut response = Response::new(SimBody::plain(value.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    response
}

fn decide(upstream: &Upstream, head: &Parts, body: &[u8]) -> Result<Value, (StatusCode, String)> {
    let path = head.uri.path().trim_start_matches("/__sim/");
    match (&head.method, path) {
        (&Method::GET, "requests") => {
            let requests = upstream.recorder.requests();
            Ok(json!({
                "requests": requests.iter().map(Recorded::to_json).collect::<Vec<_>>(),
            }))
        }
        (&Method::GET, "accounts") => {
            let authority = upstream.authority.lock();
            let accounts = authority.accounts().iter().map(|it| {
                json!({
                    "name": it.name, "account_id": it.account_id, "plan": it.plan,
                    "canary": it.canary(), "access_token": it.access_token,
                })
            });
            Ok(json!({"accounts": accounts.collect::<Vec<_>>()}))
        }
        (&Method::POST, "script") => {
            let text = String::from_utf8_lossy(body);
            let script = Script::parse(&text).map_err(|fault| bad(&fault.to_string()))?;
            let rules = script.rules.len();
            upstream.set_script(script);
            Ok(json!({"rules": rules}))
        }
        (&Method::POST, "reset") => {
            upstream.reset();
            Ok(json!({}))
        }
        (&Method::POST, "release") => {
            upstream.release();
            Ok(json!({}))
        }
        (&Method::POST, order) => order_about(upstream, order, body),
        _ => Err((StatusCode::NOT_FOUND, "the simulator has no such endpoint".to_owned())),
    }
}

/// Orders whose body is a small object.
fn order_about(
    upstream: &Upstream,
    order: &str,
    body: &[u8],
) -> Result<Value, (StatusCode, String)> {
    let given: Value = if body.is_empty() { json!({}) } else { parse(body)? };
    let text = |key: &str| given.get(key).and_then(Value::as_str);
    let account = text("account").unwrap_or_default();
    match order {
        "quota" => {
            let quota: Quota = serde_json::from_value(given["quota"].clone())
                .map_err(|fault| bad(&fault.to_string()))?;
            known(upstream, account)?;
            upstream.set_quota(account, quota);
        }
        "revoke" => {
            known(upstream, account)?;
            let mut authority = upstream.authority.lock();
            authority.revoke_access(account);
            if given.get("refresh").and_then(Value::as_bool) == Some(true) {
                authority.revoke_refresh(account);
            }
        }
        "sign_in" => {
            known(upstream, account)?;
            upstream.authority.lock().sign_in_as(account);
        }
        "approve_device" => {
            known(upstream, account)?;
            if !upstream.authority.lock().device_approve(text("user_code"), account) {
                return Err(bad("no device waits with such a code"));
            }
        }
        "lose_connections" => {
            upstream.lose_connections(given.get("reset").and_then(Value::as_bool) == Some(true))
        }
        _ => return Err((StatusCode::NOT_FOUND, "the simulator has no such endpoint".to_owned())),
    }
    Ok(json!({}))
}

fn known(upstream: &Upstream, name: &str) -> Result<(), (StatusCode, String)> {
    let found = upstream.authority.lock().named(name);
    found.map(|_| ()).ok_or_else(|| bad(&format!("there is no account \"{name}\"")))
}

fn parse(body: &[u8]) -> Result<Value, (StatusCode, String)> {
    serde_json::from_slice(body).map_err(|fault| bad(&fault.to_string()))
}

fn bad(fault: &str) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, fault.to_owned())
}
