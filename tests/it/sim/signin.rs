//! Signing in: refresh, PKCE and the device code.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use codex_edge::sim::{CLIENT_ID, SimAccount};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    client::{Ask, Seen},
    start,
};

async fn token(simulator: &codex_edge::sim::Simulator, body: String) -> Seen {
    Ask::post("/oauth/token", body).send(simulator).await.unwrap()
}

fn refresh_with(token: &str) -> String {
    json!({"client_id": CLIENT_ID, "grant_type": "refresh_token", "refresh_token": token})
        .to_string()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[tokio::test]
async fn a_refresh_token_is_good_once() {
    let simulator = start().await;
    let alice = SimAccount::made_up("alice");
    let first = token(&simulator, refresh_with(&alice.refresh_token)).await;
    assert_eq!(first.status, 200);
    let fresh = first.json();
    assert!(text(&fresh["access_token"]).contains(&alice.canary()));
    let bearer = format!("Bearer {}", text(&fresh["access_token"]));
    let usage = Ask::get("/backend-api/wham/usage").header("authorization", &bearer);
    assert_eq!(usage.send(&simulator).await.unwrap().status, 200);
    let again = token(&simulator, refresh_with(&alice.refresh_token)).await;
    assert_eq!(again.status, 401);
    assert_eq!(again.json()["error"]["code"], "refresh_token_reused");
    let dead = token(&simulator, refresh_with(text(&fresh["refresh_token"]))).await;
    assert_eq!(dead.json()["error"]["code"], "refresh_token_invalidated");
}

#[tokio::test]
async fn a_browser_login_gives_tokens_for_its_verifier() {
    let simulator = start().await;
    assert!(simulator.sign_in_as("bob"));
    let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(b"the verifier"));
    let path = format!(
        "/oauth/authorize?response_type=code&client_id={CLIENT_ID}&state=s%20t&\
         redirect_uri=http%3A%2F%2F127.0.0.1%3A1455%2Fauth%2Fcallback&\
         code_challenge={challenge}&code_challenge_method=S256"
    );
    let sent = Ask::get(&path).send(&simulator).await.unwrap();
    assert_eq!(sent.status, 302);
    let target = sent.header("location");
    let rest = target.strip_prefix("http://127.0.0.1:1455/auth/callback?code=").unwrap();
    let code = rest.strip_suffix("&state=s%20t").unwrap();
    let form = |verifier: &str| {
        format!(
            "grant_type=authorization_code&client_id={CLIENT_ID}&code={code}&\
             redirect_uri=http%3A%2F%2F127.0.0.1%3A1455%2Fauth%2Fcallback&code_verifier={verifier}"
        )
    };
    let tokens = token(&simulator, form("the+verifier")).await;
    assert_eq!(tokens.status, 200);
    assert!(text(&tokens.json()["id_token"]).contains(&SimAccount::made_up("bob").canary()));
    assert_eq!(token(&simulator, form("the+verifier")).await.status, 400);
}

#[tokio::test]
async fn a_device_login_waits_for_its_user() {
    let simulator = start().await;
    let path = "/api/accounts/deviceauth";
    let body = json!({"client_id": CLIENT_ID}).to_string();
    let begun = Ask::post(&format!("{path}/usercode"), body).send(&simulator).await.unwrap().json();
    let ask = || {
        let body = json!({
            "device_auth_id": begun["device_auth_id"], "user_code": begun["user_code"],
        });
        Ask::post(&format!("{path}/token"), body.to_string())
    };
    assert_eq!(ask().send(&simulator).await.unwrap().status, 403);
    assert!(simulator.approve_device(Some(text(&begun["user_code"])), "alice"));
    let granted = ask().send(&simulator).await.unwrap().json();
    let form = format!(
        "grant_type=authorization_code&client_id={CLIENT_ID}&code={}&code_verifier={}&\
         redirect_uri=https%3A%2F%2Fauth.openai.com%2Fdeviceauth%2Fcallback",
        text(&granted["authorization_code"]),
        text(&granted["code_verifier"]),
    );
    assert_eq!(token(&simulator, form).await.status, 200);
}
