//! How the process begins and ends: listeners that are bound before anything else starts, signals,
//! and a stop that waits for the last request.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::fd::{IntoRawFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora_core::{
    server::{ListenFds, ShutdownSignal, ShutdownSignalWatch, ShutdownWatch},
    services::{ServiceReadyNotifier, ServiceWithDependents},
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    time::Instant,
};

use crate::gateway::Gateway;

/// How often a stopping process looks whether it is empty.
const DRAIN_LOOK: Duration = Duration::from_millis(50);

/// Asks a running gateway to stop.
#[derive(Clone, Debug)]
pub struct Stop(Arc<watch::Sender<StopLevel>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StopLevel {
    Run,
    /// Take nothing new, let what runs finish.
    Drain,
    Now,
}

/// SIGTERM and SIGINT stop; SIGHUP, which would end the process, is answered in the log.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// Tells Pingora when to stop: once asked and drained.
pub struct StopWatch {
    level: watch::Receiver<StopLevel>,
    gateway: Arc<Gateway>,
    drain_timeout: Duration,
}

/// A service that gets its listening sockets from us instead of binding them itself, so that a
/// port in use is a plain error before anything runs, and port 0 can be resolved.
pub struct Adopt<S> {
    inner: S,
    listeners: Vec<(String, OwnedFd)>,
}

/// A bound listener and the address it really has.
#[derive(Debug)]
pub struct Bound {
    pub address: SocketAddr,
    pub listener: TcpListener,
}

/// Binds a listener.
///
/// # Errors
/// If the address is in use or not ours.
pub fn bind(address: SocketAddr) -> io::Result<Bound> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(Bound { address: listener.local_addr()?, listener })
}

// === impl Stop ===

impl Stop {
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(StopLevel::Run)))
    }

    /// Takes no new work and ends once what runs is done.
    pub fn drain(&self) {
        self.raise(StopLevel::Drain);
    }

    /// Ends at once.
    pub fn now(&self) {
        self.raise(StopLevel::Now);
    }

    pub fn watch(&self, gateway: Arc<Gateway>, drain_timeout: Duration) -> StopWatch {
        StopWatch { level: self.0.subscribe(), gateway, drain_timeout }
    }

    fn raise(&self, level: StopLevel) {
        self.0.send_if_modified(|current| {
            let higher = *current < level;
            *current = (*current).max(level);
            higher
        });
    }
}

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}

// === impl Signals ===

impl Signals {
    /// Begins to listen; from now on no signal kills the process by surprise. Needs a runtime.
    ///
    /// # Errors
    /// If signals cannot be listened for.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The first signal drains, the second ends at once.
    pub async fn obey(mut self, stop: Stop) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
                _ = self.hangup.recv() => {
                    tracing::warn!("A reload is not built yet: restart to take up a new configuration");
                    continue;
                }
            }
            if *stop.0.borrow() == StopLevel::Run {
                tracing::info!("Stopping: running turns may finish, a second signal ends them");
                stop.drain();
            } else {
                stop.now();
            }
        }
    }
}

// === impl StopWatch ===

#[async_trait]
impl ShutdownSignalWatch for StopWatch {
    async fn recv(&self) -> ShutdownSignal {
        let mut level = self.level.clone();
        if level.wait_for(|it| *it != StopLevel::Run).await.is_err() {
            return ShutdownSignal::FastShutdown;
        }
        self.gateway.drain();
        let deadline = Instant::now() + self.drain_timeout;
        while self.gateway.flights.count() > 0 && Instant::now() < deadline {
            if *level.borrow() == StopLevel::Now {
                return ShutdownSignal::FastShutdown;
            }
            tokio::select! {
                () = tokio::time::sleep(DRAIN_LOOK) => {}
                _ = level.changed() => {}
            }
        }
        ShutdownSignal::GracefulTerminate
    }
}

// === impl Adopt ===

impl<S> Adopt<S> {
    /// `listeners` are known to the inner service by their addresses.
    pub fn new(inner: S, listeners: Vec<Bound>) -> Self {
        let listeners = listeners
            .into_iter()
            .map(|bound| (bound.address.to_string(), OwnedFd::from(bound.listener)))
            .collect();
        Self { inner, listeners }
    }
}

#[async_trait]
impl<S: ServiceWithDependents> ServiceWithDependents for Adopt<S> {
    async fn start_service(
        &mut self,
        fds: Option<ListenFds>,
        shutdown: ShutdownWatch,
        listeners_per_fd: usize,
        ready: ServiceReadyNotifier,
    ) {
        let fds = fds.unwrap_or_else(|| Arc::new(Mutex::new(pingora_core::server::Fds::new())));
        for (address, fd) in self.listeners.drain(..) {
            fds.lock().add(address, fd.into_raw_fd());
        }
        self.inner.start_service(Some(fds), shutdown, listeners_per_fd, ready).await;
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn threads(&self) -> Option<usize> {
        self.inner.threads()
    }

    fn listen_addresses(&self) -> Option<Vec<String>> {
        self.inner.listen_addresses()
    }
}
