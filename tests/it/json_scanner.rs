//! The JSON scanner against a model of the document, and against `serde_json`.

use codex_edge::protocol::json::{Kind, Path, Paths, Scanner, Value};
use proptest::prelude::*;
use serde::de::IgnoredAny;

const TEXT_MAX: usize = 12;

static PATHS: Paths = Paths::new(&[
    Path { keys: &["a"], text_max: TEXT_MAX },
    Path { keys: &["b"], text_max: TEXT_MAX },
    Path { keys: &["a", "b"], text_max: TEXT_MAX },
    Path { keys: &["a", "b", "a"], text_max: TEXT_MAX },
    Path { keys: &["é😀\"\n"], text_max: TEXT_MAX },
]);
const WANTED: &[&[&str]] = &[&["a"], &["b"], &["a", "b"], &["a", "b", "a"], &["é😀\"\n"]];

/// A document that keeps its members' order and repetitions.
#[derive(Clone, Debug)]
enum Doc {
    Plain(&'static str),
    Number(String),
    Text(String),
    Array(Vec<Doc>),
    Object(Vec<(String, Doc)>),
}

/// What the scanner should say of one path.
#[derive(Debug, PartialEq)]
struct Found {
    count: u32,
    kind: Kind,
    /// The text, or the number as it is written; `None` beyond the bound.
    text: Option<Vec<u8>>,
}

fn doc() -> impl Strategy<Value = Doc> {
    let leaf = prop_oneof![
        prop_oneof![Just("true"), Just("false"), Just("null")].prop_map(Doc::Plain),
        r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,4})?([eE][+-]?[0-9]{1,2})?".prop_map(Doc::Number),
        text().prop_map(Doc::Text),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Doc::Array),
            prop::collection::vec((key(), inner), 0..6).prop_map(Doc::Object),
        ]
    })
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just("a".to_owned()),
        4 => Just("b".to_owned()),
        1 => Just("é😀\"\n".to_owned()),
        1 => text(),
        1 => "x{45,55}",
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![r#"[ab"\\/ \n\tü😀]{0,16}"#, any::<String>()]
}

/// Writes a document; each byte of `whims` decides one matter of taste.
struct Writer<'a> {
    out: String,
    whims: std::iter::Cycle<std::slice::Iter<'a, u8>>,
}

impl Writer<'_> {
    fn whim(&mut self) -> u8 {
        *self.whims.next().unwrap()
    }

    fn space(&mut self) {
        let space = ["", "", "", " ", "\n", "\r\n\t", "     "][usize::from(self.whim() % 7)];
        self.out.push_str(space);
    }

    fn value(&mut self, doc: &Doc) {
        self.space();
        match doc {
            Doc::Plain(text) => self.out.push_str(text),
            Doc::Number(text) => self.out.push_str(text),
            Doc::Text(text) => self.text(text),
            Doc::Array(items) => {
                self.out.push('[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        self.out.push(',');
                    }
                    self.value(item);
                }
                self.space();
                self.out.push(']');
            }
            Doc::Object(members) => {
                self.out.push('{');
                for (at, (key, value)) in members.iter().enumerate() {
                    if at > 0 {
                        self.out.push(',');
                    }
                    self.space();
                    self.text(key);
                    self.space();
                    self.out.push(':');
                    self.value(value);
                }
                self.space();
                self.out.push('}');
            }
        }
        self.space();
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for letter in text.chars() {
            let must = letter < ' ' || letter == '"' || letter == '\\';
            match (letter, self.whim() % 4) {
                ('"' | '\\' | '/', 1) => self.out.extend(['\\', letter]),
                ('\n', 1) => self.out.push_str("\\n"),
                _ if must => self.escaped(letter),
                (_, 0) => self.escaped(letter),
                _ => self.out.push(letter),
            }
        }
        self.out.push('"');
    }

    fn escaped(&mut self, letter: char) {
        for unit in letter.encode_utf16(&mut [0; 2]) {
            let text = if self.whim().is_multiple_of(2) {
                format!("\\u{unit:04x}")
            } else {
                format!("\\u{unit:04X}")
            };
            self.out.push_str(&text);
        }
    }
}

fn write(doc: &Doc, whims: &[u8]) -> String {
    let mut writer = Writer { out: String::new(), whims: whims.iter().cycle() };
    writer.value(doc);
    writer.out
}

/// All values at a path, in order.
fn at_path<'a>(doc: &'a Doc, keys: &[&str], found: &mut Vec<&'a Doc>) {
    let Some((first, rest)) = keys.split_first() else {
        found.push(doc);
        return;
    };
    if let Doc::Object(members) = doc {
        for (_, value) in members.iter().filter(|(key, _)| key == first) {
            at_path(value, rest, found);
        }
    }
}

fn expected(doc: &Doc, keys: &[&str]) -> Option<Found> {
    let mut all = Vec::new();
    at_path(doc, keys, &mut all);
    let bounded = |text: &str| (text.len() <= TEXT_MAX).then(|| text.as_bytes().to_vec());
    let (kind, text) = match all.last()? {
        Doc::Plain("null") => (Kind::Null, Some(Vec::new())),
        Doc::Plain(text) => (Kind::Bool, bounded(text)),
        Doc::Number(text) => (Kind::Number, bounded(text)),
        Doc::Text(text) => (Kind::String, bounded(text)),
        Doc::Array(_) => (Kind::Array, Some(Vec::new())),
        Doc::Object(_) => (Kind::Object, Some(Vec::new())),
    };
    Some(Found { count: u32::try_from(all.len()).unwrap(), kind, text })
}

fn found(scanner: &Scanner, index: usize, document: &str) -> Option<Found> {
    let member = scanner.member(index)?;
    let (kind, text) = match member.value {
        Value::Text(text) => (Kind::String, Some(text.to_vec())),
        Value::LongText => (Kind::String, None),
        Value::Number(text) => (Kind::Number, Some(text.to_vec())),
        Value::LongNumber => (Kind::Number, None),
        Value::Bool(value) => (Kind::Bool, Some(value.to_string().into_bytes())),
        Value::Null => (Kind::Null, Some(Vec::new())),
        Value::Object => (Kind::Object, Some(Vec::new())),
        Value::Array => (Kind::Array, Some(Vec::new())),
    };
    // The span holds exactly the value, the key begins where it is said to.
    let raw = &document[member.span.clone()];
    assert_eq!(raw.trim(), raw);
    assert!(serde_json::from_str::<IgnoredAny>(raw).is_ok(), "{raw}");
    if let (Kind::String, Some(text)) = (kind, &text) {
        assert_eq!(&serde_json::from_str::<String>(raw).unwrap().into_bytes(), text);
    }
    let (key, _) = document[member.key_start..member.span.start].rsplit_once(':').unwrap();
    let key: String = serde_json::from_str(key).unwrap();
    assert_eq!(Some(&key.as_str()), WANTED[index].last());
    Some(Found { count: member.count, kind, text })
}

fn scan(document: &[u8], cuts: &[usize]) -> (bool, Scanner) {
    let mut scanner = Scanner::new(&PATHS);
    let (mut rest, mut valid, mut cuts) = (document, true, cuts.iter().cycle());
    while !rest.is_empty() {
        let size = cuts.next().copied().unwrap_or(rest.len()).clamp(1, rest.len());
        let (piece, more) = rest.split_at(size);
        valid &= scanner.feed(piece).is_ok();
        rest = more;
    }
    valid &= scanner.finish().is_ok();
    (valid, scanner)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn wanted_members_are_found_however_the_document_is_written_and_cut(
        doc in doc(),
        whims in prop::collection::vec(any::<u8>(), 1..40),
        cuts in prop::collection::vec(1..30_usize, 0..6),
    ) {
        let document = write(&doc, &whims);
        prop_assert!(serde_json::from_str::<IgnoredAny>(&document).is_ok());
        let (valid, scanner) = scan(document.as_bytes(), &cuts);
        prop_assert!(valid);
        for (index, keys) in WANTED.iter().enumerate() {
            prop_assert_eq!(found(&scanner, index, &document), expected(&doc, keys));
        }
    }

    #[test]
    fn a_damaged_document_is_valid_exactly_if_serde_json_says_so(
        doc in doc(),
        whims in prop::collection::vec(any::<u8>(), 1..40),
        cuts in prop::collection::vec(1..30_usize, 0..6),
        place in any::<prop::sample::Index>(),
        damage in r#"[\[\]{}",:\\u0-9a-z.eE+\- \n]{0,2}"#,
        removed in 0..3_usize,
    ) {
        let mut document = write(&doc, &whims).into_bytes();
        let at = place.index(document.len());
        let end = (at + removed).min(document.len());
        document.splice(at..end, damage.bytes());
        let reference = serde_json::from_slice::<IgnoredAny>(&document);
        let lenient = reference.as_ref().is_err_and(|error| error.to_string().contains("control character"));
        if !lenient {
            let (valid, _) = scan(&document, &cuts);
            prop_assert_eq!(valid, reference.is_ok(), "{}: {:?}", document.escape_ascii(), reference);
        }
    }

    #[test]
    fn every_cut_gives_the_same_error_at_the_same_place(
        document in r#"[\[\]{}",:\\ua0-9.eE\- ]{0,24}"#,
        cuts in prop::collection::vec(1..5_usize, 1..6),
    ) {
        let whole = scan(document.as_bytes(), &[]).1.finish();
        let cut = scan(document.as_bytes(), &cuts).1.finish();
        prop_assert_eq!(whole, cut);
    }
}
