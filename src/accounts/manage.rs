//! What an operator does to an account.
//!
//! Only an account that its tokens name can be changed: one that goes by the place of its file may
//! be another one tomorrow. Files are changed all or none, and the pool shows what was done when a
//! call returns.

mod status;

use std::sync::Arc;

use super::{
    Accounts,
    files::{CredentialFiles, FoundFile, WriteError},
    oauth::RefreshReason,
    refresh::Renewal,
};
use crate::{
    domain::{
        account::{Account, AccountId, AuthId, Label},
        identity::PathId,
    },
    storage::StorageError,
};

pub use self::status::{RuntimeState, Status, word};

/// How somebody names an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    AuthId(String),
    AccountId(String),
    /// By whichever of its names: auth id, label or account id.
    Any(String),
}

/// What is to be done to an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    Refresh,
    Enable,
    Disable,
    Pause,
    Resume,
    ClearCooldown,
    Remove,
}

/// An account among others of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub id: AuthId,
    pub label: Label,
}

/// Why nothing was done. Names no account id, token or absolute path.
#[derive(Debug, thiserror::Error)]
pub enum ManageError {
    #[error("the pool has no such account: \"codex-edge accounts list\" shows those it has")]
    NotFound,
    #[error("this names several accounts: {}. Name one of them by its auth id", list(.0))]
    Ambiguous(Vec<Candidate>),
    #[error(
        "account {0} is known by the place of its file only, so it cannot be managed: sign in anew with \"codex-edge accounts login\", or put its account_id into the file"
    )]
    Unidentified(Label),
    #[error(
        "the tokens of account {0} can no longer be renewed: sign in again with \"codex-edge accounts login\""
    )]
    NeedsLogin(Label),
    #[error(
        "the tokens of account {0} could not be renewed just now: try again in a minute; the gateway's log tells why"
    )]
    RefreshFailed(Label),
    #[error(
        "the credential directory cannot be read, so no file of it was changed: mend auth.dir, then try again"
    )]
    DirectoryUnavailable,
    #[error(
        "{0} belongs to the account and cannot be read now, so no file was changed: mend or delete that file, then try again"
    )]
    CopyOutOfReach(PathId),
    #[error("not every file of the account was changed: {0}")]
    Files(#[source] WriteError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("the change broke off: the gateway's log tells why")]
    BrokenOff,
}

fn list(candidates: &[Candidate]) -> String {
    let one = |it: &Candidate| format!("{} ({})", it.id, it.label);
    candidates.iter().map(one).collect::<Vec<_>>().join(", ")
}

// === impl Accounts ===

impl Accounts {
    /// Every account of the pool, by id.
    pub fn statuses(&self) -> Vec<Status> {
        let now = self.clock.now();
        self.pool.snapshot().entries.iter().map(|it| Status::of(it, now)).collect()
    }

    /// One account, managed or not.
    ///
    /// # Errors
    /// A name that no account has, or several.
    pub fn status(&self, named: &Named) -> Result<Status, ManageError> {
        let account = self.find(named)?;
        let snapshot = self.pool.snapshot();
        let entry = snapshot.find(&account.id).ok_or(ManageError::NotFound)?;
        Ok(Status::of(entry, self.clock.now()))
    }

    /// The account that is meant.
    ///
    /// # Errors
    /// A name that no account has, or several.
    pub fn find(&self, named: &Named) -> Result<Arc<Account>, ManageError> {
        let snapshot = self.pool.snapshot();
        let accounts: Vec<&Arc<Account>> = snapshot.entries.iter().map(|it| &it.account).collect();
        choose(&accounts, named).cloned()
    }

    /// Does it to an identified account, and gives the id that the account has then: new tokens may
    /// tell more of it. Must not be dropped half way: run it in a task of its own.
    ///
    /// # Errors
    /// What keeps it from being done. Files and database are as they were then, unless the error
    /// says otherwise.
    pub async fn carry_out(&self, id: &AuthId, deed: Deed) -> Result<AuthId, ManageError> {
        let account = self.subject(id)?;
        match deed {
            Deed::Refresh => return self.refresh(&account).await,
            Deed::Enable => self.set_disabled(id, false).await?,
            Deed::Disable => self.set_disabled(id, true).await?,
            Deed::Pause => self.reconciler.set_paused(id, true).await?,
            Deed::Resume => self.reconciler.set_paused(id, false).await?,
            Deed::ClearCooldown if self.pool.clear_cooldown(id) => {}
            Deed::ClearCooldown => return Err(ManageError::NotFound),
            Deed::Remove => self.remove(id).await?,
        }
        Ok(account.id.clone())
    }

    async fn refresh(&self, account: &Account) -> Result<AuthId, ManageError> {
        match self.refresher.renew(account, RefreshReason::ProactiveExpiry).await {
            Renewal::Fresh(account) => Ok(account.id.clone()),
            Renewal::NeedsLogin => Err(ManageError::NeedsLogin(account.label.clone())),
            Renewal::Passing => Err(ManageError::RefreshFailed(account.label.clone())),
            Renewal::Gone => Err(ManageError::NotFound),
        }
    }

    async fn set_disabled(&self, id: &AuthId, disabled: bool) -> Result<(), ManageError> {
        let copies = self.copies(id).await?;
        self.change_files(move |files| files.set_disabled(&copies, disabled)).await
    }

    async fn remove(&self, id: &AuthId) -> Result<(), ManageError> {
        let copies = self.copies(id).await?;
        self.change_files(move |files| files.remove(&copies)).await
    }

    /// Every file of the account, to be changed. What another program does to a file from here on
    /// is noticed when the file is changed.
    async fn copies(&self, id: &AuthId) -> Result<Vec<FoundFile>, ManageError> {
        let files = self.files.clone();
        let reading = self.tasks.handle().spawn_blocking(move || files.read());
        let found = reading.await.map_err(|_| ManageError::BrokenOff)?;
        let found = found.map_err(|error| {
            let kind = error.source.kind();
            tracing::warn!(
                "The credential directory cannot be read ({kind}), so no file was changed"
            );
            ManageError::DirectoryUnavailable
        })?;
        // Whose file it is, is decided by a look that comes after the reading.
        self.reconciler.look().await;
        let account = self.subject(id)?;
        let copy = |path: &PathId| {
            let copy = found.iter().find(|it| it.path == *path).cloned();
            copy.ok_or_else(|| ManageError::CopyOutOfReach(path.clone()))
        };
        account.sources.iter().map(|it| copy(&it.path)).collect()
    }

    /// Changes the directory, and has the pool follow.
    async fn change_files(
        &self,
        change: impl FnOnce(&CredentialFiles) -> Result<(), WriteError> + Send + 'static,
    ) -> Result<(), ManageError> {
        let files = self.files.clone();
        let changed = self.tasks.handle().spawn_blocking(move || change(&files)).await;
        self.reconciler.look().await;
        changed.map_err(|_| ManageError::BrokenOff)?.map_err(ManageError::Files)
    }

    fn subject(&self, id: &AuthId) -> Result<Arc<Account>, ManageError> {
        let snapshot = self.pool.snapshot();
        let account = &snapshot.find(id).ok_or(ManageError::NotFound)?.account;
        if account.id.is_identified() {
            Ok(Arc::clone(account))
        } else {
            Err(ManageError::Unidentified(account.label.clone()))
        }
    }
}

/// An auth id names at most one account, so it counts before the names that others may share.
fn choose<'a>(
    accounts: &[&'a Arc<Account>],
    named: &Named,
) -> Result<&'a Arc<Account>, ManageError> {
    let by_id = |text: &str| accounts.iter().find(|it| it.id.as_str() == text).copied();
    let of = |text: &str, it: &Account| {
        let wanted = AccountId::parse(text);
        wanted.is_some() && it.account_id == wanted
    };
    let matching: Vec<&Arc<Account>> = match named {
        Named::AuthId(text) => return by_id(text).ok_or(ManageError::NotFound),
        Named::AccountId(text) => accounts.iter().copied().filter(|it| of(text, it)).collect(),
        Named::Any(text) => {
            if let Some(account) = by_id(text) {
                return Ok(account);
            }
            let fits = |it: &Account| it.label.as_str() == text || of(text, it);
            accounts.iter().copied().filter(|it| fits(it)).collect()
        }
    };
    match matching[..] {
        [] => Err(ManageError::NotFound),
        [only] => Ok(only),
        _ => Err(ManageError::Ambiguous(
            matching
                .iter()
                .map(|it| Candidate { id: it.id.clone(), label: it.label.clone() })
                .collect(),
        )),
    }
}
