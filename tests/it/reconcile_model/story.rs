//! What may happen to a directory of credential files, in words.

use std::fmt;

use proptest::prelude::*;

/// Where files may be. In the order of their names.
pub(super) const PLACES: [&str; 5] = ["a.json", "b.json", "c.json", "team/a.json", "team/b.json"];

/// The number of a path.
pub(super) type Place = usize;

/// `A` and `B` are in one workspace, `C` and `D` each in one of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who {
    A,
    B,
    C,
    D,
}

/// How much a file tells of its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tells {
    Nothing,
    Workspace,
    User,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Login {
    pub who: Who,
    pub tells: Tells,
    /// The greater, the newer.
    pub generation: u8,
    pub off: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Login(Login),
    /// The first half of a login.
    Cut(Login),
    Empty,
    Malformed,
    Array,
    LoggedOut,
    Foreign,
    Huge,
    Folder,
    Link(Place),
    Dangling,
}

#[derive(Clone)]
pub(super) enum Op {
    Write(Place, Content),
    Rename(Place, Place),
    Swap(Place, Place),
    Delete(Place),
    /// Brings back what was there before.
    Restore(Place),
    /// Lets others read the file.
    Loosen(Place),
    /// The whole directory is gone for now.
    Hide,
    Show,
    Wait(u64),
    /// Sets the wall clock so many seconds off, counted from the truth.
    Jump(i64),
    Restart,
    /// A session goes to an account that may serve.
    Bind {
        session: u8,
        nth: usize,
    },
    /// An account that may serve reaches its limit.
    Exhaust {
        nth: usize,
    },
    Look,
}

/// What a test dwells on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Theme {
    Everything,
    Seats,
    Faults,
    Restarts,
}

/// Ops that may follow one another.
#[derive(Clone)]
pub(super) struct Story(pub Vec<Op>);

pub(super) fn story(theme: Theme, steps: usize) -> impl Strategy<Value = Story> {
    prop::collection::vec(op(theme), 1..=steps).prop_map(Story)
}

fn op(theme: Theme) -> BoxedStrategy<Op> {
    let place = || 0..PLACES.len();
    let login = login(theme);
    let (faults, restarts, moves) = match theme {
        Theme::Everything => (3, 1, 3),
        Theme::Seats => (1, 1, 6),
        Theme::Faults => (10, 1, 1),
        Theme::Restarts => (2, 4, 2),
    };
    prop_oneof![
        8 => (place(), login.clone()).prop_map(|it| Op::Write(it.0, Content::Login(it.1))),
        faults => (place(), fault(login)).prop_map(|it| Op::Write(it.0, it.1)),
        moves => (place(), place()).prop_map(|it| Op::Rename(it.0, it.1)),
        moves => (place(), place()).prop_map(|it| Op::Swap(it.0, it.1)),
        2 => place().prop_map(Op::Delete),
        2 => place().prop_map(Op::Restore),
        1 => place().prop_map(Op::Loosen),
        1 => Just(Op::Hide),
        2 => Just(Op::Show),
        4 => prop::sample::select(vec![1, 2, 3, 4, 5, 6, 30, 59, 60]).prop_map(Op::Wait),
        1 => (-10_000_i64..10_000).prop_map(Op::Jump),
        restarts => Just(Op::Restart),
        3 => (0_u8..4, 0_usize..4).prop_map(|it| Op::Bind { session: it.0, nth: it.1 }),
        1 => (0_usize..4).prop_map(|nth| Op::Exhaust { nth }),
        1 => Just(Op::Look),
    ]
    .boxed()
}

fn login(theme: Theme) -> BoxedStrategy<Login> {
    let who = match theme {
        Theme::Seats => vec![Who::A, Who::B],
        Theme::Everything | Theme::Faults | Theme::Restarts => {
            vec![Who::A, Who::B, Who::C, Who::D]
        }
    };
    let tells = prop_oneof![
        1 => Just(Tells::Nothing),
        2 => Just(Tells::Workspace),
        3 => Just(Tells::User),
    ];
    (prop::sample::select(who), tells, 0_u8..6, prop::bool::weighted(0.1))
        .prop_map(|(who, tells, generation, off)| Login { who, tells, generation, off })
        .boxed()
}

fn fault(login: BoxedStrategy<Login>) -> impl Strategy<Value = Content> {
    prop_oneof![
        3 => login.prop_map(Content::Cut),
        1 => Just(Content::Empty),
        1 => Just(Content::Malformed),
        1 => Just(Content::Array),
        1 => Just(Content::LoggedOut),
        1 => Just(Content::Foreign),
        1 => Just(Content::Huge),
        1 => Just(Content::Folder),
        2 => (0..PLACES.len()).prop_map(Content::Link),
        1 => Just(Content::Dangling),
    ]
}

// === impl Who ===

impl Who {
    pub(super) fn workspace(self) -> char {
        match self {
            Self::A | Self::B => '1',
            Self::C => '2',
            Self::D => '3',
        }
    }

    pub(super) fn user(self) -> char {
        match self {
            Self::A => 'a',
            Self::B => 'b',
            Self::C => 'c',
            Self::D => 'd',
        }
    }
}

// === impl Login ===

impl Login {
    pub(super) fn token(self) -> String {
        format!("access-{:?}-{}", self.who, self.generation)
    }

    /// Three generations of access tokens come of one refresh token.
    pub(super) fn refresh(self) -> String {
        format!("refresh-{:?}-{}", self.who, self.generation / 3)
    }

    /// The workspace that the file names.
    pub(super) fn workspace(self) -> Option<char> {
        match self.tells {
            Tells::Nothing => None,
            Tells::Workspace | Tells::User => Some(self.who.workspace()),
        }
    }
}

// === impl Content ===

impl Content {
    /// Whether there is a file of that name that is no link.
    pub(super) fn is_regular(&self) -> bool {
        !matches!(self, Self::Folder | Self::Link(_) | Self::Dangling)
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Login(login) => write!(f, "{login}"),
            Self::Cut(login) => write!(f, "the first half of {login}"),
            Self::Empty => f.write_str("nothing"),
            Self::Malformed => f.write_str("rubbish"),
            Self::Array => f.write_str("an array"),
            Self::LoggedOut => f.write_str("a logout"),
            Self::Foreign => f.write_str("another provider's login"),
            Self::Huge => f.write_str("more than a megabyte"),
            Self::Folder => f.write_str("a folder"),
            Self::Link(place) => write!(f, "a link to {}", PLACES[*place]),
            Self::Dangling => f.write_str("a link to nowhere"),
        }
    }
}

impl fmt::Display for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, tells, generation, off } = self;
        let off = if *off { ", switched off" } else { "" };
        write!(f, "a login of {who:?} (generation {generation}, tells {tells:?}{off})")
    }
}

// === impl Op ===

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |place: &Place| PLACES[*place];
        match self {
            Self::Write(place, content) => write!(f, "{} becomes {content}", at(place)),
            Self::Rename(from, to) => write!(f, "{} is renamed to {}", at(from), at(to)),
            Self::Swap(a, b) => write!(f, "{} and {} are swapped", at(a), at(b)),
            Self::Delete(place) => write!(f, "{} is deleted", at(place)),
            Self::Restore(place) => write!(f, "{} becomes what it was before", at(place)),
            Self::Loosen(place) => write!(f, "others may read {}", at(place)),
            Self::Hide => f.write_str("the directory vanishes"),
            Self::Show => f.write_str("the directory is there"),
            Self::Wait(seconds) => write!(f, "{seconds} s pass"),
            Self::Jump(offset) => write!(f, "the wall clock is set {offset} s off"),
            Self::Restart => f.write_str("the directory is there, and the process starts anew"),
            Self::Bind { session, nth } => {
                write!(f, "session {session} goes to ready account {nth}")
            }
            Self::Exhaust { nth } => write!(f, "ready account {nth} reaches its limit"),
            Self::Look => f.write_str("nothing happens"),
        }
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl Story ===

impl fmt::Debug for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        self.0.iter().zip(1..).try_for_each(|(op, number)| writeln!(f, "{number:>4}. {op}"))
    }
}
