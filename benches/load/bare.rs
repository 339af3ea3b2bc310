//! A pass-through of Pingora alone: what the gateway would be without any logic.

use std::{net::SocketAddr, thread};

use async_trait::async_trait;
use codex_edge::lifecycle::{Adopt, Bound};
use pingora_core::{
    Result,
    server::{Server, configuration::ServerConf},
    upstreams::peer::HttpPeer,
};
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};

struct Bare {
    upstream: SocketAddr,
}

/// Serves until the process ends.
pub(crate) fn run(upstream: SocketAddr, listener: Bound) {
    let conf = ServerConf {
        // Both as the gateway has them.
        threads: thread::available_parallelism().map_or(1, Into::into),
        upstream_keepalive_pool_size: 512,
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut service = http_proxy_service(&server.configuration, Bare { upstream });
    service.add_tcp(&listener.address.to_string());
    server.add_service(Adopt::new(service, vec![listener]));
    server.run_forever();
}

// === impl Bare ===

#[async_trait]
impl ProxyHttp for Bare {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, (): &mut ()) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }
}
