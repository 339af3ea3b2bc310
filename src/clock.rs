//! The only place that reads the wall clock.
//!
//! Everything else takes `now` as an argument, or a [`Clock`] where it asks again and again. A
//! manual clock moves only when it is told to, and all its copies move together.
//!
//! Two times are told: the wall clock's, which can jump, and one that only moves forward, for
//! measuring how long something has lasted.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// Tells the time. Copies share one source.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    /// Counts from this moment on.
    System(Instant),
    Manual(Arc<Mutex<Hands>>),
}

/// Where a manual clock stands.
#[derive(Clone, Copy, Debug)]
struct Hands {
    wall: Timestamp,
    elapsed: Duration,
}

// === impl Clock ===

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self(Source::System(Instant::now()))
    }

    /// A clock that stands still at `start` until it is advanced.
    pub fn manual(start: Timestamp) -> Self {
        Self(Source::Manual(Arc::new(Mutex::new(Hands { wall: start, elapsed: Duration::ZERO }))))
    }

    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System(_) => system_now(),
            Source::Manual(hands) => hands.lock().wall,
        }
    }

    /// Time since the clock was made. No change of the wall clock moves it, and the time that a
    /// machine sleeps does not count.
    pub fn elapsed(&self) -> Duration {
        match &self.0 {
            Source::System(since) => since.elapsed(),
            Source::Manual(hands) => hands.lock().elapsed,
        }
    }

    /// Lets time pass on a manual clock and all its copies; the system's clock stays as it is.
    pub fn advance(&self, by: SignedDuration) {
        self.jump(by);
        if let Source::Manual(hands) = &self.0 {
            let mut hands = hands.lock();
            hands.elapsed += Duration::try_from(by).unwrap_or_default();
        }
    }

    /// Sets the wall clock of a manual clock forward or back, while no time passes.
    pub fn jump(&self, by: SignedDuration) {
        if let Source::Manual(hands) = &self.0 {
            let mut hands = hands.lock();
            hands.wall = hands.wall.saturating_add(by).unwrap_or(hands.wall);
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
        assert_eq!((copy.now().as_second(), copy.elapsed().as_secs()), (90, 90));
        clock.jump(SignedDuration::from_secs(-60));
        assert_eq!((copy.now().as_second(), copy.elapsed().as_secs()), (30, 90));
    }

    #[test]
    fn the_system_clock_does_not_move_by_hand() {
        let clock = Clock::system();
        let before = clock.now();
        clock.advance(SignedDuration::from_hours(24));
        assert!(clock.now().duration_since(before) < SignedDuration::from_hours(1));
    }
}
