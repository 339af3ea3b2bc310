//! The real Codex client against the simulated upstream, without a gateway between them.

use codex_edge::sim::{Action, End, Ended, Quota, Recorded, Route, Rule, SimConfig, Simulator};

use crate::support::codex::Codex;

/// A provider with a token of its own, and the simulator's catalogue.
fn client(simulator: &Simulator, model: &str, websockets: bool) -> Codex {
    let base_url = simulator.base_url();
    let token = &simulator.account("alice").unwrap().access_token;
    let lines = format!(
        "model_catalog_url = \"{base_url}/models\"\nexperimental_bearer_token = \"{token}\"\n\
         supports_websockets = {websockets}\n"
    );
    Codex::of_provider(&base_url, model, &lines)
}

fn turns(simulator: &Simulator) -> Vec<Recorded> {
    let all = simulator.requests();
    for it in &all {
        println!("{} {} {:?} {:?} {}", it.method, it.target, it.route, it.status, it.body_length);
    }
    let wanted = [Route::Responses, Route::WsMessage];
    all.into_iter().filter(|it| wanted.contains(&it.route)).collect()
}

#[tokio::test]
async fn the_real_client_takes_a_turn_over_http() {
    let simulator = Simulator::start(SimConfig::default()).await.unwrap();
    let run = client(&simulator, "gpt-5.5", false).exec(&["hi"]).await;
    assert!(run.success && run.output.contains("Hello from the simulated upstream"));
    let seen = turns(&simulator);
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].ended, Ended::Answered);
    assert!(simulator.requests().iter().any(|it| it.route == Route::Models));
}

#[tokio::test]
async fn the_real_client_takes_a_turn_over_a_websocket() {
    let simulator = Simulator::start(SimConfig::default()).await.unwrap();
    let run = client(&simulator, "gpt-6.2-sol", true).exec(&["hi"]).await;
    assert!(run.success && run.output.contains("Hello from the simulated upstream"));
    let seen = turns(&simulator);
    // The prewarm, and the turn that continues it.
    assert_eq!(seen.len(), 2);
    assert!(String::from_utf8_lossy(&seen[1].body).contains("previous_response_id"));
}

#[tokio::test]
async fn the_real_client_runs_a_command_and_goes_on() {
    for (model, websockets) in
        [("gpt-5.5", false), ("gpt-6.2-sol", false), ("gpt-5.5", true), ("gpt-6.2-sol", true)]
    {
        let simulator = Simulator::start(SimConfig::default()).await.unwrap();
        let nth = if websockets { 2 } else { 1 };
        let call = Rule::new(Action::command("echo tool-$((40+2))"));
        simulator.rule(call.route(Route::Turn).nth(nth));
        let run = client(&simulator, model, websockets).exec(&["hi"]).await;
        assert!(run.success && run.output.contains("Hello from the simulated upstream"));
        let seen = turns(&simulator);
        assert_eq!(seen.len() as u64, nth + 1, "{model} {websockets}");
        let last = String::from_utf8_lossy(&seen.last().unwrap().body).into_owned();
        assert!(last.contains("tool-42"), "{model} {websockets}: {last}");
    }
}

#[tokio::test]
async fn the_real_client_resumes_with_what_was_encrypted() {
    let config_with = SimConfig { reasoning: true, ..SimConfig::default() };
    let simulator = Simulator::start(config_with).await.unwrap();
    let client = client(&simulator, "gpt-5.5", false);
    assert!(client.exec(&["hi"]).await.success);
    assert!(client.exec(&["resume", "--last", "again"]).await.success);
    let seen = turns(&simulator);
    assert_eq!(seen.len(), 2);
    assert!(String::from_utf8_lossy(&seen[1].body).contains("gAAAAAsim.alice."));
}

#[tokio::test]
async fn the_real_client_tells_of_a_used_up_quota_at_once() {
    for websockets in [false, true] {
        let simulator = Simulator::start(SimConfig::default()).await.unwrap();
        simulator.set_quota("alice", Quota::used(100.0, 4_000_000_000));
        let run = client(&simulator, "gpt-5.5", websockets).exec(&["hi"]).await;
        assert!(!run.success && run.errors.contains("hit your usage limit"));
        // A prewarm that fails is silent, and the turn asks anew.
        assert!(turns(&simulator).len() <= if websockets { 2 } else { 1 });
    }
}

#[tokio::test]
async fn the_real_client_tries_again_when_a_stream_is_cut() {
    for end in [End::Cut, End::Reset, End::MidEvent, End::Eof] {
        let simulator = Simulator::start(SimConfig::default()).await.unwrap();
        let cut = Rule::new(Action::end_after(2, end.clone()));
        simulator.rule(cut.route(Route::Responses).times(1));
        let run = client(&simulator, "gpt-5.5", false).exec(&["hi"]).await;
        assert!(run.success && run.output.contains("Hello"), "{end:?}");
        assert_eq!(turns(&simulator).len(), 2, "{end:?}");
    }
}
