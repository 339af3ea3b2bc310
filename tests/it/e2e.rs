//! The real Codex CLI takes its turns through the real gateway; the simulator is the upstream.

mod accounts;
mod failures;
mod modes;
mod turns;

use codex_edge::sim::{Ended, Recorded, Route};

use crate::support::{
    codex::Codex,
    stage::{Setup, Stage, eventually},
};

/// What the simulator says when nobody scripts it.
const HELLO: &str = "Hello from the simulated upstream: all is well here today.";

const POOL: &[&str] = &["alice", "bob", "carol"];

async fn stage() -> Stage {
    stage_of(POOL).await
}

async fn stage_of(accounts: &[&str]) -> Stage {
    Setup::with_accounts(accounts).start().await
}

/// The gateway's native base URL on one of its prefixes.
fn base_url(stage: &Stage, prefix: &str) -> String {
    format!("http://{}{prefix}", stage.edge())
}

/// The plainest user: a provider whose key is in the environment, and HTTP only.
fn client_with(stage: &Stage, key: &str, model: &str, lines: &str) -> Codex {
    let lines = format!("env_key = \"GW_KEY\"\nsupports_websockets = false\n{lines}");
    Codex::of_provider(&base_url(stage, "/backend-api/codex"), model, &lines).env("GW_KEY", key)
}

fn client(stage: &Stage) -> Codex {
    client_with(stage, &stage.key, "gpt-5.5", "")
}

/// The turns that the simulator saw. Asserts of every request that it came with the credentials of
/// an account, and with nothing of the user's.
async fn turns(stage: &Stage) -> Vec<Recorded> {
    let all = stage.sim.wait_until(|all| all.iter().all(|it| it.ended != Ended::Open)).await;
    for it in &all {
        println!("{} {} {:?} {:?} {:?}", it.method, it.target, it.account, it.status, it.ended);
        let account = stage.sim.account(it.account.as_deref().unwrap()).unwrap();
        let bearer = format!("Bearer {}", account.access_token);
        assert_eq!(it.header("authorization"), Some(bearer));
        assert_eq!(it.header("chatgpt-account-id"), Some(account.account_id.clone()));
        let told = format!("{:?}", it.headers);
        assert!(!told.contains("cek_"), "{told}");
        assert!(!decoded(it).contains(&stage.key));
    }
    all.into_iter().filter(|it| it.route == Route::Responses).collect()
}

/// A request's body as text, whatever encoding it came in.
fn decoded(it: &Recorded) -> String {
    let bytes = match it.header("content-encoding").as_deref() {
        None => it.body.clone(),
        Some("zstd") => zstd::decode_all(it.body.as_slice()).unwrap(),
        Some(other) => unreachable!("an encoding that the client does not use: {other}"),
    };
    String::from_utf8(bytes).unwrap()
}

/// Waits until the gateway has counted that many answers, on whatever route, with this class of
/// status: the client may be gone before they are counted.
async fn assert_answers(stage: &Stage, class: &str, wanted: u64) {
    let series = format!("codex_edge_requests_total{{code=\"{class}\",");
    let counted = || {
        let text = stage.app.gateway.metrics.encode();
        let lines = text.lines().filter(|it| it.starts_with(&series));
        lines.map(|it| it.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum::<u64>()
    };
    let what = format!("{wanted} answers are {class}");
    eventually(&what, || counted() == wanted).await;
}
