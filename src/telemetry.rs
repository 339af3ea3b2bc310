//! What the operator sees: log lines on standard error, and metrics.

pub mod labels;
pub mod metrics;

use std::io::{self, IsTerminal};

use tracing_subscriber::{
    EnvFilter, filter::Directive, layer::SubscriberExt, util::SubscriberInitExt,
};

use crate::config::{Log, LogFormat, LogLevel};

/// Libraries whose lines would drown ours; some of them write out whole requests, credentials and
/// all, so no level opens them.
const QUIET: &[&str] = &[
    "h2=warn",
    "hyper=warn",
    "pingora=warn",
    "pingora_core=warn",
    "pingora_proxy=warn",
    "reqwest=warn",
    "rustls=warn",
];

/// Another part of the process has set a logger already.
#[derive(Debug, thiserror::Error)]
#[error("the log is set up already")]
pub struct LogIsSetUp;

/// Sends the process's log, and that of libraries which use the `log` crate, to standard error.
pub fn init(log: Log) -> Result<(), LogIsSetUp> {
    let registry = tracing_subscriber::registry().with(filter(log.level));
    let layer = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let done = match log.format {
        LogFormat::Text => {
            let ansi = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            registry.with(layer.with_ansi(ansi).with_target(false)).try_init()
        }
        LogFormat::Json => {
            registry.with(layer.json().flatten_event(true).with_current_span(false)).try_init()
        }
    };
    done.map_err(|_| LogIsSetUp)
}

fn filter(level: LogLevel) -> EnvFilter {
    let quiet = QUIET.iter().filter_map(|it| it.parse::<Directive>().ok());
    let filter = EnvFilter::default().add_directive(level.filter().into());
    match level {
        LogLevel::Error => filter,
        LogLevel::Warn | LogLevel::Info | LogLevel::Debug | LogLevel::Trace => {
            quiet.fold(filter, EnvFilter::add_directive)
        }
    }
}

// === impl LogLevel ===

impl LogLevel {
    fn filter(self) -> tracing_subscriber::filter::LevelFilter {
        use tracing_subscriber::filter::LevelFilter;
        match self {
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
            Self::Trace => LevelFilter::TRACE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_quiet_whatever_is_asked_for() {
        for level in [LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace] {
            assert!(filter(level).to_string().contains("pingora_proxy=warn"));
        }
        assert_eq!(filter(LogLevel::Error).to_string(), "error");
    }
}
