//! The only place that reads the wall clock.
//!
//! Everything else takes `now` as an argument, or a [`Clock`] where it asks again and again. A
//! manual clock moves only when it is told to, and all its copies move together.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// Tells the time. Copies share one source.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Manual(Arc<Mutex<Timestamp>>),
}

// === impl Clock ===

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that stands still at `start` until it is advanced.
    pub fn manual(start: Timestamp) -> Self {
        Self(Source::Manual(Arc::new(Mutex::new(start))))
    }

    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => system_now(),
            Source::Manual(at) => *at.lock(),
        }
    }

    /// Moves a manual clock and all its copies; the system's clock stays as it is.
    pub fn advance(&self, by: SignedDuration) {
        if let Source::Manual(at) = &self.0 {
            let mut at = at.lock();
            *at = at.saturating_add(by).unwrap_or(*at);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
fn system_now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told_and_takes_its_copies_along() {
        let clock = Clock::manual(Timestamp::UNIX_EPOCH);
        let copy = clock.clone();
        assert_eq!(copy.now(), Timestamp::UNIX_EPOCH);
        clock.advance(SignedDuration::from_secs(90));
        assert_eq!(copy.now().as_second(), 90);
    }

    #[test]
    fn the_system_clock_does_not_move_by_hand() {
        let clock = Clock::system();
        let before = clock.now();
        clock.advance(SignedDuration::from_hours(24));
        assert!(clock.now().duration_since(before) < SignedDuration::from_hours(1));
    }
}
