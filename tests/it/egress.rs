//! The HTTP client for what is not relayed.

use std::fs;

use codex_edge::{
    config::{Config, Upstream},
    egress::{CallError, Egress, TrustError},
    sim::{Action, Answer, Rule, SimConfig, Simulator},
};
use http::Request;
use tempfile::TempDir;

fn upstream() -> Upstream {
    Config::defaults(std::path::Path::new("/nowhere")).upstream
}

fn get(url: String) -> Request<Vec<u8>> {
    Request::get(url).body(Vec::new()).unwrap()
}

async fn tls() -> Simulator {
    Simulator::start(SimConfig { tls: true, ..SimConfig::default() }).await.unwrap()
}

#[tokio::test]
async fn a_certificate_authority_of_the_operators_own_is_trusted_and_a_strangers_is_not() {
    let sim = tls().await;
    let url = || format!("{}/backend-api/wham/usage", sim.tls_origin().unwrap());
    let stranger = Egress::new(&upstream()).unwrap().client(None);
    assert_eq!(stranger.send(get(url()), 1_000).await.unwrap_err(), CallError::Unreachable);
    let folder = TempDir::new().unwrap();
    let ca_file = folder.path().join("ca.pem");
    fs::write(&ca_file, sim.ca_pem().unwrap()).unwrap();
    let known = Egress::new(&Upstream { ca_file: Some(ca_file.clone()), ..upstream() }).unwrap();
    assert_eq!(known.client(None).send(get(url()), 1_000).await.unwrap().status, 401);
    fs::write(&ca_file, "nothing").unwrap();
    let error = Egress::new(&Upstream { ca_file: Some(ca_file), ..upstream() }).unwrap_err();
    assert!(matches!(error, TrustError::NoCertificate { .. }));
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_a_long_body_is_none() {
    let sim = Simulator::start(SimConfig::default()).await.unwrap();
    let client = Egress::new(&upstream()).unwrap().client(None);
    let elsewhere = Answer {
        status: 307,
        headers: vec![("location".to_owned(), format!("{}/healthz", sim.origin()))],
        body: Some("x".repeat(100)),
        ..Answer::default()
    };
    sim.rule(Rule::new(Action::Answer(elsewhere)));
    let ask = |body_max| client.send(get(format!("{}/models", sim.origin())), body_max);
    let answer = ask(100).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.body.len()), (307, 100));
    assert!(!format!("{answer:?}").contains("xxx"));
    assert_eq!(ask(99).await.unwrap_err(), CallError::TooLarge(99));
    assert_eq!(sim.requests().len(), 2, "nothing was followed");
    let request = &sim.requests()[0];
    let agent = request.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("user-agent"));
    assert!(agent.unwrap().1.starts_with(b"codex_cli_rs/"));
}

#[tokio::test]
async fn a_server_that_is_not_there_has_heard_nothing() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let client = Egress::new(&upstream()).unwrap().client(None);
    assert_eq!(client.send(get(url), 1).await.unwrap_err(), CallError::Unreachable);
    let odd = client.send(get("nothing".to_owned()), 1).await.unwrap_err();
    assert_eq!(odd, CallError::Unmakeable);
}
