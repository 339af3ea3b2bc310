//! What becomes of a login that is offered, beside those that are here. Pure.

use std::{path::Path, sync::Arc};

use jiff::Timestamp;

use crate::domain::{
    credential::Credential,
    identity::{self, Login, LoginFile, PathId, Resolved},
};

/// Where a login comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file from elsewhere, where another program may go on using it.
    Elsewhere,
    /// A sign-in that has just been done here: no login is newer.
    SignIn,
}

/// What is to be done with a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// No file here is of its account.
    Add,
    /// These files of its account get its tokens.
    Replace(Vec<PathId>),
    /// These tokens are here.
    Present,
    /// Its account has newer ones here.
    Older,
}

/// Judges `offered` beside all logins of the directory, and tells its account as it will be. `None`
/// if the login itself names two accounts.
pub(super) fn judge(
    held: &[LoginFile],
    offered: &Arc<Login>,
    origin: Origin,
    now: Timestamp,
) -> Option<(Resolved, Verdict)> {
    if offered.has_identity_conflict() {
        return None;
    }
    let guest = guest();
    let mut all = held.to_vec();
    all.push(LoginFile::new(guest.clone(), Arc::clone(offered)));
    let account = identity::resolve(all, now).into_iter().find(|it| names(it, &guest))?;
    let own: Vec<LoginFile> = held.iter().filter(|it| names(&account, &it.path)).cloned().collect();
    // The one of the files here that is in use.
    let used = identity::resolve(own.clone(), now).into_iter().next();
    let incoming = &offered.credential;
    let verdict = match used.map(|it| it.login.credential.clone()) {
        None => Verdict::Add,
        Some(_) if own.iter().any(|it| is_same(&it.login.credential, incoming)) => Verdict::Present,
        Some(used) if origin == Origin::Elsewhere && !is_fresher(incoming, &used, now) => {
            Verdict::Older
        }
        Some(used) => {
            let copies = own.iter().filter(|it| is_same(&it.login.credential, &used));
            Verdict::Replace(copies.map(|it| it.path.clone()).collect())
        }
    };
    Some((account, verdict))
}

/// Whether this source of an account is the login that is offered.
pub(super) fn is_guest(path: &PathId) -> bool {
    *path == guest()
}

/// A name that no file in the directory has, since theirs end in `.json`.
fn guest() -> PathId {
    PathId::from_relative(Path::new("offered"))
}

fn names(account: &Resolved, path: &PathId) -> bool {
    account.sources.iter().any(|it| it.path == *path)
}

fn is_same(a: &Credential, b: &Credential) -> bool {
    let refresh = |it: &Credential| it.refresh.as_ref().map(|it| it.fingerprint());
    a.fingerprint == b.fingerprint && refresh(a) == refresh(b)
}

/// Whether `offered` is surely the newer one. What only one of the two tells decides nothing.
fn is_fresher(offered: &Credential, used: &Credential, now: Timestamp) -> bool {
    match (offered.has_expired(now), used.has_expired(now)) {
        (false, true) => return true,
        (true, false) => return false,
        (true, true) | (false, false) => {}
    }
    let apart = |a: Option<Timestamp>, b: Option<Timestamp>| a.zip(b).filter(|(a, b)| a != b);
    let told = apart(offered.last_refresh, used.last_refresh)
        .or_else(|| apart(offered.expires_at, used.expires_at));
    match told {
        Some((offered, used)) => offered > used,
        None => offered.refresh.is_some() && used.refresh.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        account::AccountId,
        credential::{AccessToken, RefreshToken},
        identity::{Claims, SeatKind},
    };

    const NOW: i64 = 1_000;

    fn at(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    /// Of the account `account`; the token tells nothing else.
    fn login(account: &str, token: &str) -> Login {
        let refresh = RefreshToken::new(format!("rt-{token}").into()).ok();
        Login {
            top_account_id: None,
            tokens_account_id: AccountId::parse(account),
            id_token: Claims::default(),
            access_token: Claims::default(),
            email: None,
            credential: Credential::new(AccessToken::new(token.into()).unwrap(), refresh),
            enabled: true,
        }
    }

    fn refreshed(account: &str, token: &str, second: i64) -> Login {
        let mut login = login(account, token);
        login.credential.last_refresh = at(second);
        login
    }

    fn file(path: &str, login: Login) -> LoginFile {
        LoginFile::new(PathId::from_relative(Path::new(path)), login)
    }

    fn told(held: &[LoginFile], offered: &Login, origin: Origin) -> String {
        match judge(held, &Arc::new(offered.clone()), origin, at(NOW).unwrap()).map(|it| it.1) {
            None => "conflict".to_owned(),
            Some(Verdict::Replace(paths)) => {
                let paths: Vec<&str> = paths.iter().map(PathId::as_str).collect();
                format!("replace {}", paths.join(" "))
            }
            Some(other) => format!("{other:?}").to_lowercase(),
        }
    }

    #[test]
    fn a_login_is_judged_by_its_account_and_its_age() {
        let here = [
            file("a.json", refreshed("A", "a2", 20)),
            file("a-copy.json", refreshed("A", "a2", 20)),
            file("a-old.json", refreshed("A", "a1", 10)),
            file("b.json", login("B", "b1")),
        ];
        let mut off = refreshed("A", "a3", 30);
        off.enabled = false;
        let table: [(&str, Login, &str); 9] = [
            ("an account that is not here", login("C", "c1"), "add"),
            ("no account at all", login("", "x"), "add"),
            ("the tokens in use", login("A", "a2"), "present"),
            ("the tokens of an old copy", login("A", "a1"), "present"),
            (
                "newer ones go into every copy in use",
                refreshed("A", "a3", 30),
                "replace path:a.json path:a-copy.json",
            ),
            (
                "whether the file is switched off makes no difference",
                off,
                "replace path:a.json path:a-copy.json",
            ),
            ("older ones", refreshed("A", "a0", 5), "older"),
            ("as old ones", refreshed("A", "a4", 20), "older"),
            ("nothing to tell by", login("B", "b2"), "older"),
        ];
        for (name, offered, wanted) in table {
            assert_eq!(told(&here, &offered, Origin::Elsewhere), wanted, "{name}");
        }
    }

    #[test]
    fn a_sign_in_is_the_newest_login_there_is() {
        let here = [file("a.json", refreshed("A", "a2", NOW * 1_000))];
        assert_eq!(told(&here, &refreshed("A", "a3", 30), Origin::SignIn), "replace path:a.json");
        assert_eq!(told(&here, &login("A", "a2"), Origin::SignIn), "present");
    }

    #[test]
    fn another_user_of_the_workspace_is_another_account() {
        let seat = |user: &str, token: &str| {
            let mut login = login("A", token);
            login.id_token.users.set(SeatKind::ChatgptUser, user);
            login
        };
        let here = [file("a.json", seat("ann", "a1"))];
        assert_eq!(told(&here, &seat("bob", "b1"), Origin::Elsewhere), "add");
        assert_eq!(told(&here, &seat("ann", "a2"), Origin::SignIn), "replace path:a.json");
    }

    #[test]
    fn a_login_of_two_accounts_is_none() {
        let mut offered = login("A", "a1");
        offered.id_token.account_id = AccountId::parse("B");
        assert_eq!(told(&[], &offered, Origin::Elsewhere), "conflict");
    }

    #[test]
    fn the_fresher_credential_is_found_by_what_both_tell() {
        let with = |last: Option<i64>, end: Option<i64>, refresh: bool| {
            let mut credential = login("A", "a").credential;
            credential.last_refresh = last.and_then(at);
            credential.expires_at = end.and_then(at);
            credential.refresh = credential.refresh.filter(|_| refresh);
            credential
        };
        let table = [
            (
                "alive before expired",
                with(Some(1), Some(2_000), true),
                with(Some(2), Some(900), true),
                true,
            ),
            (
                "expired after alive",
                with(Some(2), Some(900), true),
                with(Some(1), Some(2_000), true),
                false,
            ),
            (
                "refreshed later",
                with(Some(2), Some(2_000), true),
                with(Some(1), Some(3_000), true),
                true,
            ),
            ("ends later", with(None, Some(3_000), true), with(Some(1), Some(2_000), true), true),
            ("ends sooner", with(None, Some(2_000), true), with(Some(1), Some(3_000), true), false),
            ("can be refreshed", with(None, None, true), with(None, None, false), true),
            ("cannot be refreshed", with(None, None, false), with(None, None, true), false),
            ("alike", with(Some(1), Some(2_000), true), with(Some(1), Some(2_000), true), false),
        ];
        for (name, offered, used, wanted) in table {
            assert_eq!(is_fresher(&offered, &used, at(NOW).unwrap()), wanted, "{name}");
        }
    }
}
