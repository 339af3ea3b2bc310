//! Tokens that this process has and the files do not have yet.
//!
//! A refresh token can be traded in once. When its successor could not be written, the file still
//! holds a token that is dead, and the successor lives here.

use std::sync::Arc;

use super::Rotation;
use crate::{
    accounts::directory::{FileState, Reading},
    domain::{
        credential::{Credential, Fingerprint},
        identity::Login,
    },
};

/// More tokens than any pool has; the oldest are forgotten first.
const ROTATIONS_MAX: usize = 4_096;

#[derive(Debug, Default)]
pub(super) struct Overlays {
    /// What is not in every file yet, in the order in which it was traded.
    unwritten: Vec<Rotation>,
    /// Every trade that is remembered: the old token and what came for it.
    trades: Vec<(Fingerprint, Fingerprint)>,
}

// === impl Overlays ===

impl Overlays {
    pub(super) fn note(&mut self, rotation: Rotation) {
        let trade = (rotation.old, key(&rotation.new.credential));
        if trade.0 != trade.1 && !self.trades.contains(&trade) {
            self.trades.push(trade);
        }
        self.unwritten.retain(|it| it.old != rotation.old);
        if !rotation.persisted {
            self.unwritten.push(rotation);
        }
        for excess in [self.trades.len(), self.unwritten.len()] {
            let excess = excess.saturating_sub(ROTATIONS_MAX);
            self.trades.drain(..excess.min(self.trades.len()));
            self.unwritten.drain(..excess.min(self.unwritten.len()));
        }
    }

    pub(super) fn trades(&self) -> &[(Fingerprint, Fingerprint)] {
        &self.trades
    }

    /// Puts the newest tokens in the place of those that were traded in.
    pub(super) fn lay_over(&self, reading: &mut Reading) {
        if self.unwritten.is_empty() {
            return;
        }
        for file in &mut reading.files {
            if let FileState::Parsed(parsed) = &mut file.state {
                // A successor may have been traded in as well.
                for _ in 0..self.unwritten.len() {
                    let key = key(&parsed.login.credential);
                    let Some(rotation) = self.unwritten.iter().find(|it| it.old == key) else {
                        break;
                    };
                    parsed.login = Arc::new(renewed(&parsed.login, &rotation.new));
                }
            }
        }
    }

    /// Forgets what the files have taken in, or what nobody can need any more. A file that cannot be
    /// read may still hold an old token.
    pub(super) fn settle(&mut self, reading: &Reading) {
        if self.unwritten.is_empty() {
            return;
        }
        let mut held = Vec::new();
        for file in &reading.files {
            match &file.state {
                FileState::Parsed(parsed) => held.push(key(&parsed.login.credential)),
                FileState::Problem(_) => return,
                FileState::Ignored(_) | FileState::LoggedOut => {}
            }
        }
        if !reading.lost_folders.is_empty() {
            return;
        }
        // What a successor was traded in for is needed as long as the successor is.
        let mut needed = Vec::new();
        for held in held {
            let mut next = Some(held);
            while let Some(old) = next.take_if(|it| !needed.contains(it)) {
                needed.push(old);
                let rotation = self.unwritten.iter().find(|it| it.old == old);
                next = rotation.map(|it| key(&it.new.credential));
            }
        }
        self.unwritten.retain(|it| needed.contains(&it.old));
    }
}

/// What names the tokens of a login: the refresh token, or for want of one the access token.
fn key(credential: &Credential) -> Fingerprint {
    credential.refresh.as_ref().map_or(credential.fingerprint, |it| it.fingerprint())
}

/// What the file would hold if it could be written: what is its own stays.
fn renewed(file: &Login, new: &Login) -> Login {
    let claimed =
        |it: &Login| it.access_token.account_id.clone().or(it.id_token.account_id.clone());
    let (before, after) = (claimed(file), claimed(new));
    let mut login = Login { enabled: file.enabled, email: file.email.clone(), ..new.clone() };
    if after.is_none() || before == after {
        login.top_account_id = file.top_account_id.clone();
        login.tokens_account_id = file.tokens_account_id.clone();
    }
    login
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::{
        accounts::directory::{FileReading, Parsed},
        domain::{
            account::AccountId,
            credential::{AccessToken, RefreshToken},
            identity::{Claims, PathId},
        },
        protocol::credential_file::Shape,
    };

    fn login(token: &str, enabled: bool) -> Login {
        let access = AccessToken::new(format!("access-{token}").into()).unwrap();
        let refresh = RefreshToken::new(format!("refresh-{token}").into()).unwrap();
        Login {
            top_account_id: AccountId::parse("acct"),
            tokens_account_id: None,
            id_token: Claims::default(),
            access_token: Claims::default(),
            email: None,
            credential: Credential::new(access, Some(refresh)),
            enabled,
        }
    }

    fn rotation(old: &str, new: &str) -> Rotation {
        let old = key(&login(old, true).credential);
        Rotation { old, new: Arc::new(login(new, true)), persisted: false }
    }

    /// A directory with a file for each token.
    fn reading(tokens: &[&str]) -> Reading {
        let file = |token: &&str| FileReading {
            path_id: PathId::from_relative(Path::new(token)),
            path: PathBuf::from(token),
            target: PathBuf::from(token),
            state: FileState::Parsed(Parsed {
                login: Arc::new(login(token, false)),
                shape: Shape::Codex,
                faults: Arc::default(),
            }),
            notices: Vec::new(),
        };
        let files = tokens.iter().map(file).collect();
        Reading { files, unread: Vec::new(), lost_folders: Vec::new() }
    }

    fn shown(overlays: &Overlays, tokens: &[&str]) -> Vec<String> {
        let mut reading = reading(tokens);
        overlays.lay_over(&mut reading);
        let token = |file: &FileReading| match &file.state {
            FileState::Parsed(it) => {
                assert!(!it.login.enabled, "the switch is the file's own");
                it.login.credential.access.expose().to_owned()
            }
            FileState::Ignored(_) | FileState::LoggedOut | FileState::Problem(_) => String::new(),
        };
        reading.files.iter().map(token).collect()
    }

    #[test]
    fn a_file_with_a_traded_token_shows_its_successor() {
        let mut overlays = Overlays::default();
        overlays.note(rotation("1", "2"));
        assert_eq!(shown(&overlays, &["1", "9"]), ["access-2", "access-9"]);
        overlays.note(rotation("2", "3"));
        assert_eq!(shown(&overlays, &["1", "2"]), ["access-3", "access-3"]);
        assert_eq!(overlays.trades().len(), 2);
    }

    #[test]
    fn a_circle_of_trades_ends() {
        let mut overlays = Overlays::default();
        overlays.note(rotation("1", "2"));
        overlays.note(rotation("2", "1"));
        assert_eq!(shown(&overlays, &["1"]).len(), 1);
        overlays.settle(&reading(&["1"]));
    }

    #[test]
    fn a_successor_is_kept_until_no_file_needs_it() {
        let mut overlays = Overlays::default();
        overlays.note(rotation("1", "2"));
        overlays.note(rotation("2", "3"));
        overlays.settle(&reading(&["1", "3"]));
        assert_eq!(shown(&overlays, &["1"]), ["access-3"], "one copy was not written");
        let mut unread = reading(&["3"]);
        unread.lost_folders.push(PathId::from_relative(Path::new("sub")));
        overlays.settle(&unread);
        assert_eq!(overlays.unwritten.len(), 2, "an unread file may need it");
        overlays.settle(&reading(&["3"]));
        assert!(overlays.unwritten.is_empty() && overlays.trades().len() == 2);
    }

    #[test]
    fn what_was_written_needs_no_successor_in_memory() {
        let mut overlays = Overlays::default();
        overlays.note(rotation("1", "2"));
        overlays.note(Rotation { persisted: true, ..rotation("1", "2") });
        assert!(overlays.unwritten.is_empty() && overlays.trades().len() == 1);
    }
}
