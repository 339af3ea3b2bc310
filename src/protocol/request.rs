//! What the gateway wants to know of a request body, read in passing.
//!
//! Pure. The body is never changed and never kept; only the members named here are copied, each
//! up to a bound. Members are those of the top-level object, wherever they stand in it.

use std::{fmt, ops::Range};

use super::json::{self, Kind, Member, Path, Paths, Scanner, Value};

/// Bytes kept of a key-like value.
pub const KEY_MAX: usize = 512;
/// Bytes kept of the turn's metadata.
pub const TURN_METADATA_MAX: usize = 64 * 1024;

/// Reads one body, or one WebSocket frame.
#[derive(Debug)]
pub struct Inspector {
    scanner: Scanner,
}

/// What was found in a body that is one JSON object.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    pub model: Model,
    /// Where the model's value is in the decoded body, quotes included; the last one of several.
    pub model_span: Option<Range<usize>>,
    /// The frame's type; HTTP bodies have none.
    pub kind: Option<Field>,
    pub prompt_cache_key: Option<Field>,
    /// `session_id`
    pub session_id: Option<Field>,
    /// `sessionId`
    pub session_id_camel: Option<Field>,
    pub conversation_id: Option<Field>,
    /// `conversation.id`
    pub conversation_object_id: Option<Field>,
    pub previous_response_id: Option<Field>,
    pub service_tier: Option<Field>,
    pub stream: Option<bool>,
    pub generate: Option<bool>,
    /// `client_metadata["x-codex-turn-state"]`
    pub turn_state: Option<Field>,
    /// `client_metadata["x-codex-turn-metadata"]`, JSON in a string.
    pub turn_metadata: Option<Field>,
    /// Bytes of the decoded body.
    pub len: usize,
}

/// The top-level member `model`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Model {
    #[default]
    Missing,
    Text(String),
    TooLong,
    NotAString,
    Duplicated,
}

/// A member that was found.
#[derive(Clone, PartialEq, Eq)]
pub struct Field {
    pub value: FieldValue,
    /// Where the value is in the decoded body, quotes included.
    pub span: Range<usize>,
    /// Where its key begins, quote included.
    pub key_start: usize,
    /// How often it was there; the last one is the one described.
    pub count: u32,
}

/// What a member holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValue {
    Text(String),
    /// A string beyond its bound.
    TooLong,
    /// Another type, or no UTF-8.
    NotText,
}

/// Why a body is refused; the text is for the client's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("the body {0}")]
    NotJson(#[source] json::Malformed),
    #[error("the body must be one JSON object")]
    NotAnObject,
    #[error("the member `model` must be a string")]
    ModelNotAString,
    #[error("the member `model` is there more than once")]
    ModelDuplicated,
    #[error("the member `model` is longer than {KEY_MAX} bytes")]
    ModelTooLong,
}

static PATHS: Paths = Paths::new(&[
    key(&["model"]),
    key(&["type"]),
    key(&["prompt_cache_key"]),
    key(&["session_id"]),
    key(&["sessionId"]),
    key(&["conversation_id"]),
    key(&["conversation", "id"]),
    key(&["previous_response_id"]),
    key(&["service_tier"]),
    key(&["stream"]),
    key(&["generate"]),
    key(&["client_metadata", "x-codex-turn-state"]),
    Path { keys: &["client_metadata", "x-codex-turn-metadata"], text_max: TURN_METADATA_MAX },
]);

// Places in `PATHS`.
const MODEL: usize = 0;
const TYPE: usize = 1;
const PROMPT_CACHE_KEY: usize = 2;
const SESSION_ID: usize = 3;
const SESSION_ID_CAMEL: usize = 4;
const CONVERSATION_ID: usize = 5;
const CONVERSATION_OBJECT_ID: usize = 6;
const PREVIOUS_RESPONSE_ID: usize = 7;
const SERVICE_TIER: usize = 8;
const STREAM: usize = 9;
const GENERATE: usize = 10;
const TURN_STATE: usize = 11;
const TURN_METADATA: usize = 12;

const fn key(keys: &'static [&'static str]) -> Path {
    Path { keys, text_max: KEY_MAX }
}

/// Inspects a body that is there in one piece.
pub fn inspect(body: &[u8]) -> Result<Inspection, Malformed> {
    let mut inspector = Inspector::new();
    inspector.feed(body)?;
    inspector.finish()
}

// === impl Inspector ===

impl Inspector {
    pub fn new() -> Self {
        Self { scanner: Scanner::new(&PATHS) }
    }

    /// Reads on in the decoded body. After the first error every call returns that error.
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), Malformed> {
        self.scanner.feed(piece).map_err(Malformed::NotJson)
    }

    /// Ends the body. The model is judged by [`Model::name`], for routes that have one.
    pub fn finish(mut self) -> Result<Inspection, Malformed> {
        self.scanner.finish().map_err(Malformed::NotJson)?;
        if self.scanner.root() != Some(Kind::Object) {
            return Err(Malformed::NotAnObject);
        }
        let field = |index| self.scanner.member(index).map(|member| Field::of(&member));
        let boolean = |index| self.scanner.member(index).and_then(|member| member.boolean());
        let model = self.scanner.member(MODEL);
        Ok(Inspection {
            model_span: model.as_ref().map(|member| member.span.clone()),
            model: model.map(|member| Model::of(&member)).unwrap_or_default(),
            kind: field(TYPE),
            prompt_cache_key: field(PROMPT_CACHE_KEY),
            session_id: field(SESSION_ID),
            session_id_camel: field(SESSION_ID_CAMEL),
            conversation_id: field(CONVERSATION_ID),
            conversation_object_id: field(CONVERSATION_OBJECT_ID),
            previous_response_id: field(PREVIOUS_RESPONSE_ID),
            service_tier: field(SERVICE_TIER),
            stream: boolean(STREAM),
            generate: boolean(GENERATE),
            turn_state: field(TURN_STATE),
            turn_metadata: field(TURN_METADATA),
            len: self.scanner.offset(),
        })
    }
}

impl Default for Inspector {
    fn default() -> Self {
        Self::new()
    }
}

// === impl Model ===

impl Model {
    /// The name, `None` without the member; an error where nobody could say which model is meant.
    pub fn name(&self) -> Result<Option<&str>, Malformed> {
        match self {
            Self::Missing => Ok(None),
            Self::Text(name) => Ok(Some(name)),
            Self::TooLong => Err(Malformed::ModelTooLong),
            Self::NotAString => Err(Malformed::ModelNotAString),
            Self::Duplicated => Err(Malformed::ModelDuplicated),
        }
    }

    fn of(member: &Member<'_>) -> Self {
        if member.count > 1 {
            return Self::Duplicated;
        }
        match FieldValue::of(member) {
            FieldValue::Text(name) => Self::Text(name),
            FieldValue::TooLong => Self::TooLong,
            FieldValue::NotText => Self::NotAString,
        }
    }
}

// === impl Field ===

impl Field {
    /// The string, if it is one within its bound.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            FieldValue::Text(text) => Some(text),
            FieldValue::TooLong | FieldValue::NotText => None,
        }
    }

    fn of(member: &Member<'_>) -> Self {
        Self {
            value: FieldValue::of(member),
            span: member.span.clone(),
            key_start: member.key_start,
            count: member.count,
        }
    }
}

/// Without the text: it may identify a session or hold an account's state.
impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Field")
            .field("span", &self.span)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

// === impl FieldValue ===

impl FieldValue {
    fn of(member: &Member<'_>) -> Self {
        match member.value {
            Value::Text(text) => match std::str::from_utf8(text) {
                Ok(text) => Self::Text(text.to_owned()),
                Err(_) => Self::NotText,
            },
            Value::LongText => Self::TooLong,
            Value::LongNumber
            | Value::Number(_)
            | Value::Bool(_)
            | Value::Null
            | Value::Object
            | Value::Array => Self::NotText,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(body: &str) -> Result<Option<String>, Malformed> {
        inspect(body.as_bytes())?.model.name().map(|name| name.map(str::to_owned))
    }

    #[test]
    fn a_body_has_one_model_or_is_refused() {
        let long = format!(r#"{{"model":"{}"}}"#, "m".repeat(KEY_MAX + 1));
        let table = [
            (r#"{"model":"gpt-5.5"}"#, Ok(Some("gpt-5.5"))),
            (r#"{"input":[{"model":"other"}],"model":"gpt-5.5"}"#, Ok(Some("gpt-5.5"))),
            (r#"{"m\u006fdel":"gpt\u002d5.5"}"#, Ok(Some("gpt-5.5"))),
            (r#"{"model":""}"#, Ok(Some(""))),
            (r#"{"Model":"x","x":{"model":"y"}}"#, Ok(None)),
            ("{}", Ok(None)),
            (r#"{"model":"a","model":"a"}"#, Err(Malformed::ModelDuplicated)),
            (r#"{"model":"a","\u006dodel":"b"}"#, Err(Malformed::ModelDuplicated)),
            (r#"{"model":1,"model":"b"}"#, Err(Malformed::ModelDuplicated)),
            (r#"{"model":null}"#, Err(Malformed::ModelNotAString)),
            (r#"{"model":5}"#, Err(Malformed::ModelNotAString)),
            (r#"{"model":{"model":"x"}}"#, Err(Malformed::ModelNotAString)),
            (r#"{"model":["x"]}"#, Err(Malformed::ModelNotAString)),
            (&long, Err(Malformed::ModelTooLong)),
            ("[]", Err(Malformed::NotAnObject)),
            (r#""model""#, Err(Malformed::NotAnObject)),
            ("null", Err(Malformed::NotAnObject)),
            ("1", Err(Malformed::NotAnObject)),
        ];
        for (body, expected) in table {
            assert_eq!(model(body), expected.map(|name| name.map(str::to_owned)), "{body}");
        }
    }

    #[test]
    fn a_refusal_reads_as_a_sentence() {
        let table = [
            (r#"{"model":"gpt"#, "the body ends in the middle of a string at byte 13"),
            ("", "the body is empty at byte 0"),
            ("{} {}", "the body goes on after the end of its JSON value at byte 3"),
            ("model=x", "the body is not JSON: unexpected `m` at byte 0"),
            ("\u{0}", "the body is not JSON: unexpected byte 0x00 at byte 0"),
            (r#"{"a":[1,2"#, "the body ends in the middle of a number at byte 9"),
            (r#"{"a":[1,2]"#, "the body ends before its JSON value is complete at byte 10"),
            ("[]", "the body must be one JSON object"),
            (r#"{"model":1}"#, "the member `model` must be a string"),
        ];
        for (body, sentence) in table {
            assert_eq!(model(body).unwrap_err().to_string(), sentence);
        }
    }

    #[test]
    fn every_signal_is_found_at_the_top_level_only() {
        let body = r#"{"type":"response.create","input":[{"session_id":"no","stream":false}],
            "text":{"prompt_cache_key":"no"},"prompt_cache_key":"p","session_id":"s","sessionId":"c",
            "conversation_id":"i","conversation":{"id":"o","x":{"id":"no"}},"stream":true,
            "generate":false,"previous_response_id":"r","service_tier":"priority",
            "client_metadata":{"x-codex-turn-state":"t","x-codex-turn-metadata":"{\"a\":1}"}}"#;
        let found = inspect(body.as_bytes()).unwrap();
        let table = [
            (&found.kind, "response.create"),
            (&found.prompt_cache_key, "p"),
            (&found.session_id, "s"),
            (&found.session_id_camel, "c"),
            (&found.conversation_id, "i"),
            (&found.conversation_object_id, "o"),
            (&found.previous_response_id, "r"),
            (&found.service_tier, "priority"),
            (&found.turn_state, "t"),
            (&found.turn_metadata, r#"{"a":1}"#),
        ];
        for (field, text) in table {
            let field = field.as_ref().unwrap();
            assert_eq!(field.text(), Some(text));
            let written: String = serde_json::from_str(&body[field.span.clone()]).unwrap();
            assert_eq!(written, text);
            assert_eq!(body.as_bytes()[field.key_start], b'"');
        }
        assert_eq!((found.stream, found.generate), (Some(true), Some(false)));
        assert_eq!(found.len, body.len());
        assert_eq!(found.model, Model::Missing);
    }

    #[test]
    fn a_signal_of_another_type_or_size_is_noted_and_no_error() {
        let long = "k".repeat(KEY_MAX + 1);
        let metadata = "m".repeat(TURN_METADATA_MAX);
        let body = format!(
            r#"{{"prompt_cache_key":"{long}","session_id":7,"stream":"yes","conversation":"text",
            "client_metadata":{{"x-codex-turn-metadata":"{metadata}","x-codex-turn-state":null}}}}"#
        );
        let found = inspect(body.as_bytes()).unwrap();
        assert_eq!(found.prompt_cache_key.unwrap().value, FieldValue::TooLong);
        assert_eq!(found.session_id.unwrap().value, FieldValue::NotText);
        assert_eq!(found.turn_state.unwrap().value, FieldValue::NotText);
        assert_eq!(found.turn_metadata.unwrap().text(), Some(metadata.as_str()));
        assert_eq!((found.stream, found.conversation_object_id), (None, None));
    }

    #[test]
    fn a_name_that_is_not_utf_8_is_no_string() {
        let found = inspect(b"{\"model\":\"\xFF\"}").unwrap();
        assert_eq!(found.model, Model::NotAString);
    }

    #[test]
    fn a_captured_request_of_the_real_client_is_understood() {
        let body = include_bytes!("../../tests/fixtures/request_turn.json");
        for size in [1, 7, 4_096, body.len()] {
            let mut inspector = Inspector::new();
            for piece in body.chunks(size) {
                inspector.feed(piece).unwrap();
            }
            let found = inspector.finish().unwrap();
            let session = found.prompt_cache_key.as_ref().and_then(Field::text).unwrap();
            assert_eq!(found.model.name(), Ok(Some("gpt-5.5")));
            assert_eq!(session.len(), 36);
            assert_eq!(found.stream, Some(true));
            assert!(found.turn_metadata.unwrap().text().unwrap().contains(session));
            assert_eq!(found.len, body.len());
        }
    }

    #[test]
    fn debug_output_shows_no_state() {
        let body = br#"{"client_metadata":{"x-codex-turn-state":"opaque"}}"#;
        assert!(!format!("{:?}", inspect(body).unwrap()).contains("opaque"));
    }
}
