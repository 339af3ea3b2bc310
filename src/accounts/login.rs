//! Signing in to an account: by a browser on this machine, or by a code on another device.
//!
//! A sign-in's secrets never leave the process: a caller gets an address or a code to show, and
//! brings back what the browser was sent to. What a sign-in gives is taken over like an imported
//! file.

mod flows;
mod pkce;

use std::sync::Arc;

use parking_lot::Mutex;
use rand::Rng;
use secrecy::{ExposeSecret, SecretString};

use self::{
    flows::{Flows, NotWaiting, Secrets},
    pkce::Pkce,
};
use super::{
    Accounts,
    import::{Intake, Mode, Offer, Origin, Refused, Taken},
    oauth::{DeviceCode, OAuth, OAuthError, Tokens},
    tasks::Tasks,
};
use crate::{
    clock::Clock,
    domain::credential::{AccessToken, RefreshToken},
    protocol::credential_file::rewrite::{self, NewTokens},
};

pub use self::{
    flows::{FLOWS_MAX, LoginId, LoginState, LoginView, Means},
    pkce::{Callback, CallbackError},
};

/// Signs in to accounts. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Logins(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    oauth: OAuth,
    intake: Intake,
    clock: Clock,
    tasks: Tasks,
    flows: Mutex<Flows>,
}

/// Why a sign-in gave no account.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginFailure {
    #[error("the sign-in was declined: begin again, and agree on the page")]
    Declined,
    #[error("the sign-in service gave no tokens: begin again")]
    NoTokens,
    #[error("{0}: begin again")]
    Service(#[from] OAuthError),
    #[error("the login could not be kept: {0}")]
    Kept(#[from] Refused),
    #[error("the sign-in broke off: begin again")]
    BrokenOff,
}

/// Why a sign-in cannot be begun or gone on with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    #[error(
        "{FLOWS_MAX} sign-ins are waiting for their users: finish or cancel one, or wait 15 minutes"
    )]
    TooMany,
    #[error("there is no such sign-in: it was cancelled, or is long over")]
    Unknown,
    #[error("this sign-in is over: begin a new one")]
    Over,
    #[error("a device's sign-in ends by itself, once its user has agreed")]
    WrongMeans,
    #[error(transparent)]
    Callback(#[from] CallbackError),
    #[error("{0}: try again later")]
    Service(#[from] OAuthError),
}

// === impl Logins ===

impl Logins {
    pub fn new(oauth: OAuth, intake: Intake, clock: Clock, tasks: Tasks) -> Self {
        Self(Arc::new(Inner { oauth, intake, clock, tasks, flows: Mutex::default() }))
    }

    /// For a running gateway.
    pub fn of(accounts: &Accounts) -> Self {
        let (oauth, clock) = (accounts.oauth.clone(), accounts.clock.clone());
        Self::new(oauth, Intake::of(accounts), clock, accounts.tasks.clone())
    }

    /// Begins a sign-in by browser. The browser comes back to `redirect_uri`, on loopback.
    ///
    /// # Errors
    /// If too many are waiting, or the address is not on loopback.
    pub fn begin_pkce(
        &self,
        redirect_uri: &str,
        random: &mut impl Rng,
    ) -> Result<LoginView, LoginError> {
        let pkce = Pkce::new(redirect_uri, random)?;
        let authorize_url =
            self.0.oauth.authorize_url(&pkce.redirect_uri, &pkce.challenge(), pkce.state());
        let means = Means::Pkce { authorize_url };
        self.0.open((means, Secrets::Pkce(pkce)), random)
    }

    /// Begins a sign-in by a code, and waits for its user in the background.
    ///
    /// # Errors
    /// If too many are waiting, or the service gives no code.
    pub async fn begin_device(&self) -> Result<LoginView, LoginError> {
        let elapsed = self.0.clock.elapsed();
        self.0.flows.lock().make_room(elapsed).ok_or(LoginError::TooMany)?;
        let code = self.0.oauth.device_begin().await?;
        let means = Means::Device {
            user_code: code.user_code.clone(),
            verification_url: code.verification_url.clone(),
        };
        let view = self.0.open((means, Secrets::Device(code.clone())), &mut rand::rng())?;
        let (inner, id) = (Arc::clone(&self.0), view.id.clone());
        let waiting = self.0.tasks.run(async move { inner.await_user(&id, code).await });
        self.0.flows.lock().attach(&view.id, waiting.abort_handle());
        Ok(view)
    }

    /// What takes the logins in.
    pub fn intake(&self) -> &Intake {
        &self.0.intake
    }

    /// How a sign-in stands.
    pub fn view(&self, id: &LoginId) -> Option<LoginView> {
        self.0.flows.lock().view(id, self.0.clock.elapsed())
    }

    /// Waits until a sign-in is over, and tells how it ended. `None` once it is forgotten.
    pub async fn ended(&self, id: &LoginId) -> Option<LoginView> {
        let mut over = self.0.flows.lock().attend(id)?;
        loop {
            let view = self.view(id)?;
            match view.state {
                LoginState::Waiting => over.changed().await.ok()?,
                LoginState::Done(_) | LoginState::Failed(_) | LoginState::Expired => {
                    return Some(view);
                }
            }
        }
    }

    /// Ends a sign-in by browser with what the browser brought, and tells how it ended. Goes on
    /// though the caller leaves.
    ///
    /// # Errors
    /// If it is not waiting for that; what another sign-in's browser brings changes nothing.
    pub async fn complete(
        &self,
        id: &LoginId,
        callback: Callback,
    ) -> Result<LoginView, LoginError> {
        let elapsed = self.0.clock.elapsed();
        let (pkce, code) = {
            let mut flows = self.0.flows.lock();
            let pkce = match flows.secrets(id, elapsed)? {
                Secrets::Pkce(pkce) => pkce,
                Secrets::Device(_) => return Err(LoginError::WrongMeans),
            };
            let code = pkce.code(callback)?;
            if !flows.claim(id, elapsed) {
                return Err(LoginError::Over);
            }
            (pkce, code)
        };
        let (inner, known) = (Arc::clone(&self.0), id.clone());
        let ending = self.0.tasks.finish(async move {
            let tokens = match code {
                Some(code) => inner
                    .oauth
                    .exchange(&code, &pkce.verifier, &pkce.redirect_uri)
                    .await
                    .map_err(LoginFailure::from),
                None => Err(LoginFailure::Declined),
            };
            inner.end(&known, tokens).await;
        });
        if ending.await.is_err() {
            self.0.fail(id, LoginFailure::BrokenOff);
        }
        self.view(id).ok_or(LoginError::Unknown)
    }

    /// Forgets a sign-in; a login that it has given already stays. False if there is none.
    pub fn cancel(&self, id: &LoginId) -> bool {
        self.0.flows.lock().remove(id)
    }
}

// === impl Inner ===

impl Inner {
    fn open(&self, flow: (Means, Secrets), random: &mut impl Rng) -> Result<LoginView, LoginError> {
        let times = (self.clock.now(), self.clock.elapsed());
        self.flows.lock().begin(flow, times, random).ok_or(LoginError::TooMany)
    }

    /// Asks again and again whether the user has agreed. The task ends with the sign-in.
    async fn await_user(self: Arc<Self>, id: &LoginId, code: DeviceCode) {
        let grant = loop {
            tokio::time::sleep(code.interval).await;
            if self.flows.lock().secrets(id, self.clock.elapsed()).is_err() {
                return;
            }
            match self.oauth.device_poll(&code).await {
                Ok(Some(grant)) => break grant,
                Ok(None) => {}
                Err(error) if may_pass(error) => {
                    tracing::info!(%error, "A sign-in waits: {error}");
                }
                Err(error) => return self.fail(id, error.into()),
            }
        };
        if !self.flows.lock().claim(id, self.clock.elapsed()) {
            return;
        }
        let (inner, id) = (Arc::clone(&self), id.clone());
        self.tasks.finish(async move {
            let tokens = inner.oauth.device_exchange(&grant).await;
            inner.end(&id, tokens.map_err(LoginFailure::from)).await;
        });
    }

    /// Keeps what a sign-in has given.
    async fn end(&self, id: &LoginId, tokens: Result<Tokens, LoginFailure>) {
        let kept = match tokens.and_then(|it| self.file(it)) {
            // Who has cancelled does not want it any more.
            Ok(_) if !self.flows.lock().holds(id) => return,
            Ok(offer) => self.keep(offer).await,
            Err(failure) => Err(failure),
        };
        match kept {
            Ok(taken) => self.flows.lock().end(id, LoginState::Done(Box::new(taken))),
            Err(failure) => self.fail(id, failure),
        }
    }

    async fn keep(&self, offer: Offer) -> Result<Taken, LoginFailure> {
        let done = self.intake.take(vec![offer], Mode::Real).await.pop();
        let done = done.ok_or(LoginFailure::BrokenOff)?;
        Ok(done.outcome?)
    }

    fn fail(&self, id: &LoginId, failure: LoginFailure) {
        tracing::warn!(%failure, "A sign-in failed: {failure}");
        self.flows.lock().end(id, LoginState::Failed(failure));
    }

    fn file(&self, tokens: Tokens) -> Result<Offer, LoginFailure> {
        let none = |_| LoginFailure::NoTokens;
        let access = AccessToken::new(tokens.access_token.ok_or(LoginFailure::NoTokens)?);
        let refresh: Option<SecretString> = tokens.refresh_token;
        let refresh = refresh.filter(|it| !it.expose_secret().is_empty());
        let bytes = rewrite::new_file(&NewTokens {
            access: access.map_err(none)?,
            refresh: refresh.map(RefreshToken::new).transpose().map_err(none)?,
            id_token: tokens.id_token,
            account_id: None,
            last_refresh: tokens.server_time.unwrap_or_else(|| self.clock.now()),
        });
        Ok(Offer { name: "login".to_owned(), bytes, origin: Origin::SignIn })
    }
}

/// Whether the service may well answer the next time.
fn may_pass(error: OAuthError) -> bool {
    match error {
        OAuthError::Unreachable | OAuthError::TimedOut | OAuthError::Lost => true,
        OAuthError::Status(status) => status.is_server_error() || status.as_u16() == 429,
        OAuthError::Terminal(_) | OAuthError::Unreadable => false,
    }
}

impl From<NotWaiting> for LoginError {
    fn from(why: NotWaiting) -> Self {
        match why {
            NotWaiting::Unknown => Self::Unknown,
            NotWaiting::Over => Self::Over,
        }
    }
}
