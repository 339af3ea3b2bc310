//! Users and keys in the database.

use std::str::FromStr;

use jiff::Timestamp;
pub(super) use rusqlite::Connection;
use rusqlite::{Result, types::Type};

use super::keys::{ApiKey, Hash, KeyId, MintedKey, User, UserId};

/// A change that has nothing to say.
pub(super) type Done = Result<()>;

/// A user as the database has it.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) id: UserId,
    pub(super) name: String,
    pub(super) enabled: bool,
    created_at: Timestamp,
    pub(super) keys: Vec<KeyRow>,
}

#[derive(Debug)]
pub(super) struct KeyRow {
    pub(super) hash: Hash,
    pub(super) shown: ApiKey,
}

/// A user to be inserted.
#[derive(Debug)]
pub(super) struct NewUser {
    pub(super) id: UserId,
    pub(super) name: String,
    pub(super) now: Timestamp,
}

// === impl Row ===

impl Row {
    pub(super) fn into_user(self) -> User {
        User {
            id: self.id,
            name: self.name,
            enabled: self.enabled,
            created_at: self.created_at,
            keys: self.keys.into_iter().map(|it| it.shown).collect(),
        }
    }
}

/// Every user with every key, the oldest first.
pub(super) fn all(connection: &Connection) -> Result<Vec<Row>> {
    let mut statement = connection
        .prepare("SELECT id, name, enabled, created_at FROM users ORDER BY created_at, id")?;
    let users = statement.query_map([], |row| {
        Ok(Row {
            id: UserId::from_row(row.get(0)?),
            name: row.get(1)?,
            enabled: row.get(2)?,
            created_at: time(row, 3)?,
            keys: Vec::new(),
        })
    })?;
    let mut users: Vec<Row> = users.collect::<Result<_>>()?;
    for user in &mut users {
        user.keys = keys_of(connection, &user.id)?;
    }
    Ok(users)
}

fn keys_of(connection: &Connection, user: &UserId) -> Result<Vec<KeyRow>> {
    let mut statement = connection.prepare_cached(
        "SELECT hash, id, name, masked, enabled, created_at, expires_at, last_used_at
         FROM api_keys WHERE user_id = ?1 ORDER BY created_at, id",
    )?;
    let keys = statement.query_map([user.as_str()], |row| {
        Ok(KeyRow {
            hash: row.get(0)?,
            shown: ApiKey {
                id: KeyId::from_row(row.get(1)?),
                name: row.get(2)?,
                masked: row.get(3)?,
                enabled: row.get(4)?,
                created_at: time(row, 5)?,
                expires_at: optional_time(row, 6)?,
                last_used_at: optional_time(row, 7)?,
            },
        })
    })?;
    keys.collect()
}

pub(super) fn insert(connection: &Connection, user: &NewUser, key: &MintedKey) -> Done {
    connection.execute(
        "INSERT INTO users (id, name, created_at) VALUES (?1, ?2, ?3)",
        (user.id.as_str(), &user.name, user.now.to_string()),
    )?;
    insert_key(connection, &user.id, key)
}

pub(super) fn set_enabled(connection: &Connection, user: &UserId, enabled: bool) -> Done {
    connection
        .execute("UPDATE users SET enabled = ?2 WHERE id = ?1", (user.as_str(), enabled))
        .map(drop)
}

pub(super) fn replace_keys(connection: &Connection, user: &UserId, key: &MintedKey) -> Done {
    connection.execute("DELETE FROM api_keys WHERE user_id = ?1", [user.as_str()])?;
    insert_key(connection, user, key)
}

pub(super) fn delete(connection: &Connection, user: &UserId) -> Done {
    connection.execute("DELETE FROM users WHERE id = ?1", [user.as_str()]).map(drop)
}

fn insert_key(connection: &Connection, user: &UserId, key: &MintedKey) -> Done {
    connection
        .execute(
            "INSERT INTO api_keys (id, user_id, name, hash, masked, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            (
                key.id.as_str(),
                user.as_str(),
                &key.name,
                key.hash,
                &key.masked,
                key.created_at.to_string(),
            ),
        )
        .map(drop)
}

fn time(row: &rusqlite::Row<'_>, column: usize) -> Result<Timestamp> {
    parse(column, &row.get::<_, String>(column)?)
}

fn optional_time(row: &rusqlite::Row<'_>, column: usize) -> Result<Option<Timestamp>> {
    let text: Option<String> = row.get(column)?;
    text.map(|text| parse(column, &text)).transpose()
}

fn parse(column: usize, text: &str) -> Result<Timestamp> {
    Timestamp::from_str(text).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
    })
}
