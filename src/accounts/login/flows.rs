//! The sign-ins that are under way, and those that have just ended. Pure: times are arguments.
//!
//! Their number is bounded, each waits only so long, and each is carried to its end by one caller
//! at most.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use rand::Rng;
use tokio::{sync::watch, task::AbortHandle};

use super::{LoginFailure, pkce::Pkce};
use crate::accounts::{import::Taken, oauth::DeviceCode};

/// How long a sign-in waits for its user.
pub(super) const LIFE: Duration = Duration::from_secs(15 * 60);

/// More than any operator does at once.
pub const FLOWS_MAX: usize = 32;

/// Names a sign-in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoginId(Arc<str>);

/// What a sign-in looks like from outside; nothing secret is in it.
#[derive(Clone, Debug)]
pub struct LoginView {
    pub id: LoginId,
    pub means: Means,
    pub state: LoginState,
    pub expires_at: Timestamp,
}

/// How the user signs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Means {
    Device { user_code: String, verification_url: String },
    Pkce { authorize_url: String },
}

#[derive(Clone, Debug)]
pub enum LoginState {
    Waiting,
    Done(Box<Taken>),
    Failed(LoginFailure),
    Expired,
}

/// All of them.
#[derive(Default)]
pub(super) struct Flows(BTreeMap<LoginId, Flow>);

/// One of them.
struct Flow {
    means: Means,
    secrets: Secrets,
    expires_at: Timestamp,
    /// On the clock that only moves forward.
    begun: Duration,
    phase: Phase,
    /// Says that it is over, by a word or by being dropped.
    over: watch::Sender<()>,
}

/// What the process needs to carry a sign-in on.
#[derive(Clone)]
pub(super) enum Secrets {
    Device(DeviceCode),
    Pkce(Pkce),
}

enum Phase {
    /// For the user; the task looks whether that has come to an end.
    Waiting(Option<AbortHandle>),
    /// Somebody is trading the user's consent for tokens.
    Ending,
    Over(LoginState),
}

/// Why a sign-in is not there to be gone on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotWaiting {
    Unknown,
    Over,
}

// === impl LoginId ===

impl LoginId {
    fn mint(random: &mut impl Rng) -> Self {
        let mut bytes = [0_u8; 16];
        random.fill_bytes(&mut bytes);
        let hex: String = bytes.iter().map(|it| format!("{it:02x}")).collect();
        Self(format!("login_{hex}").into())
    }

    /// The id that `text` may be; whether there is such a sign-in is another question.
    pub fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LoginId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Flows ===

impl Flows {
    /// Begins a sign-in. `None` if too many are waiting.
    pub(super) fn begin(
        &mut self,
        (means, secrets): (Means, Secrets),
        (now, elapsed): (Timestamp, Duration),
        random: &mut impl Rng,
    ) -> Option<LoginView> {
        self.make_room(elapsed)?;
        let life = SignedDuration::try_from(LIFE).unwrap_or(SignedDuration::MAX);
        let ours = now.saturating_add(life).unwrap_or(Timestamp::MAX);
        let theirs = match &secrets {
            Secrets::Device(code) => code.expires_at,
            Secrets::Pkce(_) => None,
        };
        // A service whose clock is behind must not make every sign-in look over.
        let expires_at = theirs.filter(|it| *it > now).map_or(ours, |it| it.min(ours));
        let id = LoginId::mint(random);
        let phase = Phase::Waiting(None);
        let over = watch::Sender::new(());
        self.0.insert(id.clone(), Flow { means, secrets, expires_at, begun: elapsed, phase, over });
        self.view(&id, elapsed)
    }

    /// Forgets the oldest that are over, until one more has room. `None` if too many are waiting.
    pub(super) fn make_room(&mut self, elapsed: Duration) -> Option<()> {
        self.expire(elapsed);
        while self.0.len() >= FLOWS_MAX {
            let over = self.0.iter().filter(|(_, it)| matches!(it.phase, Phase::Over(_)));
            let oldest = over.min_by_key(|(_, it)| it.begun).map(|(id, _)| id.clone())?;
            self.0.remove(&oldest);
        }
        Some(())
    }

    /// Notes the task that waits for the user; it ends with the sign-in.
    pub(super) fn attach(&mut self, id: &LoginId, task: AbortHandle) {
        match self.0.get_mut(id).map(|it| &mut it.phase) {
            Some(Phase::Waiting(held)) => *held = Some(task),
            Some(Phase::Ending | Phase::Over(_)) => {}
            None => task.abort(),
        }
    }

    pub(super) fn view(&mut self, id: &LoginId, elapsed: Duration) -> Option<LoginView> {
        self.expire(elapsed);
        let flow = self.0.get(id)?;
        let state = match &flow.phase {
            Phase::Waiting(_) | Phase::Ending => LoginState::Waiting,
            Phase::Over(state) => state.clone(),
        };
        let (means, expires_at) = (flow.means.clone(), flow.expires_at);
        Some(LoginView { id: id.clone(), means, state, expires_at })
    }

    /// The secrets of a sign-in that waits.
    pub(super) fn secrets(
        &mut self,
        id: &LoginId,
        elapsed: Duration,
    ) -> Result<Secrets, NotWaiting> {
        self.expire(elapsed);
        let flow = self.0.get(id).ok_or(NotWaiting::Unknown)?;
        match &flow.phase {
            Phase::Waiting(_) => Ok(flow.secrets.clone()),
            Phase::Ending | Phase::Over(_) => Err(NotWaiting::Over),
        }
    }

    /// Says whether the caller is the one who carries the sign-in to its end.
    pub(super) fn claim(&mut self, id: &LoginId, elapsed: Duration) -> bool {
        self.expire(elapsed);
        match self.0.get_mut(id).map(|it| &mut it.phase) {
            Some(phase @ Phase::Waiting(_)) => {
                *phase = Phase::Ending;
                true
            }
            Some(Phase::Ending | Phase::Over(_)) | None => false,
        }
    }

    pub(super) fn end(&mut self, id: &LoginId, state: LoginState) {
        if let Some(flow) = self.0.get_mut(id) {
            flow.end(state);
        }
    }

    /// Hears of the end of a sign-in. `None` if there is none.
    pub(super) fn attend(&self, id: &LoginId) -> Option<watch::Receiver<()>> {
        self.0.get(id).map(|it| it.over.subscribe())
    }

    pub(super) fn holds(&self, id: &LoginId) -> bool {
        self.0.contains_key(id)
    }

    /// Forgets a sign-in, whatever its state. False if there is none.
    pub(super) fn remove(&mut self, id: &LoginId) -> bool {
        self.0.remove(id).inspect(Flow::stop).is_some()
    }

    /// Ends what has waited too long, and forgets what ended long ago.
    fn expire(&mut self, elapsed: Duration) {
        self.0.retain(|_, flow| {
            let age = elapsed.saturating_sub(flow.begun);
            if age >= LIFE && matches!(flow.phase, Phase::Waiting(_)) {
                flow.stop();
                flow.end(LoginState::Expired);
            }
            age < 2 * LIFE || matches!(flow.phase, Phase::Ending)
        });
    }
}

impl fmt::Debug for Flows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

// === impl Flow ===

impl Flow {
    fn end(&mut self, state: LoginState) {
        self.phase = Phase::Over(state);
        self.over.send_replace(());
    }

    /// Ends the task that waits for the user.
    fn stop(&self) {
        if let Phase::Waiting(Some(task)) = &self.phase {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(7);

    fn begin(flows: &mut Flows, elapsed: Duration) -> Option<LoginId> {
        let random = &mut rand::rng();
        let means = Means::Pkce { authorize_url: "https://signin.example".to_owned() };
        let pkce = Pkce::new("http://127.0.0.1:1455/auth/callback", random).unwrap();
        let times = (Timestamp::UNIX_EPOCH, elapsed);
        flows.begin((means, Secrets::Pkce(pkce)), times, random).map(|it| it.id)
    }

    fn state(flows: &mut Flows, id: &LoginId, elapsed: Duration) -> String {
        match flows.view(id, elapsed).map(|it| it.state) {
            None => "unknown".to_owned(),
            Some(state) => format!("{state:?}").to_lowercase(),
        }
    }

    #[test]
    fn a_sign_in_waits_a_quarter_of_an_hour_and_is_told_of_for_another() {
        let mut flows = Flows::default();
        let id = begin(&mut flows, START).unwrap();
        let tick = Duration::from_millis(1);
        assert_eq!(state(&mut flows, &id, START + LIFE - tick), "waiting");
        assert_eq!(state(&mut flows, &id, START + LIFE), "expired");
        assert!(!flows.claim(&id, START + LIFE));
        assert_eq!(flows.secrets(&id, START + LIFE).err(), Some(NotWaiting::Over));
        assert_eq!(state(&mut flows, &id, START + 2 * LIFE), "unknown");
    }

    #[test]
    fn one_caller_carries_it_to_its_end_and_is_not_hurried() {
        let mut flows = Flows::default();
        let id = begin(&mut flows, START).unwrap();
        assert!(flows.claim(&id, START) && !flows.claim(&id, START));
        assert_eq!(state(&mut flows, &id, START + 3 * LIFE), "waiting");
        flows.end(&id, LoginState::Failed(LoginFailure::Declined));
        assert_eq!(state(&mut flows, &id, START + LIFE), "failed(declined)");
    }

    #[test]
    fn those_that_wait_are_bounded_and_those_that_are_over_make_room() {
        let mut flows = Flows::default();
        let ids: Vec<LoginId> = (0..FLOWS_MAX).map(|_| begin(&mut flows, START).unwrap()).collect();
        assert_eq!(begin(&mut flows, START), None);
        flows.end(&ids[3], LoginState::Expired);
        assert!(begin(&mut flows, START).is_some());
        assert!(!flows.holds(&ids[3]), "the one that was over is gone");
        assert!(flows.remove(&ids[4]) && !flows.remove(&ids[4]));
        assert!(begin(&mut flows, START).is_some());
        assert!(begin(&mut flows, START + LIFE).is_some(), "those that wait run out");
    }

    #[tokio::test]
    async fn its_task_ends_with_it() {
        let mut flows = Flows::default();
        let waiting = || tokio::spawn(std::future::pending::<()>());
        let (id, other) = (begin(&mut flows, START).unwrap(), begin(&mut flows, START).unwrap());
        let (task, late) = (waiting(), waiting());
        flows.attach(&id, task.abort_handle());
        assert!(flows.remove(&id));
        assert!(task.await.unwrap_err().is_cancelled());
        flows.attach(&id, late.abort_handle());
        assert!(late.await.unwrap_err().is_cancelled(), "it was cancelled before");
        let task = waiting();
        flows.attach(&other, task.abort_handle());
        assert_eq!(state(&mut flows, &other, START + LIFE), "expired");
        assert!(task.await.unwrap_err().is_cancelled());
    }
}
