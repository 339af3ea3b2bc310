//! Which files count, and for how long those still do that fail. Pure.
//!
//! A file that was good and fails is used until the grace is over. The grace begins with the first
//! look that finds it failing, and ends early only by a good look.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use super::{Condition, Content, Login, Memory, Observed, Remembered, Sight, Terms, View};
use crate::domain::identity::{LoginFile, PathId, Standing};

const FOLDER_LOST: &str = "its folder cannot be looked into";

/// The files that this look has to go by.
pub(super) struct Found {
    /// By path.
    pub files: Vec<Known>,
    /// Broken files of which nothing is known.
    pub strangers: BTreeSet<PathId>,
    /// Part of the directory cannot be looked at, and nothing is known of what is in it.
    pub blind: bool,
}

/// A file with a login.
pub(super) struct Known {
    pub file: LoginFile,
    pub condition: Condition,
}

/// Sets what is seen against what is remembered.
pub(super) fn take_in(view: &View, memory: &Memory, terms: &Terms<'_>) -> Found {
    let sight = match view {
        View::Seen(sight) => sight,
        View::Unavailable => return all_lost(memory, terms),
    };
    let mut found =
        Found { files: Vec::new(), strangers: BTreeSet::new(), blind: is_blind(sight, memory) };
    let mut seen: BTreeMap<&PathId, &Observed> = BTreeMap::new();
    for observed in &sight.files {
        seen.entry(&observed.path).or_insert(observed);
    }
    for observed in seen.values() {
        let file = match &observed.content {
            Content::NoLogin => continue,
            Content::Login(login) => Known::good(observed, login),
            Content::Broken(reason) => match memory.files.get(&observed.path) {
                Some(remembered) => Known::broken(remembered, reason, terms),
                None => {
                    found.strangers.insert(observed.path.clone());
                    continue;
                }
            },
        };
        found.files.push(file);
    }
    let lost = |path: &PathId| {
        !seen.contains_key(path) && sight.lost_folders.iter().any(|it| path.is_within(it))
    };
    let gone = memory.files.iter().filter(|(path, _)| lost(path));
    found.files.extend(gone.map(|(_, it)| Known::lost(it, Some(FOLDER_LOST.into()), terms)));
    found.strangers.extend(memory.strangers.iter().filter(|it| lost(it)).cloned());
    found.files.sort_by(|a, b| a.file.path.cmp(&b.file.path));
    found
}

/// When the first grace ends.
pub(super) fn next(files: &[Known], terms: &Terms<'_>) -> Option<Duration> {
    let ends = files.iter().filter_map(|it| match it.condition {
        Condition::Good | Condition::Excluded => None,
        Condition::Failing { since } => Some(since.saturating_add(terms.parse_grace)),
    });
    ends.filter(|end| *end > terms.moment.elapsed).min()
}

fn all_lost(memory: &Memory, terms: &Terms<'_>) -> Found {
    // What is wrong is said of the directory, not of each file.
    let lost = |it: &Remembered| Known::lost(it, it.file.problem.clone(), terms);
    Found {
        files: memory.files.values().map(lost).collect(),
        strangers: memory.strangers.clone(),
        blind: true,
    }
}

/// Whether a folder is lost of which no file is known.
fn is_blind(sight: &Sight, memory: &Memory) -> bool {
    let known = |folder: &PathId| memory.files.keys().any(|it| it.is_within(folder));
    !sight.lost_folders.iter().all(known)
}

// === impl Known ===

impl Known {
    fn good(observed: &Observed, login: &Arc<Login>) -> Self {
        let mut file = LoginFile::new(observed.path.clone(), Arc::clone(login));
        file.problem.clone_from(&observed.notice);
        Self { file, condition: Condition::Good }
    }

    fn broken(remembered: &Remembered, reason: &Arc<str>, terms: &Terms<'_>) -> Self {
        let (condition, in_grace) = remembered.condition.fails(terms);
        let (standing, condition) = match in_grace {
            true => (Standing::Used, condition),
            false => (Standing::Excluded, Condition::Excluded),
        };
        Self { file: remembered.again(standing, Some(Arc::clone(reason))), condition }
    }

    fn lost(remembered: &Remembered, problem: Option<Arc<str>>, terms: &Terms<'_>) -> Self {
        let (condition, in_grace) = remembered.condition.fails(terms);
        let standing = match condition {
            Condition::Excluded => Standing::Excluded,
            Condition::Good | Condition::Failing { .. } if in_grace => Standing::Used,
            Condition::Good | Condition::Failing { .. } => Standing::OutOfSight,
        };
        Self { file: remembered.again(standing, problem), condition }
    }
}

// === impl Remembered ===

impl Remembered {
    fn again(&self, standing: Standing, problem: Option<Arc<str>>) -> LoginFile {
        LoginFile { standing, problem, ..self.file.clone() }
    }
}

// === impl Condition ===

impl Condition {
    /// The condition after a look that found the file failing, and whether it is still used.
    fn fails(self, terms: &Terms<'_>) -> (Self, bool) {
        let since = match self {
            Self::Good => terms.moment.elapsed,
            Self::Failing { since } => since,
            Self::Excluded => return (Self::Excluded, false),
        };
        let in_grace = terms.moment.elapsed < since.saturating_add(terms.parse_grace);
        (Self::Failing { since }, in_grace)
    }
}
