//! Passing trouble with the sign-in service, and clocks that are off.

use codex_edge::{
    accounts::refresh::Renewal,
    clock::Clock,
    sim::{Action, Issue, Loss, SimAccount},
};
use jiff::SignedDuration;

use super::{
    LONG_AGO, account, at_tokens, ending, expired, refreshes, refused, renew, setup, start,
    token_calls, turns,
};
use crate::support::stage::{Setup, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_token_cannot_be_renewed_another_account_serves_and_later_it_serves_again() {
    let clock = Clock::manual(Clock::system().now());
    let accounts = ["alice", "bob"].map(SimAccount::made_up).to_vec();
    let setup = setup(accounts, vec![at_tokens(refused(503, "canary"))]);
    let stage = Setup { clock: clock.clone(), ..setup }.start().await;
    stage.sim.revoke_access("alice");
    for _ in 0..4 {
        assert_eq!(start(&stage).await.unwrap().status, 200);
    }
    assert_eq!(token_calls(&stage), 3, "three tries of one renewal");
    assert_eq!(refreshes(&stage, "passing"), 1);
    stage.sim.reset();
    clock.advance(SignedDuration::from_mins(1));
    for _ in 0..2 {
        assert_eq!(start(&stage).await.unwrap().status, 200);
    }
    let served = |name: &str| turns(&stage).iter().any(|it| it.account.as_deref() == Some(name));
    assert!(served("alice") && served("bob"));
    assert_eq!(refreshes(&stage, "refreshed"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alone_an_account_that_cannot_be_renewed_asks_for_patience() {
    for (status, body) in [(403, "<html>canary</html>"), (404, ""), (429, "{}"), (401, "<html>")] {
        let answer = codex_edge::sim::Answer {
            status,
            body: Some(body.to_owned()),
            ..codex_edge::sim::Answer::default()
        };
        let rules = vec![at_tokens(Action::Answer(answer))];
        let stage = setup(vec![SimAccount::made_up("alice")], rules).start().await;
        stage.sim.revoke_access("alice");
        let seen = start(&stage).await.unwrap();
        assert_eq!((seen.status.as_u16(), seen.code().as_str()), (503, "account_refresh_failed"));
        assert_eq!(seen.headers["retry-after"], "5");
        assert!(!seen.text().contains("canary"));
        assert_eq!(token_calls(&stage), 1, "{status} is not asked again at once");
        // Nothing is held against it for good.
        stage.sim.reset();
        let pool = &stage.app.gateway.pool;
        let census = pool.census(&pool.snapshot(), stage.app.gateway.clock.now());
        assert!(!matches!(census[0].1, codex_edge::domain::health::Readiness::NeedsLogin));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_token_that_cannot_be_renewed_is_tried_all_the_same() {
    let rules = vec![at_tokens(refused(500, "canary"))];
    let stage = setup(vec![expired("alice")], rules).start().await;
    for _ in 0..3 {
        assert_eq!(start(&stage).await.unwrap().status, 200);
    }
    assert_eq!(token_calls(&stage), 3, "three tries of one renewal, and then a rest");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_did_not_hear_is_asked_again() {
    let rules = vec![at_tokens(refused(502, "canary")).times(2)];
    let stage = setup(vec![SimAccount::made_up("alice")], rules).start().await;
    assert!(matches!(renew(&stage, "alice").await, Renewal::Fresh(_)));
    assert_eq!(token_calls(&stage), 3);
    let lost = vec![at_tokens(Action::lose(Loss::Reset)).times(1)];
    let stage = setup(vec![SimAccount::made_up("alice")], lost).start().await;
    assert!(matches!(renew(&stage, "alice").await, Renewal::Passing));
    assert_eq!(token_calls(&stage), 1, "it may have heard");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_years_ahead_makes_one_refresh_and_no_loop() {
    let now = Clock::system().now();
    let ahead = now + SignedDuration::from_hours(24 * 400);
    let clock = Clock::manual(ahead);
    let accounts = vec![ending("alice", now.as_second() + 864_000)];
    let stage = Setup { clock: clock.clone(), ..setup(accounts, vec![]) }.start().await;
    for _ in 0..3 {
        assert_eq!(start(&stage).await.unwrap().status, 200);
    }
    assert_eq!(token_calls(&stage), 1);
    // The service's date has shown how far the clock is off.
    clock.advance(SignedDuration::from_hours(1));
    stage.app.accounts.refresher.tick().await;
    assert_eq!(start(&stage).await.unwrap().status, 200);
    assert_eq!(token_calls(&stage), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_that_never_get_younger_are_not_renewed_again_and_again() {
    // Without a date nobody knows which clock is wrong.
    let stale = Issue {
        life_s: Some(LONG_AGO - 2_000_000_000),
        headers: vec![("date".to_owned(), "nonsense".to_owned())],
        ..Issue::default()
    };
    let rules = vec![at_tokens(Action::Issue(stale))];
    let stage = setup(vec![expired("alice")], rules).start().await;
    for _ in 0..5 {
        assert_eq!(start(&stage).await.unwrap().status, 200);
    }
    stage.app.accounts.refresher.tick().await;
    assert_eq!(token_calls(&stage), 1);
    // A refusal is another matter.
    stage.sim.revoke_access("alice");
    assert_eq!(start(&stage).await.unwrap().status, 200);
    assert_eq!(token_calls(&stage), 2);
    eventually("it is in the pool", || account(&stage, "alice").is_some()).await;
}
