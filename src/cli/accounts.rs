//! `codex-edge accounts`: the logins of the pool.

mod named;
mod pool;
mod shown;

use clap::Subcommand;

use super::{CliError, import, login, remote::Target};

pub(super) use self::named::NameError;

#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    /// Print the gateway's answer as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    #[command(flatten)]
    Pool(pool::Verb),
    /// Sign in to an account, in a browser or by a code on another device
    Login(login::Args),
    /// Take over credential files from elsewhere
    Import(import::Args),
}

pub(super) fn run(args: &Args) -> Result<(), CliError> {
    match &args.verb {
        Verb::Pool(verb) => pool::run(verb, &args.target, args.json),
        Verb::Login(verb) => login::run(verb, &args.target, args.json),
        Verb::Import(verb) => import::run(verb, &args.target, args.json),
    }
}
