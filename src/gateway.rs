//! A request's life without an HTTP framework: admit, take in, dispatch, judge, settle.
//!
//! Every step is a plain call that returns a value. The edge asks and obeys; it decides nothing.

pub mod admit;
pub mod body;
pub mod budget;
pub mod dispatch;
pub mod ending;
pub mod flight;
pub mod hold;
pub mod intake;
pub mod judge;
pub mod observe;
pub mod readiness;
pub mod renew;
pub mod settle;
pub mod turn;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use arc_swap::ArcSwap;

use crate::{
    accounts::{pool::Pool, refresh::Refresher},
    clock::Clock,
    config::Config,
    egress::Egress,
    sessions::Sessions,
    telemetry::metrics::Metrics,
    users::keys::Keyring,
};

use budget::Budget;
use flight::Flights;

/// What all requests share.
#[derive(Debug)]
pub struct Gateway {
    pub pool: Arc<Pool>,
    /// Renews the tokens of accounts.
    pub refresher: Refresher,
    pub keyring: Arc<Keyring>,
    pub sessions: Arc<Sessions>,
    pub metrics: Arc<Metrics>,
    pub egress: Arc<Egress>,
    pub clock: Clock,
    pub budget: Budget,
    pub flights: Flights,
    /// Where bodies go that are too large for memory.
    pub spill_folder: PathBuf,
    config: ArcSwap<Config>,
    draining: AtomicBool,
}

/// What a gateway is made of.
#[derive(Debug)]
pub struct Parts {
    pub config: Arc<Config>,
    pub pool: Arc<Pool>,
    pub refresher: Refresher,
    pub keyring: Arc<Keyring>,
    pub sessions: Arc<Sessions>,
    pub metrics: Arc<Metrics>,
    pub egress: Arc<Egress>,
    pub clock: Clock,
    pub spill_folder: PathBuf,
}

// === impl Gateway ===

impl Gateway {
    pub fn new(parts: Parts) -> Self {
        Self {
            budget: Budget::new(parts.config.limits.buffered_total.bytes()),
            flights: Flights::default(),
            pool: parts.pool,
            refresher: parts.refresher,
            keyring: parts.keyring,
            sessions: parts.sessions,
            metrics: parts.metrics,
            egress: parts.egress,
            clock: parts.clock,
            spill_folder: parts.spill_folder,
            config: ArcSwap::new(parts.config),
            draining: AtomicBool::new(false),
        }
    }

    /// The configuration of this moment. A request loads it once and keeps it.
    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// From now on no new work is taken.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
}
