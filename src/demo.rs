//! `codex-edge demo`: the gateway's main job, shown on a simulated upstream with made-up accounts.
//!
//! Nothing outside a temporary folder and loopback is touched. Each step tells what happened and
//! fails the demo if it was not what the gateway promises.

mod tour;

use std::{
    collections::BTreeMap,
    fmt, fs,
    io::{self, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
};

use crate::{
    app::{self, App, StartError},
    clock::Clock,
    config::{Config, ConfigError, Surroundings},
    sim::{SimConfig, SimError, Simulator},
};

/// The accounts of the demo.
pub(crate) const NAMES: [&str; 3] = ["alice", "bob", "carol"];

#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("cannot prepare a temporary folder: {0}")]
    Folder(#[source] io::Error),
    #[error("cannot start the simulated upstream: {0}")]
    Simulator(#[from] SimError),
    #[error("the demo's configuration is not valid: {0}")]
    Config(#[from] ConfigError),
    #[error("cannot start the gateway: {0}")]
    Gateway(#[from] StartError),
    #[error("the tour went wrong: {0}")]
    Tour(String),
}

/// The gateway and what is around it.
pub(crate) struct Scene {
    pub(crate) sim: Simulator,
    pub(crate) app: App,
    pub(crate) key: String,
}

/// Runs the tour; with `keep` the scene stays until it is interrupted.
pub fn run(keep: bool) -> ExitCode {
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("codex-edge: cannot start the demo: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(show(keep)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("codex-edge: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn show(keep: bool) -> Result<(), DemoError> {
    let folder = tempfile::tempdir().map_err(DemoError::Folder)?;
    let scene = set(folder.path()).await?;
    say(format_args!("simulated upstream  {}", scene.sim.base_url()));
    say(format_args!("gateway             {}", base_url(scene.edge())));
    say(format_args!("admin               http://{}", scene.app.admin));
    say(format_args!("accounts            {}\n", NAMES.join(", ")));
    tour::run(&scene).await.map_err(DemoError::Tour)?;
    say(format_args!("\nEverything went as told."));
    if keep {
        invite(&scene);
        // Whichever signal ends the wait, the scene is taken down below.
        let _ = tokio::signal::ctrl_c().await;
    }
    let stopping = tokio::task::spawn_blocking(|| scene.app.stop());
    stopping.await.map_err(|error| DemoError::Folder(io::Error::other(error)))
}

async fn set(folder: &Path) -> Result<Scene, DemoError> {
    let sim = Simulator::start(SimConfig::with_accounts(&NAMES)).await?;
    let auth_dir = folder.join("auth");
    fs::create_dir(&auth_dir).map_err(DemoError::Folder)?;
    for name in NAMES {
        let Some(account) = sim.account(name) else { continue };
        let path = auth_dir.join(format!("{name}.json"));
        fs::write(path, account.auth_json()).map_err(DemoError::Folder)?;
    }
    let data_dir = folder.join("data");
    let config = configuration(folder, &sim)?;
    let starting = tokio::task::spawn_blocking(|| app::start(config, Clock::system()));
    let app = starting.await.map_err(|error| DemoError::Folder(io::Error::other(error)))??;
    let key = fs::read_to_string(data_dir.join("local.key")).map_err(DemoError::Folder)?;
    Ok(Scene { sim, app, key: key.trim().to_owned() })
}

fn configuration(folder: &Path, sim: &Simulator) -> Result<Config, DemoError> {
    let (base_url, issuer) = (sim.base_url(), sim.origin());
    let (data_dir, auth_dir) = (folder.join("data"), folder.join("auth"));
    let toml = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\nadmin_listen = \"127.0.0.1:0\"\n\
         data_dir = {data_dir:?}\n[auth]\ndir = {auth_dir:?}\n\
         [upstream]\ncodex_base_url = \"{base_url}\"\nauth_base_url = \"{issuer}\"\n"
    );
    let path = folder.join("config.toml");
    fs::write(&path, toml).map_err(DemoError::Folder)?;
    let surroundings =
        Surroundings { flag: Some(path), env: BTreeMap::new(), system_file: PathBuf::new() };
    Ok(Config::load(&surroundings)?.config)
}

fn base_url(edge: SocketAddr) -> String {
    format!("http://{edge}/v1/codex")
}

/// Tells what goes on. Who reads no further has seen enough, and the demo goes on.
fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// What to type to use the scene with the real client.
fn invite(scene: &Scene) {
    let base_url = base_url(scene.edge());
    say(format_args!("\nThe gateway stays until Ctrl-C. Try it with the Codex CLI:\n"));
    say(format_args!("  CODEX_HOME=$(mktemp -d) CODEX_EDGE_KEY={} \\", scene.key));
    say(format_args!("    codex exec --skip-git-repo-check -m gpt-5.5 -c model_provider=demo \\"));
    say(format_args!(
        "    -c 'model_providers.demo={{name=\"OpenAI\", base_url=\"{base_url}\", \
         wire_api=\"responses\", env_key=\"CODEX_EDGE_KEY\", supports_websockets=false}}' \\"
    ));
    say(format_args!("    hello"));
}

// === impl Scene ===

impl Scene {
    pub(crate) fn edge(&self) -> SocketAddr {
        self.app.first_edge()
    }

    pub(crate) fn responses_url(&self) -> String {
        format!("{}/responses", base_url(self.edge()))
    }
}
