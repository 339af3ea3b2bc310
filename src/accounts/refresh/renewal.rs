//! One renewal, step by step.
//!
//! From the moment the sign-in service has answered, the old refresh token is worth nothing and the
//! answer is all there is of the login. So it goes to the journal first, then to the files, and only
//! then to those who wait.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use rand::RngExt;
use secrecy::{ExposeSecret, SecretString};
use tokio::{
    task::spawn_blocking,
    time::{self, Instant},
};

use super::{Landing, RefreshReason, RefreshResult, Refresher, duty::Owed, memory::Came};
use crate::{
    accounts::{
        files::{FoundFile, Step},
        journal::Entry,
        oauth::{OAuthError, Tokens},
        reconciler::Rotation,
    },
    domain::{
        account::{Account, AccountId},
        credential::{AccessToken, Fingerprint, RefreshToken},
        identity::{Claims, Login, PathId},
    },
    protocol::{credential_file::rewrite::NewTokens, jwt},
};

/// After this long no further try begins. One that has begun is never broken off from here: its
/// answer may be all there is of the login.
const TRIES_END: Duration = Duration::from_secs(15);

const TRIES: u32 = 3;

/// The wait before the second try, with up to as much again by chance; the third waits twice as
/// long.
const RETRY_WAIT: Duration = Duration::from_millis(250);

/// How often files are looked at that others change while they are being written.
const WRITES: usize = 4;

/// What came for a refresh token, and where it belongs.
struct Catch {
    entry: Entry,
    /// The token, and those in files that it had come for.
    line: BTreeSet<Fingerprint>,
    /// The files that it is for.
    paths: BTreeSet<PathId>,
    /// What the file in use says from now on.
    login: Arc<Login>,
}

// === impl Refresher ===

impl Refresher {
    pub(super) async fn carry_out(
        &self,
        account: &Account,
        token: &RefreshToken,
        reason: RefreshReason,
    ) -> Landing {
        let parts = &self.0.parts;
        let fingerprint = token.fingerprint();
        let (journal, old) = (parts.journal.clone(), fingerprint);
        let Some(Ok(_lock)) = blocking(move || journal.lock(old)).await else {
            tracing::error!(
                "The lock for renewals cannot be taken: make the data directory writable"
            );
            return self.pass(account, fingerprint);
        };
        if let Err(landing) = self.adopt(account, fingerprint).await {
            return landing;
        }
        if self.0.memory.lock().is_spent(fingerprint) {
            self.reject(account);
            return Landing::NeedsLogin;
        }
        let line = self.0.pending.lock().line_of(fingerprint);
        let files = holding(self.found().await.unwrap_or_default(), &line, account);
        let Some(representative) = representative(&files, account) else {
            // No file holds the token any more, or none can be read just now.
            return self.pass(account, fingerprint);
        };
        let paths = files.into_iter().map(|it| it.path).collect();
        match self.ask(account, token, reason).await {
            Ok(answer) => match self.caught(account, token, &representative, answer) {
                Some((entry, login)) => {
                    self.keep(account, Catch { entry, line, paths, login }).await
                }
                None => self.pass(account, fingerprint),
            },
            Err(OAuthError::Terminal(code)) => self.refused(account, fingerprint, code).await,
            Err(error) => {
                tracing::debug!(account = %account.label, %error, "No new tokens: {error}");
                self.pass(account, fingerprint)
            }
        }
    }

    /// Looks whether the files hold another credential by now.
    ///
    /// # Errors
    /// How the renewal ends at once: with the other credential, or because the account is gone.
    async fn adopt(&self, account: &Account, token: Fingerprint) -> Result<(), Landing> {
        self.0.parts.reconciler.look().await;
        let Some(entry) = self.locate(account) else { return Err(Landing::Gone) };
        let credential = &entry.account.credential;
        let refresh = credential.refresh.as_ref().map(RefreshToken::fingerprint);
        // The account that was asked for may be an old one, with an access token that is still good.
        if credential.fingerprint == account.credential.fingerprint && refresh == Some(token) {
            return Ok(());
        }
        self.0.memory.lock().came(credential.fingerprint, Came::Found, self.elapsed());
        self.tell(account, RefreshResult::Adopted);
        Err(Landing::Fresh(credential.fingerprint))
    }

    fn pass(&self, account: &Account, token: Fingerprint) -> Landing {
        self.0.memory.lock().failed(token, self.elapsed());
        self.tell(account, RefreshResult::Passing);
        Landing::Passing
    }

    async fn refused(&self, account: &Account, token: Fingerprint, code: &'static str) -> Landing {
        // Somebody else may have used the token, and have written what came for it.
        if let Err(landing) = self.adopt(account, token).await {
            return landing;
        }
        self.0.memory.lock().spend(token);
        self.reject(account);
        tracing::debug!(account = %account.label, code, "The refresh token was refused: {code}");
        self.tell(account, RefreshResult::Terminal);
        Landing::NeedsLogin
    }

    /// Every file that holds a login. `None` if they cannot be read.
    async fn found(&self) -> Option<Vec<FoundFile>> {
        let files = self.0.parts.files.clone();
        blocking(move || files.read()).await?.ok()
    }

    /// Asks the sign-in service, and again if it did not hear or was in trouble.
    async fn ask(
        &self,
        account: &Account,
        token: &RefreshToken,
        reason: RefreshReason,
    ) -> Result<Tokens, OAuthError> {
        let parts = &self.0.parts;
        let _place = self.0.pace.place().await;
        self.0.pace.turn().await;
        let began = Instant::now();
        let mut answer = Err(OAuthError::Unreachable);
        for number in 1..=TRIES {
            // Whoever stops the gateway waits for the calls that run, not for a whole queue of them.
            if parts.tasks.is_ending() {
                break;
            }
            parts.steps.reached(Step::Asking);
            answer = parts.oauth.refresh(Some(&account.id), token, reason).await;
            match &answer {
                Err(error) if is_worth_another(*error) && began.elapsed() < TRIES_END => {
                    let wait = RETRY_WAIT * number;
                    let chance = rand::rng().random_range(0.0..1.0);
                    time::sleep(wait + wait.mul_f64(chance)).await;
                    self.0.pace.turn().await;
                }
                Ok(_) | Err(_) => break,
            }
        }
        answer
    }

    /// Makes sense of an answer. `None` if no request could carry its access token.
    fn caught(
        &self,
        account: &Account,
        token: &RefreshToken,
        representative: &FoundFile,
        answer: Tokens,
    ) -> Option<(Entry, Arc<Login>)> {
        let parts = &self.0.parts;
        parts.steps.reached(Step::Answered);
        let now = parts.clock.now();
        if let Some(theirs) = answer.server_time {
            self.0.memory.lock().told_time(theirs, now);
        }
        let access = match answer.access_token {
            Some(text) => AccessToken::new(text).ok()?,
            None => account.credential.access.clone(),
        };
        let refresh = answer.refresh_token.map(RefreshToken::new).transpose().ok()?;
        let before = &representative.login;
        let stranger = stranger(before, &access, answer.id_token.as_ref());
        let tokens = NewTokens {
            access,
            refresh,
            id_token: answer.id_token,
            account_id: stranger.clone().flatten(),
            last_refresh: now,
        };
        let login = Arc::new(tokens.applied_to(before, representative.shape));
        let only = stranger.map(|_| representative.path.clone());
        Some((Entry { old: token.fingerprint(), tokens, only }, login))
    }

    /// Keeps what came: in the journal, in the files, in the pool.
    async fn keep(&self, account: &Account, catch: Catch) -> Landing {
        let Catch { entry, login, .. } = &catch;
        let (old, is_other) = (entry.old, entry.only.is_some());
        let fresh = login.credential.fingerprint;
        self.remember(account, entry, login);
        let journaled = self.journal(entry.clone()).await;
        let rotated = |persisted| {
            // Another account's tokens say nothing about this one's other files.
            if !is_other {
                let new = Arc::clone(login);
                self.0.parts.reconciler.rotated(Rotation { old, new, persisted });
            }
        };
        // Whoever looks while the files are being written must not think that they are strangers'.
        rotated(false);
        let persisted = self.write(account, &catch).await;
        rotated(persisted);
        self.0.parts.reconciler.look().await;
        if persisted {
            self.forget(old).await;
        } else {
            let Catch { entry, login, .. } = catch;
            let since = self.elapsed();
            self.0.pending.lock().add(Owed { entry, login, journaled, since });
        }
        let is_new = fresh != account.credential.fingerprint;
        self.tell(
            account,
            match (is_other, persisted, is_new) {
                (true, _, _) => RefreshResult::OtherAccount,
                (false, false, _) => RefreshResult::NotPersisted,
                (false, true, true) => RefreshResult::Refreshed,
                (false, true, false) => RefreshResult::Passing,
            },
        );
        if is_other { Landing::Gone } else { Landing::Fresh(fresh) }
    }

    /// Learns from what came that the old token is spent, and when to ask again.
    fn remember(&self, account: &Account, entry: &Entry, login: &Login) {
        let (old, elapsed) = (entry.old, self.elapsed());
        let fresh = &login.credential;
        let refresh = entry.tokens.refresh.as_ref().map_or(old, RefreshToken::fingerprint);
        let mut memory = self.0.memory.lock();
        memory.succeeded(old);
        if refresh != old {
            memory.spend(old);
        }
        if fresh.fingerprint == account.credential.fingerprint {
            // Whatever came, it was no other access token.
            memory.failed(refresh, elapsed);
        } else {
            let now = memory.true_time(self.0.parts.clock.now());
            let came = if fresh.has_expired(now) { Came::GivenExpired } else { Came::Given };
            memory.came(fresh.fingerprint, came, elapsed);
        }
    }

    /// Whether the journal holds the entry now.
    async fn journal(&self, entry: Entry) -> bool {
        let journal = self.0.parts.journal.clone();
        match blocking(move || journal.put(&entry)).await {
            Some(Ok(())) => true,
            None => false,
            Some(Err(error)) => {
                tracing::error!(
                    kind = %error.kind(),
                    "The journal of renewed tokens cannot be written: make the data directory writable"
                );
                false
            }
        }
    }

    /// Whether every file holds the tokens now. The files are looked at anew each time: while the
    /// service was asked, one may have got a token of the line that was owed to it, or been copied,
    /// or be away for a moment.
    async fn write(&self, account: &Account, catch: &Catch) -> bool {
        let Catch { entry, line, paths, .. } = catch;
        for _ in 0..WRITES {
            let Some(found) = self.found().await else { return false };
            let is_here = found.iter().any(|file| match &entry.only {
                Some(only) => file.path == *only,
                None => paths.contains(&file.path),
            });
            let lacks = |file: &FoundFile| {
                entry.only.as_ref().is_none_or(|it| *it == file.path)
                    && !entry.tokens.are_in(&file.login)
            };
            let behind = holding(found, line, account).into_iter().filter(lacks);
            let behind: Vec<FoundFile> = behind.collect();
            if behind.is_empty() {
                return is_here;
            }
            let (files, tokens) = (self.0.parts.files.clone(), entry.tokens.clone());
            let written = blocking(move || files.rotate(&behind, &tokens)).await;
            if !written.is_some_and(|it| it.is_complete()) {
                return false;
            }
        }
        false
    }

    /// The files hold it all: the journal need not.
    pub(super) async fn forget(&self, old: Fingerprint) {
        let journal = self.0.parts.journal.clone();
        if let Some(Err(error)) = blocking(move || journal.remove(old)).await {
            tracing::warn!(kind = %error.kind(), "An entry of the journal cannot be removed");
        }
    }
}

/// Runs work that blocks beside the runtime. `None` if it broke off.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    spawn_blocking(work).await.ok()
}

/// The files that hold a token of this line, and the account's copies that hold only the access
/// token that goes with it.
fn holding(
    found: Vec<FoundFile>,
    line: &BTreeSet<Fingerprint>,
    account: &Account,
) -> Vec<FoundFile> {
    let paths: BTreeSet<&PathId> = account.sources.iter().map(|it| &it.path).collect();
    let holds = |file: &FoundFile| {
        let held = &file.login.credential;
        match &held.refresh {
            Some(refresh) => line.contains(&refresh.fingerprint()),
            None => {
                held.fingerprint == account.credential.fingerprint && paths.contains(&file.path)
            }
        }
    };
    found.into_iter().filter(holds).collect()
}

/// The file whose tokens are in use, or else another one that holds them.
fn representative(files: &[FoundFile], account: &Account) -> Option<FoundFile> {
    let in_use = account.sources.iter().find(|it| it.representative).map(|it| &it.path);
    let file = files.iter().find(|it| Some(&it.path) == in_use).or(files.first())?;
    Some(file.clone())
}

/// Whether the service did not hear the question, or was in trouble; then it may be asked again.
fn is_worth_another(error: OAuthError) -> bool {
    match error {
        OAuthError::Unreachable => true,
        OAuthError::Status(status) => status.is_server_error(),
        OAuthError::Terminal(_)
        | OAuthError::TimedOut
        | OAuthError::Lost
        | OAuthError::Unreadable => false,
    }
}

/// `Some` if new tokens are those of another account than the file's, with its id where that is
/// another one. Only what the old tokens said counts, where they said anything: what else stands in
/// the file may have differed from them all along.
fn stranger(
    before: &Login,
    access: &AccessToken,
    id_token: Option<&SecretString>,
) -> Option<Option<AccountId>> {
    let read = |text: &str| jwt::claims(text).unwrap_or_default();
    let access = read(access.expose());
    let id_token = id_token.map_or_else(Claims::default, |it| read(it.expose_secret()));
    let named = access.account_id.or(id_token.account_id);
    let (old_access, old_id) = (&before.access_token, &before.id_token);
    let known = old_access.account_id.as_ref().or(old_id.account_id.as_ref());
    let known = known.or(before.account_id());
    if known.is_some() && named.is_some() && known != named.as_ref() {
        return Some(named);
    }
    let users = access.users.or(&id_token.users);
    let other_user = users.differ_from(&old_access.users.or(&old_id.users));
    other_user.then_some(None)
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use http::StatusCode;
    use serde_json::json;

    use super::*;
    use crate::protocol::credential_file;

    fn jwt(account: &str, user: &str) -> String {
        let auth = json!({"chatgpt_account_id": account, "chatgpt_user_id": user});
        let claims = json!({"https://api.openai.com/auth": auth}).to_string();
        let [head, body] = [r#"{"alg":"none"}"#, &claims].map(|it| URL_SAFE_NO_PAD.encode(it));
        format!("{head}.{body}.AAAA")
    }

    fn login(explicit: &str, access: &str, id_token: &str) -> Login {
        let file = json!({"tokens": {
            "account_id": explicit, "access_token": access, "id_token": id_token,
        }});
        credential_file::parse(file.to_string().as_bytes()).unwrap().login
    }

    #[test]
    fn another_account_is_told_by_the_tokens_and_not_by_what_stands_beside_them() {
        let (a, b) = (jwt("a", "u"), jwt("b", "u"));
        let (other_seat, no_seat) = (jwt("a", "v"), jwt("a", ""));
        let opaque = "opaque".to_owned();
        let none = String::new();
        let same = "same".to_owned();
        let seat = "another seat".to_owned();
        let table = [
            // The file's own id, its tokens; the new tokens; what they are.
            ("a", &a, &a, &a, &none, &same),
            ("a", &a, &a, &b, &none, &"b".to_owned()),
            ("a", &a, &a, &b, &a, &"b".to_owned()),
            ("a", &a, &a, &opaque, &b, &"b".to_owned()),
            ("a", &a, &a, &opaque, &none, &same),
            ("x", &a, &a, &a, &none, &same),
            ("a", &opaque, &none, &a, &none, &same),
            ("a", &opaque, &none, &b, &none, &"b".to_owned()),
            ("", &opaque, &none, &b, &none, &same),
            ("a", &a, &a, &other_seat, &none, &seat),
            ("a", &no_seat, &none, &other_seat, &none, &same),
        ];
        for (at, (explicit, access, id, new, new_id, wanted)) in table.into_iter().enumerate() {
            let before = login(explicit, access, id);
            let new = AccessToken::new(new.clone().into()).unwrap();
            let new_id = (!new_id.is_empty()).then(|| SecretString::from(new_id.clone()));
            let found = match stranger(&before, &new, new_id.as_ref()) {
                None => same.clone(),
                Some(None) => seat.clone(),
                Some(Some(id)) => id.as_str().to_owned(),
            };
            assert_eq!(found, *wanted, "row {at}");
        }
    }

    #[test]
    fn what_the_service_may_have_heard_is_not_asked_again() {
        let status = |code| OAuthError::Status(StatusCode::from_u16(code).unwrap());
        for error in [OAuthError::Unreachable, status(500), status(503)] {
            assert!(is_worth_another(error), "{error}");
        }
        let rest = [OAuthError::Lost, OAuthError::TimedOut, OAuthError::Unreadable];
        for error in rest.into_iter().chain([status(403), status(404), status(429)]) {
            assert!(!is_worth_another(error), "{error}");
        }
    }
}
