//! Management of the accounts.

mod shown;

use axum::{
    Json,
    extract::{Path, State, rejection::PathRejection},
};
use http::StatusCode;
use serde::Deserialize;

use super::{
    AdminState,
    audit::{self, Ended, NOBODY},
    fault::Fault,
    object::Object,
};
use crate::accounts::{
    files::WriteError,
    manage::{Candidate, Deed, ManageError, Named},
};

pub use self::shown::{
    AuthAnswer, AuthList, DirectoryState, ShownAuth, ShownCooldown, ShownDirectory, ShownProblem,
    ShownSource, ShownSwitches,
};

const UNKNOWN: &str = "the pool has no such account: \"codex-edge accounts list\" shows those it \
                       has";

/// The account that a change is meant for: by exactly one of the two.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Target {
    account_id: Option<String>,
    auth_id: Option<String>,
}

/// One of the account's names, as the path has it.
type Segment = Result<Path<String>, PathRejection>;

pub(super) async fn list(State(state): State<AdminState>) -> Json<AuthList> {
    Json(AuthList::of(&state))
}

pub(super) async fn show(
    State(state): State<AdminState>,
    segment: Segment,
) -> Result<Json<AuthAnswer>, Fault> {
    let status = state.accounts.status(&named(segment)?)?;
    Ok(Json(AuthAnswer::of(&state, status)))
}

pub(super) async fn refresh(
    State(state): State<AdminState>,
    Object(target): Object<Target>,
) -> Result<Json<AuthAnswer>, Fault> {
    change(state, target, Deed::Refresh).await
}

pub(super) async fn enable(
    State(state): State<AdminState>,
    Object(target): Object<Target>,
) -> Result<Json<AuthAnswer>, Fault> {
    change(state, target, Deed::Enable).await
}

pub(super) async fn disable(
    State(state): State<AdminState>,
    Object(target): Object<Target>,
) -> Result<Json<AuthAnswer>, Fault> {
    change(state, target, Deed::Disable).await
}

pub(super) async fn pause(
    State(state): State<AdminState>,
    Object(target): Object<Target>,
) -> Result<Json<AuthAnswer>, Fault> {
    change(state, target, Deed::Pause).await
}

pub(super) async fn resume(
    State(state): State<AdminState>,
    Object(target): Object<Target>,
) -> Result<Json<AuthAnswer>, Fault> {
    change(state, target, Deed::Resume).await
}

pub(super) async fn clear_cooldown(
    State(state): State<AdminState>,
    Object(target): Object<Target>,
) -> Result<Json<AuthAnswer>, Fault> {
    change(state, target, Deed::ClearCooldown).await
}

pub(super) async fn remove(
    State(state): State<AdminState>,
    segment: Segment,
) -> Result<StatusCode, Fault> {
    let named = named(segment)?;
    let (deed, acting) = (Deed::Remove, state.clone());
    let removing = async move {
        let (target, done) = carry_out(&acting, &named, deed).await;
        (target, done.map(|_| ()))
    };
    audit::recorded(&state, action(deed), removing).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn change(state: AdminState, target: Target, deed: Deed) -> Result<Json<AuthAnswer>, Fault> {
    let named = target.named()?;
    let acting = state.clone();
    let changing = async move {
        let (target, done) = carry_out(&acting, &named, deed).await;
        let answer = done.and_then(|named| {
            let status = acting.accounts.status(&named)?;
            Ok(AuthAnswer::of(&acting, status))
        });
        (target, answer)
    };
    audit::recorded(&state, action(deed), changing).await.map(Json)
}

/// Does it to the account as the directory has it at this moment. Gives the name that the account
/// has now.
async fn carry_out(state: &AdminState, named: &Named, deed: Deed) -> Ended<Named> {
    let accounts = &state.accounts;
    accounts.reconciler.look().await;
    let account = match accounts.find(named) {
        Ok(account) => account,
        Err(error) => return (target_of(&error), Err(error.into())),
    };
    let done = accounts.carry_out(&account.id, deed).await;
    let named = done.map(|id| Named::AuthId(id.to_string()));
    (account.id.to_string(), named.map_err(Fault::from))
}

/// For whom a change was meant that found nobody or too many.
fn target_of(error: &ManageError) -> String {
    let ManageError::Ambiguous(candidates) = error else { return NOBODY.to_owned() };
    let ids = candidates.iter().map(|Candidate { id, .. }| id.as_str());
    ids.collect::<Vec<_>>().join(" ")
}

fn action(deed: Deed) -> &'static str {
    match deed {
        Deed::Refresh => "auths.refresh",
        Deed::Enable => "auths.enable",
        Deed::Disable => "auths.disable",
        Deed::Pause => "auths.pause",
        Deed::Resume => "auths.resume",
        Deed::ClearCooldown => "auths.cooldown.clear",
        Deed::Remove => "auths.delete",
    }
}

fn named(segment: Segment) -> Result<Named, Fault> {
    let Path(text) = segment.map_err(|_| Fault::NotFound(UNKNOWN))?;
    Ok(Named::Any(text))
}

// === impl Target ===

impl Target {
    fn named(self) -> Result<Named, Fault> {
        match (self.account_id, self.auth_id) {
            (Some(id), None) => Ok(Named::AccountId(id)),
            (None, Some(id)) => Ok(Named::AuthId(id)),
            (Some(_), Some(_)) | (None, None) => Err(Fault::InvalidRequest(
                "name the account by exactly one of account_id and \
                                           auth_id"
                    .to_owned(),
            )),
        }
    }
}

// === impl Fault ===

impl From<ManageError> for Fault {
    fn from(error: ManageError) -> Self {
        let message = error.to_string();
        match error {
            ManageError::NotFound => Self::NotFound(UNKNOWN),
            ManageError::Ambiguous(_) => Self::AccountAmbiguous(message),
            ManageError::Unidentified(_) => Self::AuthUnidentified(message),
            ManageError::NeedsLogin(_) => Self::ReauthRequired(message),
            ManageError::RefreshFailed(_) => Self::RefreshFailed(message),
            ManageError::DirectoryUnavailable => Self::AuthDirUnavailable(message),
            ManageError::CopyOutOfReach(_) | ManageError::Files(WriteError::Changed { .. }) => {
                Self::FilesChanged(message)
            }
            ManageError::Files(_) => Self::FilesFailed(message),
            ManageError::Storage(error) => {
                tracing::error!(%error, "A change of the accounts failed: {error}");
                Self::Internal
            }
            ManageError::BrokenOff => Self::Internal,
        }
    }
}
