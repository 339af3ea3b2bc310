//! A plain client for one request on a connection of its own.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use codex_edge::sim::Simulator;

use crate::support::client::{encrypt, exchange};

/// No test waits longer for anything.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    H1,
    H2c,
    TlsH1,
    TlsH2,
}

pub(super) const WIRES: [Wire; 4] = [Wire::H1, Wire::H2c, Wire::TlsH1, Wire::TlsH2];

/// What came back: the head, the bytes up to the end, and whether the end was a good one.
#[derive(Debug)]
pub(super) struct Seen {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub whole: bool,
}

impl Seen {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }

    /// The types of the events of an SSE answer, by its `data:` lines.
    pub(super) fn events(&self) -> Vec<String> {
        self.data().iter().map(|it| it["type"].as_str().unwrap().to_owned()).collect()
    }

    pub(super) fn data(&self) -> Vec<serde_json::Value> {
        let text = self.text();
        let lines = text.lines().filter_map(|line| line.strip_prefix("data:"));
        lines.map(|json| serde_json::from_str(json).unwrap()).collect()
    }
}

pub(super) struct Ask {
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
    wire: Wire,
}

impl Ask {
    pub(super) fn new(method: Method, path: &str) -> Self {
        let (path, headers) = (path.to_owned(), Vec::new());
        Self { method, path, headers, body: Bytes::new(), wire: Wire::H1 }
    }

    pub(super) fn get(path: &str) -> Self {
        Self::new(Method::GET, path)
    }

    pub(super) fn post(path: &str, body: impl Into<Bytes>) -> Self {
        let ask = Self::new(Method::POST, path);
        Self { body: body.into(), ..ask }
    }

    /// A turn of the model gpt-5.5 by this account.
    pub(super) fn turn(simulator: &Simulator, account: &str) -> Self {
        let body = r#"{"model":"gpt-5.5","stream":true,"input":[],"store":false}"#;
        Self::post("/backend-api/codex/responses", body).bearer(simulator, account)
    }

    pub(super) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    pub(super) fn wire(mut self, wire: Wire) -> Self {
        self.wire = wire;
        self
    }

    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(super) fn bearer(self, simulator: &Simulator, account: &str) -> Self {
        let token = simulator.account(account).unwrap().access_token.clone();
        self.header("authorization", &format!("Bearer {token}"))
    }

    /// The whole answer, or what there was of it; `Err` if there was no head.
    pub(super) async fn send(self, simulator: &Simulator) -> Result<Seen, hyper::Error> {
        tokio::time::timeout(PATIENCE, self.exchange(simulator)).await.unwrap()
    }

    async fn exchange(self, simulator: &Simulator) -> Result<Seen, hyper::Error> {
        let response = self.begin(simulator).await?;
        let (head, mut incoming) = response.into_parts();
        let mut body = Vec::new();
        let mut whole = true;
        while let Some(frame) = incoming.frame().await {
            match frame {
                Ok(frame) => body.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Err(_) => {
                    whole = false;
                    break;
                }
            }
        }
        let (status, headers) = (head.status, head.headers);
        Ok(Seen { status, headers, body: body.into(), whole })
    }

    /// The head of the answer, its body still to come.
    pub(super) async fn begin(
        self,
        simulator: &Simulator,
    ) -> Result<http::Response<Incoming>, hyper::Error> {
        let h2 = matches!(self.wire, Wire::H2c | Wire::TlsH2);
        match self.wire {
            Wire::H1 | Wire::H2c => {
                let tcp = connect(simulator.address()).await;
                self.over(tcp, h2).await
            }
            Wire::TlsH1 | Wire::TlsH2 => {
                let tcp = connect(simulator.tls_address().unwrap()).await;
                let stream = encrypt(tcp, simulator.ca_pem().unwrap(), h2).await;
                self.over(stream, h2).await
            }
        }
    }

    async fn over<S>(self, stream: S, h2: bool) -> Result<http::Response<Incoming>, hyper::Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let uri = if h2 { format!("http://sim{}", self.path) } else { self.path };
        let mut request = Request::builder().method(self.method).uri(uri);
        if !h2 {
            request = request.header("host", "sim");
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(self.body)).unwrap();
        exchange(stream, h2, request).await
    }
}

pub(super) async fn connect(address: SocketAddr) -> TcpStream {
    let tcp = TcpStream::connect(address).await.unwrap();
    tcp.set_nodelay(true).unwrap();
    tcp
}
