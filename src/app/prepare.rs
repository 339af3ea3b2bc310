//! What has to be there before anything listens: database, keys, users, accounts.

use std::{fs, io, path::Path, sync::Arc};

use jiff::SignedDuration;

use super::{Made, StartError};
use crate::{
    accounts::{self, Accounts, tasks::Tasks},
    admin::AdminKey,
    clock::Clock,
    config::Config,
    egress::Egress,
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
    pub(super) accounts: Accounts,
    pub(super) egress: Arc<Egress>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) made: Made,
}

pub(super) fn prepare(
    config: &Config,
    clock: &Clock,
    tasks: Tasks,
) -> Result<Prepared, StartError> {
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
    let ttl = SignedDuration::try_from(config.affinity.ttl).unwrap_or(SignedDuration::MAX);
    let sessions = Sessions::new(hash_key, ttl, config.affinity.max_bindings);
    let sessions = Arc::new(sessions.keep_in(storage.clone(), clock.now())?);
    let hears = Arc::clone(&sessions);
    let egress = Arc::new(Egress::new(&config.upstream)?);
    let accounts = Accounts::open(accounts::Parts {
        config: config.auth.clone(),
        data_dir: data_dir.clone(),
        auth_base_url: config.upstream.auth_base_url.clone(),
        storage,
        metrics: Arc::clone(&metrics),
        egress: Arc::clone(&egress),
        clock: clock.clone(),
        tasks,
        subscribers: vec![Box::new(move |changes| hears.apply(changes))],
    })?;
    Ok(Prepared { metrics, users, admin_key, accounts, egress, sessions, made })
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
