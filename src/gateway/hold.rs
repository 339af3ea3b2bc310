//! How long the beginning of a stream is held back, and why it is let go. Pure over what is fed.
//!
//! Until the first output nothing of an answer has to be shown, so another account can still take
//! over without the client noticing. Past the limits the answer is committed: a client that waits
//! for its first byte is worse off than one that has to retry.

use std::time::Duration;

use http::HeaderValue;

use super::observe::StreamObserver;
use crate::{domain::outcome::ErrorFacts, protocol::events::EventKind};

/// The most that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldLimits {
    /// From the response head on.
    pub time: Duration,
    pub bytes: usize,
}

/// Why a stream is held no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// The first output is there.
    Output,
    /// It took too long or grew too large.
    Limit,
    /// The upstream told of a failure before any output.
    Failed(ErrorFacts),
    /// The stream ended in peace, without output.
    Ended,
    /// The connection broke before any output.
    Broken,
}

/// Watches the beginning of one stream.
#[derive(Debug)]
pub struct Hold {
    observer: StreamObserver,
    seen: usize,
    bytes_max: usize,
}

// === impl Hold ===

impl Hold {
    pub fn new(limits: &HoldLimits, encoding: Option<&HeaderValue>) -> Self {
        Self { observer: StreamObserver::new(encoding), seen: 0, bytes_max: limits.bytes }
    }

    /// Looks at one piece; tells whether the stream is let go with it.
    pub fn feed(&mut self, piece: &[u8]) -> Option<Release> {
        self.seen += piece.len();
        let mut release = None;
        self.observer.feed(piece, |event| first(&mut release, event.kind, event.error));
        release.or_else(|| {
            let blind = !self.observer.is_watching();
            (blind || self.seen > self.bytes_max).then_some(Release::Limit)
        })
    }

    /// The stream has ended.
    pub fn end(&mut self) -> Release {
        let mut release = None;
        self.observer.finish(|event| first(&mut release, event.kind, event.error));
        release.unwrap_or(Release::Ended)
    }
}

/// The first event that decides, decides.
fn first(release: &mut Option<Release>, kind: EventKind, error: Option<ErrorFacts>) {
    let decides = match kind {
        EventKind::Quiet => return,
        EventKind::Failed | EventKind::Error => Release::Failed(error.unwrap_or_default()),
        // An incomplete answer is one: the model stopped for a reason of the request's.
        EventKind::Semantic | EventKind::Completed | EventKind::Incomplete => Release::Output,
    };
    release.get_or_insert(decides);
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HoldLimits = HoldLimits { time: Duration::from_secs(10), bytes: 1_000 };

    fn event(data: &str) -> String {
        format!("data: {data}\n\n")
    }

    fn run(stream: &str, size: usize) -> Release {
        let mut hold = Hold::new(&LIMITS, None);
        for piece in stream.as_bytes().chunks(size) {
            if let Some(release) = hold.feed(piece) {
                return release;
            }
        }
        hold.end()
    }

    #[test]
    fn quiet_events_wait_and_the_first_output_goes() {
        let quiet = [
            r#"{"type":"response.created"}"#,
            r#"{"type":"response.in_progress"}"#,
            r#"{"type":"response.queued"}"#,
            r#"{"type":"codex.rate_limits"}"#,
            r#"{"type":"keepalive"}"#,
        ]
        .map(event)
        .concat();
        assert_eq!(run(&quiet, 7), Release::Ended);
        for output in ["response.output_item.added", "response.completed", "response.new_thing"] {
            let stream = format!("{quiet}{}", event(&format!(r#"{{"type":"{output}"}}"#)));
            for size in [1, 13, 4_096] {
                assert_eq!(run(&stream, size), Release::Output, "{output} in pieces of {size}");
            }
        }
    }

    #[test]
    fn a_failure_before_output_is_told_with_its_code() {
        let stream = event(r#"{"type":"response.created"}"#)
            + &event(r#"{"type":"response.failed","response":{"error":{"code":"server_error"}}}"#);
        let Release::Failed(facts) = run(&stream, 5) else { panic!("not a failure") };
        assert_eq!(facts.code.as_deref(), Some("server_error"));
    }

    #[test]
    fn a_failure_after_output_is_the_streams_own() {
        let stream = event(r#"{"type":"response.output_text.delta"}"#)
            + &event(r#"{"type":"response.failed"}"#);
        assert_eq!(run(&stream, 4_096), Release::Output);
    }

    #[test]
    fn no_more_is_held_than_allowed() {
        let stream = event(r#"{"type":"keepalive"}"#).repeat(100);
        assert_eq!(run(&stream, 100), Release::Limit);
    }

    #[test]
    fn a_stream_that_cannot_be_read_is_not_held() {
        let mut hold = Hold::new(&LIMITS, Some(&HeaderValue::from_static("br")));
        assert_eq!(hold.feed(b"????"), Some(Release::Limit));
    }
}
