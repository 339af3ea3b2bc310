//! Brings what a process left in the journal into the credential files.

use std::{collections::HashMap, io, sync::Arc};

use jiff::{SignedDuration, Timestamp};

use super::{Entry, Journal};
use crate::{
    accounts::{
        directory::DirectoryError,
        files::{CredentialFiles, FoundFile},
    },
    domain::{
        credential::{Fingerprint, RefreshToken},
        identity::{Login, PathId},
    },
};

/// How long an entry is kept for which there is no file any more: it may come back.
const KEPT: SignedDuration = SignedDuration::from_hours(30 * 24);

/// What recovery did, and what it could not do.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Files that hold tokens now which they had missed.
    pub written: Vec<PathId>,
    /// Logins that are good, and live in memory until their files can be written.
    pub unpersisted: Vec<Unpersisted>,
    /// The spent tokens of entries for which there is no file now.
    pub without_file: Vec<Fingerprint>,
    /// Entries that cannot be understood.
    pub unreadable: usize,
}

/// A login whose files hold a token that is spent.
#[derive(Clone, Debug)]
pub struct Unpersisted {
    pub entry: Entry,
    /// What the file would say.
    pub login: Arc<Login>,
}

#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error("the journal of refreshed tokens cannot be read: {}", .0.kind())]
    Journal(#[from] io::Error),
}

/// What a file holds of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Old,
    New,
    Neither,
}

/// Writes every entry into the files that still hold the token it replaces, and forgets those that
/// have arrived. Safe to repeat, and beside another process that refreshes.
///
/// # Errors
/// A credential directory or a journal that cannot be read. What cannot be written is in the result.
pub fn recover(
    files: &CredentialFiles,
    journal: &Journal,
    now: Timestamp,
) -> Result<Recovered, RecoveryError> {
    files.clear_leftovers()?;
    let kept = journal.entries()?;
    let mut recovered = Recovered { unreadable: kept.unreadable, ..Recovered::default() };
    let entries = resolved(kept.entries);
    if entries.is_empty() {
        return Ok(recovered);
    }
    let found = files.read()?;
    for entry in &entries {
        let behind: Vec<FoundFile> = holding(&found, entry, Holds::Old).cloned().collect();
        if !behind.is_empty() {
            files.rotate(&behind, &entry.tokens);
        }
    }
    let after = files.read()?;
    for entry in entries {
        let was_behind = |it: &&FoundFile| {
            holding(&found, &entry, Holds::Old).any(|old| old.target == it.target)
        };
        let arrived: Vec<&FoundFile> = holding(&after, &entry, Holds::New).collect();
        let caught_up = arrived.iter().copied().filter(was_behind);
        recovered.written.extend(caught_up.map(|it| it.path.clone()));
        let behind = holding(&after, &entry, Holds::Old).next();
        if let Some(file) = behind {
            let login = Arc::new(entry.tokens.applied_to(&file.login, file.shape));
            recovered.unpersisted.push(Unpersisted { entry, login });
        } else if !arrived.is_empty() || is_outdated(&entry, now) {
            journal.remove(entry.old)?;
        } else {
            recovered.without_file.push(entry.old);
        }
    }
    Ok(recovered)
}

/// The files in which an entry has this state.
fn holding<'a>(
    files: &'a [FoundFile],
    entry: &Entry,
    state: Holds,
) -> impl Iterator<Item = &'a FoundFile> {
    let may = |file: &FoundFile| entry.only.as_ref().is_none_or(|it| *it == file.path);
    files.iter().filter(move |file| may(file) && held(&file.login, entry) == state)
}

fn held(login: &Login, entry: &Entry) -> Holds {
    let Entry { old, tokens, .. } = entry;
    if tokens.are_in(login) {
        return Holds::New;
    }
    let credential = &login.credential;
    let refresh = credential.refresh.as_ref().map(RefreshToken::fingerprint);
    // A token that was not replaced by the answer does not tell by itself what came later.
    let is_later = tokens.refresh.is_none() && credential.last_refresh > Some(tokens.last_refresh);
    if refresh == Some(*old) && !is_later { Holds::Old } else { Holds::Neither }
}

/// Each entry with the latest tokens of its line: a file may have missed several refreshes.
fn resolved(entries: Vec<Entry>) -> Vec<Entry> {
    let by_old: HashMap<Fingerprint, &Entry> = entries.iter().map(|it| (it.old, it)).collect();
    let latest = |entry: &Entry| {
        let mut tokens = entry.tokens.clone();
        // No line is longer than there are entries, even one that bites its tail.
        for _ in 1..entries.len() {
            let next = tokens.refresh.as_ref().and_then(|it| by_old.get(&it.fingerprint()));
            match next {
                Some(next) if next.tokens.last_refresh > tokens.last_refresh => {
                    tokens = next.tokens.clone().after(&tokens);
                }
                Some(_) | None => break,
            }
        }
        Entry { tokens, ..entry.clone() }
    };
    entries.iter().map(latest).collect()
}

fn is_outdated(entry: &Entry, now: Timestamp) -> bool {
    now.duration_since(entry.tokens.last_refresh) > KEPT
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::{Path, PathBuf},
    };

    use tempfile::TempDir;

    use super::*;
    use crate::{
        accounts::files::{Step, Steps, Written},
        domain::credential::AccessToken,
        protocol::credential_file::rewrite::NewTokens,
    };

    struct Home {
        folder: TempDir,
        journal: Journal,
    }

    impl Home {
        fn new(files: &[(&str, &str)]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("auth")).unwrap();
            for (name, text) in files {
                fs::write(folder.path().join("auth").join(name), text).unwrap();
            }
            let journal = Journal::open(&folder.path().join("data"), Steps::default()).unwrap();
            Self { folder, journal }
        }

        fn auth(&self) -> PathBuf {
            self.folder.path().join("auth")
        }

        fn text(&self, name: &str) -> String {
            fs::read_to_string(self.auth().join(name)).unwrap()
        }

        fn recover(&self, steps: Steps) -> Recovered {
            let files = CredentialFiles::new(self.auth(), true, steps);
            recover(&files, &self.journal, at(100)).unwrap()
        }

        fn entries(&self) -> usize {
            self.journal.entries().unwrap().entries.len()
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn fingerprint(token: &str) -> Fingerprint {
        RefreshToken::new(token.into()).unwrap().fingerprint()
    }

    fn entry(old: &str, access: &str, refresh: Option<&str>, second: i64) -> Entry {
        let refresh = refresh.map(|it| RefreshToken::new(it.into()).unwrap());
        let access = AccessToken::new(access.into()).unwrap();
        let (id_token, account_id, last_refresh) = (None, None, at(second));
        let tokens = NewTokens { access, refresh, id_token, account_id, last_refresh };
        Entry { old: fingerprint(old), tokens, only: None }
    }

    fn file(access: &str, refresh: &str, second: i64) -> String {
        format!(
            r#"{{"tokens":{{"access_token":"{access}","refresh_token":"{refresh}"}},"last_refresh":"{}"}}"#,
            at(second)
        )
    }

    #[test]
    fn an_entry_goes_into_every_file_that_holds_the_spent_token() {
        let (old, other) = (file("a", "spent", 1), file("b", "other", 1));
        let home = Home::new(&[("a.json", &old), ("b.json", &old), ("c.json", &other)]);
        home.journal.put(&entry("spent", "new", Some("fresh"), 2)).unwrap();
        let recovered = home.recover(Steps::default());
        let written: Vec<&str> = recovered.written.iter().map(PathId::as_str).collect();
        assert_eq!(written, ["path:a.json", "path:b.json"]);
        assert!(recovered.unpersisted.is_empty());
        assert_eq!(
            [home.text("a.json"), home.text("b.json")],
            [(); 2].map(|()| file("new", "fresh", 2))
        );
        assert_eq!((home.text("c.json"), home.entries()), (other, 0));
    }

    #[test]
    fn a_new_refresh_token_beside_the_old_access_token_arrives_too() {
        let home = Home::new(&[("a.json", &file("same", "spent", 1))]);
        home.journal.put(&entry("spent", "same", Some("fresh"), 2)).unwrap();
        home.recover(Steps::default());
        assert_eq!((home.text("a.json"), home.entries()), (file("same", "fresh", 2), 0));
    }

    #[test]
    fn another_accounts_tokens_go_into_the_one_file_they_came_for() {
        let old = file("a", "spent", 1);
        let home = Home::new(&[("a.json", &old), ("b.json", &old)]);
        let only = Some(PathId::from_relative(Path::new("b.json")));
        let entry = Entry { only, ..entry("spent", "new", Some("fresh"), 2) };
        home.journal.put(&entry).unwrap();
        home.recover(Steps::default());
        let wanted = (old, file("new", "fresh", 2), 0);
        assert_eq!((home.text("a.json"), home.text("b.json"), home.entries()), wanted);
    }

    #[test]
    fn a_file_that_missed_several_refreshes_gets_the_last() {
        let home = Home::new(&[("a.json", &file("a", "one", 1))]);
        home.journal.put(&entry("one", "b", Some("two"), 2)).unwrap();
        home.journal.put(&entry("two", "c", Some("three"), 3)).unwrap();
        home.journal.put(&entry("three", "d", None, 4)).unwrap();
        home.recover(Steps::default());
        assert_eq!((home.text("a.json"), home.entries()), (file("d", "three", 4), 0));
    }

    #[test]
    fn a_line_that_bites_its_tail_comes_to_an_end() {
        let home = Home::new(&[("a.json", &file("a", "one", 1))]);
        home.journal.put(&entry("one", "b", Some("two"), 2)).unwrap();
        home.journal.put(&entry("two", "c", Some("one"), 3)).unwrap();
        home.recover(Steps::default());
        assert_eq!(home.text("a.json"), file("c", "one", 3));
    }

    #[test]
    fn what_cannot_be_written_is_handed_back_and_kept() {
        let home = Home::new(&[("a.json", &file("a", "spent", 1))]);
        home.journal.put(&entry("spent", "new", Some("fresh"), 2)).unwrap();
        let path = home.auth().join("a.json");
        let steps = Steps::new(move |step| {
            if step == Step::Synced(Written::Credential) {
                fs::remove_file(&path).unwrap();
                fs::write(&path, file("a", "spent", 1)).unwrap();
            }
        });
        let recovered = home.recover(steps);
        let [left] = &recovered.unpersisted[..] else { panic!("one is left") };
        assert_eq!(left.entry.old, fingerprint("spent"));
        assert!(left.login.credential.access.matches(b"new"));
        assert!(left.login.credential.refresh.as_ref().unwrap().matches(b"fresh"));
        assert_eq!((recovered.written.len(), home.entries()), (0, 1));
        assert!(home.recover(Steps::default()).unpersisted.is_empty());
        assert_eq!((home.text("a.json"), home.entries()), (file("new", "fresh", 2), 0));
    }

    #[test]
    fn a_file_that_holds_something_later_stays() {
        let later = file("later", "spent", 3);
        let home = Home::new(&[("a.json", &later), ("b.json", &file("x", "y", 3))]);
        // The answer named no new refresh token, so the old one alone does not tell.
        home.journal.put(&entry("spent", "new", None, 2)).unwrap();
        home.journal.put(&entry("gone", "z", Some("y2"), 2)).unwrap();
        let recovered = home.recover(Steps::default());
        assert!(recovered.written.is_empty() && recovered.unpersisted.is_empty());
        assert_eq!(recovered.without_file.len(), 2);
        assert_eq!((home.text("a.json"), home.entries()), (later, 2));
    }

    #[test]
    fn an_entry_without_a_file_is_forgotten_after_thirty_days() {
        let home = Home::new(&[("a.json", &file("a", "other", 1))]);
        let day = 24 * 60 * 60;
        home.journal.put(&entry("gone", "b", Some("c"), 100 - 31 * day)).unwrap();
        home.journal.put(&entry("lately", "d", Some("e"), 100 - 29 * day)).unwrap();
        home.recover(Steps::default());
        assert_eq!(home.entries(), 1);
    }

    #[test]
    fn a_directory_that_cannot_be_read_changes_nothing() {
        let home = Home::new(&[]);
        home.journal.put(&entry("gone", "b", Some("c"), -10_000_000)).unwrap();
        let files = CredentialFiles::new(home.auth().join("missing"), true, Steps::default());
        assert!(recover(&files, &home.journal, at(100)).is_err());
        assert_eq!(home.entries(), 1);
    }
}
