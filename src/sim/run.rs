//! The simulator as a program of its own.

use std::{
    fs,
    io::{self, Write},
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use super::{
    SimConfig, SimError, Simulator,
    script::{Script, ScriptError},
};

/// What the verb `sim` may be told.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    pub script: Option<PathBuf>,
    /// Where to write one `auth.json` per account.
    pub accounts_dir: Option<PathBuf>,
    /// The accounts' names; without any, `alice` and `bob`.
    pub accounts: Vec<String>,
    pub tls: bool,
    pub record: bool,
}

/// Why the simulator did not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("can't read the script {}", path.display())]
    ReadScript {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Script(#[from] ScriptError),
    #[error("can't write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Start(#[from] SimError),
}

/// Runs a simulator with two accounts until `shutdown`.
///
/// # Errors
/// If the script can't be read, or the address is taken.
pub async fn run_until(
    listen: SocketAddr,
    script: Option<PathBuf>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let options = RunOptions { script, record: true, ..RunOptions::default() };
    run_with(listen, options, shutdown).await
}

/// Runs a simulator until `shutdown`.
///
/// # Errors
/// If the script can't be read, a file can't be written, or the address is taken.
pub async fn run_with(
    listen: SocketAddr,
    options: RunOptions,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let script = options.script.as_deref().map_or_else(|| Ok(Script::default()), read_script)?;
    let names: Vec<&str> = options.accounts.iter().map(String::as_str).collect();
    let names = if names.is_empty() { vec!["alice", "bob"] } else { names };
    let config = SimConfig {
        script,
        listen,
        tls: options.tls,
        record: options.record,
        record_requests_max: 1_000,
        record_body_max: 1 << 20,
        ..SimConfig::with_accounts(&names)
    };
    let accounts = config.accounts.clone();
    let simulator = Simulator::start(config).await?;
    tracing::info!(base_url = simulator.base_url(), "The simulated upstream listens");
    if let Some(base_url) = simulator.tls_base_url() {
        tracing::info!(base_url, "The simulated upstream listens for TLS");
    }
    if let Some(dir) = &options.accounts_dir {
        for account in &accounts {
            let path = dir.join(format!("{}.json", account.name));
            write(&path, &account.auth_json())?;
            tracing::info!(path = %path.display(), "Wrote the credentials of a made-up account");
        }
        if let Some(pem) = simulator.ca_pem() {
            let path = dir.join("sim-ca.pem");
            write(&path, pem)?;
            tracing::info!(path = %path.display(), "Wrote the CA of the simulated upstream");
        }
    }
    shutdown.await;
    Ok(())
}

fn read_script(path: &Path) -> Result<Script, RunError> {
    let text = fs::read_to_string(path)
        .map_err(|source| RunError::ReadScript { path: path.to_owned(), source })?;
    Ok(Script::parse(&text)?)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    let fault = |source| RunError::Write { path: path.to_owned(), source };
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(fault)?;
    }
    // Gateways warn about a credential file that others can read.
    let file =
        fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(bytes)).map_err(fault)
}
