//! The operator's key and its file.

use std::{fmt, io, path::Path};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::header::{HeaderValue, InvalidHeaderValue};
use rand::Rng;
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::storage;

const PREFIX: &str = "cea_";

/// A shorter key could be guessed.
const LENGTH_MIN: usize = 16;
const LENGTH_MAX: usize = 256;

/// The key that opens the management. Never shown, never logged.
#[derive(Clone)]
pub struct AdminKey(SecretString);

/// A text that is no admin key. Names no part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an admin key is one line of {LENGTH_MIN} to {LENGTH_MAX} visible ASCII characters")]
pub struct BadAdminKey;

// === impl AdminKey ===

impl AdminKey {
    /// Takes a key, white space around it aside.
    ///
    /// # Errors
    /// A text that no header can carry, or that is too short to be a secret.
    pub fn new(text: &str) -> Result<Self, BadAdminKey> {
        let text = text.trim();
        let fits = (LENGTH_MIN..=LENGTH_MAX).contains(&text.len())
            && text.bytes().all(|it| it.is_ascii_graphic());
        if fits { Ok(Self(text.into())) } else { Err(BadAdminKey) }
    }

    /// Reads the key file, and warns if others can read it too. None if there is no file.
    ///
    /// # Errors
    /// If the file cannot be read, or holds no key.
    pub fn load(path: &Path) -> io::Result<Option<Self>> {
        let Some(bytes) = storage::read_secret(path)?.map(Zeroizing::new) else { return Ok(None) };
        let text = std::str::from_utf8(&bytes).map_err(|_| unusable())?;
        Self::new(text).map(Some).map_err(|_| unusable())
    }

    /// Reads the key file, and makes it first if there is none.
    ///
    /// # Errors
    /// If the file cannot be read or made, or holds no key.
    pub fn create_if_missing(path: &Path) -> io::Result<Self> {
        if let Some(key) = Self::load(path)? {
            return Ok(key);
        }
        let key = Self::draw(&mut rand::rng());
        let text = Zeroizing::new(format!("{}\n", key.0.expose_secret()));
        match storage::write_secret(path, text.as_bytes()) {
            Ok(()) => Ok(key),
            // Another process was faster: its key is the one.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Self::load(path)?.ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether `presented` is this key, in a time that does not depend on where they differ.
    pub fn matches(&self, presented: &[u8]) -> bool {
        bool::from(self.0.expose_secret().as_bytes().ct_eq(presented))
    }

    /// The `Authorization` header, marked sensitive.
    ///
    /// # Errors
    /// None in practice, since the key was checked when it was read.
    pub fn authorization(&self) -> Result<HeaderValue, InvalidHeaderValue> {
        let text = Zeroizing::new(format!("Bearer {}", self.0.expose_secret()));
        let mut value = HeaderValue::from_str(&text)?;
        value.set_sensitive(true);
        Ok(value)
    }

    fn draw(random: &mut impl Rng) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        random.fill_bytes(bytes.as_mut());
        Self(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes.as_ref())).into())
    }
}

impl fmt::Debug for AdminKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminKey([redacted])")
    }
}

fn unusable() -> io::Error {
    let what = format!("{BadAdminKey}; remove the file to get a new one");
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_key_file_is_made_once_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.key");
        assert!(AdminKey::load(&path).unwrap().is_none());
        AdminKey::create_if_missing(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(text.starts_with(PREFIX) && text.trim().len() == PREFIX.len() + 43, "{text}");
        let again = AdminKey::create_if_missing(&path).unwrap();
        assert!(again.matches(text.trim().as_bytes()));
        assert!(!again.matches(b"cea_") && !again.matches(b""));
    }

    #[test]
    fn a_file_without_a_key_is_refused_and_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.key");
        for content in
            ["", "\n", "short", "two words of sufficient length", "é".repeat(20).as_str()]
        {
            fs::write(&path, content).unwrap();
            assert!(AdminKey::create_if_missing(&path).is_err(), "{content:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
    }

    #[test]
    fn a_key_is_not_shown_by_accident() {
        let key = AdminKey::new("cea_0123456789abcdef").unwrap();
        assert!(!format!("{key:?}").contains("0123"));
        assert!(key.authorization().unwrap().is_sensitive());
    }
}
