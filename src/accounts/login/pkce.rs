//! The secrets of a sign-in by browser (RFC 7636, method S256), and the address its browser comes
//! back to. Pure.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use http::Uri;
use rand::Rng;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The longest address or code that is looked at.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// The longest address that a browser is sent back to.
const REDIRECT_BYTES_MAX: usize = 200;

/// What a sign-in by browser is recognised by.
#[derive(Clone)]
pub(super) struct Pkce {
    pub(super) redirect_uri: String,
    pub(super) verifier: SecretString,
    state: SecretString,
}

/// What a browser brings back.
#[derive(Clone)]
pub struct Callback {
    state: SecretString,
    answer: Answer,
}

#[derive(Clone)]
enum Answer {
    Code(SecretString),
    /// The user or the service said no.
    Declined,
}

/// Why a sign-in cannot be begun or gone on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    #[error(
        "`redirect_uri` must be a loopback address with a port, like \
         http://127.0.0.1:1455/auth/callback"
    )]
    NotLoopback,
    #[error(
        "this is no address that a sign-in ends at: give the whole of it, with `code` and `state`"
    )]
    NotCallback,
    #[error("it belongs to another sign-in: use the page that this one opened")]
    WrongState,
}

// === impl Pkce ===

impl Pkce {
    pub(super) fn new(redirect_uri: &str, random: &mut impl Rng) -> Result<Self, CallbackError> {
        if !is_loopback(redirect_uri) {
            return Err(CallbackError::NotLoopback);
        }
        let mut secret = || {
            let mut bytes = [0; 32];
            random.fill_bytes(&mut bytes);
            SecretString::from(BASE64_URL_SAFE_NO_PAD.encode(bytes))
        };
        Ok(Self { redirect_uri: redirect_uri.to_owned(), verifier: secret(), state: secret() })
    }

    pub(super) fn challenge(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.expose_secret()))
    }

    /// For the address of the page, which the user sees anyway.
    pub(super) fn state(&self) -> &str {
        self.state.expose_secret()
    }

    /// The code that `callback` brings; `None` if the user or the service said no.
    pub(super) fn code(&self, callback: Callback) -> Result<Option<SecretString>, CallbackError> {
        let (given, ours) = (callback.state.expose_secret(), self.state.expose_secret());
        if !bool::from(given.as_bytes().ct_eq(ours.as_bytes())) {
            return Err(CallbackError::WrongState);
        }
        Ok(match callback.answer {
            Answer::Code(code) => Some(code),
            Answer::Declined => None,
        })
    }
}

// === impl Callback ===

impl Callback {
    /// # Errors
    /// If one of them is blank or far too long.
    pub fn new(code: &str, state: &str) -> Result<Self, CallbackError> {
        let given = |text: &str| {
            let text = text.trim();
            let fits = !text.is_empty() && text.len() <= TEXT_BYTES_MAX;
            fits.then(|| SecretString::from(text)).ok_or(CallbackError::NotCallback)
        };
        Ok(Self { state: given(state)?, answer: Answer::Code(given(code)?) })
    }

    /// Reads the address that the browser was sent to, or its path and query.
    ///
    /// # Errors
    /// If it has no state, or neither a code nor an error.
    pub fn parse(url: &str) -> Result<Self, CallbackError> {
        let url = url.trim();
        if url.len() > TEXT_BYTES_MAX {
            return Err(CallbackError::NotCallback);
        }
        let query = url.split_once('?').map(|it| it.1).unwrap_or_default();
        let query = query.split('#').next().unwrap_or_default();
        let field = |wanted: &str| {
            let mut pairs = query.split('&').filter_map(|it| it.split_once('='));
            pairs.find(|(key, _)| *key == wanted).and_then(|(_, value)| unescape(value))
        };
        let state = field("state").unwrap_or_default();
        match field("code") {
            Some(code) => Self::new(&code, &state),
            None if field("error").is_some() && !state.is_empty() => {
                Ok(Self { state: state.into(), answer: Answer::Declined })
            }
            None => Err(CallbackError::NotCallback),
        }
    }
}

/// Whether a redirect leads to this machine's own loopback, over plain HTTP, with nothing hidden
/// in it.
fn is_loopback(uri: &str) -> bool {
    let Ok(parsed) = uri.parse::<Uri>() else { return false };
    let Some(authority) = parsed.authority() else { return false };
    let host = authority.host();
    parsed.scheme_str() == Some("http")
        && matches!(host, "127.0.0.1" | "localhost" | "[::1]")
        && authority.port_u16().is_some_and(|it| authority.as_str() == format!("{host}:{it}"))
        && parsed.query().is_none()
        && uri.len() <= REDIRECT_BYTES_MAX
        && !uri.contains('#')
}

/// Takes the escapes off a query's value. `None` if they or the result make no text.
fn unescape(value: &str) -> Option<String> {
    let mut plain = Vec::with_capacity(value.len());
    let mut bytes = value.bytes();
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'%' => {
                let (high, low) = (char::from(bytes.next()?), char::from(bytes.next()?));
                u8::try_from(high.to_digit(16)? * 16 + low.to_digit(16)?).ok()?
            }
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(plain).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REDIRECT: &str = "http://127.0.0.1:1455/auth/callback";

    fn pkce() -> Pkce {
        Pkce::new(REDIRECT, &mut rand::rng()).unwrap()
    }

    #[test]
    fn the_challenge_is_that_of_the_standard() {
        // RFC 7636, appendix B.
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".into();
        let challenge = Pkce { verifier, ..pkce() }.challenge();
        assert_eq!(challenge, "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn secrets_are_long_and_never_the_same() {
        let (one, other) = (pkce(), pkce());
        assert_eq!(one.verifier.expose_secret().len(), 43);
        assert_ne!(one.verifier.expose_secret(), other.verifier.expose_secret());
        assert_ne!(one.state(), other.state());
        assert_ne!(one.state(), one.verifier.expose_secret());
    }

    #[test]
    fn only_a_loopback_address_is_come_back_to() {
        let table = [
            (REDIRECT, true),
            ("http://localhost:1455/auth/callback", true),
            ("http://[::1]:1457/auth/callback", true),
            ("https://127.0.0.1:1455/auth/callback", false),
            ("http://127.0.0.1/auth/callback", false),
            ("http://127.0.0.1:99999/auth/callback", false),
            ("http://127.0.0.1:1455@evil.example/auth/callback", false),
            ("http://me@127.0.0.1:1455/auth/callback", false),
            ("http://127.0.0.1:1455/auth/callback?to=evil", false),
            ("http://127.0.0.1:1455/auth/callback#x", false),
            ("http://evil.example:1455/auth/callback", false),
            ("http://127.0.0.1.evil.example:1455/", false),
            ("http://0.0.0.0:1455/", false),
            ("/auth/callback", false),
            ("", false),
        ];
        for (uri, wanted) in table {
            assert_eq!(is_loopback(uri), wanted, "{uri}");
        }
    }

    #[test]
    fn what_comes_back_is_read_from_the_address() {
        let pkce = pkce();
        let read = |url: &str| {
            let code = pkce.code(Callback::parse(url)?)?;
            Ok(code.map(|it| it.expose_secret().to_owned()))
        };
        let state = pkce.state();
        let found = |text: &str| Ok(Some(text.to_owned()));
        let table = [
            (format!("{REDIRECT}?code=c%2F1&state={state}"), found("c/1")),
            (format!(" /auth/callback?state={state}&code=c&scope=x#end \n"), found("c")),
            (format!("{REDIRECT}?error=access_denied&state={state}"), Ok(None)),
            (format!("{REDIRECT}?code=c&state={state}x"), Err(CallbackError::WrongState)),
            (format!("{REDIRECT}?error=x&state=other"), Err(CallbackError::WrongState)),
            (format!("{REDIRECT}?code=c"), Err(CallbackError::NotCallback)),
            (format!("{REDIRECT}?code=&state={state}"), Err(CallbackError::NotCallback)),
            (format!("{REDIRECT}?code=%f&state={state}"), Err(CallbackError::NotCallback)),
            (format!("{REDIRECT}?error=access_denied"), Err(CallbackError::NotCallback)),
            (REDIRECT.to_owned(), Err(CallbackError::NotCallback)),
            (String::new(), Err(CallbackError::NotCallback)),
        ];
        for (url, wanted) in table {
            assert_eq!(read(&url), wanted, "{url}");
        }
    }

    proptest! {
        #[test]
        fn no_address_makes_the_reader_stumble(url in ".{0,60}") {
            let _ = Callback::parse(&url);
            is_loopback(&url);
        }
    }
}
