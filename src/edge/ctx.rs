//! What one request carries from hook to hook.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::HeaderValue;

use super::upstream::control::Progress;
use crate::{
    domain::refusal::{Kind, Refusal},
    gateway::{
        ending::Ending,
        flight::Flight,
        observe::StreamObserver,
        settle::{End, StreamOutcome},
        turn::{Attempt, Turn},
    },
    protocol::events::{EventFacts, EventKind, Usage},
    telemetry::labels::{Route, Transport},
};

#[derive(Debug)]
pub struct RequestCtx {
    pub(crate) request_id: String,
    pub(crate) began: Instant,
    pub(crate) route: Route,
    pub(crate) phase: Phase,
    /// The answer to give once no attempt can go on.
    pub(crate) ending: Option<Ending>,
    pub(crate) end: End,
    pub(crate) tally: Tally,
    _flight: Flight,
}

/// How far the request has come; each phase holds exactly what is known by then.
#[derive(Debug)]
pub(crate) enum Phase {
    Received,
    /// Between attempts.
    Choosing(Box<Turn>),
    Attempting(Box<Attempting>),
    Settled,
}

/// One attempt under way.
#[derive(Debug)]
pub(crate) struct Attempting {
    pub(crate) turn: Turn,
    pub(crate) attempt: Attempt,
    pub(crate) progress: Arc<Progress>,
    /// What is to happen next, where a hook has decided it.
    pub(crate) next: Next,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The attempt goes on.
    Same,
    /// The same account on a new connection.
    Redial,
    /// The same account, with a renewed credential.
    Renew,
    /// Another account.
    Another,
}

/// What is counted of an answer while it passes by.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    observer: Option<StreamObserver>,
    streamed: bool,
    pub(crate) usage: Option<Usage>,
    pub(crate) outcome: StreamOutcome,
    pub(crate) first_byte: Option<Duration>,
    pub(crate) upstream_request_id: Option<String>,
}

// === impl RequestCtx ===

impl RequestCtx {
    pub(crate) fn new(flight: Flight) -> Self {
        Self {
            _flight: flight,
            request_id: request_id(),
            began: Instant::now(),
            route: Route::Other,
            phase: Phase::Received,
            ending: None,
            end: End::Complete,
            tally: Tally::default(),
        }
    }

    /// The attempt under way.
    ///
    /// # Errors
    /// If there is none: a hook ran out of order.
    pub(crate) fn attempting(&mut self, hook: &'static str) -> Result<&mut Attempting, Refusal> {
        match &mut self.phase {
            Phase::Attempting(attempting) => Ok(attempting),
            Phase::Received | Phase::Choosing(_) | Phase::Settled => Err(out_of_order(hook)),
        }
    }

    /// Takes the turn back from the attempt that has ended, if one was under way.
    pub(crate) fn take_phase(&mut self) -> Phase {
        std::mem::replace(&mut self.phase, Phase::Settled)
    }
}

/// A fault of ours, told to the client without details.
pub(super) fn out_of_order(hook: &'static str) -> Refusal {
    tracing::error!(hook, "Hook {hook} ran out of order");
    Refusal::new(Kind::Internal, "The gateway has made a mistake. Its log tells more.")
}

fn request_id() -> String {
    format!("req_{:032x}", rand::random::<u128>())
}

// === impl Tally ===

impl Tally {
    /// Begins to read the events of an answer.
    pub(crate) fn observe(&mut self, encoding: Option<&HeaderValue>) {
        self.observer = Some(StreamObserver::new(encoding));
        self.streamed = true;
    }

    pub(crate) fn transport(&self) -> Transport {
        if self.streamed { Transport::Sse } else { Transport::Http }
    }

    pub(crate) fn feed(&mut self, piece: Option<&Bytes>, end: bool, began: Instant) {
        if let Some(piece) = piece.filter(|it| !it.is_empty()) {
            self.first_byte.get_or_insert_with(|| began.elapsed());
            if let Some(observer) = &mut self.observer {
                let (usage, outcome) = (&mut self.usage, &mut self.outcome);
                observer.feed(piece, |event| note(usage, outcome, event));
            }
        }
        if end && let Some(mut observer) = self.observer.take() {
            let (usage, outcome) = (&mut self.usage, &mut self.outcome);
            observer.finish(|event| note(usage, outcome, event));
        }
    }
}

/// Takes down what an event tells about the turn.
fn note(usage: &mut Option<Usage>, outcome: &mut StreamOutcome, event: EventFacts) {
    *usage = event.usage.or(*usage);
    match event.kind {
        EventKind::Completed => *outcome = StreamOutcome::Completed,
        EventKind::Failed | EventKind::Error => {
            *outcome = StreamOutcome::Failed(event.error.unwrap_or_default());
        }
        EventKind::Semantic | EventKind::Quiet | EventKind::Incomplete => {}
    }
}
