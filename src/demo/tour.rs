//! The steps of the demo's tour.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{NAMES, Scene};
use crate::sim::{Action, End, Route, Rule};

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
    println!("1. A streamed answer.");
    streamed_answer(scene).await?;
    println!("2. Six turns, spread over the pool.");
    equal_share(scene).await?;
    println!("3. Three turns of one session.");
    let holder = sticky_session(scene).await?;
    println!("4. The session's account runs into its limit before any output.");
    hidden_failover(scene, &holder).await?;
    println!("5. An answer breaks off after the first output.");
    nothing_repeated(scene).await?;
    println!("6. Every account has used up its limit.");
    used_up(scene).await
}

async fn streamed_answer(scene: &Scene) -> Result<(), String> {
    let turn = ask(scene).await?;
    expect(turn.status == 200, "the answer is a 200")?;
    expect(turn.body.contains("response.completed"), "the stream is complete")?;
    println!("   {} answered: \u{201c}{}\u{201d}", turn.accounts.join(", "), text_of(&turn.body));
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
    println!("   {}", told.join(", "));
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
    println!("   {holder} answered each of them");
    Ok(holder)
}

async fn hidden_failover(scene: &Scene, holder: &str) -> Result<(), String> {
    let limit = Action::usage_limit_reached(far_future());
    scene.sim.rule(Rule::new(limit).route(Route::Turn).account(holder).times(1));
    let turn = ask_in(scene, Some(SESSION)).await?;
    expect(turn.status == 200 && !turn.broken, "the client sees one good answer")?;
    expect(turn.accounts.len() == 2, "two accounts were asked")?;
    expect(!turn.body.contains("usage_limit_reached"), "nothing of the refusal is shown")?;
    println!(
        "   upstream refused {} with a 429, {} answered; the client saw a 200 and one answer",
        turn.accounts[0], turn.accounts[1]
    );
    Ok(())
}

async fn nothing_repeated(scene: &Scene) -> Result<(), String> {
    scene.sim.rule(Rule::new(Action::end_after(4, End::Cut)).route(Route::Turn).times(1));
    let turn = ask(scene).await?;
    expect(turn.broken, "the answer breaks off as upstream broke it off")?;
    expect(turn.accounts.len() == 1, "one account was asked")?;
    println!("   {} broke off, nobody else was asked: Codex itself goes on", turn.accounts[0]);
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
    println!("   429 {}: {}", error["code"].as_str().unwrap_or_default(), error["message"]);
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
    let accounts = scene.sim.requests().into_iter().skip(before).filter_map(|it| it.account);
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
