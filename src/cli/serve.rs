//! `codex-edge serve`: runs the gateway until it is asked to stop.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use super::{BAD_CONFIG, complain};
use crate::{
    app::{self, App},
    clock::Clock,
    config::{Config, ConfigError, EdgeProtocol, Surroundings},
    lifecycle::{Signals, Stop},
    telemetry,
};

pub(super) fn run(file: Option<PathBuf>) -> ExitCode {
    let surroundings = Surroundings::of_process(file);
    let config = match Config::load(&surroundings) {
        Ok(loaded) => loaded.config,
        Err(error) => return refuse(&error),
    };
    if let Err(error) = telemetry::init(config.log) {
        complain(&error.to_string());
        return ExitCode::FAILURE;
    }
    let signals = match Heard::begin() {
        Ok(signals) => signals,
        Err(error) => {
            complain(&format!("cannot listen for signals: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let shown = config.clone();
    let app = match app::start(config, Clock::system()) {
        Ok(app) => app,
        Err(error) => {
            complain(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    // A standard output that nobody reads keeps no gateway from serving.
    let _ = io::stdout().write_all(greeting(&app, &shown).as_bytes());
    signals.obey(app.stopper());
    app.wait();
    ExitCode::SUCCESS
}

fn refuse(error: &ConfigError) -> ExitCode {
    complain(&error.to_string());
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
fn greeting(app: &App, config: &Config) -> String {
    let scheme =
        if matches!(config.server.protocol, EdgeProtocol::Tls(_)) { "https" } else { "http" };
    let base_url = format!("{scheme}://{}/v1/codex", app.first_edge());
    let count = app.gateway.count_pool();
    let mut text = format!(
        "codex-edge listens on {base_url}, admin on http://{}\n{} of {} accounts can serve\n",
        app.admin, count.able, count.total
    );
    if count.total == 0 {
        text.push_str(&format!(
            "\nNext: sign in with \"codex-edge accounts login\", or put auth.json files into\n{}\n\
             Both are taken up while the gateway runs.\n",
            config.auth.dir.display()
        ));
    }
    if let Some(key_file) = &app.made.local_key {
        let key_file = key_file.display();
        text.push_str(&format!(
            "\nThe key of the user local is in {key_file}.\n\
             Point Codex at the gateway, in ~/.codex/config.toml:\n\n{}\n\
             and give it the key: export CODEX_EDGE_KEY=$(cat {key_file})\n",
            codex_config(&base_url)
        ));
    }
    text
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
