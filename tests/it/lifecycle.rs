//! Starting and stopping as an operator sees it.

use std::{os::unix::fs::PermissionsExt, time::Duration};

use codex_edge::sim::{Action, End, Route, Rule, SimConfig, Simulator, StreamPlan};
use http::Method;

use crate::support::{
    client::{Client, Wire, read},
    process::{Place, Serving},
    raw,
    stage::write,
};

const PATH: &str = "/v1/codex/responses";
const GOOD: &str = r#"{"model":"gpt-5.5","input":[]}"#;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

async fn with_account() -> (Simulator, Place) {
    let sim = Simulator::start(SimConfig::with_accounts(&["alice"])).await.unwrap();
    let place = Place::new(&format!(
        "[upstream]\ncodex_base_url = \"{}\"\nauth_base_url = \"{}\"\n",
        sim.base_url(),
        sim.origin(),
    ));
    let account = sim.account("alice").unwrap();
    std::fs::write(place.auth().join("alice.json"), account.auth_json()).unwrap();
    (sim, place)
}

fn client(place: &Place, serving: &Serving) -> Client {
    Client { address: serving.edge, wire: Wire::H1, key: Some(place.key()), ca: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_start_makes_what_is_missing_and_says_what_to_do() {
    let place = Place::new("");
    let serving = place.serve().await;
    let mode = |path: &str| {
        let path = place.data().join(path);
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(mode(""), 0o700);
    for secret in ["admin.key", "hmac.key", "local.key", "codex-edge.sqlite3"] {
        assert_eq!(mode(secret), 0o600, "{secret}");
    }
    assert_eq!(mode("auth"), 0o700);
    let edge = serving.edge;
    let printed = text(&serving.stop().await.stdout);
    assert!(printed.contains("put auth.json files into"), "{printed}");
    assert!(printed.contains(&format!("base_url = \"http://{edge}/v1/codex\"")), "{printed}");
    assert!(!printed.contains(&place.key()), "the key itself is not printed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_labels_outlive_a_restart() {
    let (sim, place) = with_account().await;
    let mut scrapes = Vec::new();
    for _ in 0..2 {
        let serving = place.serve().await;
        let client = client(&place, &serving);
        assert_eq!(client.post(PATH, GOOD).await.status, 200);
        let admin = Client { address: serving.admin, key: None, ..client };
        let scrape = admin.get("/metrics").await.text();
        let turns = "codex_edge_account_active_turns{";
        let line = scrape.lines().find(|it| it.starts_with(turns)).unwrap();
        scrapes.push(line.split(' ').next().unwrap().to_owned());
        assert!(serving.stop().await.status.success());
    }
    assert_eq!(scrapes[0], scrapes[1], "the account has the same label");
    assert_eq!(sim.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_lets_the_running_turn_finish() {
    let (sim, place) = with_account().await;
    let serving = place.serve().await;
    let stall = StreamPlan { after: Some(4), end: End::Stall, ..StreamPlan::default() };
    sim.rule(Rule::new(Action::Stream(stall)).route(Route::Turn).times(1));
    let client = client(&place, &serving);
    let running = client.begin(client.request(Method::POST, PATH), GOOD).await.unwrap();

    serving.signal("TERM");
    // The gateway takes nothing new from the moment it has heard the signal.
    let refused = async {
        loop {
            let seen = client.post(PATH, GOOD).await;
            if seen.status == 503 {
                return seen.code();
            }
        }
    };
    assert_eq!(tokio::time::timeout(Duration::from_secs(5), refused).await.unwrap(), "draining");
    sim.release();
    let seen = read(running).await;
    assert!(!seen.broken);
    assert!(seen.text().contains("response.completed"));
    assert!(serving.wait().await.status.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_gateway_on_the_same_data_is_refused() {
    let place = Place::new("");
    let serving = place.serve().await;
    let second = place.run("serve").await;
    assert_eq!(second.status.code(), Some(1));
    let told = text(&second.stderr);
    assert!(told.contains("another codex-edge (process"), "{told}");
    serving.signal("KILL");
    assert!(!serving.wait().await.status.success());
    // The lock of a dead process is no obstacle.
    assert!(place.serve().await.stop().await.status.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_cannot_be_says_why_and_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let table = [
        (format!("[server]\nadmin_listen = \"127.0.0.1:{port}\"\n"), 1, "server.admin_listen"),
        ("[server]\nlisten = [\"0.0.0.0:0\"]\n".to_owned(), 1, "codex-edge users create"),
        ("[upstream]\nca_file = \"/nowhere.pem\"\n".to_owned(), 1, "/nowhere.pem"),
        ("[server]\nthreds = 1\n".to_owned(), 78, "server.threds"),
    ];
    for (toml, code, wish) in table {
        let place = Place::new("");
        let folder = place.folder.path();
        let mut config = std::fs::read_to_string(folder.join("config.toml")).unwrap();
        for line in toml.lines().filter(|it| !it.starts_with('[')) {
            let key = line.split(' ').next().unwrap();
            config = config
                .lines()
                .filter(|it| !it.starts_with(&format!("{key} ")))
                .fold(String::new(), |text, line| text + line + "\n");
        }
        let section = toml.lines().next().unwrap();
        let rest: String = toml.lines().skip(1).fold(String::new(), |text, it| text + it + "\n");
        config = if config.contains(section) {
            config.replacen(section, &format!("{section}\n{rest}"), 1)
        } else {
            config + &toml
        };
        std::fs::write(folder.join("config.toml"), config).unwrap();
        let output = place.run("serve").await;
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{toml}: {told}");
        assert!(told.contains(wish), "{toml}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_database_is_told_and_left_alone() {
    let place = Place::new("");
    std::fs::create_dir_all(place.data()).unwrap();
    let path = place.data().join("codex-edge.sqlite3");
    let rubbish = b"no database at all, whatever its name says".repeat(200);
    std::fs::write(&path, &rubbish).unwrap();
    for verb in ["serve", "check"] {
        let output = place.run(verb).await;
        assert_eq!(output.status.code(), Some(1), "{verb}");
        let told = text(&output.stderr) + &text(&output.stdout);
        assert!(told.contains("restore a backup"), "{verb}: {told}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), rubbish);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_in_the_middle_of_an_upload_leaves_no_prompt_behind() {
    let (_sim, place) = with_account().await;
    let config = place.folder.path().join("config.toml");
    let toml = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{toml}[limits]\nreplay_body = \"1KiB\"\n")).unwrap();
    let serving = place.serve().await;
    let prompt = "a prompt that must not outlive the process ".repeat(4_000);
    let request = format!(
        "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Content-Length: 9000000\r\n\r\n{prompt}",
        place.key()
    );
    let address = serving.edge;
    let uploading = tokio::spawn(async move { raw::send(address, request.as_bytes()).await });
    // The upload is under way once its bytes count as buffered.
    let spilled = async {
        loop {
            let open = std::fs::read_dir(format!("/proc/{}/fd", serving.pid())).unwrap();
            let deleted = open
                .filter_map(|it| std::fs::read_link(it.unwrap().path()).ok())
                .any(|it| it.to_string_lossy().ends_with("(deleted)"));
            if deleted {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), spilled).await.unwrap();
    serving.signal("KILL");
    serving.wait().await;
    uploading.await.unwrap();
    for (path, bytes) in crate::support::process::files_below(place.folder.path()) {
        let found = memchr::memmem::find(&bytes, b"a prompt that must not outlive");
        assert_eq!(found, None, "{}", path.display());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_files_is_logged_once_and_tells_no_secret() {
    let (sim, place) = with_account().await;
    let config = place.folder.path().join("config.toml");
    let toml = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{toml}[auth]\nrescan_interval = \"100ms\"\n")).unwrap();
    let serving = place.serve().await;
    let admin = Client { address: serving.admin, wire: Wire::H1, key: None, ca: None };
    let shows = async |line: &str| while !admin.get("/metrics").await.text().contains(line) {};
    let alice = sim.account("alice").unwrap().auth_json();
    write(&place.auth().join("bad.json"), &alice[..alice.len() / 2]);
    shows("credential_file_problems 1").await;
    std::fs::remove_file(place.auth().join("alice.json")).unwrap();
    shows("codex_edge_accounts{state=\"ready\"} 0").await;
    // Another look at the least lies between the two.
    std::fs::remove_file(place.auth().join("bad.json")).unwrap();
    shows("credential_file_problems 0").await;
    let log = text(&serving.stop().await.stderr);
    let count = |what: &str| log.lines().filter(|it| it.contains(what)).count();
    assert_eq!(count("Credential file path:bad.json: it is no valid JSON"), 1, "{log}");
    assert_eq!(
        count("Credential file path:bad.json: no longer so: it is no valid JSON"),
        1,
        "{log}"
    );
    assert_eq!(count("is in the pool"), 1, "{log}");
    assert_eq!(count("has left the pool"), 1, "{log}");
    assert!(log.contains("auth_id=acc_"), "{log}");
    assert!(!log.contains("canary") && !log.contains('@'), "{log}");
}
