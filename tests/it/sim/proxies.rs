//! The counting proxies.

use codex_edge::sim::{ProxyConfig, ProxyKind, SimProxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{client::connect, start};

const REQUEST: &[u8] = b"GET /nothing HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn a_connect_proxy_carries_and_counts() {
    let simulator = start().await;
    let config = ProxyConfig {
        kind: ProxyKind::Connect,
        login: Some(("user".to_owned(), "pass".to_owned())),
        reroute: Some(simulator.address()),
    };
    let proxy = SimProxy::start(config).await.unwrap();
    let mut tcp = connect(proxy.address()).await;
    let head = "CONNECT chatgpt.com:443 HTTP/1.1\r\nhost: chatgpt.com\r\n";
    let login = "Proxy-Authorization: Basic dXNlcjpwYXNz\r\n\r\n";
    tcp.write_all(format!("{head}{login}").as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    tcp.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    tcp.write_all(REQUEST).await.unwrap();
    let mut rest = Vec::new();
    tcp.read_to_end(&mut rest).await.unwrap();
    assert!(String::from_utf8_lossy(&rest).contains("HTTP/1.1 401"));
    assert_eq!(proxy.targets(), ["chatgpt.com:443"]);
    assert_eq!(simulator.requests().len(), 1);

    let mut tcp = connect(proxy.address()).await;
    tcp.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
    tcp.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 407");
}

#[tokio::test]
async fn a_socks_proxy_carries_and_counts() {
    let simulator = start().await;
    let config = ProxyConfig { kind: ProxyKind::Socks5, login: None, reroute: None };
    let proxy = SimProxy::start(config).await.unwrap();
    let mut tcp = connect(proxy.address()).await;
    tcp.write_all(&[5, 1, 0]).await.unwrap();
    let mut chosen = [0; 2];
    tcp.read_exact(&mut chosen).await.unwrap();
    assert_eq!(chosen, [5, 0]);
    let port = simulator.address().port();
    let mut request = vec![5, 1, 0, 3, 9];
    request.extend_from_slice(b"localhost");
    request.extend_from_slice(&port.to_be_bytes());
    tcp.write_all(&request).await.unwrap();
    let mut answer = [0; 10];
    tcp.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer[..2], [5, 0]);
    tcp.write_all(REQUEST).await.unwrap();
    let mut rest = Vec::new();
    tcp.read_to_end(&mut rest).await.unwrap();
    assert!(String::from_utf8_lossy(&rest).contains("HTTP/1.1 401"));
    assert_eq!(proxy.targets(), [format!("localhost:{port}")]);
}
