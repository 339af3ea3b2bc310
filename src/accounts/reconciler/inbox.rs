//! What others want of the thread that looks.

use std::{mem, time::Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::Rotation;
use crate::{domain::account::AuthId, storage::StorageError};

/// Holds at most one request for each one who waits for an answer.
#[derive(Debug)]
pub(super) struct Inbox {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

#[derive(Debug)]
struct Waiting {
    requests: Requests,
    /// Something may have changed in the directory.
    hinted: bool,
    /// Nobody empties the inbox: requests are dropped, so that nobody waits in vain.
    closed: bool,
}

/// What is to be done in one look.
#[derive(Debug, Default)]
pub(super) struct Requests {
    pub(super) looks: Vec<oneshot::Sender<()>>,
    pub(super) pauses: Vec<Pause>,
    pub(super) rotations: Vec<Rotation>,
}

#[derive(Debug)]
pub(super) struct Pause {
    pub(super) account: AuthId,
    pub(super) paused: bool,
    pub(super) reply: oneshot::Sender<Result<(), StorageError>>,
}

// === impl Inbox ===

impl Inbox {
    pub(super) fn open(&self) {
        self.waiting.lock().closed = false;
    }

    /// Ends the thread, or tells that it has ended.
    pub(super) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.closed = true;
        waiting.requests = Requests::default();
        self.arrived.notify_all();
    }

    pub(super) fn hint(&self) {
        self.add(|it| it.hinted = true);
    }

    pub(super) fn look(&self, reply: oneshot::Sender<()>) {
        self.add(|it| it.requests.looks.push(reply));
    }

    pub(super) fn pause(&self, pause: Pause) {
        self.add(|it| it.requests.pauses.push(pause));
    }

    pub(super) fn rotated(&self, rotation: Rotation) {
        self.add(|it| {
            it.requests.rotations.push(rotation);
            it.hinted = true;
        });
    }

    fn add(&self, add: impl FnOnce(&mut Waiting)) {
        let mut waiting = self.waiting.lock();
        if !waiting.closed {
            add(&mut waiting);
            self.arrived.notify_all();
        }
    }

    /// Waits for a request, for a hint, which counts from `rested` on, or until `due`. `None` once
    /// the inbox is closed.
    pub(super) fn wait(&self, rested: Instant, due: Instant) -> Option<Requests> {
        let mut waiting = self.waiting.lock();
        loop {
            if waiting.closed {
                return None;
            }
            let due = if waiting.hinted { due.min(rested) } else { due };
            let asked = !waiting.requests.looks.is_empty() || !waiting.requests.pauses.is_empty();
            if asked || Instant::now() >= due {
                waiting.hinted = false;
                return Some(mem::take(&mut waiting.requests));
            }
            self.arrived.wait_until(&mut waiting, due);
        }
    }
}

impl Default for Inbox {
    /// Closed, since nobody empties it yet.
    fn default() -> Self {
        let waiting = Waiting { requests: Requests::default(), hinted: false, closed: true };
        Self { waiting: Mutex::new(waiting), arrived: Condvar::new() }
    }
}

// === impl Requests ===

impl Requests {
    /// Whether somebody waits for a look.
    pub(super) fn are_urgent(&self) -> bool {
        !self.looks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_hint_waits_for_its_pause_and_a_request_does_not() {
        let inbox = Inbox::default();
        inbox.open();
        let (now, pause) = (Instant::now(), Duration::from_millis(50));
        let (rested, due) = (now + pause, now + Duration::from_secs(60));
        inbox.hint();
        let (reply, _looked) = oneshot::channel();
        inbox.look(reply);
        assert!(inbox.wait(due, due).unwrap().are_urgent());
        inbox.hint();
        inbox.hint();
        assert!(!inbox.wait(rested, due).unwrap().are_urgent());
        assert!(now.elapsed() >= pause);
        assert!(inbox.wait(due, rested).is_some(), "the time has come without a hint");
    }

    #[test]
    fn nobody_waits_at_a_closed_inbox() {
        let inbox = Inbox::default();
        let (reply, looked) = oneshot::channel();
        inbox.look(reply);
        assert!(looked.blocking_recv().is_err());
        inbox.open();
        let (reply, looked) = oneshot::channel();
        inbox.look(reply);
        inbox.close();
        assert!(looked.blocking_recv().is_err());
        assert!(inbox.wait(Instant::now(), Instant::now()).is_none());
    }
}
