//! The labels of the accounts in the database, table `accounts`.

use std::collections::HashMap;

use jiff::Timestamp;
use rusqlite::{Connection, params};

use crate::domain::account::{AuthId, Label};

/// All labels that were ever given. A row that is no label is left out, and so drawn anew.
///
/// # Errors
/// A database that cannot be read.
pub fn labels(connection: &Connection) -> rusqlite::Result<HashMap<AuthId, Label>> {
    let mut statement = connection.prepare("SELECT auth_id, label FROM accounts")?;
    let rows = statement.query_map([], |row| {
        let (id, label): (String, String) = (row.get(0)?, row.get(1)?);
        Ok(AuthId::parse(&id).zip(Label::parse(&label)))
    })?;
    rows.filter_map(Result::transpose).collect()
}

/// Keeps a new label. An account that has one already keeps it.
///
/// # Errors
/// A database that cannot be written, or a label that another account has.
pub fn insert_label(
    connection: &Connection,
    account: &AuthId,
    label: &Label,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO accounts (auth_id, label, created_at) VALUES (?1, ?2, ?3)
         ON CONFLICT (auth_id) DO NOTHING",
    )?;
    statement.execute(params![account.as_str(), label.as_str(), now.to_string()])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_come_back_as_they_were_kept() {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch(
                "CREATE TABLE accounts
                 (auth_id TEXT PRIMARY KEY, label TEXT NOT NULL UNIQUE, created_at TEXT NOT NULL);
                 INSERT INTO accounts VALUES ('rubbish', 'paaaaaa', '');",
            )
            .unwrap();
        let id = AuthId::parse("acc_0123456789abcdef0123").unwrap();
        let (label, other) = (Label::parse("pa1b2c3").unwrap(), Label::parse("pzzzzzz").unwrap());
        insert_label(&connection, &id, &label, Timestamp::UNIX_EPOCH).unwrap();
        insert_label(&connection, &id, &other, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(labels(&connection).unwrap(), HashMap::from([(id, label)]));
    }
}
