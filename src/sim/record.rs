//! What the simulated upstream saw: every request, byte for byte, and how it ended.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::Notify;

use super::{
    account::{base64, hex_of},
    script::Route,
};

/// One request, or one `response.create` on a WebSocket.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Counts up over the life of the simulator.
    pub id: u64,
    /// The TCP connection it came over.
    pub connection: u64,
    pub protocol: Protocol,
    pub tls: bool,
    pub method: String,
    /// Path and query as they were sent.
    pub target: String,
    pub route: Route,
    /// In the order sent and, on HTTP/1.1, in the case sent.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The name of the account whose token the request carried.
    pub account: Option<String>,
    /// The body as it was sent, encoding and all; its beginning only, if it was over the limit.
    pub body: Vec<u8>,
    /// The length of the whole body that has come.
    pub body_length: u64,
    /// The status that was answered, as soon as it was.
    pub status: Option<u16>,
    pub ended: Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
    /// A frame on a WebSocket.
    WebSocket,
}

/// Where an exchange is, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Not yet.
    Open,
    /// The answer was handed over whole.
    Answered,
    /// The script ended it.
    Lost,
    /// The client went away before the end.
    ClientGone,
}

/// How much is recorded.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) on: bool,
    pub(super) requests_max: usize,
    pub(super) body_max: usize,
}

pub(super) struct Recorder {
    bounds: Bounds,
    seen: Mutex<Seen>,
    changed: Notify,
}

#[derive(Default)]
struct Seen {
    next: u64,
    requests: Vec<Recorded>,
}

/// Writes into the record of one exchange; dropped before [`Exchange::end`], it tells that the
/// client went away.
pub(super) struct Exchange {
    recorder: Arc<Recorder>,
    id: Option<u64>,
}

// === impl Recorded ===

impl Recorded {
    /// The first header of that name, in any case, as text.
    pub fn header(&self, name: &str) -> Option<String> {
        self.headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    }

    /// SHA-256 of the recorded body, in hex.
    pub fn body_sha256(&self) -> String {
        hex_of(&Sha256::digest(&self.body))
    }

    pub fn client_gone(&self) -> bool {
        self.ended == Ended::ClientGone
    }

    /// As the control endpoint tells it.
    pub(super) fn to_json(&self) -> Value {
        let headers: Vec<Value> = self
            .headers
            .iter()
            .map(|(name, value)| match (&self.account, name.to_ascii_lowercase().as_str()) {
                (Some(account), "authorization") => json!([name, format!("Bearer <{account}>")]),
                _ => json!([name, String::from_utf8_lossy(value)]),
            })
            .collect();
        json!({
            "id": self.id,
            "connection": self.connection,
            "protocol": match self.protocol {
                Protocol::Http1 => "http/1.1",
                Protocol::Http2 => "h2",
                Protocol::WebSocket => "websocket",
            },
            "tls": self.tls,
            "method": self.method,
            "target": self.target,
            "route": self.route,
            "headers": headers,
            "account": self.account,
            "body_base64": base64(&self.body),
            "body_length": self.body_length,
            "body_sha256": self.body_sha256(),
            "status": self.status,
            "ended": match self.ended {
                Ended::Open => "open",
                Ended::Answered => "answered",
                Ended::Lost => "lost",
                Ended::ClientGone => "client_gone",
            },
        })
    }
}

// === impl Recorder ===

impl Recorder {
    pub(super) fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self { bounds, seen: Mutex::default(), changed: Notify::new() })
    }

    pub(super) fn on(&self) -> bool {
        self.bounds.on
    }

    /// Begins a record; its `id` is given here.
    pub(super) fn begin(self: &Arc<Self>, recorded: impl FnOnce() -> Recorded) -> Exchange {
        if !self.bounds.on {
            return Exchange { recorder: Arc::clone(self), id: None };
        }
        let mut recorded = recorded();
        let mut seen = self.seen.lock();
        let id = seen.next;
        seen.next += 1;
        recorded.id = id;
        if seen.requests.len() >= self.bounds.requests_max {
            seen.requests.remove(0);
        }
        seen.requests.push(recorded);
        drop(seen);
        self.changed.notify_waiters();
        Exchange { recorder: Arc::clone(self), id: Some(id) }
    }

    pub(super) fn requests(&self) -> Vec<Recorded> {
        self.seen.lock().requests.clone()
    }

    pub(super) fn clear(&self) {
        self.seen.lock().requests.clear();
        self.changed.notify_waiters();
    }

    /// Waits until `done` says yes to what was seen so far.
    pub(super) async fn wait_until(&self, mut done: impl FnMut(&[Recorded]) -> bool) {
        loop {
            let notified = self.changed.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if done(&self.seen.lock().requests) {
                return;
            }
            notified.await;
        }
    }

    fn update(&self, id: u64, change: impl FnOnce(&mut Recorded)) {
        let mut seen = self.seen.lock();
        if let Ok(at) = seen.requests.binary_search_by_key(&id, |recorded| recorded.id) {
            change(&mut seen.requests[at]);
        }
        drop(seen);
        self.changed.notify_waiters();
    }
}

// === impl Exchange ===

impl Exchange {
    pub(super) fn body(&self, chunk: &[u8]) {
        let Some(id) = self.id else { return };
        let limit = self.recorder.bounds.body_max;
        self.recorder.update(id, |recorded| {
            let room = limit.saturating_sub(recorded.body.len()).min(chunk.len());
            recorded.body.extend_from_slice(&chunk[..room]);
            recorded.body_length += chunk.len() as u64;
        });
    }

    pub(super) fn status(&self, status: u16) {
        if let Some(id) = self.id {
            self.recorder.update(id, |recorded| recorded.status = Some(status));
        }
    }

    pub(super) fn end(&mut self, ended: Ended) {
        if let Some(id) = self.id.take() {
            self.recorder.update(id, |recorded| recorded.ended = ended);
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.end(Ended::ClientGone);
    }
}
