//! Looks at the directory again and again, and reads only what may have changed.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fs, io, mem,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use super::{
    DirectoryError, FileReading, FileState, Parsed, Reading, Reason,
    file::{self, Outside},
    name, unreadable,
    walk::Walk,
};
use crate::protocol::credential_file::{self, Rejection};

const NOT_MOUNTED: &str =
    "it is empty and on another file system than before, so it is not mounted";

/// How much of the directory a look reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Only files that look different from outside.
    Quick,
    /// Every byte, since a file can change and look the same: an edit within one tick of the file
    /// system's clock, a network file system, a clock that was set back.
    Full,
}

/// Remembers what it has read.
#[derive(Debug)]
pub struct Scanner {
    root: PathBuf,
    follow_symlinks: bool,
    /// By the path without links.
    seen: HashMap<PathBuf, Seen>,
    /// The file system that the files were on.
    device: Option<u64>,
}

/// A file as it was read last.
#[derive(Clone, Debug)]
struct Seen {
    outside: Outside,
    /// SHA-256 of the bytes.
    hash: [u8; 32],
    state: FileState,
}

/// One look.
struct Look<'a> {
    scanner: &'a Scanner,
    depth: Depth,
    /// Device and inode of the files that are taken.
    places: HashSet<(u64, u64)>,
    kept: HashMap<PathBuf, Seen>,
    files: Vec<FileReading>,
}

// === impl Scanner ===

impl Scanner {
    pub fn new(root: PathBuf, follow_symlinks: bool) -> Self {
        Self { root, follow_symlinks, seen: HashMap::new(), device: None }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Looks at all credential files at and below the root.
    ///
    /// # Errors
    /// A directory that is missing or cannot be listed. What is wrong below it is in the result.
    pub fn scan(&mut self, depth: Depth) -> Result<Reading, DirectoryError> {
        let failed = |source| DirectoryError { path: self.root.clone(), source };
        let home = fs::canonicalize(&self.root).map_err(failed)?;
        let mut walk = Walk::through(&self.root).map_err(failed)?;
        let device = fs::metadata(&home).map_err(failed)?.dev();
        // What an unmounted directory leaves behind is empty, and its files are not gone.
        if walk.is_empty() && self.device.is_some_and(|it| it != device) {
            return Err(failed(io::Error::other(NOT_MOUNTED)));
        }
        let mut look = Look {
            scanner: self,
            depth,
            places: HashSet::new(),
            kept: HashMap::new(),
            files: Vec::new(),
        };
        for path in mem::take(&mut walk.plain) {
            look.take(path.clone(), path, None);
        }
        // Links come last, so that a file inside the directory goes by its own name.
        for path in mem::take(&mut walk.links) {
            look.follow(path, &home);
        }
        let Look { mut files, kept, .. } = look;
        self.device = (!files.is_empty()).then_some(device);
        self.seen = kept;
        files.sort_by(|a, b| (&a.path_id, &a.path).cmp(&(&b.path_id, &b.path)));
        refuse_taken_names(&mut files);
        Ok(Reading { files, unread: walk.unread, lost_folders: walk.lost })
    }
}

/// Two names that are one in Unicode's composed form would be one account to the rest of the program.
fn refuse_taken_names(files: &mut [FileReading]) {
    let mut names = BTreeSet::new();
    for file in files {
        if !names.insert(file.path_id.clone()) {
            file.state = FileState::Problem(Reason::NameTaken);
        }
    }
}

// === impl Look ===

impl Look<'_> {
    fn follow(&mut self, path: PathBuf, home: &Path) {
        match fs::canonicalize(&path) {
            Err(error) => self.leave(path, unreadable(&error)),
            Ok(target) if target.starts_with(home) => self.take(path, target, None),
            Ok(_) if !self.scanner.follow_symlinks => self.leave(path, Reason::LinkForbidden),
            Ok(target) => self.take(path, target, Some(Reason::LinkLeaves)),
        }
    }

    /// Takes one file in, unless it was seen under another name. `target` is `path` without links.
    fn take(&mut self, path: PathBuf, target: PathBuf, notice: Option<Reason>) {
        let known = self.scanner.seen.get(&target);
        let seen = match Seen::look(&target, known, self.depth) {
            Ok(seen) => seen,
            Err(Unread { reason, place }) => {
                if place.is_none_or(|place| self.places.insert(place)) {
                    self.leave(path, reason);
                }
                return;
            }
        };
        if !self.places.insert(seen.outside.place) {
            return;
        }
        let mut notices = Vec::new();
        if !matches!(seen.state, FileState::Problem(_)) {
            notices.extend(notice);
        }
        let mode = seen.outside.mode;
        if mode & 0o077 != 0 && !matches!(seen.state, FileState::Ignored(_)) {
            notices.push(Reason::OpenToOthers { mode });
        }
        let path_id = name(&self.scanner.root, &path);
        let state = seen.state.clone();
        self.kept.insert(target.clone(), seen);
        self.files.push(FileReading { path_id, path, target, state, notices });
    }

    fn leave(&mut self, path: PathBuf, reason: Reason) {
        self.files.push(FileReading {
            path_id: name(&self.scanner.root, &path),
            target: path.clone(),
            path,
            state: FileState::Problem(reason),
            notices: Vec::new(),
        });
    }
}

/// A file that gave no bytes.
struct Unread {
    reason: Reason,
    /// Where it is, if that much is known.
    place: Option<(u64, u64)>,
}

// === impl Seen ===

impl Seen {
    fn look(path: &Path, known: Option<&Self>, depth: Depth) -> Result<Self, Unread> {
        let unplaced = |reason| Unread { reason, place: None };
        if let (Some(known), Depth::Quick) = (known, depth)
            && Outside::of(path).map_err(unplaced)? == known.outside
        {
            return Ok(known.clone());
        }
        let (file, outside) = file::open(path).map_err(unplaced)?;
        let placed = |reason| Unread { reason, place: Some(outside.place) };
        let bytes = file::read(file, &outside).map_err(placed)?;
        let hash: [u8; 32] = Sha256::digest(&bytes[..]).into();
        let state = match known.filter(|it| it.hash == hash) {
            Some(known) => known.state.clone(),
            None => parse(&bytes),
        };
        Ok(Self { outside, hash, state })
    }
}

fn parse(bytes: &[u8]) -> FileState {
    match credential_file::parse(bytes) {
        Ok(file) => FileState::Parsed(Parsed {
            login: file.login.into(),
            shape: file.shape,
            faults: file.faults.into(),
        }),
        Err(Rejection::NotCodex(reason)) => FileState::Ignored(reason),
        Err(Rejection::LoggedOut) => FileState::LoggedOut,
        Err(Rejection::Malformed(reason)) => FileState::Problem(Reason::Malformed(reason)),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        os::unix::fs::PermissionsExt,
        sync::Arc,
        time::{Duration, SystemTime},
    };

    use tempfile::TempDir;

    use super::*;
    use crate::domain::identity::Login;

    struct Home {
        dir: TempDir,
        scanner: Scanner,
    }

    impl Home {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let scanner = Scanner::new(dir.path().to_owned(), true);
            Self { dir, scanner }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn write(&self, name: &str, token: &str) {
            let body = format!(r#"{{"tokens":{{"access_token":"{token}","account_id":"a"}}}}"#);
            fs::write(self.path(name), body).unwrap();
        }

        /// Puts the modification time back; the change time cannot be set.
        fn age(&self, name: &str) {
            let file = File::options().write(true).open(self.path(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
        }

        fn logins(&mut self, depth: Depth) -> Vec<Arc<Login>> {
            let files = self.scanner.scan(depth).unwrap().files;
            let login = |file: FileReading| match file.state {
                FileState::Parsed(parsed) => Some(parsed.login),
                FileState::Ignored(_) | FileState::LoggedOut | FileState::Problem(_) => None,
            };
            files.into_iter().filter_map(login).collect()
        }

        fn forget_how_it_looked(&mut self, name: &str) {
            let path = self.path(name);
            let outside = Outside::of(&path).unwrap();
            self.scanner.seen.get_mut(&path).unwrap().outside = outside;
        }
    }

    #[test]
    fn what_has_not_changed_is_not_parsed_again() {
        let mut home = Home::new();
        home.write("a.json", "one");
        let first = home.logins(Depth::Quick);
        assert!(Arc::ptr_eq(&first[0], &home.logins(Depth::Quick)[0]));
        assert!(Arc::ptr_eq(&first[0], &home.logins(Depth::Full)[0]));
        // The same bytes in another file of the same name.
        fs::copy(home.path("a.json"), home.path("b.tmp")).unwrap();
        fs::rename(home.path("b.tmp"), home.path("a.json")).unwrap();
        assert!(Arc::ptr_eq(&first[0], &home.logins(Depth::Quick)[0]));
    }

    #[test]
    fn a_quick_look_sees_what_looks_different() {
        let mut home = Home::new();
        home.write("a.json", "one");
        home.age("a.json");
        let first = home.logins(Depth::Quick)[0].credential.fingerprint;
        home.write("a.json", "two");
        let second = home.logins(Depth::Quick)[0].credential.fingerprint;
        assert_ne!(first, second);
        fs::remove_file(home.path("a.json")).unwrap();
        assert!(home.logins(Depth::Quick).is_empty() && home.scanner.seen.is_empty());
    }

    #[test]
    fn a_full_look_sees_an_edit_that_nothing_gives_away() {
        let mut home = Home::new();
        home.write("a.json", "one");
        let first = home.logins(Depth::Quick)[0].credential.fingerprint;
        home.write("a.json", "two");
        home.forget_how_it_looked("a.json");
        assert_eq!(home.logins(Depth::Quick)[0].credential.fingerprint, first);
        assert_ne!(home.logins(Depth::Full)[0].credential.fingerprint, first);
    }

    #[test]
    fn a_change_of_mode_is_seen_without_a_new_parse() {
        let mut home = Home::new();
        home.write("a.json", "one");
        let mut notices = |mode| {
            fs::set_permissions(home.path("a.json"), fs::Permissions::from_mode(mode)).unwrap();
            home.scanner.scan(Depth::Quick).unwrap().files[0].notices.clone()
        };
        assert_eq!(notices(0o600), []);
        assert_eq!(notices(0o640), [Reason::OpenToOthers { mode: 0o640 }]);
    }

    #[test]
    fn a_directory_that_was_unmounted_is_not_empty_but_out_of_reach() {
        let (here, Ok(there)) = (Home::new(), TempDir::new_in("/dev/shm")) else { return };
        let link = here.path("link");
        std::os::unix::fs::symlink(there.path(), &link).unwrap();
        let mut scanner = Scanner::new(link.clone(), true);
        assert!(scanner.scan(Depth::Quick).unwrap().files.is_empty());
        fs::write(there.path().join("a.json"), "{}").unwrap();
        assert_eq!(scanner.scan(Depth::Quick).unwrap().files.len(), 1);
        fs::create_dir(here.path("empty")).unwrap();
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(here.path("empty"), &link).unwrap();
        let device = |path: &Path| fs::metadata(path).unwrap().dev();
        if device(there.path()) == device(&here.path("empty")) {
            return; // Both lie on one file system here.
        }
        assert!(scanner.scan(Depth::Quick).is_err() && scanner.scan(Depth::Full).is_err());
        fs::write(here.path("empty/b.json"), "{}").unwrap();
        assert_eq!(scanner.scan(Depth::Quick).unwrap().files.len(), 1, "it is used as it is");
    }

    #[test]
    fn a_folder_that_is_not_there_any_more_is_not_lost() {
        let mut home = Home::new();
        fs::create_dir(home.path("sub")).unwrap();
        home.write("sub/a.json", "one");
        assert_eq!(home.logins(Depth::Quick).len(), 1);
        fs::remove_dir_all(home.path("sub")).unwrap();
        let reading = home.scanner.scan(Depth::Quick).unwrap();
        assert!(reading.files.is_empty() && reading.lost_folders.is_empty());
    }
}
