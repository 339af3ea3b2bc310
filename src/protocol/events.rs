//! What one event of a streamed answer means, on SSE and on WebSocket alike.
//!
//! Pure. Events are read as they pass, whatever their size; of each only a few bounded members
//! are kept.

mod members;

use self::members::{DEPTH_MAX, PATHS};
use super::{json, sse};
use crate::domain::outcome::ErrorFacts;

/// Reads the events of a `text/event-stream`.
#[derive(Debug, Default)]
pub struct StreamReader {
    lines: sse::Scanner,
    event: EventReader,
}

/// Reads one event's JSON in pieces.
#[derive(Debug)]
pub struct EventReader {
    scanner: json::Scanner,
}

/// What one event says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventFacts {
    pub kind: EventKind,
    /// The event's `type`, if it has one of reasonable length.
    pub name: Option<String>,
    /// Offset just after the event in the piece that was fed last; 0 if the stream's end ended it.
    pub end: usize,
    /// `response.id`
    pub response_id: Option<String>,
    /// `response.model`
    pub model: Option<String>,
    /// There for [`EventKind::Failed`] and [`EventKind::Error`], even if the event tells nothing;
    /// for [`EventKind::Incomplete`] only if the event has an error.
    pub error: Option<ErrorFacts>,
    /// `response.incomplete_details.reason`
    pub incomplete_reason: Option<String>,
    /// `status` or `status_code` of an error frame.
    pub status: Option<u16>,
    /// `headers["retry-after"]` of an error frame, as it is written.
    pub retry_after: Option<String>,
    pub usage: Option<Usage>,
    /// `headers["x-codex-turn-state"]` of `response.metadata`. Belongs to the account.
    pub turn_state: Option<TurnState>,
    pub rate_limits: Option<RateLimits>,
}

/// The kinds of event that need different treatment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventKind {
    /// Output: from here on nothing can be repeated elsewhere.
    Semantic,
    /// Nothing of the answer itself.
    #[default]
    Quiet,
    /// `response.completed`: output too, and the end.
    Completed,
    /// `response.failed`
    Failed,
    /// `response.incomplete`: the caller's, whatever it says.
    Incomplete,
    /// `error`
    Error,
}

/// Tokens, as `response.usage` counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub input: u64,
    /// The part of `input` that came from the cache.
    pub cached_input: u64,
    pub output: u64,
    /// The part of `output` that was reasoning.
    pub reasoning: u64,
    pub total: u64,
}

/// `codex.rate_limits`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RateLimits {
    pub plan_type: Option<String>,
    pub primary: Option<Window>,
    pub secondary: Option<Window>,
}

/// One quota window. Which of the two is the short one differs by plan.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Window {
    pub used_percent: f64,
    pub window_minutes: Option<u64>,
    /// Seconds since the Unix epoch.
    pub reset_at: Option<i64>,
}

/// An account's opaque turn state.
#[derive(Clone, PartialEq, Eq)]
pub struct TurnState(String);

/// Events that begin with `response.` and are no output.
const QUIET: &[&str] =
    &["response.created", "response.in_progress", "response.queued", "response.metadata"];

/// Reads an event that is there in one piece, such as a WebSocket frame.
pub fn read_frame(frame: &[u8]) -> EventFacts {
    EventReader::default().read_frame(frame)
}

// === impl StreamReader ===

impl StreamReader {
    /// Reads on; calls `on_event` with each event that ends in this piece.
    pub fn feed(&mut self, piece: &[u8], on_event: &mut impl FnMut(EventFacts)) {
        let event = &mut self.event;
        self.lines.feed(piece, &mut |part| event.take(part, on_event));
    }

    /// Ends the stream; an event without its blank line counts.
    pub fn finish(&mut self, on_event: &mut impl FnMut(EventFacts)) {
        let event = &mut self.event;
        self.lines.finish(&mut |part| event.take(part, on_event));
    }
}

// === impl EventReader ===

impl EventReader {
    /// Reads on in the event's data.
    pub fn feed(&mut self, data: &[u8]) {
        // What is not JSON shows at the end.
        let _ = self.scanner.feed(data);
    }

    /// Ends the event and makes ready for the next one.
    pub fn finish(&mut self) -> EventFacts {
        let facts = match self.scanner.finish() {
            Ok(()) => members::facts(&self.scanner),
            Err(_) => EventFacts::default(),
        };
        self.scanner.reset();
        facts
    }

    /// Reads an event that is there in one piece.
    pub fn read_frame(&mut self, frame: &[u8]) -> EventFacts {
        self.feed(frame);
        EventFacts { end: frame.len(), ..self.finish() }
    }

    fn take(&mut self, part: sse::Part<'_>, on_event: &mut impl FnMut(EventFacts)) {
        match part {
            sse::Part::Data(data) => self.feed(data),
            sse::Part::End { end } => on_event(EventFacts { end, ..self.finish() }),
        }
    }
}

impl Default for EventReader {
    fn default() -> Self {
        Self { scanner: json::Scanner::new(&PATHS).with_depth_max(DEPTH_MAX) }
    }
}

// === impl EventKind ===

impl EventKind {
    /// The kind of an event of this type. Unknown types below `response.` are output.
    pub fn of(name: &str) -> Self {
        match name {
            "response.completed" => Self::Completed,
            "response.failed" => Self::Failed,
            "response.incomplete" => Self::Incomplete,
            "error" => Self::Error,
            _ if QUIET.contains(&name) => Self::Quiet,
            _ if name.starts_with("response.") => Self::Semantic,
            _ => Self::Quiet,
        }
    }
}

// === impl TurnState ===

impl TurnState {
    pub(super) fn new(text: String) -> Self {
        Self(text)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for TurnState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TurnState(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: &str) -> ErrorFacts {
        ErrorFacts { code: Some(code.to_owned()), ..ErrorFacts::default() }
    }

    #[test]
    fn the_type_decides_what_kind_of_event_it_is() {
        let table = [
            ("response.created", EventKind::Quiet),
            ("response.in_progress", EventKind::Quiet),
            ("response.queued", EventKind::Quiet),
            ("response.metadata", EventKind::Quiet),
            ("codex.rate_limits", EventKind::Quiet),
            ("keepalive", EventKind::Quiet),
            ("ping", EventKind::Quiet),
            ("responsesapi.websocket_timing", EventKind::Quiet),
            ("something.new", EventKind::Quiet),
            ("response", EventKind::Quiet),
            ("", EventKind::Quiet),
            ("response.output_item.added", EventKind::Semantic),
            ("response.output_item.done", EventKind::Semantic),
            ("response.output_text.delta", EventKind::Semantic),
            ("response.reasoning_text.delta", EventKind::Semantic),
            ("response.function_call_arguments.done", EventKind::Semantic),
            ("response.cancelled", EventKind::Semantic),
            ("response.something_new", EventKind::Semantic),
            ("response.created.not", EventKind::Semantic),
            ("response.", EventKind::Semantic),
            ("response.completed", EventKind::Completed),
            ("response.failed", EventKind::Failed),
            ("response.incomplete", EventKind::Incomplete),
            ("error", EventKind::Error),
        ];
        for (name, kind) in table {
            let facts = read_frame(format!(r#"{{"x":[1],"type":"{name}"}}"#).as_bytes());
            assert_eq!((facts.kind, facts.name.as_deref()), (kind, Some(name)));
        }
    }

    #[test]
    fn what_has_no_type_is_quiet() {
        for data in ["[DONE]", "", "{", "{}", "null", r#"{"type":5}"#, r#"{"x":{"type":"error"}}"#]
        {
            assert_eq!(read_frame(data.as_bytes()).kind, EventKind::Quiet, "{data}");
        }
        let cut = br#"{"type":"response.output_text.delta","delta":"x"#;
        assert_eq!(read_frame(cut).kind, EventKind::Quiet);
        let endless = format!(r#"{{"type":"response.{}"}}"#, "x".repeat(10_000));
        assert_eq!(read_frame(endless.as_bytes()).name, None);
    }

    #[test]
    fn a_completed_answer_tells_its_usage() {
        let usage = r#"{"input_tokens":100,"input_tokens_details":{"cached_tokens":60},
            "output_tokens":20,"output_tokens_details":{"reasoning_tokens":5},"total_tokens":120}"#;
        let all = Usage { input: 100, cached_input: 60, output: 20, reasoning: 5, total: 120 };
        let table = [
            (usage, Some(all)),
            (
                r#"{"input_tokens":1,"output_tokens":2}"#,
                Some(Usage { input: 1, output: 2, total: 3, ..Usage::default() }),
            ),
            (r#"{"input_tokens":-1,"output_tokens":"2"}"#, None),
            ("{}", None),
            ("null", None),
        ];
        for (usage, expected) in table {
            let event = format!(
                r#"{{"type":"response.completed","response":{{"output":[{{"usage":{{"input_tokens":9}}}}],
                "id":"resp_1","model":"gpt-5.5","error":null,"usage":{usage}}}}}"#
            );
            let facts = read_frame(event.as_bytes());
            assert_eq!(facts.usage, expected, "{event}");
            assert_eq!(facts.response_id.as_deref(), Some("resp_1"));
            assert_eq!(facts.model.as_deref(), Some("gpt-5.5"));
            assert_eq!((facts.kind, facts.error), (EventKind::Completed, None));
        }
    }

    #[test]
    fn a_failure_tells_its_error() {
        let limit = ErrorFacts {
            code: None,
            kind: Some("usage_limit_reached".to_owned()),
            plan_type: Some("pro".to_owned()),
            resets_at: Some(1_796_083_600),
            resets_in_seconds: Some(3_600),
        };
        let table = [
            (
                r#"{"type":"response.failed","response":{"error":{"code":"slow_down"}}}"#,
                error("slow_down"),
            ),
            (r#"{"type":"response.failed","response":{"error":null}}"#, ErrorFacts::default()),
            (r#"{"type":"response.failed"}"#, ErrorFacts::default()),
            (r#"{"type":"error","code":"server_error","message":"m"}"#, error("server_error")),
            (r#"{"type":"error"}"#, ErrorFacts::default()),
            (r#"{"type":"error","error":{"code":null,"message":"m"}}"#, ErrorFacts::default()),
            (
                r#"{"type":"error","status":429,"error":{"type":"usage_limit_reached","message":"m",
                "plan_type":"pro","resets_at":1796083600,"resets_in_seconds":3600.5}}"#,
                limit,
            ),
        ];
        for (event, expected) in table {
            assert_eq!(read_frame(event.as_bytes()).error, Some(expected), "{event}");
        }
    }

    #[test]
    fn an_incomplete_answer_tells_its_reason() {
        let facts = read_frame(
            br#"{"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"}}}"#,
        );
        assert_eq!(facts.kind, EventKind::Incomplete);
        assert_eq!(facts.incomplete_reason.as_deref(), Some("max_output_tokens"));
        assert_eq!(facts.error, None);
    }

    #[test]
    fn an_error_frame_tells_its_status_and_when_to_come_back() {
        let table = [
            (r#""status":429,"headers":{"retry-after":"30"}"#, Some(429), Some("30")),
            (r#""status_code":503,"headers":{"retry-after":5}"#, Some(503), Some("5")),
            (r#""status":"x","status_code":500"#, Some(500), None),
            (r#""status":70000"#, None, None),
            (r#""status":null"#, None, None),
        ];
        for (members, status, retry_after) in table {
            let facts = read_frame(format!(r#"{{"type":"error",{members}}}"#).as_bytes());
            assert_eq!(facts.status, status, "{members}");
            assert_eq!(facts.retry_after.as_deref(), retry_after, "{members}");
        }
    }

    #[test]
    fn metadata_brings_the_turn_state_and_shows_it_to_nobody() {
        let facts = read_frame(
            br#"{"type":"response.metadata","headers":{"x-codex-turn-state":"opaque"},"metadata":{}}"#,
        );
        assert!(!format!("{facts:?}").contains("opaque"));
        assert_eq!(facts.turn_state.unwrap().as_str(), "opaque");
    }

    #[test]
    fn rate_limits_are_read() {
        let facts = read_frame(
            br#"{"type":"codex.rate_limits","plan_type":"pro","rate_limits":{"primary":
            {"used_percent":12.5,"window_minutes":300,"reset_at":1796083866},"secondary":null}}"#,
        );
        let primary =
            Window { used_percent: 12.5, window_minutes: Some(300), reset_at: Some(1_796_083_866) };
        let plan_type = Some("pro".to_owned());
        let expected = RateLimits { plan_type, primary: Some(primary), secondary: None };
        assert_eq!(facts.rate_limits, Some(expected));
    }

    #[test]
    fn a_stream_gives_its_events_and_where_they_end() {
        let stream = b"event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\"}}\n\n: comment\n\ndata: {\"type\":\"response.output_text.delta\"}\n\ndata: [DONE]\n\ndata:{\"type\":\n";
        let tail = b"data:\"response.completed\"}";
        let (mut reader, mut seen) = (StreamReader::default(), Vec::new());
        let mut take = |event: EventFacts| seen.push((event.kind, event.end));
        reader.feed(stream, &mut take);
        reader.feed(tail, &mut take);
        reader.finish(&mut take);
        let end_of = |text: &[u8]| {
            stream.windows(text.len()).position(|it| it == text).unwrap() + text.len()
        };
        let expected = [
            (EventKind::Quiet, end_of(b"}}\n\n")),
            (EventKind::Semantic, end_of(b"delta\"}\n\n")),
            (EventKind::Quiet, end_of(b"[DONE]\n\n")),
            (EventKind::Completed, 0),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn usage_behind_ten_megabytes_of_output_is_found() {
        let (mut reader, mut seen) = (StreamReader::default(), Vec::new());
        let mut take = |event: EventFacts| seen.push(event);
        reader.feed(
            b"data: {\"type\":\"response.completed\",\"response\":{\"output\":[\"",
            &mut take,
        );
        for _ in 0..160 {
            reader.feed(&[b'x'; 64 * 1024], &mut take);
        }
        reader.feed(b"\"],\"usage\":{\"input_tokens\":7,\"output_tokens\":1}}}\n\n", &mut take);
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].usage.unwrap().input, 7);
    }
}
