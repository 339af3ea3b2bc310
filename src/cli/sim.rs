//! `codex-edge sim`: the simulated upstream as a program of its own.

use std::{io, net::SocketAddr, path::PathBuf};

use tokio::signal::unix::{SignalKind, signal};

use super::CliError;
use crate::{
    config::{Log, LogFormat, LogLevel},
    sim::{self, RunOptions},
    telemetry,
};

pub(super) fn run(
    listen: SocketAddr,
    script: Option<PathBuf>,
    accounts_dir: Option<PathBuf>,
) -> Result<(), CliError> {
    // A log that is set up already takes the lines just as well.
    let _ = telemetry::init(Log { format: LogFormat::Text, level: LogLevel::Info });
    let options = RunOptions { script, accounts_dir, record: true, ..RunOptions::default() };
    super::runtime()?.block_on(async {
        let stop = stop_signal().map_err(CliError::Runtime)?;
        sim::run_with(listen, options, stop).await.map_err(CliError::Simulator)
    })
}

/// Ends with the first SIGINT or SIGTERM.
pub(super) fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
