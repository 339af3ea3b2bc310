//! A session stays with its account, and moves only to one that has proved itself.

use codex_edge::sim::{Action, End, Recorded, Rule};
use http::Method;
use serde_json::json;

use crate::support::stage::{Setup, Stage};

const PATH: &str = "/v1/codex/responses";

async fn stage() -> Stage {
    Setup::with_accounts(&["a", "b", "c"]).start().await
}

/// One turn of a session; gives the request that upstream answered.
async fn turn(stage: &Stage, session: &str, model: &str, headers: &[(&str, &str)]) -> Recorded {
    let client = stage.h1();
    let mut request = client.request(Method::POST, PATH).header("session-id", session);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = json!({"model": model, "prompt_cache_key": session, "input": []});
    let seen = client.send(request, body.to_string()).await;
    assert_eq!(seen.status, 200, "{}", seen.text());
    stage.sim.requests().pop().unwrap()
}

async fn account(stage: &Stage, session: &str, model: &str) -> String {
    turn(stage, session, model, &[]).await.account.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_stays_with_its_account_whatever_the_model() {
    let stage = stage().await;
    let first = account(&stage, "s", "gpt-5.5").await;
    for model in ["gpt-6.2-sol", "gpt-5.5", "gpt-5.6-sol"] {
        account(&stage, "another", model).await;
        assert_eq!(account(&stage, "s", model).await, first, "{model}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_moves_after_the_success_of_another_account_only() {
    let stage = stage().await;
    let first = account(&stage, "s", "gpt-5.5").await;
    // Everybody fails: the session stays where it was.
    stage.sim.rule(Rule::new(Action::end_after(1, End::Eof)));
    let client = stage.h1();
    let request = client.request(Method::POST, PATH).header("session-id", "s");
    client.send(request, r#"{"model":"gpt-5.5"}"#).await;
    stage.sim.reset();
    assert_eq!(account(&stage, "s", "gpt-5.5").await, first);
    // The account runs into its limit: the one that answers holds the session from then on.
    let limit = Action::usage_limit_reached(stage.app.gateway.clock.now().as_second() + 600);
    stage.sim.rule(Rule::new(limit).account(&first));
    let second = account(&stage, "s", "gpt-5.5").await;
    assert_ne!(second, first);
    assert_eq!(account(&stage, "s", "gpt-5.5").await, second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_state_never_goes_to_another_account() {
    let stage = stage().await;
    let client = stage.h1();
    let request = client.request(Method::POST, PATH).header("session-id", "s");
    let seen = client.send(request, r#"{"model":"gpt-5.5"}"#).await;
    let state = seen.headers["x-codex-turn-state"].to_str().unwrap().to_owned();
    let first = stage.sim.requests()[0].account.clone().unwrap();
    let carried = [("x-codex-turn-state", state.as_str())];

    let again = turn(&stage, "s", "gpt-5.5", &carried).await;
    assert_eq!(again.account.as_deref(), Some(first.as_str()));
    assert_eq!(again.header("x-codex-turn-state").as_deref(), Some(state.as_str()));

    let limit = Action::usage_limit_reached(stage.app.gateway.clock.now().as_second() + 600);
    stage.sim.rule(Rule::new(limit).account(&first));
    let moved = turn(&stage, "s", "gpt-5.5", &carried).await;
    assert_ne!(moved.account.as_deref(), Some(first.as_str()));
    assert_eq!(moved.header("x-codex-turn-state"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_without_a_session_go_round() {
    let stage = stage().await;
    for _ in 0..6 {
        let seen = stage.h1().post(PATH, r#"{"model":"gpt-5.5"}"#).await;
        assert_eq!(seen.status, 200);
    }
    let turns = stage.sim.requests();
    for name in ["a", "b", "c"] {
        let share = turns.iter().filter(|it| it.account.as_deref() == Some(name)).count();
        assert_eq!(share, 2, "{name}");
    }
}
