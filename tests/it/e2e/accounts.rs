//! A turn goes on while the files of its account change underneath.

use std::{fs, path::Path, process::Command};

use codex_edge::sim::{Action, Ended, Route, Rule};
use serde_json::{Value, json};

use super::{HELLO, client, stage_of};
use crate::support::client::{Client, Wire};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_outlives_new_tokens_a_rename_and_a_second_copy() {
    let stage = stage_of(&["alice"]).await;
    let pipe = stage.data_dir.join("turn-waits-here");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let call = Rule::new(Action::command(&format!("cat {}", pipe.display())));
    stage.sim.rule(call.route(Route::Turn).nth(1));

    let user = client(&stage);
    let turn = tokio::spawn(async move { user.exec(&["hi"]).await });
    stage
        .sim
        .wait_until(|all| {
            all.iter().any(|it| it.route == Route::Responses && it.ended != Ended::Open)
        })
        .await;

    // Another program refreshes the login: the old token is worth nothing from here on.
    stage.sim.revoke_access("alice");
    let old = stage.auth_dir.join("alice.json");
    let renewed = refreshed_elsewhere(&stage.sim.origin(), &old).await;
    fs::write(&old, renewed.to_string()).unwrap();
    fs::create_dir(stage.auth_dir.join("team")).unwrap();
    fs::rename(&old, stage.auth_dir.join("team/moved.json")).unwrap();
    fs::copy(stage.auth_dir.join("team/moved.json"), stage.auth_dir.join("copy.json")).unwrap();
    stage.app.accounts.reconciler.look().await;

    let [entry] = &stage.app.gateway.pool.snapshot().entries[..] else {
        unreachable!("two files of one account")
    };
    assert_eq!(entry.account.sources.len(), 2);
    tokio::task::spawn_blocking(move || fs::write(pipe, "go on\n")).await.unwrap().unwrap();

    turn.await.unwrap().assert_answered(HELLO);
    let seen = stage.sim.requests();
    let bearers: Vec<String> = seen
        .iter()
        .filter(|it| it.route == Route::Responses)
        .map(|it| it.header("authorization").unwrap())
        .collect();
    let token = renewed["tokens"]["access_token"].as_str().unwrap();
    let alice = stage.sim.account("alice").unwrap();
    let wanted = [format!("Bearer {}", alice.access_token), format!("Bearer {token}")];
    assert_eq!(bearers, wanted, "the token before, then the one after; nothing was refused");
}

/// What the file holds after a program of its own has traded its refresh token in.
async fn refreshed_elsewhere(origin: &str, file: &Path) -> Value {
    let mut auth: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let address = origin.trim_start_matches("http://").parse().unwrap();
    let service = Client { address, wire: Wire::H1, key: None, ca: None };
    let body = json!({
        "client_id": "app_EMoamEEZ73f0CkXaXp7hrann", "grant_type": "refresh_token",
        "refresh_token": auth["tokens"]["refresh_token"],
    });
    let answer = service.post("/oauth/token", body.to_string()).await;
    let tokens: Value = serde_json::from_slice(&answer.body).unwrap();
    for name in ["id_token", "access_token", "refresh_token"] {
        auth["tokens"][name] = tokens[name].clone();
    }
    auth
}
