//! Client keys: drawn, hashed, and looked up without telling by the time it takes.
//!
//! A key is known by its keyed hash only. Whoever reads the database or a dump of it cannot make a
//! key out of it.

use std::{collections::HashMap, fmt, sync::Arc};

use arc_swap::ArcSwap;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use rand::Rng;
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use super::store::Row;

const KEY_PREFIX: &str = "cek_";

/// A longer presented key is no key of ours.
const PRESENTED_MAX: usize = 256;

/// The id of a user: `usr_` and 16 hex digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UserId(Arc<str>);

/// The id of a key: `key_` and 16 hex digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyId(Arc<str>);

/// The value of a client key. Told once; never shown, never logged.
#[derive(Debug)]
pub struct ClientKey(SecretString);

/// Who a request is for.
#[derive(Clone, Debug)]
pub struct Tenant {
    pub user: UserId,
    pub key: KeyId,
    pub name: Arc<str>,
}

/// Why a key opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    Unknown,
    /// Switched off or expired, or its user is switched off.
    Disabled,
}

#[derive(Clone, Debug)]
pub struct User {
    pub id: UserId,
    pub name: String,
    pub enabled: bool,
    pub created_at: Timestamp,
    pub keys: Vec<ApiKey>,
}

/// What may be shown of a key.
#[derive(Clone, Debug)]
pub struct ApiKey {
    pub id: KeyId,
    pub name: String,
    pub masked: String,
    pub enabled: bool,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
}

/// The keys that requests are checked against.
pub struct Keyring {
    hash_key: [u8; 32],
    known: ArcSwap<HashMap<Hash, Known>>,
}

/// The keyed hash of a key.
pub(super) type Hash = [u8; 32];

#[derive(Debug)]
struct Known {
    tenant: Tenant,
    enabled: bool,
    expires_at: Option<Timestamp>,
}

/// A key that was just drawn, with its value.
#[derive(Debug)]
pub(super) struct Minted {
    value: ClientKey,
    key: MintedKey,
}

/// What the database keeps of it.
#[derive(Clone, Debug)]
pub(super) struct MintedKey {
    pub(super) id: KeyId,
    pub(super) name: String,
    pub(super) hash: Hash,
    pub(super) masked: String,
    pub(super) created_at: Timestamp,
}

// === impl UserId, KeyId ===

impl UserId {
    pub(super) fn draw(random: &mut impl Rng) -> Self {
        Self(format!("usr_{:016x}", random.next_u64()).into())
    }

    pub(super) fn from_row(text: String) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl KeyId {
    pub(super) fn from_row(text: String) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl ClientKey ===

impl ClientKey {
    /// For the one answer that tells it, and for its file.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

// === impl ApiKey ===

impl ApiKey {
    pub fn is_usable(&self, now: Timestamp) -> bool {
        self.enabled && self.expires_at.is_none_or(|end| now < end)
    }
}

// === impl Keyring ===

impl Keyring {
    pub fn new(hash_key: [u8; 32]) -> Self {
        Self { hash_key, known: ArcSwap::default() }
    }

    /// Whose key this is.
    ///
    /// # Errors
    /// If it is nobody's, or opens nothing any more.
    pub fn authenticate(&self, presented: &[u8], now: Timestamp) -> Result<Tenant, Refused> {
        if presented.len() > PRESENTED_MAX || !presented.starts_with(KEY_PREFIX.as_bytes()) {
            return Err(Refused::Unknown);
        }
        let hash = self.hash(presented);
        let known = self.known.load();
        // The lookup is by a hash that nobody without the server's key can aim at; the comparison
        // takes the same time whatever differs.
        let (stored, known) = known.get_key_value(&hash).ok_or(Refused::Unknown)?;
        if !bool::from(stored.ct_eq(&hash)) {
            return Err(Refused::Unknown);
        }
        if known.enabled && known.expires_at.is_none_or(|end| now < end) {
            Ok(known.tenant.clone())
        } else {
            Err(Refused::Disabled)
        }
    }

    pub(super) fn replace(&self, rows: &[Row]) {
        let keys = rows.iter().flat_map(|row| {
            let name: Arc<str> = row.name.as_str().into();
            row.keys.iter().map(move |key| {
                let tenant = Tenant {
                    user: row.id.clone(),
                    key: key.shown.id.clone(),
                    name: Arc::clone(&name),
                };
                let enabled = row.enabled && key.shown.enabled;
                (key.hash, Known { tenant, enabled, expires_at: key.shown.expires_at })
            })
        });
        self.known.store(Arc::new(keys.collect()));
    }

    pub(super) fn mint(&self, name: &str, now: Timestamp, random: &mut impl Rng) -> Minted {
        let mut bytes = [0; 32];
        random.fill_bytes(&mut bytes);
        let text = format!("{KEY_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
        let last: String = text.chars().skip(text.len() - 4).collect();
        let key = MintedKey {
            id: KeyId(format!("key_{:016x}", random.next_u64()).into()),
            name: name.to_owned(),
            hash: self.hash(text.as_bytes()),
            masked: format!("{KEY_PREFIX}…{last}"),
            created_at: now,
        };
        Minted { value: ClientKey(text.into()), key }
    }

    fn hash(&self, key: &[u8]) -> Hash {
        // HMAC takes a key of any length, so this cannot fail; an empty hash opens nothing.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.hash_key) else { return [0; 32] };
        mac.update(b"client key v1\0");
        mac.update(key);
        mac.finalize().into_bytes().into()
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("keys", &self.known.load().len()).finish_non_exhaustive()
    }
}

// === impl Minted ===

impl Minted {
    pub(super) fn split(self) -> (ClientKey, MintedKey) {
        (self.value, self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_long_random_and_shown_masked_only() {
        let ring = Keyring::new([7; 32]);
        let now = Timestamp::UNIX_EPOCH;
        let (value, key) = ring.mint("default", now, &mut rand::rng()).split();
        let (other, _) = ring.mint("default", now, &mut rand::rng()).split();
        assert_eq!(value.expose().len(), 47);
        assert_ne!(value.expose(), other.expose());
        assert_eq!(key.masked, format!("cek_…{}", &value.expose()[43..]));
        assert!(!format!("{value:?} {key:?} {ring:?}").contains(&value.expose()[4..40]));
    }
}
