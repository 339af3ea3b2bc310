//! The built binary as an operator runs it.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{Child, Command},
    task::JoinHandle,
};

/// A folder with a configuration, and what runs from it.
pub(crate) struct Place {
    pub(crate) folder: TempDir,
}

/// `codex-edge serve`, listening.
pub(crate) struct Serving {
    pub(crate) edge: SocketAddr,
    pub(crate) admin: SocketAddr,
    child: Child,
    greeting: String,
    rest: BufReader<tokio::process::ChildStdout>,
    /// Read all the time, so that a full pipe never stops the gateway.
    log: JoinHandle<Vec<u8>>,
}

// === impl Place ===

impl Place {
    /// A folder whose configuration listens on free ports and holds `toml` besides.
    pub(crate) fn new(toml: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let server = format!(
            "listen = [\"127.0.0.1:0\"]\nadmin_listen = \"127.0.0.1:0\"\ndata_dir = {data:?}\n"
        );
        let toml = if toml.contains("[server]\n") {
            toml.replacen("[server]\n", &format!("[server]\n{server}"), 1)
        } else {
            format!("[server]\n{server}{toml}")
        };
        std::fs::write(folder.path().join("config.toml"), toml).unwrap();
        Self { folder }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The credential directory, made if it is not there.
    pub(crate) fn auth(&self) -> PathBuf {
        let auth = self.data().join("auth");
        std::fs::create_dir_all(&auth).unwrap();
        auth
    }

    pub(crate) fn key(&self) -> String {
        std::fs::read_to_string(self.data().join("local.key")).unwrap().trim().to_owned()
    }

    fn command(&self, verb: &str) -> Command {
        self.command_of(&[verb])
    }

    /// A verb of several words, with what follows them.
    pub(crate) fn command_of(&self, words: &[&str]) -> Command {
        // The most careless umask there is: modes must not depend on it.
        let mut command = Command::new("sh");
        command
            .args(["-c", "umask 000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_codex-edge")])
            .args(words)
            .arg("--config")
            .arg(self.folder.path().join("config.toml"))
            .env_clear()
            .env("HOME", self.folder.path())
            .env("NO_COLOR", "1")
            // Whoever heeds these gets nowhere.
            .envs(
                ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"]
                    .map(|it| (it, "http://127.0.0.1:9")),
            )
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs a verb to its end.
    pub(crate) async fn run(&self, verb: &str) -> Output {
        self.command(verb).output().await.unwrap()
    }

    /// Starts the gateway and waits until it listens.
    pub(crate) async fn serve(&self) -> Serving {
        let mut child = self.command("serve").spawn().unwrap();
        let mut rest = BufReader::new(child.stdout.take().unwrap());
        let mut greeting = String::new();
        rest.read_line(&mut greeting).await.unwrap();
        let addresses = addresses(&greeting);
        assert_eq!(addresses.len(), 2, "the gateway did not start: {greeting}");
        let mut stderr = child.stderr.take().unwrap();
        let log = tokio::spawn(async move {
            let mut log = Vec::new();
            stderr.read_to_end(&mut log).await.unwrap();
            log
        });
        Serving { edge: addresses[0], admin: addresses[1], child, greeting, rest, log }
    }
}

fn addresses(line: &str) -> Vec<SocketAddr> {
    line.split("http://")
        .skip(1)
        .filter_map(|part| part.split(['/', '\n']).next())
        .filter_map(|address| address.parse().ok())
        .collect()
}

// === impl Serving ===

impl Serving {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let sent = std::process::Command::new("kill").args(["-s", name, &pid]).status().unwrap();
        assert!(sent.success());
    }

    /// Asks for a stop and gives everything that was printed.
    pub(crate) async fn stop(self) -> Output {
        self.signal("TERM");
        self.wait().await
    }

    pub(crate) async fn wait(mut self) -> Output {
        let mut printed = self.greeting.into_bytes();
        self.rest.read_to_end(&mut printed).await.unwrap();
        let output = self.child.wait_with_output().await.unwrap();
        Output { stdout: printed, stderr: self.log.await.unwrap(), ..output }
    }
}

/// Every file below a folder, with its bytes.
pub(crate) fn files_below(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push((path.clone(), std::fs::read(&path).unwrap()));
        }
    }
    found
}
