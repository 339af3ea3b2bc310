//! The thread that looks: when somebody asks, when the file system hints, and when it is time.

use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{
    core::Core,
    inbox::{Inbox, Requests},
    watch::Watch,
};
use crate::accounts::directory::Depth;

/// A change that nothing gives away is seen after this long at the latest.
const FULL_EVERY: Duration = Duration::from_secs(5);

/// The shortest time between two looks that nobody asked for.
const REST: Duration = Duration::from_millis(100);

/// After a look that nobody asked for, the thread rests this many times as long as it took. So a
/// large directory whose files change all the time costs one per cent of a core at the most, and
/// hardly any request has to share its core with a look.
const REST_FACTOR: u32 = 99;

/// Ends with this.
#[derive(Debug)]
pub(super) struct Thread {
    inbox: Arc<Inbox>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Tells those who wait that nobody looks any more, however that came.
struct Ending(Arc<Inbox>);

/// When the directory was looked at last, by the machine's clock and by the given one.
struct Rounds {
    last: Instant,
    /// From when on the next hint counts.
    rested: Instant,
    full: Instant,
    full_elapsed: Duration,
}

// === impl Thread ===

impl Thread {
    pub(super) fn start(core: Core, inbox: Arc<Inbox>) -> io::Result<Self> {
        inbox.open();
        let held = Arc::clone(&inbox);
        let run = move || {
            let ending = Ending(held);
            run(core, &ending.0);
        };
        let thread = thread::Builder::new().name("reconciler".to_owned()).spawn(run)?;
        Ok(Self { inbox, thread: Mutex::new(Some(thread)) })
    }
}

impl Drop for Thread {
    /// Waits for the look that runs.
    fn drop(&mut self) {
        self.inbox.close();
        if let Some(thread) = self.thread.lock().take()
            // What the thread itself lets go of may hold the last handle.
            && thread.thread().id() != thread::current().id()
        {
            // A panic has told of itself.
            let _ = thread.join();
        }
    }
}

fn run(mut core: Core, inbox: &Arc<Inbox>) {
    let mut watch = Watch::new(core.root().to_owned(), Arc::clone(inbox));
    let now = Instant::now();
    let mut rounds = Rounds { last: now, rested: now, full: now, full_elapsed: core.elapsed() };
    loop {
        watch.keep_up();
        let Some(requests) = inbox.wait(rounds.rested, rounds.due(&core)) else { return };
        let depth = rounds.depth(&core, &requests);
        let began = Instant::now();
        core.serve(requests, depth);
        rounds.looked(&core, depth, began.elapsed());
    }
}

// === impl Ending ===

impl Drop for Ending {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!(
                code = "reconciler_ended",
                "Changes of credential files are not seen any more: restart the gateway"
            );
        }
        self.0.close();
    }
}

// === impl Rounds ===

impl Rounds {
    /// When to look though nothing moves.
    fn due(&self, core: &Core) -> Instant {
        let wait = core.patience().max(REST);
        (self.last + wait).min(self.full + FULL_EVERY)
    }

    fn depth(&self, core: &Core, requests: &Requests) -> Depth {
        let is_time = self.full.elapsed() >= FULL_EVERY
            || core.elapsed().saturating_sub(self.full_elapsed) >= FULL_EVERY;
        if requests.are_urgent() || is_time { Depth::Full } else { Depth::Quick }
    }

    fn looked(&mut self, core: &Core, depth: Depth, took: Duration) {
        self.last = Instant::now();
        self.rested = self.last + REST.max(took * REST_FACTOR).min(FULL_EVERY);
        if depth == Depth::Full {
            (self.full, self.full_elapsed) = (self.last, core.elapsed());
        }
    }
}
