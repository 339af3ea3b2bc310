//! Bytes over a socket, for requests that no HTTP library would send.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Sends bytes and reads until the gateway closes.
pub(crate) async fn send(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The gateway may refuse and close before it has everything.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Sends all of the bytes before it reads, as simple clients do; then reads the head of the answer.
pub(crate) async fn send_all_first(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = vec![0; 64];
    let read = stream.read(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

/// Sends bytes and waits for no answer. The client is there as long as the connection is kept.
pub(crate) async fn ask(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

/// Sends bytes and hangs up, without waiting for an answer.
pub(crate) async fn hang_up_after(address: SocketAddr, bytes: &[u8]) {
    ask(address, bytes).await.shutdown().await.unwrap();
}

/// The status of an answer; 0 if there was none.
pub(crate) fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0)
}
