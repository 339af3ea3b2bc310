//! What turns are made of: tool calls, and sessions that go on.

use codex_edge::sim::{Action, Recorded, Route, Rule};

use super::{HELLO, POOL, client, client_with, decoded, stage, stage_of, turns};

/// The first answer of a turn runs a command; the client brings what it printed.
async fn a_command_is_run(accounts: &[&str], model: &str) {
    let stage = stage_of(accounts).await;
    let call = Rule::new(Action::command("echo tool-$((40+2))"));
    stage.sim.rule(call.route(Route::Turn).nth(1));

    let run = client_with(&stage, &stage.key, model, "").exec(&["hi"]).await;

    run.assert_answered(HELLO);
    let [first, second] = &turns(&stage).await[..] else { unreachable!("{model}: two requests") };
    assert!(!decoded(first).contains("tool-42"));
    assert!(decoded(second).contains("tool-42"), "{model}");
    for name in ["session-id", "thread-id"] {
        assert!(first.header(name).is_some());
        assert_eq!(first.header(name), second.header(name));
    }
    assert_eq!(turn_id(first), turn_id(second));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_command_printed_goes_back_up_in_the_same_turn() {
    for model in ["gpt-5.5", "gpt-6.2-sol"] {
        a_command_is_run(&["alice"], model).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_command_printed_goes_back_up_whichever_account_is_next() {
    for model in ["gpt-5.5", "gpt-6.2-sol"] {
        a_command_is_run(POOL, model).await;
    }
}

fn turn_id(it: &Recorded) -> String {
    let metadata = it.header("x-codex-turn-metadata").unwrap();
    let metadata: serde_json::Value = serde_json::from_str(&metadata).unwrap();
    metadata["turn_id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_goes_on_with_a_second_turn() {
    let stage = stage().await;
    let client = client(&stage);

    client.exec(&["the first question"]).await.assert_answered(HELLO);
    client.exec(&["resume", "--last", "the second question"]).await.assert_answered(HELLO);

    let [first, second] = &turns(&stage).await[..] else { unreachable!("two turns were taken") };
    assert_eq!(first.header("session-id"), second.header("session-id"));
    assert_ne!(turn_id(first), turn_id(second));
    let body = decoded(second);
    for text in ["the first question", HELLO, "the second question"] {
        assert!(body.contains(text), "{text}");
    }
}
