//! Users and their keys, from the first start to the last deletion.

use std::{fs, path::Path, sync::Arc, task::Poll};

use codex_edge::{
    storage::Storage,
    telemetry::metrics::Metrics,
    users::{UserError, Users, keys::Refused},
};
use jiff::{SignedDuration, Timestamp};
use tempfile::TempDir;

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);
const SERVER_KEY: [u8; 32] = [9; 32];

fn opened(data_dir: &Path) -> Users {
    open_with(data_dir, SERVER_KEY)
}

/// Opening blocks, which a runtime's own thread must not.
async fn users(data_dir: &Path) -> Users {
    let data_dir = data_dir.to_owned();
    tokio::task::spawn_blocking(move || opened(&data_dir)).await.unwrap()
}

fn open_with(data_dir: &Path, server_key: [u8; 32]) -> Users {
    let storage = Storage::open(data_dir, Arc::new(Metrics::new().unwrap())).unwrap();
    Users::open(storage, server_key).unwrap()
}

fn refusal(users: &Users, key: &str) -> Refused {
    users.keyring().authenticate(key.as_bytes(), NOW).unwrap_err()
}

#[tokio::test]
async fn a_key_opens_for_its_user_also_after_a_restart() {
    let root = TempDir::new().unwrap();
    let first = users(root.path()).await;
    let made = first.create("ann", NOW).await.unwrap();
    let key = made.value.expose().to_owned();
    drop(first);
    let again = users(root.path()).await;
    let tenant = again.keyring().authenticate(key.as_bytes(), NOW).unwrap();
    assert_eq!((tenant.user, tenant.key), (made.user.id, made.key.id));
    assert_eq!(&*tenant.name, "ann");
}

#[tokio::test]
async fn nothing_but_the_whole_key_opens() {
    let root = TempDir::new().unwrap();
    let users = users(root.path()).await;
    let made = users.create("ann", NOW).await.unwrap();
    let key = made.value.expose();
    let long = format!("cek_{}", "x".repeat(100_000));
    for wrong in ["", "cek_", &key[..46], &key[4..], &format!("{key} "), &long, "cek_\u{0}"] {
        assert_eq!(refusal(&users, wrong), Refused::Unknown, "{} bytes", wrong.len());
    }
    assert_eq!(refusal(&users, &made.key.masked), Refused::Unknown);
    assert_eq!(refusal(&users, &key.to_uppercase()), Refused::Unknown);
}

#[tokio::test]
async fn the_database_holds_no_key() {
    let root = TempDir::new().unwrap();
    let users = users(root.path()).await;
    let made = users.create("ann", NOW).await.unwrap();
    drop(users);
    let secret = &made.value.expose().as_bytes()[4..];
    for file in fs::read_dir(root.path()).unwrap().map(Result::unwrap) {
        let bytes = fs::read(file.path()).unwrap();
        assert!(!bytes.windows(16).any(|it| it == &secret[..16]), "{:?}", file.path());
    }
}

#[test]
fn another_server_key_knows_no_client_key() {
    let root = TempDir::new().unwrap();
    let file = root.path().join("local.key");
    opened(root.path()).create_local(&file, NOW).unwrap();
    let other = open_with(root.path(), [8; 32]);
    assert_eq!(refusal(&other, fs::read_to_string(&file).unwrap().trim()), Refused::Unknown);
}

#[tokio::test]
async fn a_new_key_ends_the_old_one_and_keeps_the_user() {
    let root = TempDir::new().unwrap();
    let users = users(root.path()).await;
    let old = users.create("ann", NOW).await.unwrap();
    let new = users.reset_key("ann", NOW + SignedDuration::from_secs(1)).await.unwrap();
    assert_eq!(refusal(&users, old.value.expose()), Refused::Unknown);
    let tenant = users.keyring().authenticate(new.value.expose().as_bytes(), NOW).unwrap();
    assert_eq!(tenant.user, old.user.id);
    assert_ne!(tenant.key, old.key.id);
}

#[tokio::test]
async fn a_user_that_is_switched_off_is_told_apart_from_a_stranger() {
    let root = TempDir::new().unwrap();
    let users = users(root.path()).await;
    let made = users.create("ann", NOW).await.unwrap();
    assert!(users.has_usable_key(NOW));
    users.set_enabled("ann", false, NOW).await.unwrap();
    assert_eq!(refusal(&users, made.value.expose()), Refused::Disabled);
    assert!(!users.has_usable_key(NOW));
    users.set_enabled(made.user.id.as_str(), true, NOW).await.unwrap();
    users.keyring().authenticate(made.value.expose().as_bytes(), NOW).unwrap();
    users.delete("ann").await.unwrap();
    assert_eq!(refusal(&users, made.value.expose()), Refused::Unknown);
    assert!(users.list().is_empty());
}

#[tokio::test]
async fn a_name_is_taken_once_and_looks_like_one() {
    let root = TempDir::new().unwrap();
    let users = users(root.path()).await;
    users.create("ann", NOW).await.unwrap();
    let taken = users.create("ANN", NOW).await.unwrap_err();
    assert!(matches!(taken, UserError::NameTaken { .. }), "{taken}");
    for name in ["", " ", "a b", "usr_1", "a\n", &"a".repeat(65), "ä"] {
        let bad = users.create(name, NOW).await.unwrap_err();
        assert!(matches!(bad, UserError::BadName), "{name:?}");
    }
    let nobody = users.delete("bob").await.unwrap_err();
    assert!(matches!(nobody, UserError::NotFound), "{nobody}");
}

#[tokio::test]
async fn a_change_holds_even_if_whoever_asked_for_it_has_gone() {
    let root = TempDir::new().unwrap();
    let users = users(root.path()).await;
    let made = users.create("ann", NOW).await.unwrap();
    {
        let mut change = std::pin::pin!(users.set_enabled("ann", false, NOW));
        let begun = futures::poll!(change.as_mut());
        assert!(matches!(begun, Poll::Pending));
    }
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    while users.keyring().authenticate(made.value.expose().as_bytes(), NOW).is_ok() {
        assert!(tokio::time::Instant::now() < deadline, "the key still opens");
        tokio::task::yield_now().await;
    }
}

#[test]
fn the_local_user_gets_a_key_file_that_opens_and_is_its_owners_only() {
    use std::os::unix::fs::MetadataExt;

    let root = TempDir::new().unwrap();
    let users = opened(root.path());
    let file = root.path().join("local.key");
    users.create_local(&file, NOW).unwrap();
    let key = fs::read_to_string(&file).unwrap();
    let tenant = users.keyring().authenticate(key.trim().as_bytes(), NOW).unwrap();
    assert_eq!(&*tenant.name, "local");
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn the_key_file_of_a_lost_database_gives_way_to_a_new_one() {
    let root = TempDir::new().unwrap();
    let users = opened(root.path());
    let file = root.path().join("local.key");
    fs::write(&file, "cek_of_a_database_that_was_moved_away\n").unwrap();
    users.create_local(&file, NOW).unwrap();
    let key = fs::read_to_string(&file).unwrap();
    users.keyring().authenticate(key.trim().as_bytes(), NOW).unwrap();
}
