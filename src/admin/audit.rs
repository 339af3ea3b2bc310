//! Who changed what through the management, and how it ended.
//!
//! Every change is written down once it has ended, a refused one too. A row names accounts and
//! users by their opaque ids and holds nothing that came from outside.

mod store;

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use serde::{Deserialize, Serialize};

use super::{AdminState, fault::Fault};

use self::store::Entry;

/// Rows that are kept; older ones give way.
const KEPT: u32 = 10_000;

/// Rows in an answer, unless another number is asked for.
const LISTED: u32 = 100;

/// Whoever holds the admin key.
const ACTOR: &str = "admin";

pub(super) const OK: &str = "ok";

/// The target of a change that meant nobody the gateway knows.
pub(super) const NOBODY: &str = "-";

/// How a change ended, and for whom it was meant.
pub(super) type Ended<T> = (String, Result<T, Fault>);

#[derive(Serialize)]
pub(super) struct AuditList {
    audit: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Window {
    limit: Option<u32>,
}

pub(super) async fn list(
    State(state): State<AdminState>,
    window: Result<Query<Window>, QueryRejection>,
) -> Result<Json<AuditList>, Fault> {
    let limit = window.map_or(0, |it| it.0.limit.unwrap_or(LISTED));
    if !(1..=KEPT).contains(&limit) {
        let want = format!("the query holds at most a limit from 1 to {KEPT}");
        return Err(Fault::InvalidRequest(want));
    }
    let rows = state.accounts.storage.write(move |connection| store::newest(connection, limit));
    rows.await.map(|audit| Json(AuditList { audit })).map_err(|error| {
        tracing::error!(%error, "The audit cannot be read: {error}");
        Fault::Internal
    })
}

/// Makes a change and writes down its end, in a task of its own: a caller that hangs up half way
/// must not leave half of it done, or all of it and no row.
pub(super) async fn recorded<T: Send + 'static>(
    state: &AdminState,
    action: &'static str,
    change: impl Future<Output = Ended<T>> + Send + 'static,
) -> Result<T, Fault> {
    recorded_as(state, action, change, |_| OK).await
}

/// The same for a change whose answer tells itself how it ended.
pub(super) async fn recorded_as<T: Send + 'static>(
    state: &AdminState,
    action: &'static str,
    change: impl Future<Output = Ended<T>> + Send + 'static,
    result_of: fn(&T) -> &'static str,
) -> Result<T, Fault> {
    let recorder = state.clone();
    let task = state.accounts.tasks.finish(async move {
        let (target, done) = change.await;
        let result = done.as_ref().map_or_else(Fault::code, result_of);
        write(&recorder, action, target, result).await;
        done
    });
    task.await.unwrap_or_else(|error| {
        tracing::error!(%error, "A change by the management ({action}) broke off: {error}");
        Err(Fault::Internal)
    })
}

/// Writes a row. The change stands even if that fails, so that is only told.
pub(super) async fn write(
    state: &AdminState,
    action: &'static str,
    target: String,
    result: &'static str,
) {
    tracing::info!(%target, result, "The operator asked for {action} of {target}: {result}");
    let entry = Entry {
        at: state.accounts.clock.now(),
        actor: ACTOR.to_owned(),
        action: action.to_owned(),
        target,
        result: result.to_owned(),
    };
    let written = state.accounts.storage.write(move |it| store::insert(it, &entry, KEPT)).await;
    if let Err(error) = written {
        tracing::error!(%error, "A change ({action}) could not be written into the audit: {error}");
    }
}
