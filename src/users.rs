//! People and their keys.
//!
//! The database is the truth; a [`keys::Keyring`] in memory answers requests, and is swapped whole
//! after each change that the database has taken.

pub mod keys;
pub mod store;

use std::{fs, io, path::Path, sync::Arc};

use jiff::Timestamp;
use parking_lot::RwLock;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::storage::{self, Storage, StorageError};

use keys::{ApiKey, ClientKey, KeyId, Keyring, Minted, User, UserId};

/// The user of the first start, while only this machine can reach the edge.
const LOCAL: &str = "local";

const NAME_MAX: usize = 64;

/// The users of the gateway.
#[derive(Debug)]
pub struct Users {
    storage: Storage,
    known: Arc<Known>,
    /// One change at a time, so that memory and database agree on the order.
    changing: Arc<Mutex<()>>,
}

/// What memory has of the database.
#[derive(Debug)]
struct Known {
    keyring: Arc<Keyring>,
    /// By age.
    users: RwLock<Vec<User>>,
}

/// A key that was just made. Its value is told once and kept nowhere.
#[derive(Debug)]
pub struct NewKey {
    pub user: User,
    pub key: ApiKey,
    pub value: ClientKey,
}

#[derive(Debug, thiserror::Error)]
pub enum UserError {
    #[error("there is no such user; \"codex-edge users list\" shows them")]
    NotFound,
    #[error("there is a user {name} already; choose another name")]
    NameTaken { name: String },
    #[error("a user's name has 1 to {NAME_MAX} letters, digits, '.', '_', '-' or '@'")]
    BadName,
    #[error(transparent)]
    Storage(#[from] StorageError),
}

// === impl Users ===

impl Users {
    /// Reads the users. `hash_key` is the server's own; with another one no key is known.
    /// Blocks on the database.
    ///
    /// # Errors
    /// If the database does not answer.
    pub fn open(storage: Storage, hash_key: [u8; 32]) -> Result<Self, StorageError> {
        let rows = storage.write_blocking(|connection| store::all(connection))?;
        let known = Known { keyring: Arc::new(Keyring::new(hash_key)), users: RwLock::default() };
        known.adopt(rows);
        Ok(Self { storage, known: Arc::new(known), changing: Arc::default() })
    }

    pub fn keyring(&self) -> Arc<Keyring> {
        Arc::clone(&self.known.keyring)
    }

    /// Every user, the oldest first.
    pub fn list(&self) -> Vec<User> {
        self.known.users.read().clone()
    }

    /// The user with this id or, in whatever case, this name.
    pub fn find(&self, id_or_name: &str) -> Option<User> {
        let users = self.known.users.read();
        let by_id = users.iter().find(|it| it.id.as_str() == id_or_name);
        by_id.or_else(|| users.iter().find(|it| it.name.eq_ignore_ascii_case(id_or_name))).cloned()
    }

    /// Whether anybody can come in.
    pub fn has_usable_key(&self, now: Timestamp) -> bool {
        let users = self.known.users.read();
        users.iter().any(|user| user.enabled && user.keys.iter().any(|key| key.is_usable(now)))
    }

    /// Makes a user with a first key.
    ///
    /// # Errors
    /// A name that is taken or no name, or a database that does not take the change.
    pub async fn create(&self, name: &str, now: Timestamp) -> Result<NewKey, UserError> {
        check_name(name)?;
        let turn = self.turn().await;
        self.check_free(name)?;
        let (id, minted) = self.draw(now);
        let (made, name) = (store::NewUser { id, name: name.to_owned(), now }, name.to_owned());
        let (value, key) = minted.split();
        let row = key.clone();
        self.change(turn, move |connection| store::insert(connection, &made, &row)).await?;
        self.told(&name, value, key.id)
    }

    /// Makes the user `local` and writes its key into `file`, for a start that nobody has prepared.
    /// A file that is there belongs to a database that is gone; its key opens nothing, so it gives
    /// way. Blocks on the database.
    ///
    /// # Errors
    /// If the file or the row cannot be written.
    pub fn create_local(&self, file: &Path, now: Timestamp) -> Result<(), LocalUserError> {
        let (id, minted) = self.draw(now);
        let (value, key) = minted.split();
        let text = format!("{}\n", value.expose());
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(LocalUserError::KeyFile(error));
            }
            Ok(()) | Err(_) => {}
        }
        storage::write_secret(file, text.as_bytes()).map_err(LocalUserError::KeyFile)?;
        let made = store::NewUser { id, name: LOCAL.to_owned(), now };
        let rows = self.storage.write_blocking(move |connection| {
            store::insert(connection, &made, &key)?;
            store::all(connection)
        })?;
        self.known.adopt(rows);
        Ok(())
    }

    /// Lets a user in, or not.
    ///
    /// # Errors
    /// If there is no such user, or the database does not take the change.
    pub async fn set_enabled(
        &self,
        id_or_name: &str,
        enabled: bool,
        _now: Timestamp,
    ) -> Result<User, UserError> {
        let turn = self.turn().await;
        let user = self.find(id_or_name).ok_or(UserError::NotFound)?;
        let id = user.id.clone();
        self.change(turn, move |connection| store::set_enabled(connection, &id, enabled)).await?;
        self.find(user.id.as_str()).ok_or(UserError::NotFound)
    }

    /// Makes a new key for a user; the keys there were are of no more use.
    ///
    /// # Errors
    /// If there is no such user, or the database does not take the change.
    pub async fn reset_key(&self, id_or_name: &str, now: Timestamp) -> Result<NewKey, UserError> {
        let turn = self.turn().await;
        let user = self.find(id_or_name).ok_or(UserError::NotFound)?;
        let (value, key) = self.known.keyring.mint("default", now, &mut rand::rng()).split();
        let (id, row) = (user.id.clone(), key.clone());
        self.change(turn, move |connection| store::replace_keys(connection, &id, &row)).await?;
        self.told(user.id.as_str(), value, key.id)
    }

    /// Forgets a user and its keys.
    ///
    /// # Errors
    /// If there is no such user, or the database does not take the change.
    pub async fn delete(&self, id_or_name: &str) -> Result<(), UserError> {
        let turn = self.turn().await;
        let user = self.find(id_or_name).ok_or(UserError::NotFound)?;
        self.change(turn, move |connection| store::delete(connection, &user.id)).await
    }

    fn draw(&self, now: Timestamp) -> (UserId, Minted) {
        let random = &mut rand::rng();
        (UserId::draw(random), self.known.keyring.mint("default", now, random))
    }

    fn check_free(&self, name: &str) -> Result<(), UserError> {
        let taken = self.known.users.read().iter().any(|it| it.name.eq_ignore_ascii_case(name));
        if taken { Err(UserError::NameTaken { name: name.to_owned() }) } else { Ok(()) }
    }

    async fn turn(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.changing).lock_owned().await
    }

    /// Changes the database, then memory. Runs to its end even if nobody waits any more: a change
    /// that the database has and memory has not would let a disabled key in until the next start.
    async fn change(
        &self,
        turn: OwnedMutexGuard<()>,
        job: impl FnOnce(&store::Connection) -> store::Done + Send + 'static,
    ) -> Result<(), UserError> {
        let (storage, known) = (self.storage.clone(), Arc::clone(&self.known));
        let change = tokio::spawn(async move {
            let _turn = turn;
            let rows = storage.write(move |connection| {
                job(connection)?;
                store::all(connection)
            });
            known.adopt(rows.await?);
            Ok(())
        });
        change.await.unwrap_or(Err(UserError::Storage(StorageError::WriterGone)))
    }

    fn told(&self, user: &str, value: ClientKey, key: KeyId) -> Result<NewKey, UserError> {
        let user = self.find(user).ok_or(UserError::NotFound)?;
        let key = user.keys.iter().find(|it| it.id == key).cloned().ok_or(UserError::NotFound)?;
        Ok(NewKey { user, key, value })
    }
}

// === impl Known ===

impl Known {
    fn adopt(&self, rows: Vec<store::Row>) {
        self.keyring.replace(&rows);
        *self.users.write() = rows.into_iter().map(store::Row::into_user).collect();
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LocalUserError {
    #[error("cannot write the key of the user local: {0}")]
    KeyFile(#[source] io::Error),
    #[error(transparent)]
    Storage(#[from] StorageError),
}

fn check_name(name: &str) -> Result<(), UserError> {
    let fits = (1..=NAME_MAX).contains(&name.len())
        && name.bytes().all(|it| it.is_ascii_alphanumeric() || b"._-@".contains(&it))
        // A name of dots alone is no segment of a path.
        && name.bytes().any(|it| it.is_ascii_alphanumeric())
        && !name.starts_with("usr_");
    if fits { Ok(()) } else { Err(UserError::BadName) }
}
