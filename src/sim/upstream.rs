//! The state that all connections share.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    SimConfig, TimeSource, WebSockets,
    account::SimAccount,
    body::Release,
    quota::{Quota, limit_body},
    record::{Bounds, Recorder},
    script::{Action, Rule, Script},
    stage::{Facts, Stage},
    tokens::Authority,
    wire::Wire,
};

pub(super) const MODELS: &str = include_str!("models.json");

pub(super) struct Upstream {
    pub(super) authority: Mutex<Authority>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) options: Options,
    pub(super) models: Mutex<Models>,
    quotas: Mutex<HashMap<String, Quota>>,
    stage: Mutex<Stage>,
    /// Whether there are any rules; read without a lock.
    staged: AtomicBool,
    released: watch::Sender<u64>,
    serial: AtomicU64,
    wires: Mutex<Vec<Weak<Wire>>>,
    now: TimeSource,
}

/// The catalogue and its ETag.
pub(super) struct Models {
    pub(super) body: Bytes,
    pub(super) etag: String,
}

/// What does not change while the simulator runs.
pub(super) struct Options {
    pub(super) deltas: usize,
    pub(super) reasoning: bool,
    pub(super) websockets: WebSockets,
    pub(super) device_interval: u32,
    pub(super) workspace_origin: String,
}

/// Who asks.
pub(super) enum Caller {
    Known(Arc<SimAccount>),
    /// No such token, or none.
    Unknown {
        bearer: bool,
    },
    /// The token and the account id do not belong together.
    Mismatch,
}

// === impl Upstream ===

impl Upstream {
    pub(super) fn new(config: SimConfig) -> Arc<Self> {
        let quotas = config.accounts.iter().map(|it| (it.name.clone(), config.quota.clone()));
        let upstream = Self {
            quotas: Mutex::new(quotas.collect()),
            authority: Mutex::new(Authority::new(config.accounts)),
            recorder: Recorder::new(Bounds {
                on: config.record,
                requests_max: config.record_requests_max,
                body_max: config.record_body_max,
            }),
            options: Options {
                deltas: config.deltas,
                reasoning: config.reasoning,
                websockets: config.websockets,
                device_interval: config.device_interval,
                workspace_origin: config.workspace_origin,
            },
            models: Mutex::new(Models {
                body: Bytes::from_static(MODELS.as_bytes()),
                etag: config.models_etag,
            }),
            stage: Mutex::default(),
            staged: AtomicBool::new(false),
            released: watch::Sender::new(0),
            serial: AtomicU64::new(1),
            wires: Mutex::default(),
            now: config.now,
        };
        upstream.set_script(config.script);
        Arc::new(upstream)
    }

    pub(super) fn now(&self) -> i64 {
        (self.now)()
    }

    /// A number that was not given before.
    pub(super) fn next(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn set_script(&self, script: Script) {
        let mut stage = self.stage.lock();
        stage.set(script);
        self.staged.store(!stage.is_empty(), Ordering::SeqCst);
    }

    pub(super) fn add_rule(&self, rule: Rule) {
        self.stage.lock().add(rule);
        self.staged.store(true, Ordering::SeqCst);
    }

    pub(super) fn pick(&self, facts: Facts<'_>) -> Option<Action> {
        if !self.staged.load(Ordering::SeqCst) {
            return None;
        }
        self.stage.lock().pick(facts)
    }

    pub(super) fn release(&self) {
        self.released.send_modify(|count| *count += 1);
    }

    pub(super) fn releasable(&self) -> Release {
        Release::new(self.released.subscribe())
    }

    /// Forgets script and records; tokens and quotas stay.
    pub(super) fn reset(&self) {
        self.set_script(Script::default());
        self.recorder.clear();
        self.release();
    }

    pub(super) fn caller(&self, headers: &HeaderMap) -> Caller {
        let value = |name: &str| headers.get(name).and_then(|it| it.to_str().ok());
        let Some(token) = value("authorization").and_then(bearer) else {
            return Caller::Unknown { bearer: false };
        };
        let Some(account) = self.authority.lock().holder(token) else {
            return Caller::Unknown { bearer: true };
        };
        match value("chatgpt-account-id") {
            Some(id) if id != account.account_id => Caller::Mismatch,
            _ => Caller::Known(account),
        }
    }

    /// The account of the token alone, for rules and records.
    pub(super) fn token_holder(&self, headers: &HeaderMap) -> Option<Arc<SimAccount>> {
        let value = headers.get("authorization").and_then(|it| it.to_str().ok());
        self.authority.lock().holder(value.and_then(bearer)?)
    }

    /// Takes a turn off the account's quota, or gives the body of the 429. Either way the headers
    /// tell how things stand.
    pub(super) fn spend(
        &self,
        account: &SimAccount,
        headers: &mut HeaderMap,
    ) -> Result<Value, Value> {
        let now = self.now();
        let mut quotas = self.quotas.lock();
        let quota = quotas.entry(account.name.clone()).or_default();
        quota.roll(now);
        let spent = quota.spend();
        quota.headers(&account.plan, now, headers);
        match spent {
            Ok(()) => Ok(quota.event(&account.plan)),
            Err(at) => Err(limit_body(&account.plan, at, (at - now).max(0))),
        }
    }

    pub(super) fn usage(&self, account: &SimAccount) -> Value {
        let now = self.now();
        let mut quotas = self.quotas.lock();
        let quota = quotas.entry(account.name.clone()).or_default();
        quota.roll(now);
        let mut usage = quota.usage(&account.plan, now);
        usage["user_id"] = json!(account.user_id);
        usage["account_id"] = json!(account.account_id);
        usage["email"] = json!(account.email);
        usage
    }

    pub(super) fn set_quota(&self, name: &str, quota: Quota) {
        self.quotas.lock().insert(name.to_owned(), quota);
    }

    /// Remembers a connection, so that it can be lost later.
    pub(super) fn register(&self, wire: &Arc<Wire>) {
        let mut wires = self.wires.lock();
        if wires.len() >= 64 && wires.len().is_power_of_two() {
            wires.retain(|it| it.strong_count() > 0);
        }
        wires.push(Arc::downgrade(wire));
    }

    /// Loses every connection there is.
    pub(super) fn lose_connections(&self, by_reset: bool) {
        for wire in self.wires.lock().drain(..).filter_map(|it| it.upgrade()) {
            wire.lose(by_reset);
        }
    }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}
