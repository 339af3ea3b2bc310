//! The members of an event that are read. Pure.

use super::{EventFacts, EventKind, RateLimits, TurnState, Usage, Window};
use crate::{
    domain::outcome::ErrorFacts,
    protocol::{
        error_body::{code_of, text_of},
        json::{Path, Paths, Scanner, Value},
    },
};

/// Brackets that may be open at once in an event: 16 KiB of state.
pub(super) const DEPTH_MAX: usize = 128 * 1024;

const TEXT_MAX: usize = 256;
const TURN_STATE_MAX: usize = 16 * 1024;

pub(super) static PATHS: Paths = Paths::new(&[
    text(&["type"]),
    text(&["response", "id"]),
    text(&["response", "model"]),
    text(&["response", "incomplete_details", "reason"]),
    text(&["status"]),
    text(&["status_code"]),
    text(&["headers", "retry-after"]),
    Path { keys: &["headers", "x-codex-turn-state"], text_max: TURN_STATE_MAX },
    // Usage.
    text(&["response", "usage", "input_tokens"]),
    text(&["response", "usage", "input_tokens_details", "cached_tokens"]),
    text(&["response", "usage", "output_tokens"]),
    text(&["response", "usage", "output_tokens_details", "reasoning_tokens"]),
    text(&["response", "usage", "total_tokens"]),
    // Rate limits.
    text(&["plan_type"]),
    text(&["rate_limits", "primary", "used_percent"]),
    text(&["rate_limits", "primary", "window_minutes"]),
    text(&["rate_limits", "primary", "reset_at"]),
    text(&["rate_limits", "secondary", "used_percent"]),
    text(&["rate_limits", "secondary", "window_minutes"]),
    text(&["rate_limits", "secondary", "reset_at"]),
    // The error below `response`, then the one of an error frame.
    text(&["response", "error", "code"]),
    text(&["response", "error", "type"]),
    text(&["response", "error", "plan_type"]),
    text(&["response", "error", "resets_at"]),
    text(&["response", "error", "resets_in_seconds"]),
    text(&["error", "code"]),
    text(&["error", "type"]),
    text(&["error", "plan_type"]),
    text(&["error", "resets_at"]),
    text(&["error", "resets_in_seconds"]),
    text(&["code"]),
]);

// Places in `PATHS`.
const TYPE: usize = 0;
const RESPONSE_ID: usize = 1;
const RESPONSE_MODEL: usize = 2;
const INCOMPLETE_REASON: usize = 3;
const STATUS: usize = 4;
const STATUS_CODE: usize = 5;
const RETRY_AFTER: usize = 6;
const TURN_STATE: usize = 7;
const INPUT: usize = 8;
const CACHED_INPUT: usize = 9;
const OUTPUT: usize = 10;
const REASONING: usize = 11;
const TOTAL: usize = 12;
const PLAN_TYPE: usize = 13;
const PRIMARY: usize = 14;
const SECONDARY: usize = 17;
const RESPONSE_ERROR: usize = 20;
const ERROR: usize = 25;
const CODE: usize = 30;

const fn text(keys: &'static [&'static str]) -> Path {
    Path { keys, text_max: TEXT_MAX }
}

/// What a complete event says.
pub(super) fn facts(event: &Scanner) -> EventFacts {
    let name = text_of(event, TYPE);
    let kind = name.as_deref().map(EventKind::of).unwrap_or_default();
    let mut facts = EventFacts {
        kind,
        response_id: text_of(event, RESPONSE_ID),
        model: text_of(event, RESPONSE_MODEL),
        ..EventFacts::default()
    };
    match kind {
        EventKind::Semantic => {}
        EventKind::Completed => facts.usage = usage(event),
        EventKind::Failed => {
            facts.usage = usage(event);
            facts.error = Some(error(event, RESPONSE_ERROR).unwrap_or_default());
        }
        EventKind::Incomplete => {
            facts.usage = usage(event);
            facts.error = error(event, RESPONSE_ERROR);
            facts.incomplete_reason = text_of(event, INCOMPLETE_REASON);
        }
        EventKind::Error => {
            facts.error = Some(frame_error(event));
            facts.status = status(event);
            facts.retry_after = retry_after(event);
        }
        EventKind::Quiet => match name.as_deref() {
            Some("response.metadata") => {
                facts.turn_state = text_of(event, TURN_STATE).map(TurnState::new);
            }
            Some("codex.rate_limits") => facts.rate_limits = Some(rate_limits(event)),
            _ => {}
        },
    }
    facts.name = name;
    facts
}

fn usage(event: &Scanner) -> Option<Usage> {
    let count = |index| {
        let number = event.member(index)?.integer()?;
        u64::try_from(number).ok()
    };
    let (input, output, total) = (count(INPUT), count(OUTPUT), count(TOTAL));
    if input.is_none() && output.is_none() && total.is_none() {
        return None;
    }
    let (input, output) = (input.unwrap_or_default(), output.unwrap_or_default());
    Some(Usage {
        input,
        cached_input: count(CACHED_INPUT).unwrap_or_default(),
        output,
        reasoning: count(REASONING).unwrap_or_default(),
        total: total.unwrap_or_else(|| input.saturating_add(output)),
    })
}

/// The error whose five members begin at `first`, if any of them is there.
fn error(event: &Scanner, first: usize) -> Option<ErrorFacts> {
    let integer = |index| event.member(index).and_then(|member| member.integer());
    let facts = ErrorFacts {
        code: code_of(event, first),
        kind: text_of(event, first + 1),
        plan_type: text_of(event, first + 2),
        resets_at: integer(first + 3),
        resets_in_seconds: integer(first + 4),
    };
    (facts != ErrorFacts::default()).then_some(facts)
}

/// The error of a frame: below `error`, below `response`, or spread over the frame itself.
fn frame_error(event: &Scanner) -> ErrorFacts {
    error(event, ERROR).or_else(|| error(event, RESPONSE_ERROR)).unwrap_or_else(|| ErrorFacts {
        code: code_of(event, CODE),
        plan_type: text_of(event, PLAN_TYPE),
        ..ErrorFacts::default()
    })
}

fn status(event: &Scanner) -> Option<u16> {
    [STATUS, STATUS_CODE]
        .into_iter()
        .find_map(|index| u16::try_from(event.member(index)?.integer()?).ok())
}

/// A header's value; servers write numbers as strings or as numbers.
fn retry_after(event: &Scanner) -> Option<String> {
    let member = event.member(RETRY_AFTER)?;
    let text = match member.value {
        Value::Text(text) | Value::Number(text) => text,
        Value::LongText
        | Value::LongNumber
        | Value::Bool(_)
        | Value::Null
        | Value::Object
        | Value::Array => return None,
    };
    std::str::from_utf8(text).ok().map(str::to_owned)
}

fn rate_limits(event: &Scanner) -> RateLimits {
    RateLimits {
        plan_type: text_of(event, PLAN_TYPE),
        primary: window(event, PRIMARY),
        secondary: window(event, SECONDARY),
    }
}

/// The window whose three members begin at `first`; without a percentage there is none.
fn window(event: &Scanner, first: usize) -> Option<Window> {
    let integer = |index| event.member(index).and_then(|member| member.integer());
    Some(Window {
        used_percent: event.member(first)?.float()?,
        window_minutes: integer(first + 1).and_then(|minutes| u64::try_from(minutes).ok()),
        reset_at: integer(first + 2),
    })
}
