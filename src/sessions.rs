//! Which account holds which session, and who issued which turn state.
//!
//! Both are kept by keyed hash, per tenant, in memory and within bounds; the bindings in the database
//! too, so that a restart does not forget them. A session id never leaves this module, and nobody
//! waits for the database.

mod bindings;
mod memory;
mod store;

use std::{
    collections::HashMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use hmac::{Hmac, KeyInit, Mac};
use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use sha2::Sha256;

use self::{bindings::Bindings, memory::Memory, store::Kept};
use crate::{
    domain::{account::AuthId, affinity, reconcile::Change},
    protocol::{headers::X_CODEX_TURN_STATE, request::Inspection},
    storage::{Storage, StorageError},
};

/// The names of the session header: that of today's client, and that of older ones.
const SESSION_HEADERS: [&str; 2] = ["session-id", "session_id"];

/// Turn states live as long as a turn.
const TURN_STATE_TTL: SignedDuration = SignedDuration::from_hours(1);

/// After this many new bindings those that have run out are deleted.
const SWEEP_EVERY: usize = 4_096;

/// What names one session of one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey(Digest);

type Digest = [u8; 32];

#[derive(Debug)]
pub struct Sessions {
    hash_key: HashKey,
    ttl: SignedDuration,
    max: usize,
    bindings: Mutex<Bindings>,
    turn_states: Mutex<Memory<AuthId>>,
    /// Where bindings are kept beyond the process.
    storage: Option<Storage>,
    /// Bindings that were kept so far.
    kept: AtomicUsize,
}

struct HashKey([u8; 32]);

// === impl Sessions ===

impl Sessions {
    /// At most `bindings_max` sessions are remembered, each for `ttl` after its last use, and none
    /// beyond the process.
    pub fn new(hash_key: [u8; 32], ttl: SignedDuration, bindings_max: usize) -> Self {
        Self {
            hash_key: HashKey(hash_key),
            ttl,
            max: bindings_max,
            bindings: Mutex::new(Bindings::new(bindings_max)),
            turn_states: Mutex::new(Memory::new(bindings_max)),
            storage: None,
            kept: AtomicUsize::new(0),
        }
    }

    /// Goes on with the bindings that the database holds. They are out of reach until their accounts
    /// are seen. Blocks on the database.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn keep_in(mut self, storage: Storage, now: Timestamp) -> Result<Self, StorageError> {
        let max = self.max;
        let kept = storage.write_blocking(move |connection| store::load(connection, max, now))?;
        let latest = self.until(now);
        for Kept { digest, account, until } in kept {
            // A clock that was wrong when the binding was made keeps it no longer than any other.
            self.bindings.get_mut().restore(digest, account, now, until.min(latest));
        }
        self.storage = Some(storage);
        Ok(self)
    }

    /// Takes in what has become of the accounts, before the pool shows it.
    pub fn apply(&self, changes: &[Change]) {
        let mut bindings = self.bindings.lock();
        changes.iter().for_each(|change| bindings.apply(change));
        drop(bindings);
        let mut states = self.turn_states.lock();
        for change in changes {
            match change {
                Change::Renamed { from, to } => states.replace(from, to),
                Change::Purged { id } => states.forget(id),
                Change::Added { .. } | Change::Removed { .. } | Change::Updated { .. } => {}
            }
        }
    }

    /// How many sessions each account holds.
    pub fn count_by_account(&self, now: Timestamp) -> HashMap<AuthId, usize> {
        self.bindings.lock().count(now)
    }

    /// The session that a request names, if it names one. The header counts first; Codex sends the
    /// same value in both places.
    pub fn key_of(
        &self,
        tenant: &str,
        headers: &HeaderMap,
        inspection: &Inspection,
    ) -> Option<SessionKey> {
        let named = SESSION_HEADERS.iter().flat_map(|name| headers.get_all(*name));
        let header = affinity::agreed(named.map(|it| it.as_bytes()));
        let body = || {
            let field = inspection.prompt_cache_key.as_ref()?;
            affinity::usable(field.text()?.as_bytes())
        };
        let value = header.or_else(body)?;
        Some(SessionKey(self.digest("session", tenant, value.as_bytes())))
    }

    /// The account that holds the session.
    pub fn lookup(&self, session: &SessionKey, now: Timestamp) -> Option<AuthId> {
        self.bindings.lock().get(&session.0, now)
    }

    /// The account has proved itself in the session, and holds it from now on.
    pub fn commit(&self, session: &SessionKey, account: &AuthId, now: Timestamp) {
        let until = self.until(now);
        // The lock is held while the change is queued, so that the last of two is written last.
        let mut bindings = self.bindings.lock();
        let news = bindings.put(session.0, account, now, until);
        if let (Some(account), Some(storage)) = (news, &self.storage) {
            let kept = Kept { digest: session.0, account, until };
            let (max, sweep) = (self.max, self.is_time_to_sweep());
            storage.queue(move |connection| {
                store::save(connection, &kept, now)?;
                if sweep { store::sweep(connection, max, now) } else { Ok(()) }
            });
        }
    }

    /// The account issued the turn state that its answer carries.
    pub fn issued(&self, tenant: &str, answer: &HeaderMap, account: &AuthId, now: Timestamp) {
        if let Some(state) = answer.get(X_CODEX_TURN_STATE) {
            let digest = self.digest("turn state", tenant, state.as_bytes());
            let until = now.checked_add(TURN_STATE_TTL).unwrap_or(Timestamp::MAX);
            let account = self.bindings.lock().of_today(account).clone();
            self.turn_states.lock().put(digest, account, now, until);
        }
    }

    /// Whether the request carries a turn state that another account has issued. It would be
    /// refused there.
    pub fn is_foreign_state(
        &self,
        tenant: &str,
        request: &HeaderMap,
        account: &AuthId,
        now: Timestamp,
    ) -> bool {
        request.get_all(X_CODEX_TURN_STATE).iter().any(|state| {
            let digest = self.digest("turn state", tenant, state.as_bytes());
            self.turn_states.lock().get(&digest, now).is_some_and(|issuer| issuer != *account)
        })
    }

    fn until(&self, now: Timestamp) -> Timestamp {
        now.checked_add(self.ttl).unwrap_or(Timestamp::MAX)
    }

    fn is_time_to_sweep(&self) -> bool {
        (self.kept.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(SWEEP_EVERY)
    }

    fn digest(&self, kind: &str, tenant: &str, value: &[u8]) -> Digest {
        // HMAC takes a key of any length, so this cannot fail.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.hash_key.0) else { return [0; 32] };
        for part in [b"v1", kind.as_bytes(), tenant.as_bytes(), value] {
            // The length keeps two parts from passing for one.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

impl std::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HashKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::protocol::request;

    fn sessions() -> Sessions {
        Sessions::new([1; 32], SignedDuration::from_hours(24), 100)
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn account(digit: char) -> AuthId {
        AuthId::parse(&format!("acc_{}", digit.to_string().repeat(20))).unwrap()
    }

    #[test]
    fn both_spellings_and_the_cache_key_name_the_same_session() {
        let (sessions, nothing) = (sessions(), request::inspect(b"{}").unwrap());
        let body = request::inspect(br#"{"prompt_cache_key":"s"}"#).unwrap();
        let today = sessions.key_of("u", &headers(&[("session-id", "s")]), &nothing);
        let older = sessions.key_of("u", &headers(&[("session_id", "s")]), &nothing);
        let cache = sessions.key_of("u", &HeaderMap::new(), &body);
        assert!(today.is_some());
        assert_eq!(today, older);
        assert_eq!(today, cache);
        assert_ne!(today, sessions.key_of("v", &HeaderMap::new(), &body), "another tenant");
        assert_eq!(sessions.key_of("u", &HeaderMap::new(), &nothing), None);
        let two = headers(&[("session-id", "s"), ("session_id", "t")]);
        assert_eq!(sessions.key_of("u", &two, &nothing), None);
    }

    #[test]
    fn a_session_is_held_until_it_was_not_used_for_long() {
        let (sessions, now) = (sessions(), Timestamp::UNIX_EPOCH);
        let key = SessionKey([7; 32]);
        sessions.commit(&key, &account('a'), now);
        assert_eq!(sessions.lookup(&key, now), Some(account('a')));
        let later = now + SignedDuration::from_hours(25);
        assert_eq!(sessions.lookup(&key, later), None);
    }

    #[test]
    fn a_turn_state_is_foreign_to_every_account_but_its_issuer() {
        let (sessions, now) = (sessions(), Timestamp::UNIX_EPOCH);
        let carries = headers(&[("x-codex-turn-state", "opaque")]);
        assert!(!sessions.is_foreign_state("u", &carries, &account('b'), now), "unknown");
        sessions.issued("u", &carries, &account('a'), now);
        assert!(!sessions.is_foreign_state("u", &carries, &account('a'), now));
        assert!(sessions.is_foreign_state("u", &carries, &account('b'), now));
    }
}
