//! Accounts that are known better than before, and have another id for it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::{Lineage, Memory, Remembered};
use crate::domain::{
    account::AuthId,
    identity::{PathId, Resolved},
};

/// The new ids, each with the old one.
///
/// A file proves it that is where it was, with the same login or one that came of it. The new
/// account must not have been there before, and the old one must be gone: two that become one are
/// a merge, which takes nothing over.
pub(super) fn find(
    memory: &Memory,
    files: &BTreeMap<PathId, Remembered>,
    accounts: &[Resolved],
    lineage: &Lineage,
) -> BTreeMap<AuthId, AuthId> {
    let after: BTreeMap<&AuthId, &Resolved> = accounts.iter().map(|it| (&it.id, it)).collect();
    let (mut renames, mut taken) = (BTreeMap::new(), BTreeSet::new());
    for (path, file) in files {
        let Some(before) = memory.files.get(path) else { continue };
        let (from, to) = (&before.home.id, &file.home.id);
        let (Some(old), Some(new)) = (memory.accounts.get(from), after.get(to)) else { continue };
        let proves = !memory.accounts.contains_key(to)
            && !after.contains_key(from)
            && is_better(&old.resolved, new)
            && !before.file.holder.users.differ_from(&file.file.holder.users)
            && lineage.joins(&before.file.login, &file.file.login);
        if proves && !renames.contains_key(to) && taken.insert(from.clone()) {
            renames.insert(to.clone(), from.clone());
        }
    }
    renames
}

/// Whether `new` says more of the same account than `old`.
fn is_better(old: &Resolved, new: &Resolved) -> bool {
    let same_workspace = old.account_id.is_none() || old.account_id == new.account_id;
    let better = match (&old.seat, &new.seat) {
        _ if !new.id.is_identified() => false,
        _ if !old.id.is_identified() => true,
        (None, seat) => seat.is_some(),
        (Some(_), None) => false,
        (Some(old), Some(new)) => new.kind() < old.kind(),
    };
    same_workspace && better
}
