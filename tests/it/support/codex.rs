//! The real Codex CLI, in a home of its own, able to reach nothing but loopback.

use std::{fs, path::Path, process::Stdio, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{process::Command, sync::Semaphore};

/// Where `npm ci --prefix tests/e2e` puts the client that the lock file pins.
const BINARY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/node_modules/.bin/codex");

/// Far above what the slowest turn takes, retries of the client included.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where every client believes to live: nine hours east of Greenwich, all year round.
pub(crate) const ZONE_HOURS: i8 = 9;

/// What every client is told before the first table of its configuration.
const QUIET_KEYS: &str = r#"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
"#;

/// What every client is told at the end: no traffic that the turn does not need.
const QUIET_TABLES: &str = r"
[features]
plugins = false
apps = false

[analytics]
enabled = false
";

/// Limits the clients of one process; `.config/nextest.toml` limits those of all processes.
static SLOTS: Semaphore = Semaphore::const_new(2);

/// One user of the CLI: `CODEX_HOME`, home, working directory and environment.
pub(crate) struct Codex {
    folder: TempDir,
    env: Vec<(&'static str, String)>,
}

/// What one run of the CLI printed.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) output: String,
    pub(crate) errors: String,
    pub(crate) success: bool,
}

/// Ends the CLI and what it started, unless it has ended by itself: the CLI from npm is a script
/// that starts the real one.
struct Group(Option<u32>);

// === impl Codex ===

impl Codex {
    /// A client with these keys and tables in its `config.toml`, beside those that keep it quiet.
    pub(crate) fn new(keys: &str, tables: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["codex", "home", "work"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let config = format!("{keys}{QUIET_KEYS}\n{tables}\n{QUIET_TABLES}");
        fs::write(folder.path().join("codex/config.toml"), config).unwrap();
        Self { folder, env: Vec::new() }
    }

    /// A client of the provider `gw`, with these further lines about it.
    pub(crate) fn of_provider(base_url: &str, model: &str, lines: &str) -> Self {
        let keys = format!("model = \"{model}\"\nmodel_provider = \"gw\"\n");
        let provider = format!(
            "[model_providers.gw]\nname = \"OpenAI\"\nbase_url = \"{base_url}\"\n\
             wire_api = \"responses\"\n{lines}\n"
        );
        Self::new(&keys, &provider)
    }

    #[must_use]
    pub(crate) fn env(mut self, name: &'static str, value: &str) -> Self {
        self.env.push((name, value.to_owned()));
        self
    }

    /// Signs the client in with a login that a gateway made up: its access token is `key`, and it
    /// belongs to no workspace.
    #[must_use]
    pub(crate) fn signed_in(self, key: &str) -> Self {
        let auth = json!({
            "auth_mode": "chatgpt",
            "OPENAI_API_KEY": null,
            "last_refresh": "2099-01-01T00:00:00Z",
            "tokens": {"id_token": id_token(), "access_token": key, "refresh_token": ""},
        });
        fs::write(self.folder.path().join("codex/auth.json"), auth.to_string()).unwrap();
        self
    }

    /// Runs `codex exec` to its end.
    pub(crate) async fn exec(&self, more: &[&str]) -> Run {
        assert!(
            Path::new(BINARY).exists(),
            "The real Codex CLI is not installed: run ./test, or npm ci --prefix tests/e2e."
        );
        let _slot = SLOTS.acquire().await.unwrap();
        let child = self.command(more).spawn().unwrap();
        let mut group = Group(child.id());
        let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await;
        let Ok(output) = output else {
            unreachable!("codex exec {more:?} did not end within {PATIENCE:?}")
        };
        group.0 = None;
        let output = output.unwrap();
        let run = Run {
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
            success: output.status.success(),
        };
        println!("--- stdout\n{}--- stderr\n{}", run.output, run.errors);
        run
    }

    fn command(&self, more: &[&str]) -> Command {
        let home = self.folder.path();
        let mut command = Command::new(BINARY);
        command
            .args(["exec", "--skip-git-repo-check", "--strict-config"])
            .args(more)
            .current_dir(home.join("work"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("CODEX_HOME", home.join("codex"))
            .env("HOME", home.join("home"))
            .env("TZ", format!("TST-{ZONE_HOURS}"))
            // Nobody listens there, so whatever is not meant for loopback gets nowhere.
            .env("HTTP_PROXY", "http://127.0.0.1:9")
            .env("HTTPS_PROXY", "http://127.0.0.1:9")
            .env("NO_PROXY", "127.0.0.1,localhost")
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        command
    }
}

/// An unsigned token that says who the user is; the CLI checks no signature.
fn id_token() -> String {
    let claims = json!({
        "exp": 4_102_444_800_i64,
        "email": "local@gateway.example",
        "https://api.openai.com/auth": {"chatgpt_plan_type": "pro", "chatgpt_user_id": "user-local"},
    });
    let part = |it: &Value| URL_SAFE_NO_PAD.encode(it.to_string());
    format!("{}.{}.none", part(&json!({"alg": "none", "typ": "JWT"})), part(&claims))
}

// === impl Run ===

impl Run {
    /// Asserts that the CLI printed this answer, once, and nothing of a trouble on the way. What it
    /// logs of a refused WebSocket is no word to the user.
    pub(crate) fn assert_answered(&self, text: &str) {
        assert!(self.success, "the CLI failed: {self:?}");
        assert_eq!(self.output.trim(), text, "{self:?}");
        let said = self.errors.lines().filter(|it| !it.contains("ERROR codex_api::endpoint::"));
        let said = said.collect::<Vec<_>>().join("\n");
        for word in ["Reconnecting", "Falling back", "ERROR", "error"] {
            assert!(!said.contains(word), "{word}: {said}");
        }
    }

    /// Asserts that the CLI failed and printed this.
    pub(crate) fn assert_failed(&self, text: &str) {
        assert!(!self.success, "the CLI did not fail: {self:?}");
        assert!(self.errors.contains(text), "{text:?} is not in {self:?}");
    }
}

// === impl Group ===

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(id) = self.0 {
            let group = format!("-{id}");
            let _ = std::process::Command::new("kill").args(["-KILL", "--", &group]).status();
        }
    }
}
