//! Where the members of a JSON object stand in its text. Pure.
//!
//! For text that the JSON parser has accepted: what is not JSON gives `None` or nonsense, but never
//! a panic. Nested values are skipped by counting brackets, so no depth is too deep.

use std::ops::Range;

/// One object of a document.
#[derive(Debug)]
pub(super) struct ObjectSpans {
    members: Vec<MemberSpan>,
}

#[derive(Debug)]
struct MemberSpan {
    /// Without its escapes.
    key: String,
    /// What stands between the bracket or comma before the key and the key itself.
    indent: Range<usize>,
    /// What stands between key and value: the colon and its white space.
    colon: Range<usize>,
    value: Range<usize>,
}

/// Reads on from a place in the text.
struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

// === impl ObjectSpans ===

impl ObjectSpans {
    /// The object that begins at `start`, white space before it left aside.
    pub(super) fn read(text: &[u8], start: usize) -> Option<Self> {
        let mut cursor = Cursor { text, at: start };
        cursor.skip_space();
        cursor.take(b'{')?;
        let mut members = Vec::new();
        loop {
            let indent = cursor.skip_space();
            if members.is_empty() && cursor.peek() == Some(b'}') {
                return Some(Self { members });
            }
            let key = cursor.skip_text()?;
            let key = serde_json::from_slice(text.get(key)?).ok()?;
            let after_key = cursor.at;
            cursor.skip_space();
            cursor.take(b':')?;
            cursor.skip_space();
            let colon = after_key..cursor.at;
            let value = cursor.skip_value()?;
            members.push(MemberSpan { key, indent, colon, value });
            cursor.skip_space();
            match cursor.next()? {
                b',' => {}
                b'}' => return Some(Self { members }),
                _ => return None,
            }
        }
    }

    /// The value of a member; of several with one key the last, which is the one that counts.
    pub(super) fn value(&self, key: &str) -> Option<Range<usize>> {
        self.members.iter().rev().find(|it| it.key == key).map(|it| it.value.clone())
    }

    /// The place for one member more, and what to write there before and after its key. `None` for
    /// an object without members.
    pub(super) fn next_member<'a>(&self, text: &'a [u8]) -> Option<(usize, &'a [u8], &'a [u8])> {
        let last = self.members.last()?;
        let (indent, colon) = (text.get(last.indent.clone())?, text.get(last.colon.clone())?);
        Some((last.value.end, indent, colon))
    }
}

// === impl Cursor ===

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn take(&mut self, wanted: u8) -> Option<()> {
        (self.next()? == wanted).then_some(())
    }

    fn skip_space(&mut self) -> Range<usize> {
        let start = self.at;
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        start..self.at
    }

    /// A string with its quotes.
    fn skip_text(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        self.take(b'"')?;
        loop {
            match self.next()? {
                b'"' => return Some(start..self.at),
                // What an escape stands for does not matter, only that it may be a quote.
                b'\\' => drop(self.next()?),
                _ => {}
            }
        }
    }

    fn skip_value(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        match self.peek()? {
            b'"' => return self.skip_text(),
            b'{' | b'[' => self.skip_nested()?,
            _ => {
                while !matches!(
                    self.peek(),
                    None | Some(b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n')
                ) {
                    self.at += 1;
                }
            }
        }
        (start < self.at).then_some(start..self.at)
    }

    fn skip_nested(&mut self) -> Option<()> {
        let mut open = 0_usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.skip_text()?;
                    continue;
                }
                b'{' | b'[' => open += 1,
                b'}' | b']' => open = open.checked_sub(1)?,
                _ => {}
            }
            self.at += 1;
            if open == 0 {
                return Some(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
        ObjectSpans::read(text.as_bytes(), 0)?.value(key).map(|span| &text[span])
    }

    #[test]
    fn a_member_is_found_whatever_stands_around_it() {
        let table = [
            (r#"{"a":1}"#, Some("1")),
            (" {\t\"b\" :\r\n[{\"a\":2}, \"]}\"] , \"a\"\n:\n\"x\\\"}\" }", Some(r#""x\"}""#)),
            (r#"{"a":1,"a":{"a":3}}"#, Some(r#"{"a":3}"#)),
            (r#"{"\u0061":-1e5,"b":null}"#, Some("-1e5")),
            (r#"{"b":{"a":1}}"#, None),
            ("{ }", None),
            ("{", None),
            ("[]", None),
            ("", None),
            (r#"{"a":}"#, None),
            (r#"{"a"]}"#, None),
        ];
        for (text, wanted) in table {
            assert_eq!(value(text, "a"), wanted, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = ObjectSpans::read(&bytes, 0);
        }

        #[test]
        fn no_json_letters_make_it_panic(text in r#"[\[\]{}",:\\ua1 ]{0,40}"#) {
            let _ = ObjectSpans::read(text.as_bytes(), 0);
        }
    }
}
