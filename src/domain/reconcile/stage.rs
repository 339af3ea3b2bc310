//! Looks at a directory that is written down in words, for the tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;

use super::{
    Aspect, Change, Content, Login, Memory, Moment, Observed, Plan, Planned, Sight, Terms, View,
    plan,
};
use crate::domain::{
    account::{AccountId, AuthId, MaskedEmail},
    credential::{AccessToken, Credential, Fingerprint, RefreshToken},
    identity::{Claims, PathId, SeatKind},
};

/// One process that looks again and again.
#[derive(Clone, Debug, Default)]
pub(super) struct Stage {
    pub memory: Memory,
    pub paused: BTreeSet<AuthId>,
    pub rotations: Vec<(Fingerprint, Fingerprint)>,
    pub now: i64,
    names: BTreeMap<AuthId, String>,
}

pub(super) const GRACE: Duration = Duration::from_secs(5);

// === impl Stage ===

impl Stage {
    /// Looks at `elapsed` seconds.
    pub(super) fn look(&mut self, elapsed: u64, view: &str) -> Plan {
        self.take(elapsed, &self::view(view))
    }

    pub(super) fn take(&mut self, elapsed: u64, view: &View) -> Plan {
        let terms = Terms {
            moment: Moment {
                now: Timestamp::from_second(self.now).unwrap(),
                elapsed: Duration::from_secs(elapsed),
            },
            parse_grace: GRACE,
            paused: &self.paused,
            rotations: &self.rotations,
        };
        let plan = plan(view, &self.memory, &terms);
        self.memory = plan.memory.clone();
        for planned in &plan.accounts {
            self.names.insert(planned.resolved.id.clone(), name(planned));
        }
        plan
    }

    /// Each account with its files: `*` is in use, `!` has a problem; `-` before an account is
    /// disabled, `=` paused and `?` out of sight.
    pub(super) fn accounts(&self, plan: &Plan) -> String {
        let mut accounts: Vec<&Planned> = plan.accounts.iter().collect();
        accounts.sort_by_key(|it| name(it));
        accounts.into_iter().map(show).collect::<Vec<_>>().join(" ")
    }

    /// The changes in their order; those that only the ids put in order, by name.
    pub(super) fn changes(&self, plan: &Plan) -> String {
        assert!(plan.changes.is_sorted_by_key(order), "{:?}", plan.changes);
        let mut shown: Vec<_> =
            plan.changes.iter().map(|it| (order(it).0, self.show(it))).collect();
        shown.sort_by(|a, b| (a.0, &a.1.0).cmp(&(b.0, &b.1.0)));
        shown.into_iter().map(|it| it.1.1).collect::<Vec<_>>().join(" ")
    }

    /// The name of the account and the change.
    fn show(&self, change: &Change) -> (String, String) {
        let name = self.name(order(change).1);
        let shown = match change {
            Change::Added { .. } => format!("+{name}"),
            Change::Removed { .. } => format!("-{name}"),
            Change::Renamed { from, .. } => format!("{}>{name}", self.name(from)),
            Change::Purged { .. } => format!("purged:{name}"),
            Change::Updated { aspect, .. } => format!("{name}.{}", word(*aspect)),
        };
        (name, shown)
    }

    pub(super) fn held(&self, plan: &Plan) -> String {
        let everyone = plan.held.everyone.then(|| "everyone".to_owned());
        let accounts = plan.held.accounts.iter().map(|it| self.name(it));
        everyone.into_iter().chain(accounts).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn id(&self, wanted: &str) -> AuthId {
        self.names.iter().find(|(_, name)| *name == wanted).unwrap().0.clone()
    }

    fn name(&self, id: &AuthId) -> String {
        self.names[id].clone()
    }
}

/// `a=A,u:1,t:2 b=broken lost:team`, or `unavailable`.
///
/// A capital letter is the account id, `a`, `u` and `s` are the user by the claims of three kinds,
/// `t` is the access token (the path, if not given), `r` the refresh token.
pub(super) fn view(text: &str) -> View {
    if text == "unavailable" {
        return View::Unavailable;
    }
    let mut sight = Sight::default();
    for word in text.split_whitespace() {
        match word.split_once('=') {
            Some((path, content)) => sight.files.push(observed(path, content)),
            None => sight.lost_folders.push(path_id(word.strip_prefix("lost:").unwrap())),
        }
    }
    View::Seen(sight)
}

pub(super) fn token(text: &str) -> Fingerprint {
    refresh(text).fingerprint()
}

fn path_id(path: &str) -> PathId {
    PathId::from_relative(Path::new(path))
}

fn observed(path: &str, content: &str) -> Observed {
    let mut notice = None;
    let content = match content {
        "broken" => Content::Broken("it is broken".into()),
        "none" => Content::NoLogin,
        _ => {
            let mut login = blank(path);
            for field in content.split(',') {
                match field.split_once(':').unwrap_or((field, "")) {
                    ("notice", _) => notice = Some("it is odd".into()),
                    (name, value) => set(&mut login, name, value),
                }
            }
            Content::Login(Arc::new(login))
        }
    };
    Observed { path: path_id(path), content, notice }
}

fn blank(token: &str) -> Login {
    Login {
        top_account_id: None,
        tokens_account_id: None,
        id_token: Claims::default(),
        access_token: Claims::default(),
        email: None,
        credential: Credential::new(access(token), None),
        enabled: true,
    }
}

fn set(login: &mut Login, name: &str, value: &str) {
    let at = |value: &str| Timestamp::from_second(value.parse().unwrap()).ok();
    let canary = format!("canary-{value}");
    match name {
        "a" => login.access_token.users.set(SeatKind::AccountUser, &canary),
        "u" => login.access_token.users.set(SeatKind::ChatgptUser, &canary),
        "s" => login.access_token.users.set(SeatKind::Subject, &canary),
        "t" => {
            let access = access(value);
            login.credential.fingerprint = Credential::new(access.clone(), None).fingerprint;
            login.credential.access = access;
        }
        "r" => login.credential.refresh = Some(refresh(value)),
        "exp" => login.credential.expires_at = at(value),
        "last" => login.credential.last_refresh = at(value),
        "plan" => login.access_token.plan = Some(value.to_owned()),
        "mail" => login.email = MaskedEmail::new(&format!("{canary}@{canary}.org")),
        "fedramp" => login.access_token.fedramp = true,
        "claims" => login.access_token.account_id = AccountId::parse(&canary),
        "off" => login.enabled = false,
        "" => {}
        account => login.top_account_id = AccountId::parse(&format!("canary-{account}")),
    }
}

fn access(text: &str) -> AccessToken {
    AccessToken::new(format!("canary-{text}").into()).unwrap()
}

fn refresh(text: &str) -> RefreshToken {
    RefreshToken::new(format!("canary-refresh-{text}").into()).unwrap()
}

fn name(planned: &Planned) -> String {
    let resolved = &planned.resolved;
    let path = || resolved.sources[0].path.as_str().trim_start_matches("path:").to_owned();
    if !resolved.id.is_identified() {
        return format!("({})", path());
    }
    let account = resolved.account_id.as_ref().unwrap().as_str();
    let seat = resolved.seat.as_ref().map_or_else(String::new, |it| {
        let kind = match it.kind() {
            SeatKind::AccountUser => 'a',
            SeatKind::ChatgptUser | SeatKind::User => 'u',
            SeatKind::Subject => 's',
        };
        format!("/{kind}{}", it.user().trim_start_matches("canary-"))
    });
    format!("{}{seat}", account.trim_start_matches("canary-"))
}

fn show(planned: &Planned) -> String {
    let marks = [
        (planned.eligibility.disabled, "-"),
        (planned.eligibility.paused, "="),
        (planned.eligibility.out_of_sight, "?"),
    ];
    let marks: String = marks.into_iter().filter(|it| it.0).map(|it| it.1).collect();
    let sources = planned.resolved.sources.iter().map(|it| {
        let path = it.path.as_str().trim_start_matches("path:");
        let chosen = if it.representative { "*" } else { "" };
        let problem = if it.problem.is_some() { "!" } else { "" };
        format!("{path}{chosen}{problem}")
    });
    let sources: Vec<String> = sources.collect();
    format!("{marks}{}[{}]", name(planned), sources.join(","))
}

fn order(change: &Change) -> (u8, &AuthId) {
    match change {
        Change::Renamed { to, .. } => (0, to),
        Change::Removed { id } => (1, id),
        Change::Added { id, .. } => (2, id),
        Change::Updated { id, .. } => (3, id),
        Change::Purged { id } => (4, id),
    }
}

fn word(aspect: Aspect) -> &'static str {
    match aspect {
        Aspect::Credentials => "credentials",
        Aspect::Metadata => "metadata",
        Aspect::Eligibility => "eligibility",
        Aspect::Sources => "sources",
    }
}
