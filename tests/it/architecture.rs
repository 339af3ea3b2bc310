//! Keeps the layers: a module of `src` may name only the modules listed for it here.

use std::{collections::BTreeMap, fs, path::Path};

const PURE: &[&str] = &["domain", "protocol"];
const ADAPTERS: &[&str] = &["clock", "config", "egress", "storage", "telemetry"];
const KEEPERS: &[&str] = &["accounts", "sessions", "users"];

/// Crates that only the named modules may touch.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("pingora", &["app", "edge", "egress", "lifecycle"]),
    ("pingora_core", &["app", "edge", "egress", "lifecycle"]),
    ("pingora_proxy", &["app", "edge"]),
    ("prometheus", &["telemetry"]),
    ("reqwest", &["cli", "demo", "egress"]),
    ("axum", &["admin", "sim"]),
    ("toml", &["config", "sim"]),
];

const LINES_MAX: usize = 400;

#[test]
fn modules_name_only_lower_layers() {
    let may_use = layers();
    let mut broken = Vec::new();
    for Source { module, path, text } in sources() {
        let Some(allowed) = may_use.get(module.as_str()) else {
            broken.push(format!("{path}: module {module} belongs to no layer"));
            continue;
        };
        for target in named_after(&text, "crate::") {
            if target != module && !allowed.contains(&target.as_str()) {
                broken.push(format!("{path}: {module} must not use {target}"));
            }
        }
        for (krate, homes) in ONLY_IN {
            if names_crate(&text, krate) && !homes.contains(&module.as_str()) {
                broken.push(format!("{path}: only {homes:?} may use {krate}"));
            }
        }
        let stores = module == "storage" || path.ends_with("store.rs");
        if names_crate(&text, "rusqlite") && !stores {
            broken.push(format!("{path}: only storage and store.rs files may use rusqlite"));
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn files_stay_small() {
    let large: Vec<String> = sources()
        .into_iter()
        .map(|source| (source.path, source.text.lines().count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(path, lines)| format!("{path}: {lines} lines"))
        .collect();
    assert!(large.is_empty(), "\n{}", large.join("\n"));
}

/// For each module the modules it may name.
fn layers() -> BTreeMap<&'static str, Vec<&'static str>> {
    let join = |parts: &[&[&'static str]]| parts.concat();
    let below_gateway = join(&[PURE, ADAPTERS, KEEPERS]);
    let below_edge = join(&[&below_gateway, &["gateway"]]);
    let below_app = join(&[&below_edge, &["admin", "edge", "sim"]]);
    let mut map = BTreeMap::new();
    map.insert("domain", vec![]);
    map.insert("protocol", vec!["domain"]);
    map.insert("clock", vec!["domain"]);
    map.insert("config", vec!["domain", "protocol"]);
    map.insert("telemetry", join(&[PURE, &["clock", "config"]]));
    map.insert("storage", join(&[PURE, &["clock", "config", "telemetry"]]));
    map.insert("egress", join(&[PURE, &["clock", "config", "telemetry"]]));
    map.insert("accounts", join(&[PURE, ADAPTERS]));
    map.insert("sessions", join(&[PURE, ADAPTERS]));
    map.insert("users", join(&[PURE, ADAPTERS]));
    map.insert("gateway", below_gateway);
    map.insert("edge", below_edge.clone());
    map.insert("admin", below_edge);
    map.insert("sim", vec!["protocol"]);
    for top in ["app", "cli", "demo", "lifecycle", "main"] {
        map.insert(top, join(&[&below_app, &["app", "cli", "demo", "lifecycle"]]));
    }
    map
}

/// The production text of one file below `src`, its tests cut off.
struct Source {
    module: String,
    path: String,
    text: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut folders, mut found) = (vec![root.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.extension().is_none_or(|it| it != "rs") {
                continue;
            }
            let inner = path.strip_prefix(&root).unwrap().with_extension("");
            let module = inner.iter().next().unwrap().to_string_lossy().into_owned();
            if module == "lib" {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests").next().unwrap().to_owned();
            found.push(Source { module, path: path.display().to_string(), text });
        }
    }
    found
}

fn names_crate(text: &str, krate: &str) -> bool {
    text.match_indices(krate).any(|(at, _)| {
        let before = text[..at].chars().next_back().unwrap_or(' ');
        let after = &text[at + krate.len()..];
        !before.is_alphanumeric() && before != '_' && before != ':' && after.starts_with("::")
    })
}

/// Identifiers that follow `prefix`, through one level of `use` braces.
fn named_after(text: &str, prefix: &str) -> Vec<String> {
    let mut named = Vec::new();
    for (at, _) in text.match_indices(prefix) {
        let rest = text[at + prefix.len()..].trim_start();
        match rest.strip_prefix('{') {
            None => named.push(identifier(rest)),
            Some(group) => named.extend(group_items(group).iter().map(|it| identifier(it))),
        }
    }
    named
}

fn identifier(text: &str) -> String {
    text.trim_start().chars().take_while(|it| it.is_alphanumeric() || *it == '_').collect()
}

/// Items of a brace group, nested groups kept whole.
fn group_items(group: &str) -> Vec<String> {
    let (mut depth, mut items) = (0_u32, vec![String::new()]);
    for letter in group.chars() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(item) = items.last_mut() {
            item.push(letter);
        }
    }
    items.retain(|it| !it.trim().is_empty());
    items
}
