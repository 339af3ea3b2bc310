//! An account of the pool: one seat of one ChatGPT workspace, whatever files describe it. Pure.
//!
//! An [`AuthId`] and a [`Label`] are safe to show; an [`AccountId`] and a seat's user are not, and
//! are redacted in `Debug`.

use std::{fmt, sync::Arc};

use http::header::{HeaderValue, InvalidHeaderValue};
use icu_normalizer::ComposingNormalizerBorrowed;
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::{
    credential::Credential,
    identity::{PathId, Seat},
};

/// The longest account or user id, in characters.
const ID_CHARS_MAX: usize = 256;

/// Hex digits of an [`AuthId`] after its prefix.
const DIGEST_CHARS: usize = 20;

/// Letters of a [`Label`].
pub const LABEL_ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// The opaque, stable name of an account: `acc_` or, while nothing better than its file names it,
/// `path_`, and 20 hex digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuthId(Arc<str>);

/// The public name of an account: `p` and six letters or digits, made by chance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(Arc<str>);

/// The id of a ChatGPT workspace, as the `chatgpt-account-id` header carries it.
///
/// Trimmed, in Unicode's composed form, at most 256 characters, none of them a control character;
/// letter case counts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountId(Arc<str>);

/// An e-mail address that is cut down to what may be shown: `a***@example.com`.
#[derive(Clone, PartialEq, Eq)]
pub struct MaskedEmail(Arc<str>);

/// An account as one snapshot of the pool holds it.
#[derive(Clone, Debug)]
pub struct Account {
    pub id: AuthId,
    pub label: Label,
    /// What the upstream header says; `None` sends no such header.
    pub account_id: Option<AccountId>,
    /// The user within the workspace, where a token tells.
    pub seat: Option<Seat>,
    pub credential: Arc<Credential>,
    pub eligibility: Eligibility,
    /// Whether a file names another account than its own tokens do.
    pub identity_conflict: bool,
    pub email: Option<MaskedEmail>,
    pub plan: Option<String>,
    /// Whether the token asks for the FedRAMP header.
    pub fedramp: bool,
    /// The files that describe the account, by path.
    pub sources: Vec<Source>,
}

/// What keeps an account from new work, its health apart. Whatever it is, bindings stay and what
/// runs goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Eligibility {
    /// Every file of the account is switched off.
    pub disabled: bool,
    /// An operator has paused it; that is kept in the database, not in the files.
    pub paused: bool,
    /// Its files cannot be looked at, and may be there.
    pub out_of_sight: bool,
}

/// One file of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub path: PathId,
    pub enabled: bool,
    /// Whether this file's tokens are the ones in use.
    pub representative: bool,
    pub identity_conflict: bool,
    pub expires_at: Option<Timestamp>,
    /// What is wrong with the file, if its last good content is used, or it was read all the same.
    pub problem: Option<Arc<str>>,
}

// === impl Eligibility ===

impl Eligibility {
    /// Whether new work may go to the account.
    pub fn is_open(self) -> bool {
        self == Self::default()
    }
}

// === impl Account ===

impl Account {
    /// What no client may see of it, wherever an upstream puts it.
    pub fn shown_to_nobody(&self) -> Option<&str> {
        self.account_id.as_ref().map(AccountId::as_str)
    }
}

// === impl AuthId ===

impl AuthId {
    /// Derives the id from the parts of an identity.
    pub(super) fn derive(identified: bool, parts: &[&str]) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            // The length keeps two parts from passing for one.
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part.as_bytes());
        }
        let mut id = String::from(if identified { "acc_" } else { "path_" });
        for byte in &digest.finalize()[..DIGEST_CHARS / 2] {
            id.push_str(&format!("{byte:02x}"));
        }
        Self(id.into())
    }

    /// Reads an id back from where it was kept; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("acc_").or_else(|| text.strip_prefix("path_"))?;
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (digits.len() == DIGEST_CHARS && digits.bytes().all(is_hex)).then(|| Self(text.into()))
    }

    /// Whether the account itself gave the id, and not the place of its file.
    pub fn is_identified(&self) -> bool {
        self.0.starts_with("acc_")
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AuthId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Label ===

impl Label {
    /// Reads a label; `None` if it does not have the form of one.
    pub fn parse(text: &str) -> Option<Self> {
        let letters = text.strip_prefix('p')?;
        let fits = letters.len() == 6 && letters.bytes().all(|it| LABEL_ALPHABET.contains(&it));
        fits.then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl AccountId ===

impl AccountId {
    /// Normalises `text`; `None` if it is blank, too long or holds a control character.
    pub fn parse(text: &str) -> Option<Self> {
        normalized_id(text).map(Self)
    }

    /// The value of the `chatgpt-account-id` header, marked sensitive.
    ///
    /// # Errors
    /// None in practice, since an id holds no control character.
    pub fn header(&self) -> Result<HeaderValue, InvalidHeaderValue> {
        let mut value = HeaderValue::from_bytes(self.0.as_bytes())?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// The id itself, for credential files and for comparing; never for a log or an answer.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccountId(..)")
    }
}

// === impl MaskedEmail ===

impl MaskedEmail {
    /// Masks `address`; `None` if it does not look like one.
    pub fn new(address: &str) -> Option<Self> {
        let (user, host) = address.trim().rsplit_once('@')?;
        let first = user.chars().next()?;
        let odd = |text: &str| text.chars().any(|it| it.is_control() || it.is_whitespace());
        if host.is_empty() || address.len() > 320 || odd(user) || odd(host) {
            return None;
        }
        Some(Self(format!("{first}***@{host}").into()))
    }
}

impl fmt::Display for MaskedEmail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for MaskedEmail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MaskedEmail(..)")
    }
}

/// The common rule for ids that come from outside: trimmed, composed, short, no control character.
pub(super) fn normalized_id(text: &str) -> Option<Arc<str>> {
    let text = text.trim();
    // A letter takes at most four bytes: what is far too long need not be normalised first.
    if text.is_empty() || text.len() > 4 * ID_CHARS_MAX || text.chars().any(char::is_control) {
        return None;
    }
    let composed = compose(text);
    (composed.chars().count() <= ID_CHARS_MAX).then_some(composed)
}

/// Unicode's composed form (NFC).
pub(super) fn compose(text: &str) -> Arc<str> {
    ComposingNormalizerBorrowed::new_nfc().normalize(text).as_ref().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_id_is_normalised_or_refused() {
        let long = "x".repeat(257);
        let table = [
            ("acct-1", Some("acct-1")),
            ("  acct-1 \t", Some("acct-1")),
            ("Acct-1", Some("Acct-1")),
            ("a/b", Some("a/b")),
            ("e\u{301}", Some("\u{e9}")),
            ("", None),
            (" \u{a0} ", None),
            ("a\nb", None),
            ("a\0b", None),
            (long.as_str(), None),
            (&long[1..], Some(&long[1..])),
        ];
        for (text, wanted) in table {
            assert_eq!(AccountId::parse(text).as_ref().map(AccountId::as_str), wanted, "{text:?}");
        }
    }

    #[test]
    fn debug_shows_no_account_id() {
        let id = AccountId::parse("canary-account").unwrap();
        let shown = format!("{id:?} {:?}", id.header().unwrap());
        assert!(!shown.contains("canary"), "{shown}");
    }

    #[test]
    fn an_auth_id_is_opaque_and_reads_back() {
        let id = AuthId::derive(true, &["canary", "1"]);
        assert_eq!(id.as_str().len(), 24);
        assert!(!id.as_str().contains("canary") && id.is_identified());
        assert_eq!(AuthId::parse(id.as_str()), Some(id.clone()));
        assert_ne!(AuthId::derive(true, &["canar", "y1"]), id);
        for other in ["", "acc_", "acc_zz", "acc_0123456789abcdef012G", "x_0123456789abcdef0123"] {
            assert_eq!(AuthId::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_label_has_one_form() {
        assert!(Label::parse("pa1b2c3").is_some());
        for other in ["", "p", "qa1b2c3", "pA1b2c3", "pa1b2c34", "pa1b2c", "pä1b2c"] {
            assert!(Label::parse(other).is_none(), "{other}");
        }
    }

    #[test]
    fn an_address_is_masked() {
        let shown = |text| MaskedEmail::new(text).map(|it| it.to_string());
        assert_eq!(shown("alice@example.com").as_deref(), Some("a***@example.com"));
        assert_eq!(shown("a@b@c.org").as_deref(), Some("a***@c.org"));
        for other in ["", "alice", "@example.com", "alice@", "al\nice@example.com"] {
            assert_eq!(shown(other), None, "{other:?}");
        }
    }
}
