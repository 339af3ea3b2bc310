//! One bound over all bodies that wait in the gateway at the same time.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Bytes that may be buffered over everything at once.
#[derive(Clone, Debug)]
pub struct Budget {
    used: Arc<AtomicU64>,
    limit: u64,
}

/// A part of the budget, given back on drop.
#[derive(Debug)]
pub struct Reservation {
    used: Arc<AtomicU64>,
    limit: u64,
    held: u64,
}

/// The budget has no room for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the buffer budget is used up")]
pub struct Overloaded;

// === impl Budget ===

impl Budget {
    pub fn new(limit: u64) -> Self {
        Self { used: Arc::default(), limit }
    }

    /// An empty reservation, to be grown.
    pub fn reserve(&self) -> Reservation {
        Reservation { used: Arc::clone(&self.used), limit: self.limit, held: 0 }
    }

    /// Bytes reserved now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

// === impl Reservation ===

impl Reservation {
    /// Takes `bytes` more.
    ///
    /// # Errors
    /// If the budget does not have them; the reservation stays as it was.
    pub fn grow(&mut self, bytes: u64) -> Result<(), Overloaded> {
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|total| *total <= self.limit)
        });
        match taken {
            Ok(_) => {
                self.held += bytes;
                Ok(())
            }
            Err(_) => Err(Overloaded),
        }
    }

    /// Whether `bytes` more would fit now. Nothing is taken: a client that only announces a long
    /// body must not shut out those that send one.
    pub fn would_fit(&self, bytes: u64) -> bool {
        self.used.load(Ordering::Relaxed).saturating_add(bytes) <= self.limit
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.used.fetch_sub(self.held, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_reserved_comes_back() {
        let budget = Budget::new(10);
        let mut first = budget.reserve();
        assert_eq!(first.grow(6), Ok(()));
        let mut second = budget.reserve();
        assert!(!second.would_fit(5));
        assert_eq!(second.grow(5), Err(Overloaded));
        assert_eq!(second.grow(4), Ok(()));
        drop(first);
        assert_eq!(budget.used(), 4);
        assert_eq!(second.grow(6), Ok(()));
        drop(second);
        assert_eq!(budget.used(), 0);
    }
}
