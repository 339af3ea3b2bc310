//! The configuration: read loosely, checked as a whole, then exact.
//!
//! A [`Config`] holds no bad value. Files and environment are handed in as [`Surroundings`], so
//! nothing here looks at the process.

mod address;
mod problem;
mod reader;
mod sections;
mod source;
mod units;

use std::{
    net::SocketAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

pub use self::{
    address::{BaseUrl, Network, Proxy, ProxyLogin, ProxyScheme, ProxyUrl},
    problem::{Problem, Problems},
    source::{ConfigError, Loaded, Surroundings},
    units::ByteSize,
};

#[derive(Clone, Debug)]
pub struct Config {
    pub server: Server,
    pub auth: Auth,
    pub upstream: Upstream,
    pub egress: Egress,
    pub routing: Routing,
    pub affinity: Affinity,
    pub limits: Limits,
    pub catalog: Catalog,
    pub quota: Quota,
    pub stream: Stream,
    pub compat: Compat,
    pub usage: Usage,
    pub admin: Admin,
    pub log: Log,
}

/// The listeners and what surrounds them.
#[derive(Clone, Debug)]
pub struct Server {
    /// Never empty.
    pub listen: Vec<SocketAddr>,
    pub admin_listen: SocketAddr,
    pub data_dir: PathBuf,
    /// None means one per core.
    pub threads: Option<NonZeroUsize>,
    pub drain_timeout: Duration,
    pub upgrade_socket: PathBuf,
    pub pid_file: PathBuf,
    pub protocol: EdgeProtocol,
    pub allowed_origins: Vec<String>,
    pub first_byte_timeout: Duration,
    pub head_timeout: Duration,
    pub keepalive_timeout: Duration,
    pub trusted_proxies: Vec<Network>,
    pub max_connections: usize,
    pub max_sockets: usize,
    pub max_sockets_per_user: usize,
}

/// What the edge listeners speak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EdgeProtocol {
    /// Plain HTTP/1.1.
    Plain,
    /// Plain HTTP/1.1, and HTTP/2 with prior knowledge.
    PlainWithH2c,
    /// HTTP/1.1 and HTTP/2 over TLS.
    Tls(TlsFiles),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// Where credential files live and how they are watched.
#[derive(Clone, Debug)]
pub struct Auth {
    pub dir: PathBuf,
    pub parse_grace: Duration,
    pub rescan_interval: Duration,
    pub removal_grace: Duration,
    pub follow_symlinks: bool,
    pub refresh_parallel: usize,
    pub refresh_spacing: Duration,
}

#[derive(Clone, Debug)]
pub struct Upstream {
    pub codex_base_url: BaseUrl,
    pub chatgpt_base_url: BaseUrl,
    pub auth_base_url: BaseUrl,
    pub ca_file: Option<PathBuf>,
    pub connect_timeout: Duration,
    /// From the sent request to the head of a streamed answer.
    pub header_timeout: Duration,
    /// The same for compact, search and images.
    pub slow_header_timeout: Duration,
    /// Longest silence within a stream.
    pub idle_timeout: Duration,
    pub client_version: ClientVersion,
    pub http2: bool,
    /// Speak h2 with prior knowledge to an upstream without TLS.
    pub h2c: bool,
    pub websocket: bool,
}

/// The client version of requests that name none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientVersion {
    Auto,
    Fixed(String),
}

#[derive(Clone, Debug)]
pub struct Egress {
    pub proxy: Proxy,
    /// A failing proxy is an error; nothing goes around it.
    pub strict: bool,
    /// Hosts, domains (`.example.com`) and networks that are reached without the proxy.
    pub no_proxy: Vec<String>,
    pub account: Vec<EgressAccount>,
}

#[derive(Clone, Debug)]
pub struct EgressAccount {
    /// An auth id, an account id, a public label or a selector.
    pub account: String,
    pub proxy: Proxy,
    pub strict: bool,
}

#[derive(Clone, Debug)]
pub struct Routing {
    pub mode: RoutingMode,
    pub strategy: Strategy,
    pub max_attempts: NonZeroUsize,
    pub attempt_deadline: Duration,
    pub hold_back: Duration,
    pub hold_back_bytes: ByteSize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoutingMode {
    Pool,
    /// Every bare model goes to this account.
    Direct(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    Balanced,
    RoundRobin,
    FillFirst,
}

#[derive(Clone, Debug)]
pub struct Affinity {
    pub ttl: Duration,
    pub max_bindings: usize,
}

#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest body, as sent and decoded alike.
    pub max_body: ByteSize,
    /// How much of one body stays in memory.
    pub replay_body: ByteSize,
    /// What all bodies together may hold in memory.
    pub buffered_total: ByteSize,
    pub requests_per_minute_per_address: Option<NonZeroUsize>,
}

#[derive(Clone, Debug)]
pub struct Catalog {
    pub ttl: Duration,
    pub stale_limit: Duration,
    pub qualified_rows: bool,
    /// Members of a model that do not count when two models are compared.
    pub volatile_fields: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Quota {
    /// None means never.
    pub poll_interval: Option<Duration>,
}

#[derive(Clone, Debug)]
pub struct Stream {
    /// None means that streams stay as upstream sends them.
    pub keepalive: Option<Duration>,
}

#[derive(Clone, Debug)]
pub struct Compat {
    /// `wham/…` and `ps/…` paths that are relayed.
    pub relay: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Usage {
    pub retention: Duration,
}

#[derive(Clone, Debug)]
pub struct Admin {
    pub key_file: PathBuf,
}

#[derive(Clone, Copy, Debug)]
pub struct Log {
    pub format: LogFormat,
    pub level: LogLevel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

// === impl Config ===

impl Config {
    /// What holds without any file, with the data in `data_dir`.
    pub fn defaults(data_dir: &Path) -> Self {
        sections::defaults(data_dir)
    }

    /// Finds, reads and checks the configuration.
    pub fn load(surroundings: &Surroundings) -> Result<Loaded, ConfigError> {
        source::load(surroundings)
    }
}

// === impl Server ===

impl Server {
    /// Whether only this machine can reach the edge.
    pub fn is_loopback_only(&self) -> bool {
        self.listen.iter().all(|it| it.ip().to_canonical().is_loopback())
    }
}
