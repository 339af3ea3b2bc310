//! Does to a real directory what the model is told, and asks the real program what came of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use codex_edge::{
    accounts::{
        directory::{Depth, Lock},
        pool::Pool,
        reconciler::{Core, CoreParts, Ledger},
        store,
    },
    clock::Clock,
    config::{Auth, Config, Surroundings},
    domain::{
        account::AuthId,
        credential::{AccessToken, Credential, Fingerprint},
        health::{Readiness, Report},
        outcome::{Class, ErrorFacts},
    },
    protocol::request::Inspection,
    sessions::{SessionKey, Sessions},
    storage::Storage,
    telemetry::metrics::Metrics,
};
use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{
    model::{Entry, Key, Model, PARSE_GRACE, REMOVAL_GRACE},
    story::{Content, Login, Op, PLACES, Place, Tells},
};

const SESSIONS: u8 = 4;

pub(super) struct Driver {
    folder: tempfile::TempDir,
    config: Auth,
    clock: Clock,
    /// How far the wall clock is off, in seconds.
    offset: i64,
    hidden: bool,
    process: Option<Process>,
}

/// What a restart begins anew.
struct Process {
    core: Core,
    pool: Arc<Pool>,
    sessions: Arc<Sessions>,
    storage: Storage,
}

/// All that can be seen of accounts, from inside and in the database.
#[derive(Debug, PartialEq)]
pub(super) struct Seen {
    accounts: BTreeMap<String, Shown>,
    /// The account that each session goes to now.
    sessions: BTreeMap<u8, String>,
    /// The account of each binding that is kept.
    bindings: Vec<String>,
    /// Accounts of which a limit is kept.
    limits: BTreeSet<String>,
}

#[derive(Debug, PartialEq)]
struct Shown {
    workspace: Option<String>,
    token: Fingerprint,
    sources: Vec<(String, bool)>,
    disabled: bool,
    out_of_sight: bool,
    resting: bool,
}

// === impl Driver ===

impl Driver {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("auth/team")).unwrap();
        let mut config = config(folder.path()).auth;
        config.parse_grace = std::time::Duration::from_secs(PARSE_GRACE);
        config.removal_grace = std::time::Duration::from_secs(REMOVAL_GRACE);
        let start: Timestamp = "2026-12-01T10:00:00Z".parse().unwrap();
        let clock = Clock::manual(start);
        let mut driver = Self { folder, config, clock, offset: 0, hidden: false, process: None };
        driver.restart();
        driver
    }

    /// Does it, and looks. `model` is as it was before.
    pub(super) fn step(&mut self, op: &Op, model: &Model) {
        match op {
            Op::Write(place, content) => self.write(*place, content),
            Op::Rename(from, to) => self.rename(*from, *to),
            Op::Swap(a, b) => {
                let aside = self.root().join(".swap");
                move_if_there(&self.path(*a), &aside);
                move_if_there(&self.path(*b), &self.path(*a));
                move_if_there(&aside, &self.path(*b));
            }
            Op::Delete(place) => clear(&self.path(*place)),
            Op::Restore(place) => {
                if let Some(content) = model.kept(*place) {
                    self.write(*place, content);
                }
            }
            Op::Loosen(place) => {
                let path = self.path(*place);
                if fs::symlink_metadata(&path).is_ok_and(|it| it.is_file()) {
                    permit(&path, 0o644);
                }
            }
            Op::Hide => self.hide(true),
            Op::Show => self.hide(false),
            Op::Wait(seconds) => {
                let seconds = i64::try_from(*seconds).unwrap();
                self.clock.advance(SignedDuration::from_secs(seconds));
            }
            Op::Jump(offset) => {
                self.clock.jump(SignedDuration::from_secs(offset - self.offset));
                self.offset = *offset;
            }
            Op::Restart => self.restart(),
            Op::Bind { session, nth } => {
                if let Some(account) = model.ready(*nth) {
                    let key = self.session(*session);
                    self.running().sessions.commit(&key, &auth_id(&account), self.clock.now());
                }
            }
            Op::Exhaust { nth } => {
                if let Some(account) = model.ready(*nth) {
                    self.exhaust(&auth_id(&account));
                }
            }
            Op::Look => {}
        }
        self.pass();
    }

    pub(super) fn seen(&self) -> Seen {
        let process = self.running();
        let now = self.clock.now();
        let snapshot = process.pool.snapshot();
        let shown = snapshot.entries.iter().map(|entry| {
            let account = &entry.account;
            let chosen: Vec<_> = account.sources.iter().filter(|it| it.representative).collect();
            assert_eq!(chosen.len(), 1, "one file is in use");
            let shown = Shown {
                workspace: account.account_id.as_ref().map(|it| it.as_str().to_owned()),
                token: account.credential.fingerprint,
                sources: account
                    .sources
                    .iter()
                    .map(|it| (it.path.to_string(), it.problem.is_some()))
                    .collect(),
                disabled: account.eligibility.disabled,
                out_of_sight: account.eligibility.out_of_sight,
                resting: entry.runtime.readiness(now) != Readiness::Ready,
            };
            (account.id.to_string(), shown)
        });
        let accounts: BTreeMap<String, Shown> = shown.collect();
        assert_eq!(accounts.len(), snapshot.entries.len(), "no account twice");
        let sessions = (0..SESSIONS).filter_map(|session| {
            let account = process.sessions.lookup(&self.session(session), now)?;
            Some((session, account.to_string()))
        });
        let list = |sql: &'static str| -> Vec<String> {
            let read = process.storage.write_blocking(move |connection| {
                let mut statement = connection.prepare(sql)?;
                let rows = statement.query_map([], |row| row.get(0))?;
                rows.collect()
            });
            read.unwrap()
        };
        Seen {
            accounts,
            sessions: sessions.collect(),
            bindings: list("SELECT auth_id FROM bindings ORDER BY auth_id"),
            limits: list("SELECT auth_id FROM account_health").into_iter().collect(),
        }
    }

    fn running(&self) -> &Process {
        self.process.as_ref().unwrap()
    }

    fn pass(&mut self) {
        self.process.as_mut().unwrap().core.pass(Depth::Full);
    }

    fn restart(&mut self) {
        self.hide(false);
        self.process = None;
        self.process = Some(self.open());
    }

    fn open(&self) -> Process {
        let metrics = Arc::new(Metrics::new().unwrap());
        let data_dir = self.folder.path().join("data");
        let storage = Storage::open(&data_dir, Arc::clone(&metrics)).unwrap();
        let now = self.clock.now();
        let ttl = SignedDuration::from_hours(24 * 365);
        let sessions = Sessions::new([7; 32], ttl, 100).keep_in(storage.clone(), now).unwrap();
        let sessions = Arc::new(sessions);
        let known = storage.write_blocking(|it| Ok((store::known(it)?, store::healths(it)?)));
        let (known, healths) = known.unwrap();
        let pool = Arc::new(Pool::kept(storage.clone(), healths, now));
        let heard = Arc::clone(&sessions);
        let core = Core::open(CoreParts {
            config: Arc::new(self.config.clone()),
            ledger: Ledger::new(storage.clone(), known, self.clock.elapsed()),
            subscribers: vec![Box::new(move |changes| heard.apply(changes))],
            pool: Arc::clone(&pool),
            clock: self.clock.clone(),
            metrics,
            lock: Lock::acquire(&self.config.dir).unwrap(),
        });
        Process { core: core.unwrap(), pool, sessions, storage }
    }

    fn exhaust(&self, account: &AuthId) {
        let (pool, now) = (&self.running().pool, self.clock.now());
        let pick = pool.take(&pool.snapshot(), account, now).unwrap();
        let facts = ErrorFacts {
            resets_at: Some(now.as_second() + 7 * 24 * 3_600),
            ..ErrorFacts::default()
        };
        let report = Report {
            class: Class::Quota,
            retry_after: None,
            facts,
            started_at: now,
            fingerprint: pick.account.credential.fingerprint,
        };
        pool.report(&pick.lease, &report, now);
    }

    fn session(&self, number: u8) -> SessionKey {
        let mut headers = HeaderMap::new();
        headers.insert("session-id", format!("session-{number}").parse().unwrap());
        self.running().sessions.key_of("local", &headers, &Inspection::default()).unwrap()
    }

    // What is done to the files.

    fn root(&self) -> PathBuf {
        self.folder.path().join(if self.hidden { "away" } else { "auth" })
    }

    fn path(&self, place: Place) -> PathBuf {
        self.root().join(PLACES[place])
    }

    fn hide(&mut self, hidden: bool) {
        let from = self.root();
        self.hidden = hidden;
        let to = self.root();
        if from != to {
            fs::rename(from, to).unwrap();
        }
    }

    fn rename(&self, from: Place, to: Place) {
        let (from, to) = (self.path(from), self.path(to));
        if from != to && fs::symlink_metadata(&from).is_ok() {
            clear(&to);
            fs::rename(from, to).unwrap();
        }
    }

    fn write(&self, place: Place, content: &Content) {
        let path = self.path(place);
        clear(&path);
        let bytes = match content {
            Content::Login(login) => file(*login),
            Content::Cut(login) => {
                let whole = file(*login);
                whole[..whole.len() / 2].to_owned()
            }
            Content::Empty | Content::Huge => String::new(),
            Content::Malformed => "{\"tokens\": }".to_owned(),
            Content::Array => "[]".to_owned(),
            Content::LoggedOut => "{}".to_owned(),
            Content::Foreign => json!({"type": "other", "access_token": "x"}).to_string(),
            Content::Folder => return fs::create_dir(path).unwrap(),
            Content::Link(target) => {
                let target = self.folder.path().join("auth").join(PLACES[*target]);
                return symlink(target, path).unwrap();
            }
            Content::Dangling => return symlink(self.folder.path().join("none"), path).unwrap(),
        };
        fs::write(&path, bytes).unwrap();
        if *content == Content::Huge {
            fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1_048_577).unwrap();
        }
        permit(&path, 0o600);
    }
}

// === impl Seen ===

impl Seen {
    /// What the model holds for right.
    pub(super) fn expected(model: &Model) -> Self {
        let shown = |(key, entry): (&Key, &Entry)| {
            let shown = Shown {
                workspace: entry.workspace.map(|it| format!("workspace-{it}")),
                token: fingerprint(&entry.token),
                sources: entry
                    .sources
                    .iter()
                    .map(|it| (format!("path:{}", PLACES[it.0]), it.1))
                    .collect(),
                disabled: entry.disabled,
                out_of_sight: entry.out_of_sight,
                resting: model.resting.contains(key),
            };
            (auth_id(key).to_string(), shown)
        };
        let id = |key: &Key| auth_id(key).to_string();
        let visible = model.sessions.iter().filter(|it| model.pool.contains_key(it.1));
        let mut bindings: Vec<String> = model.sessions.values().map(id).collect();
        bindings.sort();
        Self {
            accounts: model.pool.iter().map(shown).collect(),
            sessions: visible.map(|(session, key)| (*session, id(key))).collect(),
            bindings,
            limits: model.resting.iter().map(id).collect(),
        }
    }
}

/// The id that is shown, derived as it is documented.
fn auth_id(key: &Key) -> AuthId {
    let (prefix, parts) = match key {
        Key::User { workspace, user } => (
            "acc_",
            vec![format!("workspace-{workspace}"), "chatgpt_user_id".to_owned(), user.to_string()],
        ),
        Key::Workspace(workspace) => ("acc_", vec![format!("workspace-{workspace}")]),
        Key::Path(place) => ("path_", vec![format!("path:{}", PLACES[*place])]),
    };
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    let digits: String = digest.finalize()[..10].iter().map(|it| format!("{it:02x}")).collect();
    AuthId::parse(&format!("{prefix}{digits}")).unwrap()
}

fn fingerprint(token: &str) -> Fingerprint {
    Credential::new(AccessToken::new(token.into()).unwrap(), None).fingerprint
}

fn file(login: Login) -> String {
    let workspace = format!("workspace-{}", login.who.workspace());
    let mut tokens = json!({"access_token": login.token(), "refresh_token": login.refresh()});
    if login.tells != Tells::Nothing {
        tokens["account_id"] = json!(workspace);
    }
    if login.tells == Tells::User {
        let claims = json!({
            "https://api.openai.com/auth": {
                "chatgpt_account_id": workspace,
                "chatgpt_user_id": login.who.user(),
            },
        });
        let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        tokens["id_token"] =
            json!(format!("{}.{}.c2ln", part(json!({"alg": "none"})), part(claims)));
    }
    let last_refresh = format!("2026-11-01T00:00:{:02}Z", login.generation);
    json!({"tokens": tokens, "last_refresh": last_refresh, "disabled": login.off}).to_string()
}

fn config(folder: &Path) -> Config {
    let path = folder.join("config.toml");
    fs::write(&path, format!("[auth]\ndir = {:?}\n", folder.join("auth"))).unwrap();
    let surroundings = Surroundings {
        flag: Some(path),
        env: [("HOME".to_owned(), folder.display().to_string())].into(),
        system_file: Default::default(),
    };
    Config::load(&surroundings).unwrap().config
}

fn clear(path: &Path) {
    match fs::symlink_metadata(path) {
        Ok(it) if it.is_dir() => fs::remove_dir(path).unwrap(),
        Ok(_) => fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}

fn move_if_there(from: &Path, to: &Path) {
    if fs::symlink_metadata(from).is_ok() {
        fs::rename(from, to).unwrap();
    }
}

fn permit(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}
