//! The accounts in the database: their labels, what an operator decided, and their health.

use std::{collections::HashMap, str::FromStr};

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::domain::{
    account::{AuthId, Label},
    credential::Fingerprint,
    health::{BlockRecord, HealthRecord, QuotaRecord},
};

/// An account that was seen at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub id: AuthId,
    pub label: Label,
    pub paused: bool,
    /// No file describes it, as far as the last process knew.
    pub removed: bool,
    /// Something is kept for it that a purge would delete.
    pub has_rows: bool,
}

/// A change of the rows of the accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    Labelled(AuthId, Label),
    Removed(AuthId),
    Returned(AuthId),
    Renamed { from: AuthId, to: AuthId },
    Purged(AuthId),
}

/// All accounts that were ever seen. A row that is no account is left out, and its label so drawn
/// anew.
///
/// # Errors
/// A database that cannot be read.
pub fn known(connection: &Connection) -> rusqlite::Result<Vec<Known>> {
    let mut statement = connection.prepare(
        "SELECT auth_id, label, paused, removed_at IS NOT NULL,
                EXISTS (SELECT 1 FROM account_health h WHERE h.auth_id = a.auth_id)
                OR EXISTS (SELECT 1 FROM bindings b WHERE b.auth_id = a.auth_id)
         FROM accounts a",
    )?;
    let rows = statement.query_map([], |row| {
        let (id, label): (String, String) = (row.get(0)?, row.get(1)?);
        let (paused, removed, has_rows) = (row.get(2)?, row.get(3)?, row.get(4)?);
        let names = AuthId::parse(&id).zip(Label::parse(&label));
        Ok(names.map(|(id, label)| Known { id, label, paused, removed, has_rows }))
    })?;
    rows.filter_map(Result::transpose).collect()
}

/// Writes changes down, in their order.
///
/// # Errors
/// A database that cannot be written, or a label that another account has.
pub fn write(connection: &Connection, entries: &[Entry], now: Timestamp) -> rusqlite::Result<()> {
    for entry in entries {
        match entry {
            Entry::Labelled(id, label) => insert_label(connection, id, label, now)?,
            Entry::Removed(id) => {
                let sql = "UPDATE accounts SET removed_at = ?2 WHERE auth_id = ?1";
                connection.execute(sql, params![id.as_str(), now.to_string()])?;
            }
            Entry::Returned(id) => {
                let sql = "UPDATE accounts SET removed_at = NULL WHERE auth_id = ?1";
                connection.execute(sql, [id.as_str()])?;
            }
            Entry::Renamed { from, to } => rename(connection, from, to, now)?,
            Entry::Purged(id) => purge(connection, id)?,
        }
    }
    Ok(())
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

/// An operator's decision.
///
/// # Errors
/// A database that cannot be written.
pub fn set_paused(connection: &Connection, id: &AuthId, paused: bool) -> rusqlite::Result<()> {
    let sql = "UPDATE accounts SET paused = ?2 WHERE auth_id = ?1";
    connection.execute(sql, params![id.as_str(), paused])?;
    Ok(())
}

/// Everything that follows an account goes to its new id. A row that the new id has already keeps
/// its label, and its operator's pause.
fn rename(
    connection: &Connection,
    from: &AuthId,
    to: &AuthId,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let names = [from.as_str(), to.as_str()];
    let taken = connection
        .query_row("SELECT 1 FROM accounts WHERE auth_id = ?1", [to.as_str()], |_| Ok(()))
        .optional()?
        .is_some();
    if !taken {
        // The other tables follow by their foreign keys.
        connection.execute("UPDATE accounts SET auth_id = ?2 WHERE auth_id = ?1", names)?;
        return Ok(());
    }
    purge(connection, to)?;
    for table in ["account_health", "bindings"] {
        let sql = format!("UPDATE {table} SET auth_id = ?2 WHERE auth_id = ?1");
        connection.execute(&sql, names)?;
    }
    connection.execute(
        "UPDATE accounts SET removed_at = NULL, paused = paused
             OR EXISTS (SELECT 1 FROM accounts WHERE auth_id = ?1 AND paused)
         WHERE auth_id = ?2",
        names,
    )?;
    let sql = "UPDATE accounts SET removed_at = ?2, paused = 0 WHERE auth_id = ?1";
    connection.execute(sql, params![from.as_str(), now.to_string()])?;
    Ok(())
}

/// The label stays, so that it never comes to mean another account, and so does an operator's pause.
fn purge(connection: &Connection, id: &AuthId) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM account_health WHERE auth_id = ?1", [id.as_str()])?;
    connection.execute("DELETE FROM bindings WHERE auth_id = ?1", [id.as_str()])?;
    Ok(())
}

/// What was held against the accounts. What cannot be understood is as good as not kept.
///
/// # Errors
/// A database that cannot be read.
pub fn healths(connection: &Connection) -> rusqlite::Result<HashMap<AuthId, HealthRecord>> {
    let mut statement = connection.prepare(
        "SELECT auth_id, rejected, quota_seen_at, quota_until, quota_resets_at, quota_plan,
                workspace_seen_at, workspace_until
         FROM account_health",
    )?;
    let rows = statement.query_map([], |row| {
        let id: String = row.get(0)?;
        let rejected: Option<Vec<u8>> = row.get(1)?;
        let rejected = rejected.and_then(|it| <[u8; 16]>::try_from(it).ok());
        let quota = time(row, 2)?.zip(time(row, 3)?);
        let (resets_at, plan_type) = (time(row, 4)?, row.get(5)?);
        let record = HealthRecord {
            rejected: rejected.map(Fingerprint::from_bytes),
            quota: quota.map(|(seen_at, until)| QuotaRecord {
                seen_at,
                until,
                resets_at,
                plan_type,
            }),
            workspace: time(row, 6)?
                .zip(time(row, 7)?)
                .map(|(seen_at, until)| BlockRecord { seen_at, until }),
        };
        Ok(AuthId::parse(&id).map(|id| (id, record)))
    })?;
    rows.filter_map(Result::transpose).collect()
}

/// Keeps what is held against an account; nothing at all leaves no row. An account that the database
/// does not know is left out.
///
/// # Errors
/// A database that cannot be written.
pub fn save_health(
    connection: &Connection,
    account: &AuthId,
    record: &HealthRecord,
) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM account_health WHERE auth_id = ?1", [account.as_str()])?;
    if *record == HealthRecord::default() {
        return Ok(());
    }
    let text = |it: Option<Timestamp>| it.map(|it| it.to_string());
    let (quota, workspace) = (record.quota.as_ref(), record.workspace.as_ref());
    let mut statement = connection.prepare_cached(
        "INSERT INTO account_health
         (auth_id, rejected, quota_seen_at, quota_until, quota_resets_at, quota_plan,
          workspace_seen_at, workspace_until)
         SELECT auth_id, ?2, ?3, ?4, ?5, ?6, ?7, ?8 FROM accounts WHERE auth_id = ?1",
    )?;
    statement.execute(params![
        account.as_str(),
        record.rejected.as_ref().map(Fingerprint::as_bytes),
        text(quota.map(|it| it.seen_at)),
        text(quota.map(|it| it.until)),
        text(quota.and_then(|it| it.resets_at)),
        quota.and_then(|it| it.plan_type.as_deref()),
        text(workspace.map(|it| it.seen_at)),
        text(workspace.map(|it| it.until)),
    ])?;
    Ok(())
}

fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    let text: Option<String> = row.get(column)?;
    Ok(text.and_then(|it| Timestamp::from_str(&it).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.pragma_update(None, "foreign_keys", true).unwrap();
        for step in [
            include_str!("../../migrations/01-accounts-and-users.sql"),
            include_str!("../../migrations/02-reconciliation.sql"),
        ] {
            connection.execute_batch(step).unwrap();
        }
        connection
    }

    fn id(digit: char) -> AuthId {
        AuthId::parse(&format!("acc_{}", digit.to_string().repeat(20))).unwrap()
    }

    fn label(letter: char) -> Label {
        Label::parse(&format!("p{}", letter.to_string().repeat(6))).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn record() -> HealthRecord {
        HealthRecord {
            rejected: Some(Fingerprint::from_bytes([7; 16])),
            quota: Some(QuotaRecord {
                seen_at: at(1),
                until: at(2),
                resets_at: Some(at(3)),
                plan_type: Some("pro".to_owned()),
            }),
            workspace: Some(BlockRecord { seen_at: at(4), until: at(5) }),
        }
    }

    fn bind(connection: &Connection, digest: u8, account: &AuthId) {
        let sql = "INSERT INTO bindings VALUES (?1, ?2, '', '')";
        connection.execute(sql, params![[digest; 32], account.as_str()]).unwrap();
    }

    fn bound(connection: &Connection, account: &AuthId) -> i64 {
        let sql = "SELECT count(*) FROM bindings WHERE auth_id = ?1";
        connection.query_row(sql, [account.as_str()], |row| row.get(0)).unwrap()
    }

    fn row(connection: &Connection, account: &AuthId) -> Option<Known> {
        known(connection).unwrap().into_iter().find(|it| it.id == *account)
    }

    #[test]
    fn labels_come_back_as_they_were_kept() {
        let connection = database();
        let sql = "INSERT INTO accounts (auth_id, label, created_at) VALUES ('rubbish', 'x', '')";
        connection.execute(sql, []).unwrap();
        write(
            &connection,
            &[Entry::Labelled(id('1'), label('a')), Entry::Labelled(id('1'), label('b'))],
            at(0),
        )
        .unwrap();
        let known = known(&connection).unwrap();
        let wanted = Known {
            id: id('1'),
            label: label('a'),
            paused: false,
            removed: false,
            has_rows: false,
        };
        assert_eq!(known, [wanted]);
    }

    #[test]
    fn health_comes_back_as_it_was_kept() {
        let connection = database();
        save_health(&connection, &id('1'), &record()).unwrap();
        assert!(healths(&connection).unwrap().is_empty(), "nobody knows the account");
        insert_label(&connection, &id('1'), &label('a'), at(0)).unwrap();
        save_health(&connection, &id('1'), &record()).unwrap();
        assert_eq!(healths(&connection).unwrap(), HashMap::from([(id('1'), record())]));
        save_health(&connection, &id('1'), &HealthRecord::default()).unwrap();
        assert!(healths(&connection).unwrap().is_empty());
    }

    #[test]
    fn a_tombstone_keeps_the_rows_and_a_purge_keeps_label_and_pause() {
        let connection = database();
        insert_label(&connection, &id('1'), &label('a'), at(0)).unwrap();
        set_paused(&connection, &id('1'), true).unwrap();
        save_health(&connection, &id('1'), &record()).unwrap();
        bind(&connection, 1, &id('1'));
        write(&connection, &[Entry::Removed(id('1'))], at(1)).unwrap();
        let tombstone = row(&connection, &id('1')).unwrap();
        assert!(tombstone.removed && tombstone.has_rows);
        write(&connection, &[Entry::Returned(id('1'))], at(2)).unwrap();
        assert!(!row(&connection, &id('1')).unwrap().removed);
        write(&connection, &[Entry::Removed(id('1')), Entry::Purged(id('1'))], at(3)).unwrap();
        let purged = row(&connection, &id('1')).unwrap();
        assert!(purged.removed && !purged.has_rows && purged.paused);
        assert_eq!(purged.label, label('a'));
    }

    #[test]
    fn everything_follows_a_new_id() {
        let connection = database();
        insert_label(&connection, &id('1'), &label('a'), at(0)).unwrap();
        set_paused(&connection, &id('1'), true).unwrap();
        save_health(&connection, &id('1'), &record()).unwrap();
        bind(&connection, 1, &id('1'));
        let renamed = Entry::Renamed { from: id('1'), to: id('2') };
        write(&connection, &[renamed], at(1)).unwrap();
        assert_eq!(row(&connection, &id('1')), None);
        let renamed = row(&connection, &id('2')).unwrap();
        assert!(renamed.paused && renamed.has_rows && renamed.label == label('a'));
        assert_eq!(bound(&connection, &id('2')), 1);
    }

    #[test]
    fn a_new_id_that_was_known_before_keeps_its_label_and_either_pause() {
        let connection = database();
        for (account, letter) in [('1', 'a'), ('2', 'b')] {
            insert_label(&connection, &id(account), &label(letter), at(0)).unwrap();
        }
        set_paused(&connection, &id('1'), true).unwrap();
        save_health(&connection, &id('1'), &record()).unwrap();
        bind(&connection, 1, &id('1'));
        bind(&connection, 2, &id('2'));
        write(&connection, &[Entry::Removed(id('2'))], at(1)).unwrap();
        let renamed = Entry::Renamed { from: id('1'), to: id('2') };
        write(&connection, &[renamed], at(2)).unwrap();
        let to = row(&connection, &id('2')).unwrap();
        assert!(to.paused && !to.removed && to.label == label('b'));
        assert_eq!(bound(&connection, &id('2')), 1, "the old ones are not the living account's");
        assert_eq!(healths(&connection).unwrap(), HashMap::from([(id('2'), record())]));
        let from = row(&connection, &id('1')).unwrap();
        assert!(from.removed && !from.paused && !from.has_rows);
    }
}
