//! The simulated upstream, seen by a plain client.

mod client;
mod faults;
mod proxies;
mod real_client;
mod signin;
mod websocket;

use bytes::Bytes;
use codex_edge::sim::{
    Action, Ended, Protocol, Quota, Reply, Route, Rule, SimAccount, SimConfig, Simulator, Window,
};
use http::Method;

use client::{Ask, WIRES, Wire};

const RESPONSES: &str = "/backend-api/codex/responses";

async fn start() -> Simulator {
    Simulator::start(SimConfig::with_accounts(&["alice", "bob"])).await.unwrap()
}

async fn start_with_tls() -> Simulator {
    let config = SimConfig { tls: true, ..SimConfig::with_accounts(&["alice", "bob"]) };
    Simulator::start(config).await.unwrap()
}

#[tokio::test]
async fn a_turn_is_answered_in_full_on_every_wire() {
    let simulator = start_with_tls().await;
    for wire in WIRES {
        let seen = Ask::turn(&simulator, "alice").wire(wire).send(&simulator).await.unwrap();
        assert_eq!(seen.status, 200, "{wire:?}");
        assert!(seen.whole);
        let delta = "response.output_text.delta";
        assert_eq!(
            seen.events(),
            [
                "response.created",
                "response.in_progress",
                "response.output_item.added",
                delta,
                delta,
                delta,
                delta,
                "response.output_item.done",
                "response.completed",
            ]
        );
        assert_eq!(seen.header("openai-model"), "gpt-5.5");
        assert_eq!(seen.header("content-type"), "text/event-stream");
        assert_eq!(seen.header("x-codex-primary-used-percent"), "10");
        assert!(seen.header("x-codex-turn-state").contains("alice"));
        let last = seen.data().pop().unwrap();
        assert!(last["response"]["usage"]["total_tokens"].is_u64());
        assert!(last["response"]["id"].as_str().unwrap().starts_with("resp_"));
    }
}

#[tokio::test]
async fn a_request_is_recorded_byte_for_byte() {
    let simulator = start().await;
    let body = zstd::encode_all(&br#"{ "model" : "gpt-5.5","a":1,"a":2}"#[..], 1).unwrap();
    let seen = Ask::turn(&simulator, "alice")
        .body(body.clone())
        .header("Content-Encoding", "zstd")
        .header("x-twice", "1")
        .header("x-other", "2")
        .header("x-twice", "3")
        .send(&simulator)
        .await
        .unwrap();
    assert_eq!(seen.status, 200);
    let requests = simulator.wait_until(|all| all.iter().all(|it| it.ended != Ended::Open)).await;
    let [request] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!(request.body, body);
    assert_eq!(request.body_length, body.len() as u64);
    assert_eq!(request.account.as_deref(), Some("alice"));
    assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", RESPONSES));
    assert_eq!(request.protocol, Protocol::Http1);
    assert_eq!(request.status, Some(200));
    assert_eq!(request.ended, Ended::Answered);
    let names: Vec<&str> = request.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains(&"host") && names.contains(&"authorization"), "{names:?}");
}

#[tokio::test]
async fn headers_are_recorded_in_their_order_and_case() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let simulator = start().await;
    let mut tcp = client::connect(simulator.address()).await;
    let request = "GET /nothing HTTP/1.1\r\nHoSt: x\r\nX-B: 1\r\nx-a: 2\r\nX-b: 3\r\n\r\n";
    tcp.write_all(request.repeat(2).as_bytes()).await.unwrap();
    let mut answer = [0; 64];
    tcp.read_exact(&mut answer).await.unwrap();
    let requests = simulator.wait_until(|all| all.len() == 2).await;
    // The second request came in one piece with the first, which was taken in its place.
    let headers: Vec<(&str, &[u8])> =
        requests[0].headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
    assert_eq!(headers, [("HoSt", &b"x"[..]), ("X-B", b"1"), ("x-a", b"2"), ("X-b", b"3")]);
}

#[tokio::test]
async fn a_client_that_leaves_is_noticed() {
    let simulator = start_with_tls().await;
    for (at, wire) in WIRES.into_iter().enumerate() {
        simulator.script(vec![Rule::new(Action::end_after(2, codex_edge::sim::End::Stall))]);
        let response = Ask::turn(&simulator, "alice").wire(wire).begin(&simulator).await.unwrap();
        drop(response);
        let requests =
            simulator.wait_until(|all| all.get(at).is_some_and(|it| it.ended != Ended::Open)).await;
        assert_eq!(requests[at].ended, Ended::ClientGone, "{wire:?}");
        assert!(requests[at].client_gone());
    }
}

#[tokio::test]
async fn bearer_and_account_id_belong_together() {
    let simulator = start().await;
    let path = "/backend-api/codex/models";
    let status = async |ask: Ask| ask.send(&simulator).await.unwrap().status.as_u16();
    let id = |name: &str| SimAccount::made_up(name).account_id;
    assert_eq!(status(Ask::get(path)).await, 401);
    assert_eq!(status(Ask::get(path).header("authorization", "Bearer x")).await, 401);
    let alice = || Ask::get(path).bearer(&simulator, "alice");
    assert_eq!(status(alice()).await, 200);
    assert_eq!(status(alice().header("chatgpt-account-id", &id("alice"))).await, 200);
    assert_eq!(status(alice().header("chatgpt-account-id", &id("bob"))).await, 403);
    simulator.revoke_access("alice");
    let seen = alice().send(&simulator).await.unwrap();
    assert_eq!(seen.json()["error"]["code"], "token_invalidated");
}

#[tokio::test]
async fn encrypted_content_and_turn_state_belong_to_their_account() {
    let simulator = start().await;
    let reply = Reply { reasoning: true, ..Reply::default() };
    simulator.rule(Rule::new(Action::Reply(reply)).times(1));
    let seen = Ask::turn(&simulator, "alice").send(&simulator).await.unwrap();
    let item = seen.data().into_iter().find(|it| it["item"]["type"] == "reasoning").unwrap();
    let body = format!(r#"{{"model":"gpt-5.5","input":[{}]}}"#, item["item"]);
    let state = seen.header("x-codex-turn-state");
    let ask = |name: &str| Ask::turn(&simulator, name);

    assert_eq!(ask("alice").body(body.clone()).send(&simulator).await.unwrap().status, 200);
    let refused = ask("bob").body(body).send(&simulator).await.unwrap();
    assert_eq!(refused.json()["error"]["code"], "invalid_encrypted_content");
    let kept = ask("alice").header("x-codex-turn-state", state).send(&simulator).await.unwrap();
    assert_eq!(kept.status, 200);
    let refused = ask("bob").header("x-codex-turn-state", state).send(&simulator).await.unwrap();
    assert_eq!(refused.status, 400);
}

#[tokio::test]
async fn a_quota_that_is_used_up_answers_429_with_its_reset() {
    let simulator = start().await;
    let primary = Window { used_percent: 60.0, per_turn_percent: 40.0, ..Window::default() };
    simulator.set_quota("alice", Quota { primary, secondary: None });
    let first = Ask::turn(&simulator, "alice").send(&simulator).await.unwrap();
    assert_eq!(first.header("x-codex-primary-used-percent"), "100");
    let second = Ask::turn(&simulator, "alice").send(&simulator).await.unwrap();
    assert_eq!(second.status, 429);
    let error = &second.json()["error"];
    assert_eq!(error["type"], "usage_limit_reached");
    assert_eq!(error["resets_at"].to_string(), second.header("x-codex-primary-reset-at"));
    assert_eq!(Ask::turn(&simulator, "bob").send(&simulator).await.unwrap().status, 200);
    let usage = Ask::get("/backend-api/wham/usage").bearer(&simulator, "alice");
    let usage = usage.send(&simulator).await.unwrap().json();
    assert_eq!(usage["rate_limit"]["limit_reached"], true);
    assert_eq!(usage["rate_limit"]["primary_window"]["used_percent"], 100);
}

#[tokio::test]
async fn the_catalogue_has_an_etag_that_turns_repeat() {
    let simulator = start().await;
    let path = "/backend-api/codex/models?client_version=0.171.0";
    let models = Ask::get(path).bearer(&simulator, "alice").send(&simulator).await.unwrap();
    let turn = Ask::turn(&simulator, "alice").send(&simulator).await.unwrap();
    assert_eq!(models.header("etag"), turn.header("x-models-etag"));
    let slugs: Vec<_> = models.json()["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["slug"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(slugs, ["gpt-6.2-sol", "gpt-5.6-sol", "gpt-5.6-luna", "gpt-5.5"]);
}

#[tokio::test]
async fn the_smaller_endpoints_answer_what_clients_accept() {
    let simulator = start().await;
    let codex = "/backend-api/codex";
    let get = async |path: &str| {
        Ask::get(path).bearer(&simulator, "alice").send(&simulator).await.unwrap().json()
    };
    let post = async |path: &str| {
        let ask = Ask::post(&format!("{codex}/{path}"), "{}").bearer(&simulator, "alice");
        ask.send(&simulator).await.unwrap().json()
    };
    let check = get("/backend-api/wham/accounts/check").await;
    assert_eq!(check["accounts"][0]["id"], SimAccount::made_up("alice").account_id.as_str());
    assert_eq!(check["accounts"][0]["workspace_backend_origin"], "NO_CONSTRAINT");
    assert_eq!(get("/backend-api/wham/config/bundle").await, serde_json::json!({}));
    assert_eq!(get("/backend-api/wham/usage").await["plan_type"], "pro");
    assert_eq!(post("responses/compact").await["output"][0]["type"], "compaction");
    assert!(post("memories/trace_summarize").await["output"].is_array());
    assert!(post("alpha/search").await["results"].is_array());
    assert!(post("images/edits").await["data"][0]["b64_json"].is_string());
    let missing = Ask::get("/backend-api/ps/x").bearer(&simulator, "alice");
    assert_eq!(missing.send(&simulator).await.unwrap().status, 404);
}

#[tokio::test]
async fn a_file_goes_up_and_is_there() {
    let simulator = start().await;
    let body = r#"{"file_name":"a","file_size":3,"use_case":"codex"}"#;
    let ask = Ask::post("/backend-api/files", body).bearer(&simulator, "alice");
    let made = ask.header("host", &simulator.address().to_string()).send(&simulator).await.unwrap();
    let url = made.json()["upload_url"].as_str().unwrap().to_owned();
    let path = &url[url.find("/backend-api").unwrap()..];
    let put = Ask::new(Method::PUT, path).body("abc").header("x-ms-blob-type", "BlockBlob");
    assert_eq!(put.send(&simulator).await.unwrap().status, 201);
    let id = made.json()["file_id"].as_str().unwrap().to_owned();
    let ask = Ask::post(&format!("/backend-api/files/{id}/uploaded"), "{}");
    let there = ask.bearer(&simulator, "alice").send(&simulator).await.unwrap();
    assert_eq!(there.json()["status"], "success");
}

#[tokio::test]
async fn a_command_becomes_the_tool_call_that_the_model_knows() {
    let simulator = start().await;
    simulator.script(vec![Rule::new(Action::command("echo \"hi\"")).route(Route::Turn)]);
    let call = async |ask: Ask| {
        let seen = ask.send(&simulator).await.unwrap();
        let mut data = seen.data().into_iter();
        data.find(|it| it["type"] == "response.output_item.done").unwrap()["item"].clone()
    };
    let plain = call(Ask::turn(&simulator, "alice")).await;
    assert_eq!(plain["name"], "exec_command");
    assert_eq!(plain["arguments"], r#"{"cmd":"echo \"hi\""}"#);
    let lite = r#"{"model":"gpt-6.2-sol","input":[{"type":"additional_tools","tools":[]}]}"#;
    let lite = call(Ask::turn(&simulator, "alice").body(lite)).await;
    assert_eq!((&lite["type"], &lite["name"]), (&"custom_tool_call".into(), &"exec".into()));
}

#[tokio::test]
async fn a_compaction_yields_its_one_item() {
    let simulator = start().await;
    let body = r#"{"model":"gpt-5.5","input":[{"type":"compaction_trigger"}]}"#;
    let seen = Ask::turn(&simulator, "alice").body(body).send(&simulator).await.unwrap();
    let output = seen.data().pop().unwrap()["response"]["output"].clone();
    assert_eq!(output[0]["type"], "compaction");
    assert!(output[0]["encrypted_content"].as_str().unwrap().contains("alice"));
}

#[tokio::test]
async fn the_control_endpoint_sets_the_script_and_tells_what_was_seen() {
    let simulator = start().await;
    let script = r#"
        [[rules]]
        account = "alice"
        route = "responses"
        times = 1
        action = { type = "answer", status = 503, headers = [["retry-after", "3"]], body = "busy" }
    "#;
    let set = Ask::post("/__sim/script", script).send(&simulator).await.unwrap();
    assert_eq!(set.json()["rules"], 1);
    let busy = Ask::turn(&simulator, "alice").send(&simulator).await.unwrap();
    assert_eq!((busy.status.as_u16(), busy.text().as_str()), (503, "busy"));
    assert_eq!(busy.header("retry-after"), "3");
    assert_eq!(Ask::turn(&simulator, "alice").send(&simulator).await.unwrap().status, 200);

    let told = Ask::get("/__sim/requests").send(&simulator).await.unwrap();
    let requests = told.json()["requests"].clone();
    assert_eq!(requests.as_array().unwrap().len(), 2);
    assert_eq!(requests[0]["status"], 503);
    assert_eq!(requests[0]["account"], "alice");
    assert!(!told.text().contains(&SimAccount::made_up("alice").canary()));

    let broken = Ask::post("/__sim/script", "{\"rules\": 3}").send(&simulator).await.unwrap();
    assert_eq!(broken.status, 400);
    let reset = Ask::post("/__sim/reset", Bytes::new()).send(&simulator).await.unwrap();
    assert_eq!(reset.status, 200);
    assert!(simulator.requests().is_empty());
}

#[tokio::test]
async fn nothing_is_recorded_when_nobody_wants_it() {
    let config = SimConfig { record: false, ..SimConfig::default() };
    let simulator = Simulator::start(config).await.unwrap();
    let seen = Ask::turn(&simulator, "alice").wire(Wire::H2c).send(&simulator).await.unwrap();
    assert!(seen.whole);
    assert!(simulator.requests().is_empty());
}
