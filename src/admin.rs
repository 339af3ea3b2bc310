//! The admin listener: management of people, metrics, health. It serves the operator, not Codex.
//!
//! Every answer, errors included, leaves through one place that gives it its request id, forbids
//! caching and grants nothing to browsers of other origins. A request under a foreign host name is
//! turned away before anything else looks at it, so that no web page reaches the listener by
//! pointing a name of its own at this machine.

mod audit;
mod auths;
mod fault;
mod gate;
mod host;
mod import;
mod key;
mod login;
mod object;
mod people;
mod watch;

use std::{io, net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware,
    routing::{get, post},
};

use crate::{
    accounts::{Accounts, login::Logins},
    gateway::Gateway,
    users::Users,
};

use self::fault::Fault;

pub use self::{
    auths::{
        AuthAnswer, AuthList, DirectoryState, ShownAuth, ShownCooldown, ShownDirectory,
        ShownProblem, ShownSource, ShownSwitches,
    },
    import::{ImportAnswer, ShownImport, ShownResult, ShownTaken},
    key::{AdminKey, BadAdminKey},
    login::{LoginAnswer, ShownLogin, ShownMeans, ShownState},
};

/// The largest body of a management request.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// What the admin listener works with.
#[derive(Clone, Debug)]
pub struct AdminState {
    pub gateway: Arc<Gateway>,
    pub accounts: Accounts,
    pub logins: Logins,
    pub users: Arc<Users>,
    /// Without a key there is no management.
    pub key: Option<AdminKey>,
    /// The listener's address, as bound.
    pub listen: SocketAddr,
}

/// Every route of the admin listener.
pub fn router(state: AdminState) -> Router {
    let management = Router::new()
        .route("/users", get(people::list).post(people::create))
        .route("/users/{id}", get(people::show).patch(people::change).delete(people::delete))
        .route("/users/{id}/api-key/reset", post(people::reset_key))
        .route("/audit", get(audit::list))
        .route("/auths", get(auths::list))
        .route("/auths/{id}", get(auths::show).delete(auths::remove))
        .route("/auths/refresh", post(auths::refresh))
        .route("/auths/enable", post(auths::enable))
        .route("/auths/disable", post(auths::disable))
        .route("/auths/pause", post(auths::pause))
        .route("/auths/resume", post(auths::resume))
        .route("/auths/cooldown/clear", post(auths::clear_cooldown))
        .route(
            "/auths/import",
            post(import::take).layer(DefaultBodyLimit::max(import::BODY_BYTES_MAX)),
        )
        .route("/auths/login", post(login::begin))
        .route("/auths/login/{id}", get(login::show).delete(login::cancel))
        .route("/auths/login/{id}/complete", post(login::complete))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(middleware::from_fn_with_state(state.clone(), gate::check_key));
    Router::new()
        .route("/metrics", get(watch::metrics))
        .route("/healthz", get(watch::healthz))
        .route("/readyz", get(watch::readyz))
        .nest("/v0/management", management)
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(state.clone(), gate::check_host))
        .layer(middleware::from_fn(gate::finish))
        .with_state(state)
}

/// Serves until `shutdown`, then lets running requests finish.
///
/// # Errors
/// If the listener cannot be used by the runtime.
pub async fn serve(
    listener: std::net::TcpListener,
    state: AdminState,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    axum::serve(listener, router(state)).with_graceful_shutdown(shutdown).await
}

async fn no_route() -> Fault {
    Fault::NotFound("there is no such route on the admin listener")
}

async fn no_method() -> Fault {
    Fault::MethodNotAllowed
}
