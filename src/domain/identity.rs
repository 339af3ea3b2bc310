//! Which files describe the same account. Pure.
//!
//! A ChatGPT account id names a workspace, which several people may share, and one person may belong
//! to several workspaces. The account is therefore the seat: the workspace and the user within it,
//! as far as a token tells. Nothing here depends on the order of the files, and no e-mail address
//! takes part.

mod path;
mod seats;
mod users;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;

use super::{
    account::{Account, AccountId, AuthId, Eligibility, Label, MaskedEmail, Source},
    credential::{Credential, Fingerprint},
};

pub use self::{
    path::PathId,
    users::{Seat, SeatKind, Users},
};

/// What a token says of its holder. Nothing here was verified: the upstream does that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    pub account_id: Option<AccountId>,
    pub users: Users,
    pub email: Option<MaskedEmail>,
    pub plan: Option<String>,
    pub fedramp: bool,
    pub expires_at: Option<Timestamp>,
}

/// What one credential file says, whatever its shape.
#[derive(Clone, Debug)]
pub struct Login {
    /// `account_id` at the top of the file.
    pub top_account_id: Option<AccountId>,
    /// `account_id` among the tokens.
    pub tokens_account_id: Option<AccountId>,
    pub id_token: Claims,
    pub access_token: Claims,
    /// The address the file itself gives.
    pub email: Option<MaskedEmail>,
    pub credential: Credential,
    pub enabled: bool,
}

/// Who holds a login, as far as is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    pub account_id: Option<AccountId>,
    pub users: Users,
}

/// A file that holds a login.
#[derive(Clone, Debug)]
pub struct LoginFile {
    pub path: PathId,
    pub login: Arc<Login>,
    /// What the file says of its holder, or more, if more was known of it before.
    pub holder: Holder,
    pub standing: Standing,
    /// What is wrong with the file; safe to show.
    pub problem: Option<Arc<str>>,
}

/// What a file counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its tokens may be used.
    Used,
    /// It may be there. An account that has nothing better is listed by it, and serves nobody.
    OutOfSight,
    /// It tells who the other files are, and nothing else.
    Excluded,
}

/// An account that lacks only its public label.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub id: AuthId,
    pub account_id: Option<AccountId>,
    pub seat: Option<Seat>,
    /// The file whose tokens are used.
    pub login: Arc<Login>,
    pub email: Option<MaskedEmail>,
    pub plan: Option<String>,
    pub sources: Vec<Source>,
    /// None of the sources can be looked at.
    pub out_of_sight: bool,
}

/// The accounts, and where each file went.
#[derive(Clone, Debug, Default)]
pub struct Assignment {
    /// Sorted by id.
    pub accounts: Vec<Resolved>,
    /// Of every file, an excluded one too, whose account may not be among the others.
    pub homes: BTreeMap<PathId, Home>,
}

/// The account that a file belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    pub id: AuthId,
    pub seat: Option<Seat>,
}

/// Files that belong together, before one of them is chosen.
struct Group {
    account_id: Option<AccountId>,
    seat: Option<Seat>,
    files: Vec<LoginFile>,
}

/// Groups the files into accounts, sorted by id.
///
/// `now` tells which tokens are still good; it decides which copy is used, never who is who.
pub fn resolve(files: Vec<LoginFile>, now: Timestamp) -> Vec<Resolved> {
    assign(files, now).accounts
}

/// The same, and tells of every file whose it is.
pub fn assign(mut files: Vec<LoginFile>, now: Timestamp) -> Assignment {
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let (mut groups, unidentified) = identified(files);
    let unidentified = adopt_copies(&mut groups, unidentified);
    let mut by_token: BTreeMap<Fingerprint, Vec<LoginFile>> = BTreeMap::new();
    for file in unidentified {
        by_token.entry(file.login.credential.fingerprint).or_default().push(file);
    }
    let mut assignment = Assignment::default();
    for group in groups {
        assignment.take(group.id(), group, now);
    }
    for files in by_token.into_values() {
        // A file whose seat is in doubt still belongs to the workspace that it names.
        let named = files.iter().filter(|it| it.holder.account_id.is_some());
        let named = named.min_by(|a, b| a.path.cmp(&b.path));
        let account_id = named.and_then(|it| it.holder.account_id.clone());
        let group = Group { account_id, seat: None, files };
        assignment.take(group.path_id(), group, now);
    }
    assignment.accounts.sort_by(|a, b| a.id.cmp(&b.id));
    assignment
}

/// The files that name a workspace, by seat, and those that name none or leave the seat in doubt.
fn identified(files: Vec<LoginFile>) -> (Vec<Group>, Vec<LoginFile>) {
    let mut workspaces: BTreeMap<AccountId, Vec<LoginFile>> = BTreeMap::new();
    let (mut groups, mut unidentified) = (Vec::new(), Vec::new());
    for file in files {
        match &file.holder.account_id {
            Some(id) => workspaces.entry(id.clone()).or_default().push(file),
            None => unidentified.push(file),
        }
    }
    for (account_id, files) in workspaces {
        let users: Vec<Users> = files.iter().map(|it| it.holder.users.clone()).collect();
        let mut by_seat: BTreeMap<usize, (Option<Seat>, Vec<LoginFile>)> = BTreeMap::new();
        for ((file, users), seat) in files.into_iter().zip(&users).zip(seats::group(&users)) {
            let Some(seat) = seat else {
                unidentified.push(file);
                continue;
            };
            let (strongest, members) = by_seat.entry(seat).or_default();
            *strongest = [strongest.take(), users.strongest()].into_iter().flatten().min();
            members.push(file);
        }
        groups.extend(by_seat.into_values().map(|(seat, files)| {
            let account_id = Some(account_id.clone());
            Group { account_id, seat, files }
        }));
    }
    (groups, unidentified)
}

/// Puts a file that cannot tell who it is to the one account that has the very same token. Returns
/// the files for which there is none.
fn adopt_copies(groups: &mut [Group], unidentified: Vec<LoginFile>) -> Vec<LoginFile> {
    let mut holders: BTreeMap<Fingerprint, BTreeSet<usize>> = BTreeMap::new();
    for (index, group) in groups.iter().enumerate() {
        for file in &group.files {
            holders.entry(file.login.credential.fingerprint).or_default().insert(index);
        }
    }
    let mut orphans = Vec::new();
    for file in unidentified {
        let holders = holders.get(&file.login.credential.fingerprint);
        let only = holders.filter(|it| it.len() == 1).and_then(BTreeSet::first);
        let group = only.and_then(|index| groups.get_mut(*index)).filter(|group| {
            file.holder.account_id.is_none() || file.holder.account_id == group.account_id
        });
        match group {
            Some(group) => group.files.push(file),
            None => orphans.push(file),
        }
    }
    orphans
}

// === impl Login ===

impl Login {
    /// The workspace, by the first source that names one.
    pub fn account_id(&self) -> Option<&AccountId> {
        self.named().next()
    }

    /// Whether the sources name different workspaces.
    pub fn has_identity_conflict(&self) -> bool {
        self.named().any(|id| Some(id) != self.account_id())
    }

    /// What the file says of its holder.
    pub fn holder(&self) -> Holder {
        Holder { account_id: self.account_id().cloned(), users: self.users() }
    }

    fn named(&self) -> impl Iterator<Item = &AccountId> {
        [
            &self.top_account_id,
            &self.tokens_account_id,
            &self.id_token.account_id,
            &self.access_token.account_id,
        ]
        .into_iter()
        .flatten()
    }

    fn users(&self) -> Users {
        self.id_token.users.or(&self.access_token.users)
    }

    fn email(&self) -> Option<&MaskedEmail> {
        let claimed = self.id_token.email.as_ref().or(self.access_token.email.as_ref());
        claimed.or(self.email.as_ref())
    }

    fn plan(&self) -> Option<&String> {
        self.id_token.plan.as_ref().or(self.access_token.plan.as_ref())
    }

    fn fedramp(&self) -> bool {
        self.id_token.fedramp || self.access_token.fedramp
    }

    /// How good this copy is beside others of the same account; the greatest is used.
    fn freshness(&self, now: Timestamp) -> impl Ord + use<> {
        let credential = &self.credential;
        (
            self.enabled,
            !credential.has_expired(now),
            credential.last_refresh,
            credential.refresh.is_some(),
            credential.expires_at,
        )
    }
}

// === impl LoginFile ===

impl LoginFile {
    /// A file of which no more is known than it says.
    pub fn new(path: PathId, login: impl Into<Arc<Login>>) -> Self {
        let login = login.into();
        let holder = login.holder();
        Self { path, login, holder, standing: Standing::Used, problem: None }
    }
}

// === impl Assignment ===

impl Assignment {
    fn take(&mut self, id: Option<AuthId>, group: Group, now: Timestamp) {
        let Some(id) = id else { return };
        for file in &group.files {
            let home = Home { id: id.clone(), seat: group.seat.clone() };
            self.homes.insert(file.path.clone(), home);
        }
        self.accounts.extend(group.represented(id, now));
    }
}

// === impl Resolved ===

impl Resolved {
    /// The account, once its label is known.
    pub fn labelled(self, label: Label) -> Account {
        Account {
            label,
            eligibility: self.eligibility(),
            identity_conflict: self.has_identity_conflict(),
            fedramp: self.fedramp(),
            id: self.id,
            account_id: self.account_id,
            seat: self.seat,
            email: self.email,
            plan: self.plan,
            credential: Arc::new(self.login.credential.clone()),
            sources: self.sources,
        }
    }

    /// What its files alone keep it from.
    pub fn eligibility(&self) -> Eligibility {
        Eligibility {
            disabled: !self.sources.iter().any(|it| it.enabled),
            paused: false,
            out_of_sight: self.out_of_sight,
        }
    }

    pub fn has_identity_conflict(&self) -> bool {
        self.sources.iter().any(|it| it.identity_conflict)
    }

    pub fn fedramp(&self) -> bool {
        self.login.fedramp()
    }
}

// === impl Group ===

impl Group {
    /// The id that the account itself gives.
    fn id(&self) -> Option<AuthId> {
        let account_id = self.account_id.as_ref()?.as_str();
        Some(match &self.seat {
            Some(seat) => AuthId::derive(true, &[account_id, seat.kind().name(), seat.user()]),
            None => AuthId::derive(true, &[account_id]),
        })
    }

    /// The id by the place of its files.
    fn path_id(&self) -> Option<AuthId> {
        let path = self.files.iter().map(|it| &it.path).min()?;
        Some(AuthId::derive(false, &[path.as_str()]))
    }

    /// Chooses the copy whose tokens are used. `None` if none may be.
    fn represented(mut self, id: AuthId, now: Timestamp) -> Option<Resolved> {
        let out_of_sight = !self.files.iter().any(|it| it.standing == Standing::Used);
        let wanted = if out_of_sight { Standing::OutOfSight } else { Standing::Used };
        self.files.retain(|it| it.standing == wanted);
        self.files.sort_by(|a, b| a.path.cmp(&b.path));
        // Of equals `max_by` takes the last, so the list is walked from its end.
        let freshness = |file: &LoginFile| file.login.freshness(now);
        let best = self.files.iter().rev().max_by(|a, b| freshness(a).cmp(&freshness(b)))?;
        let source = |file: &LoginFile| Source {
            path: file.path.clone(),
            enabled: file.login.enabled,
            representative: file.path == best.path,
            identity_conflict: file.login.has_identity_conflict(),
            expires_at: file.login.credential.expires_at,
            problem: file.problem.clone(),
        };
        let logins = || std::iter::once(best).chain(&self.files).map(|it| it.login.as_ref());
        Some(Resolved {
            id,
            email: logins().find_map(Login::email).cloned(),
            plan: logins().find_map(Login::plan).cloned(),
            sources: self.files.iter().map(source).collect(),
            login: Arc::clone(&best.login),
            account_id: self.account_id,
            seat: self.seat,
            out_of_sight,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::domain::credential::{AccessToken, RefreshToken};

    /// A file before it is taken in.
    #[derive(Clone, Debug)]
    struct Draft {
        path: PathId,
        login: Login,
    }

    fn resolve(files: Vec<Draft>, now: Timestamp) -> Vec<Resolved> {
        let taken = files.into_iter().map(|it| LoginFile::new(it.path, it.login));
        super::resolve(taken.collect(), now)
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A file with the token `token`.
    fn file(path: &str, token: &str) -> Draft {
        let login = Login {
            top_account_id: None,
            tokens_account_id: None,
            id_token: Claims::default(),
            access_token: Claims::default(),
            email: None,
            credential: Credential::new(AccessToken::new(token.into()).unwrap(), None),
            enabled: true,
        };
        Draft { path: PathId::from_relative(Path::new(path)), login }
    }

    /// A file that names its account; the path is its token too.
    fn of(path: &str, account: &str) -> Draft {
        let mut file = file(path, path);
        file.login.tokens_account_id = AccountId::parse(account);
        file
    }

    fn of_seat(path: &str, account: &str, user: &str) -> Draft {
        let mut file = of(path, account);
        file.login.id_token.users.set(SeatKind::ChatgptUser, user);
        file
    }

    /// The accounts as lists of paths, the chosen one marked with `*`.
    fn accounts(files: Vec<Draft>) -> Vec<String> {
        let mut accounts: Vec<String> = resolve(files, at(1_000)).iter().map(paths).collect();
        accounts.sort();
        accounts
    }

    fn paths(account: &Resolved) -> String {
        let sources = account.sources.iter().map(|it| {
            let path = it.path.as_str().trim_start_matches("path:");
            format!("{path}{}", if it.representative { "*" } else { "" })
        });
        sources.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn copies_of_one_account_are_one() {
        let files = vec![of("a", "A"), of("b", "B"), of("c", "A"), of("d", "A")];
        assert_eq!(accounts(files), ["a* c d", "b*"]);
    }

    #[test]
    fn letter_case_tells_accounts_apart() {
        assert_eq!(accounts(vec![of("a", "A"), of("b", "a")]).len(), 2);
    }

    #[test]
    fn one_address_may_have_two_accounts() {
        let mut files = vec![of("a", "A"), of("b", "B")];
        for file in &mut files {
            file.login.id_token.email = MaskedEmail::new("alice@example.com");
            file.login.id_token.users.set(SeatKind::Subject, "same");
        }
        assert_eq!(accounts(files).len(), 2);
    }

    #[test]
    fn two_users_of_one_workspace_are_two_accounts() {
        let files = vec![of_seat("a", "A", "u1"), of_seat("b", "A", "u2"), of_seat("c", "A", "u1")];
        assert_eq!(accounts(files), ["a* c", "b*"]);
    }

    #[test]
    fn an_unknown_user_joins_the_only_known_one() {
        let files = vec![of("a", "A"), of_seat("b", "A", "u1")];
        assert_eq!(accounts(files), ["a* b"]);
    }

    #[test]
    fn an_unknown_user_beside_two_known_ones_goes_by_its_path() {
        let files = vec![of("a", "A"), of_seat("b", "A", "u1"), of_seat("c", "A", "u2")];
        let resolved = resolve(files, at(0));
        let unsure: Vec<_> = resolved.iter().filter(|it| !it.id.is_identified()).collect();
        assert_eq!((resolved.len(), unsure.len(), paths(unsure[0]).as_str()), (3, 1, "a*"));
    }

    #[test]
    fn unidentified_copies_with_one_token_are_one() {
        let files = vec![file("b", "same"), file("a", "same"), file("c", "other")];
        let by_path = resolve(vec![file("a", "same")], at(0));
        let resolved = resolve(files.clone(), at(0));
        assert_eq!(accounts(files), ["a* b", "c*"]);
        assert!(resolved.iter().any(|it| it.id == by_path[0].id) && !by_path[0].id.is_identified());
        assert!(by_path[0].account_id.is_none());
    }

    #[test]
    fn a_copy_in_doubt_tells_the_workspace_to_one_that_names_none() {
        let mut copy = of("b", "A");
        copy.login.credential = file("b", "same").login.credential;
        let users = [of_seat("x", "A", "u1"), of_seat("y", "A", "u2")];
        let files = [vec![file("a", "same"), copy], users.to_vec()].concat();
        let resolved = resolve(files, at(0));
        let unsure = resolved.iter().find(|it| !it.id.is_identified()).unwrap();
        assert_eq!((paths(unsure).as_str(), &unsure.account_id), ("a* b", &AccountId::parse("A")));
    }

    #[test]
    fn an_unidentified_copy_of_a_known_token_adds_no_weight() {
        let files = vec![of("a", "A"), file("b", "a"), file("c", "c")];
        assert_eq!(accounts(files), ["a* b", "c*"]);
    }

    /// What makes the files `a` and `b` unequal.
    type Change<'a> = &'a dyn Fn(&mut Draft, &mut Draft);

    #[test]
    fn the_freshest_usable_copy_is_used() {
        let last = |file: &mut Draft, second| {
            file.login.credential.last_refresh = Some(at(second));
        };
        let ends = |file: &mut Draft, second| {
            file.login.credential.expires_at = Some(at(second));
        };
        let table: [(&str, Change<'_>, &str); 8] = [
            ("by path, if all is equal", &|_, _| {}, "a* b"),
            ("enabled before fresh", &|a, b| (last(a, 9), b.login.enabled = false).0, "a* b"),
            ("a disabled one never", &|a, _| a.login.enabled = false, "a b*"),
            ("an expired one last", &|a, _| (last(a, 9), ends(a, 999)).0, "a b*"),
            ("an end that is not known is no end", &|a, b| (last(b, 1), ends(a, 9_999)).0, "a b*"),
            (
                "the last refresh before the end",
                &|a, b| (last(a, 1), ends(a, 9_999), last(b, 2), ends(b, 1_001)).0,
                "a b*",
            ),
            (
                "one that can be refreshed",
                &|_, b| b.login.credential.refresh = RefreshToken::new("r".into()).ok(),
                "a b*",
            ),
            ("the later end", &|a, b| (ends(a, 5_000), ends(b, 6_000)).0, "a b*"),
        ];
        for (name, change, wanted) in table {
            let (mut a, mut b) = (of("a", "A"), of("b", "A"));
            change(&mut a, &mut b);
            assert_eq!(accounts(vec![b, a]), [wanted], "{name}");
        }
    }

    #[test]
    fn an_account_is_off_only_if_all_its_files_are() {
        let label = || Label::parse("paaaaaa").unwrap();
        let (mut a, mut b) = (of("a", "A"), of("b", "A"));
        a.login.enabled = false;
        let both = resolve(vec![a.clone(), b.clone()], at(0)).remove(0).labelled(label());
        b.login.enabled = false;
        let none = resolve(vec![a, b], at(0)).remove(0).labelled(label());
        assert_eq!((both.eligibility.disabled, none.eligibility.disabled), (false, true));
    }

    #[test]
    fn the_stated_account_wins_and_the_conflict_shows() {
        let mut odd = of("a", "A");
        odd.login.id_token.account_id = AccountId::parse("B");
        let account = resolve(vec![odd], at(0)).remove(0);
        assert_eq!(account.account_id, AccountId::parse("A"));
        assert!(account.labelled(Label::parse("paaaaaa").unwrap()).identity_conflict);

        let mut tokens = file("a", "a");
        tokens.login.id_token.account_id = AccountId::parse("B");
        tokens.login.access_token.account_id = AccountId::parse("C");
        assert_eq!(tokens.login.account_id(), AccountId::parse("B").as_ref());
        assert!(tokens.login.has_identity_conflict());
        assert!(!of("a", "A").login.has_identity_conflict());
    }

    #[test]
    fn an_id_is_the_same_wherever_it_is_derived() {
        let id = |file| resolve(vec![file], at(0)).remove(0).id.to_string();
        assert_eq!(id(of("x", "acct-1")), id(of("y", "acct-1")));
        assert_eq!(id(of("x", "acct-1")), "acc_def4897d1c6fb9c8f1a6");
        assert_eq!(id(of_seat("x", "acct-1", "user-1")), "acc_32e3f0a9fe8cc4cdf49d");
        assert_eq!(id(file("x.json", "t")), "path_24767341288e68088b18");
    }

    #[test]
    fn debug_shows_no_account_and_no_user() {
        let account = resolve(vec![of_seat("a", "canary-account", "canary-user")], at(0)).remove(0);
        let shown = format!("{account:?} {:?}", account.login.users());
        assert!(!shown.contains("canary"), "{shown}");
    }

    fn any_file() -> impl Strategy<Value = Draft> {
        let users = prop::option::of("[uv]");
        ("[a-f]", "[pq]", prop::option::of("[AB]"), users.clone(), users, any::<bool>()).prop_map(
            |(path, token, account, user, subject, enabled)| {
                let mut file = file(&path, &token);
                file.login.tokens_account_id = account.as_deref().and_then(AccountId::parse);
                let users = &mut file.login.access_token.users;
                users.set(SeatKind::User, user.as_deref().unwrap_or_default());
                users.set(SeatKind::Subject, subject.as_deref().unwrap_or_default());
                file.login.enabled = enabled;
                file
            },
        )
    }

    proptest! {
        #[test]
        fn no_order_of_the_files_changes_the_accounts(
            (files, shuffled) in prop::collection::vec(any_file(), 0..8)
                .prop_map(|mut files| {
                    files.sort_by(|a, b| a.path.cmp(&b.path));
                    files.dedup_by(|a, b| a.path == b.path);
                    files
                })
                .prop_flat_map(|files| (Just(files.clone()), Just(files).prop_shuffle())),
        ) {
            let view = |files: Vec<Draft>| -> Vec<(AuthId, String)> {
                resolve(files, at(0)).iter().map(|it| (it.id.clone(), paths(it))).collect()
            };
            let count = files.len();
            let (plain, other) = (view(files), view(shuffled));
            prop_assert_eq!(&plain, &other);
            prop_assert!(plain.is_sorted_by(|a, b| a.0 < b.0), "sorted, and no id twice");
            let sources: usize = plain.iter().map(|it| it.1.split(' ').count()).sum();
            prop_assert_eq!(sources, count);
        }
    }
}
