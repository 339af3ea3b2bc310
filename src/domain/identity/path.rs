//! The names of credential files. Pure.

use std::{
    fmt,
    path::{Component, Path},
    sync::Arc,
};

use crate::domain::account::compose;

/// The name of a file below the credential directory, for operators and, at need, as an identity.
///
/// `path:` and the relative path with `/` between its parts. Bytes that are not UTF-8, control
/// characters and `%` are written as `%XX`, so that two names never become one; the rest is in
/// Unicode's composed form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(Arc<str>);

// === impl PathId ===

impl PathId {
    /// Names a file by its path below the credential directory. `.` and `..` are resolved by name;
    /// nothing leads out of the directory.
    pub fn from_relative(path: &Path) -> Self {
        let mut parts: Vec<String> = Vec::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => parts.push(escape(name.as_encoded_bytes())),
                Component::ParentDir => drop(parts.pop()),
                Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
            }
        }
        Self(compose(&format!("path:{}", parts.join("/"))))
    }

    /// Reads a name that was written down. `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let is_name = text.strip_prefix("path:").is_some_and(|it| !it.is_empty());
        is_name.then(|| Self(text.into()))
    }

    /// Whether this names something below the folder.
    pub fn is_within(&self, folder: &Self) -> bool {
        self.0.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn escape(name: &[u8]) -> String {
    let mut escaped = String::with_capacity(name.len());
    let mut letters = [0; 4];
    for chunk in name.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter == '%' || letter.is_control() {
                push_hex(&mut escaped, letter.encode_utf8(&mut letters).as_bytes());
            } else {
                escaped.push(letter);
            }
        }
        push_hex(&mut escaped, chunk.invalid());
    }
    escaped
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        text.push_str(&format!("%{byte:02X}"));
    }
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    use super::*;

    #[test]
    fn a_path_name_is_relative_clean_and_lossless() {
        let table: [(&[u8], &str); 10] = [
            (b"auth.json", "path:auth.json"),
            (b"./a/../b.json", "path:b.json"),
            (b"a//b/./c.json", "path:a/b/c.json"),
            (b"../../etc/b.json", "path:etc/b.json"),
            (b"/etc/b.json", "path:etc/b.json"),
            (b"a\xff.json", "path:a%FF.json"),
            (b"a%FF.json", "path:a%25FF.json"),
            (b"a\nb.json", "path:a%0Ab.json"),
            ("e\u{301}.json".as_bytes(), "path:\u{e9}.json"),
            (b"A.json", "path:A.json"),
        ];
        for (path, wanted) in table {
            assert_eq!(PathId::from_relative(Path::new(OsStr::from_bytes(path))).as_str(), wanted);
        }
    }

    #[test]
    fn a_folder_holds_what_is_below_it() {
        let id = |text| PathId::from_relative(Path::new(text));
        let table = [("a/b.json", true), ("a/b/c.json", true), ("a", false), ("ab/c", false)];
        for (path, wanted) in table {
            assert_eq!(id(path).is_within(&id("a")), wanted, "{path}");
        }
    }
}
