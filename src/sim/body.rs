//! The body of an answer: steps that are taken as the client reads.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::{sync::watch, time::sleep};

use super::{
    play::Step,
    record::{Ended, Exchange},
    wire::Wire,
};

type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The body of every answer. Dropped before its end, it tells that the client went away.
pub(super) struct SimBody {
    steps: std::vec::IntoIter<Step>,
    /// The whole length, where it is known.
    length: Option<u64>,
    wait: Option<Wait>,
    /// Taken once the waiting is over: the stream then ends with an error.
    breaks: bool,
    ties: Option<Ties>,
}

/// What an answer needs beside its bytes.
pub(super) struct Ties {
    pub(super) exchange: Exchange,
    pub(super) wire: Arc<Wire>,
    pub(super) release: Release,
}

/// Lets what stalls go on, once released after this was made.
pub(super) struct Release(watch::Receiver<u64>);

// === impl SimBody ===

impl SimBody {
    /// A body that nobody watches.
    pub(super) fn plain(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let length = Some(bytes.len() as u64);
        let steps = vec![Step::Data(bytes)].into_iter();
        Self { steps, length, wait: None, breaks: false, ties: None }
    }

    /// A body that counts as answered when it is handed over.
    pub(super) fn whole(bytes: impl Into<Bytes>, mut ties: Ties) -> Self {
        ties.exchange.end(Ended::Answered);
        Self::plain(bytes)
    }

    pub(super) fn stream(steps: Vec<Step>, ties: Ties) -> Self {
        let steps = steps.into_iter();
        Self { steps, length: None, wait: None, breaks: false, ties: Some(ties) }
    }

    fn end(&mut self, ended: Ended) {
        if let Some(ties) = &mut self.ties {
            ties.exchange.end(ended);
        }
    }

    /// Begins to wait for what this step wants.
    fn wait_for(&mut self, step: Step) {
        let Some(ties) = &self.ties else { return };
        let wire = Arc::clone(&ties.wire);
        self.wait = Some(match step {
            Step::Data(_) => return,
            Step::Delay(delay) => Box::pin(sleep(delay)),
            Step::Stall => Box::pin(ties.release.clone().released()),
            Step::Lose { by_reset } => {
                self.end(Ended::Lost);
                Box::pin(async move {
                    Arc::clone(&wire).drained().await;
                    wire.lose(by_reset);
                    std::future::pending().await
                })
            }
            Step::StreamError => {
                self.end(Ended::Lost);
                self.breaks = true;
                Box::pin(wire.drained())
            }
        });
    }
}

impl Body for SimBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            if let Some(wait) = &mut self.wait {
                ready!(wait.as_mut().poll(cx));
                self.wait = None;
            }
            if self.breaks {
                return Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into())));
            }
            match self.steps.next() {
                Some(Step::Data(data)) => {
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(step) => self.wait_for(step),
                None => {
                    self.end(Ended::Answered);
                    return Poll::Ready(None);
                }
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

// === impl Release ===

impl Release {
    pub(super) fn new(mut receiver: watch::Receiver<u64>) -> Self {
        receiver.mark_unchanged();
        Self(receiver)
    }

    pub(super) async fn released(mut self) {
        // Without a simulator there is nobody left to release anything.
        let _ = self.0.changed().await;
    }
}

impl Clone for Release {
    fn clone(&self) -> Self {
        // A clone of a receiver keeps the version it has seen.
        Self(self.0.clone())
    }
}
