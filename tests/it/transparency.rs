//! What is sent arrives, byte for byte, in both directions; only credentials differ.

use std::io::Write;

use codex_edge::sim::{Action, End, EventSpec, Framing, Route, Rule, StreamPlan};
use http::Method;
use http_body_util::BodyExt;
use proptest::{prelude::*, test_runner::TestRunner};

use crate::support::{
    client::Wire,
    raw,
    stage::{Setup, Stage},
};

const PATH: &str = "/v1/codex/responses";

async fn stage() -> Stage {
    Setup::with_accounts(&["alice", "bob"]).start().await
}

/// JSON as nobody's serialiser would write it: odd spacing, escapes, big numbers, duplicate keys.
fn odd_json() -> impl Strategy<Value = String> {
    let space = "[ \t\r\n]{0,3}";
    let scalar = prop_oneof![
        Just("null".to_owned()),
        "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?",
        r#""([a-zäß€😀 /]|\\u00[0-9a-f]{2}|\\[nrtbf"\\/]){0,20}""#,
    ];
    let value = scalar.prop_recursive(3, 24, 4, move |inner| {
        let member = (r#""(a|b|model2|\\u0061)""#, space, inner.clone());
        prop_oneof![
            prop::collection::vec((space, inner), 0..4).prop_map(|items| {
                let items: Vec<String> = items
                    .into_iter()
                    .map(|(space, item)| format!("{space}{item}{space}"))
                    .collect();
                format!("[{}]", items.join(","))
            }),
            prop::collection::vec(member, 0..4).prop_map(|members| {
                let members: Vec<String> = members
                    .into_iter()
                    .map(|(key, space, value)| format!("{space}{key}{space}:{space}{value}"))
                    .collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    });
    prop::collection::vec((r#""(x|y|input|stream)""#, space, value), 0..6).prop_map(|members| {
        let members: Vec<String> = members
            .into_iter()
            .map(|(key, space, value)| format!("{space}{key}{space}:{value}{space}"))
            .collect();
        let comma = if members.is_empty() { "" } else { "," };
        format!("{{ \"model\" : \"gpt-5.5\"{comma}{} }}", members.join(","))
    })
}

/// Event streams in every legal dress, with comments, unknown events and broken lines.
fn odd_stream() -> impl Strategy<Value = Vec<u8>> {
    let line_end = prop_oneof![Just("\n"), Just("\r\n"), Just("\r")];
    let data = prop_oneof![
        Just(r#"{"type":"response.created","response":{"id":"r"}}"#.to_owned()),
        Just(r#"{"type":"response.output_text.delta","delta":"hé\u0000llo"}"#.to_owned()),
        Just(r#"{"type":"never.heard.of"}"#.to_owned()),
        Just("[DONE]".to_owned()),
        Just("null".to_owned()),
        "[ -~]{0,60}",
    ];
    let event =
        (line_end, data, any::<bool>(), any::<bool>()).prop_map(|(end, data, space, comment)| {
            let comment = if comment { format!(": a comment{end}") } else { String::new() };
            let space = if space { " " } else { "" };
            format!("{comment}event: x{end}data:{space}{data}{end}{end}")
        });
    prop::collection::vec(event, 1..12).prop_map(|events| {
        let output = "data: {\"type\":\"response.output_item.added\"}\n\n".to_owned();
        [vec![output], events].concat().concat().into_bytes()
    })
}

#[test]
fn any_body_arrives_as_it_was_sent_and_any_stream_as_it_was_answered() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let stage = runtime.block_on(stage());
    let cuts = prop::collection::vec(1_usize..40, 1..12);
    let mut runner = TestRunner::new(ProptestConfig { cases: 96, ..ProptestConfig::default() });
    let result = runner.run(&(odd_json(), odd_stream(), cuts), |(sent, answer, cuts)| {
        stage.sim.reset();
        let plan = StreamPlan { events: Some(pieces(&answer, &cuts)), ..StreamPlan::default() };
        stage.sim.rule(Rule::new(Action::Stream(plan)).times(1));
        let seen = runtime.block_on(stage.h1().post(PATH, sent.clone()));
        prop_assert_eq!(seen.status, 200, "{}: {}", sent, seen.text());
        prop_assert_eq!(&seen.body[..], &answer[..]);
        let recorded = stage.sim.requests();
        prop_assert_eq!(recorded.len(), 1);
        prop_assert_eq!(&recorded[0].body[..], sent.as_bytes());
        Ok(())
    });
    result.unwrap();
}

/// The stream in pieces of the given sizes, over and over.
fn pieces(stream: &[u8], cuts: &[usize]) -> Vec<EventSpec> {
    let (mut rest, mut pieces) = (stream, Vec::new());
    for cut in cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at((*cut).min(rest.len()));
        pieces.push(EventSpec::Raw { raw: latin(piece) });
        rest = after;
    }
    // A cut may part a character, which the simulator's text pieces cannot carry.
    if pieces.iter().any(|it| matches!(it, EventSpec::Raw { raw } if raw.contains('\u{fffd}'))) {
        return vec![EventSpec::Raw { raw: latin(stream) }];
    }
    pieces
}

fn latin(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_framing_of_a_stream_passes_unchanged_over_every_wire() {
    let stage = stage().await;
    for wire in [Wire::H1, Wire::H2c] {
        for framing in [
            Framing::Lf,
            Framing::Cr,
            Framing::Crlf,
            Framing::NoFinalBlank,
            Framing::DataOnly,
            Framing::Comments,
        ] {
            for gzip in [false, true] {
                let plan = StreamPlan { framing, gzip, ..StreamPlan::default() };
                stage.sim.reset();
                stage.sim.rule(Rule::new(Action::Stream(plan)).times(1));
                let seen = stage.client(wire).post(PATH, r#"{"model":"gpt-5.5"}"#).await;
                assert_eq!(seen.status, 200, "{framing:?} {gzip}");
                assert!(!seen.broken, "{framing:?} {gzip}");
                let plain = if gzip {
                    assert_eq!(seen.headers["content-encoding"], "gzip");
                    unzip(&seen.body)
                } else {
                    seen.body.to_vec()
                };
                assert!(latin(&plain).contains("response.completed"), "{framing:?} {gzip}");
                assert_eq!(stage.sim.requests().len(), 1, "{framing:?} {gzip}");
            }
        }
    }
}

fn unzip(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::MultiGzDecoder::new(bytes), &mut plain).unwrap();
    plain
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compressed_body_is_read_as_a_copy_and_relayed_as_it_came() {
    let stage = stage().await;
    let plain = br#"{"model":"gpt-5.5","input":[]}"#;
    let zstd = zstd::encode_all(&plain[..], 3).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(plain).unwrap();
    for (encoding, body) in [("zstd", zstd), ("gzip", gzip.finish().unwrap())] {
        stage.sim.reset();
        let client = stage.h1();
        let request = client.request(Method::POST, PATH).header("content-encoding", encoding);
        let seen = client.send(request, body.clone()).await;
        assert_eq!(seen.status, 200, "{encoding}: {}", seen.text());
        let recorded = &stage.sim.requests()[0];
        assert_eq!(recorded.body, body, "{encoding}");
        assert_eq!(recorded.header("content-encoding").as_deref(), Some(encoding));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clients_headers_pass_in_order_and_the_account_brings_its_own_credentials() {
    let stage = stage().await;
    let client = stage.h1();
    let request = client
        .request(Method::POST, PATH)
        .header("session-id", "s-1")
        .header("X-Codex-Turn-Metadata", "{\"turn_id\":\"t\"}")
        .header("chatgpt-account-id", "somebody-else")
        .header("cookie", "a=b")
        .header("x-forwarded-for", "10.0.0.1")
        .header("originator", "codex_exec")
        .header("x-never-heard-of", "1")
        .header("x-never-heard-of", "2")
        .header("accept-encoding", "zstd,gzip");
    let seen = client.send(request, r#"{"model":"gpt-5.5"}"#).await;
    assert_eq!(seen.status, 200);
    let recorded = &stage.sim.requests()[0];
    let account = stage.sim.account(recorded.account.as_deref().unwrap()).unwrap();
    assert_eq!(
        recorded.header("authorization").unwrap(),
        format!("Bearer {}", account.access_token)
    );
    assert_eq!(recorded.header("chatgpt-account-id").unwrap(), account.account_id);
    assert_eq!(recorded.header("accept-encoding").as_deref(), Some("identity"));
    for absent in ["cookie", "x-forwarded-for", "x-api-key", "transfer-encoding"] {
        assert_eq!(recorded.header(absent), None, "{absent}");
    }
    let passed: Vec<String> = recorded
        .headers
        .iter()
        .map(|(name, value)| format!("{}={}", name.to_lowercase(), latin(value)))
        .filter(|it| it.starts_with("session-id") || it.starts_with("x-") || it.starts_with("orig"))
        .collect();
    assert_eq!(
        passed,
        [
            "session-id=s-1",
            "x-codex-turn-metadata={\"turn_id\":\"t\"}",
            "originator=codex_exec",
            "x-never-heard-of=1",
            "x-never-heard-of=2",
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answers_own_headers_pass_without_cookies_and_hosts() {
    let stage = stage().await;
    let plan = StreamPlan {
        headers: [
            ("set-cookie", "__cf_bm=secret"),
            ("server", "cloudflare"),
            ("x-who", "alice@example.com"),
            ("x-new", "kept"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec(),
        ..StreamPlan::default()
    };
    stage.sim.rule(Rule::new(Action::Stream(plan)));
    let seen = stage.h1().post(PATH, r#"{"model":"gpt-5.5"}"#).await;
    for absent in ["set-cookie", "server", "x-who", "x-models-etag"] {
        assert!(!seen.headers.contains_key(absent), "{absent}");
    }
    assert_eq!(seen.headers["x-new"], "kept");
    assert_eq!(seen.headers["openai-model"], "gpt-5.5");
    assert!(seen.headers.contains_key("x-codex-primary-used-percent"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_model_list_of_an_account_is_relayed_on_every_prefix() {
    let stage = stage().await;
    for prefix in ["/v1/codex", "/backend-api/codex", "/v1"] {
        let seen = stage.h1().get(&format!("{prefix}/models?client_version=0.171.0")).await;
        assert_eq!(seen.status, 200);
        assert!(seen.json()["models"].is_array());
    }
    let recorded = stage.sim.requests();
    assert_eq!(recorded.len(), 3);
    assert!(recorded.iter().all(|it| it.route == Route::Models));
    assert!(recorded.iter().all(|it| it.target.ends_with("/models?client_version=0.171.0")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_is_with_the_client_while_upstream_is_silent() {
    let stage = stage().await;
    for wire in [Wire::H1, Wire::H2c] {
        for after in [3, 4, 5] {
            stage.sim.reset();
            let plan = StreamPlan { after: Some(after), end: End::Stall, ..StreamPlan::default() };
            stage.sim.rule(Rule::new(Action::Stream(plan)).times(1));
            let client = stage.client(wire);
            let request = client.request(Method::POST, PATH);
            let response = client.begin(request, r#"{"model":"gpt-5.5"}"#).await.unwrap();
            let mut body = response.into_body();
            let mut seen = Vec::new();
            // Every event before the silence arrives; only then upstream may go on.
            while latin(&seen).matches("\n\n").count() < after {
                let frame = body.frame().await.unwrap().unwrap();
                seen.extend_from_slice(frame.data_ref().unwrap());
            }
            assert!(!latin(&seen).contains("response.completed"));
            stage.sim.release();
            let rest = body.collect().await.unwrap().to_bytes();
            assert!(latin(&rest).contains("response.completed"), "{wire:?} after {after}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunked_body_arrives_whole_with_its_length() {
    let stage = stage().await;
    let request = format!(
        "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
         9\r\n{{\"model\":\r\nA\r\n\"gpt-5.5\"}}\r\n0\r\n\r\n",
        stage.key
    );
    let answer = raw::send(stage.edge(), request.as_bytes()).await;
    assert_eq!(raw::status(&answer), 200, "{answer}");
    let recorded = &stage.sim.requests()[0];
    assert_eq!(recorded.body, br#"{"model":"gpt-5.5"}"#);
    assert_eq!(recorded.header("content-length").as_deref(), Some("19"));
    assert_eq!(recorded.header("transfer-encoding"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_known_by_its_file_only_sends_no_account_header() {
    let mut setup = Setup::with_accounts(&["alice"]);
    let account = &mut setup.sim.accounts[0];
    // An opaque token and no claims: nothing but the file's name tells who this is.
    account.access_token = "opaque-access-token".into();
    setup.auth_files = Some(vec![(
        "anyone.json".into(),
        br#"{"tokens":{"access_token":"opaque-access-token","refresh_token":"r"}}"#.to_vec(),
    )]);
    let stage = setup.start().await;
    let client = stage.h1();
    let request =
        client.request(Method::POST, PATH).header("chatgpt-account-id", "the-clients-own");
    let seen = client.send(request, r#"{"model":"gpt-5.5"}"#).await;
    assert_eq!(seen.status, 200, "{}", seen.text());
    assert_eq!(stage.sim.requests()[0].header("chatgpt-account-id"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_may_last_as_long_as_it_never_falls_silent_for_too_long() {
    let setup = Setup::with_accounts(&["alice"]).toml("[upstream]\nidle_timeout = \"1s\"");
    let stage = setup.start().await;
    let slow = StreamPlan { event_delay_ms: 250, ..StreamPlan::default() };
    stage.sim.rule(Rule::new(Action::Stream(slow)).times(1));
    let seen = stage.h1().post(PATH, r#"{"model":"gpt-5.5"}"#).await;
    assert!(!seen.broken && seen.text().contains("response.completed"), "{}", seen.text());

    let silent = StreamPlan { after: Some(4), end: End::Stall, ..StreamPlan::default() };
    stage.sim.rule(Rule::new(Action::Stream(silent)).times(1));
    let seen = stage.h1().post(PATH, r#"{"model":"gpt-5.5"}"#).await;
    assert!(seen.broken, "{}", seen.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirect_is_relayed_and_never_followed() {
    let stage = stage().await;
    let plan = codex_edge::sim::Answer {
        status: 307,
        headers: vec![("location".into(), "https://elsewhere.invalid/".into())],
        ..Default::default()
    };
    stage.sim.rule(Rule::new(Action::Answer(plan)));
    let seen = stage.h1().post(PATH, r#"{"model":"gpt-5.5"}"#).await;
    assert_eq!(seen.status, 307);
    assert_eq!(stage.sim.requests().len(), 1);
}
