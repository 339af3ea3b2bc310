//! What operators hear of the looks: each change once, each problem when it comes and when it goes.

use std::{collections::HashSet, sync::Arc};

use super::Ledger;
use crate::{
    accounts::{
        directory::{DirectoryError, FileProblem},
        pool::Snapshot,
    },
    domain::{
        account::{AuthId, Eligibility},
        reconcile::{Aspect, Change},
    },
    telemetry::{labels::Reconciled, metrics::Metrics},
};

/// What was told already.
#[derive(Debug)]
pub(super) struct Told {
    metrics: Arc<Metrics>,
    problems: HashSet<FileProblem>,
    unavailable: bool,
}

// === impl Told ===

impl Told {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, problems: HashSet::new(), unavailable: false }
    }

    pub(super) fn unavailable(&mut self, error: &DirectoryError) {
        if !self.unavailable {
            self.unavailable = true;
            tracing::error!(
                code = "auth_dir_unavailable",
                "The credential directory cannot be read ({}): its accounts serve for a moment \
                 longer, and come back with it. Nothing of theirs is deleted",
                error.source
            );
        }
    }

    pub(super) fn available(&mut self) {
        if self.unavailable {
            self.unavailable = false;
            tracing::warn!("The credential directory can be read again");
        }
    }

    pub(super) fn problems(&mut self, problems: &[FileProblem]) {
        let now: HashSet<FileProblem> = problems.iter().cloned().collect();
        for new in problems.iter().filter(|it| !self.problems.contains(it)) {
            tracing::warn!(path = %new.path, "Credential file {new}");
        }
        for gone in self.problems.difference(&now) {
            tracing::info!(
                path = %gone.path,
                "Credential file {}: no longer so: {}",
                gone.path,
                gone.reason
            );
        }
        self.problems = now;
        let unusable = problems.iter().filter(|it| !it.reason.is_notice()).count();
        let unusable = i64::try_from(unusable).unwrap_or(i64::MAX);
        self.metrics.credential_file_problems.set(unusable);
    }

    /// The pool shows the changes already.
    pub(super) fn changes(&self, changes: &[Change], ledger: &Ledger, shown: &Snapshot) {
        for change in changes {
            self.metrics.reconciled(counted(change));
            let id = subject(change);
            let label = ledger.label(id).map_or("without a label", |it| it.as_str());
            let account = shown.find(id).map(|it| &it.account);
            let what = match change {
                Change::Added { .. } => {
                    let files = account.map_or(0, |it| it.sources.len());
                    format!("is in the pool, by {files} {}", plural(files, "file"))
                }
                Change::Removed { .. } => "has left the pool: no file describes it".to_owned(),
                Change::Renamed { from, .. } => format!("is known better now; it was {from}"),
                Change::Purged { .. } => {
                    "was gone for too long: its sessions and its state are deleted".to_owned()
                }
                Change::Updated { aspect: Aspect::Credentials, .. } => "has new tokens".to_owned(),
                Change::Updated { aspect: Aspect::Metadata, .. } => "has other metadata".to_owned(),
                Change::Updated { aspect: Aspect::Sources, .. } => {
                    let files = account.map_or(0, |it| it.sources.len());
                    format!("is described by other files now, {files} in all")
                }
                Change::Updated { aspect: Aspect::Eligibility, .. } => {
                    standing(account.map(|it| it.eligibility).unwrap_or_default()).to_owned()
                }
            };
            tracing::info!(account = label, auth_id = %id, "Account {label} {what}");
        }
    }
}

fn subject(change: &Change) -> &AuthId {
    match change {
        Change::Added { id, .. }
        | Change::Removed { id }
        | Change::Updated { id, .. }
        | Change::Purged { id } => id,
        Change::Renamed { to, .. } => to,
    }
}

fn counted(change: &Change) -> Reconciled {
    match change {
        Change::Added { .. } => Reconciled::Added,
        Change::Removed { .. } => Reconciled::Removed,
        Change::Renamed { .. } => Reconciled::Renamed,
        Change::Purged { .. } => Reconciled::Purged,
        Change::Updated { aspect: Aspect::Credentials, .. } => Reconciled::Credentials,
        Change::Updated { aspect: Aspect::Metadata, .. } => Reconciled::Metadata,
        Change::Updated { aspect: Aspect::Eligibility, .. } => Reconciled::Eligibility,
        Change::Updated { aspect: Aspect::Sources, .. } => Reconciled::Sources,
    }
}

fn standing(eligibility: Eligibility) -> &'static str {
    match eligibility {
        Eligibility { disabled: true, .. } => "is switched off by its files and gets no new work",
        Eligibility { paused: true, .. } => "is paused and gets no new work",
        Eligibility { out_of_sight: true, .. } => "is out of sight and gets no new work",
        Eligibility { disabled: false, paused: false, out_of_sight: false } => "gets new work",
    }
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}
