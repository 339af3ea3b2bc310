//! What was known of a file's holder before, added to what it says now. Pure.
//!
//! A token may tell less than the one before it. What is known by the very same token counts more
//! than what is known by the path, since files can be swapped; and what differs is never added.

use std::collections::{BTreeMap, BTreeSet};

use super::{Lineage, Memory, Remembered, look::Known};
use crate::domain::{
    account::AccountId,
    credential::Fingerprint,
    identity::{LoginFile, Seat, SeatKind, Users},
};

/// What is remembered, by token.
type ByToken<'a> = BTreeMap<Fingerprint, Vec<&'a Remembered>>;

/// Completes the holder of every file that was read.
pub(super) fn complete(files: &mut [Known], memory: &Memory, lineage: &Lineage) {
    let mut by_token = ByToken::new();
    for remembered in memory.files.values() {
        let token = remembered.file.login.credential.fingerprint;
        by_token.entry(token).or_default().push(remembered);
    }
    for Known { file, condition } in files.iter_mut() {
        if !condition.is_unsure() {
            let here = memory.files.get(&file.path);
            let same_token = by_token.get(&file.login.credential.fingerprint);
            let same_token = same_token.map_or(&[][..], Vec::as_slice);
            recall(file, here, same_token, lineage);
        }
    }
    share(files);
    keep_seats(files, memory, &by_token);
}

fn recall(
    file: &mut LoginFile,
    here: Option<&Remembered>,
    same_token: &[&Remembered],
    lineage: &Lineage,
) {
    if file.holder.account_id.is_none() {
        file.holder.account_id = account_id(file, here, same_token, lineage);
    }
    let Some(account_id) = &file.holder.account_id else { return };
    let users = |it: &&Remembered| {
        let of_account = it.file.holder.account_id.as_ref() == Some(account_id);
        of_account.then(|| it.file.holder.users.clone()).filter(|it| !it.is_empty())
    };
    let known: BTreeSet<Users> = same_token.iter().filter_map(users).collect();
    let known = if known.len() == 1 { known.into_iter().next() } else { None };
    if let Some(known) = known.or_else(|| here.as_ref().and_then(users)) {
        file.holder.users = file.holder.users.with(&known);
    }
}

/// The workspace of a file that names none: its tokens came from a login that did.
fn account_id(
    file: &LoginFile,
    here: Option<&Remembered>,
    same_token: &[&Remembered],
    lineage: &Lineage,
) -> Option<AccountId> {
    let token = file.login.credential.fingerprint;
    let renewed = here.filter(|it| {
        let old = &it.file.login;
        old.credential.fingerprint != token && lineage.joins(old, &file.login)
    });
    // Where the same token did name it, it was taken out of the file, and is gone.
    let unstated = |it: &&&Remembered| it.file.login.account_id().is_none();
    let here_before = here.filter(|it| it.file.login.credential.fingerprint == token);
    let same = here_before.iter().chain(same_token).find(unstated).copied();
    renewed.or(same).and_then(|it| it.file.holder.account_id.clone())
}

/// Files with one token are of one holder, and know all that any of them knows.
fn share(files: &mut [Known]) {
    let mut copies: BTreeMap<(AccountId, Fingerprint), Vec<&mut LoginFile>> = BTreeMap::new();
    for Known { file, .. } in files {
        if let Some(account_id) = &file.holder.account_id {
            let key = (account_id.clone(), file.login.credential.fingerprint);
            copies.entry(key).or_default().push(file);
        }
    }
    for mut copies in copies.into_values() {
        let all = copies.iter().fold(Users::default(), |all, it| all.or(&it.holder.users));
        // With a claim in dispute nobody learns anything.
        if copies.iter().all(|it| it.holder.users.or(&all) == all) {
            copies.iter_mut().for_each(|it| it.holder.users = all.clone());
        }
    }
}

/// A file that shared a seat stays in it, though the one that named it is gone, unless the
/// workspace now knows other users of that kind.
fn keep_seats(files: &mut [Known], memory: &Memory, by_token: &ByToken<'_>) {
    let mut named: BTreeSet<(AccountId, SeatKind)> = BTreeSet::new();
    for Known { file, .. } in files.iter() {
        let kinds = SeatKind::ALL.into_iter().filter(|it| file.holder.users.has(*it));
        let account_id = file.holder.account_id.iter();
        named.extend(account_id.flat_map(|id| kinds.clone().map(|kind| (id.clone(), kind))));
    }
    for Known { file, .. } in files {
        let Some(account_id) = &file.holder.account_id else { continue };
        let same_token = by_token.get(&file.login.credential.fingerprint).into_iter().flatten();
        let seat = |it: &Remembered| -> Option<Seat> {
            let of_account = it.file.holder.account_id.as_ref() == Some(account_id);
            let same_user = of_account && !it.file.holder.users.differ_from(&file.holder.users);
            it.home.seat.clone().filter(|_| same_user)
        };
        let here = memory.files.get(&file.path).and_then(seat);
        if let Some(seat) = here.or_else(|| same_token.copied().find_map(seat))
            && !named.contains(&(account_id.clone(), seat.kind()))
        {
            file.holder.users.fill(&seat);
        }
    }
}
