//! A client that speaks each of the wires the edge is reached over, one connection per request.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    H1,
    H2c,
    H1Tls,
    H2Tls,
}

#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) wire: Wire,
    pub(crate) key: Option<String>,
    /// The gateway's certificate authority, for the TLS wires.
    pub(crate) ca: Option<Vec<u8>>,
}

/// What a client saw of an answer, to its end.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The answer broke off.
    pub(crate) broken: bool,
}

// === impl Wire ===

impl Wire {
    pub(crate) const ALL: [Self; 4] = [Self::H1, Self::H2c, Self::H1Tls, Self::H2Tls];

    pub(crate) fn is_tls(self) -> bool {
        matches!(self, Self::H1Tls | Self::H2Tls)
    }

    fn is_h2(self) -> bool {
        matches!(self, Self::H2c | Self::H2Tls)
    }
}

// === impl Client ===

impl Client {
    pub(crate) async fn post(&self, path: &str, body: impl Into<Bytes>) -> Exchange {
        self.send(self.request(Method::POST, path), body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Exchange {
        self.send(self.request(Method::GET, path), Bytes::new()).await
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> http::request::Builder {
        let version = if self.wire.is_h2() { Version::HTTP_2 } else { Version::HTTP_11 };
        let uri = if self.wire.is_h2() {
            let scheme = if self.wire.is_tls() { "https" } else { "http" };
            format!("{scheme}://localhost{path}")
        } else {
            path.to_owned()
        };
        let mut request = Request::builder().method(method).uri(uri).version(version);
        if !self.wire.is_h2() {
            request = request.header("host", "localhost");
        }
        match &self.key {
            Some(key) => request.header("authorization", format!("Bearer {key}")),
            None => request,
        }
    }

    /// Sends a request and reads its answer to the end.
    pub(crate) async fn send(
        &self,
        request: http::request::Builder,
        body: impl Into<Bytes>,
    ) -> Exchange {
        let response = self.begin(request, body).await.unwrap();
        read(response).await
    }

    /// Sends a request and returns as soon as the head of its answer is there.
    pub(crate) async fn begin(
        &self,
        request: http::request::Builder,
        body: impl Into<Bytes>,
    ) -> hyper::Result<http::Response<Incoming>> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let request = request.body(Full::new(body.into())).unwrap();
        if self.wire.is_tls() {
            let stream = encrypt(stream, self.ca.as_deref().unwrap(), self.wire.is_h2()).await;
            exchange(stream, self.wire.is_h2(), request).await
        } else {
            exchange(stream, self.wire.is_h2(), request).await
        }
    }
}

/// TLS to `localhost`, under this certificate authority.
pub(crate) async fn encrypt(
    stream: TcpStream,
    ca_pem: &[u8],
    h2: bool,
) -> tokio_rustls::client::TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let protocol: &[u8] = if h2 { b"h2" } else { b"http/1.1" };
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

/// Sends one request over a fresh connection.
pub(crate) async fn exchange<S>(
    stream: S,
    h2: bool,
    request: Request<Full<Bytes>>,
) -> hyper::Result<http::Response<Incoming>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(stream);
    if h2 {
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await?;
        tokio::spawn(connection);
        sender.send_request(request).await
    } else {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
        tokio::spawn(connection);
        sender.send_request(request).await
    }
}

/// Reads an answer to its end, or to where it broke.
pub(crate) async fn read(response: http::Response<Incoming>) -> Exchange {
    let (head, mut body) = response.into_parts();
    let (mut bytes, mut broken) = (Vec::new(), false);
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => bytes.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new())),
            Err(_) => {
                broken = true;
                break;
            }
        }
    }
    Exchange { status: head.status, headers: head.headers, body: bytes.into(), broken }
}

// === impl Exchange ===

impl Exchange {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The code of an error answer.
    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}
