//! The simulated upstream: the Codex backend as far as clients and gateways see it.
//!
//! It speaks HTTP/1.1, h2c and, with a CA of its own, TLS on loopback, enforces what the real
//! service enforces, fails as a script tells it, and records what it saw. It shares no code with
//! the gateway, so that it is an independent witness.

mod account;
mod body;
mod control;
mod events;
mod oauth;
mod peek;
mod play;
mod proxy;
mod quota;
mod record;
mod routes;
mod run;
mod script;
mod serve;
mod stage;
mod time;
mod tls;
mod tokens;
mod turns;
mod upstream;
mod websocket;
mod wire;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use tokio::{net::TcpListener, task::JoinSet};

use upstream::Upstream;

pub use account::{CLIENT_ID, SimAccount};
pub use proxy::{ProxyConfig, ProxyKind, SimProxy};
pub use quota::{Quota, Window};
pub use record::{Ended, Protocol, Recorded};
pub use run::{RunError, RunOptions, run_until, run_with};
pub use script::{
    Action, Answer, Call, DropHead, End, EventSpec, Framing, Issue, Loss, Reply, Route, Rule,
    Script, ScriptError, StreamPlan,
};

/// Seconds since the Unix epoch.
pub type TimeSource = Arc<dyn Fn() -> i64 + Send + Sync>;

/// What a simulator is to be like.
#[derive(Clone)]
pub struct SimConfig {
    pub accounts: Vec<SimAccount>,
    /// The quota that every account begins with.
    pub quota: Quota,
    pub script: Script,
    /// Where the plain listener listens; the TLS one takes a free port of the same address.
    pub listen: SocketAddr,
    pub tls: bool,
    /// Record requests for [`Simulator::requests`].
    pub record: bool,
    /// The oldest records go when there are more.
    pub record_requests_max: usize,
    /// What is beyond is counted but not kept.
    pub record_body_max: usize,
    pub websockets: WebSockets,
    /// The number of text deltas of a normal answer, which has five more events.
    pub deltas: usize,
    /// Put an encrypted reasoning item into normal answers.
    pub reasoning: bool,
    pub models_etag: String,
    /// The seconds that a device is told to wait between its questions.
    pub device_interval: u32,
    /// The `workspace_backend_origin` of accounts/check.
    pub workspace_origin: String,
    pub now: TimeSource,
}

/// How WebSocket handshakes are met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebSockets {
    /// With a 426.
    Refused,
    Plain,
    /// With permessage-deflate, if the client offers it.
    Deflate,
}

/// A running simulator; dropping it closes all of it.
pub struct Simulator {
    upstream: Arc<Upstream>,
    address: SocketAddr,
    tls: Option<(SocketAddr, Vec<u8>)>,
    /// Aborted on drop.
    tasks: JoinSet<()>,
}

/// Why a simulator did not start.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    #[error("the simulator can't listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("the simulator can't make its certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("the simulator can't set up TLS")]
    Tls(#[from] rustls::Error),
}

// === impl SimConfig ===

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            accounts: vec![SimAccount::made_up("alice")],
            quota: Quota::default(),
            script: Script::default(),
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            tls: false,
            record: true,
            record_requests_max: 10_000,
            record_body_max: 128 << 20,
            websockets: WebSockets::Deflate,
            deltas: 4,
            reasoning: false,
            models_etag: "W/\"sim-1\"".to_owned(),
            device_interval: 5,
            workspace_origin: "NO_CONSTRAINT".to_owned(),
            now: Arc::new(time::unix_now),
        }
    }
}

impl SimConfig {
    /// A simulator with made-up accounts of these names.
    pub fn with_accounts(names: &[&str]) -> Self {
        let accounts = names.iter().map(|name| SimAccount::made_up(name)).collect();
        Self { accounts, ..Self::default() }
    }
}

// === impl Simulator ===

impl Simulator {
    /// Starts listening; what arrives is answered by tasks of the current runtime.
    ///
    /// # Errors
    /// If an address is taken, or no certificate can be made.
    pub async fn start(config: SimConfig) -> Result<Self, SimError> {
        let listen = config.listen;
        let wants_tls = config.tls;
        let upstream = Upstream::new(config);
        let mut tasks = JoinSet::new();
        let (plain, address) = bind(listen).await?;
        tasks.spawn(serve::accept(plain, Arc::clone(&upstream), None));
        let mut tls = None;
        if wants_tls {
            let identity = tls::Identity::make()?;
            let (listener, secure) = bind(SocketAddr::new(listen.ip(), 0)).await?;
            let acceptor = Some(identity.acceptor);
            tasks.spawn(serve::accept(listener, Arc::clone(&upstream), acceptor));
            tls = Some((secure, identity.ca_pem));
        }
        Ok(Self { upstream, address, tls, tasks })
    }

    /// The address that speaks HTTP/1.1 and h2c.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address that speaks TLS, if it was asked for.
    pub fn tls_address(&self) -> Option<SocketAddr> {
        self.tls.as_ref().map(|(address, _)| *address)
    }

    /// `http://127.0.0.1:…`
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// `https://localhost:…`
    pub fn tls_origin(&self) -> Option<String> {
        self.tls_address().map(|address| format!("https://localhost:{}", address.port()))
    }

    /// The provider base URL of the plain listener: `http://127.0.0.1:…/backend-api/codex`.
    pub fn base_url(&self) -> String {
        format!("{}/backend-api/codex", self.origin())
    }

    /// The provider base URL of the TLS listener.
    pub fn tls_base_url(&self) -> Option<String> {
        self.tls_origin().map(|origin| format!("{origin}/backend-api/codex"))
    }

    /// The CA that signed the certificate of the TLS listener, for `localhost`, `127.0.0.1` and
    /// `chatgpt.com`.
    pub fn ca_pem(&self) -> Option<&[u8]> {
        self.tls.as_ref().map(|(_, pem)| pem.as_slice())
    }

    /// The account of that name as it was at the start.
    pub fn account(&self, name: &str) -> Option<Arc<SimAccount>> {
        self.upstream.authority.lock().named(name)
    }

    pub fn add_account(&self, account: SimAccount) {
        self.upstream.authority.lock().add(account);
    }

    /// Replaces the script.
    pub fn script(&self, script: impl Into<Script>) {
        self.upstream.set_script(script.into());
    }

    /// Adds a rule after the others.
    pub fn rule(&self, rule: Rule) {
        self.upstream.add_rule(rule);
    }

    /// Lets everything go on that stalls or is silent at this moment.
    pub fn release(&self) {
        self.upstream.release();
    }

    /// Forgets script and records, and releases what stalls; tokens and quotas stay.
    pub fn reset(&self) {
        self.upstream.reset();
    }

    pub fn set_quota(&self, name: &str, quota: Quota) {
        self.upstream.set_quota(name, quota);
    }

    /// Replaces the model catalogue and its ETag.
    pub fn set_models(&self, body: Vec<u8>, etag: &str) {
        let mut models = self.upstream.models.lock();
        models.body = body.into();
        models.etag = etag.to_owned();
    }

    /// Makes every access token that the account has so far worthless.
    pub fn revoke_access(&self, name: &str) {
        self.upstream.authority.lock().revoke_access(name);
    }

    /// Makes every refresh token that the account has so far worthless.
    pub fn revoke_refresh(&self, name: &str) {
        self.upstream.authority.lock().revoke_refresh(name);
    }

    /// Chooses who signs in at `/oauth/authorize` from now on.
    pub fn sign_in_as(&self, name: &str) -> bool {
        self.upstream.authority.lock().sign_in_as(name)
    }

    /// The user of a device code agrees; `None` stands for every code that waits.
    pub fn approve_device(&self, user_code: Option<&str>, name: &str) -> bool {
        self.upstream.authority.lock().device_approve(user_code, name)
    }

    /// Closes every connection at once.
    pub fn lose_connections(&self, by_reset: bool) {
        self.upstream.lose_connections(by_reset);
    }

    /// Everything recorded so far, oldest first.
    pub fn requests(&self) -> Vec<Recorded> {
        self.upstream.recorder.requests()
    }

    /// Waits until `done` says yes to what was recorded so far, and gives that. Needs `record`.
    pub async fn wait_until(&self, done: impl FnMut(&[Recorded]) -> bool) -> Vec<Recorded> {
        self.upstream.recorder.wait_until(done).await;
        self.requests()
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        self.tasks.abort_all();
        self.upstream.lose_connections(false);
    }
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), SimError> {
    let fault = |source| SimError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(fault)?;
    let bound = listener.local_addr().map_err(fault)?;
    Ok((listener, bound))
}
