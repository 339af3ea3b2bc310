//! Credential files on a real file system become accounts of the pool.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    sync::mpsc,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use codex_edge::accounts::{
    self, Loaded,
    directory::{FileState, Reason, read_all},
    labels::Labels,
};
use jiff::Timestamp;
use proptest::prelude::*;
use rand::{SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tempfile::TempDir;

const SECRET: &str = "canary";

/// A credential directory.
struct Home {
    dir: TempDir,
}

impl Home {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn login(&self, name: impl AsRef<Path>, account: &str) {
        self.write(name, codex(account, SECRET));
    }

    fn load(&self) -> Loaded {
        load(self.dir.path(), true)
    }

    fn problems(&self) -> Vec<String> {
        self.load().problems.iter().map(ToString::to_string).collect()
    }

    /// The names of the files that are in use.
    fn sources(&self) -> Vec<String> {
        let loaded = self.load();
        let sources = loaded.accounts.iter().flat_map(|it| &it.sources);
        let mut names: Vec<String> = sources.map(|it| it.path.to_string()).collect();
        names.sort();
        names
    }
}

fn load(dir: &Path, follow_symlinks: bool) -> Loaded {
    let (mut labels, mut random) = (Labels::default(), StdRng::seed_from_u64(1));
    accounts::load(dir, follow_symlinks, &mut labels, &mut random, Timestamp::UNIX_EPOCH).unwrap()
}

fn codex(account: &str, token: &str) -> String {
    json!({"tokens": {"access_token": token, "account_id": account}}).to_string()
}

fn jwt(claims: &Value) -> String {
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

fn seat(account: &str, user: &str) -> String {
    let auth = json!({"chatgpt_account_id": account, "chatgpt_user_id": user});
    jwt(&json!({"https://api.openai.com/auth": auth}))
}

#[test]
fn copies_of_an_account_in_both_shapes_are_one_account() {
    let home = Home::new();
    home.login("auth.json", "acct-1");
    home.login("team/copy.json", "acct-1");
    let flat = json!({"type": "codex", "access_token": "t", "account_id": "acct-1"});
    home.write("flat.json", flat.to_string());
    home.login("other.json", "acct-2");
    let loaded = home.load();
    let mut counts: Vec<usize> = loaded.accounts.iter().map(|it| it.sources.len()).collect();
    counts.sort_unstable();
    assert_eq!((counts, loaded.problems.len()), (vec![1, 3], 0));
}

#[test]
fn two_users_of_one_workspace_are_two_accounts_with_one_header() {
    let home = Home::new();
    home.write("a.json", json!({"tokens": {"access_token": seat("acct-1", "u1")}}).to_string());
    home.write("b.json", json!({"tokens": {"access_token": seat("acct-1", "u2")}}).to_string());
    let loaded = home.load();
    assert_eq!(loaded.accounts.len(), 2);
    for account in &loaded.accounts {
        assert_eq!(account.account_id.as_ref().unwrap().header().unwrap(), "acct-1");
    }
}

#[test]
fn the_order_in_which_files_were_made_changes_nothing() {
    let names = ["a.json", "b.json", "c/a.json", "z.json"];
    let ids = |order: &[usize]| -> Vec<String> {
        let home = Home::new();
        for place in order {
            home.login(names[*place], names[*place]);
        }
        home.load().accounts.iter().map(|it| it.id.to_string()).collect()
    };
    let first = ids(&[0, 1, 2, 3]);
    assert!(first.is_sorted() && first.len() == 4);
    assert_eq!(first, ids(&[3, 1, 2, 0]));
}

#[test]
fn an_account_without_an_id_goes_by_its_place_in_the_directory() {
    let ids = |home: &Home| -> Vec<String> {
        home.load().accounts.iter().map(|it| it.id.to_string()).collect()
    };
    let (one, two) = (Home::new(), Home::new());
    for home in [&one, &two] {
        home.write("team/x.json", json!({"tokens": {"access_token": "opaque"}}).to_string());
    }
    assert_eq!(ids(&one), ids(&two));
    assert!(ids(&one)[0].starts_with("path_"));
    let roundabout = one.path("team/../../").join(one.dir.path().file_name().unwrap());
    assert_eq!(load(&roundabout, true).accounts[0].id.to_string(), ids(&one)[0]);
}

#[test]
fn labels_are_kept_and_new_ones_are_told() {
    let home = Home::new();
    home.login("a.json", "acct-1");
    let (mut labels, mut random) = (Labels::default(), StdRng::seed_from_u64(1));
    let mut load = || {
        accounts::load(home.dir.path(), true, &mut labels, &mut random, Timestamp::UNIX_EPOCH)
            .unwrap()
    };
    let (first, second) = (load(), load());
    assert_eq!(first.minted.len(), 1);
    assert_eq!(first.minted[0].1, first.accounts[0].label);
    assert_eq!((second.minted.len(), &second.accounts[0].label), (0, &first.accounts[0].label));
}

#[test]
fn what_belongs_to_editors_and_programs_is_not_looked_at() {
    let home = Home::new();
    let names = [
        ".hidden.json",
        ".#x.json",
        "#x.json#",
        "~x.json",
        "x.json~",
        "auth.json.bak",
        "codex-edge.db",
        "auth.json.tmp",
        ".git/x.json",
        "UPPER.JSON",
    ];
    for name in names {
        home.login(name, name);
    }
    home.login("auth.json", "acct-1");
    assert_eq!(home.sources(), ["path:auth.json"]);
    assert_eq!(home.problems(), Vec::<String>::new());
}

#[test]
fn nothing_odd_in_the_directory_holds_the_reader_up() {
    let home = Home::new();
    home.login("auth.json", "acct-1");
    let pipe = std::process::Command::new("mkfifo").arg(home.path("pipe.json")).status();
    assert!(pipe.unwrap().success());
    symlink(home.path("pipe.json"), home.path("to-pipe.json")).unwrap();
    let _socket = UnixListener::bind(home.path("socket.json")).unwrap();
    fs::create_dir(home.path("folder.json")).unwrap();
    symlink("/dev/tty", home.path("device.json")).unwrap();
    home.write("huge.json", vec![b' '; (1 << 20) + 1]);
    symlink("missing", home.path("dangling.json")).unwrap();
    symlink("loop.json", home.path("loop.json")).unwrap();

    let (told, heard) = mpsc::channel();
    let path = home.dir.path().to_owned();
    std::thread::spawn(move || told.send(load(&path, true)));
    let loaded = heard.recv_timeout(Duration::from_secs(60)).unwrap();

    assert_eq!(loaded.accounts.len(), 1);
    let names: Vec<&str> = loaded
        .problems
        .iter()
        .map(|it| it.path.as_str().trim_start_matches("path:").trim_end_matches(".json"))
        .collect();
    let wanted = ["dangling", "device", "folder", "huge", "loop", "pipe", "socket", "to-pipe"];
    assert_eq!(names, wanted);
}

#[test]
fn a_bad_file_is_told_with_its_path_and_reason_and_the_others_serve() {
    let home = Home::new();
    home.login("good.json", "acct-1");
    home.write("sub/half.json", &codex("acct-2", SECRET)[..20]);
    home.write("empty.json", "");
    home.write("list.json", "[]");
    home.write("line.json", json!({"tokens": {"access_token": "canary\n"}}).to_string());
    home.write("key.json", json!({"OPENAI_API_KEY": SECRET, "tokens": null}).to_string());
    home.write("out.json", "{}");
    let off = json!({"tokens": {"access_token": "t"}, "account_id": "b", "disabled": "true"});
    home.write("off.json", off.to_string());
    let loaded = home.load();
    let serve: Vec<bool> = loaded.accounts.iter().map(|it| it.eligibility.is_open()).collect();
    assert_eq!((serve.len(), serve.iter().filter(|it| **it).count()), (2, 1));
    let problems = home.problems();
    let wanted = [
        "path:empty.json: the file is empty",
        "path:line.json: `access_token` cannot be used: the token holds a line break",
        "path:list.json: it holds JSON, but no object",
        "path:off.json: `disabled` is neither true nor false",
        "path:sub/half.json: it is no valid JSON (line 1, column 20)",
    ];
    assert_eq!(problems.len(), wanted.len(), "{problems:?}");
    for (problem, wanted) in problems.iter().zip(wanted) {
        assert!(problem.starts_with(wanted), "{problem}");
    }
}

#[test]
fn a_file_with_many_names_is_one_copy() {
    let home = Home::new();
    home.write("b.json", json!({"tokens": {"access_token": "opaque"}}).to_string());
    fs::hard_link(home.path("b.json"), home.path("c.json")).unwrap();
    symlink(home.path("b.json"), home.path("a.json")).unwrap();
    assert_eq!(home.sources(), ["path:b.json"]);
}

#[test]
fn a_link_out_of_the_directory_is_told_or_refused() {
    let (home, outside) = (Home::new(), Home::new());
    outside.login("real.json", "acct-1");
    home.login("folder/inside.json", "acct-2");
    symlink(outside.path("real.json"), home.path("link.json")).unwrap();
    symlink(home.path("folder/inside.json"), home.path("near.json")).unwrap();
    symlink(outside.dir.path(), home.path("linked-folder")).unwrap();
    symlink(outside.dir.path(), home.path("linked-folder.json")).unwrap();

    let loaded = load(home.dir.path(), true);
    assert_eq!((loaded.accounts.len(), loaded.problems.len()), (2, 1));
    assert_eq!(loaded.problems[0].reason, Reason::LinkLeaves);
    assert!(loaded.problems[0].reason.is_notice());

    let loaded = load(home.dir.path(), false);
    assert_eq!((loaded.accounts.len(), loaded.problems.len()), (1, 1));
    assert_eq!(loaded.problems[0].reason, Reason::LinkForbidden);
}

#[test]
fn a_file_that_others_can_read_serves_and_is_told() {
    let home = Home::new();
    home.login("auth.json", "acct-1");
    fs::set_permissions(home.path("auth.json"), fs::Permissions::from_mode(0o644)).unwrap();
    let loaded = home.load();
    assert_eq!(loaded.accounts.len(), 1);
    assert_eq!(loaded.problems[0].reason, Reason::OpenToOthers { mode: 0o644 });
}

#[test]
fn names_that_are_no_text_stay_apart_and_readable() {
    let home = Home::new();
    let names: [&[u8]; 3] = [b"a\xff.json", b"a\xfe.json", b"a%FF.json"];
    for name in names {
        let token = URL_SAFE_NO_PAD.encode(name);
        let body = json!({"tokens": {"access_token": token}}).to_string();
        home.write(OsStr::from_bytes(name), body);
    }
    assert_eq!(home.sources(), ["path:a%25FF.json", "path:a%FE.json", "path:a%FF.json"]);
}

#[test]
fn two_spellings_of_one_name_are_told() {
    let home = Home::new();
    home.write("e\u{301}.json", json!({"tokens": {"access_token": "t1"}}).to_string());
    home.write("\u{e9}.json", json!({"tokens": {"access_token": "t2"}}).to_string());
    if fs::read_dir(home.dir.path()).unwrap().count() == 1 {
        return; // This file system joins the two itself.
    }
    let loaded = home.load();
    assert_eq!(loaded.accounts.len(), 1);
    assert_eq!(loaded.problems[0].reason, Reason::NameTaken);
}

#[test]
fn folders_are_entered_to_a_depth() {
    let home = Home::new();
    let deep = |levels: usize| format!("{}x.json", "d/".repeat(levels));
    home.login(deep(8), "acct-8");
    home.login(deep(9), "acct-9");
    let loaded = home.load();
    assert_eq!((loaded.accounts.len(), loaded.problems.len()), (1, 1));
    assert_eq!(loaded.problems[0].reason, Reason::TooDeep);
}

#[test]
fn of_too_many_files_the_first_are_read() {
    let home = Home::new();
    for number in 0..10_005 {
        fs::write(home.path(format!("{number:05}.json")), "{}").unwrap();
    }
    let reading = read_all(home.dir.path(), true).unwrap();
    assert_eq!(reading.files.len(), 10_000);
    assert!(matches!(reading.files[0].state, FileState::LoggedOut));
    let [problem] = &reading.unread[..] else { panic!("one problem") };
    assert_eq!(problem.to_string().split(':').nth(1), Some("10000.json"));
}

#[test]
fn a_missing_directory_is_an_error_that_names_it() {
    let home = Home::new();
    let error = read_all(&home.path("nowhere"), true).unwrap_err();
    assert!(error.to_string().contains("nowhere"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_rubbish_stops_the_reader_or_shows_a_token(
        files in prop::collection::vec(("[a-c]{1,2}", 0_usize..120, any::<bool>()), 0..6),
        noise in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let home = Home::new();
        let whole = json!({
            "account_id": format!("{SECRET}-account"), "email": format!("{SECRET}@example.com"),
            "tokens": {"access_token": format!("{SECRET}-access"), "refresh_token": SECRET,
                "id_token": seat(SECRET, SECRET)},
        });
        for (name, cut, noisy) in files {
            let mut bytes = whole.to_string().into_bytes();
            bytes.truncate(bytes.len() - cut.min(bytes.len()));
            if noisy {
                bytes.extend(&noise);
            }
            home.write(format!("{name}.json"), bytes);
        }
        let loaded = home.load();
        prop_assert!(loaded.accounts.len() <= 1);
        let shown = format!("{loaded:?} {:?}", home.problems());
        prop_assert!(!shown.contains(SECRET), "{}", shown);
        let encoded = URL_SAFE_NO_PAD.encode(SECRET);
        prop_assert!(!shown.contains(&encoded[..6]), "{}", shown);
    }
}
