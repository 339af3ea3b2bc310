//! Management of users and their keys.

use axum::{
    Json,
    extract::{FromRequest, Path, Request, State, rejection::PathRejection},
};
use bytes::Bytes;
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{AdminState, fault::Fault};
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

/// A JSON object, and nothing else that would do for one.
pub(super) struct Object<T>(T);

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
    let made = to_its_end(async move {
        let now = state.gateway.clock.now();
        state.users.create(&new.name, now).await
    })
    .await?;
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
    let user = find(&state, named)?;
    let user = to_its_end(async move {
        let now = state.gateway.clock.now();
        state.users.set_enabled(user.id.as_str(), change.enabled, now).await
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
    let user = find(&state, named)?;
    let id = user.id.clone();
    to_its_end(async move { state.users.delete(id.as_str()).await }).await?;
    tracing::info!(user = %user.id, "Deleted the user {}", user.name);
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn reset_key(
    State(state): State<AdminState>,
    named: Named,
) -> Result<Json<NewKeyAnswer>, Fault> {
    let user = find(&state, named)?;
    let made = to_its_end(async move {
        let now = state.gateway.clock.now();
        state.users.reset_key(user.id.as_str(), now).await
    })
    .await?;
    tracing::info!(user = %made.user.id, "Made a new key for the user {}", made.user.name);
    Ok(Json(NewKeyAnswer::of(&made)))
}

fn find(state: &AdminState, named: Named) -> Result<User, Fault> {
    let no_user = || Fault::NotFound("there is no such user");
    let Path(id_or_name) = named.map_err(|_| no_user())?;
    state.users.find(&id_or_name).ok_or_else(no_user)
}

/// Runs a change in a task of its own: a caller that hangs up half way must not leave the database
/// changed and the memory not.
async fn to_its_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, UserError>> + Send + 'static,
) -> Result<T, Fault> {
    match tokio::spawn(change).await {
        Ok(done) => done.map_err(Fault::from),
        Err(error) => {
            tracing::error!(%error, "A change of the users broke off: {error}");
            Err(Fault::Internal)
        }
    }
}

// === impl Object ===

impl<T: DeserializeOwned> FromRequest<AdminState> for Object<T> {
    type Rejection = Fault;

    async fn from_request(request: Request, state: &AdminState) -> Result<Self, Fault> {
        let body = Bytes::from_request(request, state).await.map_err(|rejection| {
            if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
                Fault::TooLarge
            } else {
                Fault::InvalidRequest("the body could not be read".to_owned())
            }
        })?;
        // A list would do for a struct as well, as far as the parser goes.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(Fault::InvalidRequest("the body must be a JSON object".to_owned()));
        }
        serde_json::from_slice(&body)
            .map(Self)
            .map_err(|error| Fault::InvalidRequest(format!("the body does not fit: {error}")))
    }
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
