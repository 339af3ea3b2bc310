//! The directory as a whole: out of reach, changed while nobody looked, or shared.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use codex_edge::{
    domain::health::Readiness,
    sim::{Action, Rule, SimAccount},
};

use crate::support::stage::{eventually, write};

use super::{account, id, pass_time, readiness, serving, stage, turn};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_is_out_of_reach_stops_new_work_and_deletes_nothing() {
    let stage = stage(&["a", "b"]).await;
    let first = serving(&stage, "s").await;
    let away = stage.auth_dir.with_extension("away");
    fs::rename(&stage.auth_dir, &away).unwrap();
    stage.look().await;
    assert!(!stage.app.accounts.reconciler.view().available);
    assert_eq!(serving(&stage, "s").await, first, "the grace has begun");
    pass_time(&stage, 6);
    stage.look().await;
    let seen = turn(&stage, "s").await;
    assert_eq!((seen.status.as_u16(), seen.code().as_str()), (503, "no_account_available"));
    assert!(account(&stage, &first).unwrap().eligibility.out_of_sight);
    pass_time(&stage, 3_600);
    stage.look().await;
    fs::rename(&away, &stage.auth_dir).unwrap();
    stage.look().await;
    assert!(stage.app.accounts.reconciler.view().available);
    assert_eq!(serving(&stage, "s").await, first, "the session was kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_directory_of_the_same_name_is_watched_too() {
    let stage = stage(&["a"]).await;
    fs::rename(&stage.auth_dir, stage.auth_dir.with_extension("away")).unwrap();
    fs::create_dir(&stage.auth_dir).unwrap();
    stage.look().await;
    assert!(account(&stage, "a").is_none());
    let bob = SimAccount::made_up("b");
    stage.sim.add_account(bob.clone());
    stage.write("b.json", bob.auth_json());
    eventually("it is seen", || account(&stage, "b").is_some()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_remembers_sessions_and_limits() {
    let stage = stage(&["a", "b"]).await;
    let first = serving(&stage, "s").await;
    let resets_at = stage.app.gateway.clock.now().as_second() + 600;
    let limit = Rule::new(Action::usage_limit_reached(resets_at)).account(&first);
    stage.sim.rule(limit.times(1));
    let second = serving(&stage, "s").await;
    assert_ne!(first, second);
    let stage = stage.restart(|_| ()).await;
    assert!(matches!(readiness(&stage, &first), Readiness::Cooling { .. }));
    assert_eq!(readiness(&stage, &second), Readiness::Ready);
    pass_time(&stage, 601);
    assert_eq!(readiness(&stage, &first), Readiness::Ready);
    for _ in 0..2 {
        assert_eq!(serving(&stage, "s").await, second, "the session stays");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_swapped_while_nobody_looked_gets_nothing_of_what_was_there() {
    let stage = stage(&["a"]).await;
    assert_eq!(serving(&stage, "s").await, "a");
    let (before, bob) = (id(&stage, "a"), SimAccount::made_up("b"));
    stage.sim.add_account(bob.clone());
    let swap = |name: &'static str| {
        move |folder: &std::path::Path| {
            let bytes = SimAccount::made_up(name).auth_json();
            write(&folder.join("a.json"), bytes);
        }
    };
    let stage = stage.restart(swap("b")).await;
    let sessions = || stage.app.gateway.sessions.count_by_account(stage.app.gateway.clock.now());
    assert!(account(&stage, "a").is_none() && sessions().is_empty());
    assert_eq!(serving(&stage, "s").await, "b");
    // In time the account before comes back with what is its own; the session has moved on.
    let stage = stage.restart(swap("a")).await;
    assert_eq!(id(&stage, "a"), before);
    assert_eq!(serving(&stage, "s").await, "a");
    // Whoever stays away is forgotten, also beyond restarts.
    let stage = stage.restart(swap("b")).await;
    pass_time(&stage, 61);
    stage.look().await;
    let stage = stage.restart(swap("a")).await;
    let sessions = stage.app.gateway.sessions.count_by_account(stage.app.gateway.clock.now());
    assert!(sessions.is_empty(), "{sessions:?}");
    assert_eq!(id(&stage, "a"), before, "the account itself is the same");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_gateway_on_one_directory_is_told_to_use_another() {
    let stage = stage(&["a"]).await;
    let told = stage.start_another().await;
    assert!(told.contains("auth.dir") && told.contains("another codex-edge"), "{told}");
    assert_eq!(serving(&stage, "").await, "a", "the first goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_waits_for_what_must_not_be_broken_off() {
    let stage = stage(&["a"]).await;
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let done = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&done);
    stage.app.accounts.tasks.finish(async move {
        ended.await.unwrap();
        told.store(true, Ordering::Relaxed);
    });
    let gateway = Arc::clone(&stage.app.gateway);
    let stopping = tokio::spawn(stage.restart(move |_| assert!(done.load(Ordering::Relaxed))));
    eventually("it drains", || gateway.is_draining()).await;
    drop(gateway);
    end.send(()).unwrap();
    let stage = stopping.await.unwrap();
    assert_eq!(serving(&stage, "").await, "a");
}
