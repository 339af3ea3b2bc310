//! The command line: what each verb takes, and how its end becomes an exit code.
//!
//! Standard output carries results only; everything else goes to standard error. An error is one
//! sentence that says what to do.

mod accounts;
mod check;
mod desk;
mod import;
mod login;
mod remote;
mod serve;
mod sim;
mod table;
mod users;

use std::{
    ffi::OsString,
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
};

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::{config::ConfigError, demo};

/// `EX_CONFIG` of sysexits.
const BAD_CONFIG: u8 = 78;

#[derive(Debug, Parser)]
#[command(
    name = "codex-edge",
    version,
    about = "A shared gateway for OpenAI Codex: one pool of accounts, one binary",
    after_help = "Example:\n  codex-edge serve\n  codex-edge users create ann",
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the gateway until it is stopped
    #[command(after_help = "Example:\n  codex-edge serve --config /etc/codex-edge/config.toml")]
    Serve {
        /// The configuration; without it the usual places are looked at
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Take the listeners over from the running gateway
        #[arg(long)]
        upgrade: bool,
    },
    /// Say what is wrong with the configuration and the files it names, and change nothing
    #[command(after_help = "Example:\n  codex-edge check && systemctl restart codex-edge")]
    Check {
        /// The configuration; without it the usual places are looked at
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Show the gateway's main job on a simulated upstream with made-up accounts
    #[command(after_help = "Example:\n  codex-edge demo --keep")]
    Demo {
        /// Leave everything running and print how to use it
        #[arg(long)]
        keep: bool,
    },
    /// Run only the simulated upstream, for tests of a client or a gateway of your own
    #[command(after_help = "Example:\n  codex-edge sim --listen 127.0.0.1:8400 --accounts ./auth")]
    Sim {
        /// Where to listen; port 0 takes a free one
        #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8400")]
        listen: SocketAddr,
        /// What to answer, and which failures to play
        #[arg(long, value_name = "FILE")]
        script: Option<PathBuf>,
        /// Write the auth.json files of the made-up accounts into this directory
        #[arg(long, value_name = "DIR")]
        accounts: Option<PathBuf>,
    },
    /// Manage the people who may use the running gateway, and their keys
    #[command(
        after_help = "Example:\n  codex-edge users create ann\n  codex-edge users list --json"
    )]
    Users(users::Args),
    /// Manage the accounts of the pool
    #[command(
        after_help = "Example:\n  codex-edge accounts list\n  codex-edge accounts login --device\n  \
                      codex-edge accounts import ~/.codex/auth.json\n  codex-edge accounts pause \
                      pa1b2c3"
    )]
    Accounts(accounts::Args),
    /// Print a completion script
    #[command(after_help = "Example:\n  codex-edge completions bash > \
                            ~/.local/share/bash-completion/completions/codex-edge")]
    Completions { shell: Shell },
}

/// Why a verb was not done.
#[derive(Debug, thiserror::Error)]
enum CliError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Remote(#[from] remote::RemoteError),
    #[error("cannot run: {0}")]
    Runtime(#[source] io::Error),
    #[error("cannot write to standard output: {0}")]
    Output(#[source] io::Error),
    #[error("the gateway's answer is not understood ({0}): use the codex-edge of its version")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Desk(#[from] desk::DeskError),
    #[error(transparent)]
    Login(#[from] login::LoginEnd),
    #[error(transparent)]
    Name(#[from] accounts::NameError),
    #[error("nothing was removed")]
    NothingRemoved,
    #[error("{refused} of {total} files refused: standard output says why")]
    Refused { refused: usize, total: usize },
    #[error("{0}")]
    Simulator(#[from] crate::sim::RunError),
}

/// Does what the command line says. `args` begins with the program's name.
pub fn run(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    match Cli::try_parse_from(args) {
        Ok(cli) => run_verb(cli.verb),
        Err(error) => {
            // Help goes to standard output with code 0, wrong usage to standard error with code 2.
            // Where neither can be written, the code still tells.
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
        }
    }
}

fn run_verb(verb: Verb) -> ExitCode {
    match verb {
        Verb::Serve { upgrade: true, .. } => {
            complain("--upgrade is not built yet: stop the running gateway, then start this one");
            ExitCode::FAILURE
        }
        Verb::Serve { config, upgrade: false } => serve::run(config),
        Verb::Check { config } => check::run(config),
        Verb::Demo { keep } => demo::run(keep),
        Verb::Sim { listen, script, accounts } => finish(sim::run(listen, script, accounts)),
        Verb::Users(args) => finish(users::run(args)),
        Verb::Accounts(args) => finish(accounts::run(&args)),
        Verb::Completions { shell } => finish(print_completions(shell)),
    }
}

fn print_completions(shell: Shell) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "codex-edge", &mut script);
    print(&script)
}

fn finish(done: Result<(), CliError>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Who reads the output has seen enough.
        Err(CliError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain(&error.to_string());
            if matches!(error, CliError::Config(_)) {
                ExitCode::from(BAD_CONFIG)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

/// Says something on standard error.
fn complain(sentence: &str) {
    // Without a standard error nobody listens.
    let _ = writeln!(io::stderr(), "codex-edge: {sentence}");
}

/// Writes one line of a report to standard error.
fn report(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Writes a result to standard output.
fn print(bytes: &[u8]) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(CliError::Output)
}

fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(CliError::Runtime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
