//! What the hooks and an attempt's session tell each other.
//!
//! The hooks put an [`AttemptControl`] into the request head's extensions; the session puts a
//! [`Peeked`] into the response head's. Neither side judges here.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;

use crate::gateway::{
    body::RequestBody,
    hold::{HoldLimits, Release},
};

/// The attempt as the session has to carry it out.
#[derive(Clone, Debug)]
pub(crate) struct AttemptControl {
    /// Uploaded by the session itself, again for each attempt.
    pub body: Arc<RequestBody>,
    /// Present where the head of a stream waits for its first output.
    pub hold: Option<HoldLimits>,
    /// How long the upstream may take to its response head, once it has the whole request.
    pub header_timeout: Duration,
    pub progress: Arc<Progress>,
}

/// How far an attempt came, for the moment when it breaks.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    response_begun: AtomicBool,
    timed_out: AtomicBool,
}

/// What the session read of an answer before anybody decided on it.
#[derive(Clone, Debug)]
pub(crate) enum Peeked {
    /// The body of an error answer; `complete` unless it was too long or too slow to wait for.
    ErrorBody { bytes: Bytes, complete: bool },
    /// The beginning of a stream, and why it is held no longer.
    Stream { bytes: Vec<Bytes>, release: Release },
}

// === impl Progress ===

impl Progress {
    pub(crate) fn begin_response(&self) {
        self.response_begun.store(true, Ordering::Relaxed);
    }

    /// Whether one byte of a final answer was parsed.
    pub(crate) fn response_begun(&self) -> bool {
        self.response_begun.load(Ordering::Relaxed)
    }

    pub(crate) fn time_out(&self) {
        self.timed_out.store(true, Ordering::Relaxed);
    }

    /// Whether the upstream stayed silent for longer than it may.
    pub(crate) fn timed_out(&self) -> bool {
        self.timed_out.load(Ordering::Relaxed)
    }
}
