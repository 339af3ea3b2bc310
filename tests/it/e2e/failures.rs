//! What a user sees of failures: nothing where another account can help, else one clear sentence.

use std::collections::BTreeSet;

use codex_edge::sim::{Action, End, Ended, Quota, Recorded, Route, Rule};
use jiff::{SignedDuration, Timestamp, tz};
use serde_json::json;

use super::{HELLO, POOL, assert_answers, client, client_with, stage, stage_of, turns};
use crate::support::codex::ZONE_HOURS;

fn accounts(turns: &[Recorded]) -> BTreeSet<&str> {
    turns.iter().filter_map(|it| it.account.as_deref()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_used_up_account_is_never_seen_while_another_can_answer() {
    let stage = stage().await;
    let resets_at = stage.app.gateway.clock.now().as_second() + 3600;
    let limit = Rule::new(Action::usage_limit_reached(resets_at));
    stage.sim.rule(limit.route(Route::Responses).times(1));

    let run = client(&stage).exec(&["hi"]).await;

    run.assert_answered(HELLO);
    for word in ["limit", "429"] {
        assert!(!run.errors.contains(word), "{word}: {run:?}");
    }
    let turns = turns(&stage).await;
    assert_eq!(turns.iter().map(|it| it.status).collect::<Vec<_>>(), [Some(429), Some(200)]);
    assert_eq!(accounts(&turns).len(), 2);
    assert!(turns[0].body == turns[1].body);
    assert_answers(&stage, "2xx", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_is_used_up_tells_when_its_first_account_comes_back() {
    let stage = stage().await;
    // Days ahead, so that the client names the day too, whatever the time is now.
    let first = stage.app.gateway.clock.now() + SignedDuration::from_hours(72);
    for (name, hours) in [("alice", 5), ("bob", 0), ("carol", 9)] {
        let resets_at = first.as_second() + hours * 3600;
        stage.sim.set_quota(name, Quota::used(100.0, resets_at));
    }

    let run = client(&stage).exec(&["hi"]).await;

    run.assert_failed("You’ve hit your usage limit.");
    run.assert_failed(&format!("try again at {}.", as_the_client_writes(first)));
    let turns = turns(&stage).await;
    assert_eq!(turns.len(), 3);
    assert_eq!(accounts(&turns).len(), 3);
    // The client takes it for final.
    assert_answers(&stage, "4xx", 1).await;
}

/// A moment of another day: `Dec 4th, 2026 11:38 AM`.
fn as_the_client_writes(moment: Timestamp) -> String {
    let local = moment.to_zoned(tz::offset(ZONE_HOURS).to_time_zone());
    let ending = match local.day() {
        1 | 21 | 31 => "st",
        2 | 22 => "nd",
        3 | 23 => "rd",
        _ => "th",
    };
    local.strftime(&format!("%b %-d{ending}, %Y %-I:%M %p")).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_not_known_is_told_to_the_user_and_costs_no_account() {
    let stage = stage().await;
    // The client tries again five times, which tells no more.
    let client = client_with(&stage, "cek_wrong", "gpt-5.5", "stream_max_retries = 0");

    let run = client.exec(&["hi"]).await;

    run.assert_failed("unexpected status 401 Unauthorized: This client key is not known here.");
    assert!(stage.sim.requests().is_empty());
    assert_answers(&stage, "4xx", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_no_account_knows_is_told_at_once() {
    let stage = stage().await;
    let body = json!({"error": {"code": "model_not_found", "type": "invalid_request_error",
        "message": "no account of the simulator knows it"}});
    stage.sim.rule(Rule::new(Action::json(404, body)).route(Route::Responses).model("gpt-none"));

    let run = client_with(&stage, &stage.key, "gpt-none", "").exec(&["hi"]).await;

    run.assert_failed(
        "No account of this gateway serves the model \"gpt-none\". Choose another model.",
    );
    let turns = turns(&stage).await;
    assert_eq!((turns.len(), accounts(&turns).len()), (3, 3), "each account is asked once");
    // The client takes it for final.
    assert_answers(&stage, "4xx", 1).await;
}

/// The upstream dies after the first delta, once.
async fn the_client_takes_it_up(accounts: &[&str]) {
    let stage = stage_of(accounts).await;
    let cut = Rule::new(Action::end_after(4, End::Cut));
    stage.sim.rule(cut.route(Route::Responses).times(1));

    let run = client(&stage).exec(&["hi"]).await;

    assert!(run.success && run.output.contains(HELLO), "{run:?}");
    assert!(run.errors.contains("Reconnecting... 1/5"), "{run:?}");
    let turns = turns(&stage).await;
    let ends: Vec<Ended> = turns.iter().map(|it| it.ended).collect();
    assert_eq!(ends, [Ended::Lost, Ended::Answered]);
    // As many came from the client as went up.
    assert_answers(&stage, "2xx", 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_dies_after_output_is_taken_up_by_the_client_alone() {
    the_client_takes_it_up(&["alice"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_dies_after_output_goes_on_whichever_account_is_next() {
    the_client_takes_it_up(POOL).await;
}
