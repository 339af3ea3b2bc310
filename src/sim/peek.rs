//! What the simulated upstream reads of a request body. Pure.
//!
//! No tree is built: a load benchmark's bodies pass through here.

use std::{borrow::Cow, fmt, io::Read};

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

/// Encrypted content made here begins so, and goes on with the account's name and a dot.
pub(super) const SEALED: &str = "gAAAAAsim.";

/// A turn state made here begins so.
pub(super) const TURN_STATE: &str = "simts.";

/// The members that matter; of a member given twice the last counts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Peek {
    pub(super) kind: Option<String>,
    pub(super) model: Option<String>,
    pub(super) previous_response_id: Option<String>,
    /// `generate` is false in a prewarm.
    pub(super) prewarm: bool,
}

/// Takes the content encoding off; `None` if it can't be.
pub(super) fn decode<'a>(body: &'a [u8], encoding: Option<&str>) -> Option<Cow<'a, [u8]>> {
    let mut plain = Vec::new();
    match encoding.map(str::to_ascii_lowercase).as_deref() {
        None | Some("" | "identity") => return Some(Cow::Borrowed(body)),
        Some("zstd") => zstd::stream::copy_decode(body, &mut plain).ok()?,
        Some("gzip") => {
            flate2::read::MultiGzDecoder::new(body).read_to_end(&mut plain).ok()?;
        }
        Some(_) => return None,
    }
    Some(Cow::Owned(plain))
}

/// The name of an account, other than `own`, that made encrypted content in this body.
pub(super) fn foreign_seal(body: &[u8], own: &str) -> Option<String> {
    memchr::memmem::find_iter(body, SEALED).find_map(|at| {
        let name = maker(&body[at + SEALED.len()..])?;
        (name != own).then_some(name)
    })
}

/// The name of the account that made this turn state.
pub(super) fn turn_state_maker(state: &str) -> Option<String> {
    maker(state.strip_prefix(TURN_STATE)?.as_bytes())
}

/// The turn state that a WebSocket frame carries in its client metadata.
pub(super) fn turn_state_in(body: &[u8]) -> Option<String> {
    let at = memchr::memmem::find(body, TURN_STATE.as_bytes())?;
    maker(&body[at + TURN_STATE.len()..])
}

pub(super) fn wants_compaction(body: &[u8]) -> bool {
    memchr::memmem::find(body, br#""compaction_trigger""#).is_some()
}

/// Whether a lite model's tools come in the input, where the shell is a script of the tool `exec`.
pub(super) fn is_lite(body: &[u8]) -> bool {
    memchr::memmem::find(body, br#""additional_tools""#).is_some()
}

fn maker(after_marker: &[u8]) -> Option<String> {
    let end = memchr::memchr(b'.', after_marker)?;
    Some(String::from_utf8_lossy(&after_marker[..end]).into_owned())
}

// === impl Peek ===

impl Peek {
    pub(super) fn of(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }
}

impl<'de> Deserialize<'de> for Peek {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Members)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Peek;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a request object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Peek, A::Error> {
        let mut peek = Peek::default();
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match key.0.as_ref() {
                "type" => peek.kind = map.next_value()?,
                "model" => peek.model = map.next_value()?,
                "previous_response_id" => peek.previous_response_id = map.next_value()?,
                "generate" => peek.prewarm = map.next_value::<Option<bool>>()? == Some(false),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(peek)
    }
}

/// A key, borrowed where it holds no escape.
struct Text<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Key;
        impl<'de> Visitor<'de> for Key {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E: de::Error>(self, key: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(key)))
            }

            fn visit_str<E: de::Error>(self, key: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(key.to_owned())))
            }
        }
        deserializer.deserialize_str(Key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_two_models_counts_and_other_doubles_do_no_harm() {
        let peek = Peek::of(br#"{"a":1,"model":"x","a":[{"model":"z"}],"model":"y"}"#).unwrap();
        assert_eq!(peek.model.as_deref(), Some("y"));
    }

    #[test]
    fn a_prewarm_says_generate_false() {
        assert!(Peek::of(br#"{"generate":false}"#).unwrap().prewarm);
        assert!(!Peek::of(br#"{"generate":true}"#).unwrap().prewarm);
        assert!(!Peek::of(b"{}").unwrap().prewarm);
        assert_eq!(Peek::of(b"[]"), None);
    }

    #[test]
    fn a_seal_of_another_account_is_found_among_own_ones() {
        let body = br#"{"x":"gAAAAAsim.a.1","y":"gAAAAAsim.b.2"}"#;
        assert_eq!(foreign_seal(body, "a").as_deref(), Some("b"));
        assert_eq!(foreign_seal(&body[..20], "a"), None);
    }

    #[test]
    fn zstd_comes_off() {
        let packed = zstd::encode_all(&b"hello"[..], 1).unwrap();
        assert_eq!(decode(&packed, Some("zstd")).as_deref(), Some(&b"hello"[..]));
        assert_eq!(decode(b"rubbish", Some("zstd")), None);
    }
}
