//! What one credential file says. Pure.
//!
//! Two shapes are read: Codex's own `auth.json` with an object `tokens`, and the flat one with
//! `"type": "codex"`. Of a key that is given twice the last counts. No error holds any text of the
//! file.

pub mod rewrite;
mod spans;

use jiff::Timestamp;
use secrecy::SecretString;
use serde_json::{Map, Value};

use super::jwt;
use crate::domain::{
    account::{AccountId, MaskedEmail},
    credential::{AccessToken, Credential, RefreshToken, TokenError},
    identity::{Claims, Login},
};

/// A file that was understood.
#[derive(Clone, Debug)]
pub struct CredentialFile {
    pub shape: Shape,
    pub login: Login,
    /// What is wrong with it all the same.
    pub faults: Vec<Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Codex's `auth.json`.
    Codex,
    /// One object with all tokens at its top.
    Flat,
}

/// A defect that does not keep the file from being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    #[error("`disabled` is neither true nor false, so the file counts as disabled")]
    DisabledType,
    #[error("`refresh_token` is left aside: {0}")]
    RefreshToken(TokenError),
}

/// Why a file gives no login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    #[error(transparent)]
    NotCodex(#[from] NotCodex),
    /// An object without tokens is what a logout leaves behind.
    #[error("nobody is logged in")]
    LoggedOut,
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// A file that is in order, but holds no ChatGPT login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCodex {
    #[error("it holds an API key, no ChatGPT login")]
    ApiKey,
    #[error("it holds another kind of login than ChatGPT's")]
    OtherLogin,
    #[error("it holds no tokens: a keyring does, or nobody is logged in")]
    Keyring,
    #[error("it belongs to another provider")]
    OtherProvider,
}

/// A file that is not in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Malformed {
    #[error("the file is empty")]
    Empty,
    #[error("it is no valid JSON (line {line}, column {column})")]
    Json { line: usize, column: usize },
    #[error("it holds JSON, but no object")]
    NotObject,
    #[error("it holds tokens, but neither in an object `tokens` nor with \"type\": \"codex\"")]
    UnknownShape,
    #[error("`access_token` is missing, blank or no text")]
    NoAccessToken,
    #[error("`access_token` cannot be used: {0}")]
    AccessToken(TokenError),
}

type Object = Map<String, Value>;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

const TOKEN_KEYS: [&str; 3] = ["access_token", "refresh_token", "id_token"];

/// Reads the bytes of one file.
///
/// # Errors
/// The reason why it gives no login.
pub fn parse(bytes: &[u8]) -> Result<CredentialFile, Rejection> {
    let text = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    if text.trim_ascii().is_empty() {
        return Err(Malformed::Empty.into());
    }
    // The parser's error is not kept as a source: it may quote the file.
    let value: Value = serde_json::from_slice(text)
        .map_err(|error| Malformed::Json { line: error.line(), column: error.column() })?;
    let Value::Object(mut top) = value else {
        return Err(Malformed::NotObject.into());
    };
    let tokens = match top.remove("tokens") {
        Some(Value::Object(tokens)) => Some(tokens),
        Some(_) | None => None,
    };
    if let Some(tokens) = tokens.filter(holds_tokens) {
        return login(Shape::Codex, &top, tokens);
    }
    let is_flat = top.get("type").and_then(Value::as_str) == Some("codex");
    if is_flat && holds_tokens(&top) {
        let tokens = TOKEN_KEYS.iter().filter_map(|key| top.remove_entry(*key)).collect();
        return login(Shape::Flat, &top, tokens);
    }
    Err(without_login(&top))
}

fn login(shape: Shape, top: &Object, mut tokens: Object) -> Result<CredentialFile, Rejection> {
    let mut faults = Vec::new();
    let id_token =
        tokens.get("id_token").and_then(Value::as_str).map_or_else(Claims::default, read);
    let access = take_text(&mut tokens, "access_token").ok_or(Malformed::NoAccessToken)?;
    let access_token = read(&access);
    let access = AccessToken::new(SecretString::from(access)).map_err(Malformed::AccessToken)?;
    let refresh = take_text(&mut tokens, "refresh_token").and_then(|text| {
        let token = RefreshToken::new(SecretString::from(text));
        token.map_err(|error| faults.push(Fault::RefreshToken(error))).ok()
    });
    let disabled = top.get("disabled").unwrap_or(&Value::Bool(false));
    if !disabled.is_boolean() {
        faults.push(Fault::DisabledType);
    }
    let mut credential = Credential::new(access, refresh);
    credential.expires_at = access_token.expires_at.or_else(|| time(top, "expired"));
    credential.last_refresh = time(top, "last_refresh");
    let login = Login {
        top_account_id: text(top, "account_id").and_then(AccountId::parse),
        tokens_account_id: text(&tokens, "account_id").and_then(AccountId::parse),
        id_token,
        access_token,
        email: text(top, "email").and_then(MaskedEmail::new),
        credential,
        enabled: *disabled == Value::Bool(false),
    };
    Ok(CredentialFile { shape, login, faults })
}

/// A token that shows no claims is opaque: the next source is asked then.
fn read(token: &str) -> Claims {
    jwt::claims(token).unwrap_or_default()
}

fn without_login(top: &Object) -> Rejection {
    let kind = text(top, "type").unwrap_or_default();
    let present = |key: &str| top.get(key).is_some_and(|it| !it.is_null());
    let mode = text(top, "auth_mode").unwrap_or_default();
    if !kind.is_empty() && !kind.eq_ignore_ascii_case("codex") {
        NotCodex::OtherProvider.into()
    } else if holds_tokens(top) {
        Malformed::UnknownShape.into()
    } else if text(top, "OPENAI_API_KEY").is_some() || mode.eq_ignore_ascii_case("apikey") {
        NotCodex::ApiKey.into()
    } else if present("personal_access_token") || present("agent_identity") {
        NotCodex::OtherLogin.into()
    } else if !mode.is_empty() {
        NotCodex::Keyring.into()
    } else {
        Rejection::LoggedOut
    }
}

fn holds_tokens(object: &Object) -> bool {
    TOKEN_KEYS.iter().any(|key| text(object, key).is_some())
}

/// A text that is not blank.
fn text<'a>(object: &'a Object, key: &str) -> Option<&'a str> {
    object.get(key).and_then(Value::as_str).filter(|it| !it.trim().is_empty())
}

/// Moves a text out, so that no second copy of a token stays behind.
fn take_text(object: &mut Object, key: &str) -> Option<String> {
    match object.remove(key) {
        Some(Value::String(text)) if !text.trim().is_empty() => Some(text),
        Some(_) | None => None,
    }
}

fn time(object: &Object, key: &str) -> Option<Timestamp> {
    text(object, key)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn jwt(claims: &Value) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    fn names(account: &str) -> String {
        jwt(&json!({"https://api.openai.com/auth": {"chatgpt_account_id": account}, "exp": 2_000}))
    }

    fn read_json(value: &Value) -> Result<CredentialFile, Rejection> {
        parse(value.to_string().as_bytes())
    }

    fn account(file: &CredentialFile) -> Option<&str> {
        file.login.account_id().map(AccountId::as_str)
    }

    #[test]
    fn codex_own_file_is_read() {
        let file = read_json(&json!({
            "auth_mode": "chatgpt", "OPENAI_API_KEY": "sk-made-at-login",
            "tokens": {
                "id_token": names("acct-1"), "access_token": names("acct-1"),
                "refresh_token": "rt-1", "account_id": "acct-1",
            },
            "last_refresh": "2026-11-30T23:13:37.803221861Z",
        }));
        let file = file.unwrap();
        assert_eq!((file.shape, account(&file)), (Shape::Codex, Some("acct-1")));
        let Login { credential, enabled, .. } = &file.login;
        assert!(*enabled && file.faults.is_empty() && !file.login.has_identity_conflict());
        assert!(credential.refresh.as_ref().unwrap().matches(b"rt-1"));
        assert_eq!(credential.expires_at, Timestamp::from_second(2_000).ok());
        assert!(credential.last_refresh.is_some());
    }

    #[test]
    fn a_flat_file_is_read() {
        let file = read_json(&json!({
            "type": "codex", "access_token": "opaque", "refresh_token": "rt-1", "id_token": "",
            "account_id": "acct-1", "email": "alice@example.com", "disabled": true,
            "expired": "2026-12-01T10:00:00+08:00", "last_refresh": "2026-11-30T23:13:37Z",
        }));
        let file = file.unwrap();
        assert_eq!((file.shape, account(&file)), (Shape::Flat, Some("acct-1")));
        assert!(!file.login.enabled && file.faults.is_empty());
        assert_eq!(file.login.email.unwrap().to_string(), "a***@example.com");
        let ends = file.login.credential.expires_at.unwrap();
        assert_eq!(ends.to_string(), "2026-12-01T02:00:00Z");
    }

    #[test]
    fn the_account_is_looked_for_in_order() {
        let (one, two) = (names("from-id"), names("from-access"));
        let table = [
            (json!("top"), json!("inner"), &one, "top"),
            (json!(" "), json!("inner"), &one, "inner"),
            (json!(7), json!(["inner"]), &one, "from-id"),
            (json!("a\nb"), json!("x".repeat(10_000)), &one, "from-id"),
            (json!(null), json!(null), &"a.b".to_owned(), "from-access"),
        ];
        for (top, inner, id_token, wanted) in table {
            let file = read_json(&json!({
                "account_id": top,
                "tokens": {"id_token": id_token, "access_token": two, "account_id": inner},
            }));
            assert_eq!(account(&file.unwrap()), Some(wanted));
        }
        let file = read_json(&json!({"tokens": {"access_token": "opaque"}})).unwrap();
        assert_eq!(account(&file), None);
    }

    #[test]
    fn only_true_disables_and_other_types_are_a_fault() {
        let table = [
            (json!(true), false, false),
            (json!(false), true, false),
            (json!("true"), false, true),
            (json!(1), false, true),
            (json!(null), false, true),
        ];
        for (disabled, enabled, faulty) in table {
            let tokens = json!({"access_token": "t"});
            let file = read_json(&json!({"tokens": tokens, "disabled": disabled})).unwrap();
            assert_eq!(file.login.enabled, enabled, "{disabled}");
            assert_eq!(file.faults == [Fault::DisabledType], faulty, "{disabled}");
        }
    }

    #[test]
    fn what_gives_no_login_says_why() {
        let table: [(&str, Rejection); 19] = [
            ("", Malformed::Empty.into()),
            (" \n", Malformed::Empty.into()),
            ("{\"tokens\": {\"access", Malformed::Json { line: 1, column: 19 }.into()),
            ("null", Malformed::NotObject.into()),
            ("[]", Malformed::NotObject.into()),
            ("\"canary\"", Malformed::NotObject.into()),
            ("{}", Rejection::LoggedOut),
            ("{\"tokens\": {}}", Rejection::LoggedOut),
            ("{\"tokens\": \"canary\"}", Rejection::LoggedOut),
            ("{\"type\": \"codex\"}", Rejection::LoggedOut),
            ("{\"OPENAI_API_KEY\": \"canary\", \"tokens\": null}", NotCodex::ApiKey.into()),
            ("{\"auth_mode\": \"chatgpt\", \"tokens\": null}", NotCodex::Keyring.into()),
            ("{\"personal_access_token\": \"canary\"}", NotCodex::OtherLogin.into()),
            (
                "{\"type\": \"claude\", \"access_token\": \"canary\"}",
                NotCodex::OtherProvider.into(),
            ),
            ("{\"type\": \"Codex\", \"access_token\": \"canary\"}", Malformed::UnknownShape.into()),
            ("{\"access_token\": \"canary\"}", Malformed::UnknownShape.into()),
            ("{\"tokens\": {\"refresh_token\": \"canary\"}}", Malformed::NoAccessToken.into()),
            (
                "{\"tokens\": {\"access_token\": \"canary\\r\\nx: y\"}}",
                Malformed::AccessToken(TokenError::ControlCharacter).into(),
            ),
            (
                "{\"tokens\": {\"access_token\": \"can\u{e4}ry\"}}",
                Malformed::AccessToken(TokenError::NotAscii).into(),
            ),
        ];
        for (text, wanted) in table {
            let rejection = parse(text.as_bytes()).unwrap_err();
            assert_eq!(rejection, wanted, "{text}");
            assert!(!format!("{rejection} {rejection:?}").contains("canary"), "{text}");
        }
    }

    #[test]
    fn of_a_key_that_is_given_twice_the_last_counts() {
        let text = r#"{"tokens": {"access_token": "a"}, "tokens": {"access_token": "b", "access_token": "c"}}"#;
        assert!(parse(text.as_bytes()).unwrap().login.credential.access.matches(b"c"));
    }

    #[test]
    fn a_byte_order_mark_is_accepted_and_utf_16_is_not() {
        let text = r#"{"tokens": {"access_token": "a"}}"#;
        assert!(parse(format!("\u{feff}{text}").as_bytes()).is_ok());
        let wide: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(matches!(parse(&wide), Err(Rejection::Malformed(Malformed::Json { .. }))));
    }

    #[test]
    fn deep_nesting_is_an_error_and_no_overflow() {
        let text = "[".repeat(100_000);
        assert!(matches!(
            parse(text.as_bytes()),
            Err(Rejection::Malformed(Malformed::Json { .. }))
        ));
    }

    #[test]
    fn debug_shows_nothing_of_the_file() {
        let file = read_json(&json!({
            "account_id": "canary-account", "email": "canary@example.com",
            "tokens": {
                "id_token": jwt(&json!({"sub": "canary-user", "email": "canary@example.com"})),
                "access_token": names("canary-access"), "refresh_token": "canary-refresh",
                "account_id": "canary-inner",
            },
        }));
        let shown = format!("{:?}", file.unwrap());
        assert!(!shown.contains("canary"), "{shown}");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn a_rejection_never_quotes_the_file(
            access in "canary[ -~]{0,20}", other in "\\PC{0,20}", cut in 0_usize..200,
        ) {
            let value = json!({
                "type": other, "disabled": other, "account_id": other,
                "tokens": {"access_token": access, "id_token": other, "refresh_token": access},
            });
            let text = value.to_string();
            let cut = text.len() - cut.min(text.len());
            let shown = format!("{:?}", parse(&text.as_bytes()[..cut]));
            prop_assert!(!shown.contains("canary"));
        }
    }
}
