//! Everything that is wrong with a configuration, gathered so that one look mends it all. Pure.

use std::fmt;

/// One fault: where it stands, which key, what is wrong, what is wished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file or the environment variable that holds the value.
    pub origin: String,
    pub key: String,
    pub wrong: String,
    pub wish: String,
}

/// At least one fault, in the order of the keys' reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

// === impl Problem ===

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, key, wrong, wish } = self;
        write!(f, "{origin}: {key}: {wrong}; {wish}")
    }
}

// === impl Problems ===

impl Problems {
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, problem: Problem) {
        self.0.push(problem);
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// The known name that looks most like `unknown`, if one is near enough to be meant.
pub(super) fn nearest<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    let limit = (unknown.len() / 4).clamp(2, 4);
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let far = limit + 1;
    known
        .iter()
        .map(|it| {
            let moved = if last(it) == last(unknown) { 1 } else { far };
            (distance(unknown, it).min(moved), *it)
        })
        .filter(|(steps, _)| *steps <= limit)
        .min()
        .map(|(_, name)| name)
}

/// Single-letter changes that make one text of the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, letter) in from.chars().enumerate() {
        let mut corner = row[0];
        row[0] = line + 1;
        for (column, other) in to.iter().enumerate() {
            let kept = corner + usize::from(letter != *other);
            corner = row[column + 1];
            row[column + 1] = kept.min(corner + 1).min(row[column] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_and_a_far_one_is_not() {
        let known = ["server.listen", "server.threads", "auth.dir", "log.level"];
        let table = [
            ("server.lisen", Some("server.listen")),
            ("server.thread", Some("server.threads")),
            ("log.dir", Some("auth.dir")),
            ("wholly.different", None),
        ];
        for (unknown, meant) in table {
            assert_eq!(nearest(unknown, &known), meant, "{unknown}");
        }
    }
}
