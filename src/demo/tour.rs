//! The steps of the demo's tour.

use std::{collections::BTreeMap, fs, io};

use serde_json::{Value, json};

use super::{NAMES, Scene, say};
use crate::{
    accounts::manage::Status,
    sim::{Action, End, Route, Rule},
};

const SESSION: &str = "the-demos-session";

/// What the client saw of one turn.
struct Turn {
    status: u16,
    body: String,
    /// The accounts that upstream saw, in order.
    accounts: Vec<String>,
    /// The answer broke off.
    broken: bool,
}

pub(super) async fn run(scene: &Scene) -> Result<(), String> {
    say(format_args!("1. A streamed answer."));
    streamed_answer(scene).await?;
    say(format_args!("2. Six turns, spread over the pool."));
    equal_share(scene).await?;
    say(format_args!("3. Three turns of one session."));
    let holder = sticky_session(scene).await?;
    say(format_args!("4. The session's account runs into its limit before any output."));
    hidden_failover(scene, &holder).await?;
    say(format_args!("5. An answer breaks off after the first output."));
    nothing_repeated(scene).await?;
    say(format_args!("6. Upstream refuses the token of the session's account."));
    let holder = token_renewed(scene).await?;
    say(format_args!("7. That account's file is moved, then copied, while its session goes on."));
    file_moved(scene, &holder).await?;
    say(format_args!("8. Every account has used up its limit."));
    used_up(scene).await
}

async fn streamed_answer(scene: &Scene) -> Result<(), String> {
    let turn = ask(scene).await?;
    expect(turn.status == 200, "the answer is a 200")?;
    expect(turn.body.contains("response.completed"), "the stream is complete")?;
    say(format_args!(
        "   {} answered: \u{201c}{}\u{201d}",
        turn.accounts.join(", "),
        text_of(&turn.body)
    ));
    Ok(())
}

async fn equal_share(scene: &Scene) -> Result<(), String> {
    let mut share = BTreeMap::new();
    for _ in 0..6 {
        for account in ask(scene).await?.accounts {
            *share.entry(account).or_insert(0) += 1;
        }
    }
    expect(NAMES.iter().all(|name| share.get(*name) == Some(&2)), "each account has two turns")?;
    let told: Vec<String> = share.iter().map(|(name, turns)| format!("{name} {turns}")).collect();
    say(format_args!("   {}", told.join(", ")));
    Ok(())
}

/// Gives the account that holds the session.
async fn sticky_session(scene: &Scene) -> Result<String, String> {
    let mut holders = Vec::new();
    for _ in 0..3 {
        holders.extend(ask_in(scene, Some(SESSION)).await?.accounts);
        // Others come in between.
        ask(scene).await?;
    }
    let holder = holders.first().cloned().unwrap_or_default();
    expect(holders.iter().all(|it| *it == holder), "the session stays with its account")?;
    say(format_args!("   {holder} answered each of them"));
    Ok(holder)
}

async fn hidden_failover(scene: &Scene, holder: &str) -> Result<(), String> {
    let limit = Action::usage_limit_reached(far_future());
    scene.sim.rule(Rule::new(limit).route(Route::Turn).account(holder).times(1));
    let turn = ask_in(scene, Some(SESSION)).await?;
    expect(turn.status == 200 && !turn.broken, "the client sees one good answer")?;
    expect(turn.accounts.len() == 2, "two accounts were asked")?;
    expect(!turn.body.contains("usage_limit_reached"), "nothing of the refusal is shown")?;
    say(format_args!(
        "   upstream refused {} with a 429, {} answered; the client saw a 200 and one answer",
        turn.accounts[0], turn.accounts[1]
    ));
    Ok(())
}

async fn nothing_repeated(scene: &Scene) -> Result<(), String> {
    scene.sim.rule(Rule::new(Action::end_after(4, End::Cut)).route(Route::Turn).times(1));
    let turn = ask(scene).await?;
    expect(turn.broken, "the answer breaks off as upstream broke it off")?;
    expect(turn.accounts.len() == 1, "one account was asked")?;
    say(format_args!(
        "   {} broke off, nobody else was asked: Codex itself goes on",
        turn.accounts[0]
    ));
    Ok(())
}

/// Gives the account that holds the session now.
async fn token_renewed(scene: &Scene) -> Result<String, String> {
    let holder = ask_in(scene, Some(SESSION)).await?.accounts.concat();
    let before = scene.sim.requests().len();
    scene.sim.revoke_access(&holder);
    let turn = ask_in(scene, Some(SESSION)).await?;
    let seen = scene.sim.requests().split_off(before);
    let asked = |route: Route| seen.iter().filter(|it| it.route == route).count();
    expect(turn.status == 200 && !turn.broken, "the client sees one good answer")?;
    expect(asked(Route::OauthToken) == 1, "the token is renewed once")?;
    expect(
        asked(Route::Responses) == 2 && turn.accounts.iter().all(|it| *it == holder),
        "the same account is asked again, and no other",
    )?;
    say(format_args!("   {holder} got a new token and answered; the client saw a 200"));
    Ok(holder)
}

async fn file_moved(scene: &Scene, holder: &str) -> Result<(), String> {
    let accounts = &scene.app.accounts;
    let file = |name: &str| accounts.config.dir.join(name);
    let failed = |error: io::Error| format!("the demo's files cannot be changed: {error}");
    let (before, moved) = (file(&format!("{holder}.json")), file("moved.json"));
    fs::rename(before, &moved).map_err(failed)?;
    accounts.reconciler.look().await;
    let first = ask_in(scene, Some(SESSION)).await?;
    fs::copy(&moved, file("copy.json")).map_err(failed)?;
    accounts.reconciler.look().await;
    let second = ask_in(scene, Some(SESSION)).await?;
    let stayed = |it: &Turn| it.status == 200 && it.accounts == [holder];
    expect(stayed(&first) && stayed(&second), "the session stays with its account")?;
    let statuses = accounts.statuses();
    expect(statuses.len() == NAMES.len(), "no account came or went")?;
    let files = |it: &&Status| it.account.sources.len();
    expect(statuses.iter().filter(|it| files(it) == 2).count() == 1, "one account has two files")?;
    say(format_args!(
        "   {holder} answered both turns; two files, still {} accounts",
        statuses.len()
    ));
    Ok(())
}

async fn used_up(scene: &Scene) -> Result<(), String> {
    scene.sim.reset();
    scene.sim.rule(Rule::new(Action::usage_limit_reached(far_future())).route(Route::Turn));
    let turn = ask(scene).await?;
    let error: Value = serde_json::from_str(&turn.body).unwrap_or_default();
    let error = &error["error"];
    expect(turn.status == 429, "the answer is a 429")?;
    expect(error["type"] == "usage_limit_reached", "Codex shows its own clear text")?;
    say(format_args!(
        "   429 {}: {}",
        error["code"].as_str().unwrap_or_default(),
        error["message"]
    ));
    Ok(())
}

async fn ask(scene: &Scene) -> Result<Turn, String> {
    ask_in(scene, None).await
}

async fn ask_in(scene: &Scene, session: Option<&str>) -> Result<Turn, String> {
    let before = scene.sim.requests().len();
    let mut request = reqwest::Client::new()
        .post(scene.responses_url())
        .bearer_auth(&scene.key)
        .json(&json!({"model": "gpt-5.5", "stream": true, "input": "Say hello."}));
    if let Some(session) = session {
        request = request.header("session-id", session);
    }
    let mut response = request.send().await.map_err(|error| error.to_string())?;
    let status = response.status().as_u16();
    let (mut body, mut broken) = (Vec::new(), false);
    loop {
        match response.chunk().await {
            Ok(Some(piece)) => body.extend_from_slice(&piece),
            Ok(None) => break,
            Err(_) => {
                broken = true;
                break;
            }
        }
    }
    let seen = scene.sim.requests().into_iter().skip(before);
    let accounts = seen.filter(|it| it.route == Route::Responses).filter_map(|it| it.account);
    Ok(Turn {
        status,
        body: String::from_utf8_lossy(&body).into_owned(),
        accounts: accounts.collect(),
        broken,
    })
}

/// The text of a streamed answer, put together from its deltas.
fn text_of(stream: &str) -> String {
    stream
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .filter_map(|data| serde_json::from_str::<Value>(data).ok())
        .filter(|event| event["type"] == "response.output_text.delta")
        .filter_map(|event| event["delta"].as_str().map(str::to_owned))
        .collect()
}

/// A reset within the week, told by the simulator's clock.
fn far_future() -> i64 {
    crate::clock::Clock::system().now().as_second() + 3_600
}

fn expect(holds: bool, promise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("expected that {promise}")) }
}
