//! One look and what follows from it. Synchronous, with every decision left to the planner.

use std::{path::Path, sync::Arc, time::Duration};

use arc_swap::ArcSwap;

use super::{
    DirectoryView, Ledger, Subscriber,
    inbox::{Pause, Requests},
    overlays::Overlays,
    told::Told,
};
use crate::{
    accounts::{
        directory::{Depth, DirectoryError, FileReading, FileState, Lock, Reading, Scanner},
        pool::Pool,
    },
    clock::Clock,
    config::Auth,
    domain::{
        account::Account,
        reconcile::{
            self, Change, Content, Memory, Moment, Observed, Plan, Planned, Sight, Terms, View,
        },
    },
    telemetry::metrics::Metrics,
};

/// What the reconciler works with.
pub struct Core {
    config: Arc<Auth>,
    scanner: Scanner,
    memory: Memory,
    overlays: Overlays,
    ledger: Ledger,
    subscribers: Vec<Subscriber>,
    pool: Arc<Pool>,
    clock: Clock,
    told: Told,
    view: Arc<ArcSwap<DirectoryView>>,
    /// When to look again although nothing moves, on the clock that nobody sets.
    next_look: Option<Duration>,
    _lock: Lock,
}

pub struct CoreParts {
    pub config: Arc<Auth>,
    pub ledger: Ledger,
    pub subscribers: Vec<Subscriber>,
    pub pool: Arc<Pool>,
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    pub lock: Lock,
}

// === impl Core ===

impl Core {
    /// Looks for the first time.
    ///
    /// # Errors
    /// A directory that cannot be read.
    pub fn open(parts: CoreParts) -> Result<Self, DirectoryError> {
        let CoreParts { config, ledger, subscribers, pool, clock, metrics, lock } = parts;
        let mut core = Self {
            scanner: Scanner::new(config.dir.clone(), config.follow_symlinks),
            config,
            memory: Memory::default(),
            overlays: Overlays::default(),
            ledger,
            subscribers,
            pool,
            clock,
            told: Told::new(metrics),
            view: Arc::default(),
            next_look: None,
            _lock: lock,
        };
        let reading = core.scanner.scan(Depth::Full)?;
        core.take_in(Ok(reading));
        core.ledger.bury();
        core.ledger.save(core.clock.now());
        Ok(core)
    }

    pub(super) fn root(&self) -> &Path {
        self.scanner.root()
    }

    pub(super) fn view(&self) -> Arc<ArcSwap<DirectoryView>> {
        Arc::clone(&self.view)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    /// How long nothing needs to be looked at if nothing moves.
    pub(super) fn patience(&self) -> Duration {
        let due = self.ledger.next_due(self.config.removal_grace, self.elapsed());
        let soonest = [self.next_look, due].into_iter().flatten().min();
        let wait = soonest.map(|it| it.saturating_sub(self.elapsed()));
        wait.unwrap_or(Duration::MAX).min(self.config.rescan_interval)
    }

    /// Does what was asked, looks, and tells those who wait.
    pub(super) fn serve(&mut self, requests: Requests, depth: Depth) {
        let Requests { looks, pauses, rotations } = requests;
        rotations.into_iter().for_each(|it| self.overlays.note(it));
        let paused = pauses.into_iter().map(|pause| {
            let Pause { account, paused, reply } = pause;
            (reply, self.ledger.pause(&account, paused, self.clock.now()))
        });
        let paused: Vec<_> = paused.collect();
        self.pass(depth);
        // Whoever asked may have gone.
        for (reply, outcome) in paused {
            let _ = reply.send(outcome);
        }
        for reply in looks {
            let _ = reply.send(());
        }
    }

    /// Looks, and makes the pool what the directory says.
    pub fn pass(&mut self, depth: Depth) {
        let reading = self.scanner.scan(depth);
        self.take_in(reading);
    }

    fn take_in(&mut self, reading: Result<Reading, DirectoryError>) {
        let moment = Moment { now: self.clock.now(), elapsed: self.clock.elapsed() };
        let view = match reading {
            Ok(mut reading) => {
                self.show(&reading);
                self.overlays.settle(&reading);
                self.overlays.lay_over(&mut reading);
                View::Seen(sight(reading))
            }
            Err(error) => {
                self.told.unavailable(&error);
                let known = self.view.load();
                let view = DirectoryView { available: false, ..(**known).clone() };
                self.view.store(Arc::new(view));
                View::Unavailable
            }
        };
        let terms = Terms {
            moment,
            parse_grace: self.config.parse_grace,
            paused: self.ledger.paused(),
            rotations: self.overlays.trades(),
        };
        let plan = reconcile::plan(&view, &self.memory, &terms);
        self.carry_out(plan, moment);
    }

    fn show(&mut self, reading: &Reading) {
        let problems = reading.problems();
        self.told.available();
        self.told.problems(&problems);
        let path = |it: &FileReading| (it.path_id.clone(), it.path.clone());
        let paths = reading.files.iter().map(path).collect();
        self.view.store(Arc::new(DirectoryView { available: true, problems, paths }));
    }

    fn carry_out(&mut self, plan: Plan, moment: Moment) {
        let Plan { accounts, mut changes, memory, held, next_look, unavailable } = plan;
        self.memory = memory;
        self.next_look = next_look;
        changes.iter().for_each(|it| self.ledger.note(it, moment.elapsed));
        if !unavailable {
            let due = self.ledger.due(self.config.removal_grace, &held, moment.elapsed);
            for purged in due.into_iter().map(|id| Change::Purged { id }) {
                self.ledger.note(&purged, moment.elapsed);
                changes.push(purged);
            }
        }
        let accounts: Vec<Account> =
            accounts.into_iter().filter_map(|it| self.labelled(it)).collect();
        self.ledger.save(moment.now);
        // One that was left out for want of a label is tried again.
        let is_shown = accounts.len() == self.pool.snapshot().entries.len();
        if changes.is_empty() && is_shown {
            return;
        }
        self.pool.announce(&changes);
        self.subscribers.iter().for_each(|it| it(&changes));
        self.pool.publish(accounts, &changes);
        self.told.changes(&changes, &self.ledger, &self.pool.snapshot());
    }

    fn labelled(&mut self, planned: Planned) -> Option<Account> {
        match self.ledger.label_of(&planned.resolved.id, &mut rand::rng()) {
            Ok(label) => Some(planned.labelled(label)),
            Err(error) => {
                tracing::error!("An account is left out: {error}");
                None
            }
        }
    }
}

fn sight(reading: Reading) -> Sight {
    let files = reading.files.into_iter().map(|file| {
        let notices: Vec<String> = file.mendable().map(|it| it.to_string()).collect();
        let content = match file.state {
            FileState::Parsed(parsed) => Content::Login(parsed.login),
            FileState::Ignored(_) | FileState::LoggedOut => Content::NoLogin,
            FileState::Problem(reason) => Content::Broken(reason.to_string().into()),
        };
        let notice = (!notices.is_empty()).then(|| notices.join("; ").into());
        Observed { path: file.path_id, content, notice }
    });
    // Of two names that are one in Unicode's composed form the first counts.
    let mut files: Vec<Observed> = files.collect();
    files.dedup_by(|a, b| a.path == b.path);
    Sight { files, lost_folders: reading.lost_folders }
}
