//! `kill -9` at every step of a whole renewal: what the sign-in service gave is not lost.

use std::{collections::HashMap, fs, path::Path, sync::Arc};

use codex_edge::{
    accounts::{
        self,
        files::{CredentialFiles, Steps},
        journal::{Journal, recover},
        labels::Labels,
        oauth::{OAuth, RefreshReason},
        pool::Pool,
        reconciler::Reconciler,
        refresh::{Parts, Refresher, Renewal},
        tasks::Tasks,
    },
    clock::Clock,
    config::{BaseUrl, Config},
    egress::Egress,
    sim::{SimAccount, SimConfig, Simulator},
    telemetry::metrics::Metrics,
};
use jiff::Timestamp;
use rand::{SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tokio::runtime::{Handle, Runtime};

use crate::support::{
    client::{Client, Wire},
    crash::{Child, kill_at_every_step},
};

const COPIES: [&str; 2] = ["auth/a.json", "auth/b.json"];

fn files(folder: &Path, steps: Steps) -> CredentialFiles {
    CredentialFiles::new(folder.join("auth"), true, steps)
}

/// A refresher on the folder, whose pool holds what the directory holds.
fn refresher(child: &Child, tasks: Tasks) -> Refresher {
    let folder = &child.folder;
    let config = Config::defaults(folder);
    let mut labels = Labels::new(HashMap::new());
    let mut random = StdRng::seed_from_u64(1);
    let (auth, now) = (folder.join("auth"), Timestamp::UNIX_EPOCH);
    let loaded = accounts::load(&auth, true, &mut labels, &mut random, now).unwrap();
    let pool = Arc::new(Pool::new());
    pool.publish(loaded.accounts, &[]);
    let issuer = fs::read_to_string(folder.join("issuer")).unwrap();
    let egress = Arc::new(Egress::new(&config.upstream).unwrap());
    Refresher::new(Parts {
        config: Arc::new(config.auth),
        oauth: OAuth::new(BaseUrl::parse(&issuer).unwrap(), egress),
        files: files(folder, child.steps.clone()),
        journal: Journal::open(&folder.join("data"), child.steps.clone()).unwrap(),
        reconciler: Reconciler::default(),
        pool,
        metrics: Arc::new(Metrics::new().unwrap()),
        clock: Clock::system(),
        tasks,
        steps: child.steps.clone(),
        unpersisted: Vec::new(),
    })
}

#[test]
#[ignore = "the child of another test"]
fn renewing() {
    let Some(child) = Child::current() else { return };
    let runtime = Runtime::new().unwrap();
    let accounts = accounts::load(
        &child.folder.join("auth"),
        true,
        &mut Labels::new(HashMap::new()),
        &mut StdRng::seed_from_u64(1),
        Timestamp::UNIX_EPOCH,
    );
    let account = accounts.unwrap().accounts.remove(0);
    let refresher = refresher(&child, Tasks::new(runtime.handle().clone()));
    let renewal = runtime.block_on(refresher.renew(&account, RefreshReason::ProactiveExpiry));
    assert!(!matches!(renewal, Renewal::NeedsLogin | Renewal::Gone), "{renewal:?}");
}

/// The refresh tokens in the copies.
fn held(folder: &Path) -> Vec<String> {
    let token = |name: &str| {
        let file: Value = serde_json::from_slice(&fs::read(folder.join(name)).unwrap()).unwrap();
        file["tokens"]["refresh_token"].as_str().unwrap().to_owned()
    };
    COPIES.map(token).to_vec()
}

/// Whether the sign-in service still takes the token.
fn is_good(sim: &Simulator, token: &str) -> bool {
    let client = Client { address: sim.address(), wire: Wire::H1, key: None, ca: None };
    let body = json!({"grant_type": "refresh_token", "refresh_token": token}).to_string();
    Handle::current().block_on(client.post("/oauth/token", body)).status == 200
}

/// Makes a login that the service knows and that no earlier run has used.
fn prepare(folder: &Path, sim: &Simulator, name: &str) {
    let account = SimAccount::made_up(name);
    fs::create_dir(folder.join("auth")).unwrap();
    for copy in COPIES {
        fs::write(folder.join(copy), account.auth_json()).unwrap();
    }
    fs::write(folder.join("issuer"), sim.origin()).unwrap();
    fs::write(folder.join("old"), &account.refresh_token).unwrap();
    sim.add_account(account);
}

fn check(folder: &Path, sim: &Simulator, step: &str) {
    let journal = Journal::open(&folder.join("data"), Steps::default()).unwrap();
    let files = files(folder, Steps::default());
    let recovered = recover(&files, &journal, Timestamp::UNIX_EPOCH).unwrap();
    assert!(recovered.unpersisted.is_empty() && recovered.unreadable == 0, "{step}");
    assert!(journal.entries().unwrap().entries.is_empty(), "{step}");
    let (held, old) = (held(folder), fs::read_to_string(folder.join("old")).unwrap());
    assert_eq!(held[0], held[1], "{step}");
    // Until it is on disk for the first time, an answer is in memory only; nothing can be done
    // about that, and the time is short.
    let in_memory = ["Answered", "Begun(Journal)", "Made(Journal)", "Filled(Journal)"];
    let is_lost = in_memory.contains(&step) || step == "Synced(Journal)";
    assert_eq!(held[0] == old, is_lost || step == "Asking", "{step}");
    assert_eq!(is_good(sim, &held[0]), !is_lost, "{step}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_step_it_has_what_the_service_gave() {
    let sim = Arc::new(Simulator::start(SimConfig::default()).await.unwrap());
    let killing = tokio::task::spawn_blocking(move || {
        let runs = std::cell::Cell::new(0);
        let prepare = |folder: &Path| {
            runs.set(runs.get() + 1);
            prepare(folder, &sim, &format!("run{}", runs.get()));
        };
        let check = |folder: &Path, step: &str| check(folder, &sim, step);
        kill_at_every_step("refresh::crash::renewing", prepare, check)
    });
    let steps = killing.await.unwrap();
    assert_eq!(steps.first().unwrap(), "Asking");
    assert_eq!(steps.len(), 2 + 6 + 2 * 6 + 2, "{steps:?}");
}
