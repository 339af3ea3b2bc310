//! An accepted connection: guarded against slow heads, then served as HTTP/1.1 or h2c.
//!
//! Pingora hands every plaintext and HTTP/1.1 connection to [`serve`]; h2 over TLS it serves by
//! itself, since ALPN has decided before the first byte of a request.

use std::{sync::Arc, time::Duration};

use pingora_core::{
    apps::{HttpPersistentSettings, HttpServerApp, HttpServerOptions},
    protocols::{
        Digest, Stream,
        http::{
            ServerSession,
            v2::server::{H2Accept, H2Options, HttpSession, default_h2_options, handshake},
        },
    },
    server::ShutdownWatch,
};
use pingora_proxy::{HttpProxy, ProcessCustomSession};

use crate::gateway::flight::Flights;

use super::{
    deadline::{HeadDeadlines, HeadGuard},
    proxy::Edge,
    upstream::connector::AttemptConnector,
};

const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Streams with a malformed head that one h2 connection may send.
const MALFORMED_MAX: u32 = 32;

type Proxy = HttpProxy<Edge, AttemptConnector>;

/// How connections are served.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionOptions {
    pub first_byte_timeout: Duration,
    pub head_timeout: Duration,
    pub keepalive_timeout: Duration,
    /// Whether a plaintext connection may begin with the h2 preface.
    pub h2c: bool,
}

/// Options of the HTTP server that go with [`serve`].
pub fn server_options(options: &ConnectionOptions) -> HttpServerOptions {
    let mut server = HttpServerOptions::default();
    // Hands accepted connections to `serve`, which looks for the h2 preface itself, with a
    // deadline.
    server.force_custom = true;
    server.h2_idle_timeout = Some(options.keepalive_timeout);
    server
}

/// h2 settings: Pingora's limits, with windows that let a large prompt flow.
pub fn h2_options() -> H2Options {
    let mut options = default_h2_options();
    options.initial_window_size(1 << 20).initial_connection_window_size(4 << 20);
    options
}

/// The callback that serves one connection.
pub fn serve(options: ConnectionOptions) -> ProcessCustomSession<Edge, AttemptConnector> {
    Arc::new(move |proxy: Arc<Proxy>, stream: Stream, shutdown: &ShutdownWatch| {
        let shutdown = shutdown.clone();
        Box::pin(async move {
            serve_one(proxy, stream, shutdown, options).await;
            None
        })
    })
}

async fn serve_one(
    proxy: Arc<Proxy>,
    mut stream: Stream,
    shutdown: ShutdownWatch,
    options: ConnectionOptions,
) {
    if options.h2c && stream.get_ssl_digest().is_none() {
        let mut preface = [0; H2_PREFACE.len()];
        let peek = tokio::time::timeout(options.first_byte_timeout, stream.try_peek(&mut preface));
        match peek.await {
            Ok(Ok(true)) if preface == *H2_PREFACE => {
                return serve_h2c(proxy, stream, shutdown, options).await;
            }
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
    let deadlines =
        HeadDeadlines { first_byte: options.first_byte_timeout, head: options.head_timeout };
    serve_h1(proxy, Box::new(HeadGuard::new(stream, deadlines)), shutdown).await;
}

async fn serve_h1(proxy: Arc<Proxy>, stream: Stream, shutdown: ShutdownWatch) {
    let mut session = ServerSession::new_http1(stream);
    loop {
        let Some(reused) = proxy.process_new_http(session, &shutdown).await else { return };
        let (stream, settings) = reused.consume();
        session = ServerSession::new_http1(stream);
        if let Some(settings) = settings {
            HttpPersistentSettings::apply_to_session(settings, &mut session);
        }
    }
}

async fn serve_h2c(
    proxy: Arc<Proxy>,
    stream: Stream,
    mut shutdown: ShutdownWatch,
    options: ConnectionOptions,
) {
    let digest = Arc::new(Digest {
        ssl_digest: None,
        timing_digest: stream.get_timing_digest(),
        proxy_digest: stream.get_proxy_digest(),
        socket_digest: stream.get_socket_digest(),
    });
    let shaking = tokio::time::timeout(options.head_timeout, handshake(stream, Some(h2_options())));
    let Ok(Ok(mut connection)) = shaking.await else { return };
    let (mut leaving, mut rejected, active) = (false, 0_u32, Flights::default());
    loop {
        let accepted = tokio::select! {
            biased;
            _ = shutdown.changed(), if !leaving => {
                connection.graceful_shutdown();
                leaving = true;
                continue;
            }
            accepted = HttpSession::from_h2_conn(&mut connection, Arc::clone(&digest)) => accepted,
            () = tokio::time::sleep(options.keepalive_timeout) => {
                if active.count() == 0 {
                    return;
                }
                continue;
            }
        };
        match accepted {
            Ok(Some(H2Accept::Session(session))) => {
                let (proxy, shutdown) = (Arc::clone(&proxy), shutdown.clone());
                let flight = active.enter();
                tokio::spawn(async move {
                    let _flight = flight;
                    proxy.process_new_http(ServerSession::new_http2(session), &shutdown).await
                });
            }
            Ok(Some(H2Accept::Rejected)) => {
                rejected += 1;
                if rejected >= MALFORMED_MAX {
                    return;
                }
            }
            Ok(None) | Err(_) => return,
        }
    }
}
