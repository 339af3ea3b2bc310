//! From what the credential directory shows to the accounts of the pool. Pure.
//!
//! The planner decides everything; whoever carries the plan out has no choices left. Nothing here
//! names a token: a change holds ids and fingerprints.

mod changes;
mod lineage;
mod look;
mod recall;
mod rename;
#[cfg(test)]
mod stage;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;

use self::{
    lineage::Lineage,
    look::{Found, Known},
};
use super::{
    account::{Account, AuthId, Eligibility, Label},
    credential::Fingerprint,
    identity::{self, Assignment, Home, Login, LoginFile, PathId, Resolved},
};

/// What one look at the directory found.
#[derive(Clone, Debug)]
pub enum View {
    Seen(Sight),
    /// The directory is missing or cannot be listed, which does not mean that its files are gone.
    Unavailable,
}

/// The files of a directory that could be listed.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    /// By path, each path once.
    pub files: Vec<Observed>,
    /// Folders below it that could not be listed.
    pub lost_folders: Vec<PathId>,
}

/// One file.
#[derive(Clone, Debug)]
pub struct Observed {
    pub path: PathId,
    pub content: Content,
    /// What is wrong with a file that was read all the same; safe to show.
    pub notice: Option<Arc<str>>,
}

#[derive(Clone, Debug)]
pub enum Content {
    Login(Arc<Login>),
    /// In order, and nobody is logged in, or it is no login of ChatGPT.
    NoLogin,
    /// What is wrong may pass; the text is safe to show.
    Broken(Arc<str>),
}

/// When a plan is made: by the wall, and by a clock that nobody sets.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub now: Timestamp,
    pub elapsed: Duration,
}

/// What else a plan rests on.
#[derive(Clone, Debug)]
pub struct Terms<'a> {
    pub moment: Moment,
    pub parse_grace: Duration,
    pub paused: &'a BTreeSet<AuthId>,
    /// Refresh tokens that this process has traded in: the old one and what came for it.
    pub rotations: &'a [(Fingerprint, Fingerprint)],
}

/// What is remembered from look to look.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    files: BTreeMap<PathId, Remembered>,
    /// Broken files of which nothing is known.
    strangers: BTreeSet<PathId>,
    /// The accounts as the last plan left them.
    accounts: BTreeMap<AuthId, Planned>,
}

/// What is to be done, in full.
#[derive(Clone, Debug)]
pub struct Plan {
    /// All accounts of the pool from now on, by id, with their eligibility.
    pub accounts: Vec<Planned>,
    /// What has changed, in the order in which it is to be told.
    pub changes: Vec<Change>,
    pub memory: Memory,
    /// Accounts that are gone and whose rows must not be purged yet, since a file that cannot be
    /// read may be theirs.
    pub held: Held,
    /// When to look again even if nothing moves, on the clock that nobody sets: a grace ends then.
    pub next_look: Option<Duration>,
    /// The directory itself is out of reach.
    pub unavailable: bool,
}

/// An account that lacks only its label.
#[derive(Clone, Debug)]
pub struct Planned {
    pub resolved: Resolved,
    pub eligibility: Eligibility,
}

/// Whose rows are to be kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub accounts: BTreeSet<AuthId>,
    /// A file has been broken since this process began, so it may be anyone's.
    pub everyone: bool,
}

/// One change of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Added {
        id: AuthId,
        fingerprint: Fingerprint,
    },
    /// No file describes it any more. Its rows are invisible from now on, and come back with it.
    Removed {
        id: AuthId,
    },
    Updated {
        id: AuthId,
        aspect: Aspect,
        fingerprint: Fingerprint,
    },
    /// The same account is known better than before, and has another id for it. Its rows follow.
    Renamed {
        from: AuthId,
        to: AuthId,
    },
    /// It was gone for too long; its rows are to be deleted.
    Purged {
        id: AuthId,
    },
}

/// What is new of an account that stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aspect {
    Credentials,
    Metadata,
    Eligibility,
    Sources,
}

/// A file that held a login when it was last in order.
#[derive(Clone, Debug)]
struct Remembered {
    file: LoginFile,
    condition: Condition,
    /// The account it belongs to.
    home: Home,
}

/// How a file that held a login was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Good,
    /// Broken or out of reach since then, on the clock that nobody sets.
    Failing {
        since: Duration,
    },
    /// Broken for longer than the grace.
    Excluded,
}

/// Makes the plan.
///
/// Planning once more with the memory that comes of it finds nothing new until `next_look`, or
/// until a token expires.
pub fn plan(view: &View, memory: &Memory, terms: &Terms<'_>) -> Plan {
    let Found { mut files, strangers, blind } = look::take_in(view, memory, terms);
    let lineage = Lineage::new(terms.rotations);
    recall::complete(&mut files, memory, &lineage);
    let next_look = look::next(&files, terms);
    let known = files.iter().map(|it| it.file.clone()).collect();
    let Assignment { accounts, mut homes } = identity::assign(known, terms.moment.now);
    let remembered = files.into_iter().filter_map(|Known { file, condition }| {
        let home = homes.remove(&file.path)?;
        Some((file.path.clone(), Remembered { file, condition, home }))
    });
    let files: BTreeMap<PathId, Remembered> = remembered.collect();
    let renames = rename::find(memory, &files, &accounts, &lineage);
    let paused = |id: &AuthId| {
        terms.paused.contains(id) || renames.get(id).is_some_and(|it| terms.paused.contains(it))
    };
    let accounts: Vec<Planned> = accounts
        .into_iter()
        .map(|it| Planned {
            eligibility: Eligibility { paused: paused(&it.id), ..it.eligibility() },
            resolved: it,
        })
        .collect();
    Plan {
        changes: changes::between(&memory.accounts, &accounts, &renames),
        held: held(&files, blind || !strangers.is_empty()),
        memory: Memory {
            files,
            strangers,
            accounts: accounts.iter().map(|it| (it.resolved.id.clone(), it.clone())).collect(),
        },
        accounts,
        next_look,
        unavailable: matches!(view, View::Unavailable),
    }
}

fn held(files: &BTreeMap<PathId, Remembered>, everyone: bool) -> Held {
    let unsure = files.values().filter(|it| it.condition.is_unsure());
    Held { accounts: unsure.map(|it| it.home.id.clone()).collect(), everyone }
}

// === impl Planned ===

impl Planned {
    /// The account, once its label is known.
    pub fn labelled(self, label: Label) -> Account {
        Account { eligibility: self.eligibility, ..self.resolved.labelled(label) }
    }
}

// === impl Condition ===

impl Condition {
    /// Whether the file may hold something else than what is remembered of it.
    fn is_unsure(self) -> bool {
        match self {
            Self::Good => false,
            Self::Failing { .. } | Self::Excluded => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        stage::{GRACE, Stage, token, view},
        *,
    };

    /// The second on the clock that nobody sets, what is there, the accounts and the changes.
    type Look<'a> = (u64, &'a str, &'a str, &'a str);

    /// Its name and its looks.
    type Story<'a> = (&'a str, &'a [Look<'a>]);

    /// Runs each story in a process of its own.
    fn tell(stories: &[Story<'_>]) {
        for (name, looks) in stories {
            let mut stage = Stage::default();
            for (elapsed, seen, accounts, changes) in *looks {
                let plan = stage.look(*elapsed, seen);
                assert_eq!(stage.accounts(&plan), *accounts, "{name}: accounts at {elapsed}");
                assert_eq!(stage.changes(&plan), *changes, "{name}: changes at {elapsed}");
                let again = stage.look(*elapsed, seen);
                assert!(again.changes.is_empty(), "{name}: {:?} at {elapsed}", again.changes);
            }
        }
    }

    const CHANGES: &[Story<'_>] = &[
        (
            "a file comes and goes",
            &[
                (0, "", "", ""),
                (1, "a=A", "A[a*]", "+A"),
                (2, "a=A b=B", "A[a*] B[b*]", "+B"),
                (3, "b=B", "B[b*]", "-A"),
                (4, "", "", "-B"),
            ],
        ),
        (
            "a copy adds no account",
            &[
                (0, "a=A,t:1", "A[a*]", "+A"),
                (1, "a=A,t:1 b=A,t:1 c=A,t:1", "A[a*,b,c]", "A.sources"),
                (2, "c=A,t:1", "A[c*]", "A.sources"),
            ],
        ),
        (
            "a move changes the sources only",
            &[
                (0, "a=A,u:1,t:1", "A/u1[a*]", "+A/u1"),
                (1, "team/b=A,u:1,t:1", "A/u1[team/b*]", "A/u1.sources"),
            ],
        ),
        (
            "new tokens are new credentials",
            &[
                (0, "a=A,t:1,r:1,exp:10,last:1", "A[a*]", "+A"),
                (1, "a=A,t:2,r:2,exp:20,last:2", "A[a*]", "A.credentials"),
                (2, "a=A,t:2,r:3,exp:20,last:2", "A[a*]", "A.sources"),
                (3, "a=A,t:2,r:3,exp:30,last:2", "A[a*]", "A.sources"),
            ],
        ),
        (
            "a fresher copy is new credentials, a staler one is not",
            &[
                (0, "b=A,t:1,last:5", "A[b*]", "+A"),
                (1, "a=A,t:2,last:4 b=A,t:1,last:5", "A[a,b*]", "A.sources"),
                (2, "a=A,t:2,last:6 b=A,t:1,last:5", "A[a*,b]", "A.credentials A.sources"),
            ],
        ),
        (
            "a switch is eligibility",
            &[
                (0, "a=A", "A[a*]", "+A"),
                (1, "a=A,off", "-A[a*]", "A.eligibility A.sources"),
                (2, "a=A", "A[a*]", "A.eligibility A.sources"),
                (3, "a=A b=A,off,t:a", "A[a*,b]", "A.sources"),
            ],
        ),
        (
            "what a token tells is metadata",
            &[
                (0, "a=A,t:1", "A[a*]", "+A"),
                (1, "a=A,t:1,plan:pro", "A[a*]", "A.metadata"),
                (2, "a=A,t:1,plan:pro,mail:x", "A[a*]", "A.metadata"),
                (3, "a=A,t:1,plan:pro,mail:x,fedramp", "A[a*]", "A.metadata"),
                (4, "a=A,t:1,plan:pro,mail:x,fedramp,claims:B", "A[a*]", "A.metadata A.sources"),
            ],
        ),
        (
            "a notice is shown with the file",
            &[(0, "a=A", "A[a*]", "+A"), (1, "a=A,notice", "A[a*!]", "A.sources")],
        ),
        (
            "all at once, in order",
            &[
                (0, "a=A b=B c=,t:1 d=D", "(c)[c*] A[a*] B[b*] D[d*]", "+(c) +A +B +D"),
                (
                    1,
                    "a=A,off c=C,t:1 d=E",
                    "-A[a*] C[c*] E[d*]",
                    "(c)>C -B -D +E A.eligibility \
                     A.sources C.metadata",
                ),
            ],
        ),
    ];

    #[test]
    fn each_change_of_the_files_is_told_as_what_it_is() {
        tell(CHANGES);
    }

    const REPLACEMENTS: &[Story<'_>] = &[
        (
            "another workspace",
            &[
                (0, "a=A,u:1,t:1,r:1,mail:x", "A/u1[a*]", "+A/u1"),
                (1, "a=B,u:1,t:2,r:2,mail:x", "B/u1[a*]", "-A/u1 +B/u1"),
            ],
        ),
        (
            "another workspace, of the same refresh token",
            &[(0, "a=A,t:1,r:1", "A[a*]", "+A"), (1, "a=B,t:2,r:1", "B[a*]", "-A +B")],
        ),
        (
            "another user",
            &[
                (0, "a=A,u:1,t:1", "A/u1[a*]", "+A/u1"),
                (1, "a=A,u:2,t:2", "A/u2[a*]", "-A/u1 +A/u2"),
            ],
        ),
        (
            "an opaque login of another workspace",
            &[
                (0, "a=A,u:1,t:1", "A/u1[a*]", "+A/u1"),
                (1, "a=B,t:2", "B[a*]", "-A/u1 +B"),
                (2, "a=A,t:3", "A[a*]", "-B +A"),
            ],
        ),
        (
            "two files that are swapped stay who they are",
            &[
                (0, "a=A,t:1 b=B,t:2", "A[a*] B[b*]", "+A +B"),
                (1, "a=B,t:2 b=A,t:1", "A[b*] B[a*]", "A.sources B.sources"),
            ],
        ),
    ];

    #[test]
    fn another_account_at_a_path_inherits_nothing() {
        tell(REPLACEMENTS);
    }

    const SEATS: &[Story<'_>] = &[
        (
            "an opaque token keeps the seat",
            &[
                (0, "a=A,u:1,t:1", "A/u1[a*]", "+A/u1"),
                (1, "a=A,t:2", "A/u1[a*]", "A/u1.credentials"),
                (2, "a=A,t:3", "A/u1[a*]", "A/u1.credentials"),
            ],
        ),
        (
            "beside another seat too",
            &[
                (0, "a=A,u:1,t:1 b=A,u:2,t:2", "A/u1[a*] A/u2[b*]", "+A/u1 +A/u2"),
                (1, "a=A,t:3 b=A,t:4", "A/u1[a*] A/u2[b*]", "A/u1.credentials A/u2.credentials"),
            ],
        ),
        (
            "another kind of claim adds to it",
            &[
                (0, "a=A,u:1,t:1", "A/u1[a*]", "+A/u1"),
                (1, "a=A,s:9,t:2", "A/u1[a*]", "A/u1.credentials"),
                (
                    2,
                    "a=A,u:1,t:2 b=A,s:9,t:3 c=A,u:2,t:4",
                    "A/u1[a*,b] A/u2[c*]",
                    "+A/u2 A/u1.sources",
                ),
            ],
        ),
        (
            "until another user of a known kind comes",
            &[
                (0, "a=A,u:1,s:9,t:1", "A/u1[a*]", "+A/u1"),
                (1, "a=A,s:8,t:2", "A/s8[a*]", "-A/u1 +A/s8"),
            ],
        ),
        (
            "a move takes it along",
            &[
                (0, "a=A,u:1,t:1 b=A,u:2,t:2", "A/u1[a*] A/u2[b*]", "+A/u1 +A/u2"),
                (1, "a=A,t:3 b=A,u:2,t:2", "A/u1[a*] A/u2[b*]", "A/u1.credentials"),
                (2, "c=A,t:3 b=A,u:2,t:2", "A/u1[c*] A/u2[b*]", "A/u1.sources"),
            ],
        ),
        (
            "a swap does not mix seats up",
            &[
                (0, "a=A,u:1,t:1 b=A,u:2,t:2", "A/u1[a*] A/u2[b*]", "+A/u1 +A/u2"),
                (1, "a=A,t:3 b=A,t:4", "A/u1[a*] A/u2[b*]", "A/u1.credentials A/u2.credentials"),
                (2, "a=A,t:4 b=A,t:3", "A/u1[b*] A/u2[a*]", "A/u1.sources A/u2.sources"),
            ],
        ),
        (
            "copies of a token know what one of them knows",
            &[(0, "a=B,t:2 b=B,u:1,s:1,t:3 c=B,s:1,t:2", "B/u1[a*,b,c]", "+B/u1")],
        ),
        (
            "a file that was gone begins anew",
            &[
                (0, "a=A,u:1,t:1", "A/u1[a*]", "+A/u1"),
                (1, "", "", "-A/u1"),
                (2, "a=A,t:2", "A[a*]", "+A"),
            ],
        ),
        (
            "a logout forgets it",
            &[
                (0, "a=A,u:1,t:1", "A/u1[a*]", "+A/u1"),
                (1, "a=none", "", "-A/u1"),
                (2, "a=A,t:2", "A[a*]", "+A"),
            ],
        ),
        (
            "a broken file does not",
            &[
                (0, "a=A,u:1,t:1", "A/u1[a*]", "+A/u1"),
                (1, "a=broken", "A/u1[a*!]", "A/u1.sources"),
                (9, "a=broken", "", "-A/u1"),
                (10, "a=A,t:2", "A/u1[a*]", "+A/u1"),
            ],
        ),
        (
            "an opaque copy stays when the one that named the seat goes",
            &[
                (0, "a=A,t:1 b=A,u:1,t:2", "A/u1[a*,b]", "+A/u1"),
                (1, "a=A,t:1", "A/u1[a*]", "A/u1.sources"),
            ],
        ),
        (
            "an opaque copy beside two seats is neither's",
            &[(
                0,
                "a=A,u:1,t:1 b=A,u:2,t:2 c=A,t:3",
                "(c)[c*] A/u1[a*] A/u2[b*]",
                "+(c) +A/u1 +A/u2",
            )],
        ),
    ];

    #[test]
    fn a_seat_that_is_known_stays_known() {
        tell(SEATS);
    }

    const GRACES: &[Story<'_>] = &[
        (
            "a first sight of it is no use",
            &[(0, "a=broken b=B", "B[b*]", "+B"), (1, "a=A b=B", "A[a*] B[b*]", "+A")],
        ),
        (
            "further faults do not start the grace anew",
            &[
                (0, "a=A", "A[a*]", "+A"),
                (10, "a=broken", "A[a*!]", "A.sources"),
                (13, "a=broken", "A[a*!]", ""),
                (14, "a=broken", "A[a*!]", ""),
                (15, "a=broken", "", "-A"),
                (99, "a=broken", "", ""),
                (100, "a=A", "A[a*]", "+A"),
            ],
        ),
        (
            "a good look ends it",
            &[
                (0, "a=A", "A[a*]", "+A"),
                (10, "a=broken", "A[a*!]", "A.sources"),
                (14, "a=A", "A[a*]", "A.sources"),
                (15, "a=broken", "A[a*!]", "A.sources"),
                (19, "a=broken", "A[a*!]", ""),
                (20, "a=broken", "", "-A"),
            ],
        ),
        (
            "it ends with new content too",
            &[
                (0, "a=A,t:1", "A[a*]", "+A"),
                (1, "a=broken", "A[a*!]", "A.sources"),
                (2, "a=B,t:2", "B[a*]", "-A +B"),
            ],
        ),
        (
            "a logout has none",
            &[
                (0, "a=A", "A[a*]", "+A"),
                (1, "a=broken", "A[a*!]", "A.sources"),
                (2, "a=none", "", "-A"),
                (3, "a=broken", "", ""),
            ],
        ),
        (
            "nor has a file that is gone",
            &[
                (0, "a=A", "A[a*]", "+A"),
                (1, "a=broken", "A[a*!]", "A.sources"),
                (2, "", "", "-A"),
                (3, "a=broken", "", ""),
            ],
        ),
        (
            "the other copies serve on",
            &[
                (0, "a=A,t:1,last:2 b=A,t:2,last:1", "A[a*,b]", "+A"),
                (1, "a=broken b=A,t:2,last:1", "A[a*!,b]", "A.sources"),
                (6, "a=broken b=A,t:2,last:1", "A[b*]", "A.credentials A.sources"),
                (7, "a=A,t:1,last:2 b=A,t:2,last:1", "A[a*,b]", "A.credentials A.sources"),
            ],
        ),
        (
            "as the same account, though they tell less of it",
            &[
                (0, "a=A,u:1,t:1 b=A,t:2", "A/u1[a*,b]", "+A/u1"),
                (1, "a=broken b=A,t:2", "A/u1[a*!,b]", "A/u1.sources"),
                (6, "a=broken b=A,t:2", "A/u1[b*]", "A/u1.credentials A/u1.sources"),
                (7, "b=A,t:2", "A/u1[b*]", ""),
            ],
        ),
        (
            "also where only the path names it",
            &[
                (0, "a=,t:1 b=,t:1", "(a)[a*,b]", "+(a)"),
                (1, "a=broken b=,t:1", "(a)[a*!,b]", "(a).sources"),
                (6, "a=broken b=,t:1", "(b)[b*]", "(b).sources"),
            ],
        ),
    ];

    #[test]
    fn a_file_that_breaks_is_used_until_the_grace_is_over() {
        tell(GRACES);
    }

    const LOST: &[Story<'_>] = &[
        (
            "the whole directory",
            &[
                (0, "a=A b=B,notice", "A[a*] B[b*!]", "+A +B"),
                (10, "unavailable", "A[a*] B[b*!]", ""),
                (14, "unavailable", "A[a*] B[b*!]", ""),
                (15, "unavailable", "?A[a*] ?B[b*!]", "A.eligibility B.eligibility"),
                (999, "unavailable", "?A[a*] ?B[b*!]", ""),
                (1000, "a=A", "A[a*]", "-B A.eligibility"),
            ],
        ),
        (
            "at the start",
            &[(0, "unavailable", "", ""), (9, "unavailable", "", ""), (10, "a=A", "A[a*]", "+A")],
        ),
        (
            "a folder",
            &[
                (0, "a=A t/b=B t/c=A,t:a", "A[a*,t/c] B[t/b*]", "+A +B"),
                (1, "a=A lost:t", "A[a*,t/c!] B[t/b*!]", "A.sources B.sources"),
                (6, "a=A lost:t", "A[a*] ?B[t/b*!]", "A.sources B.eligibility"),
                (7, "a=A t/c=A,t:a", "A[a*,t/c]", "-B A.sources"),
            ],
        ),
        (
            "a file that was broken before",
            &[
                (0, "t/a=A t/b=B", "A[t/a*] B[t/b*]", "+A +B"),
                (1, "t/a=broken t/b=B", "A[t/a*!] B[t/b*]", "A.sources"),
                (3, "lost:t", "A[t/a*!] B[t/b*!]", "A.sources B.sources"),
                (6, "lost:t", "?A[t/a*!] B[t/b*!]", "A.eligibility"),
                (7, "t/a=broken t/b=B", "B[t/b*]", "-A B.sources"),
                (8, "lost:t", "B[t/b*!]", "B.sources"),
                (13, "unavailable", "?B[t/b*!]", "B.eligibility"),
            ],
        ),
        (
            "a file below it keeps the seat of the copies",
            &[
                (0, "a=A,t:1 t/b=A,u:1,t:2 ", "A/u1[a*,t/b]", "+A/u1"),
                (1, "a=A,t:1 lost:t", "A/u1[a*,t/b!]", "A/u1.sources"),
                (6, "a=A,t:1 lost:t", "A/u1[a*]", "A/u1.sources"),
                (7, "lost:t", "?A/u1[t/b*!]", "A/u1.credentials A/u1.eligibility A/u1.sources"),
            ],
        ),
    ];

    #[test]
    fn what_is_out_of_sight_is_not_gone() {
        tell(LOST);
    }

    const RENAMES: &[Story<'_>] = &[
        (
            "a path gets an account",
            &[(0, "a=,t:1", "(a)[a*]", "+(a)"), (1, "a=A,t:1", "A[a*]", "(a)>A A.metadata")],
        ),
        (
            "and new tokens for the same refresh token",
            &[
                (0, "a=,t:1,r:1", "(a)[a*]", "+(a)"),
                (1, "a=A,u:1,t:2,r:1", "A/u1[a*]", "(a)>A/u1 A/u1.credentials A/u1.metadata"),
            ],
        ),
        (
            "not by another login",
            &[(0, "a=,t:1,r:1", "(a)[a*]", "+(a)"), (1, "a=A,t:2,r:2", "A[a*]", "-(a) +A")],
        ),
        (
            "not by the same login elsewhere",
            &[(0, "a=,t:1", "(a)[a*]", "+(a)"), (1, "b=A,t:1", "A[b*]", "-(a) +A")],
        ),
        (
            "not from another account that was there already",
            &[
                (0, "a=,t:1 b=A,t:2", "(a)[a*] A[b*]", "+(a) +A"),
                (1, "a=A,t:1 b=A,t:2", "A[a*,b]", "-(a) A.credentials A.sources"),
            ],
        ),
        (
            "not while the old one stays",
            &[
                (0, "a=,t:1 b=,t:1", "(a)[a*,b]", "+(a)"),
                (1, "a=,t:1 b=A,t:2", "(a)[a*] A[b*]", "+A (a).sources"),
            ],
        ),
        (
            "only one of two that become one",
            &[
                (0, "a=,t:1 b=,t:2", "(a)[a*] (b)[b*]", "+(a) +(b)"),
                (1, "a=A,t:1 b=A,t:2", "A[a*,b]", "(a)>A -(b) A.metadata A.sources"),
            ],
        ),
        (
            "only to one of two that come of it",
            &[
                (0, "a=,t:1 b=,t:1", "(a)[a*,b]", "+(a)"),
                (1, "a=A,t:1 b=B,t:1", "A[a*] B[b*]", "(a)>A +B A.metadata A.sources"),
            ],
        ),
        (
            "a seat becomes known",
            &[
                (0, "a=A,t:1,r:1", "A[a*]", "+A"),
                (1, "a=A,u:1,t:2,r:1", "A/u1[a*]", "A>A/u1 A/u1.credentials A/u1.metadata"),
            ],
        ),
        (
            "by a copy",
            &[
                (0, "a=A,t:1", "A[a*]", "+A"),
                (1, "a=A,t:1 b=A,u:1,t:2", "A/u1[a*,b]", "A>A/u1 A/u1.metadata A/u1.sources"),
            ],
        ),
        (
            "a stronger claim of the same seat",
            &[
                (0, "a=A,s:1,t:1,r:1", "A/s1[a*]", "+A/s1"),
                (1, "a=A,u:1,s:1,t:2,r:1", "A/u1[a*]", "A/s1>A/u1 A/u1.credentials A/u1.metadata"),
            ],
        ),
        (
            "not of another one",
            &[
                (0, "a=A,s:1,t:1,r:1", "A/s1[a*]", "+A/s1"),
                (1, "a=A,u:1,s:2,t:2,r:1", "A/u1[a*]", "-A/s1 +A/u1"),
            ],
        ),
        (
            "a path that is moved is another account",
            &[(0, "a=,t:1", "(a)[a*]", "+(a)"), (1, "b=,t:1", "(b)[b*]", "-(a) +(b)")],
        ),
        (
            "an account that becomes less known is another one",
            &[(0, "a=A,t:1", "A[a*]", "+A"), (1, "a=,t:1", "(a)[a*]", "-A +(a)")],
        ),
        (
            "a known account stays in a renewed file that does not name it",
            &[
                (0, "a=A,t:1,r:1", "A[a*]", "+A"),
                (1, "a=,t:2,r:1", "A[a*]", "A.credentials"),
                (2, "a=,t:3,r:2", "(a)[a*]", "-A +(a)"),
            ],
        ),
    ];

    #[test]
    fn rows_follow_an_account_that_becomes_known_better() {
        tell(RENAMES);
    }

    #[test]
    fn a_login_descends_from_another_by_the_tokens_that_were_traded_in() {
        for (rotations, wanted) in [
            (&[][..], "-(a) +A"),
            (&[("1", "2")], "-(a) +A"),
            (&[("2", "3"), ("1", "2")], "(a)>A A.credentials A.metadata"),
            (&[("2", "1"), ("1", "2")], "-(a) +A"),
            (&[("3", "1")], "(a)>A A.credentials A.metadata"),
        ] {
            let mut stage = Stage::default();
            stage.look(0, "a=,t:1,r:1");
            stage.rotations = rotations.iter().map(|it| (token(it.0), token(it.1))).collect();
            let plan = stage.look(1, "a=A,t:3,r:3");
            assert_eq!(stage.changes(&plan), wanted, "{rotations:?}");
        }
    }

    #[test]
    fn a_pause_is_eligibility_and_follows_a_new_name() {
        let mut stage = Stage::default();
        stage.look(0, "a=,t:1 b=B");
        stage.paused = [stage.id("(a)")].into();
        let plan = stage.look(1, "a=,t:1 b=B");
        assert_eq!(stage.accounts(&plan), "=(a)[a*] B[b*]");
        assert_eq!(stage.changes(&plan), "(a).eligibility");
        let plan = stage.look(2, "a=A,t:1 b=B");
        assert_eq!(stage.accounts(&plan), "=A[a*] B[b*]");
        stage.paused = [stage.id("A")].into();
        assert_eq!(stage.look(3, "a=A,t:1 b=B").changes, []);
        stage.paused.clear();
        let plan = stage.look(4, "a=A,t:1 b=B");
        assert_eq!(stage.changes(&plan), "A.eligibility");
    }

    #[test]
    fn rows_are_held_while_a_file_may_be_theirs() {
        let table: [(&str, &[&str], &str); 12] = [
            ("nobody, if all is well", &["a=A b=none"], ""),
            ("nobody for a file that is gone", &["a=A", ""], ""),
            ("the account that was in a broken file", &["a=A b=B", "a=broken b=B"], "A"),
            ("still after the grace", &["a=A b=B", "a=broken", "a=broken"], "A"),
            ("no more when the file is in order", &["a=A", "a=broken", "a=broken", "a=B"], ""),
            ("no more when it is gone", &["a=A", "a=broken", "a=broken", ""], ""),
            ("everyone, if it was never in order", &["a=broken"], "everyone"),
            ("everyone, if nothing can be seen", &["unavailable"], "everyone"),
            ("everyone, if nothing can be seen any more", &["a=A", "unavailable"], "everyone A"),
            ("those below a lost folder", &["t/a=A b=B", "b=B lost:t"], "A"),
            ("everyone, if a lost folder was never seen", &["b=B lost:t"], "everyone"),
            (
                "everyone, if what was lost was never in order",
                &["t/a=A t/b=broken", "lost:t"],
                "everyone A",
            ),
        ];
        for (name, looks, wanted) in table {
            let mut stage = Stage::default();
            let mut held = String::new();
            for (at, seen) in (0..).zip(looks) {
                let plan = stage.look(at * GRACE.as_secs(), seen);
                held = stage.held(&plan);
            }
            assert_eq!(held, wanted, "{name}");
        }
    }

    #[test]
    fn the_next_look_is_when_the_first_grace_ends() {
        let next = |stage: &mut Stage, at, view| stage.look(at, view).next_look;
        let mut stage = Stage::default();
        assert_eq!(next(&mut stage, 0, "a=A b=B"), None);
        assert_eq!(next(&mut stage, 1, "a=broken b=B"), Some(Duration::from_secs(6)));
        assert_eq!(next(&mut stage, 3, "unavailable"), Some(Duration::from_secs(6)));
        assert_eq!(next(&mut stage, 6, "unavailable"), Some(Duration::from_secs(8)));
        assert_eq!(next(&mut stage, 8, "unavailable"), None);
        let plan = stage.look(9, "a=broken b=B");
        assert_eq!((plan.next_look, plan.unavailable), (None, false));
        assert!(stage.look(9, "unavailable").unavailable);
    }

    #[test]
    fn the_wall_clock_only_tells_which_token_is_good() {
        let both = "a=A,t:1,last:9,exp:100 b=A,t:2,last:1";
        let mut stage = Stage::default();
        stage.look(0, both);
        stage.now = 99;
        assert_eq!(stage.look(1, both).changes, []);
        stage.now = 100;
        let plan = stage.look(2, both);
        assert_eq!(stage.changes(&plan), "A.credentials A.sources");
        stage.look(3, "a=broken b=A,t:2,last:1");
        stage.now = -1_000_000;
        let plan = stage.look(7, "a=broken b=A,t:2,last:1");
        assert_eq!(stage.accounts(&plan), "A[a*!,b]", "the grace goes on");
    }

    #[test]
    fn nothing_that_is_shown_tells_a_secret() {
        let mut stage = Stage::default();
        let plan = stage.look(0, "a=A,u:1,s:2,t:3,r:4,mail:x b=,t:5 c=broken");
        let seen = view("a=A,u:1,t:3,r:4,mail:x");
        let shown = format!("{plan:?} {seen:?} {:?}", stage.memory);
        assert!(shown.contains("Added") && !shown.contains("canary"), "{shown}");
    }

    /// Up to six files, a folder that may be lost, or nothing at all.
    fn any_view() -> impl Strategy<Value = String> {
        let content = prop_oneof![
            1 => Just("broken".to_owned()),
            1 => Just("none".to_owned()),
            8 => ("[AB]?", "(,u:[12])?", "(,s:[12])?", ",t:[1-4]", "(,r:[12])?", "(,off)?")
                .prop_map(|it| [it.0, it.1, it.2, it.3, it.4, it.5].concat()),
        ];
        let file =
            ("t?", "[abc]", content).prop_map(|(folder, name, content)| match folder.is_empty() {
                true => format!("{name}={content}"),
                false => format!("{folder}/{name}={content}"),
            });
        let files = prop::collection::vec(file, 0..6).prop_map(|mut files| {
            files.sort();
            files.dedup_by(|a, b| a.split('=').next() == b.split('=').next());
            files
        });
        prop_oneof![
            1 => Just("unavailable".to_owned()),
            9 => (files, prop::bool::weighted(0.1)).prop_map(|(mut files, lost)| {
                if lost {
                    files.retain(|it| !it.starts_with("t/"));
                    files.push("lost:t".to_owned());
                }
                files.join(" ")
            }),
        ]
    }

    /// The ids that the changes lead to.
    fn applied(before: &BTreeSet<AuthId>, changes: &[Change]) -> BTreeSet<AuthId> {
        let mut ids = before.clone();
        for change in changes {
            match change {
                Change::Added { id, .. } => assert!(ids.insert(id.clone()), "added twice"),
                Change::Removed { id } => assert!(ids.remove(id), "removed, and not there"),
                Change::Renamed { from, to } => {
                    assert!(ids.remove(from) && ids.insert(to.clone()), "renamed wrongly");
                }
                Change::Updated { id, .. } => assert!(ids.contains(id), "updated, and not there"),
                Change::Purged { .. } => panic!("the planner purges nothing"),
            }
        }
        ids
    }

    fn ids(plan: &Plan) -> BTreeSet<AuthId> {
        plan.accounts.iter().map(|it| it.resolved.id.clone()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn the_changes_lead_from_each_set_of_accounts_to_the_next(
            looks in prop::collection::vec((any_view(), 0_u64..4), 1..8),
        ) {
            let (mut stage, mut elapsed, mut before) = (Stage::default(), 0, BTreeSet::new());
            stage.rotations = vec![(token("1"), token("2"))];
            for (seen, later) in looks {
                elapsed += later;
                let plan = stage.look(elapsed, &seen);
                let after = ids(&plan);
                prop_assert!(plan.accounts.is_sorted_by_key(|it| it.resolved.id.clone()));
                prop_assert_eq!(plan.accounts.len(), after.len(), "no account twice");
                prop_assert_eq!(&applied(&before, &plan.changes), &after);
                let sources = plan.accounts.iter().flat_map(|it| &it.resolved.sources);
                let paths: Vec<&PathId> = sources.map(|it| &it.path).collect();
                let distinct: BTreeSet<&PathId> = paths.iter().copied().collect();
                prop_assert_eq!(paths.len(), distinct.len(), "each file in one account");
                prop_assert!(stage.look(elapsed, &seen).changes.is_empty(), "nothing new");
                before = after;
            }
        }

        #[test]
        fn no_order_of_the_files_changes_the_plan(
            looks in prop::collection::vec((any_view(), 0_u64..4), 1..8),
        ) {
            let (mut plain, mut turned, mut elapsed) = (Stage::default(), Stage::default(), 0);
            for (seen, later) in looks {
                elapsed += later;
                let forward = plain.look(elapsed, &seen);
                let mut seen = view(&seen);
                if let View::Seen(sight) = &mut seen {
                    sight.files.reverse();
                }
                let backward = turned.take(elapsed, &seen);
                prop_assert_eq!(format!("{forward:?}"), format!("{backward:?}"));
            }
        }

        #[test]
        fn the_first_look_knows_as_much_as_any(seen in any_view()) {
            let (mut one, mut other) = (Stage::default(), Stage::default());
            let first = one.look(0, &seen);
            one.look(1, &seen);
            prop_assert_eq!(ids(&one.look(9, &seen)), ids(&other.look(9, &seen)));
            prop_assert_eq!(ids(&first), ids(&other.look(9, &seen)));
        }
    }
}
