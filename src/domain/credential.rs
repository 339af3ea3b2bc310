//! The OAuth credential of an account. Pure.
//!
//! Tokens have no `Display` and no `Serialize`; their `Debug` is redacted; their memory is wiped on
//! drop. An [`AccessToken`] that exists can be sent: what no header may carry is refused when it is
//! read.
//!
//! ```
//! fn shown<T: std::fmt::Display>() {}
//! fn written<T: serde::Serialize>() {}
//! shown::<codex_edge::domain::account::AuthId>();
//! written::<String>();
//! ```
//! The same does not compile with a token:
//! ```compile_fail
//! fn shown<T: std::fmt::Display>() {}
//! shown::<codex_edge::domain::credential::AccessToken>();
//! ```
//! ```compile_fail
//! fn written<T: serde::Serialize>() {}
//! written::<codex_edge::domain::credential::AccessToken>();
//! ```
//! ```compile_fail
//! fn shown<T: std::fmt::Display>() {}
//! shown::<codex_edge::domain::credential::RefreshToken>();
//! ```
//! ```compile_fail
//! fn written<T: serde::Serialize>() {}
//! written::<codex_edge::domain::credential::RefreshToken>();
//! ```

use std::fmt;

use http::header::{HeaderValue, InvalidHeaderValue};
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// The longest token that is worth sending; servers refuse longer header lines.
const TOKEN_BYTES_MAX: usize = 64 * 1024;

/// What one credential file gives to make requests with.
#[derive(Clone, Debug)]
pub struct Credential {
    pub access: AccessToken,
    pub refresh: Option<RefreshToken>,
    /// When the access token ends; `None` if it does not say.
    pub expires_at: Option<Timestamp>,
    /// When the tokens were last renewed, as the file tells.
    pub last_refresh: Option<Timestamp>,
    /// Names the access token without telling it.
    pub fingerprint: Fingerprint,
}

/// A bearer token that a header can carry.
#[derive(Clone)]
pub struct AccessToken(SecretString);

/// The single-use token that buys the next access token.
#[derive(Clone)]
pub struct RefreshToken(SecretString);

/// The first half of a token's SHA-256. Two credentials with one fingerprint are the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 16]);

/// Why a token cannot be used. Names no part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum TokenError {
    #[error("the token is empty")]
    Empty,
    #[error("the token is longer than {TOKEN_BYTES_MAX} bytes")]
    TooLong,
    #[error("the token holds a line break, a blank or another control character")]
    ControlCharacter,
    #[error("the token holds a character that is not ASCII")]
    NotAscii,
}

// === impl Credential ===

impl Credential {
    pub fn new(access: AccessToken, refresh: Option<RefreshToken>) -> Self {
        let fingerprint = access.fingerprint();
        Self { access, refresh, expires_at: None, last_refresh: None, fingerprint }
    }

    /// Whether the access token is past its end. One that names no end is used until it is refused.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

// === impl AccessToken ===

impl AccessToken {
    /// # Errors
    /// A text that no `Authorization` header can carry.
    pub fn new(text: SecretString) -> Result<Self, TokenError> {
        check(text.expose_secret())?;
        Ok(Self(text))
    }

    /// The `Authorization` header, marked sensitive so that HTTP/2 never indexes it.
    ///
    /// # Errors
    /// None in practice, since the token was checked when it was read.
    pub fn authorization(&self) -> Result<HeaderValue, InvalidHeaderValue> {
        let text = Zeroizing::new(format!("Bearer {}", self.0.expose_secret()));
        let mut value = HeaderValue::from_str(&text)?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Whether `presented` is this token, in a time that does not depend on where they differ.
    pub fn matches(&self, presented: &[u8]) -> bool {
        bool::from(self.0.expose_secret().as_bytes().ct_eq(presented))
    }

    /// The token itself, for a credential file and nothing else.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// Names the token without telling it.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.0)
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessToken(..)")
    }
}

// === impl RefreshToken ===

impl RefreshToken {
    /// # Errors
    /// A text that is no token.
    pub fn new(text: SecretString) -> Result<Self, TokenError> {
        check(text.expose_secret())?;
        Ok(Self(text))
    }

    /// Whether `presented` is this token, in a time that does not depend on where they differ.
    pub fn matches(&self, presented: &[u8]) -> bool {
        bool::from(self.0.expose_secret().as_bytes().ct_eq(presented))
    }

    /// The token itself, for the token endpoint and a credential file, and nothing else.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// Names the token without telling it.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.0)
    }
}

impl fmt::Debug for RefreshToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RefreshToken(..)")
    }
}

// === impl Fingerprint ===

impl Fingerprint {
    fn of(token: &SecretString) -> Self {
        let digest = Sha256::digest(token.expose_secret().as_bytes());
        let mut half = [0; 16];
        half.copy_from_slice(&digest[..16]);
        Self(half)
    }

    /// A fingerprint that no token has, for tests and simulations that need none.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint(")?;
        for byte in &self.0[..4] {
            write!(f, "{byte:02x}")?;
        }
        f.write_str("..)")
    }
}

fn check(text: &str) -> Result<(), TokenError> {
    match text {
        "" => Err(TokenError::Empty),
        _ if text.len() > TOKEN_BYTES_MAX => Err(TokenError::TooLong),
        _ if text.bytes().any(|byte| byte.is_ascii_control() || byte == b' ') => {
            Err(TokenError::ControlCharacter)
        }
        _ if !text.is_ascii() => Err(TokenError::NotAscii),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> AccessToken {
        AccessToken::new(text.into()).unwrap()
    }

    #[test]
    fn the_header_is_a_sensitive_bearer() {
        let header = token("canary-1").authorization().unwrap();
        assert!(header.is_sensitive());
        assert_eq!(header.as_bytes(), b"Bearer canary-1");
    }

    #[test]
    fn debug_shows_no_token() {
        let refresh = RefreshToken::new("canary-2".into()).unwrap();
        let credential = Credential::new(token("canary-1"), Some(refresh));
        let header = credential.access.authorization().unwrap();
        let shown = format!("{credential:?} {header:?}");
        assert!(!shown.contains("canary"), "{shown}");
    }

    #[test]
    fn a_token_that_no_header_can_carry_is_refused_with_its_reason() {
        let long = "x".repeat(TOKEN_BYTES_MAX + 1);
        let table = [
            ("", TokenError::Empty),
            ("canary\r\nx: y", TokenError::ControlCharacter),
            ("canary\n", TokenError::ControlCharacter),
            ("can ary", TokenError::ControlCharacter),
            ("can\u{7f}ary", TokenError::ControlCharacter),
            ("canäry", TokenError::NotAscii),
            (long.as_str(), TokenError::TooLong),
        ];
        for (text, wanted) in table {
            let error = AccessToken::new(text.into()).unwrap_err();
            assert_eq!(error, wanted);
            assert!(!format!("{error} {error:?}").contains("canary"));
        }
    }

    #[test]
    fn only_the_same_text_matches() {
        let token = token("canary-1");
        assert!(token.matches(b"canary-1"));
        for other in [&b"canary-2"[..], b"canary-", b"canary-11", b""] {
            assert!(!token.matches(other));
        }
    }

    #[test]
    fn a_fingerprint_is_as_different_as_its_token() {
        assert_eq!(token("a").fingerprint(), token("a").fingerprint());
        assert_ne!(token("a").fingerprint(), token("b").fingerprint());
    }

    #[test]
    fn a_token_without_an_end_never_expires() {
        let now = Timestamp::from_second(1_000).unwrap();
        let mut credential = Credential::new(token("a"), None);
        assert!(!credential.has_expired(now));
        credential.expires_at = Some(now);
        assert!(credential.has_expired(now));
    }
}
