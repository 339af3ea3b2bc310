//! The small runtime for what belongs to no request: renewals and sign-ins.

use std::{io, thread, time::Duration};

use tokio::runtime::{Builder, Runtime};

use crate::accounts::tasks::Tasks;

/// How long a stop waits for renewals that run: their tokens are spent, and what came for them has
/// to reach the files.
const PATIENCE: Duration = Duration::from_secs(50);

/// How long the runtime gets to let go of what is left.
const WIND_UP: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Background {
    /// `None` only while it is being ended.
    runtime: Option<Runtime>,
    tasks: Tasks,
}

// === impl Background ===

impl Background {
    pub(super) fn start() -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("accounts").enable_all().build()?;
        let tasks = Tasks::new(runtime.handle().clone());
        Ok(Self { runtime: Some(runtime), tasks })
    }

    pub(super) fn tasks(&self) -> Tasks {
        self.tasks.clone()
    }

    /// Lets what must not be broken off finish, then ends. Blocks, in whatever context. What the
    /// tasks held is let go of when this returns.
    pub(super) fn finish(mut self) {
        let (tasks, runtime) = (self.tasks.clone(), self.runtime.take());
        // A runtime must not be ended by a thread of another one.
        let ending = thread::spawn(move || {
            let Some(runtime) = runtime else { return };
            if !runtime.block_on(tasks.finished(PATIENCE)) {
                tracing::warn!("A renewal of tokens did not end in time and was broken off");
            }
            runtime.shutdown_timeout(WIND_UP);
        });
        if ending.join().is_err() {
            tracing::error!("The end of the renewals was a panic");
        }
    }
}

impl Drop for Background {
    /// In a hurry, and in whatever context: nothing is waited for.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
