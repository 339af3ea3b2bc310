//! `codex-edge users`: people and their keys, managed over the running gateway.

use clap::Subcommand;
use http::Method;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    CliError,
    remote::{self, Remote, RemoteError, Target},
    serve, table,
};
use crate::config::{Config, EdgeProtocol};

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
    /// List all users
    #[command(after_help = "Example:\n  codex-edge users list --json")]
    List,
    /// Make a user and print the user's key, once
    #[command(after_help = "Example:\n  codex-edge users create ann")]
    Create {
        /// Letters, digits, '.', '_', '-' and '@'
        name: String,
    },
    /// Show one user
    #[command(after_help = "Example:\n  codex-edge users show ann")]
    Show {
        /// A name or an id
        user: String,
    },
    /// Keep a user out until it is enabled again
    #[command(after_help = "Example:\n  codex-edge users disable ann")]
    Disable {
        /// A name or an id
        user: String,
    },
    /// Let a disabled user in again
    #[command(after_help = "Example:\n  codex-edge users enable ann")]
    Enable {
        /// A name or an id
        user: String,
    },
    /// Print a new key for a user; the old one opens nothing any more
    #[command(after_help = "Example:\n  codex-edge users reset-key ann")]
    ResetKey {
        /// A name or an id
        user: String,
    },
    /// Forget a user and its keys
    #[command(after_help = "Example:\n  codex-edge users delete ann")]
    Delete {
        /// A name or an id
        user: String,
    },
}

#[derive(Deserialize)]
struct Listing {
    users: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    #[serde(flatten)]
    user: User,
    api_key: Option<Key>,
}

#[derive(Deserialize)]
struct Answer {
    user: User,
    api_key: Option<Key>,
}

#[derive(Deserialize)]
struct NewKey {
    user: User,
    api_key_value: String,
}

#[derive(Deserialize)]
struct User {
    id: String,
    name: String,
    enabled: bool,
    created_at: Timestamp,
}

#[derive(Deserialize)]
struct Key {
    masked_key: String,
    last_used_at: Option<Timestamp>,
}

pub(super) fn run(args: Args) -> Result<(), CliError> {
    let config = args.target.load_config()?;
    let remote = args.target.resolve(&config)?;
    let text = super::runtime()?.block_on(act(&args, &remote, &config))?;
    super::print(text.as_bytes())
}

async fn act(args: &Args, remote: &Remote, config: &Config) -> Result<String, CliError> {
    let answer = request(&args.verb, remote).await?;
    if args.json {
        return Ok(serde_json::to_string_pretty(&answer)? + "\n");
    }
    Ok(match &args.verb {
        Verb::List => list(serde_json::from_value(answer)?),
        Verb::Show { .. } => show(serde_json::from_value(answer)?),
        Verb::Create { .. } => tell_key(&serde_json::from_value(answer)?, Some(config)),
        Verb::ResetKey { .. } => tell_key(&serde_json::from_value(answer)?, None),
        Verb::Disable { user } => format!("{user} is kept out from now on.\n"),
        Verb::Enable { user } => format!("{user} may come in.\n"),
        Verb::Delete { user } => format!("{user} is deleted.\n"),
    })
}

async fn request(verb: &Verb, remote: &Remote) -> Result<Value, RemoteError> {
    let enabled = |it: bool| json!({ "enabled": it });
    let (method, below, body) = match verb {
        Verb::List => (Method::GET, vec![], None),
        Verb::Create { name } => (Method::POST, vec![], Some(json!({ "name": name }))),
        Verb::Show { user } => (Method::GET, vec![user.as_str()], None),
        Verb::Disable { user } => (Method::PATCH, vec![user.as_str()], Some(enabled(false))),
        Verb::Enable { user } => (Method::PATCH, vec![user.as_str()], Some(enabled(true))),
        Verb::ResetKey { user } => (Method::POST, vec![user, "api-key", "reset"], None),
        Verb::Delete { user } => (Method::DELETE, vec![user.as_str()], None),
    };
    let path = [&["users"], &below[..]].concat();
    remote.send(method, &path, body.as_ref()).await
}

fn list(listing: Listing) -> String {
    let rows: Vec<[String; 6]> = listing.users.into_iter().map(row).collect();
    table::draw(["NAME", "ID", "STATE", "KEY", "CREATED", "LAST USED"], &rows)
}

fn row(Listed { user, api_key }: Listed) -> [String; 6] {
    let masked = api_key.as_ref().map_or_else(|| "-".to_owned(), |it| it.masked_key.clone());
    let used = moment(api_key.and_then(|it| it.last_used_at));
    let (state, created) = (state(user.enabled), moment(Some(user.created_at)));
    [user.name, user.id, state.to_owned(), masked, created, used]
}

fn show(Answer { user, api_key }: Answer) -> String {
    let masked = api_key.as_ref().map_or("-", |it| &it.masked_key).to_owned();
    let used = moment(api_key.and_then(|it| it.last_used_at));
    let (state, created) = (state(user.enabled), moment(Some(user.created_at)));
    let lines = [
        ("name", user.name),
        ("id", user.id),
        ("state", state.to_owned()),
        ("key", masked),
        ("created", created),
        ("last used", used),
    ];
    lines.iter().map(|(name, value)| format!("{name:9}  {value}\n")).collect()
}

/// With `config` the user is new, and is told how to come in.
fn tell_key(made: &NewKey, config: Option<&Config>) -> String {
    let NewKey { user, api_key_value } = made;
    let name = &user.name;
    let Some(config) = config else {
        return format!("The new key of {name}, shown only now:\n\n  {api_key_value}\n");
    };
    let block = serve::codex_config(&base_url(config));
    format!(
        "The key of {name}, shown only now:\n\n  {api_key_value}\n\n\
         {name} points Codex at the gateway in ~/.codex/config.toml:\n\n{block}\n\
         and gives it the key: export CODEX_EDGE_KEY={api_key_value}\n"
    )
}

/// The edge as this machine reaches it.
fn base_url(config: &Config) -> String {
    let tls = matches!(config.server.protocol, EdgeProtocol::Tls(_));
    let scheme = if tls { "https" } else { "http" };
    // The configuration never has an empty list.
    let edge = config.server.listen.first().copied().unwrap_or(config.server.admin_listen);
    format!("{scheme}://{}/v1/codex", remote::reachable(edge))
}

fn state(enabled: bool) -> &'static str {
    if enabled { "enabled" } else { "disabled" }
}

/// A time as a person reads it, in UTC.
pub(super) fn moment(at: Option<Timestamp>) -> String {
    at.map_or_else(|| "-".to_owned(), |it| it.strftime("%Y-%m-%d %H:%M").to_string())
}
