//! The ways in which a user's client can be pointed at the gateway.

use codex_edge::sim::Route;

use super::{HELLO, assert_answers, base_url, client, decoded, stage, turns};
use crate::support::codex::Codex;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_with_its_key_in_the_environment_takes_a_turn() {
    let stage = stage().await;

    client(&stage).exec(&["hi"]).await.assert_answered(HELLO);

    let [turn] = &turns(&stage).await[..] else { unreachable!("one turn was taken") };
    assert!(decoded(turn).contains("\"hi\""));
    assert_eq!(turn.header("content-encoding"), None);
    assert_eq!(stage.sim.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_asks_a_command_for_the_key_takes_a_turn_and_reads_the_models() {
    let stage = stage().await;
    let key_file = stage.data_dir.join("local.key");
    let lines = format!(
        "supports_websockets = false\n[model_providers.gw.auth]\ncommand = \"cat\"\n\
         args = [{key_file:?}]\nrefresh_interval_ms = 300000\ntimeout_ms = 5000\n"
    );
    let codex = Codex::of_provider(&base_url(&stage, "/backend-api/codex"), "gpt-6.2-sol", &lines);

    codex.exec(&["hi"]).await.assert_answered(HELLO);

    assert_eq!(turns(&stage).await.len(), 1);
    let requests = stage.sim.requests();
    let models = requests.iter().find(|it| it.route == Route::Models).unwrap();
    assert_eq!(models.target, "/backend-api/codex/models?client_version=0.171.0");
    assert_eq!(models.status, Some(200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_key_at_the_plain_prefix_is_turned_from_websocket_to_http_at_once() {
    let stage = stage().await;
    let keys = format!("model = \"gpt-5.5\"\nopenai_base_url = \"{}\"\n", base_url(&stage, "/v1"));
    let codex = Codex::new(&keys, "").env("CODEX_API_KEY", &stage.key);

    codex.exec(&["hi"]).await.assert_answered(HELLO);

    assert_eq!(turns(&stage).await.len(), 1);
    // The one upgrade that it tried.
    assert_answers(&stage, "4xx", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_the_gateway_issued_takes_a_compressed_turn() {
    let stage = stage().await;
    let keys = format!(
        "model = \"gpt-5.5\"\nopenai_base_url = \"{}\"\nchatgpt_base_url = \"{}\"\n",
        base_url(&stage, "/backend-api/codex"),
        base_url(&stage, "/backend-api/"),
    );
    let codex = Codex::new(&keys, "").signed_in(&stage.key);

    codex.exec(&["hi"]).await.assert_answered(HELLO);

    let [turn] = &turns(&stage).await[..] else { unreachable!("one turn was taken") };
    assert_eq!(turn.header("content-encoding").as_deref(), Some("zstd"));
    let length = turn.header("content-length").unwrap();
    assert_eq!(length, turn.body.len().to_string());
    let body: serde_json::Value = serde_json::from_str(&decoded(turn)).unwrap();
    assert_eq!((&body["model"], &body["stream"]), (&"gpt-5.5".into(), &true.into()));
    assert!(stage.sim.requests().iter().any(|it| it.route == Route::Models));
}
