//! Management of users and their keys.

use axum::{
    Json,
    extract::{Path, State, rejection::PathRejection},
};
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    AdminState,
    audit::{self, NOBODY},
    fault::{Fault, NO_USER},
    object::Object,
};
use crate::users::{
    NewKey, UserError,
    keys::{ApiKey, User},
};

#[derive(Serialize)]
pub(super) struct UserList {
    users: Vec<ListedUser>,
}

#[derive(Serialize)]
struct ListedUser {
    #[serde(flatten)]
    user: ShownUser,
    api_key: Option<ShownKey>,
}

/// A user with its newest key, never the key's value.
#[derive(Serialize)]
pub(super) struct UserAnswer {
    user: ShownUser,
    api_key: Option<ShownKey>,
}

/// The one answer that tells a key.
#[derive(Serialize)]
pub(super) struct NewKeyAnswer {
    user: ShownUser,
    api_key: ShownKey,
    api_key_value: String,
}

#[derive(Serialize)]
struct ShownUser {
    id: String,
    name: String,
    enabled: bool,
    /// These three are part of the shape and not set by anything yet.
    limits: (),
    selectors: (),
    accounts: (),
    created_at: Timestamp,
}

#[derive(Serialize)]
struct ShownKey {
    id: String,
    name: String,
    masked_key: String,
    enabled: bool,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    last_used_at: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewUser {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    enabled: bool,
}

/// The id or the name of a user, as the path has it.
type Named = Result<Path<String>, PathRejection>;

pub(super) async fn list(State(state): State<AdminState>) -> Json<UserList> {
    let users = state.users.list().iter().map(ListedUser::of).collect();
    Json(UserList { users })
}

pub(super) async fn create(
    State(state): State<AdminState>,
    Object(new): Object<NewUser>,
) -> Result<Json<NewKeyAnswer>, Fault> {
    let acting = state.clone();
    let creating = async move {
        let (users, now) = (&acting.users, acting.gateway.clock.now());
        match users.create(&new.name, now).await {
            Ok(made) => (made.user.id.to_string(), Ok(made)),
            Err(error) => {
                // A name that is taken names somebody.
                let target =
                    users.find(&new.name).map_or(NOBODY.to_owned(), |it| it.id.to_string());
                (target, Err(error.into()))
            }
        }
    };
    let made = audit::recorded(&state, "users.create", creating).await?;
    tracing::info!(user = %made.user.id, "Made the user {} with a key", made.user.name);
    Ok(Json(NewKeyAnswer::of(&made)))
}

pub(super) async fn show(
    State(state): State<AdminState>,
    named: Named,
) -> Result<Json<UserAnswer>, Fault> {
    find(&state, named).map(|user| Json(UserAnswer::of(&user)))
}

pub(super) async fn change(
    State(state): State<AdminState>,
    named: Named,
    Object(change): Object<Change>,
) -> Result<Json<UserAnswer>, Fault> {
    let action = if change.enabled { "users.enable" } else { "users.disable" };
    let user = recorded(&state, named, action, async move |state, id| {
        let now = state.gateway.clock.now();
        state.users.set_enabled(&id, change.enabled, now).await
    })
    .await?;
    let done = if user.enabled { "Enabled" } else { "Disabled" };
    tracing::info!(user = %user.id, "{done} the user {}", user.name);
    Ok(Json(UserAnswer::of(&user)))
}

pub(super) async fn delete(
    State(state): State<AdminState>,
    named: Named,
) -> Result<StatusCode, Fault> {
    let action = "users.delete";
    let delete = async move |state: AdminState, id: String| state.users.delete(&id).await;
    recorded(&state, named, action, delete).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn reset_key(
    State(state): State<AdminState>,
    named: Named,
) -> Result<Json<NewKeyAnswer>, Fault> {
    let made = recorded(&state, named, "users.reset_key", async move |state, id| {
        let now = state.gateway.clock.now();
        state.users.reset_key(&id, now).await
    })
    .await?;
    tracing::info!(user = %made.user.id, "Made a new key for the user {}", made.user.name);
    Ok(Json(NewKeyAnswer::of(&made)))
}

fn find(state: &AdminState, named: Named) -> Result<User, Fault> {
    let no_user = || Fault::NotFound(NO_USER);
    let Path(id_or_name) = named.map_err(|_| no_user())?;
    state.users.find(&id_or_name).ok_or_else(no_user)
}

/// Changes one user, and writes it down.
async fn recorded<T, Changing>(
    state: &AdminState,
    named: Named,
    action: &'static str,
    change: impl FnOnce(AdminState, String) -> Changing + Send + 'static,
) -> Result<T, Fault>
where
    T: Send + 'static,
    Changing: Future<Output = Result<T, UserError>> + Send,
{
    let acting = state.clone();
    let changing = async move {
        let id = match find(&acting, named) {
            Ok(user) => user.id.to_string(),
            Err(fault) => return (NOBODY.to_owned(), Err(fault)),
        };
        let done = change(acting, id.clone()).await;
        (id, done.map_err(Fault::from))
    };
    audit::recorded(state, action, changing).await
}

// === impl ListedUser ===

impl ListedUser {
    fn of(user: &User) -> Self {
        Self { user: ShownUser::of(user), api_key: newest(user) }
    }
}

// === impl UserAnswer ===

impl UserAnswer {
    fn of(user: &User) -> Self {
        Self { user: ShownUser::of(user), api_key: newest(user) }
    }
}

/// The newest of the keys that open something, or of all if none does.
fn newest(user: &User) -> Option<ShownKey> {
    user.keys.iter().max_by_key(|it| (it.enabled, it.created_at)).map(ShownKey::of)
}

// === impl NewKeyAnswer ===

impl NewKeyAnswer {
    fn of(made: &NewKey) -> Self {
        Self {
            user: ShownUser::of(&made.user),
            api_key: ShownKey::of(&made.key),
            api_key_value: made.value.expose().to_owned(),
        }
    }
}

// === impl ShownUser ===

impl ShownUser {
    fn of(user: &User) -> Self {
        Self {
            id: user.id.to_string(),
            name: user.name.clone(),
            enabled: user.enabled,
            limits: (),
            selectors: (),
            accounts: (),
            created_at: user.created_at,
        }
    }
}

// === impl ShownKey ===

impl ShownKey {
    fn of(key: &ApiKey) -> Self {
        Self {
            id: key.id.to_string(),
            name: key.name.clone(),
            masked_key: key.masked.clone(),
            enabled: key.enabled,
            created_at: key.created_at,
            expires_at: key.expires_at,
            last_used_at: key.last_used_at,
        }
    }
}
