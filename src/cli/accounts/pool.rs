//! What is done to accounts that the pool has, over the running gateway.

use std::io::{self, BufRead, IsTerminal, Write};

use clap::Subcommand;
use http::Method;
use serde_json::{Value, json};

use super::{named, shown};
use crate::{
    admin::{AuthAnswer, AuthList, ShownAuth},
    cli::{
        self, CliError,
        remote::{Remote, Target},
    },
};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List all accounts of the pool, and what is wrong with credential files
    #[command(after_help = "Example:\n  codex-edge accounts list --json")]
    List,
    /// Show one account, with its files
    #[command(after_help = "Example:\n  codex-edge accounts show pa1b2c3")]
    Show {
        #[command(flatten)]
        account: Account,
    },
    /// Renew the tokens of an account now
    #[command(after_help = "Example:\n  codex-edge accounts refresh pa1b2c3")]
    Refresh {
        #[command(flatten)]
        account: Account,
    },
    /// Give an account no new work until it is resumed
    ///
    /// Its files stay as they are, and what runs goes on.
    #[command(after_help = "Example:\n  codex-edge accounts pause pa1b2c3")]
    Pause {
        #[command(flatten)]
        account: Account,
    },
    /// Give a paused account work again
    #[command(after_help = "Example:\n  codex-edge accounts resume pa1b2c3")]
    Resume {
        #[command(flatten)]
        account: Account,
    },
    /// Switch an account on, in every file of it
    #[command(after_help = "Example:\n  codex-edge accounts enable pa1b2c3")]
    Enable {
        #[command(flatten)]
        account: Account,
    },
    /// Switch an account off, in every file of it
    ///
    /// Codex may drop the switch when it rewrites its own auth.json; a pause stays.
    #[command(after_help = "Example:\n  codex-edge accounts disable pa1b2c3")]
    Disable {
        #[command(flatten)]
        account: Account,
    },
    /// End the rest of an account that the upstream has refused
    #[command(after_help = "Example:\n  codex-edge accounts clear-cooldown pa1b2c3")]
    ClearCooldown {
        #[command(flatten)]
        account: Account,
    },
    /// Delete every credential file of an account
    #[command(after_help = "Example:\n  codex-edge accounts remove pa1b2c3 --yes")]
    Remove {
        #[command(flatten)]
        account: Account,
        /// Do not ask, as it is anyway where there is no terminal
        #[arg(long, short)]
        yes: bool,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct Account {
    /// A label, an auth id or an account id
    #[arg(value_name = "ACCOUNT")]
    name: String,
}

/// What is asked of the gateway for an account, and what is said when it is done.
struct Errand<'a> {
    route: &'a [&'a str],
    done: fn(&ShownAuth) -> String,
}

pub(super) fn run(verb: &Verb, target: &Target, json: bool) -> Result<(), CliError> {
    let config = target.load_config()?;
    let remote = target.resolve(&config)?;
    let text = cli::runtime()?.block_on(act(verb, &remote, json))?;
    cli::print(text.as_bytes())
}

async fn act(verb: &Verb, remote: &Remote, json: bool) -> Result<String, CliError> {
    let listing = remote.send(Method::GET, &["auths"], None).await?;
    let list: AuthList = serde_json::from_value(listing.clone())?;
    let errand = |account: &Account, errand: Errand<'static>| {
        let auth = named::find(&list, &account.name).cloned();
        async move { errand.run(remote, &auth?, json).await }
    };
    match verb {
        Verb::List if json => pretty(&listing),
        Verb::List => Ok(shown::list(&list)),
        Verb::Show { account } => {
            let auth = named::find(&list, &account.name)?;
            let answer = remote.send(Method::GET, &["auths", &auth.auth_id], None).await?;
            if json {
                return pretty(&answer);
            }
            Ok(shown::show(&serde_json::from_value::<AuthAnswer>(answer)?.auth))
        }
        Verb::Refresh { account } => {
            errand(account, Errand { route: &["refresh"], done: shown::refreshed }).await
        }
        Verb::Pause { account } => {
            errand(account, Errand { route: &["pause"], done: shown::paused }).await
        }
        Verb::Resume { account } => {
            errand(account, Errand { route: &["resume"], done: shown::may_serve }).await
        }
        Verb::Enable { account } => {
            errand(account, Errand { route: &["enable"], done: shown::may_serve }).await
        }
        Verb::Disable { account } => {
            errand(account, Errand { route: &["disable"], done: shown::disabled }).await
        }
        Verb::ClearCooldown { account } => {
            errand(account, Errand { route: &["cooldown", "clear"], done: shown::may_serve }).await
        }
        Verb::Remove { account, yes } => {
            let auth = named::find(&list, &account.name)?;
            if !yes && !may_remove(auth) {
                return Err(CliError::NothingRemoved);
            }
            remote.send(Method::DELETE, &["auths", &auth.auth_id], None).await?;
            if json {
                return pretty(&json!({ "removed": auth.auth_id }));
            }
            Ok(shown::removed(auth))
        }
    }
}

fn pretty(answer: &Value) -> Result<String, CliError> {
    Ok(serde_json::to_string_pretty(answer)? + "\n")
}

/// Asks whoever sits at the terminal. A script has nobody to ask, and means what it says.
fn may_remove(auth: &ShownAuth) -> bool {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return true;
    }
    // Without a standard error nobody would see the question.
    let _ = write!(io::stderr(), "{} [y/N] ", shown::question(auth));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).is_ok() && is_yes(&answer)
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

// === impl Errand ===

impl Errand<'_> {
    async fn run(&self, remote: &Remote, auth: &ShownAuth, json: bool) -> Result<String, CliError> {
        let path = [&["auths"], self.route].concat();
        let body = json!({ "auth_id": auth.auth_id });
        let answer = remote.send(Method::POST, &path, Some(&body)).await?;
        if json {
            return pretty(&answer);
        }
        Ok((self.done)(&serde_json::from_value::<AuthAnswer>(answer)?.auth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_removes() {
        for (answer, yes) in
            [("y\n", true), (" YES \n", true), ("", false), ("\n", false), ("yo\n", false)]
        {
            assert_eq!(is_yes(answer), yes, "{answer:?}");
        }
    }
}
