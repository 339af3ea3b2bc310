//! `codex-edge accounts` as a person at a terminal, or a script, meets it.

use std::{fs, process::Output};

use codex_edge::sim::SimAccount;
use serde_json::{Value, json};

use crate::support::process::{Place, Serving};

/// A gateway as an operator has it, with two accounts, one of which has two files.
struct Desk {
    place: Place,
    serving: Serving,
}

// === impl Desk ===

impl Desk {
    async fn open() -> Self {
        let place = Place::new("");
        for (file, name) in [("a.json", "a"), ("b.json", "b"), ("copy.json", "a")] {
            fs::write(place.auth().join(file), SimAccount::made_up(name).auth_json()).unwrap();
        }
        let serving = place.serve().await;
        Self { place, serving }
    }

    async fn accounts(&self, words: &[&str]) -> Output {
        let url = format!("http://{}", self.serving.admin);
        let words = [&["accounts"], words, &["--admin-url", &url]].concat();
        self.place.command_of(&words).output().await.unwrap()
    }

    /// What a verb that succeeds prints.
    async fn told(&self, words: &[&str]) -> String {
        let output = self.accounts(words).await;
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", stderr(&output));
        assert!(output.stderr.is_empty(), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    async fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.told(&[words, &["--json"]].concat()).await).unwrap()
    }

    /// The label of the account with this masked address.
    async fn label(&self, email: &str) -> String {
        let listed = self.json(&["list"]).await;
        let auths = listed["auths"].as_array().unwrap();
        let auth = auths.iter().find(|it| it["email_masked"] == email).unwrap();
        auth["label"].as_str().unwrap().to_owned()
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// One sentence on standard error, nothing on standard output, code 1.
fn refused(output: &Output) -> String {
    let told = stderr(output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(output.stdout.is_empty() && told.starts_with("codex-edge: "), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    told
}

#[tokio::test]
async fn accounts_are_listed_and_shown() {
    let desk = Desk::open().await;
    let table = desk.told(&["list"]).await;
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("LABEL") && lines.len() >= 3, "{table}");
    assert!(lines.iter().take(3).all(|it| it.chars().count() <= 100), "{table}");
    assert!(lines[1..3].iter().all(|it| it.contains("***@sim.example")), "{table}");
    assert!(lines[1..3].iter().all(|it| it.contains("active")), "{table}");

    let label = desk.label("a***@sim.example").await;
    let shown = desk.told(&["show", &label]).await;
    let account_id = SimAccount::made_up("a").account_id;
    for wanted in ["auth id", "acc_", &account_id, "identified", "path:a.json", "path:copy.json"] {
        assert!(shown.contains(wanted), "{wanted}: {shown}");
    }
    assert!(shown.contains("path:copy.json  standby"), "{shown}");
    let json = desk.json(&["show", &account_id]).await;
    assert_eq!(json["auth"]["label"], label.as_str());
    assert_eq!(json["auth"]["sources"].as_array().unwrap().len(), 2);
    let id = json["auth"]["auth_id"].as_str().unwrap();
    assert_eq!(desk.told(&["show", id]).await, shown);
}

#[tokio::test]
async fn each_verb_does_what_it_says() {
    let desk = Desk::open().await;
    let label = desk.label("a***@sim.example").await;
    let state = async |key: &str| desk.json(&["show", &label]).await["auth"][key].clone();
    let text = desk.told(&["pause", &label]).await;
    assert!(text.contains(&format!("codex-edge accounts resume {label}")), "{text}");
    assert_eq!(state("paused").await, true);
    let text = desk.told(&["enable", &label]).await;
    assert!(text.contains("still unavailable: paused: run \"codex-edge accounts resume"), "{text}");
    assert!(desk.told(&["list"]).await.contains("  paused"));
    assert!(desk.told(&["resume", &label]).await.contains("may serve"));
    assert_eq!(state("paused").await, false);
    let text = desk.told(&["disable", &label]).await;
    assert!(text.contains("accounts enable"), "{text}");
    assert_eq!(state("reason").await, "disabled");
    assert!(desk.told(&["enable", &label]).await.contains("may serve"));
    assert_eq!(state("reason").await, Value::Null);
    let json = desk.json(&["clear-cooldown", &label]).await;
    assert_eq!(json["auth"]["label"], label.as_str());
    // In a pipe nobody is asked.
    let text = desk.told(&["remove", &label]).await;
    assert!(text.contains("removed"), "{text}");
    for name in ["a.json", "copy.json"] {
        assert!(!desk.place.auth().join(name).exists(), "{name}");
    }
    assert!(refused(&desk.accounts(&["show", &label]).await).contains("accounts list"));
    let label = desk.label("b***@sim.example").await;
    desk.told(&["remove", &label, "--yes"]).await;
    assert_eq!(desk.json(&["list"]).await["auths"], json!([]));
    assert!(desk.told(&["list"]).await.contains("codex-edge accounts login"));
}

#[tokio::test]
async fn a_refusal_says_what_to_do() {
    let desk = Desk::open().await;
    let auth = desk.place.auth();
    fs::write(auth.join("opaque.json"), r#"{"tokens":{"access_token":"canary-opaque"}}"#).unwrap();
    let mut mate = SimAccount::made_up("mate");
    let workspace = SimAccount::made_up("a").account_id;
    mate.account_id.clone_from(&workspace);
    mate.access_token = mate.mint_access(0, 4_102_444_800);
    mate.id_token = mate.mint_id(4_102_444_800);
    fs::write(auth.join("mate.json"), mate.auth_json()).unwrap();
    fs::write(auth.join("broken.json"), "{").unwrap();
    // Any change has the gateway look at the directory first.
    let label = desk.label("b***@sim.example").await;
    desk.told(&["resume", &label]).await;

    let told = refused(&desk.accounts(&["pause", &workspace]).await);
    let candidates = ["a***@sim.example", "m***@sim.example", "several"];
    assert!(candidates.iter().all(|it| told.contains(it)), "{told}");
    assert_eq!(told.matches("acc_").count(), 2, "{told}");
    assert!(refused(&desk.accounts(&["pause", "nobody"]).await).contains("accounts list"));
    let listed = desk.told(&["list"]).await;
    assert!(listed.contains("  1!\n"), "a file that others can read: {listed}");
    assert!(listed.contains("(unidentified)") && listed.contains("path:broken.json: "), "{listed}");
    let json = desk.json(&["list"]).await;
    let opaque = json["auths"].as_array().unwrap().iter().find(|it| it["manageable"] == false);
    let opaque = opaque.unwrap()["label"].as_str().unwrap().to_owned();
    for verb in ["pause", "resume", "enable", "disable", "refresh", "clear-cooldown", "remove"] {
        let told = refused(&desk.accounts(&[verb, &opaque]).await);
        assert!(told.contains("accounts login") && !told.contains("canary"), "{verb}: {told}");
    }
    let usage = desk.accounts(&["pause"]).await;
    assert_eq!(usage.status.code(), Some(2));
}

#[tokio::test]
async fn without_its_directory_a_gateway_changes_nothing_and_logs_no_path() {
    let desk = Desk::open().await;
    let label = desk.label("b***@sim.example").await;
    let (auth, away) = (desk.place.auth(), desk.place.data().join("away"));
    fs::rename(&auth, &away).unwrap();
    let told = refused(&desk.accounts(&["disable", &label]).await);
    assert!(told.contains("mend auth.dir"), "{told}");
    let file = away.join("b.json").display().to_string();
    assert_eq!(desk.accounts(&["import", &file]).await.status.code(), Some(1));
    let log = String::from_utf8(desk.serving.stop().await.stderr).unwrap();
    assert!(log.contains("no file was changed") && log.contains("nothing was taken in"), "{log}");
    assert!(!log.contains(&auth.display().to_string()), "{log}");
}

#[tokio::test]
async fn without_a_gateway_the_error_says_so() {
    let place = Place::new("");
    let output = place.command_of(&["accounts", "list"]).output().await.unwrap();
    assert!(refused(&output).contains("codex-edge serve"));
}
