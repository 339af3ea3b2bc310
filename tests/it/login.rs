//! Signing in to accounts: over the admin listener, and by the built binary.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use codex_edge::{
    clock::Clock,
    sim::{Action, Route, Rule, SimAccount, SimConfig, Simulator},
};
use http::{Method, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{Child, ChildStderr},
};

use crate::{
    import::{operator, who_serves},
    support::{
        client::{Client, Exchange, Wire},
        process::{Place, files_below},
        stage::{Setup, Stage, eventually},
    },
};

const PATH: &str = "/v0/management/auths/login";
const REDIRECT: &str = "http://127.0.0.1:1455/auth/callback";

fn setup(here: &[&str]) -> Setup {
    let mut setup = Setup::with_accounts(&["alice", "bob"]);
    setup.sim.device_interval = 1;
    let file = |name: &&str| (format!("{name}.json"), SimAccount::made_up(name).auth_json());
    setup.auth_files = Some(here.iter().map(file).collect());
    setup
}

async fn post(stage: &Stage, path: &str, body: &Value) -> Exchange {
    operator(stage).post(path, body.to_string()).await
}

/// Begins a sign-in and gives what is told of it.
async fn begin(stage: &Stage, body: Value) -> Value {
    let answer = post(stage, PATH, &body).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    answer.json()["login"].clone()
}

async fn begin_pkce(stage: &Stage) -> Value {
    begin(stage, json!({"method": "pkce", "redirect_uri": REDIRECT})).await
}

fn path_of(login: &Value) -> String {
    format!("{PATH}/{}", login["id"].as_str().unwrap())
}

async fn look(stage: &Stage, login: &Value) -> Value {
    operator(stage).get(&path_of(login)).await.json()["login"].clone()
}

async fn complete(stage: &Stage, login: &Value, brought: Value) -> Exchange {
    post(stage, &format!("{}/complete", path_of(login)), &brought).await
}

/// Signs in where the address leads, and gives the address that the browser is sent to.
async fn follow(sim: &Simulator, authorize_url: &str) -> String {
    let target = authorize_url.strip_prefix(&sim.origin()).unwrap();
    let browser = Client { address: sim.address(), wire: Wire::H1, key: None, ca: None };
    let answer = browser.get(target).await;
    assert_eq!(answer.status, StatusCode::FOUND);
    answer.headers["location"].to_str().unwrap().to_owned()
}

async fn follow_login(stage: &Stage, login: &Value) -> String {
    follow(&stage.sim, login["authorize_url"].as_str().unwrap()).await
}

/// A part of an address's query, as it stands there.
fn part(url: &str, name: &str) -> String {
    let query = url.split_once('?').unwrap().1;
    let mut pairs = query.split('&').filter_map(|it| it.split_once('='));
    pairs.find(|(key, _)| *key == name).unwrap().1.to_owned()
}

/// Waits until a sign-in by a code is over.
async fn over(stage: &Stage, login: &Value) -> Value {
    let waiting = async {
        loop {
            let login = look(stage, login).await;
            if login["state"] != "waiting" {
                return login;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap()
}

/// Action, target and result of every row of the audit, the oldest first.
async fn audit(stage: &Stage) -> Vec<[String; 3]> {
    let answer = operator(stage).get("/v0/management/audit").await.json();
    let row =
        |it: &Value| ["action", "target", "result"].map(|key| it[key].as_str().unwrap().to_owned());
    answer["audit"].as_array().unwrap().iter().rev().map(row).collect()
}

/// Waits for so many rows of the audit, and gives the last.
async fn last_row(stage: &Stage, count: usize) -> [String; 3] {
    let waiting = async {
        loop {
            let rows = audit(stage).await;
            if rows.len() >= count {
                assert_eq!(rows.len(), count, "{rows:?}");
                return rows.last().unwrap().clone();
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap()
}

fn row(target: &Value, result: &str) -> [String; 3] {
    ["auths.login.complete", target.as_str().unwrap(), result].map(str::to_owned)
}

fn accounts(stage: &Stage) -> usize {
    let pool = &stage.app.accounts.pool;
    pool.census(&pool.snapshot(), stage.app.accounts.clock.now()).len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sign_in_by_browser_makes_an_account_that_serves_at_once() {
    let stage = setup(&["alice"]).start().await;
    assert!(stage.sim.sign_in_as("bob"));
    let login = begin_pkce(&stage).await;
    assert_eq!((&login["method"], &login["state"]), (&json!("pkce"), &json!("waiting")));
    let url = login["authorize_url"].as_str().unwrap();
    assert!(
        url.starts_with(&format!("{}/oauth/authorize?response_type=code&", stage.sim.origin()))
    );
    assert_eq!(part(url, "code_challenge_method"), "S256");
    assert_eq!(part(url, "redirect_uri"), "http%3A%2F%2F127.0.0.1%3A1455%2Fauth%2Fcallback");
    let came_to = follow_login(&stage, &login).await;
    let done = complete(&stage, &login, json!({ "url": came_to })).await;
    assert_eq!(done.status, StatusCode::OK, "{}", done.text());
    let done = done.json()["login"].clone();
    assert_eq!(done["state"], "done");
    assert!(done["account"]["label"].as_str().unwrap().starts_with('p'), "{done}");
    assert_eq!(done["account"]["email_masked"], "b***@sim.example");
    assert_eq!(done["account"]["warnings"], json!([]), "nobody else refreshes it");
    assert_eq!(look(&stage, &login).await, done);
    assert_eq!(who_serves(&stage, 2).await, ["alice", "bob"]);
    let again = complete(&stage, &login, json!({ "url": came_to })).await;
    assert_eq!(again.status, StatusCode::BAD_REQUEST);
    assert!(again.text().contains("is over"), "{}", again.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_belongs_to_a_sign_in_completes_it() {
    let stage = setup(&[]).start().await;
    let (login, other) = (begin_pkce(&stage).await, begin_pkce(&stage).await);
    let (ours, foreign) = (follow_login(&stage, &login).await, follow_login(&stage, &other).await);
    let code = part(&ours, "code");
    for brought in [
        json!({ "url": foreign }),
        json!({ "code": code, "state": part(&foreign, "state") }),
        json!({ "code": code, "state": "" }),
        json!({ "code": code }),
        json!({ "url": REDIRECT }),
        json!({ "url": format!("{REDIRECT}?error=access_denied") }),
        json!({}),
    ] {
        let refused = complete(&stage, &login, brought.clone()).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{brought}");
        assert_eq!(look(&stage, &login).await["state"], "waiting", "{brought}");
    }
    let brought = json!({ "code": code, "state": part(&ours, "state") });
    let done = complete(&stage, &login, brought).await;
    assert_eq!(done.json()["login"]["state"], "done", "{}", done.text());
    assert_eq!(accounts(&stage), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sign_in_that_is_declined_or_fails_says_so() {
    let stage = setup(&[]).start().await;
    let login = begin_pkce(&stage).await;
    let state = part(login["authorize_url"].as_str().unwrap(), "state");
    let declined = format!("{REDIRECT}?error=access_denied&state={state}");
    let told = complete(&stage, &login, json!({ "url": declined })).await.json();
    assert_eq!(told["login"]["state"], "failed");
    assert!(told["login"]["error"].as_str().unwrap().contains("declined"), "{told}");

    let login = begin_pkce(&stage).await;
    let came_to = follow_login(&stage, &login).await;
    let refusal = Action::json(400, json!({"error": "invalid_grant", "x": "canary"}));
    stage.sim.rule(Rule::new(refusal).route(Route::OauthToken));
    let told = complete(&stage, &login, json!({ "url": came_to })).await.json();
    assert_eq!(told["login"]["state"], "failed");
    let why = told["login"]["error"].as_str().unwrap();
    assert!(why.contains("invalid_grant") && !why.contains("canary"), "{told}");
    assert_eq!(accounts(&stage), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_is_sent_back_to_loopback_only() {
    let stage = setup(&[]).start().await;
    for redirect in ["https://evil.example/auth/callback", "http://10.0.0.1:1455/auth/callback", ""]
    {
        let refused =
            post(&stage, PATH, &json!({"method": "pkce", "redirect_uri": redirect})).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{redirect}");
    }
    for body in [json!({"method": "pkce"}), json!({"method": "magic"}), json!({"x": 1})] {
        let refused = post(&stage, PATH, &body).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{body}");
    }
    let keyless = stage.admin().post(PATH, "{}").await;
    assert_eq!(keyless.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sign_in_by_a_code_ends_by_itself_once_its_user_has_agreed() {
    let stage = setup(&["alice"]).start().await;
    let login = begin(&stage, json!({})).await;
    assert_eq!((&login["method"], &login["state"]), (&json!("device"), &json!("waiting")));
    assert_eq!(login["verification_url"], format!("{}/codex/device", stage.sim.origin()));
    let brought = json!({"code": "c", "state": "s"});
    assert_eq!(complete(&stage, &login, brought).await.status, StatusCode::BAD_REQUEST);
    let code = login["user_code"].as_str().unwrap();
    assert!(stage.sim.approve_device(Some(code), "bob"));
    let done = over(&stage, &login).await;
    assert_eq!(done["state"], "done", "{done}");
    assert_eq!(done["account"]["email_masked"], "b***@sim.example");
    assert_eq!(who_serves(&stage, 2).await, ["alice", "bob"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_tells_how_a_sign_in_ended() {
    let stage = setup(&[]).start().await;
    let login = begin(&stage, json!({})).await;
    assert!(stage.sim.approve_device(login["user_code"].as_str(), "bob"));
    let done = over(&stage, &login).await;
    assert_eq!(last_row(&stage, 2).await, row(&done["account"]["auth_id"], "ok"));

    stage.sim.rule(Rule::new(Action::json(400, json!({}))).route(Route::DeviceToken));
    let login = begin(&stage, json!({})).await;
    assert_eq!(last_row(&stage, 4).await, row(&login["id"], "upstream_unreachable"));

    let login = begin_pkce(&stage).await;
    let state = part(login["authorize_url"].as_str().unwrap(), "state");
    let came_to = format!("{REDIRECT}?error=access_denied&state={state}");
    let told = complete(&stage, &login, json!({ "url": came_to })).await;
    assert_eq!(told.json()["login"]["state"], "failed", "{}", told.text());
    assert_eq!(last_row(&stage, 6).await, row(&login["id"], "declined"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_does_not_fit_is_told_what_would() {
    let stage = setup(&[]).start().await;
    for body in [json!({"x": 1}), json!({"method": "dance"}), json!({"method": "pkce"})] {
        let told = post(&stage, PATH, &body).await;
        assert_eq!(told.status, StatusCode::BAD_REQUEST);
        assert!(told.text().contains("redirect_uri") && !told.text().contains("enum"), "{body}");
    }
    let login = begin_pkce(&stage).await;
    for body in [json!({}), json!({"url": 5}), json!({"code": "c"})] {
        let told = complete(&stage, &login, body).await;
        assert_eq!(told.status, StatusCode::BAD_REQUEST);
        assert!(told.text().contains("want {") && !told.text().contains("enum"), "{}", told.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_passing_failure_of_the_service_does_not_end_the_waiting() {
    let stage = setup(&[]).start().await;
    let failing =
        Rule::new(Action::json(503, json!({"error": "canary"}))).route(Route::DeviceToken);
    stage.sim.rule(failing.times(1));
    let login = begin(&stage, json!({"method": "device"})).await;
    let code = login["user_code"].as_str().unwrap();
    assert!(stage.sim.approve_device(Some(code), "bob"));
    assert_eq!(over(&stage, &login).await["state"], "done");

    stage
        .sim
        .rule(Rule::new(Action::json(400, json!({"error": "canary"}))).route(Route::DeviceToken));
    let login = begin(&stage, json!({"method": "device"})).await;
    let told = over(&stage, &login).await;
    assert_eq!(told["state"], "failed");
    assert!(!told.to_string().contains("canary"), "{told}");

    stage.sim.rule(Rule::new(Action::json(500, json!({}))).route(Route::DeviceUsercode));
    let refused = post(&stage, PATH, &json!({})).await;
    assert_eq!(refused.status, StatusCode::BAD_GATEWAY);
    assert_eq!(refused.json()["error"]["code"], "upstream_unreachable");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sign_in_waits_a_quarter_of_an_hour_by_the_clock_that_never_jumps() {
    let clock = Clock::manual("2026-12-01T00:00:00Z".parse::<Timestamp>().unwrap());
    let mut setup = setup(&[]);
    setup.clock = clock.clone();
    let stage = setup.start().await;
    let (pkce, device) = (begin_pkce(&stage).await, begin(&stage, json!({})).await);
    assert_eq!(pkce["expires_at"], "2026-12-01T00:15:00Z");
    clock.jump(SignedDuration::from_hours(24));
    assert_eq!(look(&stage, &pkce).await["state"], "waiting");
    clock.advance(SignedDuration::from_mins(15));
    for login in [&pkce, &device] {
        assert_eq!(look(&stage, login).await["state"], "expired");
    }
    assert_eq!(last_row(&stage, 3).await, row(&device["id"], "expired"));
    let came_to = follow_login(&stage, &pkce).await;
    let late = complete(&stage, &pkce, json!({ "url": came_to })).await;
    assert_eq!(late.status, StatusCode::BAD_REQUEST);
    clock.advance(SignedDuration::from_mins(15));
    assert_eq!(operator(&stage).get(&path_of(&pkce)).await.status, StatusCode::NOT_FOUND);
    assert_eq!(accounts(&stage), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sign_ins_are_bounded_and_can_be_cancelled() {
    let stage = setup(&[]).start().await;
    let mut logins = Vec::new();
    for _ in 0..32 {
        logins.push(begin_pkce(&stage).await);
    }
    let beyond = post(&stage, PATH, &json!({})).await;
    assert_eq!(beyond.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(beyond.json()["error"]["code"], "rate_limit_exceeded");
    let asked = |stage: &Stage| {
        let requests = stage.sim.requests();
        requests.iter().filter(|it| it.route == Route::DeviceUsercode).count()
    };
    assert_eq!(asked(&stage), 0, "no code is asked for that nobody gets");
    let path = path_of(&logins[7]);
    let client = operator(&stage);
    let gone = client.send(client.request(Method::DELETE, &path), "").await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    assert_eq!(client.get(&path).await.status, StatusCode::NOT_FOUND);
    let again = client.send(client.request(Method::DELETE, &path), "").await;
    assert_eq!(again.status, StatusCode::NOT_FOUND);
    begin(&stage, json!({})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_sign_in_renews_an_account_where_it_is() {
    let mut here: Value = serde_json::from_slice(&SimAccount::made_up("bob").auth_json()).unwrap();
    here["mine"] = "kept".into();
    let mut setup = setup(&[]);
    setup.auth_files = Some(vec![("b.json".to_owned(), here.to_string().into_bytes())]);
    let stage = setup.start().await;
    assert!(stage.sim.sign_in_as("bob"));
    let login = begin_pkce(&stage).await;
    let came_to = follow_login(&stage, &login).await;
    let done = complete(&stage, &login, json!({ "url": came_to })).await;
    assert_eq!(done.json()["login"]["state"], "done", "{}", done.text());
    let dir = &stage.app.accounts.config.dir;
    let files = files_below(dir);
    let files: Vec<_> =
        files.iter().filter(|(path, _)| path.extension().is_some_and(|it| it == "json")).collect();
    assert_eq!(files.len(), 1);
    let now: Value = serde_json::from_slice(&files[0].1).unwrap();
    assert_eq!(now["mine"], "kept");
    assert_ne!(now["tokens"]["refresh_token"], here["tokens"]["refresh_token"]);
    assert_eq!(who_serves(&stage, 1).await, ["bob"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_a_sign_in_ours_never_leaves_the_gateway() {
    let stage = setup(&[]).start().await;
    let device = begin(&stage, json!({})).await;
    let pkce = begin_pkce(&stage).await;
    let came_to = follow_login(&stage, &pkce).await;
    let done = complete(&stage, &pkce, json!({ "url": came_to })).await.text();
    let asked = stage.sim.requests();
    let exchange = asked.iter().find(|it| it.route == Route::OauthToken).unwrap();
    let form = format!("?{}", String::from_utf8(exchange.body.clone()).unwrap());
    let account = stage.sim.account("alice").unwrap();
    let said = format!("{device} {pkce} {done} {}", look(&stage, &device).await);
    for secret in [
        part(&form, "code_verifier"),
        part(&came_to, "code"),
        "deviceauth_sim_".to_owned(),
        account.canary(),
        account.account_id.clone(),
        account.email.clone(),
    ] {
        assert!(!said.contains(&secret), "{secret} is in {said}");
    }
}

// === the binary ===

async fn sim() -> Simulator {
    let config = SimConfig { device_interval: 1, ..SimConfig::with_accounts(&["alice", "bob"]) };
    Simulator::start(config).await.unwrap()
}

fn place(sim: &Simulator) -> Place {
    let (base, issuer) = (sim.base_url(), sim.origin());
    Place::new(&format!("[upstream]\ncodex_base_url = \"{base}\"\nauth_base_url = \"{issuer}\"\n"))
}

/// What is said on standard error, until a line holds `word`.
async fn said_until(child: &mut Child, word: &str) -> (String, BufReader<ChildStderr>) {
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains(word) {
        line.clear();
        assert!(errors.read_line(&mut line).await.unwrap() > 0, "it never said {word}");
    }
    (line.trim().to_owned(), errors)
}

/// The rest of what a child prints, and its exit code.
async fn ended(
    mut child: Child,
    mut errors: BufReader<ChildStderr>,
) -> (Option<i32>, String, String) {
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut out).await.unwrap();
    errors.read_to_string(&mut err).await.unwrap();
    (child.wait().await.unwrap().code(), out, err)
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().unwrap().to_string();
    assert!(
        std::process::Command::new("kill").args(["-s", name, &pid]).status().unwrap().success()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_gateway_a_browser_sign_in_goes_into_the_directory() {
    let sim = sim().await;
    assert!(sim.sign_in_as("bob"));
    let place = place(&sim);
    let words = ["accounts", "login", "--no-browser", "--callback-port", "0"];
    let mut child = place.command_of(&words).spawn().unwrap();
    let (url, errors) = said_until(&mut child, "/oauth/authorize?").await;
    let came_to = follow(&sim, &url).await;
    let rest = came_to.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_at(rest.find('/').unwrap());
    let browser = Client { address: host.parse().unwrap(), wire: Wire::H1, key: None, ca: None };
    let forged = browser.get("/auth/callback?code=x&state=y").await;
    assert_eq!(forged.status, StatusCode::BAD_REQUEST);
    assert!(forged.text().contains("belongs to another sign-in"), "{}", forged.text());
    let page = browser.get(path).await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.text().contains("Signed in"), "{}", page.text());
    let (code, out, err) = ended(child, errors).await;
    assert_eq!(code, Some(0), "{err}");
    assert!(out.starts_with("Signed in: account acc_"), "{out}");
    assert!(out.contains("plan pro") && out.contains("b***@sim.example"), "{out}");
    assert!(!out.contains("warning"), "{out}");
    let auth = place.data().join("auth");
    assert_eq!(fs::metadata(&auth).unwrap().permissions().mode() & 0o777, 0o700);
    let files = files_below(&auth);
    let (file, bytes) =
        files.iter().find(|(path, _)| path.extension().is_some_and(|it| it == "json")).unwrap();
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    let kept: Value = serde_json::from_slice(bytes).unwrap();
    let bob = SimAccount::made_up("bob");
    assert_eq!(kept["tokens"]["account_id"], bob.account_id);
    let said = out + &err;
    for canary in [bob.canary(), bob.account_id, bob.email] {
        assert!(!said.contains(&canary), "{canary} is in {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_gateway_a_sign_in_by_a_code_goes_through_it() {
    let sim = sim().await;
    let place = place(&sim);
    let serving = place.serve().await;
    let url = format!("http://{}", serving.admin);
    let words = ["accounts", "login", "--device", "--json", "--admin-url", &url];
    let mut child = place.command_of(&words).spawn().unwrap();
    let (line, errors) = said_until(&mut child, "type in the code ").await;
    let code = line.rsplit(' ').next().unwrap();
    assert!(sim.approve_device(Some(code), "bob"));
    let (code, out, err) = ended(child, errors).await;
    assert_eq!((code, err.as_str()), (Some(0), ""), "nothing moves in a pipe");
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(told["login"]["state"], "done");
    assert!(told["login"]["account"]["label"].as_str().unwrap().starts_with('p'), "{told}");
    let key = Some(place.key());
    let client = Client { address: serving.edge, wire: Wire::H1, key, ca: None };
    let body = json!({"model": "gpt-5.5", "input": "hi"}).to_string();
    assert_eq!(client.post("/v1/codex/responses", body).await.status, StatusCode::OK);
    let printed = serving.stop().await;
    let said = [printed.stdout, printed.stderr, out.into_bytes()].concat();
    assert!(said.len() > 1_000, "the log was on");
    let bob = SimAccount::made_up("bob");
    let secrets = ["deviceauth_sim_", "verifier-of-", "ac_sim_"].map(str::to_owned);
    for canary in secrets.into_iter().chain([bob.canary(), bob.account_id, bob.email]) {
        assert_eq!(memchr::memmem::find(&said, canary.as_bytes()), None, "{canary} shows up");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sign_in_that_is_broken_off_or_refused_is_told_and_fails() {
    let stage = setup(&[]).start().await;
    for _ in 0..31 {
        begin_pkce(&stage).await;
    }
    let key = fs::read_to_string(stage.data_dir.join("admin.key")).unwrap();
    let place = Place::new("");
    let url = format!("http://{}", stage.app.admin);
    let words = ["accounts", "login", "--device", "--admin-url", &url];
    let command = || {
        let mut command = place.command_of(&words);
        command.env("CODEX_EDGE_ADMIN_KEY", key.trim());
        command
    };
    let mut child = command().spawn().unwrap();
    let (_, errors) = said_until(&mut child, "type in the code ").await;
    let full = command().output().await.unwrap();
    assert_eq!(full.status.code(), Some(1));
    let told = String::from_utf8(full.stderr).unwrap();
    assert!(told.contains("32 sign-ins are waiting"), "{told}");
    signal(&child, "INT");
    let (code, out, err) = ended(child, errors).await;
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains("the sign-in is cancelled"), "{err}");

    let refusal = Action::json(400, json!({"error": "canary"}));
    stage.sim.rule(Rule::new(refusal).route(Route::DeviceToken));
    let refused = command().output().await.unwrap();
    assert_eq!(refused.status.code(), Some(1), "the cancelled one made room: {refused:?}");
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(told.contains("begin again") && !told.contains("canary"), "{told}");
    eventually("no account came of it", || accounts(&stage) == 0).await;
}
