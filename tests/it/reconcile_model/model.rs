//! What should become of accounts, told as simply as it can be, for few people and few files.
//!
//! This knows nothing of the program: it is the rules once more, over letters and small numbers.

use std::collections::{BTreeMap, BTreeSet};

use super::story::{Content, Login, Op, PLACES, Place, Tells};

/// Seconds for which a file that breaks is still used.
pub(super) const PARSE_GRACE: u64 = 5;

/// Seconds after which the rows of an account that is gone are deleted.
pub(super) const REMOVAL_GRACE: u64 = 60;

/// What names an account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    User { workspace: char, user: char },
    Workspace(char),
    Path(Place),
}

/// An account of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub workspace: Option<char>,
    /// The login whose token is used.
    pub token: String,
    /// Where its files are, and whether something is wrong with them.
    pub sources: Vec<(Place, bool)>,
    pub disabled: bool,
    pub out_of_sight: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    disk: BTreeMap<Place, File>,
    before: BTreeMap<Place, File>,
    pub hidden: bool,
    elapsed: u64,
    known: BTreeMap<Place, Known>,
    /// Places of broken files of which nothing is known.
    strange: BTreeSet<Place>,
    pub pool: BTreeMap<Key, Entry>,
    gone: BTreeMap<Key, u64>,
    /// Which account holds which session, whether it can be seen or not.
    pub sessions: BTreeMap<u8, Key>,
    /// Accounts that have reached their limit.
    pub resting: BTreeSet<Key>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct File {
    content: Content,
    /// Others may read it.
    loose: bool,
}

/// What is remembered of a file.
#[derive(Clone, Debug)]
struct Known {
    login: Login,
    workspace: Option<char>,
    user: Option<char>,
    home: Key,
    failing_since: Option<u64>,
    counts: Counts,
    problem: bool,
    /// It was in order at this look.
    fresh: bool,
}

/// What a file counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counts {
    Used,
    OutOfSight,
    /// Only for who the others are.
    Excluded,
}

/// What a look finds at a place.
enum Seen {
    Nothing,
    Broken,
    Login(Login, bool),
}

// === impl Model ===

impl Model {
    /// Does it, and looks.
    pub(super) fn step(&mut self, op: &Op) {
        match op {
            Op::Write(place, content) => self.put(*place, content.clone()),
            Op::Rename(from, to) if from != to => {
                if let Some(file) = self.disk.remove(from) {
                    self.keep(*to);
                    self.disk.insert(*to, file);
                }
            }
            Op::Swap(a, b) => {
                let (one, other) = (self.disk.remove(a), self.disk.remove(b));
                self.disk.extend(one.map(|it| (*b, it)));
                self.disk.extend(other.map(|it| (*a, it)));
            }
            Op::Delete(place) => {
                self.keep(*place);
                self.disk.remove(place);
            }
            Op::Restore(place) => {
                if let Some(file) = self.before.get(place).cloned() {
                    self.put(*place, file.content);
                }
            }
            Op::Loosen(place) => {
                if let Some(file) = self.disk.get_mut(place).filter(|it| it.content.is_regular()) {
                    file.loose = true;
                }
            }
            Op::Hide => self.hidden = true,
            Op::Show => self.hidden = false,
            Op::Wait(seconds) => self.elapsed += seconds,
            Op::Restart => self.restart(),
            Op::Bind { session, nth } => {
                if let Some(account) = self.ready(*nth) {
                    self.sessions.insert(*session, account);
                }
            }
            Op::Exhaust { nth } => self.resting.extend(self.ready(*nth)),
            Op::Rename(..) | Op::Jump(_) | Op::Look => {}
        }
        self.look();
    }

    /// An account that may serve, by its number among all that may.
    pub(super) fn ready(&self, nth: usize) -> Option<Key> {
        let open = self
            .pool
            .iter()
            .filter(|(key, it)| !it.disabled && !it.out_of_sight && !self.resting.contains(*key));
        let open: Vec<&Key> = open.map(|it| it.0).collect();
        (!open.is_empty()).then(|| open[nth % open.len()].clone())
    }

    /// Whether the next step of this kind has something to bring back.
    pub(super) fn kept(&self, place: Place) -> Option<&Content> {
        self.before.get(&place).map(|it| &it.content)
    }

    fn put(&mut self, place: Place, content: Content) {
        self.keep(place);
        self.disk.insert(place, File { content, loose: false });
    }

    fn keep(&mut self, place: Place) {
        if let Some(file) = self.disk.get(&place) {
            self.before.insert(place, file.clone());
        }
    }

    fn restart(&mut self) {
        self.hidden = false;
        self.known.clear();
        self.strange.clear();
        let rows = self.sessions.values().chain(&self.resting).chain(self.pool.keys());
        self.gone = rows.map(|it| (it.clone(), self.elapsed)).collect();
        self.pool.clear();
    }

    fn look(&mut self) {
        let mut files = self.sighted();
        self.recall(&mut files);
        share(&mut files);
        self.stay(&mut files);
        let pool = group(&mut files);
        self.change(&files, pool);
        self.known = files;
        if !self.hidden && self.strange.is_empty() {
            let held = self.known.values().filter(|it| it.failing_since.is_some());
            let held: BTreeSet<Key> = held.map(|it| it.home.clone()).collect();
            let due = |(key, since): &(&Key, &u64)| {
                **since + REMOVAL_GRACE <= self.elapsed && !held.contains(*key)
            };
            let due: Vec<Key> = self.gone.iter().filter(due).map(|it| it.0.clone()).collect();
            for key in due {
                self.gone.remove(&key);
                self.forget(&key);
            }
        }
    }

    /// The files with a login, as they are or as they were.
    fn sighted(&mut self) -> BTreeMap<Place, Known> {
        let mut files = BTreeMap::new();
        let mut strange = BTreeSet::new();
        for place in 0..PLACES.len() {
            let known = self.known.get(&place).cloned();
            let file = match (self.hidden, self.seen(place), known) {
                (true, _, Some(known)) => Some(self.failing(known, true)),
                (true, _, None) | (false, Seen::Nothing, _) => None,
                (false, Seen::Login(login, loose), _) => Some(Known::new(login, loose)),
                (false, Seen::Broken, Some(known)) => Some(self.failing(known, false)),
                (false, Seen::Broken, None) => {
                    strange.insert(place);
                    None
                }
            };
            files.extend(file.map(|it| (place, it)));
        }
        if !self.hidden {
            self.strange = strange;
        }
        files
    }

    fn failing(&self, known: Known, lost: bool) -> Known {
        let since = known.failing_since.unwrap_or(self.elapsed);
        let over = since + PARSE_GRACE <= self.elapsed;
        let counts = match known.counts {
            Counts::Excluded => Counts::Excluded,
            Counts::Used | Counts::OutOfSight if !over => Counts::Used,
            Counts::Used | Counts::OutOfSight if lost => Counts::OutOfSight,
            Counts::Used | Counts::OutOfSight => Counts::Excluded,
        };
        Known {
            failing_since: Some(since),
            counts,
            problem: known.problem || !lost,
            fresh: false,
            ..known
        }
    }

    fn seen(&self, place: Place) -> Seen {
        let Some(file) = self.disk.get(&place) else { return Seen::Nothing };
        match &file.content {
            Content::Login(login) => Seen::Login(*login, file.loose),
            Content::LoggedOut | Content::Foreign => Seen::Nothing,
            Content::Link(target) => self.behind(*target),
            Content::Cut(_)
            | Content::Empty
            | Content::Malformed
            | Content::Array
            | Content::Huge
            | Content::Folder
            | Content::Dangling => Seen::Broken,
        }
    }

    /// A link to a file of the directory is a second name of it, which counts for nothing; so does
    /// one to a folder.
    fn behind(&self, target: Place) -> Seen {
        let mut at = target;
        for _ in 0..=PLACES.len() {
            match self.disk.get(&at).map(|it| &it.content) {
                None | Some(Content::Dangling) => return Seen::Broken,
                Some(Content::Link(next)) => at = *next,
                Some(_) => return Seen::Nothing,
            }
        }
        Seen::Broken
    }

    /// What is known of a token counts first, then what is known of the place.
    fn recall(&self, files: &mut BTreeMap<Place, Known>) {
        for (place, file) in files.iter_mut().filter(|it| it.1.fresh) {
            let here = self.known.get(place);
            let same: Vec<&Known> = here
                .into_iter()
                .chain(self.known.values())
                .filter(|it| it.login.token() == file.login.token())
                .collect();
            if file.workspace.is_none() {
                let renewed = here.filter(|it| {
                    it.login.token() != file.login.token()
                        && it.login.refresh() == file.login.refresh()
                });
                let silent = same.iter().copied().find(|it| it.login.workspace().is_none());
                file.workspace = renewed.or(silent).and_then(|it| it.workspace);
            }
            if file.workspace.is_none() || file.user.is_some() {
                continue;
            }
            let users: BTreeSet<char> = same
                .iter()
                .filter(|it| it.workspace == file.workspace)
                .filter_map(|it| it.user)
                .collect();
            file.user = match users.len() {
                1 => users.first().copied(),
                _ => here.filter(|it| it.workspace == file.workspace).and_then(|it| it.user),
            };
        }
    }

    /// Who shared a seat keeps it, if the workspace knows no user any more.
    fn stay(&self, files: &mut BTreeMap<Place, Known>) {
        let named: BTreeSet<Option<char>> =
            files.values().filter(|it| it.user.is_some()).map(|it| it.workspace).collect();
        for (place, file) in files.iter_mut() {
            if file.workspace.is_none() || named.contains(&file.workspace) {
                continue;
            }
            let same = self.known.values().filter(|it| it.login.token() == file.login.token());
            let before = self.known.get(place).into_iter().chain(same);
            file.user =
                before.filter(|it| it.workspace == file.workspace).find_map(|it| match it.home {
                    Key::User { user, .. } => Some(user),
                    Key::Workspace(_) | Key::Path(_) => None,
                });
        }
    }

    /// Replaces the pool, and takes the rows along.
    fn change(&mut self, files: &BTreeMap<Place, Known>, pool: BTreeMap<Key, Entry>) {
        let old = std::mem::replace(&mut self.pool, pool);
        let (mut from, mut to) = (BTreeSet::new(), BTreeSet::new());
        for (place, file) in files {
            let Some(known) = self.known.get(place).cloned() else { continue };
            let (Some(before), Some(after)) = (old.get(&known.home), self.pool.get(&file.home))
            else {
                continue;
            };
            let better = match (&known.home, &file.home) {
                (Key::Path(_), Key::User { .. } | Key::Workspace(_)) => {
                    before.workspace.is_none() || before.workspace == after.workspace
                }
                (Key::Workspace(old), Key::User { workspace, .. }) => old == workspace,
                (Key::User { .. } | Key::Workspace(_) | Key::Path(_), _) => false,
            };
            let one_login = known.login.token() == file.login.token()
                || known.login.refresh() == file.login.refresh();
            let alike = known.user.is_none() || file.user.is_none() || known.user == file.user;
            let moves = !old.contains_key(&file.home) && !self.pool.contains_key(&known.home);
            if better
                && one_login
                && alike
                && moves
                && !to.contains(&file.home)
                && from.insert(known.home.clone())
            {
                to.insert(file.home.clone());
                self.gone.remove(&file.home);
                self.forget(&file.home);
                self.rename(&known.home, &file.home);
            }
        }
        let removed = old.keys().filter(|it| !self.pool.contains_key(*it) && !from.contains(*it));
        self.gone.extend(removed.map(|it| (it.clone(), self.elapsed)));
        self.gone.retain(|it, _| !self.pool.contains_key(it));
    }

    fn forget(&mut self, account: &Key) {
        self.sessions.retain(|_, it| it != account);
        self.resting.remove(account);
    }

    fn rename(&mut self, from: &Key, to: &Key) {
        self.sessions.values_mut().filter(|it| *it == from).for_each(|it| *it = to.clone());
        if self.resting.remove(from) {
            self.resting.insert(to.clone());
        }
    }
}

// === impl Known ===

impl Known {
    fn new(login: Login, problem: bool) -> Self {
        Self {
            login,
            workspace: login.workspace(),
            user: (login.tells == Tells::User).then(|| login.who.user()),
            home: Key::Path(0),
            failing_since: None,
            counts: Counts::Used,
            problem,
            fresh: true,
        }
    }
}

/// Copies of one token in one workspace know what one of them knows, unless they disagree.
fn share(files: &mut BTreeMap<Place, Known>) {
    let all: Vec<Known> = files.values().cloned().collect();
    for file in files.values_mut().filter(|it| it.workspace.is_some()) {
        let copies = all
            .iter()
            .filter(|it| it.workspace == file.workspace && it.login.token() == file.login.token());
        let users: BTreeSet<char> = copies.filter_map(|it| it.user).collect();
        if users.len() == 1 {
            file.user = users.first().copied();
        }
    }
}

/// Tells every file whose it is, and makes the accounts of those that count.
fn group(files: &mut BTreeMap<Place, Known>) -> BTreeMap<Key, Entry> {
    let mut homes: BTreeMap<Place, Key> = BTreeMap::new();
    for (place, file) in files.iter() {
        let Some(workspace) = file.workspace else { continue };
        let users: BTreeSet<char> = files
            .values()
            .filter(|it| it.workspace == Some(workspace))
            .filter_map(|it| it.user)
            .collect();
        let only = if users.len() == 1 { users.first().copied() } else { None };
        if let Some(user) = file.user.or(only) {
            homes.insert(*place, Key::User { workspace, user });
        } else if users.is_empty() {
            homes.insert(*place, Key::Workspace(workspace));
        }
    }
    let sure = homes.clone();
    for (place, file) in files.iter().filter(|it| !sure.contains_key(it.0)) {
        let copy = |it: &Place| files[it].login.token() == file.login.token();
        let hosts: BTreeSet<&Key> = sure.iter().filter(|it| copy(it.0)).map(|it| it.1).collect();
        let host = hosts.first().filter(|it| {
            hosts.len() == 1 && (file.workspace.is_none() || file.workspace == it.workspace())
        });
        homes.extend(host.map(|it| (*place, (*it).clone())));
    }
    let lonely: Vec<Place> = files.keys().filter(|it| !homes.contains_key(*it)).copied().collect();
    for place in &lonely {
        let copy = |it: &&Place| files[*it].login.token() == files[place].login.token();
        let first = lonely.iter().find(copy).unwrap_or(place);
        homes.insert(*place, Key::Path(*first));
    }
    for (place, file) in files.iter_mut() {
        file.home = homes[place].clone();
    }
    let keys: BTreeSet<Key> = homes.into_values().collect();
    keys.into_iter().filter_map(|key| Some((key.clone(), entry(&key, files)?))).collect()
}

fn entry(key: &Key, files: &BTreeMap<Place, Known>) -> Option<Entry> {
    let all: Vec<(Place, &Known)> =
        files.iter().filter(|it| it.1.home == *key).map(|it| (*it.0, it.1)).collect();
    let workspace = key.workspace().or_else(|| all.iter().find_map(|it| it.1.workspace));
    let out_of_sight = !all.iter().any(|it| it.1.counts == Counts::Used);
    let wanted = if out_of_sight { Counts::OutOfSight } else { Counts::Used };
    let listed: Vec<(Place, &Known)> = all.into_iter().filter(|it| it.1.counts == wanted).collect();
    // Of equals the first by its path is used.
    let rank = |it: &Known| (!it.login.off, it.login.generation);
    let best = listed.iter().map(|it| rank(it.1)).max()?;
    let chosen = listed.iter().find(|it| rank(it.1) == best)?;
    Some(Entry {
        workspace,
        token: chosen.1.login.token(),
        disabled: listed.iter().all(|it| it.1.login.off),
        sources: listed.iter().map(|it| (it.0, it.1.problem)).collect(),
        out_of_sight,
    })
}

// === impl Key ===

impl Key {
    fn workspace(&self) -> Option<char> {
        match self {
            Self::User { workspace, .. } | Self::Workspace(workspace) => Some(*workspace),
            Self::Path(_) => None,
        }
    }
}
