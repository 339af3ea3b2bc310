//! Changes a credential file where it must, and nowhere else. Pure.
//!
//! Each change is a splice: order, white space, numbers, members that nobody here knows, a byte
//! order mark and the like stay byte for byte. Of a key that is given twice the last is rewritten,
//! since it is the one that is read. What comes out was read back and says what it should.

use std::ops::Range;

use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

use super::{BYTE_ORDER_MARK, CredentialFile, Rejection, Shape, parse, spans::ObjectSpans};
use crate::{
    domain::{
        account::AccountId,
        credential::{AccessToken, Credential, RefreshToken},
        identity::{Claims, Login},
    },
    protocol::jwt,
};

/// What takes the place of a file's tokens.
#[derive(Clone, Debug)]
pub struct NewTokens {
    pub access: AccessToken,
    /// `None` keeps the one that is there.
    pub refresh: Option<RefreshToken>,
    /// `None` keeps the one that is there.
    pub id_token: Option<SecretString>,
    /// The account, if it is another than before: then it takes the place of the ids that the file
    /// states. `None` keeps those.
    pub account_id: Option<AccountId>,
    pub last_refresh: Timestamp,
}

/// Why a file is not changed. Holds no text of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    #[error("it holds no login to change: {0}")]
    NoLogin(#[from] Rejection),
    #[error("it cannot be changed exactly: sign in again to write it anew")]
    Inexact,
}

/// A file, and what is to be changed in it.
struct Draft<'a> {
    bytes: &'a [u8],
    top: ObjectSpans,
    splices: Vec<Splice>,
}

struct Splice {
    span: Range<usize>,
    with: Zeroizing<Vec<u8>>,
}

/// Puts new tokens into a file.
///
/// # Errors
/// A file without a login, or one that does not read back as it should.
pub fn rotate(bytes: &[u8], tokens: &NewTokens) -> Result<Zeroizing<Vec<u8>>, RewriteError> {
    let before = parse(bytes)?;
    let after = rotated(bytes, &before, tokens).ok_or(RewriteError::Inexact)?;
    let wanted = tokens.applied_to(&before.login, before.shape);
    checked(after, before.shape, &wanted)
}

/// Switches a file off or on. One that is on without saying so stays as it is.
///
/// # Errors
/// A file without a login, or one that does not read back as it should.
pub fn set_disabled(bytes: &[u8], disabled: bool) -> Result<Zeroizing<Vec<u8>>, RewriteError> {
    let before = parse(bytes)?;
    let after = switched(bytes, disabled).ok_or(RewriteError::Inexact)?;
    checked(after, before.shape, &Login { enabled: !disabled, ..before.login })
}

/// A new file of Codex's own shape. Where no account is given, the one that the tokens name is
/// stated, as Codex does.
pub fn new_file(tokens: &NewTokens) -> Zeroizing<Vec<u8>> {
    let id_token = tokens.id_token.as_ref().map(ExposeSecret::expose_secret);
    let claimed = || {
        let id = id_token.map(claims).and_then(|it| it.account_id);
        id.or_else(|| claims(tokens.access.expose()).account_id)
    };
    let account = tokens.account_id.clone().or_else(claimed);
    let refresh = tokens.refresh.as_ref().map_or("", RefreshToken::expose);
    let members = [
        ("id_token", id_token),
        ("access_token", Some(tokens.access.expose())),
        ("refresh_token", Some(refresh)),
        ("account_id", account.as_ref().map(AccountId::as_str)),
    ];
    let mut lines: Vec<Zeroizing<Vec<u8>>> = Vec::new();
    for (key, text) in members {
        let Some(text) = text else { continue };
        let comma = if lines.is_empty() { "" } else { "," };
        let line = [comma.as_bytes(), b"\n    \"", key.as_bytes(), b"\": ", &json(text)].concat();
        lines.push(Zeroizing::new(line));
    }
    let head = b"{\n  \"auth_mode\": \"chatgpt\",\n  \"OPENAI_API_KEY\": null,\n  \"tokens\": {";
    let tail = format!("\n  }},\n  \"last_refresh\": \"{}\"\n}}\n", tokens.last_refresh);
    let parts = [&head[..]].into_iter().chain(lines.iter().map(|it| it.as_slice()));
    let parts: Vec<&[u8]> = parts.chain([tail.as_bytes()]).collect();
    Zeroizing::new(parts.concat())
}

fn rotated(
    bytes: &[u8],
    before: &CredentialFile,
    tokens: &NewTokens,
) -> Option<Zeroizing<Vec<u8>>> {
    let mut draft = Draft::new(bytes)?;
    let inner = match before.shape {
        Shape::Codex => Some(ObjectSpans::read(bytes, draft.top.value("tokens")?.start)?),
        Shape::Flat => None,
    };
    draft.put(inner.as_ref(), "access_token", tokens.access.expose())?;
    if let Some(refresh) = &tokens.refresh {
        draft.put(inner.as_ref(), "refresh_token", refresh.expose())?;
    }
    if let Some(id_token) = &tokens.id_token {
        draft.put(inner.as_ref(), "id_token", id_token.expose_secret())?;
    }
    if let Some(id) = &tokens.account_id {
        let Login { top_account_id: top, tokens_account_id: within, .. } = &before.login;
        if top.is_some() {
            draft.put(None, "account_id", id.as_str())?;
        }
        if within.is_some() || top.is_none() {
            draft.put(inner.as_ref(), "account_id", id.as_str())?;
        }
    }
    draft.put(None, "last_refresh", &tokens.last_refresh.to_string())?;
    // The end of the old token must not pass for the new one's, where that tells none.
    let expired = draft.top.value("expired").and_then(|span| bytes.get(span));
    if expired.is_some_and(|it| it.starts_with(b"\"")) {
        let ends = claims(tokens.access.expose()).expires_at;
        draft.put(None, "expired", &ends.map(|it| it.to_string()).unwrap_or_default())?;
    }
    draft.apply()
}

fn switched(bytes: &[u8], disabled: bool) -> Option<Zeroizing<Vec<u8>>> {
    let mut draft = Draft::new(bytes)?;
    if disabled || draft.top.value("disabled").is_some() {
        draft.put_json(None, "disabled", Zeroizing::new(disabled.to_string().into_bytes()))?;
    }
    draft.apply()
}

/// The new text, if it says what it should.
fn checked(
    after: Zeroizing<Vec<u8>>,
    shape: Shape,
    wanted: &Login,
) -> Result<Zeroizing<Vec<u8>>, RewriteError> {
    match parse(&after) {
        Ok(read) if read.shape == shape && says_the_same(&read.login, wanted) => Ok(after),
        Ok(_) | Err(_) => Err(RewriteError::Inexact),
    }
}

/// Whether two logins are the same but for what no rewriting touches.
fn says_the_same(one: &Login, other: &Login) -> bool {
    let refresh = |it: &Login| it.credential.refresh.as_ref().map(RefreshToken::fingerprint);
    one.credential.fingerprint == other.credential.fingerprint
        && refresh(one) == refresh(other)
        && one.credential.expires_at == other.credential.expires_at
        && one.credential.last_refresh == other.credential.last_refresh
        && one.top_account_id == other.top_account_id
        && one.tokens_account_id == other.tokens_account_id
        && one.id_token == other.id_token
        && one.access_token == other.access_token
        && one.email == other.email
        && one.enabled == other.enabled
}

fn claims(token: &str) -> Claims {
    jwt::claims(token).unwrap_or_default()
}

/// Text as JSON, in one piece of memory from the start.
fn json(text: &str) -> Zeroizing<Vec<u8>> {
    let mut out = Zeroizing::new(Vec::with_capacity(6 * text.len() + 2));
    // Writing text to memory cannot fail; if it did, the result would not read back.
    drop(serde_json::to_writer(&mut *out, text));
    out
}

// === impl NewTokens ===

impl NewTokens {
    /// Whether a login holds these tokens. An answer may bring another refresh token beside the
    /// access token that was there before, so both count.
    pub fn are_in(&self, login: &Login) -> bool {
        let held = &login.credential;
        let has = |new: &RefreshToken| {
            held.refresh.as_ref().is_some_and(|it| it.fingerprint() == new.fingerprint())
        };
        held.fingerprint == self.access.fingerprint() && self.refresh.as_ref().is_none_or(has)
    }

    /// What a file with these tokens says, that said `login` before.
    #[must_use]
    pub fn applied_to(&self, login: &Login, shape: Shape) -> Login {
        let refresh = self.refresh.as_ref().or(login.credential.refresh.as_ref());
        let access_token = claims(self.access.expose());
        let mut credential = Credential::new(self.access.clone(), refresh.cloned());
        credential.expires_at = access_token.expires_at;
        credential.last_refresh = Some(self.last_refresh);
        let id_token = self.id_token.as_ref().map(|it| claims(it.expose_secret()));
        let mut renewed = Login {
            id_token: id_token.unwrap_or_else(|| login.id_token.clone()),
            access_token,
            credential,
            ..login.clone()
        };
        if let Some(id) = &self.account_id {
            let (top, inner) = (&mut renewed.top_account_id, &mut renewed.tokens_account_id);
            match (top, inner, shape) {
                (Some(top), Some(inner), _) => {
                    top.clone_from(id);
                    inner.clone_from(id);
                }
                (Some(stated), None, _) | (None, Some(stated), _) => stated.clone_from(id),
                (None, inner @ None, Shape::Codex) => *inner = Some(id.clone()),
                (top @ None, None, Shape::Flat) => *top = Some(id.clone()),
            }
        }
        renewed
    }

    /// These tokens, and of `earlier` ones what these leave as it was.
    #[must_use]
    pub fn after(self, earlier: &Self) -> Self {
        Self {
            refresh: self.refresh.or_else(|| earlier.refresh.clone()),
            id_token: self.id_token.or_else(|| earlier.id_token.clone()),
            account_id: self.account_id.or_else(|| earlier.account_id.clone()),
            ..self
        }
    }
}

// === impl Draft ===

impl<'a> Draft<'a> {
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let start = if bytes.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        Some(Self { bytes, top: ObjectSpans::read(bytes, start)?, splices: Vec::new() })
    }

    /// Gives a member of `object`, or else of the whole file, this text.
    fn put(&mut self, object: Option<&ObjectSpans>, key: &str, text: &str) -> Option<()> {
        self.put_json(object, key, json(text))
    }

    /// The same with any value. A member that is not there becomes the last, written as the last is.
    fn put_json(
        &mut self,
        object: Option<&ObjectSpans>,
        key: &str,
        value: Zeroizing<Vec<u8>>,
    ) -> Option<()> {
        let object = object.unwrap_or(&self.top);
        self.splices.push(match object.value(key) {
            Some(span) => Splice { span, with: value },
            None => {
                let (at, indent, colon) = object.next_member(self.bytes)?;
                let with = [&b","[..], indent, &json(key), colon, &value].concat();
                Splice { span: at..at, with: Zeroizing::new(with) }
            }
        });
        Some(())
    }

    fn apply(mut self) -> Option<Zeroizing<Vec<u8>>> {
        // Stable: what is added at one place stays in its order.
        self.splices.sort_by_key(|it| it.span.start);
        let added: usize = self.splices.iter().map(|it| it.with.len()).sum();
        let mut out = Zeroizing::new(Vec::with_capacity(self.bytes.len() + added));
        let mut at = 0;
        for Splice { span, with } in &self.splices {
            out.extend_from_slice(self.bytes.get(at..span.start)?);
            out.extend_from_slice(with);
            at = span.end;
        }
        out.extend_from_slice(self.bytes.get(at..)?);
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn jwt(claims: &Value) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    fn tokens() -> NewTokens {
        NewTokens {
            access: AccessToken::new("new-access".into()).unwrap(),
            refresh: Some(RefreshToken::new("new\"\\refresh".into()).unwrap()),
            id_token: Some("new-id".into()),
            account_id: None,
            last_refresh: "2026-12-01T10:00:00.5Z".parse().unwrap(),
        }
    }

    fn only_access() -> NewTokens {
        NewTokens { refresh: None, id_token: None, ..tokens() }
    }

    fn text(bytes: &Zeroizing<Vec<u8>>) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    fn rotated_text(before: &str, tokens: &NewTokens) -> String {
        text(&rotate(before.as_bytes(), tokens).unwrap()).to_owned()
    }

    #[test]
    fn codex_own_file_gets_new_tokens_and_keeps_everything_else() {
        let before = "\u{feff}{ \"auth_mode\":\"chatgpt\",\r\n\t\"big\": 123456789012345678901234567890.10,\n\
            \"tokens\" : {\"id_token\":\"i\",  \"access_token\":\"a\", \"x\": [ 1,{\"access_token\":0}],\"refresh_token\":\n\"r\",\
            \"account_id\":\"acct\"},  \"last_refresh\":\"2026-01-01T00:00:00Z\",\"\u{e4}\\u00e4\":1e5}\n\n";
        let wanted = before
            .replace("\"i\"", "\"new-id\"")
            .replace("\"a\"", "\"new-access\"")
            .replace("\"r\"", r#""new\"\\refresh""#)
            .replace("2026-01-01T00:00:00Z", "2026-12-01T10:00:00.5Z");
        assert_eq!(rotated_text(before, &tokens()), wanted);
    }

    #[test]
    fn a_flat_file_gets_new_tokens_and_a_new_end() {
        let before =
            r#"{"type":"codex","access_token":"a","expired":"2026-01-01T00:00:00Z","n":1}"#;
        let added = r#","refresh_token":"new\"\\refresh","id_token":"new-id","last_refresh":"2026-12-01T10:00:00.5Z"}"#;
        let head = r#"{"type":"codex","access_token":"new-access","expired":"","n":1"#;
        assert_eq!(rotated_text(before, &tokens()), format!("{head}{added}"));
        let access = AccessToken::new(jwt(&json!({"exp": 2_000})).into()).unwrap();
        let after = rotated_text(before, &NewTokens { access, ..only_access() });
        assert!(after.contains(r#""expired":"1970-01-01T00:33:20Z""#), "{after}");
        let number = r#"{"type":"codex","access_token":"a","expired":12}"#;
        assert!(rotated_text(number, &only_access()).contains(r#""expired":12"#));
    }

    #[test]
    fn what_the_answer_lacks_stays() {
        let before = r#"{"tokens":{"access_token":"a","refresh_token":"r","id_token":"i"},"last_refresh":null}"#;
        let wanted = r#"{"tokens":{"access_token":"new-access","refresh_token":"r","id_token":"i"},"last_refresh":"2026-12-01T10:00:00.5Z"}"#;
        assert_eq!(rotated_text(before, &only_access()), wanted);
    }

    #[test]
    fn of_a_key_that_is_given_twice_the_last_is_rewritten() {
        let table = [
            (
                r#"{"tokens":{"access_token":"x"},"tokens":{"access_token":"y","access_token":"a"},"last_refresh":1,"last_refresh":2}"#,
                r#"{"tokens":{"access_token":"x"},"tokens":{"access_token":"y","access_token":"new-access"},"last_refresh":1,"last_refresh":"2026-12-01T10:00:00.5Z"}"#,
            ),
            (
                r#"{"tokens":{"access_token":"x"},"type":"codex","tokens":null,"access_token":"a","last_refresh":""}"#,
                r#"{"tokens":{"access_token":"x"},"type":"codex","tokens":null,"access_token":"new-access","last_refresh":"2026-12-01T10:00:00.5Z"}"#,
            ),
            (
                r#"{"tok\u0065ns":{"access_token":"x","\u0061ccess_token":"a"},"last_refresh":""}"#,
                r#"{"tok\u0065ns":{"access_token":"x","\u0061ccess_token":"new-access"},"last_refresh":"2026-12-01T10:00:00.5Z"}"#,
            ),
        ];
        for (before, wanted) in table {
            assert_eq!(rotated_text(before, &only_access()), wanted);
        }
    }

    #[test]
    fn another_account_takes_the_place_of_the_ids_that_the_file_states() {
        let tokens =
            NewTokens { account_id: Some(AccountId::parse("new").unwrap()), ..only_access() };
        let table = [
            (
                r#""account_id":"o","#,
                r#","account_id":"o""#,
                r#""account_id":"new","#,
                r#","account_id":"new""#,
            ),
            (r#""account_id":"o","#, "", r#""account_id":"new","#, ""),
            ("", r#","account_id":"o""#, "", r#","account_id":"new""#),
            ("", "", "", r#","account_id":"new""#),
            (
                r#""account_id":7,"#,
                r#","account_id":" ""#,
                r#""account_id":7,"#,
                r#","account_id":"new""#,
            ),
        ];
        for (top, inner, new_top, new_inner) in table {
            let before =
                format!(r#"{{{top}"tokens":{{"access_token":"a"{inner}}},"last_refresh":""}}"#);
            let wanted = format!(
                r#"{{{new_top}"tokens":{{"access_token":"new-access"{new_inner}}},"last_refresh":"2026-12-01T10:00:00.5Z"}}"#
            );
            assert_eq!(rotated_text(&before, &tokens), wanted);
        }
        let flat = rotated_text(r#"{"type":"codex","access_token":"a"}"#, &tokens);
        assert!(flat.contains(r#","account_id":"new","#), "{flat}");
    }

    #[test]
    fn a_file_is_switched_in_its_own_style() {
        let table = [
            (
                r#"{"tokens":{"access_token":"a"}}"#,
                true,
                r#"{"tokens":{"access_token":"a"},"disabled":true}"#,
            ),
            (
                "{\n  \"tokens\": {\n    \"access_token\": \"a\"\n  },\n  \"n\": 1\n}\n",
                true,
                "{\n  \"tokens\": {\n    \"access_token\": \"a\"\n  },\n  \"n\": 1,\n  \"disabled\": true\n}\n",
            ),
            (
                r#"{ "tokens": {"access_token": "a"} }"#,
                true,
                r#"{ "tokens": {"access_token": "a"}, "disabled": true }"#,
            ),
            (r#"{"tokens":{"access_token":"a"}}"#, false, r#"{"tokens":{"access_token":"a"}}"#),
            (
                r#"{"disabled":1, "disabled" : "x","tokens":{"access_token":"a"}}"#,
                false,
                r#"{"disabled":1, "disabled" : false,"tokens":{"access_token":"a"}}"#,
            ),
            (
                r#"{"disabled":true,"tokens":{"access_token":"a"}}"#,
                true,
                r#"{"disabled":true,"tokens":{"access_token":"a"}}"#,
            ),
        ];
        for (before, disabled, wanted) in table {
            let after = set_disabled(before.as_bytes(), disabled).unwrap();
            assert_eq!(text(&after), wanted);
        }
    }

    #[test]
    fn a_new_file_is_codex_own() {
        let access = jwt(&json!({"https://api.openai.com/auth": {"chatgpt_account_id": "acct"}}));
        let access = AccessToken::new(access.into()).unwrap();
        let made = new_file(&NewTokens { access, ..tokens() });
        let value: Value = serde_json::from_slice(&made).unwrap();
        assert_eq!(value["tokens"]["account_id"], "acct");
        assert_eq!(
            (&value["auth_mode"], &value["OPENAI_API_KEY"]),
            (&json!("chatgpt"), &json!(null))
        );
        let keys: Vec<&String> = value["tokens"].as_object().unwrap().keys().collect();
        assert_eq!(keys.len(), 4);
        let read = parse(&made).unwrap();
        assert!(read.login.credential.refresh.unwrap().matches(b"new\"\\refresh"));
        let bare = new_file(&only_access());
        assert_eq!(
            parse(&bare).unwrap().login.credential.last_refresh,
            Some(tokens().last_refresh)
        );
    }

    #[test]
    fn a_file_without_a_login_is_refused_without_a_word_of_it() {
        for before in ["", "canary", "{\"canary\":1}", r#"{"tokens":{"refresh_token":"canary"}}"#] {
            for error in
                [rotate(before.as_bytes(), &tokens()), set_disabled(before.as_bytes(), true)]
            {
                let error = error.unwrap_err();
                assert!(!format!("{error} {error:?}").contains("canary"));
            }
        }
    }

    #[test]
    fn debug_shows_no_token() {
        let shown = format!("{:?}", tokens());
        assert!(!shown.contains("new"), "{shown}");
    }

    /// A JSON value with odd white space, in which keys that matter elsewhere occur.
    fn value() -> impl Strategy<Value = String> {
        let keys = ["access_token", "refresh_token", "id_token", "account_id", "tokens", "expired"];
        let odd = ["last_refresh", "disabled", "type", "acc\\u0065ss_token", "other \\\" }"];
        let key = prop::sample::select([&keys[..], &odd].concat());
        let leaves = [
            "\"codex\"",
            "\"\\\"}]{[,:\"",
            "123456789012345678901234567890.5e-3",
            "true",
            "null",
            "\"2026-01-01T00:00:00Z\"",
        ];
        let leaf = prop::sample::select(leaves.map(str::to_owned).to_vec());
        leaf.prop_recursive(3, 24, 6, move |inner| {
            let member = (space(), key.clone(), space(), inner.clone());
            let members = prop::collection::vec(member, 0..6).prop_map(|members| {
                let one = |(a, key, b, value)| format!("{a}\"{key}\"{b}:{a}{value}{b}");
                format!("{{{}}}", members.into_iter().map(one).collect::<Vec<_>>().join(","))
            });
            let items = prop::collection::vec(inner, 0..3);
            let items = items.prop_map(|it| format!("[{}]", it.join(" ,")));
            prop_oneof![4 => members, 1 => items]
        })
    }

    fn space() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec!["", " ", "\n  ", "\t\r\n"])
    }

    /// Members under keys of which nothing is known, each with a comma behind.
    fn filler() -> impl Strategy<Value = String> {
        prop::collection::vec((space(), value()), 0..3).prop_map(|members| {
            members.into_iter().map(|(a, value)| format!("{a}\"x\"{a}:{value}{a},")).collect()
        })
    }

    /// A flat file around which anything stands, even objects `tokens` that count.
    fn document() -> impl Strategy<Value = String> {
        let key = prop::sample::select(vec!["tokens", "x", "disabled", "last_refresh"]);
        prop::collection::vec((key, value()), 0..4).prop_map(|members| {
            let one = |(key, value)| format!("\"{key}\" : {value},");
            let members: String = members.into_iter().map(one).collect();
            format!("{{{members}\"type\":\"codex\",\"access_token\":\"a\"}}")
        })
    }

    /// A document with the values of the members that may change cut out, duplicates and all.
    fn skeleton(document: &str, keys: &[&str]) -> Value {
        let mut value: Value = serde_json::from_str(document).unwrap();
        let tokens_count = parse(document.as_bytes()).is_ok_and(|it| it.shape == Shape::Codex);
        let cut = |object: &mut Value| {
            let object = object.as_object_mut().unwrap();
            keys.iter().for_each(|key| drop(object.remove(*key)));
        };
        if tokens_count {
            cut(&mut value["tokens"]);
        }
        cut(&mut value);
        value
    }

    proptest! {
        #[test]
        fn outside_of_the_values_every_byte_stays(
            fill in prop::array::uniform5(filler()), space in prop::array::uniform4(space()),
        ) {
            let [f0, f1, f2, f3, f4] = fill;
            let [s0, s1, s2, s3] = space;
            let file = |access: &str, refresh: &str, id: &str, time: &str| format!(
                "{s0}{{{f0}{s1}\"last_refresh\"{s2}:{s3}\"{time}\",{f1}\"tokens\":{s3}{{{f2}\
                 \"refresh_token\"{s0}:{refresh}{s1},{f3}\"id_token\":{id}{s2},{s0}\"access_token\"\
                 {s1}:{s2}{access}{s3}}},{f4}\"y\":1}}{s2}"
            );
            let before = file("\"a\"", "\"r\"", "null", "");
            let refresh = r#""new\"\\refresh""#;
            let wanted = file("\"new-access\"", refresh, "\"new-id\"", "2026-12-01T10:00:00.5Z");
            prop_assert_eq!(rotated_text(&before, &tokens()), wanted);
        }

        #[test]
        fn whatever_counts_is_what_changes(before in document()) {
            prop_assume!(parse(before.as_bytes()).is_ok());
            let after = rotated_text(&before, &tokens());
            let keys = ["access_token", "refresh_token", "id_token", "last_refresh", "expired"];
            prop_assert_eq!(skeleton(&before, &keys), skeleton(&after, &keys));
            prop_assert_eq!(&rotated_text(&after, &tokens()), &after);
        }

        #[test]
        fn switching_there_and_back_ends_where_it_began(before in document()) {
            prop_assume!(parse(before.as_bytes()).is_ok());
            let off = set_disabled(before.as_bytes(), true).unwrap();
            let on = set_disabled(&off, false).unwrap();
            prop_assert_eq!(skeleton(&before, &["disabled"]), skeleton(text(&on), &["disabled"]));
            prop_assert_eq!(set_disabled(&on, true).unwrap(), off);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (rotate(&bytes, &tokens()), set_disabled(&bytes, true));
        }
    }
}
