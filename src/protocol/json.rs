//! A validating JSON scanner that is fed in pieces and keeps only what it was asked for.
//!
//! Pure. It builds no tree: whatever the document, it holds one bit per open bracket and the
//! wanted values up to their bounds. Any cut of a document gives the same result as one piece.
//!
//! The grammar is RFC 8259 with three leniencies, because the bytes are relayed and judged by
//! others: strings may hold invalid UTF-8, raw control characters and lone surrogate escapes.

mod fault;
mod find;
mod literal;
mod member;
mod nest;
mod number;
mod paths;
mod strings;
mod unescape;

pub use self::{
    fault::{Fault, Malformed},
    member::{Kind, Member, Value},
    paths::{Path, Paths},
};
use self::{literal::Literal, nest::Nest, number::Number, paths::Tracker, unescape::Unescaper};

/// Brackets that may be open at once, unless the caller sets another limit: one bit each.
const DEPTH_MAX: usize = 1 << 30;

/// The scanner: [`feed`](Self::feed) the document in pieces, then [`finish`](Self::finish).
#[derive(Debug)]
pub struct Scanner {
    state: State,
    /// Bytes fed before the piece at hand.
    offset: usize,
    nest: Nest,
    depth_max: usize,
    number: Number,
    literal: Literal,
    unescaper: Unescaper,
    /// Whether the string at hand is a key.
    in_key: bool,
    tracker: Tracker,
    root: Option<Kind>,
    failed: Option<Malformed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    AfterValue,
    Done,
    Text,
    Escape,
    Hex,
    Number,
    Literal,
}

// === impl Scanner ===

impl Scanner {
    /// A scanner that keeps the members at `paths`.
    pub fn new(paths: &'static Paths) -> Self {
        Self {
            state: State::Value,
            offset: 0,
            nest: Nest::default(),
            depth_max: DEPTH_MAX,
            number: Number::default(),
            literal: Literal::NULL,
            unescaper: Unescaper::default(),
            in_key: false,
            tracker: Tracker::new(paths),
            root: None,
            failed: None,
        }
    }

    /// Refuses documents that nest deeper than `depth_max`.
    #[must_use]
    pub fn with_depth_max(mut self, depth_max: usize) -> Self {
        self.depth_max = depth_max;
        self
    }

    /// Reads on. After the first error every call returns that error.
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), Malformed> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        let result = self.run(piece);
        match result {
            Ok(()) => self.offset += piece.len(),
            Err(failed) => self.failed = Some(failed),
        }
        result
    }

    /// Ends the document.
    pub fn finish(&mut self) -> Result<(), Malformed> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        let fault = match self.state {
            State::Done => return Ok(()),
            State::Number if self.nest.depth == 0 && self.number.may_end() => {
                self.value_ended(self.offset);
                return Ok(());
            }
            State::Number => Fault::EndsInNumber,
            State::Text | State::Escape | State::Hex => Fault::EndsInString,
            State::Value if self.root.is_none() => Fault::Empty,
            State::Value
            | State::ValueOrEnd
            | State::Key
            | State::KeyOrEnd
            | State::Colon
            | State::AfterValue
            | State::Literal => Fault::EndsTooEarly,
        };
        let failed = Malformed { fault, at: self.offset };
        self.failed = Some(failed);
        Err(failed)
    }

    /// Forgets the document, keeps the paths and limits.
    pub fn reset(&mut self) {
        self.state = State::Value;
        self.offset = 0;
        self.nest.clear();
        self.unescaper = Unescaper::default();
        self.tracker.reset();
        self.root = None;
        self.failed = None;
    }

    /// The type of the whole document, as soon as its first byte was seen.
    pub fn root(&self) -> Option<Kind> {
        self.root
    }

    /// The member at the path with this index, if it was met.
    pub fn member(&self, index: usize) -> Option<Member<'_>> {
        self.tracker.member(index)
    }

    /// Bytes fed without error.
    pub fn offset(&self) -> usize {
        self.offset
    }

    fn run(&mut self, piece: &[u8]) -> Result<(), Malformed> {
        let mut at = 0;
        while let Some(&byte) = piece.get(at) {
            at = match self.state {
                State::Text => self.text(piece, at)?,
                State::Value | State::ValueOrEnd => self.value(piece, at, byte)?,
                State::Key | State::KeyOrEnd => self.key(piece, at, byte)?,
                State::Colon => self.colon(piece, at, byte)?,
                State::AfterValue => self.after_value(piece, at, byte)?,
                State::Number => self.number(piece, at)?,
                State::Literal => self.literal(at, byte)?,
                State::Escape => self.escape(at, byte)?,
                State::Hex => self.hex(at, byte)?,
                State::Done => self.space_or(piece, at, Fault::TrailingData)?,
            };
        }
        Ok(())
    }

    #[inline]
    fn value(&mut self, piece: &[u8], at: usize, byte: u8) -> Result<usize, Malformed> {
        match byte {
            b'"' => {
                self.value_began(Kind::String, at);
                self.in_key = false;
                self.state = State::Text;
                return self.text(piece, at + 1);
            }
            b'{' => self.open(Kind::Object, at)?,
            b'[' => self.open(Kind::Array, at)?,
            b'-' | b'0'..=b'9' => {
                self.value_began(Kind::Number, at);
                self.number = Number::default();
                self.state = State::Number;
                return self.number(piece, at);
            }
            b't' => self.begin_literal(Literal::TRUE, Kind::Bool, at),
            b'f' => self.begin_literal(Literal::FALSE, Kind::Bool, at),
            b'n' => self.begin_literal(Literal::NULL, Kind::Null, at),
            b']' if self.state == State::ValueOrEnd => self.close(at),
            0xEF if self.offset + at == 0 => return Err(self.fail(Fault::ByteOrderMark, at)),
            _ => return self.space_or(piece, at, Fault::Unexpected(byte)),
        }
        Ok(at + 1)
    }

    #[inline]
    fn key(&mut self, piece: &[u8], at: usize, byte: u8) -> Result<usize, Malformed> {
        match byte {
            b'"' => {
                if self.is_tracked() {
                    self.tracker.begin_key(self.offset + at);
                }
                self.in_key = true;
                self.state = State::Text;
                self.text(piece, at + 1)
            }
            b'}' if self.state == State::KeyOrEnd => {
                self.close(at);
                Ok(at + 1)
            }
            _ => self.space_or(piece, at, Fault::Unexpected(byte)),
        }
    }

    #[inline]
    fn colon(&mut self, piece: &[u8], at: usize, byte: u8) -> Result<usize, Malformed> {
        if byte == b':' {
            self.state = State::Value;
            return Ok(at + 1);
        }
        self.space_or(piece, at, Fault::Unexpected(byte))
    }

    #[inline]
    fn after_value(&mut self, piece: &[u8], at: usize, byte: u8) -> Result<usize, Malformed> {
        let in_object = self.nest.in_object();
        match byte {
            b',' => self.state = if in_object { State::Key } else { State::Value },
            b'}' if in_object => self.close(at),
            b']' if !in_object => self.close(at),
            _ => return self.space_or(piece, at, Fault::Unexpected(byte)),
        }
        Ok(at + 1)
    }

    #[inline]
    fn number(&mut self, piece: &[u8], at: usize) -> Result<usize, Malformed> {
        let rest = piece.get(at..).unwrap_or_default();
        let read = self.number.read(rest);
        if self.tracker.is_listening() {
            self.tracker.push(rest.get(..read).unwrap_or_default());
        }
        let at = at + read;
        if at < piece.len() {
            if !self.number.may_end() {
                return Err(self.fail(Fault::BadNumber, at));
            }
            self.value_ended(self.offset + at);
        }
        Ok(at)
    }

    fn literal(&mut self, at: usize, byte: u8) -> Result<usize, Malformed> {
        match self.literal.read(byte) {
            None => return Err(self.fail(Fault::BadLiteral, at)),
            Some(true) => self.value_ended(self.offset + at + 1),
            Some(false) => {}
        }
        Ok(at + 1)
    }

    fn begin_literal(&mut self, literal: Literal, kind: Kind, at: usize) {
        self.value_began(kind, at);
        if self.tracker.is_listening() {
            self.tracker.push(literal.text());
        }
        self.literal = literal;
        self.state = State::Literal;
    }

    #[inline]
    fn open(&mut self, kind: Kind, at: usize) -> Result<(), Malformed> {
        if self.nest.depth >= self.depth_max {
            return Err(self.fail(Fault::TooDeep, at));
        }
        self.value_began(kind, at);
        let depth = self.nest.depth;
        self.state = if kind == Kind::Object {
            self.tracker.enter_object(depth);
            State::KeyOrEnd
        } else {
            State::ValueOrEnd
        };
        self.nest.push(kind == Kind::Object);
        Ok(())
    }

    #[inline]
    fn close(&mut self, at: usize) {
        self.nest.pop();
        self.tracker.leave(self.nest.depth, self.offset + at + 1);
        self.state = if self.nest.depth == 0 { State::Done } else { State::AfterValue };
    }

    #[inline]
    fn value_began(&mut self, kind: Kind, at: usize) {
        if self.nest.depth == 0 {
            self.root = Some(kind);
        }
        if self.is_tracked() {
            self.tracker.begin_value(kind, self.offset + at);
        }
    }

    /// A scalar ended just before `end`, an offset in the document.
    #[inline]
    fn value_ended(&mut self, end: usize) {
        if self.is_tracked() {
            self.tracker.end_value(end);
        }
        self.state = if self.nest.depth == 0 { State::Done } else { State::AfterValue };
    }

    #[inline]
    fn is_tracked(&self) -> bool {
        self.nest.depth == self.tracker.depth()
    }

    /// Skips white space, or fails.
    #[inline]
    fn space_or(&self, piece: &[u8], at: usize, fault: Fault) -> Result<usize, Malformed> {
        let rest = piece.get(at..).unwrap_or_default();
        match find::space(rest) {
            0 => Err(self.fail(fault, at)),
            space => Ok(at + space),
        }
    }

    #[cold]
    fn fail(&self, fault: Fault, at: usize) -> Malformed {
        Malformed { fault, at: self.offset + at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static PATHS: Paths = Paths::new(&[
        Path { keys: &["model"], text_max: 16 },
        Path { keys: &["a", "b", "c"], text_max: 16 },
        Path { keys: &["a"], text_max: 16 },
        Path { keys: &["e\u{1F600}\"\n"], text_max: 16 },
    ]);

    /// Scans in pieces of this size.
    fn scan(document: &[u8], size: usize) -> (Result<(), Malformed>, Scanner) {
        let mut scanner = Scanner::new(&PATHS);
        let mut result = Ok(());
        for piece in document.chunks(size) {
            result = result.and_then(|()| scanner.feed(piece));
        }
        (result.and_then(|()| scanner.finish()), scanner)
    }

    #[test]
    fn what_is_json_is_taken_in_pieces_of_every_size() {
        let documents: &[&[u8]] = &[
            b"{}",
            b"[]",
            b" null ",
            b"true",
            b"false",
            b"\"\"",
            b"0",
            b"-0",
            b"-0.5e+10",
            b"12E5",
            b"1e-07",
            b"123456789012345678901234567890",
            b"[1,2 , 3\t]\r\n",
            b"[[[[]]],{\"a\":[{}]}]",
            br#"{"a":{"b":{"c":"x\ud83d\ude00\u00e9\"\\\/\b\f\n\r\t"}},"":0}"#,
            // The leniencies.
            b"\"\xFF\xFE\"",
            b"\"a\nb\x00\"",
            br#""\ud800""#,
        ];
        for document in documents {
            for size in 1..=document.len() {
                let (result, _) = scan(document, size);
                assert_eq!(result, Ok(()), "{:?} by {size}", document.escape_ascii().to_string());
            }
        }
    }

    #[test]
    fn what_is_not_json_is_refused_at_the_same_place_in_pieces_of_every_size() {
        let table: &[(&[u8], Fault, usize)] = &[
            (b"", Fault::Empty, 0),
            (b"  ", Fault::Empty, 2),
            (b"\xEF\xBB\xBF{}", Fault::ByteOrderMark, 0),
            (b"model", Fault::Unexpected(b'm'), 0),
            (b"{} x", Fault::TrailingData, 3),
            (b"{}{}", Fault::TrailingData, 2),
            (b"1 2", Fault::TrailingData, 2),
            (b"{\"a\":1,}", Fault::Unexpected(b'}'), 7),
            (b"{,}", Fault::Unexpected(b','), 1),
            (b"[1,]", Fault::Unexpected(b']'), 3),
            (b"[,1]", Fault::Unexpected(b','), 1),
            (b"[1 2]", Fault::Unexpected(b'2'), 3),
            (b"[1}", Fault::Unexpected(b'}'), 2),
            (b"{\"a\":1]", Fault::Unexpected(b']'), 6),
            (b"{\"a\" 1}", Fault::Unexpected(b'1'), 5),
            (b"{\"a\"}", Fault::Unexpected(b'}'), 4),
            (b"{a:1}", Fault::Unexpected(b'a'), 1),
            (b"{'a':1}", Fault::Unexpected(b'\''), 1),
            (b"{1:1}", Fault::Unexpected(b'1'), 1),
            (b"]", Fault::Unexpected(b']'), 0),
            (b"\"\\x\"", Fault::BadEscape, 2),
            (b"\"\\u12g4\"", Fault::BadEscape, 5),
            (b"\"\\u\"", Fault::BadEscape, 3),
            (b"[01]", Fault::Unexpected(b'1'), 2),
            (b"[-]", Fault::BadNumber, 2),
            (b"[1.]", Fault::BadNumber, 3),
            (b"[1e]", Fault::BadNumber, 3),
            (b"[1e+]", Fault::BadNumber, 4),
            (b"[.5]", Fault::Unexpected(b'.'), 1),
            (b"[+1]", Fault::Unexpected(b'+'), 1),
            (b"[1.5.5]", Fault::Unexpected(b'.'), 4),
            (b"tru ", Fault::BadLiteral, 3),
            (b"nul", Fault::EndsTooEarly, 3),
            (b"NaN", Fault::Unexpected(b'N'), 0),
            (b"{\"a", Fault::EndsInString, 3),
            (b"\"a\\", Fault::EndsInString, 3),
            (b"\"\\u00", Fault::EndsInString, 5),
            (b"1.", Fault::EndsInNumber, 2),
            (b"[1", Fault::EndsInNumber, 2),
            (b"{\"a\"", Fault::EndsTooEarly, 4),
            (b"{\"a\":", Fault::EndsTooEarly, 5),
            (b"{\"a\":1", Fault::EndsInNumber, 6),
            (b"[[]", Fault::EndsTooEarly, 3),
        ];
        for (document, fault, at) in table {
            for size in 1..=document.len().max(1) {
                let (result, _) = scan(document, size);
                let expected = Malformed { fault: *fault, at: *at };
                let shown = document.escape_ascii().to_string();
                assert_eq!(result, Err(expected), "{shown:?} by {size}");
            }
        }
    }

    #[test]
    fn a_wanted_member_is_found_with_its_place() {
        let document = br#" { "x":{"model":1}, "model" : "a\u0062c" , "a":[{"b":{"c":1}}]}"#;
        for size in 1..=document.len() {
            let (result, scanner) = scan(document, size);
            assert_eq!(result, Ok(()));
            let model = scanner.member(0).unwrap();
            assert_eq!(model.text(), Some("abc"));
            assert_eq!(&document[model.span.clone()], br#""a\u0062c""#);
            assert!(document[model.key_start..].starts_with(b"\"model\" :"));
            assert_eq!(model.count, 1);
            assert_eq!(scanner.member(1), None, "paths do not go through arrays");
            let array = scanner.member(2).unwrap();
            assert_eq!(array.value, Value::Array);
            assert_eq!(&document[array.span], br#"[{"b":{"c":1}}]"#);
        }
    }

    #[test]
    fn keys_are_compared_unescaped() {
        let table: &[(&[u8], usize)] = &[
            (br#"{"\u006dodel":1}"#, 0),
            (br#"{"mode\u006C":1}"#, 0),
            (br#"{"\u0061":{"b":{"\u0063":1}}}"#, 1),
            (br#"{"e\ud83d\ude00\"\n":1}"#, 3),
            ("{\"e\u{1F600}\\\"\\u000a\":1}".as_bytes(), 3),
        ];
        for (document, index) in table {
            for size in 1..=document.len() {
                let (_, scanner) = scan(document, size);
                let found = scanner.member(*index).and_then(|member| member.integer());
                assert_eq!(found, Some(1), "{}", document.escape_ascii());
            }
        }
        for other in [r#"{"Model":1}"#, r#"{"mode":1}"#, r#"{"model\u0000":1}"#, r#"{"modell":1}"#]
        {
            assert_eq!(scan(other.as_bytes(), 3).1.member(0), None, "{other}");
        }
        let long = format!(r#"{{"{}":1,"model":2}}"#, "model".repeat(50));
        assert_eq!(scan(long.as_bytes(), 7).1.member(0).unwrap().integer(), Some(2));
    }

    #[test]
    fn every_type_of_value_is_told_apart() {
        let table: &[(&str, Value<'_>)] = &[
            (r#""x""#, Value::Text(b"x")),
            (r#""""#, Value::Text(b"")),
            (r#""0123456789abcdef""#, Value::Text(b"0123456789abcdef")),
            (r#""0123456789abcdefg""#, Value::LongText),
            (r#""\ud800x""#, Value::Text("\u{FFFD}x".as_bytes())),
            (r#""\ud800\ud800\udc00\udc00""#, Value::Text("\u{FFFD}\u{10000}\u{FFFD}".as_bytes())),
            (r#""\ud800""#, Value::Text("\u{FFFD}".as_bytes())),
            ("-1.5e3", Value::Number(b"-1.5e3")),
            ("12345678901234567", Value::LongNumber),
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("null", Value::Null),
            (r#"{"b":1}"#, Value::Object),
            ("[true]", Value::Array),
        ];
        for (text, value) in table {
            let document = format!(r#"{{"model" : {text} , "z":1}}"#);
            for size in 1..=document.len() {
                let (result, scanner) = scan(document.as_bytes(), size);
                assert_eq!(result, Ok(()));
                let member = scanner.member(0).unwrap();
                assert_eq!(member.value, *value, "{document} by {size}");
                assert_eq!(&document[member.span], *text);
            }
        }
    }

    #[test]
    fn repeated_members_are_counted_and_the_last_one_is_kept() {
        let document = br#"{"model":"a","a":{"b":{"c":1}},"model":null,"a":{"b":{"c":2}}}"#;
        let (_, scanner) = scan(document, document.len());
        let model = scanner.member(0).unwrap();
        assert_eq!((model.count, model.value), (2, Value::Null));
        let inner = scanner.member(1).unwrap();
        assert_eq!((inner.count, inner.integer()), (2, Some(2)));
    }

    #[test]
    fn numbers_are_read() {
        let table = [
            ("12", Some(12), 12.0),
            ("-7", Some(-7), -7.0),
            ("12.9", Some(12), 12.9),
            ("1.5e3", Some(1_500), 1_500.0),
            ("9007199254740993", Some(9_007_199_254_740_993), 9_007_199_254_740_992.0),
            ("1e30", None, 1e30),
        ];
        for (text, integer, float) in table {
            let (_, scanner) = scan(format!(r#"{{"model":{text}}}"#).as_bytes(), 1);
            let member = scanner.member(0).unwrap();
            assert_eq!((member.integer(), member.float()), (integer, Some(float)), "{text}");
        }
    }

    #[test]
    fn a_reset_scanner_remembers_nothing() {
        let mut scanner = Scanner::new(&PATHS);
        for broken in [&br#"{"a":{"b":{"c":"x"#[..], b"{\"model\":", b"\"\\ud83d", b"[[[[", b"}"] {
            let _ = scanner.feed(broken);
            scanner.reset();
            assert_eq!(scanner.feed(br#"{"a":{"b":{"c":"y"}}}"#), Ok(()));
            assert_eq!(scanner.finish(), Ok(()));
            assert_eq!(scanner.member(0), None);
            assert_eq!(scanner.member(1).unwrap().text(), Some("y"));
            assert_eq!(scanner.member(1).unwrap().count, 1);
            scanner.reset();
        }
    }

    #[test]
    fn an_error_stays() {
        let mut scanner = Scanner::new(&PATHS);
        let failed = scanner.feed(b"[}");
        assert!(failed.is_err());
        assert_eq!(scanner.feed(b"[]"), failed);
        assert_eq!(scanner.finish(), failed);
    }

    #[test]
    fn a_million_open_brackets_cost_one_bit_each() {
        let mut scanner = Scanner::new(&PATHS);
        for _ in 0..1_000 {
            assert_eq!(scanner.feed(&[b'['; 1_000]), Ok(()));
        }
        assert_eq!(scanner.nest.depth, 1_000_000);
        assert!(scanner.nest.words() <= 32 * 1024);
        for _ in 0..1_000 {
            assert_eq!(scanner.feed(&[b']'; 1_000]), Ok(()));
        }
        assert_eq!(scanner.finish(), Ok(()));
    }

    #[test]
    fn nesting_keeps_objects_and_arrays_apart_at_any_depth() {
        for depth in [1, 63, 64, 65, 127, 128, 129, 1_000] {
            let open: String =
                (0..depth).map(|at| if at % 3 == 0 { "[" } else { "{\"a\":" }).collect();
            let close: String =
                (0..depth).rev().map(|at| if at % 3 == 0 { "]" } else { "}" }).collect();
            assert_eq!(scan(format!("{open}1{close}").as_bytes(), 7).0, Ok(()), "{depth}");
            let wrong = close.replace(']', ")");
            assert!(scan(format!("{open}1{wrong}").as_bytes(), 7).0.is_err(), "{depth}");
        }
    }

    #[test]
    fn the_limit_of_depth_is_kept() {
        let mut scanner = Scanner::new(&PATHS).with_depth_max(2);
        let failed = Malformed { fault: Fault::TooDeep, at: 2 };
        assert_eq!(scanner.feed(b"[[["), Err(failed));
    }

    #[test]
    fn a_long_value_costs_no_more_than_its_bound() {
        let mut scanner = Scanner::new(&PATHS);
        assert_eq!(scanner.feed(b"{\"model\":\""), Ok(()));
        for _ in 0..1_000 {
            assert_eq!(scanner.feed(&[b'x'; 1_000]), Ok(()));
        }
        assert!(scanner.tracker.kept() <= 64);
    }
}
