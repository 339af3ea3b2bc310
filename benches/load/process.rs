//! Servers as children: started from this same program, measured through `/proc`, ended on drop.

use std::{
    env,
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::Duration,
};

use super::Fault;

/// Linux tells CPU times to user space in hundredths of a second on every machine.
const TICK_MS: u64 = 10;

/// A server that runs.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// The client key, where one is needed.
    pub(crate) key: Option<String>,
    child: Child,
}

// === impl Server ===

impl Server {
    /// Starts this program in another role and waits until it says where it listens.
    pub(crate) fn start(role: &str, arguments: &[&OsStr]) -> Result<Self, Fault> {
        let mut child = Command::new(env::current_exe()?)
            .arg(role)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Log lines are written as in service, but to nowhere.
            .stderr(Stdio::null())
            .spawn()?;
        let mut line = String::new();
        if let Some(stdout) = &mut child.stdout {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let mut words = line.split_whitespace();
        match words.next().map(str::parse) {
            Some(Ok(address)) => Ok(Self { address, key: words.next().map(str::to_owned), child }),
            Some(Err(_)) | None => {
                child.kill()?;
                child.wait()?;
                let said = if line.is_empty() { "it did not start" } else { line.trim() };
                Err(format!("{role}: {said}").into())
            }
        }
    }

    /// The CPU time that the process and its children have used.
    pub(crate) fn cpu(&self) -> Duration {
        let ticks = family(self.child.id()).into_iter().filter_map(cpu_ticks).sum::<u64>();
        Duration::from_millis(ticks * TICK_MS)
    }

    /// Resident memory in KiB, children included.
    pub(crate) fn resident_kib(&self) -> u64 {
        family(self.child.id()).into_iter().filter_map(resident_kib).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Each role ends when its standard input does.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The process and all that it has started.
fn family(root: u32) -> Vec<u32> {
    let mut members = vec![root];
    let mut next = 0;
    while let Some(&pid) = members.get(next) {
        next += 1;
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            members.extend(children.split_whitespace().filter_map(|it| it.parse::<u32>().ok()));
        }
    }
    members
}

/// User and system time; fields 14 and 15 of `proc_pid_stat(5)`. The second may hold blanks, but
/// ends with the last parenthesis.
fn cpu_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn resident_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
