//! The binary as a person at a terminal, or a script, meets it.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

use codex_edge::{accounts::directory::Lock, sim::SimConfig};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{
    process::Place,
    stage::{Setup, Stage, eventually},
};

/// The binary on a machine without any configuration, its home in `home`.
fn binary(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_codex-edge"));
    command.env_clear().env("HOME", home);
    command
}

fn run(arguments: &[&str]) -> Output {
    let home = TempDir::new().unwrap();
    binary(home.path()).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The verb `users` against the gateway of a stage.
fn users(stage: &Stage, arguments: &[&str]) -> Output {
    let home = TempDir::new().unwrap();
    let key = fs::read_to_string(stage.data_dir.join("admin.key")).unwrap();
    binary(home.path())
        .env("CODEX_EDGE_ADMIN_URL", format!("http://{}", stage.app.admin))
        .env("CODEX_EDGE_ADMIN_KEY", key.trim())
        .arg("users")
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn every_verb_has_help_with_an_example() {
    let table = [
        "",
        "serve",
        "check",
        "demo",
        "sim",
        "users",
        "users list",
        "users create",
        "users show",
        "users disable",
        "users enable",
        "users reset-key",
        "users delete",
        "accounts",
        "accounts list",
        "accounts show",
        "accounts refresh",
        "accounts pause",
        "accounts resume",
        "accounts enable",
        "accounts disable",
        "accounts clear-cooldown",
        "accounts remove",
        "accounts login",
        "accounts import",
        "completions",
    ];
    for verb in table {
        let mut arguments: Vec<&str> = verb.split_whitespace().collect();
        arguments.push("--help");
        let output = run(&arguments);
        let text = stdout(&output);
        assert_eq!(output.status.code(), Some(0), "{verb}");
        let example = text.split("Example:\n").nth(1).unwrap_or_default();
        assert!(example.contains(format!("codex-edge {verb}").trim_end()), "{verb}: {text}");
    }
}

#[test]
fn wrong_usage_is_told_on_standard_error_with_code_2() {
    let table: [&[&str]; 7] = [
        &[],
        &["dance"],
        &["serve", "--colour"],
        &["users"],
        &["users", "create"],
        &["completions", "tcsh"],
        &["sim", "--listen", "nowhere"],
    ];
    for arguments in table {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn every_shell_gets_its_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        assert!(stdout(&output).contains("codex-edge"), "{shell}");
    }
}

#[test]
fn what_is_not_built_yet_says_so() {
    let output = run(&["serve", "--upgrade"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("not built yet"), "{}", stderr(&output));
}

#[test]
fn check_tells_every_fault_of_a_configuration_at_once() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("bad.toml");
    let text = r#"
        colour = "blue"
        [server]
        listen = ["nowhere"]
        admin_listen = 8318
        [auth]
        dir = "relative"
        parse_grace = "5 parsecs"
        [upstream]
        codex_base_url = "chatgpt.com"
        [routing]
        strategy = "random"
        max_attempts = 0
        [limits]
        max_body = 64
        [log]
        level = "loud"
        "#;
    fs::write(&file, text).unwrap();
    let output = binary(home.path()).arg("check").arg("--config").arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(78));
    let told = stderr(&output);
    let keys = [
        "colour",
        "server.listen",
        "server.admin_listen",
        "auth.dir",
        "auth.parse_grace",
        "upstream.codex_base_url",
        "routing.strategy",
        "routing.max_attempts",
        "limits.max_body",
        "log.level",
    ];
    for key in keys {
        let begin = format!("{}: {key}: ", file.display());
        let line = told.lines().find(|it| it.starts_with(&begin));
        assert!(line.is_some_and(|it| it.contains("; ")), "{key}: {told}");
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "check changes nothing");
}

#[test]
fn check_tells_every_fault_of_the_files_at_once() {
    let home = TempDir::new().unwrap();
    let at = |name: &str| home.path().join(name);
    fs::write(at("cert.pem"), "no certificate").unwrap();
    fs::write(at("ca.pem"), "").unwrap();
    fs::write(at("admin.key"), "short").unwrap();
    fs::write(at("file"), "").unwrap();
    let text = format!(
        "[server]\ntls.cert = {:?}\ntls.key = {:?}\n[auth]\ndir = {:?}\n\
         [upstream]\nca_file = {:?}\n[admin]\nkey_file = {:?}\n",
        at("cert.pem"),
        at("absent.pem"),
        at("file"),
        at("ca.pem"),
        at("admin.key"),
    );
    fs::write(at("config.toml"), text).unwrap();
    let output =
        binary(home.path()).arg("check").arg("--config").arg(at("config.toml")).output().unwrap();
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    let keys =
        ["server.tls.cert", "server.tls.key", "auth.dir", "upstream.ca_file", "admin.key_file"];
    for key in keys {
        assert!(told.contains(&format!(": {key}: ")), "{key}: {told}");
    }
}

#[test]
fn check_passes_where_serve_would_start_and_changes_nothing() {
    let home = TempDir::new().unwrap();
    let output = binary(home.path()).arg("check").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("0 accounts"), "{}", stdout(&output));
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn without_a_key_or_a_gateway_the_error_says_what_to_do() {
    let output = run(&["users", "list"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("codex-edge serve"), "{}", stderr(&output));

    let home = TempDir::new().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    drop(taken);
    let output = binary(home.path())
        .env("CODEX_EDGE_ADMIN_KEY", "cea_0123456789abcdef")
        .args(["users", "list", "--admin-url", &format!("http://{address}")])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output);
    assert!(told.contains("no gateway answers") && told.contains("--admin-url"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[tokio::test]
async fn a_user_is_made_shown_changed_and_deleted() {
    let stage = Setup::with_accounts(&["alice"]).start().await;
    let made = users(&stage, &["create", "ann"]);
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    let text = stdout(&made);
    assert!(text.contains("  cek_") && text.contains("model_provider = \"codex-edge\""), "{text}");

    let listed = stdout(&users(&stage, &["list"]));
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].starts_with("NAME") && lines.len() == 3, "{listed}");
    assert!(lines[2].starts_with("ann    usr_") && lines[2].contains("enabled"), "{listed}");
    let json: Value = serde_json::from_slice(&users(&stage, &["list", "--json"]).stdout).unwrap();
    assert_eq!(json["users"][1]["name"], "ann");

    assert_eq!(users(&stage, &["disable", "ann"]).status.code(), Some(0));
    assert!(stdout(&users(&stage, &["show", "ann"])).contains("disabled"));
    assert_eq!(users(&stage, &["enable", "ann"]).status.code(), Some(0));
    assert!(stdout(&users(&stage, &["reset-key", "ann"])).contains("  cek_"));
    assert_eq!(users(&stage, &["delete", "ann"]).status.code(), Some(0));
    for arguments in [["show", "ann"], ["show", ".."], ["create", "a b"], ["create", "local"]] {
        let output = users(&stage, &arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(stderr(&output).starts_with("codex-edge: "), "{}", stderr(&output));
    }
}

#[tokio::test]
async fn a_wrong_admin_key_is_told_and_not_shown() {
    let stage = Setup::with_accounts(&["alice"]).start().await;
    let home = TempDir::new().unwrap();
    let output = binary(home.path())
        .env("CODEX_EDGE_ADMIN_KEY", "cea_0123456789abcdef")
        .args(["users", "list", "--admin-url", &format!("http://{}/", stage.app.admin)])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output);
    assert!(told.contains("CODEX_EDGE_ADMIN_KEY") && !told.contains("0123"), "{told}");
}

#[test]
fn check_counts_the_accounts_and_names_the_files_to_mend() {
    let home = TempDir::new().unwrap();
    let auth = home.path().join("auth");
    fs::create_dir(&auth).unwrap();
    for account in SimConfig::with_accounts(&["alice", "bob"]).accounts {
        let file = auth.join(format!("{}.json", account.name));
        fs::write(&file, account.auth_json()).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    }
    fs::write(auth.join("broken.json"), "{").unwrap();
    let file = home.path().join("config.toml");
    fs::write(&file, format!("[auth]\ndir = {auth:?}\n")).unwrap();
    let output = binary(home.path()).arg("check").arg("--config").arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("2 accounts"), "{}", stdout(&output));
    let named = format!("notice: {}: ", auth.join("broken.json").display());
    assert!(stderr(&output).contains(&named), "{}", stderr(&output));
    assert!(!stderr(&output).contains("alice.json"), "{}", stderr(&output));
}

#[test]
fn check_tells_that_another_gateway_uses_the_credential_directory() {
    let home = TempDir::new().unwrap();
    let auth = home.path().join("auth");
    fs::create_dir(&auth).unwrap();
    let check = || binary(home.path()).env("CODEX_EDGE__AUTH__DIR", &auth).arg("check").output();
    assert!(!stderr(&check().unwrap()).contains("auth.dir"));
    let _other = Lock::acquire(&auth).unwrap();
    let output = check().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("auth.dir: another codex-edge is using"), "{output:?}");
}

/// What takes no byte.
fn full() -> fs::File {
    fs::File::options().write(true).open("/dev/full").unwrap()
}

#[test]
fn the_demo_goes_on_though_nobody_reads_it() {
    let home = TempDir::new().unwrap();
    let output = binary(home.path()).arg("demo").stdout(full()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let output = binary(home.path()).arg("demo").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).ends_with("Everything went as told.\n"), "{}", stdout(&output));
}

#[tokio::test]
async fn a_gateway_serves_though_its_greeting_cannot_be_written() {
    let place = Place::new("");
    let mut child = place.command_of(&["serve"]).stdout(full()).spawn().unwrap();
    eventually("the gateway has started", || place.data().join("local.key").exists()).await;
    let pid = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn check_beside_a_running_gateway_says_so_and_passes() {
    let stage = Setup::with_accounts(&["alice"]).start().await;
    let file = stage.data_dir.with_file_name("config.toml");
    fs::write(&file, format!("[server]\ndata_dir = {:?}\n", stage.data_dir)).unwrap();
    let output = binary(&stage.data_dir).arg("check").arg("--config").arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("another codex-edge"), "{}", stderr(&output));
}
