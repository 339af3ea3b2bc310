//! The admin listener as an operator, a scraper and a web page meet it.

use std::fs;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    client::{Client, Exchange},
    raw,
    stage::{Setup, Stage},
};

const USERS: &str = "/v0/management/users";
const GOOD: &str = r#"{"model":"gpt-5.5","stream":true,"input":[]}"#;

async fn stage() -> (Stage, Client) {
    let stage = Setup::with_accounts(&["alice"]).start().await;
    let key = fs::read_to_string(stage.data_dir.join("admin.key")).unwrap();
    let operator = Client { key: Some(key.trim().to_owned()), ..stage.admin() };
    (stage, operator)
}

async fn send(client: &Client, method: Method, path: &str, body: &str) -> Exchange {
    client.send(client.request(method, path), body.to_owned()).await
}

fn header<'a>(exchange: &'a Exchange, name: &str) -> &'a str {
    exchange.headers.get(name).map_or("", |it| it.to_str().unwrap())
}

/// Checks what every error has, and gives its status and code.
fn told(exchange: &Exchange) -> (u16, String) {
    let error = &exchange.json()["error"];
    assert!(!error["message"].as_str().unwrap().is_empty(), "{error}");
    assert!(!error["type"].as_str().unwrap().is_empty(), "{error}");
    assert_eq!(error["param"], Value::Null);
    assert_eq!(error["request_id"].as_str().unwrap(), header(exchange, "x-request-id"));
    check_guards(exchange);
    (exchange.status.as_u16(), exchange.code())
}

fn check_guards(exchange: &Exchange) {
    assert_eq!(header(exchange, "cache-control"), "no-store");
    assert!(header(exchange, "x-request-id").starts_with("req_"));
    let cors = exchange.headers.keys().any(|it| it.as_str().starts_with("access-control-"));
    assert!(!cors, "{:?}", exchange.headers);
}

#[tokio::test]
async fn health_and_metrics_need_no_key() {
    let (stage, _) = stage().await;
    let anyone = stage.admin();
    let table = [
        ("/healthz", "application/json", "{\"status\":\"ok\"}"),
        ("/readyz", "application/json", "\"ready\":true"),
        ("/metrics", "text/plain; version=0.0.4", "codex_edge_"),
    ];
    for (path, kind, content) in table {
        let seen = anyone.get(path).await;
        assert_eq!(seen.status, StatusCode::OK, "{path}");
        assert_eq!(header(&seen, "content-type"), kind, "{path}");
        assert!(seen.text().contains(content), "{path}: {}", seen.text());
        check_guards(&seen);
    }
}

#[tokio::test]
async fn without_an_account_the_gateway_says_why_it_is_not_ready() {
    let stage = Setup::with_accounts(&[]).start().await;
    let seen = stage.admin().get("/readyz").await;
    assert_eq!(seen.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(seen.json()["ready"], false);
    assert_eq!(seen.json()["reasons"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_user_lives_from_creation_to_deletion() {
    let (stage, operator) = stage().await;
    let made = send(&operator, Method::POST, USERS, r#"{"name":"Ann"}"#).await;
    assert_eq!(made.status, StatusCode::OK, "{}", made.text());
    check_guards(&made);
    let made = made.json();
    let user = &made["user"];
    let members: Vec<&str> = user.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = ["accounts", "created_at", "enabled", "id", "limits", "name", "selectors"];
    assert_eq!(members, expected);
    assert_eq!((&user["name"], &user["enabled"]), (&json!("Ann"), &json!(true)));
    let shown = &made["api_key"];
    let members: Vec<&str> = shown.as_object().unwrap().keys().map(String::as_str).collect();
    let expected =
        ["created_at", "enabled", "expires_at", "id", "last_used_at", "masked_key", "name"];
    assert_eq!(members, expected);
    let first = made["api_key_value"].as_str().unwrap().to_owned();
    assert!(first.starts_with("cek_"));

    let by_id = format!("{USERS}/{}", user["id"].as_str().unwrap());
    let by_name = format!("{USERS}/ann");
    for path in [&by_id, &by_name] {
        let seen = operator.get(path).await;
        assert_eq!(&seen.json()["user"], user);
        assert_eq!(seen.json()["api_key"]["masked_key"], shown["masked_key"]);
        assert!(!seen.text().contains(&first));
    }
    let listed = operator.get(USERS).await;
    assert!(!listed.text().contains(&first));
    let names: Vec<Value> =
        listed.json()["users"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
    assert_eq!(names, [json!("local"), json!("Ann")]);

    let comes_in = async |key: &str| {
        let client = Client { key: Some(key.to_owned()), ..stage.h1() };
        client.post("/v1/codex/responses", GOOD).await.status.as_u16()
    };
    assert_eq!(comes_in(&first).await, 200);
    let seen = send(&operator, Method::PATCH, &by_id, r#"{"enabled":false}"#).await;
    assert_eq!(seen.json()["user"]["enabled"], false);
    assert_eq!(comes_in(&first).await, 403);
    send(&operator, Method::PATCH, &by_name, r#"{"enabled":true}"#).await;
    assert_eq!(comes_in(&first).await, 200);

    let reset = send(&operator, Method::POST, &format!("{by_id}/api-key/reset"), "").await;
    let second = reset.json()["api_key_value"].as_str().unwrap().to_owned();
    assert_eq!(comes_in(&second).await, 200);
    assert_ne!(comes_in(&first).await, 200);

    let gone = send(&operator, Method::DELETE, &by_id, "").await;
    assert_eq!((gone.status, gone.body.len()), (StatusCode::NO_CONTENT, 0));
    check_guards(&gone);
    assert_eq!(comes_in(&second).await, 401);
    assert_eq!(told(&operator.get(&by_id).await), (404, "not_found".to_owned()));
}

#[tokio::test]
async fn only_the_operator_manages() {
    let (stage, operator) = stage().await;
    let key = operator.key.clone().unwrap();
    let wrong = format!("{}x", &key[..key.len() - 1]);
    let table = [
        None,
        Some(String::new()),
        Some("Bearer".to_owned()),
        Some(key.clone()),
        Some(format!("Basic {key}")),
        Some(format!("Bearer {wrong}")),
        Some(format!("Bearer {key}x")),
        Some(format!("Bearer {}", stage.key)),
    ];
    for authorization in table {
        for path in [USERS, "/v0/management/users/local", "/v0/management/nothing"] {
            let mut request = stage.admin().request(Method::GET, path);
            if let Some(value) = &authorization {
                request = request.header("authorization", value);
            }
            let seen = operator.send(request, "").await;
            assert_eq!(told(&seen), (401, "invalid_admin_key".to_owned()), "{authorization:?}");
            assert!(!seen.text().contains(&key));
        }
    }
    assert_eq!(operator.get(USERS).await.status, StatusCode::OK);
}

#[tokio::test]
async fn what_does_not_fit_is_refused_in_the_shape_of_all_errors() {
    let (_stage, operator) = stage().await;
    let local = "/v0/management/users/local";
    let large = format!("{{\"name\":\"{}\"}}", "a".repeat(70_000));
    let table = [
        (Method::POST, USERS, "", 400, "invalid_request"),
        (Method::POST, USERS, "{", 400, "invalid_request"),
        (Method::POST, USERS, "[\"bob\"]", 400, "invalid_request"),
        (Method::POST, USERS, "{\"name\":1}", 400, "invalid_request"),
        (Method::POST, USERS, "{\"name\":\"bob\",\"colour\":1}", 400, "invalid_request"),
        (Method::POST, USERS, "{\"name\":\"bob\",\"name\":\"eve\"}", 400, "invalid_request"),
        (Method::POST, USERS, "{\"name\":\"b ob\"}", 400, "invalid_request"),
        (Method::POST, USERS, "{\"name\":\"LOCAL\"}", 409, "name_taken"),
        (Method::POST, USERS, &large, 413, "payload_too_large"),
        (Method::PATCH, local, "{}", 400, "invalid_request"),
        (Method::PATCH, local, "{\"enabled\":true,\"limits\":null}", 400, "invalid_request"),
        (Method::PATCH, "/v0/management/users/nobody", "{\"enabled\":true}", 404, "not_found"),
        (Method::DELETE, "/v0/management/users/nobody", "", 404, "not_found"),
        (Method::POST, "/v0/management/users/nobody/api-key/reset", "", 404, "not_found"),
        (Method::GET, "/v0/management/users/%ff", "", 404, "not_found"),
        (Method::GET, "/v0/management/nothing", "", 404, "not_found"),
        (Method::GET, "/v0/management", "", 404, "not_found"),
        (Method::GET, "/nothing", "", 404, "not_found"),
        (Method::GET, "/", "", 404, "not_found"),
    ];
    for (method, path, body, status, code) in table {
        let seen = send(&operator, method.clone(), path, body).await;
        assert_eq!(told(&seen), (status, code.to_owned()), "{method} {path} {body:.40}");
    }
}

#[tokio::test]
async fn a_wrong_method_is_told_which_there_are() {
    let (_stage, operator) = stage().await;
    let table = [
        (Method::POST, "/metrics", "GET,HEAD"),
        (Method::DELETE, "/healthz", "GET,HEAD"),
        (Method::PUT, USERS, "GET,HEAD,POST"),
        (Method::POST, "/v0/management/users/local", "GET,HEAD,PATCH,DELETE"),
        (Method::GET, "/v0/management/users/local/api-key/reset", "POST"),
        (Method::OPTIONS, USERS, "GET,HEAD,POST"),
    ];
    for (method, path, allow) in table {
        let seen = send(&operator, method.clone(), path, "").await;
        assert_eq!(told(&seen), (405, "method_not_allowed".to_owned()), "{method} {path}");
        assert_eq!(header(&seen, "allow"), allow, "{method} {path}");
    }
}

#[tokio::test]
async fn a_foreign_host_name_reaches_nothing() {
    let (stage, _) = stage().await;
    let table = [
        ("GET /healthz HTTP/1.1\r\nHost: localhost:99\r\n", 200),
        ("GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n", 200),
        ("GET /healthz HTTP/1.1\r\nHost: [::1]:8318\r\n", 200),
        ("GET /healthz HTTP/1.1\r\nHost: rebound.example\r\n", 421),
        ("GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: rebound.example\r\n", 421),
        ("GET http://rebound.example/healthz HTTP/1.1\r\nHost: localhost\r\n", 421),
        ("GET /healthz HTTP/1.1\r\n", 421),
    ];
    for (head, status) in table {
        let head = format!("{head}Connection: close\r\n\r\n");
        let answer = raw::send(stage.app.admin, head.as_bytes()).await;
        assert_eq!(raw::status(&answer), status, "{head}\n{answer}");
        assert_eq!(status == 421, answer.contains("misdirected_request"), "{answer}");
    }
}
