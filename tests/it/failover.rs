//! An account that fails before the first output is replaced, and the client never notices; after
//! it nothing is repeated.

use codex_edge::sim::{
    Action, Answer, DropHead, End, EventSpec, Loss, Recorded, Route, Rule, StreamPlan,
};
use serde_json::json;

use crate::support::{
    client::Wire,
    stage::{Setup, Stage, UpstreamWire, all_ready, eventually},
};

const PATH: &str = "/v1/codex/responses";

fn body(size: usize) -> Vec<u8> {
    let head = br#"{"model":"gpt-5.5","stream":true,"input":[{"role":"user","content":""#;
    let tail = br#""}]}"#;
    let filler = (0..size.saturating_sub(head.len() + tail.len())).map(|at| b'a' + (at % 26) as u8);
    [head.to_vec(), filler.collect(), tail.to_vec()].concat()
}

fn answer(status: u16, body: serde_json::Value) -> Action {
    Action::json(status, body)
}

fn error(status: u16, code: &str) -> Action {
    answer(status, json!({"error": {"code": code, "type": code, "message": "made up"}}))
}

/// Everything that can go wrong before the first output.
fn failures_before_output() -> Vec<(&'static str, Action)> {
    let failed = |code: &str| End::Failed { code: code.into(), message: "made up".into() };
    let early = |status| {
        Action::Answer(Answer {
            status,
            json: Some(json!({"error": {"message": "early"}})),
            after_body_bytes: Some(1),
            ..Answer::default()
        })
    };
    let lose_early = |how| Action::Drop(DropHead { how, after_body_bytes: Some(1), delay_ms: 0 });
    vec![
        ("401", error(401, "token_expired")),
        ("402", error(402, "insufficient_quota")),
        ("403", error(403, "forbidden")),
        ("429", Action::usage_limit_reached(4_000_000_000)),
        ("500", error(500, "server_error")),
        ("503", error(503, "server_is_overloaded")),
        ("early 429", early(429)),
        ("reset after the request", Action::lose(Loss::Reset)),
        ("closed after the request", Action::lose(Loss::Close)),
        ("reset while the body uploads", lose_early(Loss::Reset)),
        ("response.failed at once", Action::end_after(0, failed("server_error"))),
        ("response.failed after created", Action::end_after(2, failed("usage_limit_reached"))),
        ("end after created", Action::end_after(1, End::Eof)),
        ("cut after created", Action::end_after(2, End::Cut)),
        ("reset after created", Action::end_after(2, End::Reset)),
        (
            "an empty stream",
            Action::Stream(StreamPlan { events: Some(vec![]), ..StreamPlan::default() }),
        ),
    ]
}

async fn stage(tls: bool, upstream: UpstreamWire) -> Stage {
    let names: Vec<String> = (0..40).map(|at| format!("acct{at:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Setup { tls, upstream, ..Setup::with_accounts(&names) }.start().await
}

fn turns(stage: &Stage) -> Vec<Recorded> {
    stage.sim.requests().into_iter().filter(|it| it.route == Route::Responses).collect()
}

/// One failure on the first account, then a good answer.
async fn another_account_takes_over(stage: &Stage, wire: Wire, name: &str, action: Action) {
    stage.sim.reset();
    stage.sim.rule(Rule::new(action).route(Route::Turn).times(1));
    let sent = body(300_000);

    let seen = stage.client(wire).post(PATH, sent.clone()).await;

    let text = seen.text();
    assert_eq!(seen.status, 200, "{name} over {wire:?}: {text}");
    assert!(!seen.broken, "{name} over {wire:?}");
    assert_eq!(text.matches("\"type\":\"response.created\"").count(), 1, "{name}: {text}");
    assert_eq!(text.matches("\"type\":\"response.completed\"").count(), 1, "{name}: {text}");
    assert!(!text.contains("made up"), "{name}: {text}");
    let turns = turns(stage);
    assert_eq!(turns.len(), 2, "{name} over {wire:?}: {turns:?}");
    // A connection that dies before a word of its answer looks like one that idled to death in the
    // pool: the same account gets a new one.
    // A refused credential is renewed once.
    let may_stay = name.starts_with("reset") || name.starts_with("closed") || name == "401";
    assert!(may_stay || turns[0].account != turns[1].account, "{name}: {turns:?}");
    assert!(turns[1].body == sent, "{name} over {wire:?}: another body arrived");
}

async fn every_failure_is_hidden(tls: bool, upstream: UpstreamWire) {
    let stage = stage(tls, upstream).await;
    for wire in Wire::ALL.into_iter().filter(|it| it.is_tls() == tls) {
        for (name, action) in failures_before_output() {
            another_account_takes_over(&stage, wire, name, action).await;
        }
    }
    let pool = &stage.app.gateway.pool;
    eventually("the leases are back", || pool.active_turns() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_before_output_stay_hidden_from_plaintext_to_http_1() {
    every_failure_is_hidden(false, UpstreamWire::H1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_before_output_stay_hidden_from_plaintext_to_h2c() {
    every_failure_is_hidden(false, UpstreamWire::H2c).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_before_output_stay_hidden_from_plaintext_to_h2_over_tls() {
    every_failure_is_hidden(false, UpstreamWire::H2Tls).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_before_output_stay_hidden_from_tls_to_http_1() {
    every_failure_is_hidden(true, UpstreamWire::H1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_before_output_stay_hidden_from_tls_to_h2c() {
    every_failure_is_hidden(true, UpstreamWire::H2c).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_before_output_stay_hidden_from_tls_to_h2_over_tls() {
    every_failure_is_hidden(true, UpstreamWire::H2Tls).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_of_sixty_mebibytes_is_sent_again_whole() {
    for (tls, upstream) in
        [(false, UpstreamWire::H1), (true, UpstreamWire::H2Tls), (false, UpstreamWire::H2c)]
    {
        let stage = stage(tls, upstream).await;
        for wire in Wire::ALL.into_iter().filter(|it| it.is_tls() == tls) {
            stage.sim.reset();
            stage.sim.rule(Rule::new(error(500, "server_error")).route(Route::Turn).times(1));
            let reset = Action::end_after(1, End::Reset);
            stage.sim.rule(Rule::new(reset).route(Route::Turn).times(1));
            let sent = body(60 << 20);

            let seen = stage.client(wire).post(PATH, sent.clone()).await;

            assert_eq!(seen.status, 200, "{wire:?} {upstream:?}: {}", seen.text());
            let turns = turns(&stage);
            assert_eq!(turns.len(), 3);
            assert!(turns.iter().all(|it| it.body_length == sent.len() as u64));
            assert!(turns[2].body == sent, "{wire:?} to {upstream:?}");
        }
    }
}

/// The events of a normal answer after which there has been output.
const EVENTS_WITH_OUTPUT: std::ops::RangeInclusive<usize> = 3..=8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_first_output_nothing_is_repeated() {
    for upstream in UpstreamWire::ALL {
        let stage = stage(false, upstream).await;
        for after in EVENTS_WITH_OUTPUT {
            for end in [End::Eof, End::Cut, End::Reset, End::MidEvent] {
                stage.sim.reset();
                stage.sim.rule(Rule::new(Action::end_after(after, end.clone())).times(1));

                let seen = stage.h1().post(PATH, body(2_000)).await;

                assert_eq!(seen.status, 200);
                assert!(seen.text().contains("response.output_item.added"));
                assert_eq!(turns(&stage).len(), 1, "{end:?} after event {after}");
                assert_eq!(seen.broken, end != End::Eof, "{end:?} after {after}: {}", seen.text());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_event_after_output_is_relayed_as_it_came() {
    let stage = stage(false, UpstreamWire::H1).await;
    let end = End::Failed { code: "server_error".into(), message: "made up".into() };
    stage.sim.rule(Rule::new(Action::end_after(4, end)).times(1));

    let seen = stage.h1().post(PATH, body(2_000)).await;

    assert!(seen.text().contains("response.failed"));
    assert!(!seen.broken);
    assert_eq!(turns(&stage).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_told_after_output_rests_the_account_from_then_on() {
    let stage = Setup::with_accounts(&["a", "b"]).start().await;
    let end = End::Failed { code: "usage_limit_reached".into(), message: "made up".into() };
    stage.sim.rule(Rule::new(Action::end_after(4, end)).times(1));
    let seen = stage.h1().post(PATH, body(2_000)).await;
    assert!(seen.text().contains("usage_limit_reached"), "it is relayed");
    let limited = turns(&stage)[0].account.clone();
    eventually("the account rests", || !all_ready(&stage.app)).await;
    for _ in 0..3 {
        assert_eq!(stage.h1().post(PATH, body(2_000)).await.status, 200);
    }
    assert!(turns(&stage)[1..].iter().all(|it| it.account != limited));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooled_h2_connection_that_ends_costs_no_account_anything() {
    let setup = Setup::with_accounts(&["a"]);
    let stage = Setup { upstream: UpstreamWire::H2c, ..setup }.start().await;
    for by_reset in [false, true] {
        assert_eq!(stage.h1().post(PATH, body(2_000)).await.status, 200);
        stage.sim.lose_connections(by_reset);
        let seen = stage.h1().post(PATH, body(2_000)).await;
        assert_eq!(seen.status, 200, "{by_reset}: {}", seen.text());
    }
    assert!(all_ready(&stage.app));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_body_of_a_committed_stream_is_given_back_while_it_lasts() {
    let stage = Setup::with_accounts(&["a"]).start().await;
    let plan = StreamPlan { after: Some(4), end: End::Stall, ..StreamPlan::default() };
    stage.sim.rule(Rule::new(Action::Stream(plan)));
    let client = stage.h1();
    let request = client.request(http::Method::POST, PATH);
    let running = client.begin(request, body(300_000)).await.unwrap();
    let budget = &stage.app.gateway.budget;
    eventually("the budget is given back", || budget.used() == 0).await;
    stage.sim.release();
    assert!(!crate::support::client::read(running).await.broken);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_callers_own_faults_are_relayed_and_cost_no_account_anything() {
    let stage = stage(false, UpstreamWire::H1).await;
    for _ in 0..60 {
        stage.sim.reset();
        stage.sim.rule(Rule::new(error(400, "invalid_prompt")).times(1));
        let seen = stage.h1().post(PATH, body(2_000)).await;
        assert_eq!(seen.status, 400);
        assert!(seen.text().contains("made up"));
        assert_eq!(turns(&stage).len(), 1);
    }
    let end = End::Failed { code: "context_length_exceeded".into(), message: "made up".into() };
    stage.sim.reset();
    stage.sim.rule(Rule::new(Action::end_after(1, end)).times(1));
    let seen = stage.h1().post(PATH, body(2_000)).await;
    assert!(seen.text().contains("context_length_exceeded"));
    assert_eq!(turns(&stage).len(), 1);
    assert!(all_ready(&stage.app));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_quiet_events_is_committed_at_the_hold_limit() {
    let setup = Setup::with_accounts(&["a", "b"]).toml("[routing]\nhold_back = \"50ms\"");
    let stage = setup.start().await;
    let events = ["created", "in_progress"].map(|name| EventSpec::Named(name.into())).to_vec();
    let plan = StreamPlan {
        events: Some(events),
        end: End::Stall,
        after: Some(1),
        ..StreamPlan::default()
    };
    stage.sim.rule(Rule::new(Action::Stream(plan)).times(1));

    let client = stage.h1();
    let request = client.request(http::Method::POST, PATH);
    let head = client.begin(request, body(2_000)).await.unwrap();
    assert_eq!(head.status(), 200);
    // The client has its head while the upstream still stalls: from here on nothing is repeated.
    stage.sim.lose_connections(true);
    let seen = crate::support::client::read(head).await;
    assert!(seen.broken);
    assert_eq!(turns(&stage).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_limited_accounts_do_not_hide_a_good_one() {
    let stage = stage(false, UpstreamWire::H1).await;
    for at in 0..36 {
        let limit = Action::usage_limit_reached(4_000_000_000);
        stage.sim.rule(Rule::new(limit).account(&format!("acct{at:02}")));
    }
    let seen = stage.h1().post(PATH, body(2_000)).await;
    assert_eq!(seen.status, 200, "{}", seen.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_that_is_cut_short_asks_the_client_to_come_again() {
    let stage = stage(false, UpstreamWire::H1).await;
    stage.sim.rule(Rule::new(error(500, "server_error")));
    let seen = stage.h1().post(PATH, body(2_000)).await;
    assert_eq!((seen.status.as_u16(), seen.code().as_str()), (429, "rate_limit_exceeded"));
    assert_eq!(seen.headers["retry-after"], "1");
    assert_eq!(turns(&stage).len(), 4, "max_attempts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accounts_that_rest_for_a_moment_say_for_how_long() {
    let stage = Setup::with_accounts(&["a", "b"]).start().await;
    for (name, seconds) in [("a", "50"), ("b", "20")] {
        let burst = Action::Answer(Answer {
            status: 429,
            headers: vec![("retry-after".into(), seconds.into())],
            json: Some(json!({"error": {"code": "rate_limit_exceeded"}})),
            ..Answer::default()
        });
        stage.sim.rule(Rule::new(burst).account(name));
    }
    let seen = stage.h1().post(PATH, body(2_000)).await;
    assert_eq!((seen.status.as_u16(), seen.code().as_str()), (429, "rate_limit_exceeded"));
    let wait: u64 = seen.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((19..=20).contains(&wait), "{wait}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_no_account_serves_is_not_found() {
    let stage = Setup::with_accounts(&["a", "b"]).start().await;
    stage.sim.rule(Rule::new(error(404, "model_not_found")));
    let seen = stage.h1().post(PATH, body(2_000)).await;
    assert_eq!((seen.status.as_u16(), seen.code().as_str()), (404, "model_not_found"));
    assert_eq!(turns(&stage).len(), 2);
    assert!(all_ready(&stage.app));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accounts_that_need_a_new_sign_in_are_named_and_counted() {
    let stage = Setup::with_accounts(&["a", "b"]).start().await;
    for name in ["a", "b"] {
        stage.sim.revoke_access(name);
        stage.sim.revoke_refresh(name);
    }
    let seen = stage.h1().post(PATH, body(2_000)).await;
    assert_eq!((seen.status.as_u16(), seen.code().as_str()), (503, "no_account_available"));
    assert!(seen.text().contains("2 in need of a new sign-in"), "{}", seen.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_web_page_in_between_is_nobodys_fault() {
    let stage = Setup::with_accounts(&["a", "b"]).start().await;
    let page = Action::Answer(Answer {
        status: 403,
        headers: vec![("content-type".into(), "text/html".into())],
        body: Some("<!doctype html><title>Just a moment</title>".into()),
        ..Answer::default()
    });
    stage.sim.rule(Rule::new(page).times(1));
    assert_eq!(stage.h1().post(PATH, body(2_000)).await.status, 200);
    assert!(all_ready(&stage.app));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_is_used_up_says_until_when_in_the_clients_own_form() {
    let stage = Setup::with_accounts(&["a", "b"]).start().await;
    let now = stage.app.gateway.clock.now().as_second();
    for (name, after) in [("a", 7_200), ("b", 3_600)] {
        stage.sim.rule(Rule::new(Action::usage_limit_reached(now + after)).account(name));
    }
    for dispatches in [2, 2] {
        let seen = stage.h1().post(PATH, body(2_000)).await;
        assert_eq!(seen.status, 429);
        let error = &seen.json()["error"];
        assert_eq!(error["type"], "usage_limit_reached");
        assert_eq!(error["code"], "usage_limit_reached");
        assert_eq!(error["resets_at"], now + 3_600);
        assert_eq!(error["plan_type"], "pro");
        assert_eq!(turns(&stage).len(), dispatches, "limited accounts are not asked again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_nobody_can_reach_costs_no_account_anything() {
    let stage = stage(false, UpstreamWire::H1).await;
    let Stage { sim, app, key, .. } = stage;
    drop(sim);
    let client = crate::support::client::Client {
        address: app.edge[0],
        wire: Wire::H1,
        key: Some(key),
        ca: None,
    };
    let seen = client.post(PATH, body(2_000)).await;
    assert_eq!(seen.status, 502, "{}", seen.text());
    assert_eq!(seen.code(), "upstream_unreachable");
    assert!(all_ready(&app));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_upstream_error_is_told_verbatim() {
    let stage = Setup::with_accounts(&["a", "b"]).start().await;
    let account_id = stage.sim.account("a").unwrap().account_id.clone();
    let told = json!({"error": {"code": "server_error", "message": "made up"}});
    stage.sim.rule(Rule::new(Action::Answer(Answer {
        status: 500,
        headers: vec![
            ("set-cookie".into(), "__cf_bm=secret".into()),
            ("x-debug".into(), format!("account={account_id}")),
            ("x-mail".into(), "somebody@example.com".into()),
            ("cf-ray".into(), "kept".into()),
        ],
        json: Some(told.clone()),
        ..Answer::default()
    })));
    let seen = stage.h1().post(PATH, body(2_000)).await;
    assert_eq!(seen.status, 500);
    assert_eq!(seen.json(), told);
    assert_eq!(seen.headers["cf-ray"], "kept");
    for hidden in ["set-cookie", "x-mail"] {
        assert!(!seen.headers.contains_key(hidden), "{hidden}");
    }
    let shown = format!("{:?}", seen.headers);
    let last = turns(&stage).pop().unwrap().account.unwrap();
    assert!(last != "a" || !shown.contains(&account_id), "{shown}");
    assert_eq!(turns(&stage).len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_died_in_the_pool_is_replaced_without_blame() {
    let stage = Setup::with_accounts(&["a"]).start().await;
    assert_eq!(stage.h1().post(PATH, body(2_000)).await.status, 200);
    stage.sim.lose_connections(false);
    let seen = stage.h1().post(PATH, body(2_000)).await;
    assert_eq!(seen.status, 200, "{}", seen.text());
    assert!(all_ready(&stage.app));
}
