//! A process that is really killed, at every step of what it does.
//!
//! The test binary runs itself: a test that is ignored otherwise is the child. It does the work with
//! [`Steps`] that tell each step and stop for good at one of them; the parent then sends SIGKILL.

use std::{
    env,
    io::{BufRead, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use codex_edge::accounts::files::Steps;

const STOP_AT: &str = "CODEX_EDGE_TEST_STOP_AT";
const FOLDER: &str = "CODEX_EDGE_TEST_FOLDER";
const MARK: &str = "@step ";

/// What a child is to do, if this process is one.
pub(crate) struct Child {
    /// The place that both know.
    pub(crate) folder: PathBuf,
    /// To be handed to whatever does the work.
    pub(crate) steps: Steps,
}

// === impl Child ===

impl Child {
    /// `None` in a process that nobody started as a child: the test then has nothing to do.
    pub(crate) fn current() -> Option<Self> {
        let folder = PathBuf::from(env::var_os(FOLDER)?);
        let stop_at: Option<usize> = env::var(STOP_AT).ok().and_then(|it| it.parse().ok());
        let reached = AtomicUsize::new(0);
        let steps = Steps::new(move |step| {
            let number = reached.fetch_add(1, Ordering::SeqCst);
            let mut out = std::io::stdout().lock();
            writeln!(out, "{MARK}{number} {step:?}").unwrap();
            out.flush().unwrap();
            drop(out);
            while Some(number) == stop_at {
                thread::park();
            }
        });
        Some(Self { folder, steps })
    }
}

/// The ignored test `entry`, to be run in a process of its own after `shell` commands.
pub(crate) fn command(entry: &str, folder: &Path, shell: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{shell}\nexec \"$0\" \"$@\"")])
        .arg(env::current_exe().unwrap())
        .args(["--exact", entry, "--ignored", "--nocapture", "--test-threads", "1"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped());
    command
}

/// Runs that test and kills it at its step number `stop_at`. Gives the name of that step, or `None`
/// if the child came to its end before.
pub(crate) fn kill_at(entry: &str, folder: &Path, stop_at: usize) -> Option<String> {
    let mut child = command(entry, folder, "").env(STOP_AT, stop_at.to_string()).spawn().unwrap();
    let wanted = format!("{MARK}{stop_at} ");
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        // The test harness may have begun the line.
        if let Some((_, step)) = line.unwrap().split_once(&wanted) {
            child.kill().unwrap();
            child.wait().unwrap();
            return Some(step.to_owned());
        }
    }
    assert!(child.wait().unwrap().success(), "the child {entry} failed by itself");
    None
}

/// Kills a child at each of its steps in turn. `prepare` makes the place anew each time, and `check`
/// looks at what is left. Gives the names of all steps.
pub(crate) fn kill_at_every_step(
    entry: &str,
    prepare: impl Fn(&Path),
    check: impl Fn(&Path, &str),
) -> Vec<String> {
    let mut steps = Vec::new();
    loop {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path());
        let Some(step) = kill_at(entry, folder.path(), steps.len()) else {
            check(folder.path(), "the end");
            return steps;
        };
        check(folder.path(), &step);
        steps.push(step);
    }
}
