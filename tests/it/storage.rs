//! The database as an operator meets it: modes, faults, a second process.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    sync::{Arc, mpsc},
};

use codex_edge::{
    storage::{Storage, StorageError},
    telemetry::metrics::Metrics,
};
use tempfile::TempDir;

const DATABASE: &str = "codex-edge.sqlite3";

fn open(data_dir: &Path) -> Result<Storage, StorageError> {
    Storage::open(data_dir, Arc::new(Metrics::new().unwrap()))
}

/// Every file of a directory with its bytes.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(Result::unwrap);
    files.map(|it| (it.file_name().into_string().unwrap(), fs::read(it.path()).unwrap())).collect()
}

#[test]
fn the_data_directory_and_all_in_it_are_their_owners_only() {
    let root = TempDir::new().unwrap();
    let data_dir = root.path().join("data");
    let storage = open(&data_dir).unwrap();
    storage.write_blocking(|it| it.execute("UPDATE users SET enabled = 1", [])).unwrap();
    assert_eq!(fs::metadata(&data_dir).unwrap().mode() & 0o777, 0o700);
    for file in fs::read_dir(&data_dir).unwrap().map(Result::unwrap) {
        let mode = file.metadata().unwrap().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", file.file_name());
    }
}

#[test]
fn a_second_opening_is_refused_by_name_and_a_later_one_is_not() {
    let root = TempDir::new().unwrap();
    let first = open(root.path()).unwrap();
    let refusal = open(root.path()).unwrap_err();
    assert!(
        matches!(refusal, StorageError::InUse { pid: Some(it), .. } if it == std::process::id())
    );
    let text = refusal.to_string();
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    assert!(text.contains("Stop it first"), "{text}");
    drop(first);
    drop(open(root.path()).unwrap());
}

#[test]
fn what_was_written_is_there_after_a_restart() {
    let root = TempDir::new().unwrap();
    let first = open(root.path()).unwrap();
    first.write_blocking(|it| insert_account(it, "acc_1", "paaaaaa")).unwrap();
    drop(first);
    let again = open(root.path()).unwrap();
    assert_eq!(again.write_blocking(|it| count_accounts(it)).unwrap(), 1);
}

#[test]
fn a_failed_job_takes_back_all_it_did_and_the_next_one_runs() {
    let root = TempDir::new().unwrap();
    let storage = open(root.path()).unwrap();
    let failed = storage.write_blocking(|it| {
        insert_account(it, "acc_1", "paaaaaa")?;
        insert_account(it, "acc_2", "paaaaaa")
    });
    assert!(matches!(failed, Err(StorageError::Write(_))));
    assert_eq!(storage.write_blocking(|it| count_accounts(it)).unwrap(), 0);
}

#[test]
fn a_queued_change_waits_for_nobody_and_fails_nobody() {
    let root = TempDir::new().unwrap();
    let storage = open(root.path()).unwrap();
    let (held, let_go) = mpsc::channel::<()>();
    storage.queue(move |_| {
        // The writer is busy until the queue has been filled.
        let _ = let_go.recv();
        Ok(())
    });
    for number in 0..2_000 {
        let id = format!("acc_{number}");
        storage.queue(move |it| insert_account(it, &id, &id));
    }
    storage.queue(|it| insert_account(it, "acc_0", "taken"));
    held.send(()).unwrap();
    let count = storage.write_blocking(|it| count_accounts(it)).unwrap();
    assert!((1..2_000).contains(&count), "{count} fitted in");
    storage.queue(|it| insert_account(it, "acc_0", "taken"));
    assert_eq!(storage.write_blocking(|it| count_accounts(it)).unwrap(), count);
    storage.queue(|it| insert_account(it, "acc_new", "free"));
    assert_eq!(storage.write_blocking(|it| count_accounts(it)).unwrap(), count + 1);
}

#[test]
fn looking_at_a_database_changes_nothing() {
    let root = TempDir::new().unwrap();
    let data_dir = root.path().join("data");
    Storage::inspect(&data_dir).unwrap();
    assert!(!data_dir.exists());
    drop(open(&data_dir).unwrap());
    let before = contents(&data_dir);
    Storage::inspect(&data_dir).unwrap();
    assert_eq!(contents(&data_dir), before);
}

#[test]
fn a_damaged_database_is_refused_with_advice_and_left_as_it_is() {
    let root = TempDir::new().unwrap();
    drop(open(root.path()).unwrap());
    let path = root.path().join(DATABASE);
    let mut bytes = fs::read(&path).unwrap();
    // The header stays whole, so that only a look at the pages finds the damage.
    bytes[4096..].fill(0x55);
    fs::write(&path, &bytes).unwrap();
    let read = open(root.path()).and_then(|it| it.write_blocking(|it| count_accounts(it)));
    for refusal in [Storage::inspect(root.path()).unwrap_err(), read.unwrap_err()] {
        assert!(matches!(refusal, StorageError::Unusable { .. }), "{refusal}");
        assert!(refusal.to_string().contains("restore a backup"), "{refusal}");
    }
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn a_data_directory_that_cannot_be_made_is_named() {
    let root = TempDir::new().unwrap();
    let file = root.path().join("file");
    fs::write(&file, "").unwrap();
    let refusal = open(&file.join("data")).unwrap_err().to_string();
    assert!(refusal.contains("file/data") && refusal.contains("server.data_dir"), "{refusal}");
}

#[test]
fn a_directory_that_others_can_read_is_used_all_the_same() {
    let root = TempDir::new().unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    open(root.path()).unwrap();
    assert_eq!(fs::metadata(root.path()).unwrap().mode() & 0o777, 0o755);
}

fn insert_account(it: &rusqlite::Connection, id: &str, label: &str) -> rusqlite::Result<()> {
    let sql = "INSERT INTO accounts (auth_id, label, created_at) VALUES (?1, ?2, 'now')";
    it.execute(sql, [id, label]).map(drop)
}

fn count_accounts(connection: &rusqlite::Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT count(*) FROM accounts", [], |row| row.get(0))
}
