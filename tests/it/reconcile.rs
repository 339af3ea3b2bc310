//! What becomes of accounts when credential files change while the gateway runs.

use std::{
    fs,
    sync::Arc,
    time::{Duration, SystemTime},
};

use codex_edge::{
    accounts::reconciler::Rotation,
    clock::Clock,
    domain::{
        account::{Account, AuthId},
        health::Readiness,
    },
    protocol::credential_file,
    sim::{Action, End, EventSpec, Recorded, Route, Rule, SimAccount, StreamPlan},
};
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::support::{
    client::{Exchange, read},
    stage::{Setup, Stage, eventually},
};

mod directory;
mod subscribers;

const PATH: &str = "/v1/codex/responses";
const FAR_FUTURE: i64 = 4_102_444_800;

/// A stage whose clock moves only by hand.
pub(super) async fn stage(names: &[&str]) -> Stage {
    setup(names).start().await
}

fn setup(names: &[&str]) -> Setup {
    let start: Timestamp = "2026-12-01T10:00:00Z".parse().unwrap();
    Setup { clock: Clock::manual(start), ..Setup::with_accounts(names) }
}

pub(super) fn pass_time(stage: &Stage, seconds: i64) {
    stage.app.gateway.clock.advance(SignedDuration::from_secs(seconds));
}

/// One turn, of a session if one is named.
pub(super) async fn turn(stage: &Stage, session: &str) -> Exchange {
    let client = stage.h1();
    let mut request = client.request(Method::POST, PATH);
    if !session.is_empty() {
        request = request.header("session-id", session);
    }
    client.send(request, r#"{"model":"gpt-5.5","input":[]}"#).await
}

fn last_turn(stage: &Stage) -> Recorded {
    let mut requests = stage.sim.requests();
    requests.retain(|it| it.route == Route::Responses);
    requests.pop().unwrap()
}

/// The account that serves a turn of the session.
pub(super) async fn serving(stage: &Stage, session: &str) -> String {
    let seen = turn(stage, session).await;
    assert_eq!(seen.status, 200, "{}", seen.text());
    last_turn(stage).account.unwrap()
}

/// The account with these names in the pool, by the id that the upstream sees.
pub(super) fn account(stage: &Stage, name: &str) -> Option<Arc<Account>> {
    let wanted = SimAccount::made_up(name).account_id;
    let snapshot = stage.app.gateway.pool.snapshot();
    let entry = snapshot
        .entries
        .iter()
        .find(|it| it.account.account_id.as_ref().is_some_and(|it| it.as_str() == wanted));
    entry.map(|it| Arc::clone(&it.account))
}

fn id(stage: &Stage, name: &str) -> AuthId {
    account(stage, name).unwrap().id.clone()
}

pub(super) fn readiness(stage: &Stage, name: &str) -> Readiness {
    let gateway = &stage.app.gateway;
    let snapshot = gateway.pool.snapshot();
    snapshot.find(&id(stage, name)).unwrap().runtime.readiness(gateway.clock.now())
}

/// The account runs into its limit at its next turn, for ten minutes.
async fn exhaust(stage: &Stage, name: &str, session: &str) {
    let resets_at = stage.app.gateway.clock.now().as_second() + 600;
    let limit = Rule::new(Action::usage_limit_reached(resets_at)).account(name);
    stage.sim.rule(limit.times(1));
    turn(stage, session).await;
    assert!(matches!(readiness(stage, name), Readiness::Cooling { .. }), "{name}");
}

/// The same login with other tokens.
fn renewed(stage: &Stage, name: &str) -> SimAccount {
    let mut account = SimAccount::made_up(name);
    account.access_token = account.mint_access(1, FAR_FUTURE);
    account.refresh_token = account.mint_refresh(9, 0);
    stage.sim.add_account(account.clone());
    account
}

fn edited(account: &SimAccount, edit: impl FnOnce(&mut Value)) -> String {
    let mut file: Value = serde_json::from_slice(&account.auth_json()).unwrap();
    edit(&mut file);
    file.to_string()
}

pub(super) fn half(name: &str) -> Vec<u8> {
    let whole = SimAccount::made_up(name).auth_json();
    whole[..whole.len() / 2].to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_of_one_account_get_no_more_turns_than_one_file() {
    let stage = stage(&["a", "b"]).await;
    for copy in ["copy.json", "z.json"] {
        stage.write(copy, SimAccount::made_up("a").auth_json());
    }
    stage.look().await;
    assert_eq!(account(&stage, "a").unwrap().sources.len(), 3);
    let mut of_a = 0;
    for _ in 0..20 {
        of_a += usize::from(serving(&stage, "").await == "a");
    }
    assert_eq!(of_a, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_id_is_found_in_the_tokens_where_the_file_names_none() {
    let alice = SimAccount::made_up("a");
    type Edit = fn(&mut Value);
    let edits: [Edit; 3] = [
        |file| file["tokens"]["account_id"] = json!("  "),
        |file| file["tokens"]["account_id"] = Value::Null,
        |file| file["tokens"] = json!({"access_token": file["tokens"]["access_token"]}),
    ];
    let stage = stage(&["a"]).await;
    let before = id(&stage, "a");
    for edit in edits {
        stage.write("a.json", edited(&alice, edit));
        stage.look().await;
        assert_eq!(id(&stage, "a"), before);
        serving(&stage, "").await;
        let sent = last_turn(&stage).header("chatgpt-account-id");
        assert_eq!(sent.as_deref(), Some(alice.account_id.as_str()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_cannot_tell_who_it_is_serves_all_the_same() {
    let stage = stage(&[]).await;
    let mut unknown = SimAccount::made_up("a");
    unknown.access_token = "canary-opaque".to_owned();
    stage.sim.add_account(unknown.clone());
    let file = json!({"tokens": {"access_token": unknown.access_token}});
    stage.write("opaque.json", file.to_string());
    stage.look().await;
    assert_eq!(serving(&stage, "").await, "a");
    assert_eq!(last_turn(&stage).header("chatgpt-account-id"), None);
    let snapshot = stage.app.gateway.pool.snapshot();
    assert!(!snapshot.entries[0].account.id.is_identified());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_is_read_anew_with_the_tokens() {
    let stage = stage(&["a"]).await;
    let before = account(&stage, "a").unwrap();
    let mut after = SimAccount::with_plan("a", "team");
    after.email = "other@sim.example".to_owned();
    after.id_token = after.mint_id(FAR_FUTURE);
    after.access_token = after.mint_access(0, FAR_FUTURE);
    stage.write("a.json", after.auth_json());
    stage.look().await;
    let now = account(&stage, "a").unwrap();
    assert_eq!((&now.id, &now.label), (&before.id, &before.label));
    assert_eq!(now.email.as_ref().unwrap().to_string(), "o***@sim.example");
    assert_eq!((before.plan.as_deref(), now.plan.as_deref()), (Some("pro"), Some("team")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_moves_takes_nothing_from_its_account() {
    let stage = stage(&["a", "b"]).await;
    let first = serving(&stage, "s").await;
    let before = account(&stage, &first).unwrap();
    fs::create_dir(stage.auth_dir.join("team")).unwrap();
    let (from, to) = (format!("{first}.json"), "team/moved.json");
    fs::rename(stage.auth_dir.join(from), stage.auth_dir.join(to)).unwrap();
    stage.look().await;
    let now = account(&stage, &first).unwrap();
    assert_eq!((&now.id, &now.label), (&before.id, &before.label));
    assert_eq!(now.sources[0].path.to_string(), "path:team/moved.json");
    assert_eq!(serving(&stage, "s").await, first, "the session stays");
    exhaust(&stage, &first, "s").await;
    fs::rename(stage.auth_dir.join(to), stage.auth_dir.join("back.json")).unwrap();
    stage.look().await;
    assert!(matches!(readiness(&stage, &first), Readiness::Cooling { .. }), "the rest stays");
    let text = stage.app.gateway.scrape();
    assert!(text.contains(r#"reconciliations_total{change="sources"} 2"#), "{text}");
    assert!(text.contains(r#"reconciliations_total{change="removed"} 0"#), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_tokens_of_an_account_end_its_refusal_and_nothing_else() {
    let stage = stage(&["a"]).await;
    assert_eq!(serving(&stage, "s").await, "a");
    stage.sim.revoke_access("a");
    stage.sim.revoke_refresh("a");
    assert_ne!(turn(&stage, "s").await.status, 200);
    assert_eq!(readiness(&stage, "a"), Readiness::NeedsLogin);

    stage.write("a.json", renewed(&stage, "a").auth_json());
    stage.look().await;
    assert_eq!(readiness(&stage, "a"), Readiness::Ready);
    let sessions = stage.app.gateway.sessions.count_by_account(stage.app.gateway.clock.now());
    assert_eq!(sessions.get(&id(&stage, "a")), Some(&1), "the session stays");
    assert_eq!(serving(&stage, "s").await, "a");

    exhaust(&stage, "a", "s").await;
    let mut third = SimAccount::made_up("a");
    third.access_token = third.mint_access(2, FAR_FUTURE);
    stage.write("a.json", third.auth_json());
    stage.look().await;
    assert!(matches!(readiness(&stage, "a"), Readiness::Cooling { .. }), "a limit is no refusal");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_login_at_a_path_gets_nothing_of_the_one_before() {
    let stage = stage(&["a"]).await;
    assert_eq!(serving(&stage, "s").await, "a");
    let before = account(&stage, "a").unwrap();
    exhaust(&stage, "a", "s").await;
    // The same path, and even the same address.
    let mut other = SimAccount::made_up("b");
    other.email = SimAccount::made_up("a").email;
    other.id_token = other.mint_id(FAR_FUTURE);
    other.access_token = other.mint_access(0, FAR_FUTURE);
    stage.sim.add_account(other.clone());
    stage.write("a.json", other.auth_json());
    stage.look().await;
    assert!(account(&stage, "a").is_none());
    let now = account(&stage, "b").unwrap();
    assert!(now.id != before.id && now.label != before.label);
    assert_eq!(readiness(&stage, "b"), Readiness::Ready);
    let sessions = stage.app.gateway.sessions.count_by_account(stage.app.gateway.clock.now());
    assert!(sessions.is_empty(), "{sessions:?}");
    assert_eq!(serving(&stage, "s").await, "b");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_in_the_file_stops_new_work_and_nothing_else() {
    let stage = stage(&["a", "b"]).await;
    let first = serving(&stage, "s").await;
    let stall = StreamPlan { after: Some(4), end: End::Stall, ..StreamPlan::default() };
    stage.sim.rule(Rule::new(Action::Stream(stall)).route(Route::Turn).times(1));
    let client = stage.h1();
    let request = client.request(Method::POST, PATH).header("session-id", "s");
    let running = client.begin(request, r#"{"model":"gpt-5.5","input":[]}"#).await.unwrap();

    let name = format!("{first}.json");
    let off = edited(&SimAccount::made_up(&first), |file| file["disabled"] = json!(true));
    stage.write(&name, off);
    stage.look().await;
    assert!(account(&stage, &first).unwrap().eligibility.disabled);
    assert_eq!(stage.app.gateway.pool.active_turns(), 1);
    assert_ne!(serving(&stage, "").await, first);

    stage.sim.release();
    let seen = read(running).await;
    assert!(!seen.broken && seen.text().contains("response.completed"), "{}", seen.text());
    stage.write(&name, SimAccount::made_up(&first).auth_json());
    stage.look().await;
    assert_eq!(serving(&stage, "s").await, first, "the session was kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_put_into_an_empty_directory_serves_without_being_asked_for() {
    let stage = Setup::with_accounts(&[]).start().await;
    let seen = turn(&stage, "").await;
    assert_eq!((seen.status.as_u16(), seen.code().as_str()), (503, "no_account_available"));
    let alice = SimAccount::made_up("a");
    stage.sim.add_account(alice.clone());
    stage.write("a.json", alice.auth_json());
    eventually("the account is in the pool", || account(&stage, "a").is_some()).await;
    assert_eq!(serving(&stage, "").await, "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_without_a_file_gets_no_more_turns_and_may_come_back() {
    let stage = stage(&["a", "b"]).await;
    let first = serving(&stage, "s").await;
    exhaust(&stage, &first, "s").await;
    let first = serving(&stage, "s").await;
    let name = format!("{first}.json");
    let id = id(&stage, &first);
    let bound = |stage: &Stage| {
        let gateway = &stage.app.gateway;
        gateway.sessions.count_by_account(gateway.clock.now()).get(&id).copied()
    };
    stage.remove(&name);
    stage.look().await;
    assert!(account(&stage, &first).is_none());
    assert_eq!((turn(&stage, "s").await.status.as_u16(), bound(&stage)), (429, None));
    assert!(!stage.app.gateway.scrape().contains("account_active_turns{account=\"\""));

    pass_time(&stage, 59);
    stage.write(&name, SimAccount::made_up(&first).auth_json());
    stage.look().await;
    assert_eq!(bound(&stage), Some(1), "in time");
    assert_eq!(serving(&stage, "s").await, first);

    stage.remove(&name);
    stage.look().await;
    pass_time(&stage, 60);
    stage.look().await;
    stage.write(&name, SimAccount::made_up(&first).auth_json());
    stage.look().await;
    assert_eq!(bound(&stage), None, "too late");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_written_file_changes_nothing_until_its_grace_ends() {
    let stage = stage(&["a"]).await;
    let whole = SimAccount::made_up("a").auth_json();
    for bytes in [&half("a")[..], b"", b"[]"] {
        stage.write("a.json", bytes);
        stage.look().await;
        assert_eq!(serving(&stage, "s").await, "a", "the last good content counts");
        pass_time(&stage, 1);
    }
    pass_time(&stage, 1);
    stage.write("a.json", &whole);
    stage.look().await;
    pass_time(&stage, 60);
    stage.look().await;
    assert_eq!(serving(&stage, "s").await, "a");
    let text = stage.app.gateway.scrape();
    for change in ["removed", "credentials", "eligibility"] {
        let line = format!("reconciliations_total{{change=\"{change}\"}} 0");
        assert!(text.contains(&line), "{line}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_stays_malformed_is_told_and_left_out() {
    let stage = stage(&["a", "b"]).await;
    let first = serving(&stage, "s").await;
    let name = format!("{first}.json");
    for _ in 0..6 {
        // Further bad writes do not begin the grace anew.
        stage.write(&name, half(&first));
        stage.look().await;
        pass_time(&stage, 1);
    }
    stage.look().await;
    assert!(account(&stage, &first).is_none());
    assert_ne!(serving(&stage, "").await, first);
    let view = stage.app.accounts.reconciler.view();
    assert_eq!(view.problems.len(), 1);
    assert!(view.problems[0].to_string().starts_with(&format!("path:{name}: it is no valid JSON")));
    assert!(stage.app.gateway.scrape().contains("credential_file_problems 1"));
    // However long that takes, what is kept of the account is not deleted.
    pass_time(&stage, 600);
    stage.look().await;
    stage.write(&name, SimAccount::made_up(&first).auth_json());
    stage.look().await;
    assert_eq!(serving(&stage, "s").await, first);
    assert!(stage.app.gateway.scrape().contains("credential_file_problems 0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_copy_does_not_take_its_account_along() {
    let stage = stage(&["a"]).await;
    stage.write("copy.json", SimAccount::made_up("a").auth_json());
    stage.look().await;
    stage.write("a.json", half("a"));
    stage.look().await;
    pass_time(&stage, 6);
    stage.look().await;
    let sources = account(&stage, "a").unwrap().sources.clone();
    let usable: Vec<String> = sources.iter().map(|it| it.path.to_string()).collect();
    assert!(usable.contains(&"path:copy.json".to_owned()), "{usable:?}");
    assert_eq!(serving(&stage, "").await, "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_logout_takes_effect_at_once() {
    let stage = stage(&["a", "b"]).await;
    stage.write("a.json", "{}");
    stage.look().await;
    assert!(account(&stage, "a").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_that_leaves_size_and_time_alone_is_seen() {
    let stage = stage(&["a"]).await;
    let path = stage.auth_dir.join("a.json");
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let age = || fs::File::options().write(true).open(&path).unwrap().set_modified(then).unwrap();
    let before = account(&stage, "a").unwrap().credential.fingerprint;
    age();
    stage.look().await;
    let other = renewed(&stage, "a").auth_json();
    assert_eq!(other.len(), fs::read(&path).unwrap().len());
    fs::write(&path, other).unwrap();
    age();
    stage.look().await;
    assert_ne!(account(&stage, "a").unwrap().credential.fingerprint, before);
    assert_eq!(serving(&stage, "").await, "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operators_pause_outlasts_files_and_restarts() {
    let stage = stage(&["a", "b"]).await;
    let first = serving(&stage, "s").await;
    let paused = id(&stage, &first);
    stage.app.accounts.reconciler.set_paused(&paused, true).await.unwrap();
    assert!(account(&stage, &first).unwrap().eligibility.paused);
    assert_ne!(serving(&stage, "").await, first);
    let stage = stage.restart(|_| ()).await;
    assert!(account(&stage, &first).unwrap().eligibility.paused);
    stage.app.accounts.reconciler.set_paused(&paused, false).await.unwrap();
    assert_eq!(serving(&stage, "s").await, first, "the session was kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_from_before_its_account_left_says_nothing_about_it_when_it_is_back() {
    for leaves in [false, true] {
        let stage = stage(&["a"]).await;
        let error = json!({"code": "usage_limit_reached", "message": "made up"});
        let failed = json!({"type": "response.failed", "response": {"id": "r", "error": error}});
        let mut events: Vec<EventSpec> = ["created", "in_progress", "added", "delta"]
            .map(|it| EventSpec::Named(it.to_owned()))
            .into();
        events.push(EventSpec::Json(failed));
        let (events, after) = (Some(events), Some(4));
        let plan = StreamPlan { events, after, end: End::Stall, ..StreamPlan::default() };
        stage.sim.rule(Rule::new(Action::Stream(plan)).route(Route::Turn).times(1));
        let client = stage.h1();
        let request = client.request(Method::POST, PATH);
        let running = client.begin(request, r#"{"model":"gpt-5.5","input":[]}"#).await.unwrap();
        if leaves {
            stage.remove("a.json");
            stage.look().await;
            assert_eq!(stage.app.gateway.pool.active_turns(), 1, "it goes on");
            stage.write("a.json", SimAccount::made_up("a").auth_json());
            stage.look().await;
        }
        stage.sim.release();
        assert!(read(running).await.text().contains("response.failed"));
        eventually("the lease is back", || stage.app.gateway.pool.active_turns() == 0).await;
        assert_eq!(readiness(&stage, "a") == Readiness::Ready, leaves);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_that_no_file_holds_yet_are_used_until_one_does() {
    let stage = stage(&["a"]).await;
    stage.write("copy.json", SimAccount::made_up("a").auth_json());
    stage.look().await;
    let before = account(&stage, "a").unwrap();
    let after = renewed(&stage, "a");
    let parsed = credential_file::parse(&after.auth_json()).unwrap();
    let rotation = Rotation {
        old: before.credential.refresh.as_ref().unwrap().fingerprint(),
        new: Arc::new(parsed.login),
        persisted: false,
    };
    stage.app.accounts.reconciler.rotated(rotation);
    stage.look().await;
    let now = account(&stage, "a").unwrap();
    assert_eq!((&now.id, now.sources.len()), (&before.id, 2));
    assert!(now.credential.access.matches(after.access_token.as_bytes()));
    assert_eq!(serving(&stage, "").await, "a");
    for name in ["a.json", "copy.json"] {
        stage.write(name, after.auth_json());
        stage.look().await;
        let now = account(&stage, "a").unwrap();
        assert!(now.credential.access.matches(after.access_token.as_bytes()), "{name}");
    }
    // From now on the files alone count again.
    let third = SimAccount::made_up("a");
    stage.write("a.json", third.auth_json());
    stage.write("copy.json", third.auth_json());
    stage.look().await;
    let now = account(&stage, "a").unwrap();
    assert!(now.credential.access.matches(third.access_token.as_bytes()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_that_becomes_known_keeps_what_it_had_under_its_files_name() {
    let stage = stage(&[]).await;
    let mut opaque = SimAccount::made_up("a");
    opaque.access_token = "canary-opaque".to_owned();
    stage.sim.add_account(opaque.clone());
    let tokens = json!({"access_token": "canary-opaque", "refresh_token": opaque.refresh_token});
    stage.write("a.json", json!({ "tokens": tokens }).to_string());
    stage.look().await;
    assert_eq!(serving(&stage, "s").await, "a");
    exhaust_all(&stage).await;
    let gateway = &stage.app.gateway;
    let before = Arc::clone(&gateway.pool.snapshot().entries[0].account);
    assert!(!before.id.is_identified());

    stage.write("a.json", opaque.auth_json());
    stage.look().await;
    let now = account(&stage, "a").unwrap();
    assert!(now.id.is_identified() && now.label == before.label);
    assert!(matches!(readiness(&stage, "a"), Readiness::Cooling { .. }));
    let sessions = gateway.sessions.count_by_account(gateway.clock.now());
    assert_eq!(sessions.into_iter().collect::<Vec<_>>(), [(now.id.clone(), 1)]);
    assert!(gateway.scrape().contains(r#"reconciliations_total{change="renamed"} 1"#));
    // The database has followed too.
    let stage = stage.restart(|_| ()).await;
    assert_eq!(account(&stage, "a").unwrap().label, now.label);
    assert!(matches!(readiness(&stage, "a"), Readiness::Cooling { .. }));
    let gateway = &stage.app.gateway;
    let sessions = gateway.sessions.count_by_account(gateway.clock.now());
    assert_eq!(sessions.into_iter().collect::<Vec<_>>(), [(now.id.clone(), 1)]);
}

/// Every account runs into its limit, for ten minutes.
async fn exhaust_all(stage: &Stage) {
    let resets_at = stage.app.gateway.clock.now().as_second() + 600;
    stage.sim.rule(Rule::new(Action::usage_limit_reached(resets_at)).times(1));
    assert_eq!(turn(stage, "").await.status, 429);
}
