//! Taking over credential files: over the admin listener, and by the built binary.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Output};

use codex_edge::sim::{SimAccount, SimConfig, Simulator};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::support::{
    client::{Client, Exchange, Wire},
    process::{Place, files_below},
    stage::{Setup, Stage},
};

const PATH: &str = "/v0/management/auths/import";

/// A gateway with these accounts' files, whose upstream knows `bob` and `carol` too.
async fn stage(here: &[SimAccount]) -> Stage {
    let mut setup = Setup::with_accounts(&["alice", "bob", "carol"]);
    let files = here.iter().map(|it| (format!("{}.json", it.name), it.auth_json()));
    setup.auth_files = Some(files.collect());
    setup.start().await
}

fn account(name: &str) -> SimAccount {
    SimAccount::made_up(name)
}

fn auth_json(account: &SimAccount) -> Value {
    serde_json::from_slice(&account.auth_json()).unwrap()
}

/// The login of `name` as it was refreshed at another time, with other tokens.
fn refreshed(name: &str, serial: u64, at: &str) -> Value {
    let account = account(name);
    let mut file = auth_json(&account);
    file["tokens"]["access_token"] = account.mint_access(serial, 4_102_444_800).into();
    file["tokens"]["refresh_token"] = account.mint_refresh(serial, serial).into();
    file["last_refresh"] = at.into();
    file
}

pub(crate) fn operator(stage: &Stage) -> Client {
    let key = fs::read_to_string(stage.data_dir.join("admin.key")).unwrap();
    Client { key: Some(key.trim().to_owned()), ..stage.admin() }
}

async fn post(stage: &Stage, path: &str, body: &str) -> Exchange {
    operator(stage).post(path, body.to_owned()).await
}

/// What became of each file, by name: result, warnings and error in one line.
async fn import(stage: &Stage, files: &[(&str, Value)], dry_run: bool) -> Vec<String> {
    let files: Vec<Value> =
        files.iter().map(|(name, content)| json!({"name": name, "content": content})).collect();
    let body = json!({"files": files, "dry_run": dry_run}).to_string();
    let answer = post(stage, PATH, &body).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let results = answer.json()["results"].as_array().unwrap().clone();
    results.iter().map(line).collect()
}

fn line(result: &Value) -> String {
    let text = |key: &str| result[key].as_str().unwrap_or_default().to_owned();
    let warnings: Vec<&str> =
        result["warnings"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    format!("{} {}: {} {}", text("name"), text("result"), warnings.join(" | "), text("error"))
}

/// Every file of the credential directory, by name.
fn directory(stage: &Stage) -> Vec<(String, Vec<u8>)> {
    let root = stage.app.accounts.config.dir.clone();
    let files = files_below(&root).into_iter();
    let name = |path: &Path| path.strip_prefix(&root).unwrap().display().to_string();
    let mut files: Vec<_> = files
        .filter(|(path, _)| path.extension().is_some_and(|it| it == "json"))
        .map(|(path, bytes)| (name(&path), bytes))
        .collect();
    files.sort();
    files
}

fn names(stage: &Stage) -> Vec<String> {
    directory(stage).into_iter().map(|(name, _)| name).collect()
}

/// Who has answered a turn, once as many were asked as there are accounts.
pub(crate) async fn who_serves(stage: &Stage, turns: usize) -> Vec<String> {
    stage.sim.reset();
    for _ in 0..turns {
        let body = json!({"model": "gpt-5.5", "input": "hi"}).to_string();
        let answer = stage.h1().post("/v1/codex/responses", body).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    }
    let asked = stage.sim.requests().into_iter().filter(|it| it.target.ends_with("/responses"));
    let mut names: Vec<String> = asked.filter_map(|it| it.account).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_imported_login_of_either_shape_is_kept_as_it_is_and_serves_at_once() {
    let stage = stage(&[account("alice")]).await;
    let bob = auth_json(&account("bob"));
    let carol = account("carol");
    let flat = json!({
        "type": "codex", "access_token": carol.access_token, "refresh_token": carol.refresh_token,
        "id_token": carol.id_token, "account_id": carol.account_id, "mine": [1.50, "x"],
    });
    let told = import(&stage, &[("bob", bob.clone()), ("carol", flat.clone())], false).await;
    assert!(told[0].starts_with("bob added: another program may refresh this login"), "{told:?}");
    assert_eq!(told[1], "carol added:  ");
    let files = directory(&stage);
    assert_eq!(files.len(), 3);
    for wanted in [bob, flat] {
        let text = wanted.to_string().into_bytes();
        let found = files.iter().find(|(_, bytes)| *bytes == text);
        let (name, _) = found.expect("the file is kept byte for byte");
        assert!(name.starts_with("login-") && name.len() == "login-01234567.json".len(), "{name}");
        let path = stage.app.accounts.config.dir.join(name);
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert_eq!(who_serves(&stage, 3).await, ["alice", "bob", "carol"]);
    let audit = operator(&stage).get("/v0/management/audit").await.json()["audit"].clone();
    let rows = audit.as_array().unwrap().iter();
    let rows: Vec<_> = rows.map(|it| (it["action"].as_str(), it["result"].as_str())).collect();
    assert_eq!(rows, [(Some("auths.import"), Some("ok")); 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_names_the_account_as_the_pool_does() {
    let stage = stage(&[]).await;
    let body = json!({"files": [{"name": "b", "content": auth_json(&account("bob"))}]});
    let answer = post(&stage, PATH, &body.to_string()).await.json();
    let told = &answer["results"][0];
    let (pool, clock) = (&stage.app.accounts.pool, &stage.app.accounts.clock);
    let (known, _) = &pool.census(&pool.snapshot(), clock.now())[0];
    assert_eq!(told["auth_id"], known.id.as_str());
    assert_eq!(told["label"], known.label.as_str());
    assert_eq!((&told["email_masked"], &told["plan"]), (&json!("b***@sim.example"), &json!("pro")));
    assert_eq!(told["error"], Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_login_goes_into_the_file_of_its_account() {
    let mut here = refreshed("alice", 7, "2026-01-01T00:00:00Z");
    here["disabled"] = true.into();
    here["mine"] = json!({"kept": 1});
    let mut setup = Setup::with_accounts(&["alice"]);
    setup.auth_files = Some(vec![("a.json".to_owned(), here.to_string().into_bytes())]);
    let stage = setup.start().await;
    let newer = refreshed("alice", 8, "2026-02-01T00:00:00Z");
    let told = import(&stage, &[("new", newer.clone())], false).await;
    assert!(told[0].starts_with("new updated: ") && told[0].contains("switched off"), "{told:?}");
    let files = directory(&stage);
    assert_eq!(files.len(), 1, "no second file");
    let now: Value = serde_json::from_slice(&files[0].1).unwrap();
    assert_eq!(now["tokens"], newer["tokens"]);
    assert_eq!((&now["disabled"], &now["mine"]), (&json!(true), &json!({"kept": 1})));
    let again = import(&stage, &[("new", newer)], false).await;
    assert!(again[0].starts_with("new unchanged: it is already there"), "{again:?}");
    let older = refreshed("alice", 6, "2025-12-01T00:00:00Z");
    let told = import(&stage, &[("old", older)], false).await;
    assert!(told[0].starts_with("old unchanged: it is older than what is here"), "{told:?}");
    assert_eq!(directory(&stage), files);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_file_of_a_batch_is_judged_beside_those_before_it() {
    let stage = stage(&[]).await;
    let files = [
        ("first", refreshed("alice", 1, "2026-01-01T00:00:00Z")),
        ("newer", refreshed("alice", 2, "2026-02-01T00:00:00Z")),
        ("older", refreshed("alice", 1, "2025-01-01T00:00:00Z")),
        ("again", refreshed("alice", 2, "2026-02-01T00:00:00Z")),
    ];
    let results = |told: Vec<String>| -> Vec<String> {
        told.iter().map(|it| it.split(':').next().unwrap().to_owned()).collect()
    };
    let wanted = ["first added", "newer updated", "older unchanged", "again unchanged"];
    assert_eq!(results(import(&stage, &files, true).await), wanted, "a dry run says the same");
    assert!(names(&stage).is_empty(), "and changes nothing");
    assert_eq!(results(import(&stage, &files, false).await), wanted);
    assert_eq!(names(&stage).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn imports_at_the_same_moment_make_one_file_of_one_account() {
    let stage = stage(&[]).await;
    let files = [("bob", auth_json(&account("bob")))];
    let imports = (0..8).map(|_| import(&stage, &files, false));
    let told = futures::future::join_all(imports).await;
    let added = told.iter().filter(|it| it[0].starts_with("bob added")).count();
    assert_eq!((added, names(&stage).len()), (1, 1), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_taken_is_told_file_by_file_and_keeps_nothing_else_out() {
    let stage = stage(&[]).await;
    let mut torn = auth_json(&account("carol"));
    torn["tokens"]["account_id"] = "another".into();
    let files = [
        ("api", json!({"OPENAI_API_KEY": "sk-canary"})),
        ("other", json!({"type": "claude", "access_token": "canary-token"})),
        ("out", json!({})),
        ("torn", torn),
        ("blank", json!({"tokens": {"refresh_token": "rt-canary-secret"}})),
        ("bob", auth_json(&account("bob"))),
    ];
    let told = import(&stage, &files, false).await;
    for (line, wanted) in told.iter().zip([
        "api refused:  it holds an API key, no ChatGPT login",
        "other refused:  it belongs to another provider",
        "out refused:  nobody is logged in",
        "torn refused:  it names one account and its tokens another",
        "blank refused:  `access_token` is missing",
        "bob added: ",
    ]) {
        assert!(line.starts_with(wanted), "{line}");
        assert!(!line.contains("canary"), "{line}");
    }
    assert_eq!(names(&stage).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_may_be_a_credential_itself_and_nothing_else() {
    let stage = stage(&[]).await;
    let bob = String::from_utf8(account("bob").auth_json()).unwrap();
    let dry = post(&stage, &format!("{PATH}?dry_run=true"), &bob).await;
    assert_eq!(dry.json()["results"][0]["result"], "added");
    assert!(names(&stage).is_empty());
    let real = post(&stage, PATH, &bob).await;
    assert_eq!(real.json()["results"][0]["result"], "added");
    assert_eq!(directory(&stage)[0].1, bob.as_bytes(), "white space and all");
    for body in ["", "[]", "{\"canary", "{}", "{\"files\": []}", "{\"files\": [{\"canary\": 1}]}"] {
        let refused = post(&stage, PATH, body).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{body}");
        assert_eq!(refused.json()["error"]["code"], "invalid_request");
        assert!(!refused.text().contains("canary"), "{}", refused.text());
    }
    let none = json!({"files": [{"name": "a", "content": {}}, {"name": "b", "content": []}]});
    let refused = post(&stage, PATH, &none.to_string()).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(refused.text().contains("none of the 2 files holds a login"), "{}", refused.text());
    let keyless = stage.admin().post(PATH, bob).await;
    assert_eq!(keyless.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_import_is_taken_and_a_boundless_one_is_not() {
    let stage = stage(&[]).await;
    let mut bob = auth_json(&account("bob"));
    bob["mine"] = "x".repeat(500_000).into();
    let large = json!({"files": [{"name": "bob", "content": bob}]}).to_string();
    assert_eq!(post(&stage, PATH, &large).await.json()["results"][0]["result"], "added");
    bob["mine"] = "x".repeat(2_000_000).into();
    let told = import(&stage, &[("bob", bob), ("carol", auth_json(&account("carol")))], true).await;
    assert!(told[0].starts_with("bob refused:  it is larger than"), "{told:?}");
    let boundless = format!("{{\"mine\": \"{}\"}}", "x".repeat(17 << 20));
    let request = operator(&stage).request(Method::POST, PATH);
    // The gateway may close before it has everything.
    if let Ok(answer) = operator(&stage).begin(request, boundless).await {
        assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

/// A machine without a gateway, and a folder with files from elsewhere.
fn place_and_files() -> (Place, std::path::PathBuf) {
    let place = Place::new("");
    let folder = place.folder.path().join("elsewhere");
    fs::create_dir(&folder).unwrap();
    for name in ["alice", "bob"] {
        fs::write(folder.join(format!("{name}.json")), account(name).auth_json()).unwrap();
    }
    fs::write(folder.join("notes.txt"), "not asked for").unwrap();
    (place, folder)
}

#[tokio::test]
async fn without_a_gateway_a_folder_goes_straight_into_the_directory() {
    let (place, folder) = place_and_files();
    let folder = folder.display().to_string();
    let dry = place.command_of(&["accounts", "import", &folder, "--dry-run"]).output();
    let dry = dry.await.unwrap();
    assert_eq!(code(&dry), Some(0), "{dry:?}");
    assert!(text(&dry.stdout).contains("alice.json: would be added: "), "{dry:?}");
    let done = place.command_of(&["accounts", "import", &folder]).output().await.unwrap();
    assert_eq!(code(&done), Some(0), "{done:?}");
    let told = text(&done.stdout);
    for (name, mask) in [("alice", "a***@sim.example"), ("bob", "b***@sim.example")] {
        let line = told.lines().find(|it| it.contains(&format!("/{name}.json: added: "))).unwrap();
        assert!(line.contains("plan pro") && line.contains(mask), "{line}");
    }
    assert_eq!(told.matches("  warning: another program may refresh this login").count(), 2);
    let auth = place.data().join("auth");
    assert_eq!(fs::metadata(&auth).unwrap().permissions().mode() & 0o777, 0o700);
    let files = files_below(&auth);
    let files: Vec<_> =
        files.iter().filter(|(path, _)| path.extension().is_some_and(|it| it == "json")).collect();
    assert_eq!(files.len(), 2);
    for (path, bytes) in files {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(["alice", "bob"].iter().any(|it| *bytes == account(it).auth_json()));
    }
}

#[tokio::test]
async fn one_refused_file_makes_the_end_a_failure_but_keeps_no_other_out() {
    let (place, folder) = place_and_files();
    let broken = folder.join("broken.json");
    fs::write(&broken, "{\"canary-token").unwrap();
    let (bob, missing) = (folder.join("bob.json"), folder.join("missing.json"));
    let files = [&broken, &bob, &missing].map(|it| it.display().to_string());
    let mut words = vec!["accounts", "import", "--json"];
    words.extend(files.iter().map(String::as_str));
    let done = place.command_of(&words).output().await.unwrap();
    assert_eq!(code(&done), Some(1), "{done:?}");
    let told: Value = serde_json::from_slice(&done.stdout).unwrap();
    let results = told["results"].as_array().unwrap();
    let of = |at: usize| (results[at]["name"].as_str().unwrap(), &results[at]["result"]);
    assert_eq!(of(0), (files[0].as_str(), &json!("refused")));
    assert_eq!(of(1), (files[1].as_str(), &json!("added")));
    assert_eq!(of(2), (files[2].as_str(), &json!("refused")));
    assert!(results[0]["error"].as_str().unwrap().contains("no valid JSON"), "{told}");
    assert!(text(&done.stderr).contains("2 of 3 files refused"), "{done:?}");
    let all = text(&done.stdout) + &text(&done.stderr);
    assert!(!all.contains("canary"), "{all}");
}

#[tokio::test]
async fn a_dry_run_makes_no_directory() {
    let place = Place::new("");
    let file = place.folder.path().join("bob.json");
    fs::write(&file, account("bob").auth_json()).unwrap();
    let file = file.display().to_string();
    let trial = ["accounts", "import", &file, "--dry-run"];
    let done = place.command_of(&trial).output().await.unwrap();
    assert!(text(&done.stdout).contains(": would be added: account acc_"), "{done:?}");
    assert!(!place.data().exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_tells_why_a_login_could_not_be_kept() {
    let stage = stage(&[]).await;
    fs::remove_dir_all(&stage.app.accounts.config.dir).unwrap();
    import(&stage, &[("bob", auth_json(&account("bob")))], false).await;
    let rows = operator(&stage).get("/v0/management/audit").await.json()["audit"].clone();
    assert_eq!(rows[0]["result"], "auth_dir_unavailable", "{rows}");
}

#[tokio::test]
async fn a_file_may_come_from_standard_input() {
    let place = Place::new("");
    let mut command = place.command_of(&["accounts", "import", "-"]);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let marked = [&b"\xef\xbb\xbf"[..], &account("bob").auth_json()].concat();
    input.write_all(&marked).await.unwrap();
    drop(input);
    let done = child.wait_with_output().await.unwrap();
    assert!(text(&done.stdout).starts_with("-: added: account acc_"), "{done:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_gateway_the_files_go_through_it() {
    let sim = Simulator::start(SimConfig::with_accounts(&["alice", "bob"])).await.unwrap();
    let place = Place::new(&format!(
        "[upstream]\ncodex_base_url = \"{}\"\n[log]\nlevel = \"trace\"\n",
        sim.base_url()
    ));
    let serving = place.serve().await;
    let file = place.folder.path().join("bob.json");
    fs::write(&file, account("bob").auth_json()).unwrap();
    let file = file.display().to_string();
    // Its admin listener is on a port that the configuration does not tell.
    let lost = place.command_of(&["accounts", "import", &file]).output().await.unwrap();
    assert_eq!(code(&lost), Some(1), "{lost:?}");
    assert!(text(&lost.stderr).contains("give --admin-url"), "{lost:?}");
    let url = format!("http://{}", serving.admin);
    let done = place.command_of(&["accounts", "import", &file, "--admin-url", &url]);
    let done = { done }.output().await.unwrap();
    assert_eq!(code(&done), Some(0), "{done:?}");
    let told = text(&done.stdout);
    assert!(
        told.contains(".json: added: account p") && told.contains("b***@sim.example"),
        "{told}"
    );
    let key = Some(place.key());
    let client = Client { address: serving.edge, wire: Wire::H1, key, ca: None };
    let body = json!({"model": "gpt-5.5", "input": "hi"}).to_string();
    assert_eq!(client.post("/v1/codex/responses", body).await.status, StatusCode::OK);
    let printed = serving.stop().await;
    let bob = account("bob");
    let said = [printed.stdout, printed.stderr, done.stdout, done.stderr].concat();
    for canary in [bob.canary(), bob.account_id, bob.email, file] {
        // The name of a file is told to who gave it, and kept from the log.
        let found = memchr::memmem::find_iter(&said, canary.as_bytes()).count();
        assert!(found == usize::from(canary.ends_with("bob.json")), "{canary} shows up");
    }
}
