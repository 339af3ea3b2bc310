//! The script's faults, each as the client sees it.

use std::time::Duration;

use codex_edge::sim::{
    Action, Answer, DropHead, End, Ended, EventSpec, Framing, Loss, Route, Rule, Simulator,
    StreamPlan,
};
use http_body_util::BodyExt;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{
    client::{self, Ask, WIRES, Wire},
    start, start_with_tls,
};

fn stream(plan: StreamPlan) -> Vec<Rule> {
    vec![Rule::new(Action::Stream(plan)).route(Route::Turn)]
}

async fn turn(simulator: &Simulator) -> client::Seen {
    Ask::turn(simulator, "alice").send(simulator).await.unwrap()
}

#[tokio::test]
async fn a_stream_cut_after_an_event_arrives_up_to_there_on_every_wire() {
    let simulator = start_with_tls().await;
    for end in [End::Cut, End::Reset, End::StreamError] {
        for wire in WIRES {
            simulator.script(vec![Rule::new(Action::end_after(3, end.clone()))]);
            let seen = Ask::turn(&simulator, "alice").wire(wire).send(&simulator).await.unwrap();
            assert!(!seen.whole, "{end:?} {wire:?}");
            assert_eq!(seen.events().len(), 3, "{end:?} {wire:?}");
            assert!(seen.text().ends_with("\n\n"));
        }
    }
    let requests = simulator.requests();
    assert!(requests.iter().all(|it| it.ended == Ended::Lost && it.status == Some(200)));
}

#[tokio::test]
async fn a_stream_that_ends_early_in_good_order_is_whole_but_unfinished() {
    let simulator = start().await;
    simulator.script(vec![Rule::new(Action::end_after(3, End::Eof))]);
    let seen = turn(&simulator).await;
    assert!(seen.whole);
    assert_eq!(seen.events().len(), 3);
}

#[tokio::test]
async fn a_stream_cut_in_an_event_leaves_half_of_it() {
    let simulator = start_with_tls().await;
    for end in [End::MidEvent, End::MidEventReset] {
        for wire in WIRES {
            simulator.script(vec![Rule::new(Action::end_after(1, end.clone()))]);
            let seen = Ask::turn(&simulator, "alice").wire(wire).send(&simulator).await.unwrap();
            assert!(!seen.whole, "{wire:?}");
            let text = seen.text();
            let (_, rest) = text.split_once("\n\n").unwrap();
            assert!(rest.starts_with("event: response.in_progress\ndata: {"), "{rest}");
            assert!(!rest.contains('}'), "{rest}");
        }
    }
}

#[tokio::test]
async fn a_connection_lost_before_the_head_gives_no_answer() {
    let simulator = start_with_tls().await;
    for how in [Loss::Reset, Loss::Close, Loss::StreamError] {
        for wire in WIRES {
            simulator.script(vec![Rule::new(Action::lose(how))]);
            let seen = Ask::turn(&simulator, "alice").wire(wire).send(&simulator).await;
            assert!(seen.is_err(), "{how:?} {wire:?}");
        }
    }
    let requests = simulator.requests();
    assert_eq!(requests.len(), 12);
    assert!(requests.iter().all(|it| it.ended == Ended::Lost && it.body_length > 0));
}

#[tokio::test]
async fn a_reset_is_a_tcp_reset() {
    let simulator = start().await;
    simulator.script(vec![Rule::new(Action::lose(Loss::Reset))]);
    let mut tcp = client::connect(simulator.address()).await;
    tcp.write_all(b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let fault = tcp.read(&mut [0; 8]).await.unwrap_err();
    assert_eq!(fault.kind(), std::io::ErrorKind::ConnectionReset);

    simulator.script(vec![Rule::new(Action::lose(Loss::Close))]);
    let mut tcp = client::connect(simulator.address()).await;
    tcp.write_all(b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert_eq!(tcp.read(&mut [0; 8]).await.unwrap(), 0);
}

#[tokio::test]
async fn silence_lasts_until_it_is_released() {
    let simulator = start().await;
    simulator.script(vec![Rule::new(Action::lose(Loss::Silence))]);
    let ask = Ask::turn(&simulator, "alice").send(&simulator);
    tokio::pin!(ask);
    tokio::select! {
        biased;
        _ = &mut ask => panic!("it was answered"),
        _ = simulator.wait_until(|all| all.first().is_some_and(|it| it.body_length > 0)) => {}
    }
    simulator.release();
    assert_eq!(ask.await.unwrap().status, 200);
}

#[tokio::test]
async fn a_stall_holds_the_rest_back() {
    let simulator = start().await;
    simulator.script(vec![Rule::new(Action::end_after(2, End::Stall))]);
    let response = Ask::turn(&simulator, "alice").begin(&simulator).await.unwrap();
    let mut body = response.into_body();
    let mut text = String::new();
    while text.matches("data: ").count() < 2 {
        let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
        text.push_str(std::str::from_utf8(&data).unwrap());
    }
    assert!(!text.contains("response.output_item"));
    simulator.release();
    let rest = body.collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&rest).contains("response.completed"));
}

#[tokio::test]
async fn an_answer_can_come_while_the_body_still_uploads() {
    let simulator = start().await;
    let early = Answer {
        status: 413,
        json: Some(json!({"detail": "too big"})),
        after_body_bytes: Some(10),
        ..Answer::default()
    };
    simulator.script(vec![Rule::new(Action::Answer(early))]);
    let mut tcp = client::connect(simulator.address()).await;
    let head =
        "POST /backend-api/codex/responses HTTP/1.1\r\nhost: x\r\ncontent-length: 5000\r\n\r\n";
    tcp.write_all(head.as_bytes()).await.unwrap();
    tcp.write_all(&[b' '; 20]).await.unwrap();
    let mut answer = [0; 12];
    tcp.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    assert_eq!(simulator.requests()[0].body_length, 20);
}

#[tokio::test]
async fn a_connection_can_be_lost_while_the_body_still_uploads() {
    let simulator = start().await;
    let drop = DropHead { how: Loss::Reset, after_body_bytes: Some(10), delay_ms: 0 };
    simulator.script(vec![Rule::new(Action::Drop(drop))]);
    let body = vec![b' '; 8 << 20];
    let seen = Ask::turn(&simulator, "alice").body(body).send(&simulator).await;
    assert!(seen.is_err());
    assert!(simulator.requests()[0].body_length < 8 << 20);
}

#[tokio::test]
async fn a_failure_inside_the_stream_is_its_last_event() {
    let simulator = start().await;
    let end = End::Failed { code: "server_is_overloaded".to_owned(), message: "full".to_owned() };
    simulator.script(vec![Rule::new(Action::end_after(2, end))]);
    let last = turn(&simulator).await.data().pop().unwrap();
    assert_eq!(last["type"], "response.failed");
    assert_eq!(last["response"]["error"]["code"], "server_is_overloaded");

    let end = End::Incomplete { reason: "max_output_tokens".to_owned() };
    simulator.script(vec![Rule::new(Action::end_after(2, end))]);
    let last = turn(&simulator).await.data().pop().unwrap();
    assert_eq!(last["response"]["incomplete_details"]["reason"], "max_output_tokens");
}

#[tokio::test]
async fn events_can_be_given_one_by_one() {
    let simulator = start().await;
    let events = vec![
        EventSpec::Named("created".to_owned()),
        EventSpec::Raw { raw: ": odd\n\n".to_owned() },
        EventSpec::Json(json!({"type": "keepalive"})),
        EventSpec::RawBase64 { raw_base64: "/w==".to_owned() },
    ];
    simulator.script(stream(StreamPlan { events: Some(events), ..StreamPlan::default() }));
    let seen = turn(&simulator).await;
    let text = seen.body;
    assert!(text.starts_with(b"event: response.created\ndata: {"));
    let tail = b"}\n\n: odd\n\nevent: keepalive\ndata: {\"type\":\"keepalive\"}\n\n\xff";
    assert!(text.ends_with(tail), "{text:?}");
}

#[tokio::test]
async fn framings_differ_as_they_are_named() {
    let simulator = start().await;
    let mut texts = Vec::new();
    for framing in
        [Framing::Cr, Framing::Crlf, Framing::NoFinalBlank, Framing::DataOnly, Framing::Comments]
    {
        simulator.script(stream(StreamPlan { framing, ..StreamPlan::default() }));
        texts.push(turn(&simulator).await.text());
    }
    let [cr, crlf, open, data, comments] = texts.try_into().unwrap();
    assert!(!cr.contains('\n') && cr.ends_with("\r\r"));
    assert!(crlf.ends_with("\r\n\r\n") && crlf.matches('\n').count() == crlf.matches('\r').count());
    assert!(open.ends_with("}"));
    assert!(!data.contains("event:"));
    assert!(comments.starts_with("\u{feff}: "));
}

#[tokio::test]
async fn a_compressed_stream_can_be_unpacked() {
    let simulator = start().await;
    simulator.script(stream(StreamPlan { gzip: true, ..StreamPlan::default() }));
    let seen = turn(&simulator).await;
    assert_eq!(seen.header("content-encoding"), "gzip");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&seen.body[..]), &mut text)
        .unwrap();
    assert!(text.contains("response.completed"));
}

#[tokio::test]
async fn headers_of_a_stream_can_be_changed_and_removed() {
    let simulator = start().await;
    let headers = [("openai-model", "other"), ("x-models-etag", ""), ("set-cookie", "a=b")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    simulator.script(stream(StreamPlan { headers, ..StreamPlan::default() }));
    let seen = turn(&simulator).await;
    assert_eq!(seen.header("openai-model"), "other");
    assert_eq!(seen.header("set-cookie"), "a=b");
    assert!(!seen.headers.contains_key("x-models-etag"));
}

#[tokio::test]
async fn delays_take_their_time() {
    let simulator = start().await;
    let plan = StreamPlan { event_delay_ms: 5, delay_ms: 5, ..StreamPlan::default() };
    simulator.script(stream(plan));
    let before = tokio::time::Instant::now();
    assert!(turn(&simulator).await.whole);
    assert!(before.elapsed() >= Duration::from_millis(45));
}

#[tokio::test]
async fn every_connection_can_be_lost_at_once() {
    let simulator = start().await;
    let mut tcp = client::connect(simulator.address()).await;
    tcp.write_all(b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    simulator.wait_until(|all| all.len() == 1).await;
    simulator.lose_connections(false);
    let mut rest = Vec::new();
    tcp.read_to_end(&mut rest).await.unwrap();
}

#[tokio::test]
async fn a_rule_may_want_one_model_and_one_account() {
    let simulator = start().await;
    let rule = Rule::new(Action::json(404, json!({"error": {"code": "model_not_found"}})));
    simulator.script(vec![rule.account("alice").route(Route::Responses).model("gpt-5.5")]);
    assert_eq!(turn(&simulator).await.status, 404);
    let other = Ask::turn(&simulator, "alice").body(r#"{"model":"gpt-6.2-sol"}"#);
    assert_eq!(other.wire(Wire::H2c).send(&simulator).await.unwrap().status, 200);
    assert_eq!(Ask::turn(&simulator, "bob").send(&simulator).await.unwrap().status, 200);
}
