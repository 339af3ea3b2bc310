//! When tokens are to be renewed before anybody needs them. Pure.

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

use crate::domain::account::{Account, AuthId};

/// As late as Codex itself does it, since it may share the file.
const EARLY: SignedDuration = SignedDuration::from_mins(5);

/// Accounts whose tokens end together are spread over this long.
const JITTER_MS: u64 = 60_000;

/// How old tokens get that do not tell their end.
const AGE_MAX: SignedDuration = SignedDuration::from_hours(8 * 24);

/// How long tokens rest that could not be renewed, after the first, second, … time in a row.
const BACKOFF: [SignedDuration; 6] = [
    SignedDuration::from_secs(30),
    SignedDuration::from_mins(1),
    SignedDuration::from_mins(2),
    SignedDuration::from_mins(4),
    SignedDuration::from_mins(8),
    SignedDuration::from_mins(10),
];

/// When the account's tokens are due; `None` if that is never, or nothing could renew them.
pub(super) fn due(account: &Account) -> Option<Timestamp> {
    let credential = &account.credential;
    credential.refresh.as_ref()?;
    match (credential.expires_at, credential.last_refresh) {
        (Some(end), _) => end.checked_sub(EARLY + jitter(&account.id)).ok(),
        (None, Some(last)) => last.checked_add(AGE_MAX).ok(),
        (None, None) => None,
    }
}

/// The rest after so many failures in a row, at least one.
pub(super) fn backoff(failures: usize) -> SignedDuration {
    BACKOFF[failures.clamp(1, BACKOFF.len()) - 1]
}

/// The same for an account each time.
fn jitter(id: &AuthId) -> SignedDuration {
    let digest = Sha256::digest(id.as_str().as_bytes());
    let number = digest.iter().take(8).fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
    SignedDuration::from_millis((number % JITTER_MS).cast_signed())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::{
        account::{Eligibility, Label},
        credential::{AccessToken, Credential, RefreshToken},
    };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn account(digit: char, refresh: bool, ends: Option<i64>, last: Option<i64>) -> Account {
        let access = AccessToken::new("a".into()).unwrap();
        let refresh = refresh.then(|| RefreshToken::new("r".into()).unwrap());
        let mut credential = Credential::new(access, refresh);
        credential.expires_at = ends.map(at);
        credential.last_refresh = last.map(at);
        Account {
            id: AuthId::parse(&format!("acc_{}", digit.to_string().repeat(20))).unwrap(),
            label: Label::parse("paaaaaa").unwrap(),
            account_id: None,
            seat: None,
            credential: Arc::new(credential),
            eligibility: Eligibility::default(),
            identity_conflict: false,
            email: None,
            plan: None,
            fedramp: false,
            sources: Vec::new(),
        }
    }

    #[test]
    fn tokens_are_due_shortly_before_they_end() {
        let digits = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9'];
        let due = digits.map(|it| due(&account(it, true, Some(10_000), Some(1))).unwrap());
        let (first, last) = (due.iter().min().unwrap(), due.iter().max().unwrap());
        assert!(*last <= at(9_700) && *first >= at(9_640), "{due:?}");
        assert!(first < last, "they are all due at once");
    }

    #[test]
    fn tokens_without_an_end_are_due_by_age_or_never() {
        assert_eq!(due(&account('a', true, None, Some(0))), Some(at(8 * 24 * 3600)));
        assert_eq!(due(&account('a', true, None, None)), None);
        assert_eq!(due(&account('a', false, Some(10), Some(0))), None);
    }

    #[test]
    fn the_rest_grows_to_ten_minutes() {
        let seconds: Vec<i64> = (0..9).map(|it| backoff(it).as_secs()).collect();
        assert_eq!(seconds, [30, 30, 60, 120, 240, 480, 600, 600, 600]);
    }
}
