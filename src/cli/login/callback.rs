//! The port of this machine that a browser comes back to after a sign-in.
//!
//! It answers one path, to anybody: what a stranger brings has no state that fits, and is refused
//! by whoever keeps the sign-in.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

const PATH: &str = "/auth/callback";
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// No browser takes longer to ask.
const PATIENCE: Duration = Duration::from_secs(10);

/// Browsers that come back. The port is closed on drop.
pub(super) struct Visits {
    address: SocketAddr,
    visits: mpsc::Receiver<Visit>,
    door: JoinHandle<()>,
}

/// A browser that came back, and waits for its page.
pub(super) struct Visit {
    pub(super) url: String,
    page: oneshot::Sender<Page>,
    shown: oneshot::Receiver<()>,
}

/// What the browser shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Done,
    Failed(String),
    /// The browser asks for something else, like an icon.
    Unknown,
}

#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum DoorError {
    #[error(
        "the ports {ports} of this machine are in use, and the sign-in service sends browsers to no \
         other: end what uses them (another sign-in?), or sign in with --device"
    )]
    InUse { ports: String },
    #[error("cannot listen for the browser: {0}; sign in with --device")]
    Listen(#[source] io::Error),
}

// === impl Visits ===

impl Visits {
    /// Opens the first of the ports that is free.
    pub(super) async fn open(ports: &[u16]) -> Result<Self, DoorError> {
        for port in ports {
            match TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).await {
                Ok(listener) => return Self::at(listener).map_err(DoorError::Listen),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(DoorError::Listen(error)),
            }
        }
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        Err(DoorError::InUse { ports: ports.join(" and ") })
    }

    fn at(listener: TcpListener) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (sender, visits) = mpsc::channel(4);
        let door = tokio::spawn(async move {
            // What cannot be accepted now may be the next time; the sign-in has an end anyway.
            loop {
                if let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(receive(stream, sender.clone()));
                }
            }
        });
        Ok(Self { address, visits, door })
    }

    pub(super) fn redirect_uri(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    pub(super) async fn next(&mut self) -> Option<Visit> {
        self.visits.recv().await
    }
}

impl Drop for Visits {
    fn drop(&mut self) {
        self.door.abort();
    }
}

// === impl Visit ===

impl Visit {
    /// Gives the browser its page, and returns once it has it.
    pub(super) async fn answer(self, page: Page) {
        // A browser that is gone needs no page.
        if self.page.send(page).is_ok() {
            let _ = self.shown.await;
        }
    }
}

async fn receive(mut stream: TcpStream, visits: mpsc::Sender<Visit>) {
    let read = tokio::time::timeout(PATIENCE, read_target(&mut stream)).await;
    let Ok(Some(url)) = read else { return };
    let (told, shown) = oneshot::channel();
    let page = if url.split('?').next() == Some(PATH) {
        let (page, answer) = oneshot::channel();
        if visits.send(Visit { url, page, shown }).await.is_err() {
            return;
        }
        answer.await.unwrap_or(Page::Failed("the sign-in is over".to_owned()))
    } else {
        Page::Unknown
    };
    let sending = async {
        let _ = stream.write_all(page.response().as_bytes()).await;
        let _ = stream.shutdown().await;
    };
    let _ = tokio::time::timeout(PATIENCE, sending).await;
    let _ = told.send(());
}

/// The target of a GET request.
async fn read_target(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.windows(4).any(|it| it == b"\r\n\r\n") {
        let read = stream.read_buf(&mut head).await.ok()?;
        if read == 0 || head.len() > HEAD_BYTES_MAX {
            return None;
        }
    }
    let mut headers = [httparse::EMPTY_HEADER; 100];
    let mut request = httparse::Request::new(&mut headers);
    request.parse(&head).ok()?;
    (request.method == Some("GET")).then(|| request.path.map(str::to_owned)).flatten()
}

// === impl Page ===

impl Page {
    fn response(&self) -> String {
        let (status, text) = match self {
            Self::Done => ("200 OK", "Signed in. This page can be closed.".to_owned()),
            Self::Failed(why) => {
                ("400 Bad Request", format!("The sign-in did not work: {}", escape(why)))
            }
            Self::Unknown => ("404 Not Found", "There is nothing here.".to_owned()),
        };
        let body = format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>codex-edge</title>\
             <p>{text}</p></html>\n"
        );
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\n\
             content-length: {}\r\ncache-control: no-store\r\nreferrer-policy: no-referrer\r\n\
             connection: close\r\n\r\n{body}",
            body.len()
        )
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(address: SocketAddr, target: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_browser_gets_its_page_once_the_sign_in_has_ended() {
        let mut visits = Visits::open(&[0]).await.unwrap();
        let address = visits.address;
        assert_eq!(visits.redirect_uri(), format!("http://{address}/auth/callback"));
        assert!(get(address, "/favicon.ico").await.starts_with("HTTP/1.1 404 "));
        let browser = tokio::spawn(async move { get(address, "/auth/callback?code=1").await });
        let visit = visits.next().await.unwrap();
        assert_eq!(visit.url, "/auth/callback?code=1");
        visit.answer(Page::Failed("a <b> & c".to_owned())).await;
        let page = browser.await.unwrap();
        assert!(
            page.starts_with("HTTP/1.1 400 ") && page.contains("a &lt;b&gt; &amp; c"),
            "{page}"
        );
    }

    #[tokio::test]
    async fn the_next_port_is_taken_where_one_is_in_use() {
        let busy = Visits::open(&[0]).await.unwrap();
        let port = busy.address.port();
        let other = Visits::open(&[port, 0]).await.unwrap();
        assert_ne!(other.address.port(), port);
        let refused = Visits::open(&[port]).await.err().unwrap().to_string();
        assert!(refused.contains(&port.to_string()) && refused.contains("--device"), "{refused}");
    }
}
