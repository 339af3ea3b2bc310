//! Which request asks for what, and the answers that are no event streams.

use http::{HeaderMap, HeaderValue, Method, Response, Uri, request::Parts};
use serde_json::{Value, json};

use super::{
    body::SimBody,
    oauth, peek,
    script::{Issue, Route},
    serve::Visit,
};

const P: &str = "/backend-api/codex/";
const C: &str = "/backend-api/";

/// A picture of one transparent point.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

pub(super) fn route_of(head: &Parts) -> Route {
    let path = head.uri.path();
    let (get, post) = (head.method == Method::GET, head.method == Method::POST);
    if let Some(rest) = path.strip_prefix(P) {
        return match rest {
            "responses" if post => Route::Responses,
            "responses" if get => Route::WsHandshake,
            "models" if get => Route::Models,
            "responses/compact" if post => Route::Compact,
            "memories/trace_summarize" if post => Route::Memories,
            "alpha/search" if post => Route::Search,
            "images/generations" | "images/edits" if post => Route::Images,
            _ => Route::Other,
        };
    }
    if let Some(rest) = path.strip_prefix(C) {
        return match rest {
            "wham/accounts/check" if get => Route::AccountsCheck,
            "wham/usage" if get => Route::Usage,
            "wham/config/bundle" if get => Route::ConfigBundle,
            "wham/settings/user" => Route::Settings,
            _ if rest == "files" || rest.starts_with("files/") => Route::Files,
            _ => Route::Other,
        };
    }
    match path {
        "/oauth/token" if post => Route::OauthToken,
        "/oauth/authorize" if get => Route::OauthAuthorize,
        "/api/accounts/deviceauth/usercode" if post => Route::DeviceUsercode,
        "/api/accounts/deviceauth/token" if post => Route::DeviceToken,
        _ => Route::Other,
    }
}

pub(super) fn unauthorized(bearer: bool) -> (u16, Value) {
    if !bearer {
        return (401, json!({"detail": "Unauthorized"}));
    }
    let message = "Your authentication token has been invalidated. Please try signing in again.";
    let error =
        json!({"message": message, "type": null, "code": "token_invalidated", "param": null});
    (401, json!({"error": error, "status": 401}))
}

pub(super) fn forbidden() -> (u16, Value) {
    let message = "The account id does not belong to this token.";
    (403, json!({"error": {"message": message, "code": "account_mismatch"}}))
}

/// Answers everything but turns.
pub(super) fn answer(visit: Visit, body: &[u8]) -> Response<SimBody> {
    match visit.route {
        Route::OauthToken => oauth::token(visit, &Issue::default(), body),
        Route::OauthAuthorize => oauth::authorize(visit),
        Route::DeviceUsercode => oauth::device_begin(visit),
        Route::DeviceToken => oauth::device_poll(visit, body),
        Route::Other if visit.head.uri.path() == "/oauth/revoke" => oauth::revoke(visit, body),
        Route::Files if is_upload(&visit.head.uri) => {
            visit.respond(201, HeaderMap::new(), Vec::new().into())
        }
        Route::Turn
        | Route::Responses
        | Route::WsHandshake
        | Route::WsMessage
        | Route::Models
        | Route::Compact
        | Route::Memories
        | Route::Search
        | Route::Images
        | Route::AccountsCheck
        | Route::Usage
        | Route::ConfigBundle
        | Route::Settings
        | Route::Files
        | Route::Other => match visit.admit() {
            Err((status, value)) => visit.json(status, &value),
            Ok(_) => backend(visit, body),
        },
    }
}

/// The backend's answers to an account that may ask.
fn backend(visit: Visit, body: &[u8]) -> Response<SimBody> {
    let encoding = visit.head.headers.get("content-encoding").and_then(|it| it.to_str().ok());
    let plain = peek::decode(body, encoding).map(std::borrow::Cow::into_owned);
    let Some(account) = visit.account.clone() else {
        return visit.json(401, &json!({"detail": "Unauthorized"}));
    };
    if let Some(plain) = &plain
        && peek::foreign_seal(plain, &account.name).is_some()
    {
        let message = "The encrypted content could not be verified.";
        let error = json!({"code": "invalid_encrypted_content", "message": message});
        return visit.json(400, &json!({"error": error}));
    }
    let serial = visit.upstream.next();
    let sealed = format!("{}{}.{serial}", peek::SEALED, account.name);
    let value = match visit.route {
        Route::Models => return models(visit),
        Route::Compact => json!({
            "output": [{"type": "compaction", "encrypted_content": sealed}],
        }),
        Route::Memories => json!({
            "output": [{"trace_summary": "A made-up trace.", "memory_summary": "Nothing new."}],
        }),
        Route::Search => json!({
            "output": "One made-up result.",
            "results": [{
                "type": "text_result", "title": "Made up", "url": "https://sim.example/1",
                "snippet": "A made-up snippet.", "ref_id": "turn0search0",
            }],
            "encrypted_output": sealed,
        }),
        Route::Images => json!({"created": visit.upstream.now(), "data": [{"b64_json": PIXEL}]}),
        Route::AccountsCheck => accounts_check(&visit, &account),
        Route::Usage => visit.upstream.usage(&account),
        Route::ConfigBundle => json!({}),
        Route::Settings => json!({"settings": {}}),
        Route::Files => files(&visit, serial),
        Route::Turn
        | Route::Responses
        | Route::WsHandshake
        | Route::WsMessage
        | Route::OauthToken
        | Route::OauthAuthorize
        | Route::DeviceUsercode
        | Route::DeviceToken
        | Route::Other => return visit.json(404, &json!({"detail": "Not Found"})),
    };
    visit.json(200, &value)
}

fn models(visit: Visit) -> Response<SimBody> {
    let (body, etag) = {
        let models = visit.upstream.models.lock();
        (models.body.clone(), models.etag.clone())
    };
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        headers.insert("etag", etag);
    }
    visit.respond(200, headers, body)
}

fn accounts_check(visit: &Visit, account: &super::SimAccount) -> Value {
    json!({
        "accounts": [{
            "id": account.account_id,
            "workspace_backend_origin": visit.upstream.options.workspace_origin,
            "account_routing_override": "NO_CONSTRAINT",
            "plan_type": account.plan,
            "structure": "personal",
            "name": account.name,
            "is_deactivated": false,
        }],
        "account_ordering": [account.account_id],
        "default_account_id": account.account_id,
    })
}

/// `POST files` gives an address to upload to; `POST files/{id}/uploaded` says it is there.
fn files(visit: &Visit, serial: u64) -> Value {
    if visit.head.uri.path().ends_with("/uploaded") {
        return json!({
            "status": "success", "file_name": "made-up", "mime_type": "application/octet-stream",
            "download_url": null,
        });
    }
    let host = visit.head.headers.get("host").and_then(|it| it.to_str().ok());
    let host = host.or_else(|| visit.head.uri.authority().map(|it| it.as_str()));
    let scheme = if visit.ties.wire.tls { "https" } else { "http" };
    let host = host.unwrap_or("localhost");
    let id = format!("file_sim_{serial}");
    json!({"file_id": id, "upload_url": format!("{scheme}://{host}/backend-api/files/upload/{id}")})
}

fn is_upload(uri: &Uri) -> bool {
    uri.path().starts_with("/backend-api/files/upload/")
}
