//! Opens the database and brings its schema up to date.

use std::{
    fs::OpenOptions,
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::{Path, PathBuf},
    sync::LazyLock,
    time::Duration,
};

use rusqlite::{Connection, OpenFlags};
use rusqlite_migration::{M, Migrations};

use super::StorageError;

const NAME: &str = "codex-edge.sqlite3";

/// How long a statement waits for another process that still drains.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// In order, append only.
static STEPS: [M<'static>; 2] = [
    M::up(include_str!("../../migrations/01-accounts-and-users.sql")),
    M::up(include_str!("../../migrations/02-reconciliation.sql")),
];

static MIGRATIONS: LazyLock<Migrations<'static>> = LazyLock::new(|| Migrations::from_slice(&STEPS));

pub(super) fn database_path(data_dir: &Path) -> PathBuf {
    data_dir.join(NAME)
}

pub(super) fn open(path: &Path) -> Result<Connection, StorageError> {
    let unusable = |source| StorageError::Unusable { path: path.to_owned(), source };
    // SQLite would make it with the umask's mode.
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map_err(|source| StorageError::DataDir { path: path.to_owned(), source })?;
    let mut connection = Connection::open(path).map_err(unusable)?;
    check_version(&connection, path)?;
    configure(&connection).map_err(unusable)?;
    MIGRATIONS
        .to_latest(&mut connection)
        .map_err(|source| StorageError::Migration { path: path.to_owned(), source })?;
    Ok(connection)
}

pub(super) fn inspect(path: &Path) -> Result<(), StorageError> {
    if !path.exists() {
        return Ok(());
    }
    let unusable = |source| StorageError::Unusable { path: path.to_owned(), source };
    let connection = open_to_look(path).map_err(unusable)?;
    check_version(&connection, path)?;
    let verdict: String =
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(unusable)?;
    if verdict == "ok" {
        return Ok(());
    }
    let damaged = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    Err(unusable(rusqlite::Error::SqliteFailure(damaged, Some(verdict))))
}

/// Even a reader makes a log and its index beside the database, and cannot remove them. Where no
/// log waits, SQLite is told that nobody writes, and makes none.
fn open_to_look(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if Path::new(&log).exists() {
        return Connection::open_with_flags(path, flags);
    }
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            uri.push_str(&format!("%{byte:02x}"));
        }
    }
    uri.push_str("?immutable=1");
    Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)
}

pub(super) fn tells_of_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    error.sqlite_error_code().is_some_and(|it| matches!(it, DatabaseCorrupt | NotADatabase))
}

/// A newer program may have left a schema that this one can still use; it says so itself.
fn check_version(connection: &Connection, path: &Path) -> Result<(), StorageError> {
    let unusable = |source| StorageError::Unusable { path: path.to_owned(), source };
    let found: i64 =
        connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(unusable)?;
    let known = STEPS.len();
    if usize::try_from(found).is_ok_and(|found| found <= known) {
        return Ok(());
    }
    let oldest: rusqlite::Result<i64> =
        connection.query_row("SELECT oldest_schema FROM compatibility", [], |row| row.get(0));
    match oldest {
        Ok(oldest) if usize::try_from(oldest).is_ok_and(|oldest| oldest <= known) => Ok(()),
        Ok(_) | Err(_) => Err(StorageError::TooNew { path: path.to_owned(), found, known }),
    }
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "foreign_keys", true)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_migrations_are_sound() {
        MIGRATIONS.validate().unwrap();
    }

    #[test]
    fn a_database_of_a_newer_program_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        let connection = open(&path).unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
        assert!(check_version(&connection, &path).is_ok(), "its oldest schema is still ours");
        connection.execute("UPDATE compatibility SET oldest_schema = 98", []).unwrap();
        drop(connection);
        assert!(matches!(open(&path), Err(StorageError::TooNew { found: 99, .. })));
        assert!(matches!(inspect(&path), Err(StorageError::TooNew { .. })));
    }

    #[test]
    fn rubbish_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        let rubbish = b"this is no database, however long one looks at it".repeat(100);
        fs::write(&path, &rubbish).unwrap();
        assert!(matches!(open(&path), Err(StorageError::Unusable { .. })));
        assert_eq!(fs::read(&path).unwrap(), rubbish);
    }
}
