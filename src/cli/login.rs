//! `codex-edge accounts login`: signs in to an account, by browser or by a code.

mod callback;

use std::{
    io::{self, BufRead, IsTerminal, Write},
    process::{Command, Stdio},
    time::Duration,
};

use jiff::Timestamp;
use tokio::sync::mpsc;

use self::callback::{Page, Visits};
use super::{
    CliError,
    desk::{Desk, DeskError, Wish},
    import,
    remote::Target,
    sim,
};
use crate::{
    accounts::import::Mode,
    admin::{LoginAnswer, ShownLogin, ShownMeans, ShownState, ShownTaken},
    clock::Clock,
};

/// The ports that the sign-in service sends browsers back to.
const PORTS: [u16; 2] = [1455, 1457];

/// How often the gateway is asked how the sign-in stands.
const INTERVAL: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "Example:
  codex-edge accounts login             in a browser on this machine
  codex-edge accounts login --device    by a code, from any machine

The browser comes back to a port of this machine. Where the browser runs on another one, sign in
with --device, or paste the address that it could not open here.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Sign in on any other device, by a code
    #[arg(long)]
    device: bool,
    /// Only print the address
    #[arg(long)]
    no_browser: bool,
    /// The port that the browser comes back to, for a sign-in service that takes any; 0 for a free
    /// one
    #[arg(long, value_name = "PORT", hide = true, conflicts_with = "device")]
    callback_port: Option<u16>,
}

/// How a sign-in ended that gave no account.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoginEnd {
    #[error(transparent)]
    Desk(#[from] DeskError),
    #[error(transparent)]
    Door(#[from] callback::DoorError),
    #[error("cannot listen for signals: {0}")]
    Signals(#[source] io::Error),
    #[error("{0}")]
    Failed(String),
    #[error("nobody signed in in time: begin again")]
    Expired,
    #[error("the sign-in is cancelled")]
    Cancelled,
}

/// Whatever can bring the sign-in to its end.
struct Waiting<'a> {
    desk: &'a Desk,
    visits: Option<Visits>,
    lines: mpsc::Receiver<String>,
    clock: Clock,
}

pub(super) fn run(args: &Args, target: &Target, json: bool) -> Result<(), CliError> {
    let config = target.load_config()?;
    let login = super::runtime()?.block_on(async {
        let desk = Desk::open(target, &config, Mode::Real)?;
        if let Desk::Directory(_) = &desk {
            super::report("No gateway runs here: the login goes straight into its directory.");
        }
        sign_in(args, &desk).await
    })?;
    let text = if json {
        serde_json::to_string_pretty(&LoginAnswer { login })? + "\n"
    } else {
        let ShownState::Done { account } = login.state else { return Ok(()) };
        done(&account)
    };
    super::print(text.as_bytes())
}

async fn sign_in(args: &Args, desk: &Desk) -> Result<ShownLogin, LoginEnd> {
    let stop = sim::stop_signal().map_err(LoginEnd::Signals)?;
    let ports = args.callback_port.map_or(PORTS.to_vec(), |it| vec![it]);
    let visits = if args.device { None } else { Some(Visits::open(&ports).await?) };
    let wish = match &visits {
        Some(visits) => Wish::Pkce { redirect_uri: visits.redirect_uri() },
        None => Wish::Device,
    };
    let login = desk.begin(&wish).await?;
    let at_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
    introduce(&login, at_terminal);
    if let (ShownMeans::Pkce { authorize_url }, true, false) =
        (&login.means, at_terminal, args.no_browser)
    {
        open_browser(authorize_url);
    }
    let lines = if visits.is_some() && at_terminal { typed() } else { mpsc::channel(1).1 };
    let waiting = Waiting { desk, visits, lines, clock: Clock::system() };
    let id = login.id.clone();
    let ended = tokio::select! {
        ended = waiting.until_over(login) => ended,
        () = stop => {
            // It would run out by itself; a gateway that is gone has forgotten it.
            let _ = desk.cancel(&id).await;
            Err(LoginEnd::Cancelled)
        }
    };
    clear_line();
    let login = ended?;
    match &login.state {
        ShownState::Waiting | ShownState::Done { .. } => Ok(login),
        ShownState::Failed { error } => Err(LoginEnd::Failed(error.clone())),
        ShownState::Expired => Err(LoginEnd::Expired),
    }
}

/// Says where to go.
fn introduce(login: &ShownLogin, at_terminal: bool) {
    match &login.means {
        ShownMeans::Device { user_code, verification_url } => {
            super::report(&format!("Open {verification_url}\nand type in the code {user_code}"));
        }
        ShownMeans::Pkce { authorize_url } => {
            super::report(&format!("Sign in at\n\n{authorize_url}\n"));
            if at_terminal {
                super::report(
                    "If the browser runs on another machine, paste here the address that it ends at.",
                );
            }
        }
    }
}

/// Where there is no browser, the address on the terminal is as good.
fn open_browser(url: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let quiet = Stdio::null;
    let mut command = Command::new(program);
    let _ = command.arg(url).stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn();
}

/// The lines that somebody types or pastes.
fn typed() -> mpsc::Receiver<String> {
    let (lines, receiver) = mpsc::channel(1);
    // A thread of its own: nothing waits for a line that never comes.
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if !line.trim().is_empty() && lines.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn done(account: &ShownTaken) -> String {
    let mut text = format!("Signed in: {}\n", import::describe(account));
    for warning in &account.warnings {
        text.push_str(&format!("  warning: {warning}\n"));
    }
    text
}

fn show_progress(expires_at: Timestamp, now: Timestamp) {
    if io::stderr().is_terminal() {
        let left = expires_at.duration_since(now).as_secs().max(0);
        let (minutes, seconds) = (left / 60, left % 60);
        // Without a standard error nobody looks.
        let _ = write!(io::stderr(), "\r\u{1b}[KWaiting, {minutes}:{seconds:02} left ");
    }
}

fn clear_line() {
    if io::stderr().is_terminal() {
        let _ = write!(io::stderr(), "\r\u{1b}[K");
    }
}

// === impl Waiting ===

impl Waiting<'_> {
    async fn until_over(mut self, mut login: ShownLogin) -> Result<ShownLogin, LoginEnd> {
        let mut tick = tokio::time::interval(INTERVAL);
        while matches!(login.state, ShownState::Waiting) {
            show_progress(login.expires_at, self.clock.now());
            tokio::select! {
                _ = tick.tick() => login = self.desk.show(&login.id).await?,
                Some(visit) = next(&mut self.visits) => {
                    let ended = self.complete(&login.id, &visit.url).await;
                    visit.answer(match &ended {
                        Ok(ShownLogin { state: ShownState::Done { .. }, .. }) => Page::Done,
                        Ok(ShownLogin { state: ShownState::Failed { error }, .. }) => {
                            Page::Failed(error.clone())
                        }
                        Ok(_) => Page::Failed("the sign-in is over: begin again".to_owned()),
                        Err(error) => Page::Failed(error.to_string()),
                    }).await;
                    login = ended.unwrap_or(login);
                }
                Some(line) = self.lines.recv() => {
                    login = self.complete(&login.id, &line).await.unwrap_or(login);
                }
            }
        }
        Ok(login)
    }

    /// What does not belong to this sign-in is told, and changes nothing.
    async fn complete(&self, id: &str, url: &str) -> Result<ShownLogin, DeskError> {
        let ended = self.desk.complete(id, url).await;
        if let Err(error) = &ended {
            clear_line();
            super::complain(&error.to_string());
        }
        ended
    }
}

/// The next visit of a browser; never, where none is waited for.
async fn next(visits: &mut Option<Visits>) -> Option<callback::Visit> {
    match visits {
        Some(visits) => visits.next().await,
        None => std::future::pending().await,
    }
}
