//! The script: which requests the simulated upstream answers otherwise than normally. Pure.
//!
//! A script is a list of rules, in JSON or TOML; the first rule that fits a request and has not
//! run out decides about it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The whole script.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    #[serde(default)]
    pub rules: Vec<Rule>,
}

/// Which requests, and what happens to them. A member that is absent fits everything.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The name of the account whose token the request carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<Route>,
    /// The model named in the body; such a rule is looked at only once the body has arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Begin with the n-th request that fits, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nth: Option<u64>,
    /// End after so many requests. Without it a rule with `nth` holds once, any other for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
    pub action: Action,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// In rules only: a turn on either transport, `responses` or `ws_message`.
    Turn,
    /// `POST responses`.
    Responses,
    /// `GET responses` with an upgrade.
    WsHandshake,
    /// One `response.create` on a WebSocket.
    WsMessage,
    Models,
    Compact,
    Memories,
    Search,
    Images,
    AccountsCheck,
    Usage,
    ConfigBundle,
    Settings,
    Files,
    OauthToken,
    OauthAuthorize,
    DeviceUsercode,
    DeviceToken,
    /// Everything else.
    Other,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Action {
    /// A plain HTTP answer; for `ws_message` the error frame with this status.
    Answer(Answer),
    /// No answer at all.
    Drop(DropHead),
    /// An event stream that goes wrong, on either transport.
    Stream(StreamPlan),
    /// The normal answer with other content.
    Reply(Reply),
    /// The normal answer of the token endpoint with other tokens.
    Issue(Issue),
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    pub status: u16,
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// A JSON body; it wins over the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<Value>,
    /// Wait so long before the head.
    #[serde(default)]
    pub delay_ms: u64,
    /// Answer as soon as so many bytes of the request body have come, and read no further.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_body_bytes: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropHead {
    pub how: Loss,
    /// As soon as so many bytes of the request body have come; without it after the whole body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_body_bytes: Option<u64>,
    #[serde(default)]
    pub delay_ms: u64,
}

/// What the token endpoint gives otherwise than it should.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issue {
    /// Give this account's tokens instead of the asking one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Leave out these members of the answer.
    #[serde(default)]
    pub omit: Vec<String>,
    /// How long the access token lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life_s: Option<i64>,
    /// As in a stream.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// Wait so long before the head; the refresh token is spent at once.
    #[serde(default)]
    pub delay_ms: u64,
    /// Give no answer, though the refresh token is spent.
    #[serde(default)]
    pub lose: bool,
}

/// How a connection is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// TCP RST.
    Reset,
    /// TCP FIN without the end that the protocol above wants.
    Close,
    /// HTTP/2 RST_STREAM; on HTTP/1.1 as `close`.
    StreamError,
    /// Nothing, until released.
    Silence,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamPlan {
    /// The events; without it those of the normal answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<EventSpec>>,
    /// `end` happens after so many events; without it after all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<usize>,
    #[serde(default)]
    pub end: End,
    #[serde(default)]
    pub event_delay_ms: u64,
    /// Wait so long before the head.
    #[serde(default)]
    pub delay_ms: u64,
    #[serde(default)]
    pub framing: Framing,
    /// Send `content-encoding: gzip`, each event flushed.
    #[serde(default)]
    pub gzip: bool,
    /// Added to the normal ones; one with the same name takes its place, an empty value removes it.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

/// One event: the name of a normal one, an object, or bytes sent as they are.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EventSpec {
    /// `created`, `in_progress`, `added`, `delta`, `done`, `completed`, `rate_limits`, `keepalive`.
    Named(String),
    /// Without any framing on SSE; one text frame on WebSocket.
    Raw {
        raw: String,
    },
    /// As `Raw`; one binary frame on WebSocket.
    RawBase64 {
        raw_base64: String,
    },
    Json(Value),
}

/// How a stream ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// As it should.
    #[default]
    Complete,
    /// The body ends in good order although no terminal event was sent.
    Eof,
    /// The connection closes without the protocol's own end.
    Cut,
    Reset,
    /// HTTP/2 RST_STREAM; on HTTP/1.1 as `cut`.
    StreamError,
    /// Half of the next event, then as `cut`.
    MidEvent,
    /// Half of the next event, then as `reset`.
    MidEventReset,
    /// Nothing until released; then the rest.
    Stall,
    /// `response.failed` with this error.
    Failed {
        code: String,
        message: String,
    },
    /// `response.incomplete` with this reason.
    Incomplete {
        reason: String,
    },
    /// The WebSocket error frame `{"type":"error","status":…}`; the same as an event on SSE.
    Error {
        status: u16,
        error: Value,
        #[serde(default)]
        headers: Value,
    },
    /// A WebSocket close frame; on SSE as `eof`.
    Close {
        code: u16,
        #[serde(default)]
        reason: String,
    },
}

/// How events are written on SSE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Framing {
    #[default]
    Lf,
    Cr,
    Crlf,
    /// The last event lacks its blank line.
    NoFinalBlank,
    /// No `event:` line.
    DataOnly,
    /// A comment before each event, and a byte order mark at the very start.
    Comments,
}

/// The content of a normal answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reply {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The number of text deltas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deltas: Option<usize>,
    /// Put an encrypted reasoning item first.
    #[serde(default)]
    pub reasoning: bool,
    /// Let the client run this shell command; the request's model decides in which tool's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Call this function, with these arguments, instead of a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<Call>,
    #[serde(default)]
    pub event_delay_ms: u64,
    /// As in a stream.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    pub name: String,
    /// A string for a custom tool, anything else for a function.
    pub arguments: Value,
}

/// Why a script was refused.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    #[error("the script is no valid JSON script: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the script is no valid TOML script: {0}")]
    Toml(#[from] Box<toml::de::Error>),
}

// === impl Script ===

impl Script {
    /// Reads JSON if the text begins with a brace, TOML otherwise.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        if text.trim_start().starts_with('{') {
            return Ok(serde_json::from_str(text)?);
        }
        toml::from_str(text).map_err(|fault| ScriptError::Toml(Box::new(fault)))
    }
}

impl From<Vec<Rule>> for Script {
    fn from(rules: Vec<Rule>) -> Self {
        Self { rules }
    }
}

// === impl Rule ===

impl Rule {
    pub fn new(action: Action) -> Self {
        Self { account: None, route: None, model: None, nth: None, times: None, action }
    }

    #[must_use]
    pub fn account(mut self, name: &str) -> Self {
        self.account = Some(name.to_owned());
        self
    }

    #[must_use]
    pub fn route(mut self, route: Route) -> Self {
        self.route = Some(route);
        self
    }

    #[must_use]
    pub fn model(mut self, model: &str) -> Self {
        self.model = Some(model.to_owned());
        self
    }

    #[must_use]
    pub fn nth(mut self, nth: u64) -> Self {
        self.nth = Some(nth);
        self
    }

    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }
}

// === impl Action ===

impl Action {
    /// A plain answer with a JSON body.
    pub fn json(status: u16, body: Value) -> Self {
        Self::Answer(Answer { status, json: Some(body), ..Answer::default() })
    }

    /// The answer of an account that has used up its quota.
    pub fn usage_limit_reached(resets_at: i64) -> Self {
        Self::json(429, super::quota::limit_body("pro", resets_at, 3600))
    }

    /// Loses the connection when the whole request has arrived.
    pub fn lose(how: Loss) -> Self {
        Self::Drop(DropHead { how, after_body_bytes: None, delay_ms: 0 })
    }

    /// The normal answer, with this end after so many events.
    pub fn end_after(after: usize, end: End) -> Self {
        Self::Stream(StreamPlan { after: Some(after), end, ..StreamPlan::default() })
    }

    /// Lets the client run a shell command.
    pub fn command(command: &str) -> Self {
        Self::Reply(Reply { command: Some(command.to_owned()), ..Reply::default() })
    }
}
