//! Changes of credential files on a real file system.

use std::{
    fs,
    io::ErrorKind,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown, symlink},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use codex_edge::{
    accounts::files::{CredentialFiles, FoundFile, Outcome, Step, Steps, WriteError, Written},
    domain::credential::{AccessToken, RefreshToken},
    protocol::credential_file::rewrite::NewTokens,
};
use jiff::Timestamp;
use tempfile::TempDir;

use crate::support::{
    crash::{self, Child},
    process::files_below,
};

const OTHER: &str =
    r#"{"tokens": {"access_token": "b", "refresh_token": "other", "account_id": "two"}}"#;
const NOBODY: u32 = 65_534;

/// A credential directory, and a folder beside it.
struct Home {
    folder: TempDir,
}

// === impl Home ===

impl Home {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("auth")).unwrap();
        fs::create_dir(folder.path().join("far")).unwrap();
        Self { folder }
    }

    fn auth(&self, name: &str) -> PathBuf {
        self.folder.path().join("auth").join(name)
    }

    fn far(&self, name: &str) -> PathBuf {
        self.folder.path().join("far").join(name)
    }

    fn files(&self) -> CredentialFiles {
        self.watched(Steps::default())
    }

    fn watched(&self, steps: Steps) -> CredentialFiles {
        CredentialFiles::new(self.auth(""), true, steps)
    }

    fn found(&self) -> Vec<FoundFile> {
        self.files().read().unwrap()
    }

    fn holds_nothing_but(&self, names: &[&str]) {
        let mut found: Vec<String> = files_below(self.folder.path())
            .into_iter()
            .map(|(path, _)| path.strip_prefix(self.folder.path()).unwrap().display().to_string())
            .collect();
        found.sort();
        assert_eq!(found, names);
    }
}

/// A file of account `one`, with members that nobody here knows.
fn file(access: &str, refresh: &str, last_refresh: &str) -> String {
    format!(
        "{{\n  \"mine\": 12345678901234567890123, \"tokens\": {{\"access_token\": \"{access}\", \"nobody\": [\"knows\"],\n  \
         \"refresh_token\": \"{refresh}\", \"account_id\": \"one\"}},\n  \"last_refresh\": \"{last_refresh}\"\n}}\n"
    )
}

fn old() -> String {
    file("a", "spent", "")
}

fn new() -> String {
    file("new", "fresh", "1970-01-01T00:00:00Z")
}

fn off() -> String {
    old().replace("\"\"\n}", "\"\",\n  \"disabled\": true\n}")
}

fn tokens() -> NewTokens {
    NewTokens {
        access: AccessToken::new("new".into()).unwrap(),
        refresh: Some(RefreshToken::new("fresh".into()).unwrap()),
        id_token: None,
        account_id: None,
        last_refresh: Timestamp::UNIX_EPOCH,
    }
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

/// Does `then` at the first of these steps.
fn once_at(step: Step, then: impl Fn() + Send + Sync + 'static) -> Steps {
    let done = AtomicBool::new(false);
    Steps::new(move |reached| {
        if reached == step && !done.swap(true, Ordering::SeqCst) {
            then();
        }
    })
}

fn is_root(home: &Home) -> bool {
    fs::metadata(home.folder.path()).unwrap().uid() == 0
}

#[test]
fn every_copy_gets_the_tokens_and_keeps_its_mode_owner_and_other_members() {
    let home = Home::new();
    fs::create_dir(home.auth("team")).unwrap();
    for (name, mode) in [("a.json", 0o640), ("team/b.json", 0o600), ("c.json", 0o444)] {
        fs::write(home.auth(name), old()).unwrap();
        fs::set_permissions(home.auth(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::write(home.auth("other.json"), OTHER).unwrap();
    let is_root = is_root(&home);
    if is_root {
        chown(home.auth("a.json"), Some(1234), Some(5678)).unwrap();
    }
    let found = home.found();
    let copies: Vec<FoundFile> =
        found.iter().filter(|it| !it.path.as_str().ends_with("other.json")).cloned().collect();
    let rotated = home.files().rotate(&copies, &tokens());
    assert_eq!(rotated.files.len(), 3);
    assert!(rotated.files.iter().all(|(_, it)| *it == Outcome::Written) && rotated.is_complete());
    for (name, mode) in [("a.json", 0o640), ("team/b.json", 0o600), ("c.json", 0o444)] {
        assert_eq!(text(home.auth(name)), new(), "{name}");
        assert_eq!(fs::metadata(home.auth(name)).unwrap().mode() & 0o777, mode, "{name}");
    }
    let facts = fs::metadata(home.auth("a.json")).unwrap();
    assert!(!is_root || (facts.uid(), facts.gid()) == (1234, 5678));
    assert_eq!(text(home.auth("other.json")), OTHER);
    home.holds_nothing_but(&["auth/a.json", "auth/c.json", "auth/other.json", "auth/team/b.json"]);
}

#[test]
fn a_link_stays_and_the_file_it_leads_to_is_replaced_in_its_own_folder() {
    let home = Home::new();
    fs::write(home.far("real"), old()).unwrap();
    symlink("../far/real", home.far("middle")).unwrap();
    symlink(home.far("middle"), home.auth("link.json")).unwrap();
    assert!(home.files().rotate(&home.found(), &tokens()).is_complete());
    assert!(home.auth("link.json").is_symlink() && home.far("middle").is_symlink());
    assert!(!home.far("real").is_symlink());
    assert_eq!(text(home.far("real")), new());
    let forbidden = CredentialFiles::new(home.auth(""), false, Steps::default());
    assert!(forbidden.read().unwrap().is_empty());
}

#[test]
fn a_link_that_leads_elsewhere_by_now_is_left_alone() {
    let home = Home::new();
    fs::write(home.far("real"), old()).unwrap();
    fs::write(home.far("copy"), old()).unwrap();
    symlink(home.far("real"), home.auth("link.json")).unwrap();
    let found = home.found();
    let outcome = || home.files().rotate(&found, &tokens()).files[0].1;
    let link_to = |target: &Path| {
        fs::remove_file(home.auth("link.json")).unwrap();
        symlink(target, home.auth("link.json")).unwrap();
    };
    link_to(&home.far("copy"));
    assert_eq!(outcome(), Outcome::Changed);
    link_to(&home.far("missing"));
    assert_eq!(outcome(), Outcome::Failed(ErrorKind::NotFound));
    link_to(&home.auth("link.json"));
    assert!(matches!(outcome(), Outcome::Failed(_)));
    assert_eq!((text(home.far("real")), text(home.far("copy"))), (old(), old()));
    assert!(home.auth("link.json").is_symlink());
}

#[test]
fn a_file_with_several_names_gets_the_tokens_under_each() {
    let home = Home::new();
    fs::write(home.auth("a.json"), old()).unwrap();
    fs::hard_link(home.auth("a.json"), home.auth("b.json")).unwrap();
    symlink(home.auth("b.json"), home.auth("c.json")).unwrap();
    assert_eq!(home.found().len(), 1);
    assert_eq!(home.files().rotate(&home.found(), &tokens()).files.len(), 2);
    for name in ["a.json", "b.json", "c.json"] {
        assert_eq!(text(home.auth(name)), new(), "{name}");
    }
    assert!(home.auth("c.json").is_symlink());
}

#[test]
fn a_file_with_several_names_is_switched_under_each() {
    let home = Home::new();
    fs::write(home.auth("a.json"), old()).unwrap();
    fs::hard_link(home.auth("a.json"), home.auth("b.json")).unwrap();
    home.files().set_disabled(&home.found(), true).unwrap();
    assert_eq!([text(home.auth("a.json")), text(home.auth("b.json"))], [off(), off()]);
}

#[test]
fn a_file_that_another_program_has_changed_is_left_alone() {
    let home = Home::new();
    fs::write(home.auth("a.json"), old()).unwrap();
    let found = home.found();
    let quicker = file("theirs", "theirs", "2026-01-01T00:00:00Z");
    fs::write(home.auth("a.json"), &quicker).unwrap();
    let rotated = home.files().rotate(&found, &tokens());
    assert_eq!((rotated.files[0].1, rotated.is_complete()), (Outcome::Changed, true));
    assert_eq!(text(home.auth("a.json")), quicker);
    // The same while the new file was being written.
    fs::write(home.auth("a.json"), old()).unwrap();
    let (path, bytes) = (home.auth("a.json"), quicker.clone());
    let steps = once_at(Step::Synced(Written::Credential), move || {
        fs::write(&path, &bytes).unwrap();
    });
    let rotated = home.watched(steps).rotate(&found, &tokens());
    assert_eq!(rotated.files[0].1, Outcome::Changed);
    assert_eq!(text(home.auth("a.json")), quicker);
    home.holds_nothing_but(&["auth/a.json"]);
}

#[test]
fn a_file_that_is_touched_all_the_time_keeps_its_content() {
    let home = Home::new();
    fs::write(home.auth("a.json"), old()).unwrap();
    let path = home.auth("a.json");
    let steps = Steps::new(move |step| {
        if step == Step::Synced(Written::Credential) {
            fs::remove_file(&path).unwrap();
            fs::write(&path, old()).unwrap();
        }
    });
    let rotated = home.watched(steps).rotate(&home.found(), &tokens());
    assert_eq!(rotated.files[0].1, Outcome::Failed(ErrorKind::ResourceBusy));
    assert!(!rotated.is_complete());
    assert_eq!(text(home.auth("a.json")), old());
    home.holds_nothing_but(&["auth/a.json"]);
}

#[test]
fn tokens_that_are_there_already_are_not_written_again() {
    let home = Home::new();
    fs::write(home.auth("a.json"), old()).unwrap();
    let found = home.found();
    home.files().rotate(&found, &tokens());
    let inode = fs::metadata(home.auth("a.json")).unwrap().ino();
    assert_eq!(home.files().rotate(&found, &tokens()).files[0].1, Outcome::Written);
    assert_eq!(fs::metadata(home.auth("a.json")).unwrap().ino(), inode);
}

#[test]
#[ignore = "the child of another test"]
fn rotating() {
    let Some(child) = Child::current() else { return };
    let files = CredentialFiles::new(child.folder.join("auth"), true, child.steps);
    for (path, outcome) in files.rotate(&files.read().unwrap(), &tokens()).files {
        println!("@outcome {path} {outcome:?};");
    }
}

/// What a child, started so, says of its files.
fn outcomes(mut command: std::process::Command) -> Vec<String> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let said = printed.split("@outcome ").skip(1);
    said.filter_map(|it| it.split_once(';').map(|(said, _)| said.to_owned())).collect()
}

#[test]
fn a_full_disk_leaves_the_old_file_and_nothing_else() {
    let home = Home::new();
    let long = old().replace("knows", &"k".repeat(4096));
    fs::write(home.auth("a.json"), &long).unwrap();
    // No file may grow beyond the limit: the write stops half way, as on a disk that is full.
    let limited = "trap '' XFSZ; ulimit -f 2";
    let said = outcomes(crash::command("credential_writes::rotating", home.folder.path(), limited));
    assert_eq!(said, ["path:a.json Failed(FileTooLarge)"]);
    assert_eq!(text(home.auth("a.json")), long);
    home.holds_nothing_but(&["auth/a.json"]);
}

#[test]
fn a_folder_that_may_not_be_written_leaves_the_old_file() {
    let home = Home::new();
    fs::write(home.auth("a.json"), old()).unwrap();
    for (path, mode) in [(home.auth(""), 0o555), (home.auth("a.json"), 0o644)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(home.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = crash::command("credential_writes::rotating", home.folder.path(), "");
    if is_root(&home) {
        // Nothing is forbidden to root.
        command.uid(NOBODY).gid(NOBODY);
    }
    assert_eq!(outcomes(command), ["path:a.json Failed(PermissionDenied)"]);
    assert_eq!(text(home.auth("a.json")), old());
    home.holds_nothing_but(&["auth/a.json"]);
}

#[test]
fn an_owner_that_may_not_be_kept_does_not_stop_it_and_a_group_gains_nothing() {
    let home = Home::new();
    if !is_root(&home) {
        eprintln!("only root can make a file that is somebody else's: not tried");
        return;
    }
    fs::write(home.auth("a.json"), old()).unwrap();
    fs::set_permissions(home.auth("a.json"), fs::Permissions::from_mode(0o664)).unwrap();
    fs::set_permissions(home.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    chown(home.auth(""), Some(NOBODY), Some(NOBODY)).unwrap();
    let mut command = crash::command("credential_writes::rotating", home.folder.path(), "");
    command.uid(NOBODY).gid(NOBODY);
    assert_eq!(outcomes(command), ["path:a.json Written"]);
    assert_eq!(text(home.auth("a.json")), new());
    let facts = fs::metadata(home.auth("a.json")).unwrap();
    assert_eq!((facts.uid(), facts.mode() & 0o777), (NOBODY, 0o604));
}

#[test]
fn an_account_is_switched_off_and_on_in_all_its_files() {
    let home = Home::new();
    fs::write(home.auth("a.json"), old()).unwrap();
    fs::write(home.far("b"), old()).unwrap();
    symlink(home.far("b"), home.auth("b.json")).unwrap();
    home.files().set_disabled(&home.found(), true).unwrap();
    assert_eq!((text(home.auth("a.json")), text(home.far("b"))), (off(), off()));
    // Tokens that came in between do not matter.
    let found = home.found();
    fs::write(home.auth("a.json"), off().replace("spent", "renewed")).unwrap();
    home.files().set_disabled(&found, false).unwrap();
    let on = off().replace("true", "false");
    assert_eq!(text(home.auth("a.json")), on.replace("spent", "renewed"));
    assert_eq!(text(home.far("b")), on);
}

#[test]
fn if_one_file_cannot_be_switched_the_earlier_ones_are_put_back() {
    let home = Home::new();
    fs::write(home.auth("a.json"), old()).unwrap();
    fs::write(home.auth("b.json"), old()).unwrap();
    let found = home.found();
    let second = home.auth("b.json");
    let steps = once_at(Step::Replaced(Written::Credential), move || {
        fs::remove_file(&second).unwrap();
    });
    let error = home.watched(steps).set_disabled(&found, true).unwrap_err();
    assert!(matches!(&error, WriteError::File { path, .. } if path.as_str() == "path:b.json"));
    assert!(!error.to_string().contains('/'), "{error}");
    assert_eq!(text(home.auth("a.json")), old());
    home.holds_nothing_but(&["auth/a.json"]);
}

#[test]
fn a_file_that_cannot_be_put_back_is_named() {
    let home = Home::new();
    fs::write(home.auth("a.json"), old()).unwrap();
    fs::write(home.auth("b.json"), old()).unwrap();
    let found = home.found();
    let (first, second) = (home.auth("a.json"), home.auth("b.json"));
    let steps = once_at(Step::Replaced(Written::Credential), move || {
        fs::remove_file(&second).unwrap();
        fs::remove_file(&first).unwrap();
        symlink(&first, &first).unwrap();
    });
    let error = home.watched(steps).set_disabled(&found, true).unwrap_err();
    assert!(matches!(&error, WriteError::Stuck { path, .. } if path.as_str() == "path:a.json"));
    assert!(error.to_string().contains("path:b.json") && !error.to_string().contains('/'));
}

#[test]
fn nothing_is_switched_or_removed_in_a_file_that_is_another_accounts_by_now() {
    let home = Home::new();
    fs::write(home.auth("a.json"), old()).unwrap();
    fs::write(home.auth("b.json"), old()).unwrap();
    let found = home.found();
    fs::write(home.auth("b.json"), OTHER).unwrap();
    for result in [home.files().set_disabled(&found, true), home.files().remove(&found)] {
        let error = result.unwrap_err();
        assert!(matches!(&error, WriteError::Changed { path } if path.as_str() == "path:b.json"));
    }
    assert_eq!((text(home.auth("a.json")), text(home.auth("b.json"))), (old(), OTHER.to_owned()));
}

#[test]
fn a_new_file_takes_the_next_free_name_and_is_its_owners_only() {
    let home = Home::new();
    let is_root = is_root(&home);
    if is_root {
        chown(home.auth(""), Some(1234), Some(5678)).unwrap();
    }
    let create = |stem: &str| home.files().create(stem, OTHER.as_bytes()).unwrap().to_string();
    assert_eq!(
        [create("acct"), create("acct"), create("acct")].join(" "),
        "path:acct.json path:acct-2.json path:acct-3.json"
    );
    assert_eq!(create("../../.a b/\u{e4}@x.y\n"), "path:a-b--@x.y.json");
    assert_eq!(create("..."), "path:account.json");
    let facts = fs::metadata(home.auth("acct-3.json")).unwrap();
    assert_eq!(facts.mode() & 0o777, 0o600);
    assert!(!is_root || (facts.uid(), facts.gid()) == (1234, 5678));
    assert_eq!(home.found().len(), 5);
    fs::remove_dir_all(home.auth("")).unwrap();
    let error = home.files().create("acct", b"").unwrap_err();
    assert!(matches!(error, WriteError::Create(ErrorKind::NotFound)), "{error}");
}

#[test]
fn removing_takes_every_name_away_and_of_a_link_the_link() {
    let home = Home::new();
    fs::write(home.auth("a.json"), old()).unwrap();
    fs::hard_link(home.auth("a.json"), home.auth("b.json")).unwrap();
    fs::write(home.far("c"), old()).unwrap();
    symlink(home.far("c"), home.auth("c.json")).unwrap();
    symlink(home.far("c"), home.auth("d.json")).unwrap();
    fs::write(home.auth("gone.json"), old()).unwrap();
    fs::write(home.auth("other.json"), OTHER).unwrap();
    fs::write(home.far("e"), old()).unwrap();
    symlink(home.far("e"), home.auth("e.json")).unwrap();
    let mut found = home.found();
    found.retain(|it| !it.path.as_str().ends_with("other.json"));
    assert_eq!(found.len(), 4);
    fs::remove_file(home.far("e")).unwrap();
    fs::remove_file(home.auth("gone.json")).unwrap();
    home.files().remove(&found).unwrap();
    home.holds_nothing_but(&["auth/other.json", "far/c"]);
    assert!(!home.auth("d.json").is_symlink() && !home.auth("e.json").is_symlink());
}

#[test]
fn what_a_killed_process_left_is_cleared_away_wherever_credential_files_are() {
    let home = Home::new();
    fs::create_dir(home.auth("team")).unwrap();
    fs::write(home.auth("team/a.json"), old()).unwrap();
    fs::write(home.far("real"), old()).unwrap();
    symlink(home.far("real"), home.auth("link.json")).unwrap();
    for left in [
        home.auth(".codex-edge-1.tmp"),
        home.auth("team/.codex-edge-2.tmp"),
        home.far(".codex-edge-3.tmp"),
    ] {
        fs::write(left, old()).unwrap();
    }
    fs::write(home.auth(".other.tmp"), "").unwrap();
    home.files().clear_leftovers().unwrap();
    home.holds_nothing_but(&["auth/.other.tmp", "auth/link.json", "auth/team/a.json", "far/real"]);
}
