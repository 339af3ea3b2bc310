//! Plugs [`AttemptSession`] into Pingora as a custom upstream protocol.
//!
//! The traits used here are hidden in Pingora's documentation, which is why its version is pinned
//! and why this file and `session.rs` are the only ones that name them.

use std::{any::Any, time::Duration};

use async_trait::async_trait;
use pingora_core::{
    Error, ErrorType, Result,
    connectors::{
        ConnectorOptions,
        http::{Connector, custom},
    },
    protocols::{ALPN, http::client::HttpSession, tls::CustomALPN},
    upstreams::peer::{HttpPeer, Peer},
};

use super::session::AttemptSession;

const H1: &[u8] = b"attempt-h1";
const H2: &[u8] = b"attempt-h2";
const H2_OR_H1: &[u8] = b"attempt-h2h1";

/// Opens real HTTP/1.1 and h2 sessions, from the usual pools, for attempts.
pub struct AttemptConnector {
    inner: Connector<()>,
}

/// Marks the peer so that Pingora hands it to [`AttemptConnector`]; the real ALPN travels in the
/// name of the custom one.
pub(crate) fn mark(peer: &mut HttpPeer) {
    let name = match peer.options.alpn {
        ALPN::H1 => H1,
        ALPN::H2 => H2,
        ALPN::H2H1 | ALPN::Custom(_) => H2_OR_H1,
    };
    peer.options.alpn = ALPN::Custom(CustomALPN::new(name.to_vec()));
}

fn unmarked<P: Peer + 'static>(peer: &P) -> Result<HttpPeer> {
    let peer: &dyn Any = peer;
    let Some(peer) = peer.downcast_ref::<HttpPeer>() else {
        return Error::e_explain(ErrorType::InternalError, "attempts go to HTTP peers only");
    };
    let mut peer = peer.clone();
    if let ALPN::Custom(name) = &peer.options.alpn {
        peer.options.alpn = match name.protocol() {
            H1 => ALPN::H1,
            H2 => ALPN::H2,
            _ => ALPN::H2H1,
        };
    }
    Ok(peer)
}

// === impl AttemptConnector ===

impl AttemptConnector {
    pub fn new(options: ConnectorOptions) -> Self {
        Self { inner: Connector::new(Some(options)) }
    }
}

#[async_trait]
impl custom::Connector for AttemptConnector {
    type Session = AttemptSession;

    async fn get_http_session<P: Peer + Send + Sync + 'static>(
        &self,
        peer: &P,
    ) -> Result<(custom::Connection<AttemptSession>, bool)> {
        let peer = unmarked(peer)?;
        let (session, reused) = self.inner.get_http_session(&peer).await?;
        Ok((custom::Connection::Session(AttemptSession::new(session)), reused))
    }

    /// Reuse happens inside [`Self::get_http_session`], where the inner pools know the real ALPN.
    async fn reused_http_session<P: Peer + Send + Sync + 'static>(
        &self,
        _: &P,
    ) -> Option<AttemptSession> {
        None
    }

    async fn release_http_session<P: Peer + Send + Sync + 'static>(
        &self,
        session: AttemptSession,
        peer: &P,
        idle: Option<Duration>,
    ) {
        let Ok(peer) = unmarked(peer) else { return };
        let reusable = session.is_reusable();
        match session.into_inner() {
            HttpSession::H1(mut session) if !reusable => session.shutdown().await,
            // An h2 stream that is dropped is reset; its connection serves others.
            session @ (HttpSession::H1(_) | HttpSession::H2(_) | HttpSession::Custom(())) => {
                self.inner.release_http_session(session, &peer, idle).await;
            }
        }
    }
}
