//! Which files of one workspace belong to the same user. Pure.
//!
//! Claims are compared like with like: two files are of different seats only if the strongest kind
//! of claim that both have differs. Files that cannot be compared are of one seat, unless they could
//! be of either of two different ones: then they belong to none. Files of seats that are known to
//! differ are never put together.

use std::collections::{BTreeMap, BTreeSet};

use super::{SeatKind, Users};

/// Beyond so many different sets of claims in one workspace only the strongest claim counts, since
/// comparing each with each would take too long.
const COMPARED_MAX: usize = 400;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Relation {
    Same,
    Different,
    /// No kind of claim is common to both.
    Unknown,
}

/// The seat of each file as a number, or `None` where it stays in doubt.
pub(super) fn group(users: &[Users]) -> Vec<Option<usize>> {
    let distinct: Vec<&Users> = users.iter().collect::<BTreeSet<_>>().into_iter().collect();
    let seats = if distinct.len() > COMPARED_MAX {
        by_strongest(&distinct)
    } else {
        by_comparison(&distinct)
    };
    let seats: BTreeMap<&Users, Option<usize>> = distinct.into_iter().zip(seats).collect();
    users.iter().map(|it| seats.get(it).copied().flatten()).collect()
}

/// Whether the strongest kind of claim that both have differs.
pub(super) fn differ(a: &Users, b: &Users) -> bool {
    relate(a, b) == Relation::Different
}

fn by_strongest(distinct: &[&Users]) -> Vec<Option<usize>> {
    let mut numbers = BTreeMap::new();
    let seats = distinct.iter().map(|users| {
        let seat = users.strongest()?;
        let next = numbers.len();
        Some(*numbers.entry(seat).or_insert(next))
    });
    seats.collect()
}

fn by_comparison(distinct: &[&Users]) -> Vec<Option<usize>> {
    let mut candidates = candidates(distinct, &vec![true; distinct.len()]);
    let mut clear = vec![true; distinct.len()];
    loop {
        let doubtful: Vec<usize> = (0..distinct.len())
            .filter(|index| clear[*index] && differ_among(distinct, &candidates[*index]))
            .collect();
        // The weakest claims are put aside first: they may be all that stands between the others.
        let weakest = doubtful.iter().map(|index| strength(distinct[*index])).max();
        for index in doubtful {
            clear[index] = Some(strength(distinct[index])) != weakest;
        }
        if weakest.is_none() {
            break;
        }
        candidates = self::candidates(distinct, &clear);
    }
    let mut seats = vec![None; distinct.len()];
    for start in 0..distinct.len() {
        if !clear[start] || seats[start].is_some() {
            continue;
        }
        let members = connected(start, &candidates);
        // Whoever is put together must not differ, whatever led here.
        if !differ_among(distinct, &members) {
            members.into_iter().for_each(|member| seats[member] = Some(start));
        }
    }
    seats
}

/// For each file those it may share a seat with: the ones that are surely the same, or, if there is
/// none, the ones that could be.
fn candidates(distinct: &[&Users], clear: &[bool]) -> Vec<Vec<usize>> {
    let with = |index: usize, wanted: Relation| -> Vec<usize> {
        (0..distinct.len())
            .filter(|other| *other != index && clear[index] && clear[*other])
            .filter(|other| relate(distinct[index], distinct[*other]) == wanted)
            .collect()
    };
    (0..distinct.len())
        .map(|index| match with(index, Relation::Same) {
            same if same.is_empty() => with(index, Relation::Unknown),
            same => same,
        })
        .collect()
}

/// All that are joined to `start` by files that take one another for a candidate.
fn connected(start: usize, candidates: &[Vec<usize>]) -> Vec<usize> {
    let (mut members, mut open) = (BTreeSet::from([start]), vec![start]);
    while let Some(index) = open.pop() {
        for other in &candidates[index] {
            if candidates[*other].contains(&index) && members.insert(*other) {
                open.push(*other);
            }
        }
    }
    members.into_iter().collect()
}

fn differ_among(distinct: &[&Users], members: &[usize]) -> bool {
    let pairs = members.iter().enumerate();
    pairs.into_iter().any(|(at, a)| {
        let differs = |b: &usize| relate(distinct[*a], distinct[*b]) == Relation::Different;
        members[at + 1..].iter().any(differs)
    })
}

fn relate(a: &Users, b: &Users) -> Relation {
    let mut common = SeatKind::ALL.into_iter().filter_map(|kind| a.get(kind).zip(b.get(kind)));
    match common.next() {
        Some((a, b)) if a == b => Relation::Same,
        Some(_) => Relation::Different,
        None => Relation::Unknown,
    }
}

/// The place of the strongest claim; the greater, the weaker.
fn strength(users: &Users) -> usize {
    users.strongest().map_or(SeatKind::ALL.len(), |seat| seat.kind() as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One letter per kind, strongest first; `-` is absent.
    fn users(text: &str) -> Users {
        let mut users = Users::default();
        for (kind, letter) in SeatKind::ALL.into_iter().zip(text.chars()) {
            users.set(kind, letter.to_string().trim_matches('-'));
        }
        users
    }

    /// The seats as letters in the order of their first file; `?` is in doubt.
    fn seats(texts: &[&str]) -> String {
        let files: Vec<Users> = texts.iter().map(|it| users(it)).collect();
        let mut letters: Vec<usize> = Vec::new();
        let mut letter = |seat: usize| {
            let at = letters.iter().position(|it| *it == seat).unwrap_or_else(|| {
                letters.push(seat);
                letters.len() - 1
            });
            char::from(b'A' + u8::try_from(at).unwrap())
        };
        group(&files).into_iter().map(|seat| seat.map_or('?', &mut letter)).collect()
    }

    #[test]
    fn claims_are_compared_like_with_like() {
        let table: [(&str, &[&str], &str); 15] = [
            ("two users of one kind are two seats", &["-a--", "-b--"], "AB"),
            ("equal users are one seat", &["-a--", "-a--"], "AA"),
            ("the stronger claim decides", &["-a-x", "-a-y"], "AA"),
            ("an equal subject does not undo different users", &["-a-x", "-b-x"], "AB"),
            ("unlike kinds prove nothing", &["-a--", "---x"], "AA"),
            ("no claims at all are one seat", &["----", "----"], "AA"),
            ("a file without claims joins the only seat", &["-a--", "----", "-a--"], "AAA"),
            ("beside two seats it belongs to none", &["-a--", "----", "-b--"], "A?B"),
            ("a subject beside two users belongs to none", &["-a--", "-b--", "---x"], "AB?"),
            ("unless one of them has that subject", &["-a-x", "-b--", "---x"], "ABA"),
            ("or both have one", &["-a-x", "-b-y", "---y", "---x"], "ABBA"),
            ("a user beside two subjects belongs to none", &["---x", "---y", "-a--"], "AB?"),
            ("users outlast subjects", &["---x", "---y", "-a--", "-b--"], "??AB"),
            ("a subject of two users belongs to neither", &["-a-x", "-b-x", "---x"], "AB?"),
            ("a chain of equal claims is one seat", &["a---", "aa--", "-ax-", "--x-"], "AAAA"),
        ];
        for (name, files, wanted) in table {
            assert_eq!(seats(files), wanted, "{name}");
        }
    }

    #[test]
    fn a_crowd_is_told_apart_by_its_strongest_claims() {
        let mut files: Vec<Users> = (0..1_000)
            .map(|number| {
                let mut users = Users::default();
                users.set(SeatKind::ChatgptUser, &format!("user-{}", number / 2));
                users.set(SeatKind::Subject, &format!("subject-{number}"));
                users
            })
            .collect();
        files.push(Users::default());
        let seats = group(&files);
        let known: BTreeSet<usize> = seats.iter().copied().flatten().collect();
        assert_eq!((known.len(), seats[1_000]), (500, None));
    }

    proptest! {
        #[test]
        fn no_order_of_the_files_changes_who_is_together(
            texts in prop::collection::vec("[ab-]{4}", 0..8),
            turn in 0_usize..8,
        ) {
            let files: Vec<Users> = texts.iter().map(|it| users(it)).collect();
            let mut turned = files.clone();
            turned.rotate_left(turn.min(files.len()));
            let (plain, moved) = (group(&files), group(&turned));
            for (at, file) in turned.iter().enumerate() {
                let home = files.iter().position(|it| it == file).unwrap();
                prop_assert_eq!(plain[home], moved[at]);
            }
        }

        #[test]
        fn different_users_are_never_put_together(
            texts in prop::collection::vec("[ab-]{4}", 0..10),
        ) {
            let files: Vec<Users> = texts.iter().map(|it| users(it)).collect();
            let seats = group(&files);
            for a in 0..files.len() {
                for b in 0..files.len() {
                    if seats[a].is_some() && seats[a] == seats[b] {
                        prop_assert!(relate(&files[a], &files[b]) != Relation::Different);
                    }
                }
            }
        }
    }
}
