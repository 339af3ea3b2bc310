//! Which tokens come from one another. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::{credential::Fingerprint, identity::Login};

/// The tokens that were traded for one another.
pub(super) struct Lineage(BTreeMap<Fingerprint, Vec<Fingerprint>>);

// === impl Lineage ===

impl Lineage {
    pub(super) fn new(rotations: &[(Fingerprint, Fingerprint)]) -> Self {
        let mut links: BTreeMap<Fingerprint, Vec<Fingerprint>> = BTreeMap::new();
        for (old, new) in rotations {
            links.entry(*old).or_default().push(*new);
            // A backup that is put back is of the same family.
            links.entry(*new).or_default().push(*old);
        }
        Self(links)
    }

    /// Whether both logins come from one: by a common token, or by tokens that were traded in.
    pub(super) fn joins(&self, old: &Login, new: &Login) -> bool {
        let wanted: BTreeSet<Fingerprint> = tokens(new).collect();
        let mut open: Vec<Fingerprint> = tokens(old).collect();
        let mut seen = BTreeSet::new();
        while let Some(token) = open.pop() {
            if wanted.contains(&token) {
                return true;
            }
            if seen.insert(token) {
                open.extend(self.0.get(&token).into_iter().flatten());
            }
        }
        false
    }
}

fn tokens(login: &Login) -> impl Iterator<Item = Fingerprint> {
    let credential = &login.credential;
    std::iter::once(credential.fingerprint)
        .chain(credential.refresh.as_ref().map(|it| it.fingerprint()))
}
