//! Accounts as an operator manages them over the admin listener.

use std::{fs, os::unix::fs::symlink, time::Duration};

use codex_edge::sim::{Action, End, Loss, Recorded, Route, Rule, SimAccount, StreamPlan};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    import::operator,
    reconcile::{account, half, pass_time, readiness, serving, stage, turn},
    support::{
        client::{Exchange, read},
        process::files_below,
        raw,
        stage::{Stage, eventually},
    },
};

const AUTHS: &str = "/v0/management/auths";
const FAR_FUTURE: i64 = 4_102_444_800;

/// Every verb that changes an account, and what the audit calls it.
const VERBS: [(&str, &str); 6] = [
    ("refresh", "auths.refresh"),
    ("enable", "auths.enable"),
    ("disable", "auths.disable"),
    ("pause", "auths.pause"),
    ("resume", "auths.resume"),
    ("cooldown/clear", "auths.cooldown.clear"),
];

async fn post(stage: &Stage, verb: &str, target: Value) -> Exchange {
    operator(stage).post(&format!("{AUTHS}/{verb}"), target.to_string()).await
}

async fn delete(stage: &Stage, name: &str) -> Exchange {
    let operator = operator(stage);
    operator.send(operator.request(Method::DELETE, &format!("{AUTHS}/{name}")), "").await
}

async fn get(stage: &Stage, path: &str) -> Value {
    let answer = operator(stage).get(path).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    answer.json()
}

fn id(stage: &Stage, name: &str) -> String {
    account(stage, name).unwrap().id.to_string()
}

/// Does it to an account by its auth id, and gives the account as it is told to be then.
async fn done(stage: &Stage, verb: &str, name: &str) -> Value {
    let answer = post(stage, verb, json!({"auth_id": id(stage, name)})).await;
    assert_eq!(answer.status, StatusCode::OK, "{verb}: {}", answer.text());
    answer.json()["auth"].clone()
}

/// Status and code of a refusal, whose message is there.
fn told(answer: &Exchange) -> (u16, String) {
    assert!(answer.json()["error"]["message"].as_str().unwrap().len() > 20, "{}", answer.text());
    (answer.status.as_u16(), answer.code())
}

fn refusal(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

/// Action, target and result of every row, the oldest first.
async fn audit(stage: &Stage) -> Vec<[String; 3]> {
    let answer = get(stage, "/v0/management/audit?limit=1000").await;
    let row = |it: &Value| {
        assert_eq!(it["actor"], "admin");
        assert!(it["at"].as_str().unwrap().ends_with('Z'));
        ["action", "target", "result"].map(|key| it[key].as_str().unwrap().to_owned())
    };
    answer["audit"].as_array().unwrap().iter().rev().map(row).collect()
}

/// All there is of the accounts: files, what is told of them, and rows.
async fn everything(stage: &Stage) -> String {
    let mut files = files_below(&stage.auth_dir);
    files.sort();
    let rows = stage.app.accounts.storage.write(|connection| {
        let mut rows = String::new();
        for table in ["accounts", "account_health", "bindings", "users", "api_keys"] {
            let mut statement = connection.prepare(&format!("SELECT * FROM {table} ORDER BY 1"))?;
            let columns = statement.column_count();
            let mut found = statement.query([])?;
            while let Some(row) = found.next()? {
                for column in 0..columns {
                    let value: rusqlite::types::Value = row.get(column)?;
                    rows.push_str(&format!("{table} {value:?} "));
                }
            }
        }
        Ok(rows)
    });
    format!("{files:?} {} {}", get(stage, AUTHS).await, rows.await.unwrap())
}

/// A login of `name` whose workspace is that of `other`.
fn in_workspace_of(name: &str, other: &str) -> SimAccount {
    let mut account = SimAccount::made_up(name);
    account.account_id = SimAccount::made_up(other).account_id;
    account.access_token = account.mint_access(0, FAR_FUTURE);
    account.id_token = account.mint_id(FAR_FUTURE);
    account
}

fn file(stage: &Stage, name: &str) -> Value {
    serde_json::from_slice(&fs::read(stage.auth_dir.join(name)).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_member_of_an_account_is_there() {
    let stage = stage(&["a"]).await;
    stage.write("copy.json", SimAccount::made_up("a").auth_json());
    stage.write("broken.json", "{");
    stage.look().await;
    turn(&stage, "s").await;
    let auth = account(&stage, "a").unwrap();
    let mode = |path: &str| {
        let problem = account(&stage, "a").unwrap();
        let source = problem.sources.iter().find(|it| it.path.as_str() == path).unwrap();
        source.problem.as_deref().map(str::to_owned)
    };
    let wanted = json!({
        "auth_id": auth.id.as_str(),
        "account_id": SimAccount::made_up("a").account_id,
        "label": auth.label.as_str(),
        "selector": null,
        "identity_state": "identified",
        "identity_conflict": false,
        "manageable": true,
        "email_masked": "a***@sim.example",
        "plan": "pro",
        "seat": auth.seat.as_ref().unwrap().digest(),
        "sources": [
            {"path": "path:a.json", "state": "in_use", "problem": mode("path:a.json")},
            {"path": "path:copy.json", "state": "standby", "problem": mode("path:copy.json")},
        ],
        "enabled": true,
        "paused": false,
        "runtime_state": "active",
        "reason": null,
        "token_expires_at": "2100-01-01T00:00:00Z",
        "last_refresh_at": "2099-01-01T00:00:00Z",
        "cooldown": null,
        "quota": [],
        "models": [],
        "session_binding_count": 1,
        "active_turns": 0,
        "active_sockets": 0,
        "last_error": null,
        "egress": "direct",
    });
    eventually("the turn is over", || stage.app.gateway.pool.active_turns() == 0).await;
    let names = [auth.id.as_str(), auth.label.as_str(), wanted["account_id"].as_str().unwrap()];
    for name in names {
        assert_eq!(get(&stage, &format!("{AUTHS}/{name}")).await["auth"], wanted);
    }
    let listed = get(&stage, AUTHS).await;
    assert_eq!(listed["auths"], json!([wanted]));
    assert_eq!(listed["directory"], json!({"state": "ok"}));
    let broken = listed["problems"].as_array().unwrap();
    assert!(broken.iter().any(|it| it["path"] == "path:broken.json" && it["reason"] != ""));
    let seat = wanted["seat"].as_str().unwrap();
    assert!(seat.len() == 8 && seat.bytes().all(|it| it.is_ascii_hexdigit()), "{seat}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_is_written_into_every_copy_and_stops_new_work() {
    let stage = stage(&["a", "b"]).await;
    stage.write("copy.json", SimAccount::made_up("a").auth_json());
    stage.look().await;
    let auth = done(&stage, "disable", "a").await;
    assert_eq!((&auth["enabled"], &auth["reason"]), (&json!(false), &json!("disabled")));
    assert_eq!(auth["runtime_state"], "unavailable");
    for name in ["a.json", "copy.json"] {
        assert_eq!(file(&stage, name)["disabled"], true, "{name}");
    }
    for _ in 0..3 {
        assert_eq!(serving(&stage, "").await, "b");
    }
    let auth = done(&stage, "enable", "a").await;
    assert_eq!((&auth["enabled"], &auth["reason"]), (&json!(true), &Value::Null));
    let served = [serving(&stage, "").await, serving(&stage, "").await];
    assert!(served.contains(&"a".to_owned()), "{served:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_cannot_be_written_leaves_all_of_them_as_they_were() {
    let stage = stage(&["a"]).await;
    // So deep that the file can be opened, and no file with a longer name can be made beside it.
    let mut deep = stage.auth_dir.with_file_name("far");
    while deep.as_os_str().len() < 3_880 {
        deep.push("d".repeat(180));
    }
    deep.push("d".repeat(4_080 - deep.as_os_str().len() - 1));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("z.json"), SimAccount::made_up("a").auth_json()).unwrap();
    symlink(deep.join("z.json"), stage.auth_dir.join("z.json")).unwrap();
    stage.look().await;
    assert_eq!(account(&stage, "a").unwrap().sources.len(), 2);
    let before = everything(&stage).await;
    let answer = post(&stage, "disable", json!({"auth_id": id(&stage, "a")})).await;
    assert_eq!(told(&answer), refusal(500, "credential_file_failed"));
    assert!(answer.text().contains("path:z.json"), "{}", answer.text());
    assert_eq!(everything(&stage).await, before);
    assert_eq!(serving(&stage, "").await, "a");
    assert_eq!(audit(&stage).await[0][2], "credential_file_failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_cannot_be_read_keeps_the_others_from_being_changed() {
    let stage = stage(&["a"]).await;
    stage.write("z.json", SimAccount::made_up("a").auth_json());
    stage.look().await;
    stage.write("z.json", half("a"));
    stage.look().await;
    let before = everything(&stage).await;
    let id = id(&stage, "a");
    for answer in [post(&stage, "disable", json!({"auth_id": id})).await, delete(&stage, &id).await]
    {
        assert_eq!(told(&answer), refusal(409, "credential_file_changed"));
        assert!(answer.text().contains("path:z.json"), "{}", answer.text());
    }
    assert_eq!(everything(&stage).await, before);
    pass_time(&stage, 6);
    stage.look().await;
    assert_eq!(done(&stage, "disable", "a").await["enabled"], false, "after the grace it is none");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_touches_no_file_and_survives_a_restart_and_the_files_return() {
    let stage = stage(&["a", "b"]).await;
    let (held, bytes) = (id(&stage, "a"), fs::read(stage.auth_dir.join("a.json")).unwrap());
    let auth = done(&stage, "pause", "a").await;
    assert_eq!((&auth["paused"], &auth["enabled"]), (&json!(true), &json!(false)));
    assert_eq!(
        (&auth["runtime_state"], &auth["reason"]),
        (&json!("unavailable"), &json!("paused"))
    );
    assert_eq!(fs::read(stage.auth_dir.join("a.json")).unwrap(), bytes);
    let stage = stage.restart(|_| ()).await;
    let paused = async |stage: &Stage| {
        get(stage, &format!("{AUTHS}/{held}")).await["auth"]["paused"] == true
    };
    assert!(paused(&stage).await, "after a restart");
    stage.remove("a.json");
    stage.look().await;
    assert_eq!(told(&post(&stage, "resume", json!({"auth_id": held})).await).0, 404);
    pass_time(&stage, 3_600);
    stage.look().await;
    stage.write("back.json", &bytes);
    stage.look().await;
    assert!(paused(&stage).await, "after its file came back");
    assert_eq!(serving(&stage, "").await, "b");
    let auth = done(&stage, "resume", "a").await;
    assert_eq!((&auth["paused"], &auth["runtime_state"]), (&json!(false), &json!("active")));
    let served = [serving(&stage, "").await, serving(&stage, "").await];
    assert!(served.contains(&"a".to_owned()), "{served:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_on_a_paused_or_removed_account_goes_on() {
    for verb in ["pause", "disable", "remove"] {
        let stage = stage(&["a"]).await;
        let stall = StreamPlan { after: Some(4), end: End::Stall, ..StreamPlan::default() };
        stage.sim.rule(Rule::new(Action::Stream(stall)).route(Route::Turn).times(1));
        let client = stage.h1();
        let request = client.request(Method::POST, "/v1/codex/responses");
        let running = client.begin(request, r#"{"model":"gpt-5.5","input":[]}"#).await.unwrap();
        if verb == "remove" {
            assert_eq!(delete(&stage, &id(&stage, "a")).await.status, StatusCode::NO_CONTENT);
        } else {
            let auth = done(&stage, verb, "a").await;
            assert_eq!(auth["active_turns"], 1, "{verb}");
            assert_eq!(auth["runtime_state"], "unavailable", "{verb}");
        }
        assert_ne!(turn(&stage, "").await.status, StatusCode::OK, "{verb}");
        stage.sim.release();
        let seen = read(running).await;
        assert!(!seen.broken && seen.text().contains("response.completed"), "{verb}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refresh_gives_new_tokens_or_says_what_to_do() {
    let stage = stage(&["a"]).await;
    let before = file(&stage, "a.json");
    done(&stage, "refresh", "a").await;
    let after = file(&stage, "a.json");
    assert_ne!(after["tokens"]["access_token"], before["tokens"]["access_token"]);
    assert_eq!(serving(&stage, "").await, "a");

    let useless = json!({"access_token": "canary\r\nx: y", "refresh_token": "canary-r"});
    stage.sim.rule(Rule::new(Action::json(200, useless)).route(Route::OauthToken).times(1));
    let by_id = json!({"auth_id": id(&stage, "a")});
    let answer = post(&stage, "refresh", by_id.clone()).await;
    assert_eq!(told(&answer), refusal(503, "account_refresh_failed"));

    pass_time(&stage, 3_600);
    stage.sim.revoke_refresh("a");
    let answer = post(&stage, "refresh", by_id).await;
    assert_eq!(told(&answer), refusal(400, "account_reauth_required"));
    assert!(answer.text().contains("codex-edge accounts login"), "{}", answer.text());
    let results: Vec<String> = audit(&stage).await.into_iter().map(|it| it[2].clone()).collect();
    assert_eq!(results, ["ok", "account_refresh_failed", "account_reauth_required"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_whose_caller_has_left_comes_to_its_end_and_is_written_down() {
    let stage = stage(&["a"]).await;
    let silence = Rule::new(Action::lose(Loss::Silence)).route(Route::OauthToken);
    stage.sim.rule(silence.times(1));
    let target = id(&stage, "a");
    let body = json!({"auth_id": target}).to_string();
    let key = operator(&stage).key.unwrap();
    let request = format!(
        "POST {AUTHS}/refresh HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let caller = raw::ask(stage.app.admin, request.as_bytes()).await;
    let asked = |seen: &[Recorded]| seen.iter().any(|it| it.route == Route::OauthToken);
    stage.sim.wait_until(asked).await;
    drop(caller);
    assert_eq!(audit(&stage).await, Vec::<[String; 3]>::new());
    stage.sim.release();
    let written = async {
        while audit(&stage).await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), written).await.unwrap();
    let row = audit(&stage).await.remove(0);
    assert_eq!(row[..2], ["auths.refresh".to_owned(), target]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rest_is_shown_with_its_end_and_can_be_ended() {
    let stage = stage(&["a"]).await;
    let now = stage.app.gateway.clock.now();
    let until = now.checked_add(jiff::SignedDuration::from_mins(10)).unwrap();
    let limit = Rule::new(Action::usage_limit_reached(until.as_second()));
    stage.sim.rule(limit.account("a").times(1));
    turn(&stage, "").await;
    let auth = get(&stage, &format!("{AUTHS}/{}", id(&stage, "a"))).await["auth"].clone();
    let cooldown = json!({"until": until.to_string(), "source": "resets_at", "kind": "quota"});
    assert_eq!(auth["cooldown"], cooldown);
    assert_eq!((&auth["runtime_state"], &auth["reason"]), (&json!("cooling"), &json!("quota")));
    assert_eq!(auth["last_error"], "quota");
    assert_ne!(turn(&stage, "").await.status, StatusCode::OK);
    let auth = done(&stage, "cooldown/clear", "a").await;
    assert_eq!((&auth["cooldown"], &auth["runtime_state"]), (&Value::Null, &json!("active")));
    assert_eq!(serving(&stage, "").await, "a");
    let stage = stage.restart(|_| ()).await;
    assert_eq!(readiness(&stage, "a"), codex_edge::domain::health::Readiness::Ready);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_account_leaves_no_file_of_it() {
    let stage = stage(&["a", "b"]).await;
    stage.write("copy.json", SimAccount::made_up("a").auth_json());
    stage.look().await;
    let gone = id(&stage, "a");
    let answer = delete(&stage, &gone).await;
    assert_eq!((answer.status, answer.body.len()), (StatusCode::NO_CONTENT, 0));
    let left = files_below(&stage.auth_dir);
    let mut left: Vec<_> = left.iter().filter_map(|it| it.0.file_name()).collect();
    left.retain(|it| it.to_string_lossy().ends_with(".json"));
    assert_eq!(left, ["b.json"]);
    assert_eq!(serving(&stage, "").await, "b");
    assert_eq!(told(&delete(&stage, &gone).await), refusal(404, "not_found"));
    let rows = audit(&stage).await;
    let row = |target: &str, result: &str| ["auths.delete", target, result].map(str::to_owned);
    assert_eq!(rows, [row(&gone, "ok"), row("-", "not_found")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_change_leaves_one_row_in_order() {
    let stage = stage(&["a"]).await;
    let target = id(&stage, "a");
    let mut wanted = Vec::new();
    for (verb, action) in VERBS {
        done(&stage, verb, "a").await;
        wanted.push([action, &target, "ok"].map(str::to_owned));
        let answer = post(&stage, verb, json!({"account_id": "canary-account"})).await;
        assert_eq!(told(&answer), refusal(404, "not_found"), "{verb}");
        wanted.push([action, "-", "not_found"].map(str::to_owned));
    }
    let users = "/v0/management/users";
    let operator = operator(&stage);
    let made = operator.post(users, r#"{"name":"ann"}"#).await.json();
    let user = made["user"]["id"].as_str().unwrap().to_owned();
    operator.post(users, r#"{"name":"ann"}"#).await;
    let path = format!("{users}/ann");
    for body in [r#"{"enabled":false}"#, r#"{"enabled":true}"#] {
        operator.send(operator.request(Method::PATCH, &path), body).await;
    }
    operator.post(&format!("{path}/api-key/reset"), "").await;
    for _ in 0..2 {
        operator.send(operator.request(Method::DELETE, &path), "").await;
    }
    let of_users = [
        ["users.create", &user, "ok"],
        ["users.create", &user, "name_taken"],
        ["users.disable", &user, "ok"],
        ["users.enable", &user, "ok"],
        ["users.reset_key", &user, "ok"],
        ["users.delete", &user, "ok"],
        ["users.delete", "-", "not_found"],
    ];
    wanted.extend(of_users.map(|row| row.map(str::to_owned)));
    assert_eq!(audit(&stage).await, wanted);
    let newest = get(&stage, "/v0/management/audit?limit=1").await;
    assert_eq!(newest["audit"].as_array().unwrap().len(), 1);
    assert_eq!(newest["audit"][0]["result"], "not_found");
    for query in ["limit=0", "limit=10001", "limit=x", "colour=1"] {
        let answer = operator.get(&format!("/v0/management/audit?{query}")).await;
        assert_eq!(told(&answer), refusal(400, "invalid_request"), "{query}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_that_only_its_file_names_serves_and_cannot_be_changed() {
    let stage = stage(&["a"]).await;
    let opaque = json!({"tokens": {"access_token": "canary-opaque", "refresh_token": "canary-r"}});
    stage.write("opaque.json", opaque.to_string());
    stage.look().await;
    serving(&stage, "s").await;
    let listed = get(&stage, AUTHS).await;
    let auths = listed["auths"].as_array().unwrap();
    let auth = auths.iter().find(|it| it["identity_state"] == "unidentified").unwrap();
    assert_eq!((&auth["manageable"], &auth["account_id"]), (&json!(false), &Value::Null));
    assert_eq!((&auth["runtime_state"], auths.len()), (&json!("active"), 2));
    let target = auth["auth_id"].as_str().unwrap();
    assert!(target.starts_with("path_"), "{target}");
    let before = everything(&stage).await;
    let mut wanted = Vec::new();
    for (verb, action) in VERBS {
        let answer = post(&stage, verb, json!({"auth_id": target})).await;
        assert_eq!(told(&answer), refusal(409, "auth_unidentified"), "{verb}");
        assert_eq!(everything(&stage).await, before, "{verb}");
        wanted.push([action, target, "auth_unidentified"].map(str::to_owned));
    }
    for name in [target, auth["label"].as_str().unwrap()] {
        assert_eq!(told(&delete(&stage, name).await), refusal(409, "auth_unidentified"));
        assert_eq!(everything(&stage).await, before);
        wanted.push(["auths.delete", target, "auth_unidentified"].map(str::to_owned));
    }
    assert_eq!(audit(&stage).await, wanted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_id_of_a_workspace_with_two_seats_names_nobody_and_its_auth_ids_do() {
    let stage = stage(&["a"]).await;
    stage.write("mate.json", in_workspace_of("mate", "a").auth_json());
    stage.look().await;
    let listed = get(&stage, AUTHS).await;
    let auths = listed["auths"].as_array().unwrap();
    assert_eq!(auths.len(), 2);
    assert_ne!(auths[0]["seat"], auths[1]["seat"]);
    let ids = [0, 1].map(|it| auths[it]["auth_id"].as_str().unwrap().to_owned());
    let workspace = SimAccount::made_up("a").account_id;
    let before = everything(&stage).await;
    let check = |answer: &Exchange| {
        assert_eq!(told(answer), refusal(409, "account_ambiguous"));
        let text = answer.text();
        let named = |it: &Value| {
            ["auth_id", "label"].iter().all(|key| text.contains(it[key].as_str().unwrap()))
        };
        assert!(auths.iter().all(named) && !text.contains(&workspace), "{text}");
    };
    for (verb, _) in VERBS {
        check(&post(&stage, verb, json!({"account_id": workspace})).await);
    }
    check(&delete(&stage, &workspace).await);
    check(&operator(&stage).get(&format!("{AUTHS}/{workspace}")).await);
    assert_eq!(everything(&stage).await, before);
    let rows = audit(&stage).await;
    assert_eq!(rows.len(), 7);
    assert!(rows.iter().all(|it| it[1] == ids.join(" ") && it[2] == "account_ambiguous"));
    let answer = post(&stage, "pause", json!({"auth_id": ids[0]})).await;
    assert_eq!(answer.json()["auth"]["paused"], true);
    let listed = get(&stage, AUTHS).await;
    assert_eq!(listed["auths"][1]["paused"], false, "the other seat is as it was");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_names_its_account_by_exactly_one_id() {
    let stage = stage(&["a"]).await;
    let (auth_id, account_id) = (id(&stage, "a"), SimAccount::made_up("a").account_id);
    let answer = post(&stage, "pause", json!({"account_id": account_id})).await;
    assert_eq!(answer.json()["auth"]["auth_id"], auth_id);
    let table = [
        json!({}),
        json!({"auth_id": auth_id, "account_id": account_id}),
        json!({"auth_id": 1}),
        json!({"auth_id": auth_id, "colour": 1}),
        json!([auth_id]),
    ];
    for body in table {
        let answer = post(&stage, "resume", body.clone()).await;
        assert_eq!(told(&answer), refusal(400, "invalid_request"), "{body}");
    }
    // A label and an account id are no auth id.
    for name in [account(&stage, "a").unwrap().label.as_str(), &account_id] {
        let answer = post(&stage, "resume", json!({"auth_id": name})).await;
        assert_eq!(told(&answer), refusal(404, "not_found"));
    }
    assert!(account(&stage, "a").unwrap().eligibility.paused);
    assert_eq!(told(&delete(&stage, "nobody").await), refusal(404, "not_found"));
    let answer = operator(&stage).get(&format!("{AUTHS}/nobody")).await;
    assert_eq!(told(&answer), refusal(404, "not_found"));
    let stranger = stage.admin().get(AUTHS).await;
    assert_eq!(told(&stranger), refusal(401, "invalid_admin_key"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_directory_is_away_it_is_told_and_nothing_is_changed() {
    let stage = stage(&["a"]).await;
    let away = stage.auth_dir.with_file_name("away");
    fs::rename(&stage.auth_dir, &away).unwrap();
    stage.look().await;
    assert_eq!(get(&stage, AUTHS).await["directory"]["state"], "auth_dir_unavailable");
    let target = id(&stage, "a");
    for answer in
        [post(&stage, "disable", json!({"auth_id": target})).await, delete(&stage, &target).await]
    {
        assert_eq!(told(&answer), refusal(503, "auth_dir_unavailable"));
        let path = stage.auth_dir.display().to_string();
        assert!(!answer.text().contains(&path), "{}", answer.text());
    }
    pass_time(&stage, 6);
    stage.look().await;
    let auth = get(&stage, &format!("{AUTHS}/{target}")).await["auth"].clone();
    assert_eq!(auth["reason"], "auth_dir_unavailable");
    assert_eq!(auth["runtime_state"], "unavailable");
    fs::rename(&away, &stage.auth_dir).unwrap();
    stage.look().await;
    assert_eq!(get(&stage, AUTHS).await["directory"]["state"], "ok");
    assert_eq!(done(&stage, "disable", "a").await["enabled"], false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answer_holds_a_secret() {
    let stage = stage(&["a"]).await;
    let canary = SimAccount::made_up("a").canary();
    let opaque = json!({"tokens": {"access_token": canary}, "email": "canary-mail@example.com"});
    stage.write("opaque.json", opaque.to_string());
    stage.write("broken.json", format!("{{\"access_token\": \"{canary}\", "));
    stage.look().await;
    let user = SimAccount::made_up("a").user_id;
    let mut answers = vec![operator(&stage).get(AUTHS).await];
    let ids: Vec<String> = {
        let snapshot = stage.app.gateway.pool.snapshot();
        snapshot.entries.iter().map(|it| it.account.id.to_string()).collect()
    };
    for id in ids {
        answers.push(operator(&stage).get(&format!("{AUTHS}/{id}")).await);
        for (verb, _) in VERBS {
            answers.push(post(&stage, verb, json!({"auth_id": id})).await);
        }
        answers.push(delete(&stage, &id).await);
    }
    answers.push(operator(&stage).get("/v0/management/audit").await);
    assert_eq!(answers.len(), 18);
    for answer in answers {
        let text = answer.text();
        assert!(!text.contains("canary") && !text.contains(&user), "{text}");
    }
}
