//! Counts the requests that are inside, so that a stop can wait for the last one.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

#[derive(Clone, Debug, Default)]
pub struct Flights(Arc<AtomicUsize>);

/// One request inside; leaves on drop.
#[derive(Debug)]
pub struct Flight(Arc<AtomicUsize>);

// === impl Flights ===

impl Flights {
    pub fn enter(&self) -> Flight {
        self.0.fetch_add(1, Ordering::Relaxed);
        Flight(Arc::clone(&self.0))
    }

    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
