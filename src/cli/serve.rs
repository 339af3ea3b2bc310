//! `codex-edge serve`: runs the gateway until it is asked to stop.

use std::{io, path::PathBuf, process::ExitCode};

use crate::{
    app::{self, App},
    clock::Clock,
    config::{Config, ConfigError, EdgeProtocol, Surroundings},
    lifecycle::{Signals, Stop},
    telemetry,
};

/// `EX_CONFIG` of sysexits.
const BAD_CONFIG: u8 = 78;

pub(super) fn run(file: Option<PathBuf>) -> ExitCode {
    let surroundings = Surroundings::of_process(file);
    let config = match Config::load(&surroundings) {
        Ok(loaded) => loaded.config,
        Err(error) => return refuse(&error),
    };
    if let Err(error) = telemetry::init(config.log) {
        eprintln!("codex-edge: {error}");
        return ExitCode::FAILURE;
    }
    let signals = match Heard::begin() {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("codex-edge: cannot listen for signals: {error}");
            return ExitCode::FAILURE;
        }
    };
    let shown = config.clone();
    let app = match app::start(config, Clock::system()) {
        Ok(app) => app,
        Err(error) => {
            eprintln!("codex-edge: {error}");
            return ExitCode::FAILURE;
        }
    };
    greet(&app, &shown);
    signals.obey(app.stopper());
    app.wait();
    ExitCode::SUCCESS
}

fn refuse(error: &ConfigError) -> ExitCode {
    eprintln!("codex-edge: {error}");
    ExitCode::from(BAD_CONFIG)
}

/// Signals and the small runtime that hears them.
struct Heard {
    runtime: tokio::runtime::Runtime,
    signals: Signals,
}

// === impl Heard ===

impl Heard {
    fn begin() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let signals = {
            let _inside = runtime.enter();
            Signals::listen()?
        };
        Ok(Self { runtime, signals })
    }

    fn obey(self, stop: Stop) {
        std::thread::spawn(move || self.runtime.block_on(self.signals.obey(stop)));
    }
}

/// Where the gateway is, and what to do next.
fn greet(app: &App, config: &Config) {
    let scheme =
        if matches!(config.server.protocol, EdgeProtocol::Tls(_)) { "https" } else { "http" };
    let base_url = format!("{scheme}://{}/v1/codex", app.first_edge());
    println!("codex-edge listens on {base_url}, admin on http://{}", app.admin);
    let count = app.gateway.count_pool();
    println!("{} of {} accounts can serve", count.able, count.total);
    if count.total == 0 {
        println!("\nNext: put auth.json files into {} and start again", config.auth.dir.display());
    }
    let Some(key_file) = &app.made.local_key else { return };
    println!("\nThe key of the user local is in {}.", key_file.display());
    println!("Point Codex at the gateway, in ~/.codex/config.toml:\n");
    println!("{}", codex_config(&base_url));
    println!("and give it the key: export CODEX_EDGE_KEY=$(cat {})", key_file.display());
}

/// The block for Codex's configuration, ready to be pasted.
pub(super) fn codex_config(base_url: &str) -> String {
    format!(
        "model_provider = \"codex-edge\"\n\n\
         [model_providers.codex-edge]\n\
         name = \"OpenAI\"\n\
         base_url = \"{base_url}\"\n\
         wire_api = \"responses\"\n\
         supports_websockets = false\n\
         env_key = \"CODEX_EDGE_KEY\"\n"
    )
}
