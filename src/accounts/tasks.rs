//! The tasks that belong to no request: renewals and sign-ins.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{runtime::Handle, sync::watch, task::JoinHandle};

/// Spawns on the accounts' own runtime, so that no request's end ends the task. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tasks {
    runtime: Handle,
    /// How many tasks run that a stop waits for.
    running: Arc<watch::Sender<usize>>,
    ending: Arc<AtomicBool>,
}

/// Counts one task until it is dropped, however the task ends.
struct Running(Arc<watch::Sender<usize>>);

// === impl Tasks ===

impl Tasks {
    pub fn new(runtime: Handle) -> Self {
        Self { runtime, running: Arc::new(watch::Sender::new(0)), ending: Arc::default() }
    }

    /// Runs a task that a stop of the gateway waits for.
    pub fn finish<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.running.send_modify(|it| *it += 1);
        let running = Running(Arc::clone(&self.running));
        self.runtime.spawn(async move {
            let _running = running;
            task.await
        })
    }

    /// Runs a task that a stop breaks off.
    pub fn run<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.runtime.spawn(task)
    }

    /// The runtime itself, for blocking work.
    pub fn handle(&self) -> &Handle {
        &self.runtime
    }

    /// Whether a stop waits for what runs: what could not be broken off must not begin any more.
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// Waits until nothing runs that a stop waits for, and says whether that came in time.
    pub async fn finished(&self, patience: Duration) -> bool {
        self.ending.store(true, Ordering::Release);
        let mut running = self.running.subscribe();
        tokio::time::timeout(patience, running.wait_for(|it| *it == 0)).await.is_ok()
    }
}

// === impl Running ===

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_modify(|it| *it -= 1);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_stop_waits_for_what_has_to_finish_and_for_nothing_else() {
        let tasks = Tasks::new(Handle::current());
        let (end, ended) = oneshot::channel::<()>();
        let finishing = tasks.finish(ended);
        let forever = tasks.run(std::future::pending::<()>());
        assert!(!tasks.is_ending());
        assert!(!tasks.finished(Duration::ZERO).await);
        assert!(tasks.is_ending());
        end.send(()).unwrap();
        finishing.await.unwrap().unwrap();
        assert!(tasks.finished(Duration::from_secs(60)).await);
        forever.abort();
    }
}
