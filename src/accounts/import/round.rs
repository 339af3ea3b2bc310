//! One import: every login is judged beside the directory as the ones before it have left it. Blocks
//! on the file system.

use std::{path::Path, sync::Arc};

use jiff::Timestamp;
use secrecy::SecretString;
use serde_json::Value;

use super::{
    Change, Mode, Offer, Origin, Refused, Taken, Warning, read,
    verdict::{self, Verdict},
};
use crate::{
    accounts::{
        directory::Parsed,
        files::{CredentialFiles, FoundFile, Outcome, Rotated, WriteError},
    },
    domain::identity::{LoginFile, PathId, Resolved},
    protocol::credential_file::{CredentialFile, Shape, rewrite::NewTokens},
};

/// How often a login is judged anew, because its account's files changed in the meantime.
const TRIES: usize = 3;

/// Hex digits that tell the names of new files apart.
const NAME_DIGITS: usize = 8;

/// The directory as one import sees it, kept true to what the import does.
pub(super) struct Round<'a> {
    files: &'a CredentialFiles,
    mode: Mode,
    now: Timestamp,
    found: Vec<FoundFile>,
    /// Logins that the import adds, and `found` does not show.
    added: Vec<LoginFile>,
}

/// What was done for a login.
pub(super) struct Done {
    pub(super) taken: Taken,
    /// A file of its account, if there is one now.
    pub(super) path: Option<PathId>,
}

// === impl Round ===

impl<'a> Round<'a> {
    pub(super) fn new(files: &'a CredentialFiles, mode: Mode, now: Timestamp) -> Self {
        Self { files, mode, now, found: Vec::new(), added: Vec::new() }
    }

    /// Reads the directory.
    pub(super) fn look(&mut self) -> Result<(), Refused> {
        self.found = self.files.read().map_err(|error| {
            let kind = error.source.kind();
            tracing::warn!(
                "The credential directory cannot be read ({kind}), so nothing was taken in"
            );
            Refused::Directory
        })?;
        // What was really added shows by itself from now on.
        if self.mode == Mode::Real {
            self.added.clear();
        }
        Ok(())
    }

    pub(super) fn take(&mut self, offer: &Offer) -> Result<Done, Refused> {
        let CredentialFile { shape, login, faults } = read(&offer.bytes)?;
        let file = Parsed { login: login.into(), shape, faults: faults.into() };
        for _ in 0..TRIES {
            let held =
                self.found.iter().map(|it| LoginFile::new(it.path.clone(), Arc::clone(&it.login)));
            let held: Vec<LoginFile> = held.chain(self.added.iter().cloned()).collect();
            let judged = verdict::judge(&held, &file.login, offer.origin, self.now);
            let (account, verdict) = judged.ok_or(Refused::Conflict)?;
            let mut taken = taken(&file, &account, offer.origin, self.now);
            let mut sources = account.sources.iter().map(|it| it.path.clone());
            let path = sources.find(|it| !verdict::is_guest(it));
            match verdict {
                Verdict::Add => return self.add(offer, &file, taken),
                Verdict::Present | Verdict::Older => {
                    let older = verdict == Verdict::Older;
                    let warning = if older { Warning::Older } else { Warning::AlreadyThere };
                    taken.warnings.insert(0, warning);
                    return Ok(Done { taken, path });
                }
                Verdict::Replace(paths) => {
                    taken.change = Change::Updated;
                    if let Some(partly) = self.replace(offer, &file, &paths)? {
                        taken.warnings.extend(partly.then_some(Warning::Partly));
                        return Ok(Done { taken, path });
                    }
                }
            }
        }
        Err(Refused::Busy)
    }

    fn add(&mut self, offer: &Offer, file: &Parsed, mut taken: Taken) -> Result<Done, Refused> {
        taken.change = Change::Added;
        let identified = taken.auth_id.as_ref().filter(|it| it.is_identified());
        let digits = match identified {
            Some(id) => id.as_str().trim_start_matches("acc_").to_owned(),
            // The half of a hash: it leads back to no token.
            None => {
                let fingerprint = file.login.credential.fingerprint;
                fingerprint.as_bytes().iter().map(|it| format!("{it:02x}")).collect()
            }
        };
        let stem = format!("login-{}", digits.get(..NAME_DIGITS).unwrap_or(&digits));
        if identified.is_none() {
            taken.auth_id = None;
        }
        let made = match self.mode {
            Mode::Real => Some(self.files.create(&stem, &offer.bytes).map_err(refused)?),
            Mode::DryRun => None,
        };
        let path = made.clone().unwrap_or_else(|| {
            let name = format!("{stem} {}", self.added.len());
            PathId::from_relative(Path::new(&name))
        });
        self.added.push(LoginFile::new(path, Arc::clone(&file.login)));
        Ok(Done { taken, path: made })
    }

    /// Sees what a rotation has left. Only files that others have changed too make it necessary to
    /// read the whole directory, which would cost a large import dearly.
    fn see_again(&mut self, rotated: &Rotated) -> Result<(), Refused> {
        for (path, outcome) in &rotated.files {
            let place = self.found.iter().position(|it| it.path == *path);
            let again = match (outcome, place.and_then(|at| self.found.get_mut(at))) {
                (Outcome::Written, Some(found)) => self.files.read_again(found),
                (Outcome::Written | Outcome::Changed | Outcome::Failed(_), _) => false,
            };
            if !again {
                return self.look();
            }
        }
        Ok(())
    }

    /// Gives the account's files the new tokens. `None` if they hold others by now; else whether
    /// only some could be written.
    fn replace(
        &mut self,
        offer: &Offer,
        file: &Parsed,
        paths: &[PathId],
    ) -> Result<Option<bool>, Refused> {
        if self.mode == Mode::DryRun {
            // Further files of the import are judged beside the new tokens.
            for found in self.found.iter_mut().filter(|it| paths.contains(&it.path)) {
                found.login = Arc::clone(&file.login);
            }
            for added in self.added.iter_mut().filter(|it| paths.contains(&it.path)) {
                *added = LoginFile::new(added.path.clone(), Arc::clone(&file.login));
            }
            return Ok(Some(false));
        }
        if !paths.iter().all(|path| self.found.iter().any(|it| it.path == *path)) {
            // Added by this very call.
            self.look()?;
        }
        let named = self.found.iter().filter(|it| paths.contains(&it.path));
        let targets: Vec<FoundFile> = named.cloned().collect();
        let tokens = new_tokens(&offer.bytes, file, self.now);
        let rotated = self.files.rotate(&targets, &tokens);
        self.see_again(&rotated)?;
        let (mut written, mut failed) = (0, None);
        for (_, outcome) in &rotated.files {
            match outcome {
                Outcome::Written => written += 1,
                Outcome::Changed => {}
                Outcome::Failed(kind) => failed = Some(*kind),
            }
        }
        match failed {
            Some(kind) if written == 0 => Err(Refused::Unwritable(kind)),
            Some(_) => Ok(Some(true)),
            None => Ok((written > 0).then_some(false)),
        }
    }
}

fn refused(error: WriteError) -> Refused {
    match error {
        WriteError::Create(kind) => Refused::Unwritable(kind),
        WriteError::File { .. }
        | WriteError::Rewrite { .. }
        | WriteError::Changed { .. }
        | WriteError::Stuck { .. } => Refused::Write(error.to_string()),
    }
}

/// What is told of a login, before anything is done with it.
fn taken(file: &Parsed, account: &Resolved, origin: Origin, now: Timestamp) -> Taken {
    let credential = &file.login.credential;
    let mut warnings: Vec<Warning> = file.faults.iter().copied().map(Warning::Fault).collect();
    match &credential.refresh {
        Some(_) if origin == Origin::Elsewhere && file.shape == Shape::Codex => {
            warnings.push(Warning::Shared);
        }
        Some(_) => {}
        None if credential.has_expired(now) => warnings.push(Warning::Dead),
        None => warnings.push(Warning::NoRefreshToken),
    }
    if !account.id.is_identified() {
        warnings.push(Warning::Unidentified);
    }
    if !account.sources.iter().any(|it| it.enabled && !verdict::is_guest(&it.path)) {
        let alone = account.sources.len() == 1;
        warnings.extend((!alone || !file.login.enabled).then_some(Warning::Disabled));
    }
    Taken {
        change: Change::Unchanged,
        auth_id: Some(account.id.clone()),
        label: None,
        email: account.email.clone(),
        plan: account.plan.clone(),
        warnings,
    }
}

/// The tokens of a file, to be put into another.
fn new_tokens(bytes: &[u8], file: &Parsed, now: Timestamp) -> NewTokens {
    let credential = &file.login.credential;
    NewTokens {
        access: credential.access.clone(),
        refresh: credential.refresh.clone(),
        id_token: id_token(bytes, file.shape),
        account_id: None,
        last_refresh: credential.last_refresh.unwrap_or(now),
    }
}

/// The id token's text, of which a parsed file keeps only the claims.
fn id_token(bytes: &[u8], shape: Shape) -> Option<SecretString> {
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut top: Value = serde_json::from_slice(text).ok()?;
    let home = match shape {
        Shape::Codex => top.get_mut("tokens")?,
        Shape::Flat => &mut top,
    };
    let text = home.get_mut("id_token").map(Value::take)?;
    let Value::String(text) = text else { return None };
    (!text.trim().is_empty()).then(|| SecretString::from(text))
}
