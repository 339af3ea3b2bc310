//! Tokens between the sign-in service's answer and the file, safe from a crash. Blocks on the file
//! system.
//!
//! A refresh token can be traded in once: from that moment on the answer is all there is of the
//! login. So it is on disk here before any credential file is touched, and leaves only when the
//! files hold it.

mod lineage;
mod recovery;

use std::{
    ffi::OsStr,
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{
    directory,
    files::{
        Step, Steps, Written,
        replace::{Ownership, Replacement, clear_leftovers, sync_folder},
    },
};
use crate::{
    domain::{
        account::AccountId,
        credential::{AccessToken, Fingerprint, RefreshToken},
        identity::PathId,
    },
    protocol::credential_file::rewrite::NewTokens,
};

pub use self::{
    lineage::LineageLock,
    recovery::{Recovered, RecoveryError, Unpersisted, recover},
};

const FOLDER: &str = "refresh";
const SUFFIX: &str = ".json";

/// The journal, and the locks beside it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Journal {
    folder: PathBuf,
    steps: Steps,
}

/// What one refresh token was traded in for.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The token that is spent.
    pub old: Fingerprint,
    pub tokens: NewTokens,
    /// The one file that the tokens are for, if they are another account's than the token was:
    /// other copies are none of their business. `None` means every file that holds the token.
    pub only: Option<PathId>,
}

/// Everything in the journal.
#[derive(Debug, Default)]
pub struct Entries {
    /// The earliest first.
    pub entries: Vec<Entry>,
    /// Files that cannot be understood. They are left where they are.
    pub unreadable: usize,
}

/// An entry as it is written.
#[derive(Serialize)]
struct Record<'a> {
    old: &'a str,
    access_token: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh_token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id_token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    account_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    only: Option<&'a str>,
    last_refresh: Timestamp,
}

/// The same as it is read.
#[derive(Deserialize)]
struct Kept {
    old: String,
    access_token: String,
    refresh_token: Option<String>,
    id_token: Option<String>,
    account_id: Option<String>,
    only: Option<String>,
    last_refresh: Timestamp,
}

// === impl Journal ===

impl Journal {
    /// The journal in this data directory, made if there is none. What a killed process left half
    /// done is cleared away.
    ///
    /// # Errors
    /// A folder that cannot be made or read.
    pub fn open(data_dir: &Path, steps: Steps) -> io::Result<Self> {
        let folder = data_dir.join(FOLDER);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        clear_leftovers(&folder)?;
        for path in named(&folder, lineage::SUFFIX)? {
            LineageLock::clear(path)?;
        }
        Ok(Self { folder, steps })
    }

    /// Waits until no other refresh of this token runs in any process, and keeps others from it.
    ///
    /// # Errors
    /// A file system that cannot be written or locked.
    pub fn lock(&self, old: Fingerprint) -> io::Result<LineageLock> {
        LineageLock::wait(self.path(old, lineage::SUFFIX))
    }

    /// Keeps an entry. It is on disk when this returns.
    ///
    /// # Errors
    /// A file system that cannot be written; an earlier entry for the same token is intact then.
    pub fn put(&self, entry: &Entry) -> io::Result<()> {
        let bytes = entry.to_json()?;
        let (kind, steps) = (Written::Journal, &self.steps);
        Replacement::write(&self.folder, &bytes, Ownership::Own, kind, steps)?
            .replace(&self.path(entry.old, SUFFIX))
    }

    /// Forgets an entry, if it is there.
    ///
    /// # Errors
    /// A file system that cannot be written.
    pub fn remove(&self, old: Fingerprint) -> io::Result<()> {
        self.steps.reached(Step::Removing(Written::Journal));
        match fs::remove_file(self.path(old, SUFFIX)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        self.steps.reached(Step::Removed(Written::Journal));
        sync_folder(&self.folder)
    }

    /// What the journal holds.
    ///
    /// # Errors
    /// A folder that cannot be listed.
    pub fn entries(&self) -> io::Result<Entries> {
        let mut found = Entries::default();
        for path in named(&self.folder, SUFFIX)? {
            match Entry::read(&path) {
                Some(entry) if self.path(entry.old, SUFFIX) == path => found.entries.push(entry),
                // Another process may have written it into its file, and removed it.
                None if !path.exists() => {}
                Some(_) | None => found.unreadable += 1,
            }
        }
        found.entries.sort_by_key(|it| (it.tokens.last_refresh, it.old));
        Ok(found)
    }

    fn path(&self, old: Fingerprint, suffix: &str) -> PathBuf {
        self.folder.join(hex(old) + suffix)
    }
}

/// The files of a folder that end so and are not hidden.
fn named(folder: &Path, suffix: &str) -> io::Result<Vec<PathBuf>> {
    let fits = |name: &OsStr| {
        let name = name.as_encoded_bytes();
        !name.starts_with(b".") && name.ends_with(suffix.as_bytes())
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if fits(&entry.file_name()) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

fn hex(fingerprint: Fingerprint) -> String {
    fingerprint.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Fingerprint> {
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 32 || !text.bytes().all(is_hex) {
        return None;
    }
    Some(Fingerprint::from_bytes(u128::from_str_radix(text, 16).ok()?.to_be_bytes()))
}

// === impl Entry ===

impl Entry {
    fn to_json(&self) -> io::Result<Zeroizing<Vec<u8>>> {
        let NewTokens { access, refresh, id_token, account_id, last_refresh } = &self.tokens;
        let record = Record {
            old: &hex(self.old),
            access_token: access.expose(),
            refresh_token: refresh.as_ref().map(RefreshToken::expose),
            id_token: id_token.as_ref().map(ExposeSecret::expose_secret),
            account_id: account_id.as_ref().map(AccountId::as_str),
            only: self.only.as_ref().map(PathId::as_str),
            last_refresh: *last_refresh,
        };
        let texts = [Some(record.access_token), record.refresh_token, record.id_token];
        let texts: usize = texts.into_iter().flatten().map(str::len).sum();
        // Room for all of it at once: a buffer that grows leaves copies of the tokens behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(6 * texts + 4096));
        serde_json::to_writer(&mut *bytes, &record)?;
        Ok(bytes)
    }

    fn read(path: &Path) -> Option<Self> {
        let (file, facts) = directory::open(path).ok()?;
        let bytes = directory::read(file, facts.len()).ok()?;
        // The parser's error is not kept: it may quote the file.
        let kept: Kept = serde_json::from_slice(&bytes).ok()?;
        let account_id = match kept.account_id {
            Some(text) => Some(AccountId::parse(&text)?),
            None => None,
        };
        let tokens = NewTokens {
            access: AccessToken::new(kept.access_token.into()).ok()?,
            refresh: kept.refresh_token.map(|it| RefreshToken::new(it.into())).transpose().ok()?,
            id_token: kept.id_token.map(SecretString::from),
            account_id,
            last_refresh: kept.last_refresh,
        };
        let only = match kept.only {
            Some(text) => Some(PathId::parse(&text)?),
            None => None,
        };
        Some(Self { old: from_hex(&kept.old)?, tokens, only })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn entry(old: u8, access: &str) -> Entry {
        let tokens = NewTokens {
            access: AccessToken::new(access.into()).unwrap(),
            refresh: Some(RefreshToken::new(format!("canary\"\\{old}").into()).unwrap()),
            id_token: Some("canary-id".into()),
            account_id: AccountId::parse("canary-account"),
            last_refresh: Timestamp::from_second(1_000 - i64::from(old)).unwrap(),
        };
        let only = Some(PathId::from_relative(Path::new("a\\%\n.json")));
        Entry { old: Fingerprint::from_bytes([old; 16]), tokens, only }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_put_in_is_there_until_it_is_removed() {
        let data = tempfile::tempdir().unwrap();
        let journal = Journal::open(data.path(), Steps::default()).unwrap();
        for entry in [entry(1, "canary-0"), entry(2, "canary-2"), entry(1, "canary-1")] {
            journal.put(&entry).unwrap();
        }
        let again = Journal::open(data.path(), Steps::default()).unwrap();
        let found = again.entries().unwrap();
        let told: Vec<&str> = found.entries.iter().map(|it| it.tokens.access.expose()).collect();
        assert_eq!((told, found.unreadable), (vec!["canary-2", "canary-1"], 0));
        let [_, first] = &found.entries[..] else { panic!("two entries") };
        let (wanted, tokens) = (entry(1, "canary-1"), &first.tokens);
        assert_eq!(first.old, wanted.old);
        assert!(tokens.refresh.as_ref().unwrap().matches(b"canary\"\\1"));
        assert_eq!(tokens.id_token.as_ref().unwrap().expose_secret(), "canary-id");
        assert_eq!(tokens.account_id, wanted.tokens.account_id);
        assert_eq!(tokens.last_refresh, wanted.tokens.last_refresh);
        assert_eq!(first.only, wanted.only);
        assert!(!format!("{found:?}").contains("canary"));
        journal.remove(first.old).unwrap();
        journal.remove(first.old).unwrap();
        assert_eq!(again.entries().unwrap().entries.len(), 1);
    }

    #[test]
    fn the_journal_is_its_owners_only() {
        let data = tempfile::tempdir().unwrap();
        let journal = Journal::open(data.path(), Steps::default()).unwrap();
        journal.put(&entry(1, "a")).unwrap();
        let lock = journal.lock(entry(1, "a").old).unwrap();
        assert_eq!(mode(&data.path().join(FOLDER)), 0o700);
        let files: Vec<_> = fs::read_dir(data.path().join(FOLDER)).unwrap().flatten().collect();
        assert_eq!(files.len(), 2);
        assert!(files.iter().all(|it| mode(&it.path()) == 0o600));
        drop(lock);
    }

    #[test]
    fn what_cannot_be_understood_is_counted_and_left() {
        let data = tempfile::tempdir().unwrap();
        let journal = Journal::open(data.path(), Steps::default()).unwrap();
        journal.put(&entry(1, "a")).unwrap();
        let folder = data.path().join(FOLDER);
        let whole = fs::read_to_string(journal.path(entry(1, "a").old, SUFFIX)).unwrap();
        let half = &whole[..whole.len() / 2];
        let texts = ["", "{}", half, &whole, &whole.replace("\"a\"", "\"a b\"")];
        for (number, text) in texts.iter().enumerate() {
            fs::write(folder.join(format!("{number}.json")), text).unwrap();
        }
        fs::write(folder.join(".codex-edge-left.tmp"), &whole).unwrap();
        fs::write(folder.join("left.lock"), "").unwrap();
        let again = Journal::open(data.path(), Steps::default()).unwrap();
        let found = again.entries().unwrap();
        assert_eq!((found.entries.len(), found.unreadable), (1, texts.len()));
        assert_eq!(fs::read_dir(folder).unwrap().count(), 1 + texts.len());
    }

    #[test]
    fn a_fingerprint_reads_back_from_its_digits() {
        let some =
            Fingerprint::from_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff]);
        assert_eq!(hex(some), "000102030405060708090a0b0c0d0eff");
        assert_eq!(from_hex(&hex(some)), Some(some));
        for other in
            ["", "00", "+00102030405060708090a0b0c0d0eff", "000102030405060708090A0B0C0D0EFF"]
        {
            assert_eq!(from_hex(other), None);
        }
    }
}
