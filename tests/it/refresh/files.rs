//! What a refresh leaves in the files, in the pool and in the journal.

use std::{fs, sync::Arc};

use codex_edge::{
    accounts::{
        files::{CredentialFiles, Steps},
        journal::Journal,
        refresh::{self, Refresher, Renewal},
    },
    sim::{Action, Issue, SimAccount},
};
use serde_json::{Value, json};

use super::{
    account, at_tokens, auth_dir, expired, file, journal_entries, refreshes, renew, setup, silence,
    start, token_calls,
};
use crate::support::stage::{Setup, Stage, eventually};

fn issue(omit: &[&str]) -> Issue {
    Issue { omit: omit.iter().map(|it| (*it).to_owned()).collect(), ..Issue::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_copy_gets_the_new_tokens_and_keeps_what_else_it_holds() {
    let alice = SimAccount::made_up("alice");
    let mut flat = json!({
        "type": "codex", "access_token": alice.access_token, "id_token": alice.id_token,
        "refresh_token": alice.refresh_token, "account_id": alice.account_id, "mine": 7,
    });
    flat["disabled"] = json!(true);
    let without = json!({
        "type": "codex", "access_token": alice.access_token, "account_id": alice.account_id,
    });
    let files = vec![
        ("alice.json".to_owned(), alice.auth_json()),
        ("copy.json".to_owned(), flat.to_string().into_bytes()),
        ("only-access.json".to_owned(), without.to_string().into_bytes()),
    ];
    let stage =
        Setup { auth_files: Some(files), ..setup(vec![alice.clone()], vec![]) }.start().await;
    let Renewal::Fresh(fresh) = renew(&stage, "alice").await else { panic!("not renewed") };
    let held = fresh.credential.access.expose().to_owned();
    assert_ne!(held, alice.access_token);
    let (main, copy) = (file(&stage, "alice.json"), file(&stage, "copy.json"));
    assert_eq!(main["tokens"]["access_token"], json!(held));
    assert_eq!((&copy["access_token"], &copy["mine"]), (&json!(held), &json!(7)));
    assert_eq!(copy["disabled"], json!(true));
    assert_eq!(main["tokens"]["refresh_token"], copy["refresh_token"]);
    let only = file(&stage, "only-access.json");
    assert_eq!(only["access_token"], json!(held));
    assert_eq!(journal_entries(&stage), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_answer_lacks_stays_as_it_was() {
    for omit in ["refresh_token", "id_token"] {
        let rule = at_tokens(Action::Issue(issue(&[omit]))).times(1);
        let stage = setup(vec![SimAccount::made_up("alice")], vec![rule]).start().await;
        let before = file(&stage, "alice.json");
        assert!(matches!(renew(&stage, "alice").await, Renewal::Fresh(_)), "{omit}");
        let after = file(&stage, "alice.json");
        assert_eq!(after["tokens"][omit], before["tokens"][omit], "{omit}");
        assert_ne!(after["tokens"]["access_token"], before["tokens"]["access_token"], "{omit}");
        // The next renewal works with what is there now.
        assert!(matches!(renew(&stage, "alice").await, Renewal::Fresh(_)), "{omit}");
        assert_eq!(token_calls(&stage), 2, "{omit}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_new_tokens_tell_the_e_mail_and_the_plan() {
    let mut old = SimAccount::made_up("alice");
    let new = old.clone();
    old.email = "before@sim.example".to_owned();
    old.plan = "free".to_owned();
    old.access_token = old.mint_access(0, 4_000_000_000);
    old.id_token = old.mint_id(4_000_000_000);
    let files = vec![("alice.json".to_owned(), old.auth_json())];
    let stage = Setup { auth_files: Some(files), ..setup(vec![new], vec![]) }.start().await;
    let shown = |stage: &Stage| {
        let account = account(stage, "alice").unwrap();
        (account.email.as_ref().unwrap().to_string(), account.plan.clone().unwrap())
    };
    assert_eq!(shown(&stage), ("b***@sim.example".to_owned(), "free".to_owned()));
    assert!(matches!(renew(&stage, "alice").await, Renewal::Fresh(_)));
    assert_eq!(shown(&stage), ("a***@sim.example".to_owned(), "pro".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_another_account_replace_it_in_its_file_and_nowhere_else() {
    let other = Issue { account: Some("bob".to_owned()), ..Issue::default() };
    let alice = expired("alice");
    let accounts = vec![alice.clone(), SimAccount::made_up("bob"), SimAccount::made_up("carol")];
    let mut copy: Value = serde_json::from_slice(&alice.auth_json()).unwrap();
    copy["last_refresh"] = json!("2001-01-01T00:00:00Z");
    let copy = copy.to_string().into_bytes();
    let carol = SimAccount::made_up("carol").auth_json();
    let files = vec![
        ("alice.json".to_owned(), alice.auth_json()),
        ("copy.json".to_owned(), copy.clone()),
        ("carol.json".to_owned(), carol.clone()),
    ];
    let rules = vec![at_tokens(Action::Issue(other)).times(1)];
    let stage = Setup { auth_files: Some(files), ..setup(accounts, rules) }.start().await;
    let bob = SimAccount::made_up("bob");

    let renewal = renew(&stage, "alice").await;
    assert!(matches!(renewal, Renewal::Gone | Renewal::NeedsLogin), "{renewal:?}");
    eventually("it is counted", || refreshes(&stage, "other_account") == 1).await;
    let replaced = file(&stage, "alice.json");
    assert_eq!(replaced["tokens"]["account_id"], json!(bob.account_id));
    assert!(account(&stage, "bob").is_some());
    assert_eq!(fs::read(auth_dir(&stage).join("copy.json")).unwrap(), copy);
    assert_eq!(fs::read(auth_dir(&stage).join("carol.json")).unwrap(), carol);
    assert!(account(&stage, "alice").is_some(), "the copy is still its own");
    assert_eq!(journal_entries(&stage), 0);
}

/// The largest file that is read, for this account: one byte more cannot be written.
fn full(account: &SimAccount) -> Value {
    let mut full: Value = serde_json::from_slice(&account.auth_json()).unwrap();
    full["last_refresh"] = json!("2001-01-01T00:00:00Z");
    full["padding"] = json!("");
    let room = (1 << 20) - full.to_string().len();
    full["padding"] = json!("x".repeat(room));
    full
}

/// A stage whose only account is in a file that cannot be written.
async fn stage_that_cannot_write(alice: &SimAccount) -> Stage {
    let files = vec![("alice.json".to_owned(), full(alice).to_string().into_bytes())];
    let setup = setup(vec![alice.clone()], vec![]);
    Setup { auth_files: Some(files), ..setup }.start().await
}

/// The same file, with room.
fn roomy(alice: &SimAccount) -> String {
    let mut file = full(alice);
    file["padding"] = json!("");
    file.to_string()
}

fn held(stage: &Stage) -> Value {
    json!(account(stage, "alice").unwrap().credential.access.expose())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_written_serves_from_memory_and_is_written_later() {
    let alice = SimAccount::made_up("alice");
    let stage = stage_that_cannot_write(&alice).await;
    let before = file(&stage, "alice.json");
    stage.sim.revoke_access("alice");

    assert_eq!(start(&stage).await.unwrap().status, 200);
    assert_eq!(file(&stage, "alice.json"), before);
    assert_eq!((refreshes(&stage, "not_persisted"), journal_entries(&stage)), (1, 1));
    assert_eq!(start(&stage).await.unwrap().status, 200);
    // What is in memory can be renewed as well.
    stage.sim.revoke_access("alice");
    assert_eq!(start(&stage).await.unwrap().status, 200);
    assert_eq!((token_calls(&stage), journal_entries(&stage)), (2, 2));

    super::replace(&stage, "alice.json", roomy(&alice).as_bytes());
    stage.app.accounts.refresher.tick().await;
    assert_eq!(file(&stage, "alice.json")["tokens"]["access_token"], held(&stage));
    assert_eq!(journal_entries(&stage), 0);
    assert_eq!(start(&stage).await.unwrap().status, 200);
    assert_eq!(token_calls(&stage), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_owed_may_be_written_while_its_successor_is_on_its_way() {
    let alice = SimAccount::made_up("alice");
    let stage = stage_that_cannot_write(&alice).await;
    assert!(matches!(renew(&stage, "alice").await, Renewal::Fresh(_)));
    let owed = held(&stage);
    stage.sim.rule(silence());
    let renewing = {
        let refresher = stage.app.accounts.refresher.clone();
        let account = account(&stage, "alice").unwrap();
        let reason = codex_edge::accounts::oauth::RefreshReason::UnauthorizedRecovery;
        tokio::spawn(async move { refresher.renew(&account, reason).await })
    };
    eventually("it asks", || token_calls(&stage) == 2).await;
    super::replace(&stage, "alice.json", roomy(&alice).as_bytes());
    stage.app.accounts.refresher.tick().await;
    assert_eq!(file(&stage, "alice.json")["tokens"]["access_token"], owed);
    stage.sim.release();
    assert!(matches!(renewing.await.unwrap(), Renewal::Fresh(_)));
    assert_ne!(held(&stage), owed);
    assert_eq!(file(&stage, "alice.json")["tokens"]["access_token"], held(&stage));
    assert_eq!(journal_entries(&stage), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_away_for_a_moment_gets_its_tokens_when_it_is_back() {
    let alice = SimAccount::made_up("alice");
    let stage = setup(vec![alice.clone()], vec![silence()]).start().await;
    let renewing = {
        let refresher = stage.app.accounts.refresher.clone();
        let account = account(&stage, "alice").unwrap();
        let reason = codex_edge::accounts::oauth::RefreshReason::UnauthorizedRecovery;
        tokio::spawn(async move { refresher.renew(&account, reason).await })
    };
    eventually("it asks", || token_calls(&stage) == 1).await;
    fs::remove_file(auth_dir(&stage).join("alice.json")).unwrap();
    stage.sim.release();
    renewing.await.unwrap();
    eventually("it is owed", || refreshes(&stage, "not_persisted") == 1).await;
    assert_eq!(journal_entries(&stage), 1);
    super::replace(&stage, "alice.json", &alice.auth_json());
    stage.app.accounts.refresher.tick().await;
    let held = file(&stage, "alice.json")["tokens"]["refresh_token"].clone();
    assert_ne!(held, json!(alice.refresh_token));
    assert_eq!(journal_entries(&stage), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_written_outlasts_a_restart() {
    let alice = SimAccount::made_up("alice");
    let stage = stage_that_cannot_write(&alice).await;
    stage.sim.revoke_access("alice");
    assert_eq!(start(&stage).await.unwrap().status, 200);
    let token = held(&stage);

    let stage = stage.restart(|_| ()).await;
    assert_eq!((held(&stage), journal_entries(&stage)), (token.clone(), 1));
    assert_eq!(start(&stage).await.unwrap().status, 200);
    // It is renewed from there, and written once there is room.
    stage.sim.revoke_access("alice");
    assert_eq!(start(&stage).await.unwrap().status, 200);
    assert_eq!((token_calls(&stage), refreshes(&stage, "not_persisted")), (2, 1));
    let renewed = held(&stage);
    assert_ne!(renewed, token);

    let stage = stage.restart(|dir| std::fs::write(dir.join("alice.json"), roomy(&alice)).unwrap());
    let stage = stage.await;
    assert_eq!(file(&stage, "alice.json")["tokens"]["access_token"], renewed);
    assert_eq!((held(&stage), journal_entries(&stage)), (renewed, 0));
    assert_eq!(start(&stage).await.unwrap().status, 200);
    assert_eq!(token_calls(&stage), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_refresh_token_under_two_accounts_is_traded_in_once() {
    let alice = SimAccount::made_up("alice");
    let mut other: Value = serde_json::from_slice(&alice.auth_json()).unwrap();
    other["tokens"]["account_id"] = json!("another-workspace");
    let files = vec![
        ("alice.json".to_owned(), alice.auth_json()),
        ("other.json".to_owned(), other.to_string().into_bytes()),
    ];
    let setup = setup(vec![alice], vec![silence()]);
    let stage = Setup { auth_files: Some(files), ..setup }.start().await;
    let snapshot = stage.app.gateway.pool.snapshot();
    assert_eq!(snapshot.entries.len(), 2);
    let renewing = snapshot.entries.iter().map(|it| {
        let (refresher, account) = (stage.app.accounts.refresher.clone(), Arc::clone(&it.account));
        let reason = codex_edge::accounts::oauth::RefreshReason::UnauthorizedRecovery;
        tokio::spawn(async move { refresher.renew(&account, reason).await })
    });
    let renewing: Vec<_> = renewing.collect();
    eventually("one of them asks", || token_calls(&stage) == 1).await;
    stage.sim.release();
    for renewing in renewing {
        assert!(matches!(renewing.await.unwrap(), Renewal::Fresh(_)));
    }
    assert_eq!(token_calls(&stage), 1);
    let (one, two) = (file(&stage, "alice.json"), file(&stage, "other.json"));
    assert_eq!(one["tokens"]["refresh_token"], two["tokens"]["refresh_token"]);
    assert_eq!(two["tokens"]["account_id"], json!("another-workspace"));
}

/// Another process with the same directories, as at a hand-over.
fn second(stage: &Stage) -> Refresher {
    let accounts = &stage.app.accounts;
    let journal = Journal::open(&stage.data_dir, Steps::default()).unwrap();
    Refresher::new(refresh::Parts {
        config: Arc::clone(&accounts.config),
        oauth: accounts.oauth.clone(),
        files: CredentialFiles::new(auth_dir(stage), true, Steps::default()),
        journal,
        reconciler: accounts.reconciler.clone(),
        pool: Arc::clone(&accounts.pool),
        metrics: Arc::clone(&accounts.metrics),
        clock: accounts.clock.clone(),
        tasks: accounts.tasks.clone(),
        steps: Steps::default(),
        unpersisted: Vec::new(),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_on_one_directory_refresh_once() {
    let stage = setup(vec![SimAccount::made_up("alice")], vec![silence()]).start().await;
    let old = account(&stage, "alice").unwrap();
    let reason = codex_edge::accounts::oauth::RefreshReason::UnauthorizedRecovery;
    let renewing = [stage.app.accounts.refresher.clone(), second(&stage)].map(|refresher| {
        let old = Arc::clone(&old);
        tokio::spawn(async move { refresher.renew(&old, reason).await })
    });
    eventually("one of them asks", || token_calls(&stage) == 1).await;
    stage.sim.release();
    for renewing in renewing {
        assert!(matches!(renewing.await.unwrap(), Renewal::Fresh(_)));
    }
    assert_eq!(token_calls(&stage), 1);
    assert_eq!((refreshes(&stage, "refreshed"), refreshes(&stage, "adopted")), (1, 1));
}
