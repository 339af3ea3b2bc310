//! No token, key, account id, e-mail or prompt reaches a log, a metric, an answer or the database.

use codex_edge::sim::{Action, End, Route, Rule, SimConfig, Simulator};
use http::Method;
use serde_json::json;

use crate::support::{
    client::{Client, Exchange, Wire},
    process::{Place, files_below},
};

const PATH: &str = "/v1/codex/responses";
const PROMPT: &str = "a-prompt-nobody-else-may-see";
const SESSION: &str = "a-session-id-nobody-else-may-see";
const WRONG_KEY: &str = "cek_a-wrong-key-that-may-be-a-typo";

/// Texts that must not show up, each with its name.
struct Canaries(Vec<(String, String)>);

impl Canaries {
    fn look(&self, place: &str, bytes: &[u8]) {
        for (name, canary) in &self.0 {
            let found = memchr::memmem::find(bytes, canary.as_bytes());
            let around = found.map(|at| {
                let end = (at + 80).min(bytes.len());
                String::from_utf8_lossy(&bytes[at.saturating_sub(80)..end]).into_owned()
            });
            assert_eq!(around, None, "{name} shows up in {place}");
        }
    }
}

/// Every outcome that a request can have.
async fn drive(sim: &Simulator, client: &Client) -> Vec<Exchange> {
    let body = json!({"model": "gpt-5.5", "input": PROMPT}).to_string();
    let failed = End::Failed { code: "server_error".into(), message: "made up".into() };
    let mut seen = Vec::new();
    let actions = [
        None,
        Some(Action::end_after(4, End::Cut)),
        Some(Action::end_after(1, failed)),
        Some(Action::json(400, json!({"error": {"message": "made up"}}))),
        Some(Action::json(500, json!({"error": {"message": "made up"}}))),
        Some(Action::json(429, json!({"error": {"message": "made up"}}))),
        Some(Action::json(403, json!({"error": {"message": "made up"}}))),
        Some(Action::json(401, json!({"error": {"message": "made up"}}))),
        Some(Action::lose(codex_edge::sim::Loss::Reset)),
    ];
    for action in actions {
        sim.reset();
        if let Some(action) = action {
            sim.rule(Rule::new(action));
        }
        let request = client.request(Method::POST, PATH).header("session-id", SESSION);
        seen.push(client.send(request, body.clone()).await);
    }
    // One account gets new tokens, and one has come to its end.
    sim.reset();
    for name in ["alice", "bob", "carol", "dave"] {
        sim.revoke_access(name);
    }
    sim.revoke_refresh("dave");
    for _ in 0..8 {
        seen.push(client.post(PATH, body.clone()).await);
    }
    let wrong = Client { key: Some(WRONG_KEY.to_owned()), ..client.clone() };
    seen.push(wrong.post(PATH, body).await);
    seen.push(client.post(PATH, format!("{{\"model\": 5, \"input\": \"{PROMPT}\"}}")).await);
    seen.push(client.get(&format!("/v1/codex/{PROMPT}")).await);
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_leaves_by_any_door() {
    let names = ["alice", "bob", "carol", "dave"];
    let sim = Simulator::start(SimConfig::with_accounts(&names)).await.unwrap();
    let place = Place::new(&format!(
        "[upstream]\ncodex_base_url = \"{}\"\nauth_base_url = \"{}\"\n\
         [log]\nlevel = \"trace\"\nformat = \"json\"\n",
        sim.base_url(),
        sim.origin(),
    ));
    let mut canaries = vec![
        ("a prompt".to_owned(), PROMPT.to_owned()),
        ("a session id".to_owned(), SESSION.to_owned()),
        ("a presented key".to_owned(), WRONG_KEY[4..].to_owned()),
    ];
    for name in names {
        let account = sim.account(name).unwrap();
        std::fs::write(place.auth().join(format!("{name}.json")), account.auth_json()).unwrap();
        for (what, secret) in [
            ("canary", account.canary()),
            ("access token", account.access_token.clone()),
            ("refresh token", account.refresh_token.clone()),
            ("account id", account.account_id.clone()),
            ("e-mail", account.email.clone()),
        ] {
            canaries.push((format!("the {what} of {name}"), secret));
        }
    }
    let serving = place.serve().await;
    let (key, admin_key) =
        (place.key(), std::fs::read_to_string(place.data().join("admin.key")).unwrap());
    canaries.push(("the client's key".to_owned(), key[4..].to_owned()));
    canaries.push(("the admin key".to_owned(), admin_key.trim().to_owned()));
    let canaries = Canaries(canaries);

    let client = Client { address: serving.edge, wire: Wire::H1, key: Some(key.clone()), ca: None };
    for (at, seen) in drive(&sim, &client).await.iter().enumerate() {
        canaries.look(&format!("body {at}"), &seen.body);
        canaries.look(&format!("headers {at}"), format!("{:?}", seen.headers).as_bytes());
    }
    let operator =
        Client { address: serving.admin, key: Some(admin_key.trim().to_owned()), ..client.clone() };
    for path in ["/metrics", "/readyz", "/v0/management/users"] {
        let seen = operator.get(path).await;
        canaries.look(path, &seen.body);
    }
    for recorded in sim.requests() {
        let headers = format!("{:?}", recorded.headers);
        assert!(!headers.contains(&key), "the client's key went up: {headers}");
    }

    let printed = serving.stop().await;
    canaries.look("standard output", &printed.stdout);
    canaries.look("standard error", &printed.stderr);
    assert!(printed.stderr.len() > 1_000, "the log was on");
    for (path, bytes) in files_below(&place.data()) {
        let is_secret =
            path.starts_with(place.auth()) || path.extension().is_some_and(|it| it == "key");
        if !is_secret {
            canaries.look(&path.display().to_string(), &bytes);
        }
    }
}

/// Every value of a query or a form that is long enough to be no word.
fn values(text: &str) -> Vec<(String, String)> {
    let pairs = text.split(['?', '&']).filter_map(|it| it.split_once('='));
    let secret = ["code", "code_verifier", "state"];
    let pairs = pairs.filter(|(key, _)| secret.contains(key));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_sign_in_is_made_of_is_in_no_log() {
    const LOGIN: &str = "/v0/management/auths/login";
    let config = SimConfig { device_interval: 1, ..SimConfig::with_accounts(&["alice"]) };
    let sim = Simulator::start(config).await.unwrap();
    let place = Place::new(&format!(
        "[upstream]\ncodex_base_url = \"{}\"\nauth_base_url = \"{}\"\n\
         [log]\nlevel = \"trace\"\nformat = \"json\"\n",
        sim.base_url(),
        sim.origin(),
    ));
    let serving = place.serve().await;
    let admin_key = std::fs::read_to_string(place.data().join("admin.key")).unwrap();
    let key = Some(admin_key.trim().to_owned());
    let operator = Client { address: serving.admin, wire: Wire::H1, key, ca: None };
    let begin = json!({"method": "pkce", "redirect_uri": "http://127.0.0.1:1455/auth/callback"});
    let login = operator.post(LOGIN, begin.to_string()).await.json()["login"].clone();
    let page = login["authorize_url"].as_str().unwrap();
    let browser = Client { address: sim.address(), key: None, ..operator.clone() };
    let sent = browser.get(page.strip_prefix(&sim.origin()).unwrap()).await;
    let came_to = sent.headers["location"].to_str().unwrap().to_owned();
    let path = format!("{LOGIN}/{}/complete", login["id"].as_str().unwrap());
    let done = operator.post(&path, json!({ "url": came_to }).to_string()).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let device = operator.post(LOGIN, json!({"method": "device"}).to_string()).await;
    assert_eq!(device.status, 200, "{}", device.text());
    let asked = sim.requests().into_iter().find(|it| it.route == Route::OauthToken).unwrap();

    let alice = sim.account("alice").unwrap();
    let mut canaries = values(&came_to);
    canaries.extend(values(&String::from_utf8(asked.body).unwrap()));
    assert_eq!(canaries.len(), 4, "code, state, code and verifier");
    for (what, secret) in [
        ("the id of a device", "deviceauth_sim_".to_owned()),
        ("a token", alice.canary()),
        ("the account id", alice.account_id.clone()),
        ("the e-mail", alice.email.clone()),
        ("the admin key", admin_key.trim().to_owned()),
    ] {
        canaries.push((what.to_owned(), secret));
    }
    let printed = serving.stop().await;
    assert!(printed.stderr.len() > 1_000, "the log was on");
    let canaries = Canaries(canaries);
    canaries.look("standard output", &printed.stdout);
    canaries.look("standard error", &printed.stderr);
}
