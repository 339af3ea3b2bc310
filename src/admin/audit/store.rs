//! The audit in the database, table `audit`.

use std::str::FromStr;

use jiff::Timestamp;
use rusqlite::{Connection, Result, types::Type};
use serde::Serialize;

/// One change, or the attempt at one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(in crate::admin) struct Entry {
    pub(super) at: Timestamp,
    pub(super) actor: String,
    pub(super) action: String,
    pub(super) target: String,
    pub(super) result: String,
}

/// Adds a row, and drops those that are older than the newest `kept`.
pub(super) fn insert(connection: &Connection, entry: &Entry, kept: u32) -> Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO audit (at, actor, action, target, result) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let Entry { at, actor, action, target, result } = entry;
    statement.execute((at.to_string(), actor, action, target, result))?;
    let oldest = connection.last_insert_rowid() - i64::from(kept);
    connection.prepare_cached("DELETE FROM audit WHERE id <= ?1")?.execute([oldest]).map(drop)
}

/// The newest rows, the newest first.
pub(super) fn newest(connection: &Connection, limit: u32) -> Result<Vec<Entry>> {
    let mut statement = connection.prepare_cached(
        "SELECT at, actor, action, target, result FROM audit ORDER BY id DESC LIMIT ?1",
    )?;
    let rows = statement.query_map([limit], |row| {
        let at: String = row.get(0)?;
        let at = Timestamp::from_str(&at).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error))
        })?;
        Ok(Entry {
            at,
            actor: row.get(1)?,
            action: row.get(2)?,
            target: row.get(3)?,
            result: row.get(4)?,
        })
    })?;
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_rows_are_kept_and_come_first() {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch(
                "CREATE TABLE audit (id INTEGER PRIMARY KEY, at TEXT NOT NULL, actor TEXT NOT NULL,
                 action TEXT NOT NULL, target TEXT NOT NULL, result TEXT NOT NULL) STRICT;",
            )
            .unwrap();
        for number in 1..=12 {
            let entry = Entry {
                at: Timestamp::from_second(number).unwrap(),
                actor: "admin".to_owned(),
                action: "users.create".to_owned(),
                target: format!("usr_{number}"),
                result: "ok".to_owned(),
            };
            insert(&connection, &entry, 5).unwrap();
        }
        let targets = |limit| -> Vec<String> {
            newest(&connection, limit).unwrap().into_iter().map(|it| it.target).collect()
        };
        assert_eq!(targets(2), ["usr_12", "usr_11"]);
        assert_eq!(targets(100).len(), 5);
    }
}
