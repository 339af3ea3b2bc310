//! Tokens are renewed before they end, for every account that can still be used.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use codex_edge::{
    clock::Clock,
    sim::{SimAccount, SimConfig},
};
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{at_tokens, ending, expired, refreshes, refused, seen, setup, token_calls};
use crate::support::stage::{Setup, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_renewed_shortly_before_they_end_and_not_sooner() {
    let now = Clock::system().now();
    let clock = Clock::manual(now);
    let accounts = vec![ending("alice", now.as_second() + 3_600)];
    let stage = Setup { clock: clock.clone(), ..setup(accounts, vec![]) }.start().await;
    let refresher = &stage.app.accounts.refresher;
    clock.advance(SignedDuration::from_mins(53));
    refresher.tick().await;
    assert_eq!(token_calls(&stage), 0);
    clock.advance(SignedDuration::from_mins(2));
    refresher.tick().await;
    eventually("it was renewed", || refreshes(&stage, "refreshed") == 1).await;
    let body = seen(&stage, codex_edge::sim::Route::OauthToken).remove(0).body;
    assert!(body.ends_with(br#""refresh_reason":"proactive_expiry"}"#));
    refresher.tick().await;
    assert_eq!(token_calls(&stage), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opaque_tokens_are_renewed_after_eight_days() {
    let now = Clock::system().now();
    let clock = Clock::manual(now);
    let mut alice = SimAccount::made_up("alice");
    alice.access_token = format!("opaque-{}", alice.canary());
    let mut file: Value = serde_json::from_slice(&alice.auth_json()).unwrap();
    file["last_refresh"] = json!(now.to_string());
    let files = vec![("alice.json".to_owned(), file.to_string().into_bytes())];
    let setup = setup(vec![alice], vec![]);
    let stage = Setup { clock: clock.clone(), auth_files: Some(files), ..setup }.start().await;
    let refresher = &stage.app.accounts.refresher;
    clock.advance(SignedDuration::from_hours(8 * 24 - 1));
    refresher.tick().await;
    assert_eq!(token_calls(&stage), 0);
    clock.advance(SignedDuration::from_hours(1));
    refresher.tick().await;
    eventually("it was renewed", || refreshes(&stage, "refreshed") == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accounts_that_are_switched_off_or_paused_are_renewed_too() {
    let accounts = vec![expired("alice"), expired("bob")];
    let mut off: Value = serde_json::from_slice(&accounts[0].auth_json()).unwrap();
    off["disabled"] = json!(true);
    let files = vec![
        ("alice.json".to_owned(), off.to_string().into_bytes()),
        ("bob.json".to_owned(), SimAccount::made_up("bob").auth_json()),
    ];
    let stage = Setup { auth_files: Some(files), ..setup(accounts, vec![]) }.start().await;
    let bob = super::account(&stage, "bob").unwrap();
    stage.app.accounts.reconciler.set_paused(&bob.id, true).await.unwrap();
    super::replace(&stage, "bob.json", &expired("bob").auth_json());
    stage.app.accounts.reconciler.look().await;
    assert!(super::account(&stage, "bob").unwrap().eligibility.paused);
    stage.app.accounts.refresher.tick().await;
    eventually("both were renewed", || refreshes(&stage, "refreshed") == 2).await;
    assert!(super::account(&stage, "alice").unwrap().eligibility.disabled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accounts_that_expire_together_are_renewed_one_after_the_other() {
    let names: Vec<String> = (0..20).map(|at| format!("acct{at:02}")).collect();
    let now = Clock::system().now();
    let clock = Clock::manual(now);
    let end = now.as_second() + 3_600;
    let accounts = names.iter().map(|it| ending(it, end)).collect();
    let sim = SimConfig { accounts, ..SimConfig::default() };
    let setup = Setup { sim, clock: clock.clone(), ..Setup::with_accounts(&[]) };
    let toml = "[auth]\nrefresh_spacing = \"50ms\"\nrefresh_parallel = 2";
    let stage = setup.toml(toml).start().await;
    clock.advance(SignedDuration::from_hours(1));
    stage.app.accounts.refresher.tick().await;
    let starts = RefCell::new(Vec::new());
    let all_began = || {
        let (mut starts, now) = (starts.borrow_mut(), Instant::now());
        let calls = token_calls(&stage);
        while starts.len() < calls {
            starts.push(now);
        }
        calls == 20
    };
    eventually("all were asked for", all_began).await;
    let starts = starts.into_inner();
    let took = *starts.last().unwrap() - starts[0];
    assert!(took.as_millis() >= 18 * 50, "{took:?}");
    eventually("all were renewed", || refreshes(&stage, "refreshed") == 20).await;
    assert_eq!(token_calls(&stage), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_failed_rests_longer_each_time() {
    let clock = Clock::manual(Clock::system().now());
    let rules = vec![at_tokens(refused(429, "canary"))];
    let stage =
        Setup { clock: clock.clone(), ..setup(vec![expired("alice")], rules) }.start().await;
    let refresher = &stage.app.accounts.refresher;
    for (at, seconds) in [0, 30, 60, 120, 240].into_iter().enumerate() {
        if seconds > 0 {
            clock.advance(SignedDuration::from_secs(seconds - 1));
            refresher.tick().await;
            assert_eq!(refreshes(&stage, "passing"), at, "before its time");
            clock.advance(SignedDuration::from_secs(1));
        }
        // The renewal before may be just about to land; then nothing new begins.
        let trying = async {
            while refreshes(&stage, "passing") == at {
                refresher.tick().await;
                tokio::task::yield_now().await;
            }
        };
        assert!(timeout(Duration::from_secs(5), trying).await.is_ok(), "it was not tried");
    }
}
