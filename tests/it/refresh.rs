//! Tokens are renewed once for everybody who waits, and never lost.

mod crash;
mod duty;
mod files;
mod limits;

use std::{fs, path::PathBuf, sync::Arc};

use codex_edge::{
    accounts::{oauth::RefreshReason, refresh::Renewal},
    clock::Clock,
    domain::account::Account,
    sim::{Action, Issue, Loss, Recorded, Route, Rule, Script, SimAccount, SimConfig},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::support::{
    client::{Client, Exchange, Wire},
    stage::{Setup, Stage, eventually},
};

const PATH: &str = "/v1/codex/responses";
const GOOD: &str = r#"{"model":"gpt-5.5","stream":true,"input":[]}"#;

/// The year 2001.
const LONG_AGO: i64 = 1_000_000_000;

/// An account whose access token ends at this second.
fn ending(name: &str, second: i64) -> SimAccount {
    let mut account = SimAccount::made_up(name);
    account.access_token = account.mint_access(0, second);
    account
}

fn expired(name: &str) -> SimAccount {
    ending(name, LONG_AGO)
}

/// A stage before these accounts, whose calls for tokens need not wait for each other.
fn setup(accounts: Vec<SimAccount>, rules: Vec<Rule>) -> Setup {
    let sim = SimConfig { accounts, script: Script::from(rules), ..SimConfig::default() };
    Setup { sim, ..Setup::with_accounts(&[]) }.toml("[auth]\nrefresh_spacing = \"1ms\"")
}

fn at_tokens(action: Action) -> Rule {
    Rule::new(action).route(Route::OauthToken)
}

/// The token endpoint says nothing until it is released, once.
fn silence() -> Rule {
    at_tokens(Action::lose(Loss::Silence)).times(1)
}

fn refused(status: u16, code: &str) -> Action {
    Action::json(status, json!({"error": {"code": code, "message": "canary of the answer"}}))
}

fn seen(stage: &Stage, route: Route) -> Vec<Recorded> {
    stage.sim.requests().into_iter().filter(|it| it.route == route).collect()
}

fn token_calls(stage: &Stage) -> usize {
    seen(stage, Route::OauthToken).len()
}

fn turns(stage: &Stage) -> Vec<Recorded> {
    seen(stage, Route::Responses)
}

fn start(stage: &Stage) -> JoinHandle<Exchange> {
    let client = stage.h1();
    tokio::spawn(async move { client.post(PATH, GOOD).await })
}

fn auth_dir(stage: &Stage) -> PathBuf {
    stage.data_dir.parent().unwrap().join("auth")
}

fn file(stage: &Stage, name: &str) -> Value {
    serde_json::from_slice(&fs::read(auth_dir(stage).join(name)).unwrap()).unwrap()
}

fn journal_entries(stage: &Stage) -> usize {
    let folder = fs::read_dir(stage.data_dir.join("refresh")).unwrap();
    folder
        .filter(|it| it.as_ref().unwrap().path().extension().is_some_and(|it| it == "json"))
        .count()
}

fn refreshes(stage: &Stage, result: &str) -> usize {
    let wanted = format!("codex_edge_refreshes_total{{result=\"{result}\"}} ");
    let text = stage.app.gateway.metrics.encode();
    let line = text.lines().find_map(|it| it.strip_prefix(&wanted)).unwrap();
    line.parse().unwrap()
}

fn account(stage: &Stage, name: &str) -> Option<Arc<Account>> {
    let id = stage.sim.account(name).unwrap().account_id.clone();
    let snapshot = stage.app.gateway.pool.snapshot();
    let names = |it: &Account| it.account_id.as_ref().is_some_and(|it| it.as_str() == id);
    snapshot.entries.iter().map(|it| &it.account).find(|it| names(it)).cloned()
}

async fn renew(stage: &Stage, name: &str) -> Renewal {
    let account = account(stage, name).unwrap();
    stage.app.accounts.refresher.renew(&account, RefreshReason::UnauthorizedRecovery).await
}

/// Takes new tokens as another program would that shares the file, and gives what it would write.
async fn rotate_elsewhere(stage: &Stage, account: &SimAccount) -> Vec<u8> {
    let mut elsewhere = stage.h1();
    elsewhere.address = stage.sim.address();
    let body = json!({"grant_type": "refresh_token", "refresh_token": account.refresh_token});
    let tokens = elsewhere.post("/oauth/token", body.to_string()).await.json();
    let mut file: Value = serde_json::from_slice(&account.auth_json()).unwrap();
    for key in ["access_token", "refresh_token", "id_token"] {
        file["tokens"][key] = tokens[key].clone();
    }
    file["last_refresh"] = json!("2099-02-02T00:00:00Z");
    file.to_string().into_bytes()
}

/// Puts a file in place as a careful program does.
fn replace(stage: &Stage, name: &str, bytes: &[u8]) {
    let dir = auth_dir(stage);
    fs::write(dir.join(".new"), bytes).unwrap();
    fs::rename(dir.join(".new"), dir.join(name)).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_requests_on_an_expired_token_make_one_refresh() {
    let stage = setup(vec![expired("alice")], vec![silence()]).start().await;
    let asking: Vec<_> = (0..100).map(|_| start(&stage)).collect();
    let pool = &stage.app.gateway.pool;
    eventually("all of them wait", || pool.active_turns() == 100).await;
    assert_eq!(turns(&stage).len(), 0);
    stage.sim.release();
    for asking in asking {
        assert_eq!(asking.await.unwrap().status, 200);
    }
    assert_eq!(token_calls(&stage), 1);
    assert_eq!(refreshes(&stage, "refreshed"), 1);
    eventually("the leases are back", || pool.active_turns() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_refused_requests_make_one_refresh_and_are_repeated_on_the_same_account() {
    let accounts = vec![SimAccount::made_up("alice")];
    let stage = setup(accounts, vec![silence()]).start().await;
    stage.sim.revoke_access("alice");
    let asking: Vec<_> = (0..100).map(|_| start(&stage)).collect();
    let refused = || turns(&stage).iter().filter(|it| it.status == Some(401)).count();
    eventually("all of them were refused", || refused() == 100).await;
    eventually("one of them asks for tokens", || token_calls(&stage) == 1).await;
    stage.sim.release();
    for asking in asking {
        assert_eq!(asking.await.unwrap().status, 200);
    }
    assert_eq!(token_calls(&stage), 1);
    assert_eq!(turns(&stage).len(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_does_not_end_the_refresh_for_the_others() {
    let stage = setup(vec![expired("alice")], vec![silence()]).start().await;
    let pool = Arc::clone(&stage.app.gateway.pool);
    let first = start(&stage);
    eventually("the first one waits", || pool.active_turns() == 1).await;
    let others: Vec<_> = (0..9).map(|_| start(&stage)).collect();
    eventually("all of them wait", || pool.active_turns() == 10).await;
    first.abort();
    assert!(first.await.is_err());
    stage.sim.release();
    for other in others {
        assert_eq!(other.await.unwrap().status, 200);
    }
    assert_eq!(token_calls(&stage), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn for_a_client_that_hangs_up_while_it_waits_no_attempt_is_made() {
    for wire in [Wire::H1, Wire::H2c] {
        let stage = setup(vec![expired("alice")], vec![silence()]).start().await;
        let pool = &stage.app.gateway.pool;
        let client = Client { wire, ..stage.h1() };
        let asking = tokio::spawn(async move { client.post(PATH, GOOD).await });
        eventually("it waits", || token_calls(&stage) == 1).await;
        asking.abort();
        eventually("the lease is back", || pool.active_turns() == 0).await;
        stage.sim.release();
        eventually("the renewal goes on", || refreshes(&stage, "refreshed") == 1).await;
        assert_eq!(turns(&stage).len(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_a_renewal_does_not_end_it() {
    let accounts = vec![SimAccount::made_up("alice")];
    let stage = setup(accounts, vec![silence()]).start().await;
    let before = account(&stage, "alice").unwrap();
    let refresher = stage.app.accounts.refresher.clone();
    let leaving = {
        let (refresher, before) = (refresher.clone(), Arc::clone(&before));
        tokio::spawn(
            async move { refresher.renew(&before, RefreshReason::UnauthorizedRecovery).await },
        )
    };
    eventually("it asks", || token_calls(&stage) == 1).await;
    leaving.abort();
    assert!(leaving.await.is_err());
    stage.sim.release();
    let changed = || {
        account(&stage, "alice").unwrap().credential.fingerprint != before.credential.fingerprint
    };
    eventually("the pool has the new tokens", changed).await;
    // A request that still holds the old ones is served without another call.
    let late = refresher.renew(&before, RefreshReason::UnauthorizedRecovery).await;
    assert!(matches!(late, Renewal::Fresh(_)));
    assert_eq!(token_calls(&stage), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_that_another_program_has_renewed_are_taken_without_a_call() {
    let stage = setup(vec![SimAccount::made_up("alice")], vec![]).start().await;
    let alice = stage.sim.account("alice").unwrap();
    let new = rotate_elsewhere(&stage, &alice).await;
    let before = account(&stage, "alice").unwrap();
    replace(&stage, "alice.json", &new);
    let refresher = &stage.app.accounts.refresher;
    let renewal = refresher.renew(&before, RefreshReason::UnauthorizedRecovery).await;
    assert!(matches!(renewal, Renewal::Fresh(_)), "{renewal:?}");
    assert_eq!(start(&stage).await.unwrap().status, 200);
    assert_eq!(token_calls(&stage), 1, "the other program's own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_used_refresh_token_means_that_somebody_else_has_the_new_ones() {
    let reused = refused(401, "refresh_token_reused");
    let stage = setup(vec![SimAccount::made_up("alice")], vec![]).start().await;
    let alice = stage.sim.account("alice").unwrap();
    let new = rotate_elsewhere(&stage, &alice).await;
    stage.sim.revoke_access("nobody");
    // The answer comes when the file has been written, but the question was asked before.
    stage.sim.rule(silence());
    stage.sim.rule(at_tokens(reused));
    let renewing = {
        let refresher = stage.app.accounts.refresher.clone();
        let account = account(&stage, "alice").unwrap();
        tokio::spawn(
            async move { refresher.renew(&account, RefreshReason::UnauthorizedRecovery).await },
        )
    };
    eventually("it asks", || token_calls(&stage) == 2).await;
    replace(&stage, "alice.json", &new);
    stage.sim.release();
    let renewal = renewing.await.unwrap();
    assert!(matches!(renewal, Renewal::Fresh(_)), "{renewal:?}");
    assert_eq!(refreshes(&stage, "terminal"), 0);
    assert_eq!(start(&stage).await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_login_is_asked_for_once_and_another_account_serves() {
    let accounts = ["alice", "bob"].map(SimAccount::made_up).to_vec();
    let stage = setup(accounts, vec![]).start().await;
    stage.sim.revoke_access("alice");
    stage.sim.revoke_refresh("alice");
    for _ in 0..6 {
        assert_eq!(start(&stage).await.unwrap().status, 200);
    }
    assert_eq!(token_calls(&stage), 1);
    assert_eq!(refreshes(&stage, "terminal"), 1);
    let renewal = renew(&stage, "alice").await;
    assert!(matches!(renewal, Renewal::NeedsLogin), "{renewal:?}");
    stage.app.accounts.refresher.tick().await;
    assert_eq!(token_calls(&stage), 1, "a dead token is not tried again");
    let alone = turns(&stage).iter().filter(|it| it.status == Some(401)).count();
    assert_eq!(alone, 1, "nobody picks it any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_token_that_is_refused_too_ends_the_account_not_the_request() {
    let accounts = ["alice", "bob"].map(SimAccount::made_up).to_vec();
    let stage = setup(accounts, vec![]).start().await;
    let unauthorized = Action::json(401, json!({"error": {"code": "token_expired"}}));
    stage.sim.rule(Rule::new(unauthorized).account("alice").route(Route::Turn));
    for _ in 0..4 {
        assert_eq!(start(&stage).await.unwrap().status, 200);
    }
    assert_eq!(token_calls(&stage), 1);
    let by_alice = turns(&stage).iter().filter(|it| it.account.as_deref() == Some("alice")).count();
    assert_eq!(by_alice, 2, "once as it was, and once with new tokens");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_refresh_token_nothing_is_asked() {
    let alice = SimAccount::made_up("alice");
    let mut file: Value = serde_json::from_slice(&alice.auth_json()).unwrap();
    file["tokens"]["refresh_token"] = json!("");
    let files = vec![("alice.json".to_owned(), file.to_string().into_bytes())];
    let stage = Setup { auth_files: Some(files), ..setup(vec![alice], vec![]) }.start().await;
    assert_eq!(start(&stage).await.unwrap().status, 200);
    stage.sim.revoke_access("alice");
    let seen = start(&stage).await.unwrap();
    assert_eq!((seen.status.as_u16(), seen.code().as_str()), (503, "no_account_available"));
    assert!(seen.text().contains("1 in need of a new sign-in"), "{}", seen.text());
    assert_eq!(token_calls(&stage), 0);
    assert_eq!(refreshes(&stage, "no_refresh_token"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_question_is_codex_own() {
    let stage = setup(vec![SimAccount::made_up("alice")], vec![]).start().await;
    let alice = stage.sim.account("alice").unwrap();
    stage.sim.revoke_access("alice");
    assert_eq!(start(&stage).await.unwrap().status, 200);
    let call = seen(&stage, Route::OauthToken).remove(0);
    let wanted = format!(
        "{{\"client_id\":\"app_EMoamEEZ73f0CkXaXp7hrann\",\"grant_type\":\"refresh_token\",\
         \"refresh_token\":\"{}\",\"refresh_reason\":\"unauthorized_recovery\"}}",
        alice.refresh_token
    );
    assert_eq!(String::from_utf8(call.body.clone()).unwrap(), wanted);
    assert_eq!((call.method.as_str(), call.target.as_str()), ("POST", "/oauth/token"));
    let header = |name: &str| {
        let mut found = call.headers.iter().filter(|(it, _)| it.eq_ignore_ascii_case(name));
        let value = found.next().map(|(_, value)| String::from_utf8_lossy(value).into_owned());
        assert!(found.next().is_none());
        value.unwrap_or_default()
    };
    assert_eq!(header("content-type"), "application/json");
    assert_eq!(header("originator"), "codex_cli_rs");
    assert!(header("user-agent").starts_with("codex_cli_rs/"), "{}", header("user-agent"));
    assert_eq!(header("authorization") + &header("cookie") + &header("chatgpt-account-id"), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_an_answer_that_cannot_be_used_the_new_refresh_token_is_saved() {
    let bad = json!({"access_token": "canary\r\nx: y", "id_token": 7, "refresh_token": "r"});
    let stage = setup(vec![SimAccount::made_up("alice")], vec![]).start().await;
    stage.sim.rule(at_tokens(Action::json(200, bad)));
    let before = file(&stage, "alice.json");
    for _ in 0..2 {
        assert!(matches!(renew(&stage, "alice").await, Renewal::Passing));
    }
    let after = file(&stage, "alice.json");
    assert_eq!(after["tokens"]["refresh_token"], json!("r"));
    for kept in ["access_token", "id_token"] {
        assert_eq!(after["tokens"][kept], before["tokens"][kept]);
    }
    assert_eq!((token_calls(&stage), journal_entries(&stage)), (1, 0));
    // Nothing is held against the account.
    assert_eq!(start(&stage).await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_refresh_token_beside_a_good_access_token_is_no_end() {
    let omit = Issue { omit: vec!["access_token".to_owned()], ..Issue::default() };
    let rules = vec![at_tokens(Action::Issue(omit)).times(1)];
    let stage = setup(vec![SimAccount::made_up("alice")], rules).start().await;
    let stale = account(&stage, "alice").unwrap();
    assert!(matches!(renew(&stage, "alice").await, Renewal::Passing));
    let fresh = account(&stage, "alice").unwrap();
    let fingerprint = |it: &Account| it.credential.refresh.as_ref().unwrap().fingerprint();
    assert_ne!(fingerprint(&fresh), fingerprint(&stale));
    let refresher = &stage.app.accounts.refresher;
    let renewal = refresher.renew(&stale, RefreshReason::UnauthorizedRecovery).await;
    assert!(matches!(renewal, Renewal::Passing), "{renewal:?}");
    assert_eq!(start(&stage).await.unwrap().status, 200);
    assert_eq!(token_calls(&stage), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adopted_tokens_that_are_refused_are_renewed_the_next_time() {
    let clock = Clock::manual(Clock::system().now());
    let setup = setup(vec![SimAccount::made_up("alice")], vec![]);
    let stage = Setup { clock: clock.clone(), ..setup }.start().await;
    let alice = stage.sim.account("alice").unwrap();
    stage.sim.rule(Rule::new(Action::lose(Loss::Silence)).route(Route::Turn).times(1));
    let asking = start(&stage);
    eventually("it is under way", || turns(&stage).len() == 1).await;
    let new = rotate_elsewhere(&stage, &alice).await;
    stage.sim.revoke_access("alice");
    replace(&stage, "alice.json", &new);
    stage.sim.release();
    let seen = asking.await.unwrap();
    assert_eq!((seen.status.as_u16(), seen.code().as_str()), (503, "account_refresh_failed"));
    assert_eq!(token_calls(&stage), 1, "somebody else's");
    assert_eq!(start(&stage).await.unwrap().status, 200);
    assert_eq!(token_calls(&stage), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_was_lost_is_not_asked_for_again_at_once() {
    let lost = Action::Issue(Issue { lose: true, ..Issue::default() });
    let stage = setup(vec![SimAccount::made_up("alice")], vec![at_tokens(lost)]).start().await;
    assert!(matches!(renew(&stage, "alice").await, Renewal::Passing));
    assert!(matches!(renew(&stage, "alice").await, Renewal::Passing));
    assert_eq!(token_calls(&stage), 1, "the token may be spent");
}
