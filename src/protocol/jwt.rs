//! The claims of an OpenAI token. Pure.
//!
//! No signature is checked: the claims only tell accounts apart, and the upstream judges the token.
//! A claim of the wrong type counts as absent. No error holds any text of a token.

use jiff::{SignedDuration, Timestamp};
use jsonwebtoken::{dangerous::insecure_decode_claims, errors::ErrorKind};
use serde_json::{Map, Value};

use crate::domain::{
    account::{AccountId, MaskedEmail},
    identity::{Claims, SeatKind},
};

/// The longest token that is looked into.
const TOKEN_BYTES_MAX: usize = 64 * 1024;

const AUTH_CLAIM: &str = "https://api.openai.com/auth";
const PROFILE_CLAIM: &str = "https://api.openai.com/profile";

/// The longest plan name that is believed.
const PLAN_BYTES_MAX: usize = 64;

/// Why a token shows no claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    #[error("the token is too long to look into")]
    TooLong,
    #[error("the token is no JWT whose claims are a JSON object")]
    NotJwt,
    #[error("the claims of the token are not base64url")]
    Encoding,
}

/// Reads the claims of `token`.
///
/// # Errors
/// A text that is no JWT, which an access token need not be.
pub fn claims(token: &str) -> Result<Claims, JwtError> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(JwtError::TooLong);
    }
    // The library's error is not kept as a source: it may quote the claims.
    let object: Map<String, Value> = insecure_decode_claims(token).map_err(|error| {
        if matches!(error.kind(), ErrorKind::Base64(_)) {
            JwtError::Encoding
        } else {
            JwtError::NotJwt
        }
    })?;
    Ok(read(&object))
}

fn read(object: &Map<String, Value>) -> Claims {
    let auth = object.get(AUTH_CLAIM).and_then(Value::as_object);
    let auth_text = |key: &str| auth.and_then(|it| it.get(key)).and_then(Value::as_str);
    let profile = object.get(PROFILE_CLAIM).and_then(Value::as_object);
    let address = |value: &Value| value.as_str().and_then(MaskedEmail::new);
    let fedramp = auth.and_then(|it| it.get("chatgpt_account_is_fedramp"));
    let mut claims = Claims {
        account_id: auth_text("chatgpt_account_id").and_then(AccountId::parse),
        email: object
            .get("email")
            .and_then(address)
            .or_else(|| profile.and_then(|it| it.get("email")).and_then(address)),
        plan: auth_text("chatgpt_plan_type").and_then(plan),
        fedramp: fedramp == Some(&Value::Bool(true)),
        expires_at: object.get("exp").and_then(numeric_date),
        ..Claims::default()
    };
    for (kind, text) in [
        (SeatKind::AccountUser, auth_text("chatgpt_account_user_id")),
        (SeatKind::ChatgptUser, auth_text("chatgpt_user_id")),
        (SeatKind::User, auth_text("user_id")),
        (SeatKind::Subject, object.get("sub").and_then(Value::as_str)),
    ] {
        claims.users.set(kind, text.unwrap_or_default());
    }
    claims
}

fn plan(text: &str) -> Option<String> {
    let text = text.trim();
    let fits = !text.is_empty()
        && text.len() <= PLAN_BYTES_MAX
        && text.bytes().all(|it| it.is_ascii_graphic() || it == b' ');
    fits.then(|| text.to_owned())
}

/// A time in seconds since the Unix epoch, whole or not.
fn numeric_date(value: &Value) -> Option<Timestamp> {
    if let Some(second) = value.as_i64() {
        return Timestamp::from_second(second).ok();
    }
    let since_epoch = SignedDuration::try_from_secs_f64(value.as_f64()?).ok()?;
    Timestamp::from_duration(since_epoch).ok()
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn token(claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.c2ln", part(&json!({"alg": "none"})), part(claims))
    }

    fn read_json(value: &Value) -> Claims {
        claims(&token(value)).unwrap()
    }

    #[test]
    fn the_claims_of_a_real_token_are_found() {
        let found = read_json(&json!({
            "email": "alice@example.com",
            "sub": "auth0|1",
            "exp": 1_796_000_000,
            AUTH_CLAIM: {
                "chatgpt_account_id": "acct-1",
                "chatgpt_plan_type": "team",
                "chatgpt_user_id": "user-1",
                "chatgpt_account_user_id": "user-1__acct-1",
                "user_id": "user-1",
                "chatgpt_account_is_fedramp": true,
            },
        }));
        let mut wanted = Claims {
            account_id: AccountId::parse("acct-1"),
            email: MaskedEmail::new("alice@example.com"),
            plan: Some("team".into()),
            fedramp: true,
            expires_at: Timestamp::from_second(1_796_000_000).ok(),
            ..Claims::default()
        };
        wanted.users.set(SeatKind::AccountUser, "user-1__acct-1");
        wanted.users.set(SeatKind::ChatgptUser, "user-1");
        wanted.users.set(SeatKind::User, "user-1");
        wanted.users.set(SeatKind::Subject, "auth0|1");
        assert_eq!(found, wanted);
    }

    #[test]
    fn the_profile_gives_the_address_if_the_token_does_not() {
        let profile = json!({ PROFILE_CLAIM: { "email": "bob@example.com" } });
        assert_eq!(read_json(&profile).email, MaskedEmail::new("bob@example.com"));
    }

    #[test]
    fn a_claim_of_the_wrong_type_is_absent() {
        let wrong =
            [json!(1), json!([]), json!({}), json!(null), json!(true), json!(" "), json!("\n")];
        for value in wrong {
            let auth = json!({
                "chatgpt_account_id": value, "chatgpt_plan_type": value, "user_id": value,
                "chatgpt_user_id": value, "chatgpt_account_user_id": value,
                "chatgpt_account_is_fedramp": "true",
            });
            let object = json!({ AUTH_CLAIM: auth, "sub": value, "email": value, "exp": "soon" });
            assert_eq!(read_json(&object), Claims::default(), "{value}");
            assert_eq!(read_json(&json!({ AUTH_CLAIM: value })), Claims::default());
        }
    }

    #[test]
    fn a_time_beyond_all_bounds_is_absent() {
        for exp in [json!(1e300), json!(-1e300), json!(u64::MAX), json!(i64::MIN)] {
            assert_eq!(read_json(&json!({ "exp": exp })).expires_at, None, "{exp}");
        }
        let halves = read_json(&json!({ "exp": 1.5 })).expires_at;
        assert_eq!(halves, Timestamp::from_millisecond(1_500).ok());
    }

    #[test]
    fn what_is_no_jwt_gives_its_reason_and_no_text() {
        let canary = URL_SAFE_NO_PAD.encode("\"canary\"");
        let deep = URL_SAFE_NO_PAD.encode("[".repeat(10_000));
        let table = [
            ("canary".to_owned(), JwtError::NotJwt),
            ("canary.canary".to_owned(), JwtError::NotJwt),
            ("a.canary!.c".to_owned(), JwtError::Encoding),
            (format!("a.{canary}.c"), JwtError::NotJwt),
            (format!("a.{deep}.c"), JwtError::NotJwt),
            ("a..c".to_owned(), JwtError::NotJwt),
            (format!("a.{}.c", "x".repeat(1 << 20)), JwtError::TooLong),
        ];
        for (text, wanted) in table {
            let error = claims(&text).unwrap_err();
            assert_eq!(error, wanted);
            assert!(!format!("{error} {error:?}").contains("canary"));
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,200}") {
            let _ = claims(&text);
        }

        #[test]
        fn no_claims_make_it_panic(json in "[\\[\\]{}:,\"a-z0-9. -]{0,80}") {
            let _ = claims(&format!("a.{}.c", URL_SAFE_NO_PAD.encode(json)));
        }
    }
}
