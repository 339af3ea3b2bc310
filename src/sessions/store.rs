//! The bindings in the database, table `bindings`.

use std::str::FromStr;

use jiff::Timestamp;
use rusqlite::{Connection, params};

use super::Digest;
use crate::domain::account::AuthId;

/// A binding as it was kept.
pub(super) struct Kept {
    pub(super) digest: Digest,
    pub(super) account: AuthId,
    pub(super) until: Timestamp,
}

/// The newest `max` bindings that still hold, oldest first. The others are deleted.
pub(super) fn load(
    connection: &Connection,
    max: usize,
    now: Timestamp,
) -> rusqlite::Result<Vec<Kept>> {
    sweep(connection, max, now)?;
    let mut statement = connection
        .prepare("SELECT digest, auth_id, expires_at FROM bindings ORDER BY expires_at")?;
    let rows = statement.query_map([], |row| {
        let digest: Vec<u8> = row.get(0)?;
        let (account, until): (String, String) = (row.get(1)?, row.get(2)?);
        let digest = Digest::try_from(digest).ok();
        let named = digest.zip(AuthId::parse(&account)).zip(Timestamp::from_str(&until).ok());
        Ok(named.map(|((digest, account), until)| Kept { digest, account, until }))
    })?;
    rows.filter_map(Result::transpose).collect()
}

/// Keeps a binding. One of an account that the database does not know is left out.
pub(super) fn save(connection: &Connection, kept: &Kept, now: Timestamp) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO bindings (digest, auth_id, created_at, expires_at)
         SELECT ?1, auth_id, ?3, ?4 FROM accounts WHERE auth_id = ?2
         ON CONFLICT (digest) DO UPDATE SET
             auth_id = excluded.auth_id, created_at = excluded.created_at,
             expires_at = excluded.expires_at",
    )?;
    let (created, until) = (now.to_string(), kept.until.to_string());
    statement.execute(params![kept.digest, kept.account.as_str(), created, until])?;
    Ok(())
}

/// Deletes what does not hold any more, and of the rest all but the newest `max`.
pub(super) fn sweep(connection: &Connection, max: usize, now: Timestamp) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM bindings WHERE expires_at <= ?1", [now.to_string()])?;
    connection.execute(
        "DELETE FROM bindings WHERE digest NOT IN
         (SELECT digest FROM bindings ORDER BY expires_at DESC LIMIT ?1)",
        [i64::try_from(max).unwrap_or(i64::MAX)],
    )?;
    Ok(())
}
