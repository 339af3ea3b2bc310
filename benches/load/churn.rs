//! Requests while credential files change: whoever waits for an answer must not notice.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    Fault, ROUNDS,
    client::{self, Measured, Target},
    process::Server,
    roles::CROWD,
};

/// Requests at a time: few enough to leave the machine some air, since a full one shows only how
/// the cores are shared.
const CONCURRENCY: usize = 4;

const CHANGES_PER_SECOND: u64 = 200;

/// More rounds than elsewhere: a p99 needs many requests.
const ROUNDS_OF_EACH: u32 = 3 * ROUNDS;

/// With files that rest, with files that change where nobody looks, and with credential files that
/// change. Between the second and the third lies what the gateway does about it; between the first
/// and the second what the changes cost a machine that client and upstream share.
pub(crate) struct Churned {
    pub(crate) still: Measured,
    pub(crate) elsewhere: Measured,
    pub(crate) changing: Measured,
    pub(crate) changes_per_second: f64,
}

pub(crate) async fn measure(time: Duration) -> Result<Churned, Fault> {
    let folder = tempfile::tempdir()?;
    let sim = Server::start("serve-sim-crowd", &[])?;
    let upstream = sim.address.to_string();
    let home = folder.path().join("gateway");
    let gateway = Server::start("serve-gateway-crowd", &[upstream.as_ref(), home.as_os_str()])?;
    let target = Target::gateway(&gateway)?;
    let auth_dir = home.join("auth");
    let copy = folder.path().join("copy");
    copy_files(&auth_dir, &copy)?;
    let (mut still, mut elsewhere) = (Measured::default(), Measured::default());
    let mut changing = Measured::default();
    let (mut changes, mut changed_for) = (0, Duration::ZERO);
    for _ in 0..ROUNDS_OF_EACH {
        let round = time / ROUNDS_OF_EACH;
        still.add(client::press(&gateway, &target, CONCURRENCY, round).await?);
        let churn = Churn::start(copy.clone());
        elsewhere.add(client::press(&gateway, &target, CONCURRENCY, round).await?);
        churn.stop()?;
        let churn = Churn::start(auth_dir.clone());
        let began = Instant::now();
        changing.add(client::press(&gateway, &target, CONCURRENCY, round).await?);
        changes += churn.stop()?;
        changed_for += began.elapsed();
    }
    let changes_per_second = changes as f64 / changed_for.as_secs_f64();
    Ok(Churned { still, elsewhere, changing, changes_per_second })
}

fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for file in fs::read_dir(from)? {
        let file = file?;
        fs::copy(file.path(), to.join(file.file_name()))?;
    }
    Ok(())
}

/// Changes files until it is stopped.
struct Churn {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<u64>>,
}

// === impl Churn ===

impl Churn {
    fn start(auth_dir: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || change(&auth_dir, &stopped));
        Self { stop, thread }
    }

    fn stop(self) -> Result<u64, Fault> {
        self.stop.store(true, Ordering::Relaxed);
        Ok(self.thread.join().map_err(|_| "the changes broke off")??)
    }
}

/// Rewrites, renames, copies and deletes, in turns; every account keeps at least one good file.
fn change(auth_dir: &Path, stop: &AtomicBool) -> io::Result<u64> {
    let began = Instant::now();
    let done = AtomicU64::new(0);
    while !stop.load(Ordering::Relaxed) {
        let number = done.fetch_add(1, Ordering::Relaxed);
        let account = usize::try_from(number / 4).unwrap_or_default() % CROWD;
        let file = auth_dir.join(format!("a{account:03}.json"));
        let other = auth_dir.join(format!("a{account:03}-moved.json"));
        match number % 4 {
            0 => {
                // White space at the end: other bytes, the same login.
                let mut bytes = fs::read(&file)?;
                bytes.push(b'\n');
                fs::write(&file, bytes)?;
            }
            1 => fs::rename(&file, &other)?,
            2 => fs::copy(&other, &file).map(drop)?,
            _ => fs::remove_file(&other)?,
        }
        let due = began + Duration::from_micros((number + 1) * 1_000_000 / CHANGES_PER_SECOND);
        thread::park_timeout(due.saturating_duration_since(Instant::now()));
    }
    Ok(done.into_inner())
}
