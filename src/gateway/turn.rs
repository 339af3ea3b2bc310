//! One admitted request and all its attempts.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;

use super::body::RequestBody;
use crate::{
    accounts::pool::Lease,
    config::Config,
    domain::{
        account::{Account, AuthId},
        outcome::Class,
        select::Reason,
    },
    protocol::route::Operation,
    sessions::SessionKey,
    users::keys::Tenant,
};

/// A request from the moment its body is in, through all its attempts.
#[derive(Debug)]
pub struct Turn {
    pub request: TurnRequest,
    /// The head of an answer has been released: nothing is repeated from here on.
    pub committed: bool,
    /// The attempts' deadline counts from here, not from the upload.
    pub(super) search_began: Instant,
    pub(super) tried: Vec<AuthId>,
    /// Accounts that said they do not serve the model.
    pub(super) unsupported: Vec<AuthId>,
    /// Attempts that count towards the cap.
    pub(super) counted: usize,
    pub(super) failures: Failures,
    /// The last answer of an upstream that another attempt was to better.
    pub(super) last: Option<StoredAnswer>,
    pub(super) attempts: Vec<AttemptRecord>,
}

/// What a client has asked for, and under which rules.
#[derive(Debug)]
pub struct TurnRequest {
    pub operation: Operation,
    pub tenant: Tenant,
    pub config: Arc<Config>,
    pub body: Arc<RequestBody>,
    pub model: Option<String>,
    pub session: Option<SessionKey>,
    pub began: Instant,
}

/// One try with one account. Its lease ends with it, on every path.
#[derive(Debug)]
pub struct Attempt {
    pub account: Arc<Account>,
    pub started: Instant,
    pub(super) started_at: Timestamp,
    pub(super) lease: Lease,
    pub reason: Reason,
    /// Its credential has been renewed for this request; there is no second time.
    pub(super) renewed: bool,
    /// How often a pooled connection died before it said a word.
    pub redials: u8,
    /// Addresses of the upstream that could not be reached.
    pub addresses_tried: usize,
}

/// How the attempts of one request failed without an answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Failures {
    pub connect: u32,
    pub transport: u32,
    pub timeout: u32,
    /// Attempts that got an answer of any kind.
    pub answered: u32,
    /// Credentials that were refused and could not be renewed just now.
    pub renewal: u32,
}

/// An upstream answer kept whole, to be told if nothing better comes.
#[derive(Clone, Debug)]
pub struct StoredAnswer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A line of the request log about one attempt.
#[derive(Clone, Debug)]
pub struct AttemptRecord {
    pub account: String,
    /// Why this account was chosen.
    pub reason: Reason,
    pub outcome: Class,
    pub ms: u64,
}

// === impl Turn ===

impl Turn {
    pub fn new(request: TurnRequest) -> Self {
        Self {
            request,
            committed: false,
            search_began: Instant::now(),
            tried: Vec::new(),
            unsupported: Vec::new(),
            counted: 0,
            failures: Failures::default(),
            last: None,
            attempts: Vec::new(),
        }
    }

    pub fn attempts(&self) -> &[AttemptRecord] {
        &self.attempts
    }

    /// Writes down how the attempt ended.
    pub(super) fn record(&mut self, attempt: &Attempt, outcome: Class) {
        let ms = u64::try_from(attempt.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.attempts.push(AttemptRecord {
            account: attempt.account.label.to_string(),
            reason: attempt.reason,
            outcome,
            ms,
        });
    }
}

// === impl Failures ===

impl Failures {
    /// Whether any attempt has failed.
    pub fn any(self) -> bool {
        self.connect + self.transport + self.timeout + self.answered + self.renewal > 0
    }

    /// Not one byte ever reached an upstream.
    pub fn only_unreachable(self) -> bool {
        let heard = self.transport + self.timeout + self.answered + self.renewal;
        self.connect > 0 && heard == 0
    }
}
