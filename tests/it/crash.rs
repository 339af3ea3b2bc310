//! `kill -9` at every step of a change: what is on disk is whole, and no token is lost.

use std::{collections::BTreeSet, fs, os::unix::fs::symlink, path::Path};

use codex_edge::{
    accounts::{
        files::{CredentialFiles, FoundFile, Steps},
        journal::{Entry, Journal, recover},
    },
    domain::credential::{AccessToken, RefreshToken},
    protocol::credential_file::rewrite::{self, NewTokens},
};
use jiff::Timestamp;

use crate::support::{
    crash::{Child, kill_at_every_step},
    process::files_below,
};

const OLD: &str = "{\n \"tokens\": {\"access_token\": \"old\", \"refresh_token\": \"spent\"},\n \"mine\": 123456789012345678901234567890\n}";

fn tokens() -> NewTokens {
    NewTokens {
        access: AccessToken::new("new".into()).unwrap(),
        refresh: Some(RefreshToken::new("fresh".into()).unwrap()),
        id_token: None,
        account_id: None,
        last_refresh: Timestamp::UNIX_EPOCH,
    }
}

fn entry() -> Entry {
    let old = RefreshToken::new("spent".into()).unwrap().fingerprint();
    Entry { old, tokens: tokens(), only: None }
}

/// Three copies of a login: one in the directory, one below, and one that a link leads to.
fn prepare(folder: &Path) {
    let (auth, far) = (folder.join("auth"), folder.join("far"));
    fs::create_dir_all(auth.join("team")).unwrap();
    fs::create_dir_all(&far).unwrap();
    for path in copies(folder) {
        fs::write(path, OLD).unwrap();
    }
    symlink(far.join("c"), auth.join("link.json")).unwrap();
}

fn copies(folder: &Path) -> [std::path::PathBuf; 3] {
    [folder.join("auth/a.json"), folder.join("auth/team/b.json"), folder.join("far/c")]
}

fn files(folder: &Path, steps: Steps) -> CredentialFiles {
    CredentialFiles::new(folder.join("auth"), true, steps)
}

fn found(folder: &Path) -> Vec<FoundFile> {
    let found = files(folder, Steps::default()).read().unwrap();
    assert_eq!(found.len(), 3);
    found
}

/// What the three copies hold now; each is one of `allowed`, to the byte.
fn contents(folder: &Path, allowed: &[&[u8]]) -> Vec<Vec<u8>> {
    assert!(folder.join("auth/link.json").is_symlink());
    let contents = copies(folder).map(|path| fs::read(path).unwrap());
    for content in &contents {
        assert!(allowed.contains(&content.as_slice()), "{}", content.escape_ascii());
    }
    contents.to_vec()
}

/// Starts again after a kill, as the gateway does.
fn start_again(folder: &Path) -> Journal {
    let journal = Journal::open(&folder.join("data"), Steps::default()).unwrap();
    let files = files(folder, Steps::default());
    let recovered = recover(&files, &journal, Timestamp::UNIX_EPOCH).unwrap();
    assert!(recovered.unpersisted.is_empty() && recovered.unreadable == 0);
    for (path, _) in files_below(folder) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(!name.starts_with('.') && !name.ends_with(".lock"), "{name} is left");
    }
    journal
}

/// The steps as a set, since each file goes through the same ones.
fn kinds(steps: &[String]) -> BTreeSet<&str> {
    steps.iter().map(String::as_str).collect()
}

#[test]
#[ignore = "the child of another test"]
fn refreshing() {
    let Some(child) = Child::current() else { return };
    let journal = Journal::open(&child.folder.join("data"), child.steps.clone()).unwrap();
    let files = files(&child.folder, child.steps);
    let found = files.read().unwrap();
    let _lock = journal.lock(entry().old).unwrap();
    journal.put(&entry()).unwrap();
    assert!(files.rotate(&found, &entry().tokens).is_complete());
    journal.remove(entry().old).unwrap();
}

#[test]
fn killed_while_it_refreshes_it_loses_no_token_that_was_journaled() {
    let new = rewrite::rotate(OLD.as_bytes(), &tokens()).unwrap();
    let steps = kill_at_every_step("crash::refreshing", prepare, |folder, step| {
        let before = contents(folder, &[OLD.as_bytes(), &new]);
        let is_journaled = !["Begun", "Made", "Filled", "Synced"]
            .iter()
            .any(|name| step == format!("{name}(Journal)"));
        assert!(is_journaled || before.iter().all(|it| it == OLD.as_bytes()), "{step}");
        let journal = start_again(folder);
        let wanted = if is_journaled { new.as_slice() } else { OLD.as_bytes() };
        contents(folder, &[wanted]);
        assert!(journal.entries().unwrap().entries.is_empty(), "{step}");
    });
    let all = [
        "Begun(Credential)",
        "Begun(Journal)",
        "Filled(Credential)",
        "Filled(Journal)",
        "Made(Credential)",
        "Made(Journal)",
        "Removed(Journal)",
        "Removing(Journal)",
        "Replaced(Credential)",
        "Replaced(Journal)",
        "Settled(Credential)",
        "Settled(Journal)",
        "Synced(Credential)",
        "Synced(Journal)",
    ];
    assert_eq!(kinds(&steps), BTreeSet::from(all));
    assert_eq!(steps.len(), 6 + 3 * 6 + 2);
}

#[test]
#[ignore = "the child of another test"]
fn recovering() {
    let Some(child) = Child::current() else { return };
    let journal = Journal::open(&child.folder.join("data"), child.steps.clone()).unwrap();
    recover(&files(&child.folder, child.steps), &journal, Timestamp::UNIX_EPOCH).unwrap();
}

#[test]
fn killed_while_it_recovers_it_recovers_the_next_time() {
    let new = rewrite::rotate(OLD.as_bytes(), &tokens()).unwrap();
    let prepare = |folder: &Path| {
        prepare(folder);
        let journal = Journal::open(&folder.join("data"), Steps::default()).unwrap();
        journal.put(&entry()).unwrap();
    };
    let steps = kill_at_every_step("crash::recovering", prepare, |folder, step| {
        contents(folder, &[OLD.as_bytes(), &new]);
        let journal = start_again(folder);
        contents(folder, &[&new]);
        assert!(journal.entries().unwrap().entries.is_empty(), "{step}");
    });
    assert_eq!(steps.len(), 3 * 6 + 2);
}

#[test]
#[ignore = "the child of another test"]
fn switching() {
    let Some(child) = Child::current() else { return };
    let files = files(&child.folder, child.steps);
    files.set_disabled(&files.read().unwrap(), true).unwrap();
}

#[test]
fn killed_while_it_switches_an_account_off_every_file_is_whole() {
    let off = rewrite::set_disabled(OLD.as_bytes(), true).unwrap();
    let steps = kill_at_every_step("crash::switching", prepare, |folder, _| {
        contents(folder, &[OLD.as_bytes(), &off]);
        start_again(folder);
        files(folder, Steps::default()).set_disabled(&found(folder), true).unwrap();
        contents(folder, &[&off]);
    });
    assert_eq!(steps.len(), 3 * 6);
}

#[test]
#[ignore = "the child of another test"]
fn creating() {
    let Some(child) = Child::current() else { return };
    files(&child.folder, child.steps).create("a", &rewrite::new_file(&tokens())).unwrap();
}

#[test]
fn killed_while_it_makes_a_file_there_is_none_or_a_whole_one() {
    let made = rewrite::new_file(&tokens());
    let steps = kill_at_every_step("crash::creating", prepare, |folder, step| {
        start_again(folder);
        contents(folder, &[OLD.as_bytes()]);
        let path = folder.join("auth/a-2.json");
        let is_placed = ["Replaced(Credential)", "Settled(Credential)", "the end"].contains(&step);
        assert_eq!(path.exists(), is_placed, "{step}");
        assert!(!is_placed || fs::read(path).unwrap() == *made);
    });
    assert_eq!(steps.len(), 6);
}
