//! Accounts as text. Pure.

use jiff::Timestamp;

use crate::{
    admin::{AuthList, DirectoryState, ShownAuth, ShownCooldown, ShownSource},
    cli::{table, users::moment},
};

/// The longest e-mail in a table, so that a row fits a terminal.
const EMAIL_CHARS: usize = 24;

pub(super) fn list(list: &AuthList) -> String {
    if list.auths.is_empty() && list.problems.is_empty() {
        return "No accounts yet: sign in with \"codex-edge accounts login\".\n".to_owned();
    }
    let rows: Vec<[String; 7]> = list.auths.iter().map(row).collect();
    let mut text =
        table::draw(["LABEL", "E-MAIL", "PLAN", "STATE", "UNTIL", "TURNS", "FILES"], &rows);
    if list.directory.state == DirectoryState::AuthDirUnavailable {
        text.push_str("\nThe credential directory cannot be read: mend auth.dir.\n");
    }
    if !list.problems.is_empty() {
        text.push_str("\nFiles to look at:\n");
    }
    for problem in &list.problems {
        text.push_str(&format!("  {}: {}\n", problem.path, problem.reason));
    }
    text
}

fn row(auth: &ShownAuth) -> [String; 7] {
    let until = moment(auth.cooldown.as_ref().map(|it| it.until));
    let problems = auth.sources.iter().filter(|it| it.problem.is_some()).count();
    let files = match (auth.sources.len(), problems) {
        (files, 0) => files.to_string(),
        // What it is about is told below the table.
        (files, _) => format!("{files}!"),
    };
    [
        auth.label.clone(),
        short(auth.email_masked.as_deref().unwrap_or("-")),
        auth.plan.as_deref().unwrap_or("-").to_owned(),
        short_state(auth),
        until,
        auth.active_turns.to_string(),
        files,
    ]
}

pub(super) fn show(auth: &ShownAuth) -> String {
    let or_dash = |it: &Option<String>| it.as_deref().unwrap_or("-").to_owned();
    let conflict =
        if auth.identity_conflict { ", and its files disagree on who it is" } else { "" };
    let lines = [
        ("label", auth.label.clone()),
        ("auth id", auth.auth_id.clone()),
        ("account id", or_dash(&auth.account_id)),
        ("selector", or_dash(&auth.selector)),
        ("identity", format!("{}{conflict}", auth.identity_state)),
        ("e-mail", or_dash(&auth.email_masked)),
        ("plan", or_dash(&auth.plan)),
        ("seat", or_dash(&auth.seat)),
        ("state", state(auth)),
        ("enabled", yes(auth.switches.enabled)),
        ("paused", yes(auth.switches.paused)),
        ("cooldown", auth.cooldown.as_ref().map_or_else(|| "-".to_owned(), cooldown)),
        ("last error", or_dash(&auth.last_error)),
        ("token ends", moment(auth.token_expires_at)),
        ("last refresh", moment(auth.last_refresh_at)),
        ("bindings", auth.session_binding_count.to_string()),
        ("turns", auth.active_turns.to_string()),
        ("sockets", auth.active_sockets.to_string()),
        ("egress", auth.egress.clone()),
    ];
    let mut text: String =
        lines.iter().map(|(name, value)| format!("{name:12}  {value}\n")).collect();
    text.push_str("files\n");
    text.extend(auth.sources.iter().map(source));
    text
}

fn source(source: &ShownSource) -> String {
    let problem = source.problem.as_deref().map_or_else(String::new, |it| format!(": {it}"));
    format!("  {}  {}{problem}\n", source.path, source.state)
}

fn cooldown(cooldown: &ShownCooldown) -> String {
    let ShownCooldown { until, source, kind } = cooldown;
    format!("until {} ({kind}, {source})", moment(Some(*until)))
}

/// The state and its reason, and that an account cannot be managed.
fn state(auth: &ShownAuth) -> String {
    let reason = auth.reason.as_deref().map_or_else(String::new, |it| format!(": {it}"));
    let note = if auth.manageable { "" } else { " (unidentified)" };
    format!("{}{reason}{note}", auth.runtime_state)
}

/// The same for a table: of an account that cannot serve the reason alone.
fn short_state(auth: &ShownAuth) -> String {
    let state = state(auth);
    state.strip_prefix("unavailable: ").map(str::to_owned).unwrap_or(state)
}

fn yes(it: bool) -> String {
    if it { "yes" } else { "no" }.to_owned()
}

fn short(email: &str) -> String {
    if email.chars().count() <= EMAIL_CHARS {
        return email.to_owned();
    }
    email.chars().take(EMAIL_CHARS - 1).chain(['…']).collect()
}

/// The account in a sentence.
fn name(auth: &ShownAuth) -> String {
    match &auth.email_masked {
        Some(email) => format!("{} ({email})", auth.label),
        None => auth.label.clone(),
    }
}

pub(super) fn refreshed(auth: &ShownAuth) -> String {
    let until = |it: Timestamp| format!(", good until {}", moment(Some(it)));
    let until = auth.token_expires_at.map_or_else(String::new, until);
    format!("{} has new tokens{until}.\n", name(auth))
}

pub(super) fn paused(auth: &ShownAuth) -> String {
    let label = &auth.label;
    format!("{} gets no new work until \"codex-edge accounts resume {label}\".\n", name(auth))
}

pub(super) fn disabled(auth: &ShownAuth) -> String {
    let label = &auth.label;
    format!("{} is switched off until \"codex-edge accounts enable {label}\".\n", name(auth))
}

pub(super) fn may_serve(auth: &ShownAuth) -> String {
    if auth.runtime_state == "active" {
        return format!("{} may serve.\n", name(auth));
    }
    let verb = match auth.reason.as_deref() {
        Some("disabled") => format!("enable {}", auth.label),
        Some("paused") => format!("resume {}", auth.label),
        Some("needs_login") => "login".to_owned(),
        Some(_) | None => return format!("Done; {} is still {}.\n", name(auth), state(auth)),
    };
    format!("Done; {} is still {}: run \"codex-edge accounts {verb}\".\n", name(auth), state(auth))
}

pub(super) fn removed(auth: &ShownAuth) -> String {
    format!("{} is removed, and its credential files are deleted.\n", name(auth))
}

pub(super) fn question(auth: &ShownAuth) -> String {
    let files: Vec<&str> = auth.sources.iter().map(|it| it.path.as_str()).collect();
    format!("Delete {} for good ({})?", name(auth), files.join(", "))
}
