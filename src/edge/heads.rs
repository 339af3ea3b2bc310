//! Builds the head that goes up and cleans the head that comes down.

use http::{HeaderValue, header};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora_core::{ErrorType, OrErr, Result};

use crate::{
    config::BaseUrl,
    domain::account::Account,
    protocol::{
        headers::{self, CHATGPT_ACCOUNT_ID, RequestPolicy, X_CODEX_TURN_STATE, X_OPENAI_FEDRAMP},
        route::Operation,
    },
};

/// The head of one attempt: the client's headers that pass, in their order, and the account's
/// credentials.
pub(super) fn upstream_request(
    client: &RequestHeader,
    operation: Operation,
    origin: &BaseUrl,
    account: &Account,
    foreign_state: bool,
) -> Result<RequestHeader> {
    let path = operation.upstream_path().unwrap_or_default();
    let query = client.uri.query().map_or_else(String::new, |query| format!("?{query}"));
    let target = format!("{}{path}{query}", origin.path);
    let mut head =
        RequestHeader::build(client.method.clone(), target.as_bytes(), Some(client.headers.len()))?;
    head.insert_header(header::HOST, origin.authority())?;
    let policy = RequestPolicy::of(&client.headers);
    for (name, value) in &client.headers {
        let replaced = operation.is_streamed() && name == header::ACCEPT_ENCODING;
        let foreign = foreign_state && name == X_CODEX_TURN_STATE;
        if policy.passes(name) && !replaced && !foreign {
            head.append_header(name.clone(), value.clone())?;
        }
    }
    if operation.is_streamed() {
        // The events of the answer are read in passing.
        head.insert_header(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"))?;
    }
    let authorization = account
        .credential
        .access
        .authorization()
        .or_err(ErrorType::InternalError, "an access token that is no header value")?;
    head.insert_header(header::AUTHORIZATION, authorization)?;
    // Who is known by a file's place only sends no account: it might be another one by now.
    if let Some(id) = account.account_id.as_ref().filter(|_| account.id.is_identified()) {
        let value = id
            .header()
            .or_err(ErrorType::InternalError, "an account id that is no header value")?;
        head.insert_header(CHATGPT_ACCOUNT_ID, value)?;
    }
    if account.fedramp {
        head.insert_header(X_OPENAI_FEDRAMP, HeaderValue::from_static("true"))?;
    }
    Ok(head)
}

/// Removes from an answer what must not reach the client. Pingora keeps the case of names beside the
/// headers, so that each has to go through it.
pub(super) fn clean_response(response: &mut ResponseHeader, account: &Account) {
    for name in headers::denied_in_response(&response.headers, account.shown_to_nobody()) {
        response.remove_header(&name);
    }
}
