//! Who hears of changes, and when.

use std::{
    path::Path,
    sync::{Arc, Mutex, OnceLock},
};

use codex_edge::{
    accounts::{Accounts, Parts, pool::Pool, reconciler::Subscriber, tasks::Tasks},
    clock::Clock,
    config::{Config, Surroundings},
    domain::{credential::Fingerprint, reconcile::Change},
    egress::Egress,
    sim::SimAccount,
    storage::Storage,
    telemetry::metrics::Metrics,
};
use jiff::{SignedDuration, Timestamp};

use crate::support::stage::write;

/// What was heard: by whom, what, and whether the pool showed it already.
type Heard = Arc<Mutex<Vec<(usize, String, bool)>>>;

struct Scene {
    heard: Heard,
    clock: Clock,
    accounts: Accounts,
    folder: tempfile::TempDir,
}

fn config(folder: &Path) -> Config {
    let path = folder.join("config.toml");
    std::fs::write(&path, format!("[auth]\ndir = {:?}\n", folder.join("auth"))).unwrap();
    let surroundings = Surroundings {
        flag: Some(path),
        env: [("HOME".to_owned(), folder.display().to_string())].into(),
        system_file: Default::default(),
    };
    Config::load(&surroundings).unwrap().config
}

/// Two subscribers on a directory with the account `a`. Blocks.
fn scene(runtime: tokio::runtime::Handle) -> Scene {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("auth")).unwrap();
    write(&folder.path().join("auth/a.json"), SimAccount::made_up("a").auth_json());
    let config = config(folder.path());
    let (heard, pool) = (Heard::default(), Arc::new(OnceLock::<Arc<Pool>>::new()));
    let subscriber = |number: usize| -> Subscriber {
        let (heard, pool) = (Arc::clone(&heard), Arc::clone(&pool));
        Box::new(move |changes| {
            for change in changes {
                let shown = pool.get().is_some_and(|it| is_shown(it, change));
                heard.lock().unwrap().push((number, format!("{change:?}"), shown));
            }
        })
    };
    let metrics = Arc::new(Metrics::new().unwrap());
    let clock = Clock::manual(Timestamp::UNIX_EPOCH);
    let accounts = Accounts::open(Parts {
        config: config.auth.clone(),
        data_dir: folder.path().join("data"),
        auth_base_url: config.upstream.auth_base_url.clone(),
        storage: Storage::open(&folder.path().join("data"), Arc::clone(&metrics)).unwrap(),
        metrics,
        egress: Arc::new(Egress::new(&config.upstream).unwrap()),
        clock: clock.clone(),
        tasks: Tasks::new(runtime),
        subscribers: vec![subscriber(1), subscriber(2)],
    })
    .unwrap();
    pool.set(Arc::clone(&accounts.pool)).unwrap();
    Scene { heard, clock, accounts, folder }
}

fn is_shown(pool: &Pool, change: &Change) -> bool {
    let snapshot = pool.snapshot();
    let fingerprint = |id| snapshot.find(id).map(|it| it.account.credential.fingerprint);
    let holds = |id, wanted: &Fingerprint| fingerprint(id) == Some(*wanted);
    match change {
        Change::Added { id, fingerprint } | Change::Updated { id, fingerprint, .. } => {
            holds(id, fingerprint)
        }
        Change::Removed { id } => fingerprint(id).is_none(),
        Change::Renamed { to, .. } => fingerprint(to).is_some(),
        Change::Purged { .. } => false,
    }
}

impl Scene {
    fn look(&self) {
        self.accounts.reconciler.look_blocking();
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        write(&self.folder.path().join("auth").join(name), bytes);
    }

    /// The kinds of change that each subscriber heard since the last time, in order.
    fn heard(&self) -> Vec<(usize, String)> {
        let heard = std::mem::take(&mut *self.heard.lock().unwrap());
        let told = heard.into_iter().map(|(number, change, shown)| {
            assert!(!shown, "{number} heard of {change} after the pool had shown it");
            assert!(!change.contains("canary") && !change.contains('@'), "{change}");
            (number, change.split(' ').next().unwrap().to_owned())
        });
        told.collect()
    }
}

#[tokio::test]
async fn every_subscriber_hears_of_every_change_in_order_before_the_pool_shows_it() {
    let runtime = tokio::runtime::Handle::current();
    let test = move || {
        let scene = scene(runtime);
        let both = |changes: &[&str]| -> Vec<(usize, String)> {
            let one = |number| changes.iter().map(move |it| (number, (*it).to_owned()));
            one(1).chain(one(2)).collect()
        };
        assert_eq!(scene.heard(), both(&["Added"]));
        scene.look();
        assert_eq!(scene.heard(), [], "nothing has changed");
        // Another login takes the path over.
        scene.write("a.json", SimAccount::made_up("b").auth_json());
        scene.look();
        assert_eq!(scene.heard(), both(&["Removed", "Added"]));
        let mut renewed = SimAccount::made_up("b");
        renewed.access_token = renewed.mint_access(1, 4_102_444_800);
        scene.write("a.json", renewed.auth_json());
        scene.look();
        assert_eq!(scene.heard(), both(&["Updated"]));
        scene.clock.advance(SignedDuration::from_secs(60));
        scene.look();
        assert_eq!(scene.heard(), both(&["Purged"]));
    };
    tokio::task::spawn_blocking(test).await.unwrap();
}
