//! From a turn and a plan to what is sent when. Pure.

use std::{io::Write, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use serde_json::json;

use super::{
    events::{Event, Turn},
    script::{End, EventSpec, Framing, StreamPlan},
};

/// One thing to do, on either transport.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cue {
    Event(Event),
    Text(String),
    Binary(Vec<u8>),
    Delay(Duration),
    /// Half of this, then the loss of the connection.
    Half {
        whole: Box<Cue>,
        by_reset: bool,
    },
    /// Wait for the release.
    Stall,
    Lose {
        by_reset: bool,
    },
    StreamError,
    Close {
        code: u16,
        reason: String,
    },
}

/// One thing for the body of an HTTP answer to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Data(Bytes),
    Delay(Duration),
    Stall,
    Lose { by_reset: bool },
    StreamError,
}

/// What is to be done for this plan. `usual` are the events of the normal answer.
pub(super) fn cues(plan: &StreamPlan, turn: &Turn, usual: Vec<Event>) -> Vec<Cue> {
    let all: Vec<Cue> = match &plan.events {
        None => usual.into_iter().map(Cue::Event).collect(),
        Some(specs) => specs.iter().map(|spec| cue_of(spec, turn)).collect(),
    };
    let before = plan.after.unwrap_or(all.len()).min(all.len());
    let mut cues = Vec::with_capacity(all.len() + 2);
    let mut rest = all.into_iter();
    for cue in rest.by_ref().take(before) {
        if plan.event_delay_ms > 0 && !cues.is_empty() {
            cues.push(Cue::Delay(Duration::from_millis(plan.event_delay_ms)));
        }
        cues.push(cue);
    }
    match &plan.end {
        End::Complete => cues.extend(rest),
        End::Eof => {}
        End::Cut => cues.push(Cue::Lose { by_reset: false }),
        End::Reset => cues.push(Cue::Lose { by_reset: true }),
        End::StreamError => cues.push(Cue::StreamError),
        End::MidEvent => cues.push(half(rest.next(), turn, false)),
        End::MidEventReset => cues.push(half(rest.next(), turn, true)),
        End::Stall => {
            cues.push(Cue::Stall);
            cues.extend(rest);
        }
        End::Failed { code, message } => cues.push(Cue::Event(turn.failed(code, message))),
        End::Incomplete { reason } => cues.push(Cue::Event(turn.incomplete(reason))),
        End::Error { status, error, headers } => {
            let json = json!({
                "type": "error", "status": status, "error": error, "headers": headers,
            });
            cues.push(Cue::Event(Event::new("error", json.to_string())));
        }
        End::Close { code, reason } => {
            cues.push(Cue::Close { code: *code, reason: reason.clone() });
        }
    }
    cues
}

/// The cues as an event stream over HTTP.
pub(super) fn steps(cues: Vec<Cue>, framing: Framing, gzip: bool) -> Vec<Step> {
    let mut writer = Writer { gzip: gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast())) };
    let mut steps = Vec::with_capacity(cues.len());
    if framing == Framing::Comments {
        steps.push(Step::Data(writer.write("\u{feff}".as_bytes())));
    }
    let last = cues.iter().rposition(|cue| matches!(cue, Cue::Event(_)));
    for (at, cue) in cues.into_iter().enumerate() {
        match cue {
            Cue::Event(_) | Cue::Text(_) | Cue::Binary(_) => {
                let bytes = written(cue, framing, Some(at) == last);
                steps.push(Step::Data(writer.write(&bytes)));
            }
            Cue::Half { whole, by_reset } => {
                let bytes = written(*whole, framing, false);
                steps.push(Step::Data(writer.write(&bytes[..bytes.len() / 2])));
                steps.push(Step::Lose { by_reset });
            }
            Cue::Delay(delay) => steps.push(Step::Delay(delay)),
            Cue::Stall => steps.push(Step::Stall),
            Cue::Lose { by_reset } => steps.push(Step::Lose { by_reset }),
            Cue::StreamError => steps.push(Step::StreamError),
            // The body just ends.
            Cue::Close { .. } => {}
        }
    }
    steps.extend(writer.finish().map(Step::Data));
    steps
}

fn cue_of(spec: &EventSpec, turn: &Turn) -> Cue {
    match spec {
        EventSpec::Named(name) => turn.named(name).map_or_else(
            || Cue::Text(format!(": the simulator knows no event {name}\n\n")),
            Cue::Event,
        ),
        EventSpec::Raw { raw } => Cue::Text(raw.clone()),
        EventSpec::RawBase64 { raw_base64 } => {
            Cue::Binary(BASE64_STANDARD.decode(raw_base64).unwrap_or_default())
        }
        EventSpec::Json(value) => {
            let kind = value.get("type").and_then(|it| it.as_str()).unwrap_or("message");
            Cue::Event(Event::new(kind, value.to_string()))
        }
    }
}

fn half(cue: Option<Cue>, turn: &Turn, by_reset: bool) -> Cue {
    let cue = cue.unwrap_or_else(|| Cue::Event(turn.failed("server_error", "cut")));
    Cue::Half { whole: Box::new(cue), by_reset }
}

fn written(cue: Cue, framing: Framing, last: bool) -> Vec<u8> {
    match cue {
        Cue::Event(event) => event.framed(framing, last).into_bytes(),
        Cue::Text(text) => text.into_bytes(),
        Cue::Binary(bytes) => bytes,
        Cue::Half { .. }
        | Cue::Delay(_)
        | Cue::Stall
        | Cue::Lose { .. }
        | Cue::StreamError
        | Cue::Close { .. } => Vec::new(),
    }
}

/// Compresses, or doesn't.
struct Writer {
    gzip: Option<GzEncoder<Vec<u8>>>,
}

impl Writer {
    /// What goes on the wire for these bytes, complete enough to be read at once.
    fn write(&mut self, bytes: &[u8]) -> Bytes {
        let Some(encoder) = &mut self.gzip else { return Bytes::copy_from_slice(bytes) };
        // Writing into memory does not fail.
        let _ = encoder.write_all(bytes).and_then(|()| encoder.flush());
        Bytes::from(std::mem::take(encoder.get_mut()))
    }

    fn finish(self) -> Option<Bytes> {
        self.gzip.and_then(|encoder| encoder.finish().ok()).map(Bytes::from)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::events::Content, *};

    fn turn() -> Turn {
        Turn {
            serial: 1,
            model: "m".to_owned(),
            account: "a".to_owned(),
            created_at: 0,
            input_tokens: 0,
            content: Content::Text { text: "abc".to_owned(), deltas: 2 },
            reasoning: false,
        }
    }

    fn kinds(plan: &StreamPlan) -> Vec<String> {
        cues(plan, &turn(), turn().events())
            .into_iter()
            .map(|cue| if let Cue::Event(event) = cue { event.kind } else { format!("{cue:?}") })
            .collect()
    }

    #[test]
    fn a_stall_is_followed_by_the_rest() {
        let plan = StreamPlan { after: Some(1), end: End::Stall, ..StreamPlan::default() };
        assert_eq!(kinds(&plan)[..3], ["response.created", "Stall", "response.in_progress"]);
        assert_eq!(kinds(&plan).len(), turn().events().len() + 1);
    }

    #[test]
    fn a_failure_takes_the_place_of_the_rest() {
        let end = End::Failed { code: "slow_down".to_owned(), message: String::new() };
        let plan = StreamPlan { after: Some(2), end, ..StreamPlan::default() };
        assert_eq!(kinds(&plan), ["response.created", "response.in_progress", "response.failed"]);
    }

    #[test]
    fn only_the_last_event_lacks_its_blank_line() {
        let cues = cues(&StreamPlan::default(), &turn(), turn().events());
        let steps = steps(cues, Framing::NoFinalBlank, false);
        let ends: Vec<bool> = steps
            .iter()
            .map(|step| matches!(step, Step::Data(data) if data.ends_with(b"\n\n")))
            .collect();
        assert_eq!(ends.iter().filter(|it| !**it).count(), 1);
        assert_eq!(ends.last(), Some(&false));
    }

    #[test]
    fn each_compressed_event_can_be_read_at_once() {
        let cues = cues(&StreamPlan::default(), &turn(), turn().events());
        let steps = steps(cues, Framing::Lf, true);
        let Some(Step::Data(first)) = steps.first() else { panic!("no data") };
        let mut text = [0; 20];
        std::io::Read::read_exact(&mut flate2::read::GzDecoder::new(&first[..]), &mut text)
            .unwrap();
        assert_eq!(&text, b"event: response.crea");
    }
}
