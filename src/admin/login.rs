//! Signing in to accounts over the admin listener.

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
    fault::Fault,
    import::{self, ShownTaken},
    object::Object,
};
use crate::accounts::login::{
    Callback, LoginError, LoginFailure, LoginId, LoginState, LoginView, Means,
};

/// What the audit calls the end of a sign-in, whoever brings it about.
const COMPLETE: &str = "auths.login.complete";

const UNKNOWN: &str = "there is no such sign-in: it was cancelled, or is long over";

/// The answer, for whoever asks over the network too.
#[derive(Debug, Serialize, Deserialize)]
pub struct LoginAnswer {
    pub login: ShownLogin,
}

/// One sign-in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShownLogin {
    pub id: String,
    #[serde(flatten)]
    pub means: ShownMeans,
    #[serde(flatten)]
    pub state: ShownState,
    pub expires_at: Timestamp,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "lowercase")]
pub enum ShownMeans {
    Device { user_code: String, verification_url: String },
    Pkce { authorize_url: String },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum ShownState {
    Waiting,
    Done { account: ShownTaken },
    Failed { error: String },
    Expired,
}

#[derive(Deserialize)]
#[serde(tag = "method", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Wanted {
    Device {},
    Pkce { redirect_uri: String },
}

/// What to begin; without a method a device.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "want {}, {\"method\": \"device\"} or {\"method\": \"pkce\", \"redirect_uri\": \"…\"}"
)]
pub(super) enum Begin {
    Named(Wanted),
    Device(Nothing),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// What the browser brought back.
#[derive(Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "want {\"url\": \"…\"} or {\"code\": \"…\", \"state\": \"…\"}"
)]
pub(super) enum Brought {
    Address { url: String },
    Parts { code: String, state: String },
}

/// The id of a sign-in, as the path has it.
type Named = Result<Path<String>, PathRejection>;

pub(super) async fn begin(
    State(state): State<AdminState>,
    Object(begin): Object<Begin>,
) -> Result<Json<LoginAnswer>, Fault> {
    let logins = state.logins.clone();
    let beginning = async move {
        let begun = match begin {
            Begin::Named(Wanted::Pkce { redirect_uri }) => {
                logins.begin_pkce(&redirect_uri, &mut rand::rng())
            }
            Begin::Named(Wanted::Device {}) | Begin::Device(Nothing {}) => {
                logins.begin_device().await
            }
        };
        let target = begun.as_ref().map_or(NOBODY.to_owned(), |it| it.id.to_string());
        (target, begun.map_err(Fault::from))
    };
    let view = audit::recorded(&state, "auths.login.begin", beginning).await?;
    if let Means::Device { .. } = &view.means {
        record_end(state, view.id.clone());
    }
    Ok(Json(LoginAnswer { login: view.into() }))
}

pub(super) async fn show(
    State(state): State<AdminState>,
    named: Named,
) -> Result<Json<LoginAnswer>, Fault> {
    let view = state.logins.view(&id(named)?).ok_or(Fault::NotFound(UNKNOWN))?;
    Ok(Json(LoginAnswer { login: view.into() }))
}

pub(super) async fn complete(
    State(state): State<AdminState>,
    named: Named,
    Object(brought): Object<Brought>,
) -> Result<Json<LoginAnswer>, Fault> {
    let callback = match brought {
        Brought::Address { url } => Callback::parse(&url),
        Brought::Parts { code, state } => Callback::new(&code, &state),
    };
    let (id, logins) = (id(named)?, state.logins.clone());
    let completing = async move {
        let ended = match callback {
            Ok(callback) => logins.complete(&id, callback).await,
            Err(error) => Err(LoginError::from(error)),
        };
        (ended.as_ref().map_or(NOBODY.to_owned(), target), ended.map_err(Fault::from))
    };
    let view = audit::recorded_as(&state, COMPLETE, completing, result_of).await?;
    Ok(Json(LoginAnswer { login: view.into() }))
}

pub(super) async fn cancel(
    State(state): State<AdminState>,
    named: Named,
) -> Result<StatusCode, Fault> {
    let (id, logins) = (id(named)?, state.logins.clone());
    let cancelling = async move {
        if logins.cancel(&id) {
            (id.to_string(), Ok(StatusCode::NO_CONTENT))
        } else {
            (NOBODY.to_owned(), Err(Fault::NotFound(UNKNOWN)))
        }
    };
    audit::recorded(&state, "auths.login.cancel", cancelling).await
}

/// Waits for the end of a sign-in that ends by itself, and writes it down. One that is cancelled
/// has its row already.
fn record_end(state: AdminState, id: LoginId) {
    let tasks = state.accounts.tasks.clone();
    tasks.clone().run(async move {
        if let Some(view) = state.logins.ended(&id).await {
            tasks.finish(async move {
                audit::write(&state, COMPLETE, target(&view), result_of(&view)).await;
            });
        }
    });
}

/// How a sign-in ended, as the audit calls it.
fn result_of(view: &LoginView) -> &'static str {
    match &view.state {
        LoginState::Waiting | LoginState::Done(_) => audit::OK,
        LoginState::Expired => "expired",
        LoginState::Failed(LoginFailure::Declined) => "declined",
        LoginState::Failed(LoginFailure::NoTokens | LoginFailure::Service(_)) => {
            "upstream_unreachable"
        }
        LoginState::Failed(LoginFailure::Kept(why)) => import::code(why),
        LoginState::Failed(LoginFailure::BrokenOff) => "internal_error",
    }
}

/// The account that a sign-in gave, or the sign-in itself.
fn target(view: &LoginView) -> String {
    let account = match &view.state {
        LoginState::Done(taken) => taken.auth_id.as_ref().map(ToString::to_string),
        LoginState::Waiting | LoginState::Failed(_) | LoginState::Expired => None,
    };
    account.unwrap_or_else(|| view.id.to_string())
}

fn id(named: Named) -> Result<LoginId, Fault> {
    let Path(text) = named.map_err(|_| Fault::NotFound(UNKNOWN))?;
    Ok(LoginId::from_text(&text))
}

impl From<LoginError> for Fault {
    fn from(error: LoginError) -> Self {
        match error {
            LoginError::TooMany => Self::Busy(error.to_string()),
            LoginError::Unknown => Self::NotFound(UNKNOWN),
            LoginError::Over | LoginError::WrongMeans | LoginError::Callback(_) => {
                Self::InvalidRequest(error.to_string())
            }
            LoginError::Service(_) => Self::Unreachable(error.to_string()),
        }
    }
}

// === impl ShownLogin ===

impl From<LoginView> for ShownLogin {
    fn from(view: LoginView) -> Self {
        let means = match view.means {
            Means::Device { user_code, verification_url } => {
                ShownMeans::Device { user_code, verification_url }
            }
            Means::Pkce { authorize_url } => ShownMeans::Pkce { authorize_url },
        };
        let state = match view.state {
            LoginState::Waiting => ShownState::Waiting,
            LoginState::Done(taken) => ShownState::Done { account: (*taken).into() },
            LoginState::Failed(why) => ShownState::Failed { error: why.to_string() },
            LoginState::Expired => ShownState::Expired,
        };
        Self { id: view.id.to_string(), means, state, expires_at: view.expires_at }
    }
}
