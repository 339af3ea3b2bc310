//! How a connection leaves: for which account, to which origin, over what.
//!
//! Today every account leaves directly. Connections are never shared between accounts: the pool
//! key holds the account, so a proxy of one account can never carry another's traffic.

mod client;
mod resolve;
mod trust;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    time::Duration,
};

use pingora_core::{
    protocols::{ALPN, TcpKeepalive},
    upstreams::peer::HttpPeer,
};

use crate::{
    config::{BaseUrl, Upstream},
    domain::account::AuthId,
};

pub use self::{
    client::{Answer, CallError, HttpClient},
    trust::TrustError,
};

/// How many requests may share one h2 connection.
const H2_STREAMS: usize = 100;

/// An idle connection is closed after this long; upstreams close theirs at about the same time.
const POOL_IDLE: Duration = Duration::from_secs(60);

/// How long one write may take to make progress.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Makes peers for Pingora, and clients for all that is not relayed.
#[derive(Debug)]
pub struct Egress {
    resolver: resolve::Resolver,
    direct: HttpClient,
}

/// Why no connection could be begun. Never an account's fault.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    #[error("the name {host} does not resolve: {source}")]
    Unresolved {
        host: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the name {host} has no address")]
    NoAddress { host: String },
}

// === impl Egress ===

impl Egress {
    /// Blocks on the files of root certificates.
    ///
    /// # Errors
    /// If `upstream.ca_file` holds no certificate.
    pub fn new(upstream: &Upstream) -> Result<Self, TrustError> {
        Ok(Self { resolver: resolve::Resolver::new(), direct: HttpClient::new(upstream)? })
    }

    /// The client for calls in the name of `account`, or of nobody. All leave directly so far.
    pub fn client(&self, account: Option<&AuthId>) -> HttpClient {
        let _ = account;
        self.direct.clone()
    }

    /// The peer for one attempt of `account`. `redial` is a number used once where a connection has
    /// just died, and 0 elsewhere: it changes the pool key, so that the attempt really dials.
    ///
    /// # Errors
    /// If the origin's name does not resolve.
    pub async fn peer(
        &self,
        account: &AuthId,
        origin: &BaseUrl,
        upstream: &Upstream,
        redial: u64,
    ) -> Result<HttpPeer, EgressError> {
        let address = self.resolver.resolve(&origin.host, origin.port).await?;
        let mut peer = HttpPeer::new(address, origin.tls, origin.host.clone());
        peer.group_key = group_key(account, origin, redial);
        let options = &mut peer.options;
        options.alpn = match (origin.tls, upstream.http2) {
            (true, true) => ALPN::H2H1,
            (false, _) if upstream.h2c => ALPN::H2,
            _ => ALPN::H1,
        };
        options.connection_timeout = Some(upstream.connect_timeout);
        options.total_connection_timeout = Some(upstream.connect_timeout);
        options.read_timeout = Some(upstream.idle_timeout);
        options.write_timeout = Some(WRITE_TIMEOUT);
        options.idle_timeout = Some(POOL_IDLE);
        options.max_h2_streams = H2_STREAMS;
        options.h2_ping_interval = Some(Duration::from_secs(15));
        options.tcp_keepalive = Some(TcpKeepalive {
            idle: Duration::from_secs(60),
            interval: Duration::from_secs(10),
            count: 3,
            user_timeout: Duration::ZERO,
        });
        Ok(peer)
    }

    /// The origin's address could not be reached; from now on its next one is used. Gives how many
    /// it has.
    pub fn unreachable(&self, origin: &BaseUrl) -> usize {
        self.resolver.advance(&origin.host, origin.port)
    }
}

/// The root certificates for upstream connections: the platform's, and those of `extra`. Written
/// below `data_dir`, since Pingora takes one file or the platform's, never both.
///
/// # Errors
/// If `extra` holds no certificate, or the bundle cannot be written.
pub fn trust_bundle(extra: &Path, data_dir: &Path) -> Result<PathBuf, TrustError> {
    trust::bundle(extra, data_dir)
}

fn group_key(account: &AuthId, origin: &BaseUrl, redial: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (account, &origin.host, origin.port, origin.tls, redial).hash(&mut hasher);
    hasher.finish()
}
