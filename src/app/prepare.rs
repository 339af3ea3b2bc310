//! What has to be there before anything listens: database, keys, users, accounts.

use std::{fs, io, path::Path, sync::Arc};

use jiff::SignedDuration;

use super::{Made, StartError};
use crate::{
    accounts::{self, Loaded, labels::Labels, pool::Pool, store},
    admin::AdminKey,
    clock::Clock,
    config::Config,
    sessions::Sessions,
    storage::{self, Storage},
    telemetry::metrics::Metrics,
    users::Users,
};

const HASH_KEY: &str = "hmac.key";
const LOCAL_KEY: &str = "local.key";

pub(super) struct Prepared {
    pub(super) metrics: Arc<Metrics>,
    pub(super) users: Users,
    pub(super) admin_key: Option<AdminKey>,
    pub(super) pool: Arc<Pool>,
    pub(super) sessions: Sessions,
    pub(super) made: Made,
}

pub(super) fn prepare(config: &Config, clock: &Clock) -> Result<Prepared, StartError> {
    let metrics = Arc::new(Metrics::new().map_err(|it| StartError::Metrics(it.to_string()))?);
    let data_dir = &config.server.data_dir;
    let storage = Storage::open(data_dir, Arc::clone(&metrics))?;
    let mut made = Made::default();
    let admin_key = admin_key(&config.admin.key_file, &mut made)?;
    let hash_key_path = data_dir.join(HASH_KEY);
    let hash_key_is_new = !hash_key_path.exists();
    let hash_key = storage::random_key_file(&hash_key_path, &mut rand::rng())
        .map_err(|source| StartError::KeyFile { path: hash_key_path, source })?;
    let users = Users::open(storage.clone(), hash_key)?;
    if hash_key_is_new && !users.list().is_empty() {
        tracing::warn!(
            "The key file {HASH_KEY} was lost and made anew: no client key opens any more. Give each \
             user a new one with codex-edge users reset-key"
        );
    }
    admit_somebody(config, clock, &users, &mut made)?;
    made.auth_dir = make_auth_dir(&config.auth.dir)?;
    let pool = Arc::new(Pool::new());
    pool.publish(load_accounts(config, clock, &storage, &metrics)?);
    let ttl = SignedDuration::try_from(config.affinity.ttl).unwrap_or(SignedDuration::MAX);
    let sessions = Sessions::new(hash_key, ttl, config.affinity.max_bindings);
    Ok(Prepared { metrics, users, admin_key, pool, sessions, made })
}

fn admin_key(path: &Path, made: &mut Made) -> Result<Option<AdminKey>, StartError> {
    made.admin_key = !path.exists();
    let key = AdminKey::create_if_missing(path)
        .map_err(|source| StartError::KeyFile { path: path.to_owned(), source })?;
    Ok(Some(key))
}

/// On loopback a first start makes a user; elsewhere there has to be one.
fn admit_somebody(
    config: &Config,
    clock: &Clock,
    users: &Users,
    made: &mut Made,
) -> Result<(), StartError> {
    let open = config.server.listen.iter().find(|it| !it.ip().to_canonical().is_loopback());
    if let Some(address) = open {
        if users.has_usable_key(clock.now()) {
            return Ok(());
        }
        return Err(StartError::NobodyMayComeIn(*address));
    }
    let file = config.server.data_dir.join(LOCAL_KEY);
    if users.list().is_empty() {
        users.create_local(&file, clock.now())?;
        made.local_key = Some(file);
    }
    Ok(())
}

/// Whether the directory was missing.
fn make_auth_dir(path: &Path) -> Result<bool, StartError> {
    match fs::metadata(path) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            storage::prepare_data_dir(path)
                .map_err(|source| StartError::AuthDir { path: path.to_owned(), source })?;
            Ok(true)
        }
        Err(source) => Err(StartError::AuthDir { path: path.to_owned(), source }),
    }
}

fn load_accounts(
    config: &Config,
    clock: &Clock,
    storage: &Storage,
    metrics: &Metrics,
) -> Result<Vec<crate::domain::account::Account>, StartError> {
    let known = storage.write_blocking(|connection| store::labels(connection))?;
    let (directory, now) = (&config.auth.dir, clock.now());
    let Loaded { accounts, problems, minted } = accounts::load(
        directory,
        config.auth.follow_symlinks,
        &mut Labels::new(known),
        &mut rand::rng(),
        now,
    )
    .map_err(|source| StartError::Accounts { path: directory.clone(), source })?;
    storage.write_blocking(move |connection| {
        minted.iter().try_for_each(|(id, label)| store::insert_label(connection, id, label, now))
    })?;
    let unusable = problems.iter().filter(|it| !it.reason.is_notice()).count();
    metrics.credential_file_problems.set(i64::try_from(unusable).unwrap_or(i64::MAX));
    for problem in &problems {
        tracing::warn!("Credential file {problem}");
    }
    for account in &accounts {
        tracing::info!(
            account = %account.label,
            files = account.sources.len(),
            enabled = account.enabled,
            "Account {} is in the pool",
            account.label
        );
    }
    Ok(accounts)
}
