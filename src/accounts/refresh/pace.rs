//! How many calls for tokens run at once, and how far apart they begin.

use std::time::Duration;

use tokio::{
    sync::{Mutex, Semaphore, SemaphorePermit},
    time::{Instant, sleep_until},
};

#[derive(Debug)]
pub(super) struct Pace {
    places: Semaphore,
    spacing: Duration,
    /// When the next call may begin.
    next: Mutex<Option<Instant>>,
}

// === impl Pace ===

impl Pace {
    pub(super) fn new(parallel: usize, spacing: Duration) -> Self {
        let places = Semaphore::new(parallel.clamp(1, Semaphore::MAX_PERMITS));
        Self { places, spacing, next: Mutex::new(None) }
    }

    /// A place among those that call. `None` never happens, since nobody closes the queue.
    pub(super) async fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.places.acquire().await.ok()
    }

    /// Waits until a call may begin.
    pub(super) async fn turn(&self) {
        let mut next = self.next.lock().await;
        if let Some(next) = *next {
            sleep_until(next).await;
        }
        *next = Some(Instant::now() + self.spacing);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn calls_begin_apart_from_each_other() {
        let pace = Arc::new(Pace::new(4, Duration::from_millis(500)));
        let began = Instant::now();
        let turns = (0..5).map(|_| {
            let pace = Arc::clone(&pace);
            tokio::spawn(async move {
                pace.turn().await;
                began.elapsed().as_millis()
            })
        });
        let mut starts: Vec<u128> = Vec::new();
        for turn in turns.collect::<Vec<_>>() {
            starts.push(turn.await.unwrap());
        }
        starts.sort_unstable();
        // Tokio's paused clock may be a millisecond late.
        let apart = starts.windows(2).map(|it| it[1] - it[0]);
        assert!(apart.clone().all(|it| (499..=502).contains(&it)), "{starts:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_run_at_once() {
        let pace = Pace::new(2, Duration::ZERO);
        let held = (pace.place().await, pace.place().await);
        let third = tokio::time::timeout(Duration::from_secs(9), pace.place()).await;
        assert!(third.is_err());
        drop(held);
        assert!(pace.place().await.is_some());
    }
}
