//! Reads typed values out of a loosely parsed file and the environment's overrides. Pure.
//!
//! A typed raw struct would stop at the first wrong type or unknown key; this reader goes on with
//! the default and notes the fault, so that all of them are reported together.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

use toml::Value;

use super::{
    problem::{Problem, Problems, nearest},
    units::{self, ByteSize},
};

/// Environment variables with this prefix override one key each.
const OVERRIDE: &str = "CODEX_EDGE__";

/// One value and where it came from.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    value: Value,
    origin: Origin,
}

#[derive(Clone, Debug)]
enum Origin {
    File,
    Variable(String),
}

#[derive(Debug)]
pub(super) struct Reader {
    file: String,
    leaves: BTreeMap<String, Leaf>,
    known: Vec<&'static str>,
    origins: BTreeMap<&'static str, String>,
    problems: Problems,
}

// === impl Leaf ===

impl Leaf {
    pub(super) fn text(&self) -> Option<&str> {
        self.value.as_str()
    }

    fn flag(&self) -> Option<bool> {
        self.in_variable(|text| text.parse().ok()).or_else(|| self.value.as_bool())
    }

    fn integer(&self) -> Option<i64> {
        self.in_variable(|text| text.parse().ok()).or_else(|| self.value.as_integer())
    }

    /// A list; a variable may hold it as TOML or as words between commas.
    fn list(&self) -> Option<Vec<Value>> {
        let words = |text: &str| {
            let words = text.split(',').map(str::trim).filter(|it| !it.is_empty());
            words.map(|it| Value::String(it.to_owned())).collect()
        };
        self.in_variable(|text| {
            let table: Option<toml::Table> = format!("list = {text}").parse().ok();
            let list = table.and_then(|it| it.get("list").and_then(Value::as_array).cloned());
            Some(list.unwrap_or_else(|| words(text)))
        })
        .or_else(|| self.value.as_array().cloned())
    }

    fn in_variable<T>(&self, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        match (&self.origin, &self.value) {
            (Origin::Variable(_), Value::String(text)) => parse(text.trim()),
            _ => None,
        }
    }

    fn is_blank(&self) -> bool {
        self.text().is_some_and(|it| it.trim().is_empty())
    }
}

// === impl Reader ===

impl Reader {
    /// `file` is the name that problems of the file are reported under.
    pub(super) fn new(
        file: Option<&Path>,
        table: toml::Table,
        env: &BTreeMap<String, String>,
    ) -> Self {
        let mut leaves = BTreeMap::new();
        flatten("", table, &mut leaves);
        for (name, text) in env {
            let Some(key) = name.strip_prefix(OVERRIDE) else { continue };
            let key = key.to_ascii_lowercase().replace("__", ".");
            let origin = Origin::Variable(name.clone());
            leaves.insert(key, Leaf { value: Value::String(text.clone()), origin });
        }
        let file = file.map_or_else(|| "defaults".to_owned(), |it| it.display().to_string());
        let (known, origins) = (Vec::new(), BTreeMap::new());
        Self { file, leaves, known, origins, problems: Problems::default() }
    }

    /// The value that `parse` makes of the key, else the default; what it refuses is a problem.
    pub(super) fn value<T>(
        &mut self,
        key: &'static str,
        default: T,
        wish: &str,
        parse: impl FnOnce(&Leaf) -> Option<T>,
    ) -> T {
        let Some(leaf) = self.take(key) else { return default };
        match parse(&leaf) {
            Some(value) => value,
            None => {
                let shown =
                    if key.ends_with("proxy") { "this".to_owned() } else { shown(&leaf.value) };
                self.fault(key, format!("{shown} will not do"), wish);
                default
            }
        }
    }

    /// Like [`Self::value`] for a key that may be left out or empty.
    pub(super) fn optional<T>(
        &mut self,
        key: &'static str,
        wish: &str,
        parse: impl FnOnce(&Leaf) -> Option<T>,
    ) -> Option<T> {
        let parse = |leaf: &Leaf| match leaf.is_blank() {
            true => Some(None),
            false => parse(leaf).map(Some),
        };
        self.value(key, None, wish, parse)
    }

    pub(super) fn flag(&mut self, key: &'static str, default: bool) -> bool {
        self.value(key, default, "want true or false", Leaf::flag)
    }

    /// A whole number from 0 up.
    pub(super) fn count(&mut self, key: &'static str, default: usize) -> usize {
        let parse = |leaf: &Leaf| usize::try_from(leaf.integer()?).ok();
        self.value(key, default, "want a whole number, 0 or more", parse)
    }

    /// A whole number from 1 up.
    pub(super) fn positive(&mut self, key: &'static str, default: usize) -> usize {
        let parse = |leaf: &Leaf| usize::try_from(leaf.integer()?).ok().filter(|it| *it > 0);
        self.value(key, default, "want a whole number, 1 or more", parse)
    }

    /// A whole number where 0 means that there is none.
    pub(super) fn count_or_none(&mut self, key: &'static str) -> Option<NonZeroUsize> {
        NonZeroUsize::new(self.count(key, 0))
    }

    /// A duration of more than nothing.
    pub(super) fn duration(&mut self, key: &'static str, default: Duration) -> Duration {
        let wish = "want a duration above 0 like \"500ms\", \"5s\", \"10m\", \"1h\" or \"7d\"";
        let parse = |leaf: &Leaf| units::duration(leaf.text()?).filter(|it| !it.is_zero());
        self.value(key, default, wish, parse)
    }

    /// A duration of which 0 or `off` means never.
    pub(super) fn duration_or_never(
        &mut self,
        key: &'static str,
        default: Option<Duration>,
    ) -> Option<Duration> {
        let wish = "want a duration like \"5m\", or \"off\"";
        self.value(key, default, wish, |leaf| match leaf.text() {
            Some("off") => Some(None),
            Some(text) => units::duration(text).map(|it| (!it.is_zero()).then_some(it)),
            None => (leaf.integer() == Some(0)).then_some(None),
        })
    }

    pub(super) fn byte_size(&mut self, key: &'static str, default: ByteSize) -> ByteSize {
        let wish = "want a size above 0 like \"64KiB\", \"64MiB\" or \"1GiB\"";
        let parse = |leaf: &Leaf| units::byte_size(leaf.text()?).filter(|it| it.0 > 0);
        self.value(key, default, wish, parse)
    }

    /// One of a closed list of words.
    pub(super) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        default: T,
        words: &[(&str, T)],
    ) -> T {
        let names: Vec<String> = words.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        let wish = format!("want one of {}", names.join(", "));
        self.value(key, default, &wish, |leaf| {
            let text = leaf.text()?;
            words.iter().find(|(name, _)| *name == text).map(|(_, value)| *value)
        })
    }

    /// An absolute path; empty or left out means the default.
    pub(super) fn path(&mut self, key: &'static str, default: PathBuf) -> PathBuf {
        self.optional_path(key).unwrap_or(default)
    }

    pub(super) fn optional_path(&mut self, key: &'static str) -> Option<PathBuf> {
        self.optional(key, "want an absolute path", |leaf| {
            let path = PathBuf::from(leaf.text()?);
            path.is_absolute().then_some(path)
        })
    }

    /// A list of texts, each made into a value; every text that cannot be is a problem of its own.
    pub(super) fn list<T>(
        &mut self,
        key: &'static str,
        default: Vec<T>,
        wish: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Vec<T> {
        let Some(leaf) = self.take(key) else { return default };
        let Some(items) = leaf.list() else {
            self.fault(
                key,
                format!("{} is no list", shown(&leaf.value)),
                &format!("{wish}, in a list"),
            );
            return default;
        };
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            match item.as_str().and_then(&parse) {
                Some(value) => values.push(value),
                None => self.fault(key, format!("{} will not do", shown(&item)), wish),
            }
        }
        values
    }

    /// The tables of a key written as `[[key]]`.
    pub(super) fn tables(&mut self, key: &'static str) -> Vec<toml::Table> {
        let Some(leaf) = self.take(key) else { return Vec::new() };
        let tables: Option<Vec<toml::Table>> = leaf
            .list()
            .and_then(|items| items.into_iter().map(|it| it.as_table().cloned()).collect());
        tables.unwrap_or_else(|| {
            self.fault(key, format!("{} will not do", shown(&leaf.value)), "want a list of tables");
            Vec::new()
        })
    }

    /// Notes a fault of a key that was read.
    pub(super) fn fault(&mut self, key: &'static str, wrong: impl Into<String>, wish: &str) {
        let origin = self.origins.get(key).unwrap_or(&self.file).clone();
        let (key, wrong, wish) = (key.to_owned(), wrong.into(), wish.to_owned());
        self.problems.add(Problem { origin, key, wrong, wish });
    }

    #[cfg(test)]
    pub(super) fn known(&self) -> &[&'static str] {
        &self.known
    }

    /// Adds what nobody asked for and hands over all faults.
    pub(super) fn finish(mut self) -> Problems {
        for (key, leaf) in std::mem::take(&mut self.leaves) {
            let is_section = self
                .known
                .iter()
                .any(|it| it.strip_prefix(key.as_str()).is_some_and(|rest| rest.starts_with('.')));
            if is_section && leaf.value.as_table().is_some_and(toml::Table::is_empty) {
                continue;
            }
            let (wrong, wish) = match nearest(&key, &self.known) {
                _ if is_section => {
                    ("is a section, not a value".to_owned(), format!("write [{key}]"))
                }
                Some(meant) => ("is not known".to_owned(), format!("did you mean {meant}?")),
                None => {
                    ("is not known".to_owned(), "remove it, or see conf/codex-edge.toml".to_owned())
                }
            };
            let origin = match leaf.origin {
                Origin::File => self.file.clone(),
                Origin::Variable(name) => name,
            };
            self.problems.add(Problem { origin, key, wrong, wish });
        }
        self.problems
    }

    fn take(&mut self, key: &'static str) -> Option<Leaf> {
        self.known.push(key);
        let leaf = self.leaves.remove(key)?;
        if let Origin::Variable(name) = &leaf.origin {
            self.origins.insert(key, name.clone());
        }
        Some(leaf)
    }
}

/// A value for a message: as JSON, which looks like TOML where it matters, and not at length.
fn shown(value: &Value) -> String {
    const LONGEST: usize = 60;
    let text = serde_json::to_string(value).unwrap_or_default();
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// Names every value by its dotted key; lists stay whole.
fn flatten(prefix: &str, table: toml::Table, leaves: &mut BTreeMap<String, Leaf>) {
    for (name, value) in table {
        let key = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
        let value = match value.as_table() {
            Some(inner) if !inner.is_empty() => {
                flatten(&key, inner.clone(), leaves);
                continue;
            }
            _ => value,
        };
        leaves.insert(key, Leaf { value, origin: Origin::File });
    }
}
