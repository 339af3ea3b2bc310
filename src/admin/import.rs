//! Taking over credential files over the admin listener.

use std::{borrow::Cow, collections::BTreeMap};

use axum::{
    Json,
    extract::{FromRequest, Query, Request, State},
};
use bytes::Bytes;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::{
    AdminState,
    audit::{self, NOBODY},
    fault::Fault,
};
use crate::accounts::import::{Change, Imported, Mode, Offer, Origin, Refused, Taken};

/// The largest body of an import.
pub(super) const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The name of a credential that came alone, as the whole body.
const ALONE: &str = "credential";

/// The answer, for whoever asks over the network too.
#[derive(Debug, Serialize, Deserialize)]
pub struct ImportAnswer {
    pub results: Vec<ShownImport>,
}

/// What became of one file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShownImport {
    pub name: String,
    pub result: ShownResult,
    #[serde(flatten)]
    pub account: ShownTaken,
    /// Why it was refused.
    pub error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShownResult {
    Added,
    Updated,
    Unchanged,
    Refused,
}

/// The account of a login, as far as it is known.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ShownTaken {
    pub auth_id: Option<String>,
    pub label: Option<String>,
    pub email_masked: Option<String>,
    pub plan: Option<String>,
    pub warnings: Vec<String>,
}

/// What was asked for.
pub(super) struct Import {
    offers: Vec<Offer>,
    mode: Mode,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch<'a> {
    #[serde(borrow)]
    files: Vec<BatchFile<'a>>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchFile<'a> {
    name: String,
    #[serde(borrow)]
    content: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[serde(default)]
    dry_run: bool,
}

pub(super) async fn take(
    State(state): State<AdminState>,
    Import { offers, mode }: Import,
) -> Result<Json<ImportAnswer>, Fault> {
    let recorder = state.clone();
    // In a task of its own: a caller that hangs up half way must not leave half of it done.
    let taking = state.accounts.tasks.finish(async move {
        let done = recorder.logins.intake().take(offers, mode).await;
        if mode == Mode::Real {
            record(&recorder, &done).await;
        }
        done
    });
    let done = taking.await.map_err(|error| {
        tracing::error!(%error, "An import broke off: {error}");
        Fault::Internal
    })?;
    match first_unreadable(&done) {
        Some(why) if done.len() == 1 => Err(Fault::InvalidRequest(why)),
        Some(why) => Err(Fault::InvalidRequest(format!(
            "none of the {} files holds a login; of the first: {why}",
            done.len()
        ))),
        None => {
            Ok(Json(ImportAnswer { results: done.into_iter().map(ShownImport::from).collect() }))
        }
    }
}

/// A row for every file that has changed something or was refused.
async fn record(state: &AdminState, done: &[Imported]) {
    for file in done {
        let (target, result) = match &file.outcome {
            Ok(taken) if taken.change == Change::Unchanged => continue,
            Ok(taken) => (taken.auth_id.as_ref().map(ToString::to_string), audit::OK),
            Err(why) => (None, code(why)),
        };
        audit::write(state, "auths.import", target.unwrap_or(NOBODY.to_owned()), result).await;
    }
}

/// Why a login was not taken, as the audit calls it.
pub(super) fn code(why: &Refused) -> &'static str {
    match why {
        Refused::NoLogin(_) | Refused::TooLarge | Refused::Conflict => "invalid_request",
        Refused::Busy => "credential_file_changed",
        Refused::Directory => "auth_dir_unavailable",
        Refused::Unwritable(_) | Refused::Write(_) => "credential_file_failed",
        Refused::BrokenOff => "internal_error",
    }
}

/// What is wrong with the first file, if none could be read at all.
fn first_unreadable(done: &[Imported]) -> Option<String> {
    let unreadable = |it: &Imported| match &it.outcome {
        Err(why @ (Refused::NoLogin(_) | Refused::TooLarge)) => Some(why.to_string()),
        _ => None,
    };
    let mut reasons = done.iter().map(unreadable).collect::<Option<Vec<String>>>()?;
    (!reasons.is_empty()).then(|| reasons.swap_remove(0))
}

// === impl Import ===

impl FromRequest<AdminState> for Import {
    type Rejection = Fault;

    async fn from_request(mut request: Request, state: &AdminState) -> Result<Self, Fault> {
        let options = axum::RequestExt::extract_parts::<Query<Options>>(&mut request).await;
        let Query(options) = options
            .map_err(|_| Fault::InvalidRequest("the query holds at most `dry_run`".to_owned()))?;
        let body = Bytes::from_request(request, state).await.map_err(|rejection| {
            if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
                Fault::TooLarge
            } else {
                Fault::InvalidRequest("the body could not be read".to_owned())
            }
        })?;
        let (offers, dry_run) = read(&body).map_err(Fault::InvalidRequest)?;
        let mode = if dry_run || options.dry_run { Mode::DryRun } else { Mode::Real };
        Ok(Self { offers, mode })
    }
}

/// The files of a body: a batch, or one credential that is the body itself. No error quotes it.
fn read(body: &[u8]) -> Result<(Vec<Offer>, bool), String> {
    let members: BTreeMap<Cow<'_, str>, &RawValue> =
        serde_json::from_slice(body).map_err(|it| {
            let (line, column) = (it.line(), it.column());
            format!("the body is no JSON object (line {line}, column {column})")
        })?;
    if !members.contains_key("files") {
        return Ok((vec![offer(ALONE.to_owned(), body)], false));
    }
    let batch: Batch<'_> = serde_json::from_slice(body).map_err(|_| {
        "want {\"files\": [{\"name\": \"…\", \"content\": {…}}], \"dry_run\": false}".to_owned()
    })?;
    if batch.files.is_empty() {
        return Err("`files` is empty: name at least one".to_owned());
    }
    let files = batch.files.into_iter();
    let offers = files.map(|it| offer(it.name, it.content.get().as_bytes())).collect();
    Ok((offers, batch.dry_run))
}

fn offer(name: String, bytes: &[u8]) -> Offer {
    Offer { name, bytes: Zeroizing::new(bytes.to_vec()), origin: Origin::Elsewhere }
}

// === impl ShownImport ===

impl From<Imported> for ShownImport {
    fn from(done: Imported) -> Self {
        let Imported { name, outcome } = done;
        match outcome {
            Ok(taken) => {
                let result = ShownResult::from(taken.change);
                Self { name, result, account: taken.into(), error: None }
            }
            Err(why) => Self {
                name,
                result: ShownResult::Refused,
                account: ShownTaken::default(),
                error: Some(why.to_string()),
            },
        }
    }
}

// === impl ShownResult ===

impl From<Change> for ShownResult {
    fn from(change: Change) -> Self {
        match change {
            Change::Added => Self::Added,
            Change::Updated => Self::Updated,
            Change::Unchanged => Self::Unchanged,
        }
    }
}

// === impl ShownTaken ===

impl From<Taken> for ShownTaken {
    fn from(taken: Taken) -> Self {
        Self {
            auth_id: taken.auth_id.map(|it| it.to_string()),
            label: taken.label.map(|it| it.to_string()),
            email_masked: taken.email.map(|it| it.to_string()),
            plan: taken.plan,
            warnings: taken.warnings.iter().map(ToString::to_string).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(body: &str) -> Result<(Vec<(String, String)>, bool), String> {
        let (offers, dry_run) = read(body.as_bytes())?;
        let text = |it: &Offer| String::from_utf8(it.bytes.to_vec()).unwrap();
        Ok((offers.iter().map(|it| (it.name.clone(), text(it))).collect(), dry_run))
    }

    #[test]
    fn every_file_of_a_batch_is_kept_byte_for_byte() {
        let content = r#"{ "b":1.50, "a": 2,"a":3 }"#;
        let body = format!(r#"{{"dry_run":true,"files":[{{"name":"n","content":{content}}}]}}"#);
        let (files, dry_run) = told(&body).unwrap();
        assert_eq!(files, [("n".to_owned(), content.to_owned())]);
        assert!(dry_run);
    }

    #[test]
    fn a_credential_may_come_alone() {
        let body = r#" {"tokens": {}} "#;
        assert_eq!(told(body), Ok((vec![("credential".to_owned(), body.to_owned())], false)));
    }

    #[test]
    fn what_is_wrong_is_told_without_the_body() {
        for body in [
            "",
            "[]",
            "canary",
            r#"{"files":[]}"#,
            r#"{"files":{"canary":1}}"#,
            r#"{"files":[{"name":"n"}]}"#,
            r#"{"files":[{"name":"n","content":{},"canary":1}]}"#,
            r#"{"files":[],"canary":1}"#,
        ] {
            let why = told(body).unwrap_err();
            assert!(!why.contains("canary"), "{body}: {why}");
        }
    }
}
