//! What is new between two sets of accounts. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::{Aspect, Change, Planned};
use crate::domain::{
    account::{AuthId, Source},
    credential::Fingerprint,
    identity::Login,
};

/// The changes in the order in which they are to be told: renames, removals, additions, and what is
/// new of those that stay, each by id.
pub(super) fn between(
    before: &BTreeMap<AuthId, Planned>,
    after: &[Planned],
    renames: &BTreeMap<AuthId, AuthId>,
) -> Vec<Change> {
    let ids: BTreeSet<&AuthId> = after.iter().map(|it| &it.resolved.id).collect();
    let renamed: BTreeSet<&AuthId> = renames.values().collect();
    let rename =
        |(to, from): (&AuthId, &AuthId)| Change::Renamed { from: from.clone(), to: to.clone() };
    let mut changes: Vec<Change> = renames.iter().map(rename).collect();
    let gone = before.keys().filter(|it| !ids.contains(it) && !renamed.contains(it));
    changes.extend(gone.map(|id| Change::Removed { id: id.clone() }));
    let (mut added, mut updated) = (Vec::new(), Vec::new());
    for planned in after {
        let (id, fingerprint) = (planned.resolved.id.clone(), planned.fingerprint());
        match before.get(renames.get(&id).unwrap_or(&id)) {
            None => added.push(Change::Added { id, fingerprint }),
            Some(old) => updated.extend(aspects(old, planned).map(|aspect| Change::Updated {
                id: id.clone(),
                aspect,
                fingerprint,
            })),
        }
    }
    changes.append(&mut added);
    changes.append(&mut updated);
    changes
}

/// What differs, each aspect once.
fn aspects(old: &Planned, new: &Planned) -> impl Iterator<Item = Aspect> + use<> {
    let credentials = old.fingerprint() != new.fingerprint();
    let sources = sources_differ(old, new, credentials);
    [
        (Aspect::Credentials, credentials),
        (Aspect::Metadata, metadata_differs(old, new)),
        (Aspect::Eligibility, old.eligibility != new.eligibility),
        (Aspect::Sources, sources),
    ]
    .into_iter()
    .filter_map(|(aspect, differs)| differs.then_some(aspect))
}

fn metadata_differs(old: &Planned, new: &Planned) -> bool {
    let (old, new) = (&old.resolved, &new.resolved);
    (&old.account_id, &old.seat, &old.email, &old.plan)
        != (&new.account_id, &new.seat, &new.email, &new.plan)
        || old.fedramp() != new.fedramp()
        || old.has_identity_conflict() != new.has_identity_conflict()
}

/// The files and their states. Times, and a refresh token, come with a new access token; where that
/// has stayed, they count for themselves, so that nothing new goes untold.
fn sources_differ(old: &Planned, new: &Planned, renewed: bool) -> bool {
    let (old_sources, new_sources) = (&old.resolved.sources, &new.resolved.sources);
    if !renewed {
        return old_sources != new_sources
            || times(&old.resolved.login) != times(&new.resolved.login);
    }
    let states = |planned: &Planned| -> Vec<_> {
        let sources = planned.resolved.sources.iter().cloned();
        sources.map(|it| Source { expires_at: None, ..it }).collect()
    };
    states(old) != states(new)
}

fn times(login: &Login) -> impl PartialEq + use<> {
    let credential = &login.credential;
    let refresh = credential.refresh.as_ref().map(|it| it.fingerprint());
    (refresh, credential.last_refresh, credential.expires_at)
}

// === impl Planned ===

impl Planned {
    fn fingerprint(&self) -> Fingerprint {
        self.resolved.login.credential.fingerprint
    }
}
