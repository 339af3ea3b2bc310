//! The composition root: everything is made here, in order, and handed to what needs it.
//!
//! All that can fail fails before the first connection is accepted, with an error that says what
//! to do.

mod background;
mod listen;
mod prepare;

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    thread::{self, JoinHandle},
};

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora_core::{
    server::{RunArgs, Server, ShutdownWatch, configuration::ServerConf},
    services::background::{BackgroundService, background_service},
};

use self::background::Background;
use crate::{
    accounts::{Accounts, OpenError, login::Logins},
    admin::{self, AdminState},
    clock::Clock,
    config::Config,
    egress::{self, TrustError},
    gateway::{Gateway, Parts},
    lifecycle::{self, Bound, Stop},
    storage::StorageError,
    users::LocalUserError,
};

/// More than any pool has accounts; the gateway itself ends a search.
const ATTEMPTS_MAX: usize = 100_000;

/// Idle upstream connections kept per worker thread.
const POOL_PER_THREAD: usize = 512;

/// Seconds that Pingora's runtimes get to wind up, once nothing runs any more.
const WIND_UP_SECONDS: u64 = 1;

/// A running gateway.
#[derive(Debug)]
pub struct App {
    /// The edge's addresses, as bound.
    pub edge: Vec<SocketAddr>,
    pub admin: SocketAddr,
    pub gateway: Arc<Gateway>,
    pub accounts: Accounts,
    /// What this start has made that was not there before.
    pub made: Made,
    stop: Stop,
    server: JoinHandle<()>,
    background: Background,
}

/// What a first start makes.
#[derive(Debug, Default)]
pub struct Made {
    /// The key file of the user `local`.
    pub local_key: Option<PathBuf>,
    pub auth_dir: bool,
    pub admin_key: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("cannot use the key file {path}: {source}")]
    KeyFile {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    LocalUser(#[from] LocalUserError),
    #[error(
        "{0} can be reached from other machines and no user has a key. Make one first: start with a loopback address, run \"codex-edge users create NAME\", then come back"
    )]
    NobodyMayComeIn(SocketAddr),
    #[error(transparent)]
    Accounts(#[from] OpenError),
    #[error("cannot start the threads for renewals and sign-ins: {0}")]
    Background(#[source] io::Error),
    #[error("cannot make the credential directory {path}: {source}")]
    AuthDir {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot listen on {address}: {source}. Stop what uses it, or change {key}")]
    Listen {
        address: SocketAddr,
        key: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("cannot use the TLS files: {0}. See server.tls.cert and server.tls.key")]
    Tls(String),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("cannot make the metrics: {0}")]
    Metrics(String),
}

/// Starts a gateway. Blocks on files and the database.
///
/// # Errors
/// What keeps it from starting; nothing keeps running then.
pub fn start(config: Config, clock: Clock) -> Result<App, StartError> {
    let config = Arc::new(config);
    let background = Background::start().map_err(StartError::Background)?;
    let prepared = prepare::prepare(&config, &clock, background.tasks())?;
    let listeners = bind_edge(&config)?;
    let edge: Vec<SocketAddr> = listeners.iter().map(|it| it.address).collect();
    let admin_listener = bind(config.server.admin_listen, "server.admin_listen")?;
    let admin_address = admin_listener.address;
    let server_conf = server_conf(&config)?;
    let gateway = Arc::new(Gateway::new(Parts {
        config: Arc::clone(&config),
        pool: Arc::clone(&prepared.accounts.pool),
        refresher: prepared.accounts.refresher.clone(),
        keyring: prepared.users.keyring(),
        sessions: prepared.sessions,
        metrics: prepared.metrics,
        egress: prepared.egress,
        clock,
        spill_folder: config.server.data_dir.clone(),
    }));
    let mut server = Server::new_with_opt_and_conf(None, server_conf);
    server.bootstrap();
    let service = listen::edge_service(&server.configuration, &gateway, &config, &listeners)?;
    server.add_service(lifecycle::Adopt::new(service, listeners));
    let state = AdminState {
        gateway: Arc::clone(&gateway),
        accounts: prepared.accounts.clone(),
        logins: Logins::of(&prepared.accounts),
        users: Arc::new(prepared.users),
        key: prepared.admin_key,
        listen: admin_address,
    };
    let admin = AdminService { listener: Mutex::new(Some(admin_listener)), state };
    server.add_service(background_service("admin", admin));
    let stop = Stop::new();
    let watch = stop.watch(Arc::clone(&gateway), config.server.drain_timeout);
    let server = thread::spawn(move || server.run(RunArgs { shutdown_signal: Box::new(watch) }));
    Ok(App {
        edge,
        admin: admin_address,
        gateway,
        accounts: prepared.accounts,
        made: prepared.made,
        stop,
        server,
        background,
    })
}

fn bind_edge(config: &Config) -> Result<Vec<Bound>, StartError> {
    config.server.listen.iter().map(|address| bind(*address, "server.listen")).collect()
}

fn bind(address: SocketAddr, key: &'static str) -> Result<Bound, StartError> {
    lifecycle::bind(address).map_err(|source| StartError::Listen { address, key, source })
}

fn server_conf(config: &Config) -> Result<ServerConf, StartError> {
    let threads = config.server.threads.or_else(|| thread::available_parallelism().ok());
    let ca_file = match &config.upstream.ca_file {
        None => None,
        Some(extra) => {
            let bundle = egress::trust_bundle(extra, &config.server.data_dir)?;
            Some(bundle.to_string_lossy().into_owned())
        }
    };
    Ok(ServerConf {
        threads: threads.map_or(1, Into::into),
        max_retries: ATTEMPTS_MAX,
        upstream_keepalive_pool_size: POOL_PER_THREAD,
        // The stop watch has waited already.
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(WIND_UP_SECONDS),
        ca_file,
        ..ServerConf::default()
    })
}

// === impl App ===

impl App {
    /// The first of the edge's addresses.
    pub fn first_edge(&self) -> SocketAddr {
        // The configuration never has an empty list.
        self.edge.first().copied().unwrap_or(self.admin)
    }

    /// A handle that stops the gateway.
    pub fn stopper(&self) -> Stop {
        self.stop.clone()
    }

    /// Lets what runs finish, then ends.
    pub fn stop(self) {
        self.stop.drain();
        self.wait();
    }

    /// Waits until the gateway has ended.
    pub fn wait(self) {
        if self.server.join().is_err() {
            tracing::error!("The server ended in a panic");
        }
        self.background.finish();
    }
}

/// The admin listener as a service, so that it ends with the others.
struct AdminService {
    listener: Mutex<Option<Bound>>,
    state: AdminState,
}

#[async_trait]
impl BackgroundService for AdminService {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let Some(bound) = self.listener.lock().take() else { return };
        let stopping = async move {
            // An error means that the server is gone, which is as good as a stop.
            let _ = shutdown.wait_for(|it| *it).await;
        };
        if let Err(error) = admin::serve(bound.listener, self.state.clone(), stopping).await {
            tracing::error!(%error, "The admin listener ended: {error}");
        }
    }
}
