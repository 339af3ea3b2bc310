//! What a scraper and a reader of the log see.

use codex_edge::sim::{Action, End, Rule, SimConfig, Simulator};
use serde_json::Value;

use crate::support::{
    client::{Client, Wire},
    process::Place,
    stage::{Setup, eventually},
};

const PATH: &str = "/v1/codex/responses";
const GOOD: &str = r#"{"model":"gpt-5.5","input":[]}"#;

/// The value of one series of a scrape.
fn value(scrape: &str, series: &str) -> f64 {
    let line =
        scrape.lines().find(|line| line.strip_prefix(series).is_some_and(|it| it.starts_with(' ')));
    line.and_then(|it| it.rsplit(' ').next()).and_then(|it| it.parse().ok()).unwrap_or(f64::NAN)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scrape_counts_requests_attempts_failovers_tokens_and_accounts() {
    let stage = Setup::with_accounts(&["alice", "bob"]).start().await;
    let limit = Action::usage_limit_reached(stage.app.gateway.clock.now().as_second() + 600);
    stage.sim.rule(Rule::new(limit).times(1));
    assert_eq!(stage.h1().post(PATH, GOOD).await.status, 200);
    assert_eq!(stage.h1().post(PATH, "{").await.status, 400);
    let nobody = Client { key: None, ..stage.h1() };
    assert_eq!(nobody.post(PATH, GOOD).await.status, 401);

    let flights = &stage.app.gateway.flights;
    eventually("the books are closed", || flights.count() == 0).await;
    let scrape = stage.admin().get("/metrics").await.text();

    let table = [
        ("codex_edge_requests_total{code=\"2xx\",route=\"responses\",transport=\"sse\"}", 1.0),
        ("codex_edge_requests_total{code=\"4xx\",route=\"responses\",transport=\"http\"}", 2.0),
        ("codex_edge_upstream_attempts_total{outcome=\"quota\"}", 1.0),
        ("codex_edge_upstream_attempts_total{outcome=\"success\"}", 1.0),
        ("codex_edge_failovers_total{reason=\"quota\"}", 1.0),
        ("codex_edge_accounts{state=\"cooling\"}", 1.0),
        ("codex_edge_accounts{state=\"ready\"}", 1.0),
        ("codex_edge_active_turns", 0.0),
        ("codex_edge_request_duration_seconds_count{route=\"responses\"}", 3.0),
        ("codex_edge_time_to_first_byte_seconds_count{route=\"responses\"}", 1.0),
    ];
    for (series, expected) in table {
        assert!((value(&scrape, series) - expected).abs() < 0.1, "{series}:\n{scrape}");
    }
    for phase in ["admit", "select", "settle"] {
        let series = format!("codex_edge_overhead_seconds_count{{phase=\"{phase}\"}}");
        assert!(value(&scrape, &series) >= 1.0, "{series}");
    }
    assert!(value(&scrape, "codex_edge_tokens_total{kind=\"output\"}") > 0.0);
    assert!(scrape.contains("codex_edge_build_info{"));
    assert!(scrape.contains("process_resident_memory_bytes"));
    assert!(scrape.contains("codex_edge_account_cooldown_until_seconds{account=\"p"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_breaks_off_after_output_counts_as_a_replay_refused() {
    let stage = Setup::with_accounts(&["alice", "bob"]).start().await;
    stage.sim.rule(Rule::new(Action::end_after(4, End::Cut)).times(1));
    assert!(stage.h1().post(PATH, GOOD).await.broken);
    let flights = &stage.app.gateway.flights;
    eventually("the books are closed", || flights.count() == 0).await;
    let scrape = stage.admin().get("/metrics").await.text();
    let series = "codex_edge_replays_refused_total{reason=\"output_begun\"}";
    assert!((value(&scrape, series) - 1.0).abs() < 0.1, "{scrape}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_sessions_and_models_add_no_series() {
    let stage = Setup::with_accounts(&["alice"]).start().await;
    let series = async || stage.admin().get("/metrics").await.text().lines().count();
    let ask = async |at: u32| {
        let client = stage.h1();
        let request = client
            .request(http::Method::POST, PATH)
            .header("session-id", format!("session-{at}"))
            .header("user-agent", format!("agent-{at}"));
        client.send(request, format!("{{\"model\":\"gpt-{at}\"}}")).await;
    };
    ask(0).await;
    let before = series().await;
    for at in 1..60 {
        ask(at).await;
    }
    assert_eq!(series().await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_request_is_one_line_of_the_log() {
    let sim = Simulator::start(SimConfig::with_accounts(&["alice"])).await.unwrap();
    let place = Place::new(&format!(
        "[upstream]\ncodex_base_url = \"{}\"\nauth_base_url = \"{}\"\n[log]\nformat = \"json\"\n",
        sim.base_url(),
        sim.origin(),
    ));
    let account = sim.account("alice").unwrap();
    std::fs::write(place.auth().join("alice.json"), account.auth_json()).unwrap();
    let serving = place.serve().await;
    let client = Client { address: serving.edge, wire: Wire::H1, key: Some(place.key()), ca: None };
    let seen = client.post(PATH, GOOD).await;
    assert_eq!(seen.status, 200);
    let upstream_id = seen.headers["x-request-id"].to_str().unwrap().to_owned();
    let refused = client.post(PATH, "[]").await;
    let own_id = refused.headers["x-request-id"].to_str().unwrap().to_owned();

    let printed = serving.stop().await;
    let lines: Vec<Value> = String::from_utf8(printed.stderr)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &Value| line["request_id"].is_string())
        .collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    // A line is written once its answer is out, so that the two may come in either order.
    let with = |status: u16| lines.iter().find(|line| line["status"] == status).unwrap();
    let (served, refused) = (with(200), with(400));
    assert_eq!(served["upstream_request_id"], upstream_id);
    assert_eq!(served["route"], "responses");
    assert_eq!(served["status"], 200);
    assert_eq!(served["attempts"], 1);
    assert_eq!(served["model"], "gpt-5.5");
    assert_eq!(served["outcome"], "complete");
    assert!(served["output_tokens"].as_u64().unwrap() > 0);
    assert!(served["account"].as_str().unwrap().starts_with('p'));
    assert_eq!(refused["request_id"], own_id);
    assert_eq!(refused["status"], 400);
    assert_eq!(refused["outcome"], "refused");
}
