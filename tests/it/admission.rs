//! What is refused by its head or its body, with a clear answer and without touching an account.

use http::Method;

use crate::support::{
    client::{Client, Wire},
    raw,
    stage::{Setup, Stage, eventually},
};

const PATH: &str = "/v1/codex/responses";
const GOOD: &str = r#"{"model":"gpt-5.5","input":[]}"#;

async fn stage() -> Stage {
    Setup::with_accounts(&["alice"]).start().await
}

fn untouched(stage: &Stage) {
    assert_eq!(stage.sim.requests().len(), 0, "an account was used");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_comes_in_without_a_known_key() {
    let stage = stage().await;
    for key in [None, Some("cek_wrong"), Some("eyJhbGciOi"), Some("")] {
        let client = Client { key: key.map(str::to_owned), ..stage.h1() };
        let seen = client.post(PATH, GOOD).await;
        assert_eq!(seen.status, 401, "{key:?}");
        assert_eq!(seen.code(), "invalid_api_key");
        let error = &seen.json()["error"];
        assert_eq!(error["request_id"], seen.headers["x-request-id"].to_str().unwrap());
        assert_eq!(error["param"], serde_json::Value::Null);
    }
    untouched(&stage);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_may_come_as_a_bearer_or_as_an_api_key() {
    let stage = stage().await;
    let nobody = Client { key: None, ..stage.h1() };
    let request = nobody.request(Method::POST, PATH).header("x-api-key", &stage.key);
    assert_eq!(nobody.send(request, GOOD).await.status, 200);
    let request = nobody
        .request(Method::POST, PATH)
        .header("authorization", "Bearer eyJhbGciOiJub25lIn0.e30.")
        .header("x-api-key", &stage.key);
    assert_eq!(nobody.send(request, GOOD).await.status, 200);
    let recorded = stage.sim.requests();
    assert!(recorded.iter().all(|it| it.header("x-api-key").is_none()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_is_listed_or_does_not_exist() {
    let stage = stage().await;
    let client = stage.h1();
    let table = [
        (Method::GET, "/", 404, "not_found"),
        (Method::POST, "/v1/codex/leases", 404, "not_found"),
        (Method::POST, "/v1/codex/realtime/calls", 404, "not_supported"),
        (Method::GET, "/backend-api/codex/realtime", 404, "not_supported"),
        (Method::POST, "/v1/chat/completions", 404, "not_supported"),
        (Method::GET, "/v1/responses", 405, "method_not_allowed"),
        (Method::DELETE, "/v1/codex/models", 405, "method_not_allowed"),
    ];
    for (method, path, status, code) in table {
        let seen = client.send(client.request(method.clone(), path), "").await;
        assert_eq!((seen.status.as_u16(), seen.code().as_str()), (status, code), "{method} {path}");
        assert_eq!(seen.headers.contains_key("allow"), status == 405, "{method} {path}");
    }
    untouched(&stage);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctors_probe_needs_no_key_and_no_upstream() {
    let stage = stage().await;
    let nobody = Client { key: None, ..stage.h1() };
    let seen = nobody.send(nobody.request(Method::HEAD, PATH), "").await;
    assert_eq!(seen.status, 200);
    untouched(&stage);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_is_refused_in_the_way_that_sends_codex_to_http() {
    let stage = stage().await;
    let client = stage.h1();
    let request = client
        .request(Method::GET, PATH)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    let seen = client.send(request, "").await;
    assert_eq!(seen.status, 426);
    assert_eq!(seen.code(), "websocket_unavailable");
    untouched(&stage);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_no_request_is_refused_before_any_dispatch() {
    let stage = stage().await;
    for body in [
        "",
        "null",
        "[]",
        "\"model\"",
        "{\"model\":\"gpt-5.5\"",
        "{\"model\":\"gpt-5.5\"} {}",
        "{\"model\":5}",
        "{\"model\":null}",
        "{\"model\":\"a\",\"model\":\"b\"}",
        "{\"model\":\"a\",\"mod\\u0065l\":\"b\"}",
        "{\"model\":\"gpt-5.5\",\"input\":[1,]}",
    ] {
        for prefix in ["/v1/codex", "/backend-api/codex", "/v1"] {
            let seen = stage.h1().post(&format!("{prefix}/responses"), body).await;
            assert_eq!(seen.status, 400, "{body}");
            assert_eq!(seen.code(), "invalid_request", "{body}");
        }
    }
    untouched(&stage);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_is_bounded_as_sent_and_as_decoded() {
    let setup = Setup::with_accounts(&["alice"]).toml("[limits]\nmax_body = \"1MiB\"");
    let stage = setup.start().await;
    let client = stage.h1();
    let large = format!("{{\"model\":\"gpt-5.5\",\"input\":\"{}\"}}", "a".repeat(2 << 20));
    let seen = client.post(PATH, large.clone()).await;
    assert_eq!((seen.status.as_u16(), seen.code().as_str()), (413, "payload_too_large"));

    let bomb = zstd::encode_all(large.as_bytes(), 3).unwrap();
    assert!(bomb.len() < 10_000);
    let request = client.request(Method::POST, PATH).header("content-encoding", "zstd");
    let seen = client.send(request, bomb).await;
    assert_eq!((seen.status.as_u16(), seen.code().as_str()), (413, "payload_too_large"));

    for (encoding, status, code) in [
        ("br", 400, "unsupported_content_encoding"),
        ("gzip, zstd", 400, "unsupported_content_encoding"),
        ("zstd", 400, "invalid_request"),
        ("gzip", 400, "invalid_request"),
    ] {
        let request = client.request(Method::POST, PATH).header("content-encoding", encoding);
        let seen = client.send(request, GOOD).await;
        assert_eq!((seen.status.as_u16(), seen.code().as_str()), (status, code), "{encoding}");
    }
    untouched(&stage);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_sends_everything_first_still_hears_the_refusal() {
    let stage = stage().await;
    let large = "a".repeat(65 << 20);
    let table = [(stage.key.as_str(), 413), ("cek_wrong", 401)];
    for (key, status) in table {
        let head = format!(
            "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
             Content-Length: {}\r\n\r\n",
            large.len()
        );
        let request = [head.as_bytes(), large.as_bytes()].concat();
        let answer = raw::send_all_first(stage.edge(), &request).await;
        assert_eq!(raw::status(&answer), status, "{answer}");
    }
    untouched(&stage);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_beyond_the_common_budget_are_turned_away_for_a_moment() {
    let setup = Setup::with_accounts(&["alice"])
        .toml("[limits]\nbuffered_total = \"1MiB\"\nreplay_body = \"1MiB\"");
    let stage = setup.start().await;
    let large = format!("{{\"model\":\"gpt-5.5\",\"input\":\"{}\"}}", "a".repeat(2 << 20));
    let seen = stage.h1().post(PATH, large).await;
    assert_eq!((seen.status.as_u16(), seen.code().as_str()), (503, "overloaded"));
    assert_eq!(seen.headers["retry-after"], "1");
    assert_eq!(stage.h1().post(PATH, GOOD).await.status, 200);
    eventually("the budget is given back", || stage.app.gateway.budget.used() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_web_page_of_somebody_else_is_turned_away() {
    let setup = Setup::with_accounts(&["alice"])
        .toml("[server]\nallowed_origins = [\"https://good.example\"]");
    let stage = setup.start().await;
    let client = stage.h1();
    let ask = async |origin: &str| {
        let request = client.request(Method::POST, PATH).header("origin", origin);
        client.send(request, GOOD).await
    };
    let seen = ask("https://evil.example").await;
    assert_eq!((seen.status.as_u16(), seen.code().as_str()), (403, "origin_not_allowed"));
    untouched(&stage);
    assert_eq!(ask("https://good.example").await.status, 200);
    assert_eq!(stage.sim.requests()[0].header("origin"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_with_two_readings_are_refused_before_routing() {
    let stage = stage().await;
    let key = &stage.key;
    let lengths = format!("Content-Length: {}\r\n", GOOD.len());
    let head = |target: &str, lines: &str| {
        format!(
            "POST {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
             Connection: close\r\n{lines}\r\n{GOOD}"
        )
    };
    let smuggling = [
        ("two hosts", head(PATH, &format!("Host: elsewhere\r\n{lengths}"))),
        ("two lengths", head(PATH, &format!("{lengths}Content-Length: 3\r\n"))),
        ("the same length twice", head(PATH, &format!("{lengths}{lengths}"))),
        ("length and encoding", head(PATH, &format!("{lengths}Transfer-Encoding: chunked\r\n"))),
        ("bare line feeds", head(PATH, &format!("X: y\n{lengths}"))),
        ("a whole URL", head("http://elsewhere/v1/codex/responses", &lengths)),
        ("double slash", head("/v1//codex/responses", &lengths)),
        ("escaped dots", head("/v1/%2e%2e/responses", &lengths)),
        ("escaped slash", head("/v1%2Fcodex/responses", &lengths)),
        ("a parameter", head("/v1/codex/responses;a=b", &lengths)),
    ];
    for (name, request) in smuggling {
        let answer = raw::send(stage.edge(), request.as_bytes()).await;
        assert_eq!(raw::status(&answer), 400, "{name}: {answer}");
    }
    untouched(&stage);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_are_bounded_together() {
    let stage = stage().await;
    let client = stage.h1();
    let request = client.request(Method::POST, PATH).header("x-large", "a".repeat(70_000));
    let seen = client.send(request, GOOD).await;
    assert_eq!((seen.status.as_u16(), seen.code().as_str()), (431, "headers_too_large"));
    untouched(&stage);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_drips_in_is_cut() {
    let setup = Setup::with_accounts(&["alice"])
        .toml("[server]\nhead_timeout = \"200ms\"\nfirst_byte_timeout = \"200ms\"");
    let stage = setup.start().await;
    // Silence, and a head that never ends: both are closed by the gateway.
    assert_eq!(raw::send(stage.edge(), b"").await, "");
    assert_eq!(
        raw::send(stage.edge(), b"POST /v1/codex/responses HTTP/1.1\r\nHost: x\r\n").await,
        ""
    );
    // Empty lines before a head are no head.
    assert_eq!(raw::send(stage.edge(), b"\r\n\r\nPOST /v1/codex/resp").await, "");
    untouched(&stage);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_shorter_than_it_said_is_never_dispatched() {
    let stage = stage().await;
    let request = format!(
        "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Content-Length: 5000\r\n\r\n{GOOD}",
        stage.key
    );
    raw::hang_up_after(stage.edge(), request.as_bytes()).await;
    let gateway = &stage.app.gateway;
    let left = || gateway.flights.count() == 0 && gateway.budget.used() == 0;
    eventually("the request is given up", left).await;
    untouched(&stage);
    assert_eq!(stage.h1().post(PATH, GOOD).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_expects_to_be_invited_is() {
    let stage = stage().await;
    let request = format!(
        "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Expect: 100-continue\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{GOOD}",
        stage.key,
        GOOD.len()
    );
    let answer = raw::send(stage.edge(), request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 100"), "{answer}");
    assert!(answer.contains("HTTP/1.1 200"), "{answer}");
    assert_eq!(stage.sim.requests()[0].header("expect"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_pool_says_so_and_the_process_lives() {
    let stage = Setup::with_accounts(&[]).start().await;
    let seen = stage.h1().post(PATH, GOOD).await;
    assert_eq!((seen.status.as_u16(), seen.code().as_str()), (503, "no_account_available"));
    for client in [stage.h1(), stage.admin()] {
        let client = Client { wire: Wire::H1, ..client };
        assert_eq!(client.get("/healthz").await.status, 200);
        let seen = client.get("/readyz").await;
        assert_eq!(seen.status, 503, "{}", seen.text());
        assert!(seen.text().contains("reasons"), "{}", seen.text());
    }
}
