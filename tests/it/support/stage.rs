//! The real gateway, as `serve` runs it, on ports that the kernel picks, before a simulator.

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use codex_edge::{
    app::{self, App},
    clock::Clock,
    config::{Config, Surroundings},
    domain::health::Readiness,
    sim::{SimAccount, SimConfig, Simulator},
};
use tempfile::TempDir;

use super::client::{Client, Wire};

/// How the gateway speaks to the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamWire {
    H1,
    H2c,
    H2Tls,
}

pub(crate) struct Setup {
    pub(crate) sim: SimConfig,
    pub(crate) upstream: UpstreamWire,
    /// Serve TLS instead of plaintext.
    pub(crate) tls: bool,
    /// More of the configuration, as TOML; a section that the stage writes too must not recur.
    pub(crate) toml: String,
    pub(crate) clock: Clock,
    /// Other credential files than those of the simulator's accounts.
    pub(crate) auth_files: Option<Vec<(String, Vec<u8>)>>,
}

pub(crate) struct Stage {
    pub(crate) sim: Simulator,
    pub(crate) app: App,
    pub(crate) key: String,
    pub(crate) data_dir: PathBuf,
    /// The credential directory.
    pub(crate) auth_dir: PathBuf,
    config: Config,
    ca: Option<Vec<u8>>,
    _folder: TempDir,
}

// === impl UpstreamWire ===

impl UpstreamWire {
    pub(crate) const ALL: [Self; 3] = [Self::H1, Self::H2c, Self::H2Tls];
}

// === impl Setup ===

impl Setup {
    pub(crate) fn with_accounts(names: &[&str]) -> Self {
        Self {
            sim: SimConfig::with_accounts(names),
            upstream: UpstreamWire::H1,
            tls: false,
            toml: String::new(),
            clock: Clock::system(),
            auth_files: None,
        }
    }

    pub(crate) fn toml(mut self, toml: &str) -> Self {
        self.toml.push_str(toml);
        self.toml.push('\n');
        self
    }

    pub(crate) async fn start(self) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let data_dir = folder.path().join("data");
        let auth_dir = folder.path().join("auth");
        fs::create_dir(&auth_dir).unwrap();
        let files = self.auth_files.unwrap_or_else(|| {
            let one = |it: &SimAccount| (format!("{}.json", it.name), it.auth_json());
            self.sim.accounts.iter().map(one).collect()
        });
        for (name, bytes) in files {
            write(&auth_dir.join(name), bytes);
        }
        let sim =
            Simulator::start(SimConfig { tls: self.upstream == UpstreamWire::H2Tls, ..self.sim })
                .await
                .unwrap();
        let mut toml = self.toml;
        let mut server = format!(
            "listen = [\"127.0.0.1:0\"]\nadmin_listen = \"127.0.0.1:0\"\nthreads = 2\n\
             h2c = {}\ndata_dir = {data_dir:?}\n",
            !self.tls
        );
        let ca = self.tls.then(|| {
            let (cert, key) = make_certificate(&folder);
            let ca = fs::read(&cert).unwrap();
            write!(server, "tls.cert = {cert:?}\ntls.key = {key:?}\n").unwrap();
            ca
        });
        let mut upstream = String::new();
        match self.upstream {
            UpstreamWire::H1 | UpstreamWire::H2c => {
                let h2c = self.upstream == UpstreamWire::H2c;
                let (base, origin) = (sim.base_url(), sim.origin());
                write!(upstream, "codex_base_url = \"{base}\"\nh2c = {h2c}\n").unwrap();
                writeln!(upstream, "auth_base_url = \"{origin}\"").unwrap();
            }
            UpstreamWire::H2Tls => {
                let ca_file = folder.path().join("upstream-ca.pem");
                fs::write(&ca_file, sim.ca_pem().unwrap()).unwrap();
                let base = sim.tls_base_url().unwrap();
                write!(upstream, "codex_base_url = \"{base}\"\nca_file = {ca_file:?}\n").unwrap();
                let origin = sim.tls_origin().unwrap();
                writeln!(upstream, "auth_base_url = \"{origin}\"").unwrap();
            }
        }
        toml = merge(&toml, "server", &server);
        toml = merge(&toml, "upstream", &upstream);
        toml = merge(&toml, "auth", &format!("dir = {auth_dir:?}\n"));
        let config = parse(&folder, &toml);
        let app = launch(config.clone(), self.clock).await;
        let key = fs::read_to_string(data_dir.join("local.key")).unwrap().trim().to_owned();
        Stage { sim, app, key, data_dir, auth_dir, config, ca, _folder: folder }
    }
}

async fn launch(config: Config, clock: Clock) -> App {
    let starting = tokio::task::spawn_blocking(move || app::start(config, clock));
    starting.await.unwrap().unwrap()
}

/// Writes a file as editors do, for its owner only.
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) {
    let temporary = path.with_extension("tmp");
    fs::write(&temporary, bytes).unwrap();
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(&temporary, path).unwrap();
}

/// Puts lines into a section, which may be there already.
fn merge(toml: &str, section: &str, lines: &str) -> String {
    let header = format!("[{section}]\n");
    if toml.contains(&header) {
        toml.replacen(&header, &format!("{header}{lines}"), 1)
    } else {
        format!("{toml}\n{header}{lines}")
    }
}

fn parse(folder: &TempDir, toml: &str) -> Config {
    let path = folder.path().join("config.toml");
    fs::write(&path, toml).unwrap();
    let surroundings =
        Surroundings { flag: Some(path), env: BTreeMap::new(), system_file: PathBuf::new() };
    Config::load(&surroundings).unwrap().config
}

fn make_certificate(folder: &TempDir) -> (PathBuf, PathBuf) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    fs::write(&cert, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (cert, key)
}

// === impl Stage ===

impl Stage {
    pub(crate) fn edge(&self) -> SocketAddr {
        self.app.edge[0]
    }

    /// Writes a credential file, as editors do.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        write(&self.auth_dir.join(name), bytes);
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.auth_dir.join(name)).unwrap();
    }

    /// Has the gateway look at the credential directory now.
    pub(crate) async fn look(&self) {
        self.app.accounts.reconciler.look().await;
    }

    /// Stops the gateway, changes something, and starts it again.
    pub(crate) async fn restart(self, change: impl FnOnce(&Path)) -> Self {
        let clock = self.app.gateway.clock.clone();
        let app = self.app;
        tokio::task::spawn_blocking(move || app.stop()).await.unwrap();
        change(&self.auth_dir);
        let app = launch(self.config.clone(), clock).await;
        Self { app, ..self }
    }

    /// What a second gateway on the same credential directory would be told.
    pub(crate) async fn start_another(&self) -> String {
        let mut config = self.config.clone();
        config.server.data_dir = self.data_dir.with_extension("other");
        let clock = self.app.gateway.clock.clone();
        let starting = tokio::task::spawn_blocking(move || app::start(config, clock).map(drop));
        starting.await.unwrap().unwrap_err().to_string()
    }

    /// A client with the key of the user `local`.
    pub(crate) fn client(&self, wire: Wire) -> Client {
        Client { address: self.edge(), wire, key: Some(self.key.clone()), ca: self.ca.clone() }
    }

    pub(crate) fn h1(&self) -> Client {
        self.client(Wire::H1)
    }

    /// A client of the admin listener, without a key.
    pub(crate) fn admin(&self) -> Client {
        Client { address: self.app.admin, wire: Wire::H1, key: None, ca: None }
    }
}

/// Lets the gateway's tasks run until something has become true.
pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(std::time::Duration::from_secs(5), waiting).await;
    assert!(waited.is_ok(), "it never came true that {what}");
}

/// Whether nothing is held against any account.
pub(crate) fn all_ready(app: &App) -> bool {
    let gateway = &app.gateway;
    let census = gateway.pool.census(&gateway.pool.snapshot(), gateway.clock.now());
    census.iter().all(|(_, readiness)| *readiness == Readiness::Ready)
}
