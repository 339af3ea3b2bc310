//! Taking over logins that come as files: from elsewhere, or from a sign-in.
//!
//! A login of an account that is here replaces its tokens where they are, if it is newer; any other
//! becomes a file of its own, byte for byte as it was given. No message holds a token, an account id
//! or a path.

mod round;
mod verdict;

use std::{io, sync::Arc};

use parking_lot::Mutex;
use zeroize::Zeroizing;

use self::round::{Done, Round};
use super::{Accounts, files::CredentialFiles, pool::Pool, reconciler::Reconciler};
use crate::{
    clock::Clock,
    domain::account::{Account, AuthId, Label, MaskedEmail},
    protocol::credential_file::{self, CredentialFile, Fault, Rejection},
};

pub use self::verdict::Origin;
pub use super::directory::FILE_BYTES_MAX;

/// Takes logins into the credential directory, one call at a time. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Intake {
    files: CredentialFiles,
    clock: Clock,
    /// Without a gateway there is no pool.
    live: Option<Live>,
    /// Two logins of one new account must not become two files.
    turn: Arc<Mutex<()>>,
}

#[derive(Clone, Debug)]
struct Live {
    pool: Arc<Pool>,
    reconciler: Reconciler,
}

/// A login as it is given.
#[derive(Clone)]
pub struct Offer {
    /// What the caller calls it; told back and nothing else.
    pub name: String,
    pub bytes: Zeroizing<Vec<u8>>,
    pub origin: Origin,
}

/// Whether it is done or only told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Real,
    DryRun,
}

/// What became of one login.
#[derive(Clone, Debug)]
pub struct Imported {
    pub name: String,
    pub outcome: Result<Taken, Refused>,
}

/// A login that is here now, or was before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    pub change: Change,
    /// `None` where a dry run cannot tell, since the file's name will give the id.
    pub auth_id: Option<AuthId>,
    /// Known where the gateway runs.
    pub label: Option<Label>,
    pub email: Option<MaskedEmail>,
    pub plan: Option<String>,
    pub warnings: Vec<Warning>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Added,
    Updated,
    Unchanged,
}

/// What an operator should know though the login was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    #[error(
        "another program may refresh this login too, and then one of the two loses it: remove it \
         there, or better sign in with \"codex-edge accounts login\""
    )]
    Shared,
    #[error("it is older than what is here: nothing was changed")]
    Older,
    #[error("it is already there: nothing was changed")]
    AlreadyThere,
    #[error("it has no refresh token: it ends when its access token does")]
    NoRefreshToken,
    #[error("its access token has expired, and it has no refresh token: it is of no use")]
    Dead,
    #[error("the account is switched off: run \"codex-edge accounts enable\" to use it")]
    Disabled,
    #[error("it does not tell whose it is: its account goes by the name of its file")]
    Unidentified,
    #[error("some copies of the account's file could not be written: look at the log")]
    Partly,
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Why a login was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("{0}: give the auth.json of a Codex that is signed in, or a flat token file")]
    NoLogin(#[from] Rejection),
    #[error("it is larger than {FILE_BYTES_MAX} bytes: give a credential file")]
    TooLarge,
    #[error("it names one account and its tokens another: sign in again for the right one")]
    Conflict,
    #[error("the files of its account keep changing: try again")]
    Busy,
    #[error("the credential directory cannot be read: look at its mode and owner")]
    Directory,
    #[error("the credential directory cannot be written ({0}): look at its mode and owner")]
    Unwritable(io::ErrorKind),
    #[error("{0}")]
    Write(String),
    #[error("the import broke off: look at the log")]
    BrokenOff,
}

/// Reads a credential file as an import does, without the directory.
///
/// # Errors
/// Why it cannot be taken, whatever the directory holds.
pub fn read(bytes: &[u8]) -> Result<CredentialFile, Refused> {
    if u64::try_from(bytes.len()).is_ok_and(|it| it > FILE_BYTES_MAX) {
        return Err(Refused::TooLarge);
    }
    let file = credential_file::parse(bytes)?;
    if file.login.has_identity_conflict() { Err(Refused::Conflict) } else { Ok(file) }
}

// === impl Intake ===

impl Intake {
    /// For a directory that no gateway looks at.
    pub fn new(files: CredentialFiles, clock: Clock) -> Self {
        Self { files, clock, live: None, turn: Arc::default() }
    }

    /// For the directory of a running gateway: what is taken serves at once.
    pub fn of(accounts: &Accounts) -> Self {
        let (pool, reconciler) = (Arc::clone(&accounts.pool), accounts.reconciler.clone());
        let live = Some(Live { pool, reconciler });
        Self { live, ..Self::new(accounts.files.clone(), accounts.clock.clone()) }
    }

    /// Takes every login that can be taken, in order, and returns once the pool shows them.
    pub async fn take(&self, offers: Vec<Offer>, mode: Mode) -> Vec<Imported> {
        let names: Vec<String> = offers.iter().map(|it| it.name.clone()).collect();
        let intake = self.clone();
        let working = tokio::task::spawn_blocking(move || intake.take_blocking(&offers, mode));
        let done = match working.await {
            Ok(done) => done,
            Err(error) => {
                tracing::error!(%error, "An import broke off: {error}");
                names.iter().map(|_| Err(Refused::BrokenOff)).collect()
            }
        };
        let changed = |it: &Result<Done, Refused>| {
            it.as_ref().is_ok_and(|it| it.taken.change != Change::Unchanged)
        };
        if let Some(live) = &self.live
            && mode == Mode::Real
            && done.iter().any(changed)
        {
            live.reconciler.look().await;
        }
        let named = names.into_iter().zip(done);
        let shown = |(name, done): (String, Result<Done, Refused>)| {
            let outcome = done.map(|it| self.shown(it));
            if let (Ok(taken), Mode::Real) = (&outcome, mode) {
                taken.log();
            }
            Imported { name, outcome }
        };
        named.map(shown).collect()
    }

    fn take_blocking(&self, offers: &[Offer], mode: Mode) -> Vec<Result<Done, Refused>> {
        let _turn = self.turn.lock();
        let mut round = Round::new(&self.files, mode, self.clock.now());
        // Where no gateway has run yet, a trial finds no directory, and makes none.
        let nothing_yet =
            self.live.is_none() && mode == Mode::DryRun && self.files.have_no_directory();
        if !nothing_yet && round.look().is_err() {
            return offers.iter().map(|it| read(&it.bytes).and(Err(Refused::Directory))).collect();
        }
        offers.iter().map(|it| round.take(it)).collect()
    }

    /// What became of it, with the names that the pool gives.
    fn shown(&self, Done { mut taken, path }: Done) -> Taken {
        let Some((live, path)) = self.live.as_ref().zip(path) else { return taken };
        let accounts = live.pool.census(&live.pool.snapshot(), self.clock.now());
        let is_it = |it: &Account| it.sources.iter().any(|source| source.path == path);
        if let Some((account, _)) = accounts.iter().find(|(it, _)| is_it(it)) {
            taken.auth_id = Some(account.id.clone());
            taken.label = Some(account.label.clone());
        }
        taken
    }
}

// === impl Taken ===

impl Taken {
    fn log(&self) {
        let name = self.label.as_ref().map_or("not known yet", Label::as_str);
        match self.change {
            Change::Added => tracing::info!("Took a login in for a new account, {name}"),
            Change::Updated => tracing::info!("Took a newer login in for the account {name}"),
            Change::Unchanged => {}
        }
    }
}
