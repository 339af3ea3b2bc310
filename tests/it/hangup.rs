//! A client that leaves, at whatever moment, cancels upstream and costs the account nothing.

use std::time::Duration;

use codex_edge::sim::{Action, DropHead, End, Loss, Route, Rule, StreamPlan};
use http::Method;

use crate::support::stage::{Setup, Stage, all_ready, eventually};

const PATH: &str = "/v1/codex/responses";
const GOOD: &str = r#"{"model":"gpt-5.5","input":[]}"#;

/// Where upstream is when the client leaves.
fn moments() -> Vec<(&'static str, Action)> {
    let stall = |after| {
        Action::Stream(StreamPlan { after: Some(after), end: End::Stall, ..StreamPlan::default() })
    };
    vec![
        (
            "before the head",
            Action::Drop(DropHead { how: Loss::Silence, after_body_bytes: None, delay_ms: 0 }),
        ),
        ("while the stream is held", stall(1)),
        ("after the first output", stall(4)),
    ]
}

async fn leaves_no_trace(stage: &Stage, name: &str, action: Action) {
    stage.sim.reset();
    stage.sim.rule(Rule::new(action).route(Route::Turn).times(1));
    let client = stage.h1();
    let request = client.request(Method::POST, PATH);
    let asking = tokio::spawn(async move {
        let response = client.begin(request, GOOD).await?;
        crate::support::client::read(response).await;
        Ok::<_, hyper::Error>(())
    });
    stage.sim.wait_until(|seen| !seen.is_empty()).await;
    asking.abort();
    let gone = stage.sim.wait_until(|seen| seen.first().is_some_and(|it| it.client_gone()));
    let seen = tokio::time::timeout(Duration::from_secs(1), gone).await;
    let seen = seen.unwrap_or_else(|_| panic!("{name}: upstream was not cancelled in a second"));
    assert_eq!(seen.len(), 1, "{name}: nothing is repeated for a client that left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_cancels_upstream_and_gives_the_lease_back() {
    let stage = Setup::with_accounts(&["alice"]).start().await;
    for (name, action) in moments() {
        leaves_no_trace(&stage, name, action).await;
        assert!(all_ready(&stage.app), "{name}");
        // The next request is served, so the account is free and unblamed.
        assert_eq!(stage.h1().post(PATH, GOOD).await.status, 200, "{name}");
    }
    let gateway = &stage.app.gateway;
    eventually("the leases are back", || gateway.pool.active_turns() == 0).await;
    eventually("the budget is given back", || gateway.budget.used() == 0).await;
}
