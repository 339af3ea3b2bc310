//! Turns over a WebSocket.

use codex_edge::sim::{
    Action, End, Ended, Loss, Quota, Route, Rule, SimConfig, Simulator, WebSockets,
};
use futures::SinkExt;
use serde_json::{Value, json};
use yawc::{
    CompressionLevel, Frame, HttpRequestBuilder, MaybeTlsStream, OpCode, Options, WebSocket,
};

use super::start;

type Socket = WebSocket<MaybeTlsStream<tokio::net::TcpStream>>;

async fn open(simulator: &Simulator, account: &str, deflate: bool) -> yawc::Result<Socket> {
    let url = format!("ws://{}/backend-api/codex/responses", simulator.address());
    let token = &simulator.account(account).unwrap().access_token;
    let request = HttpRequestBuilder::new().header("authorization", format!("Bearer {token}"));
    let mut options = Options::default().with_limits(64 << 20, 64 << 20);
    if deflate {
        options = options.with_compression_level(CompressionLevel::default());
    }
    WebSocket::connect(url.parse().unwrap()).with_options(options).with_request(request).await
}

async fn send(socket: &mut Socket, value: &Value) {
    socket.send(Frame::text(value.to_string())).await.unwrap();
}

fn create(previous: Option<&str>) -> Value {
    let mut value = json!({"type": "response.create", "model": "gpt-5.5", "input": []});
    if let Some(previous) = previous {
        value["previous_response_id"] = previous.into();
    }
    value
}

async fn next(socket: &mut Socket) -> Value {
    let frame = socket.next_frame().await.unwrap();
    assert_eq!(frame.opcode(), OpCode::Text);
    serde_json::from_slice(frame.payload()).unwrap()
}

/// The events up to the one that ends the answer.
async fn answer(socket: &mut Socket) -> Vec<Value> {
    let mut events = Vec::new();
    loop {
        let event = next(socket).await;
        let last = matches!(event["type"].as_str(), Some("response.completed" | "error"));
        events.push(event);
        if last {
            return events;
        }
    }
}

#[tokio::test]
async fn a_turn_is_answered_with_and_without_compression() {
    let simulator = start().await;
    for deflate in [false, true] {
        let mut socket = open(&simulator, "alice", deflate).await.unwrap();
        send(&mut socket, &create(None)).await;
        let events = answer(&mut socket).await;
        let kinds: Vec<&str> = events.iter().map(|it| it["type"].as_str().unwrap()).collect();
        assert_eq!(
            kinds[..4],
            ["response.created", "response.metadata", "codex.rate_limits", "response.in_progress"]
        );
        assert_eq!(events[2]["rate_limits"]["primary"]["window_minutes"], 300);
    }
}

#[tokio::test]
async fn a_prewarm_is_answered_and_can_be_continued_on_its_connection_alone() {
    let simulator = start().await;
    let mut socket = open(&simulator, "alice", true).await.unwrap();
    let mut prewarm = create(None);
    prewarm["generate"] = false.into();
    send(&mut socket, &prewarm).await;
    let events = answer(&mut socket).await;
    assert_eq!(events.len(), 2);
    let id = events[1]["response"]["id"].as_str().unwrap().to_owned();
    send(&mut socket, &create(Some(&id))).await;
    assert_eq!(answer(&mut socket).await.last().unwrap()["type"], "response.completed");

    let mut other = open(&simulator, "alice", true).await.unwrap();
    send(&mut other, &create(Some(&id))).await;
    let refused = next(&mut other).await;
    assert_eq!(refused["status"], 400);
    assert_eq!(refused["error"]["code"], "previous_response_not_found");
}

#[tokio::test]
async fn frames_are_recorded_as_requests() {
    let simulator = start().await;
    let mut socket = open(&simulator, "bob", true).await.unwrap();
    send(&mut socket, &create(None)).await;
    answer(&mut socket).await;
    let requests = simulator
        .wait_until(|all| all.len() == 2 && all.iter().all(|it| it.ended != Ended::Open))
        .await;
    assert_eq!(requests[0].route, Route::WsHandshake);
    assert_eq!(requests[0].status, Some(101));
    assert_eq!(requests[1].route, Route::WsMessage);
    assert_eq!(requests[1].body, create(None).to_string().into_bytes());
    assert_eq!(requests[1].connection, requests[0].connection);
    assert_eq!(requests[1].account.as_deref(), Some("bob"));
}

#[tokio::test]
async fn a_used_up_quota_is_an_error_frame_with_its_headers() {
    let simulator = start().await;
    simulator.set_quota("alice", Quota::used(100.0, 4_000_000_000));
    let mut socket = open(&simulator, "alice", false).await.unwrap();
    send(&mut socket, &create(None)).await;
    let refused = next(&mut socket).await;
    assert_eq!((&refused["type"], &refused["status"]), (&json!("error"), &json!(429)));
    assert_eq!(refused["error"]["type"], "usage_limit_reached");
    assert_eq!(refused["headers"]["x-codex-primary-used-percent"], "100");
}

#[tokio::test]
async fn a_stream_can_be_lost_or_closed_at_any_event() {
    let simulator = start().await;
    let ends = [
        End::Cut,
        End::Reset,
        End::MidEvent,
        End::Close { code: 1012, reason: "restart".to_owned() },
    ];
    for deflate in [false, true] {
        for end in &ends {
            simulator.script(vec![Rule::new(Action::end_after(2, end.clone())).route(Route::Turn)]);
            let mut socket = open(&simulator, "alice", deflate).await.unwrap();
            send(&mut socket, &create(None)).await;
            next(&mut socket).await;
            next(&mut socket).await;
            let last = socket.next_frame().await;
            let code = last.ok().and_then(|frame| frame.close_code());
            let wanted = matches!(end, End::Close { .. }).then_some(1012);
            assert_eq!(code.map(u16::from), wanted, "{end:?} deflate={deflate}");
        }
    }
}

#[tokio::test]
async fn an_error_of_the_script_is_an_error_frame() {
    let simulator = start().await;
    let busy = json!({"error": {"code": "server_is_overloaded"}});
    simulator.script(vec![Rule::new(Action::json(503, busy)).route(Route::WsMessage)]);
    let mut socket = open(&simulator, "alice", false).await.unwrap();
    send(&mut socket, &create(None)).await;
    let refused = next(&mut socket).await;
    assert_eq!(refused["status"], 503);
    assert_eq!(refused["error"]["code"], "server_is_overloaded");
}

#[tokio::test]
async fn a_handshake_can_be_refused_or_lost() {
    let simulator = start().await;
    let upgrade_required = Action::json(426, json!({"detail": "no"}));
    simulator.script(vec![Rule::new(upgrade_required).route(Route::WsHandshake)]);
    assert!(open(&simulator, "alice", false).await.is_err());
    simulator.script(vec![Rule::new(Action::lose(Loss::Reset)).route(Route::WsHandshake)]);
    assert!(open(&simulator, "alice", false).await.is_err());
    let config =
        SimConfig { websockets: WebSockets::Refused, ..SimConfig::with_accounts(&["alice"]) };
    let simulator = Simulator::start(config).await.unwrap();
    assert!(open(&simulator, "alice", false).await.is_err());
    assert_eq!(simulator.requests()[0].status, Some(426));
}

#[tokio::test]
async fn a_frame_of_sixteen_mebibytes_is_refused() {
    let simulator = start().await;
    let mut socket = open(&simulator, "alice", false).await.unwrap();
    let mut value = create(None);
    value["input"] = json!(["x".repeat(16 << 20)]);
    // The server may be gone before all of it is sent.
    let _ = socket.send(Frame::text(value.to_string())).await;
    let last = socket.next_frame().await;
    assert!(last.is_err() || last.unwrap().opcode() == OpCode::Close);
    assert_eq!(simulator.requests().len(), 1);
}

#[tokio::test]
async fn a_client_that_drops_its_socket_is_noticed() {
    let simulator = start().await;
    simulator.script(vec![Rule::new(Action::end_after(1, End::Stall)).route(Route::Turn)]);
    let mut socket = open(&simulator, "alice", true).await.unwrap();
    send(&mut socket, &create(None)).await;
    next(&mut socket).await;
    drop(socket);
    let requests =
        simulator.wait_until(|all| all.get(1).is_some_and(|it| it.ended != Ended::Open)).await;
    assert_eq!(requests[1].ended, Ended::ClientGone);
}
