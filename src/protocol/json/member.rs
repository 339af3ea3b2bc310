//! What was found of a document. Pure.

use std::ops::Range;

use super::number;

/// The JSON types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Object,
    Array,
    String,
    Number,
    Bool,
    Null,
}

/// A wanted member that was found. Of repeated members it is the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    pub value: Value<'a>,
    /// Where the value is in the document, quotes and brackets included.
    pub span: Range<usize>,
    /// Where the member begins: the opening quote of its key.
    pub key_start: usize,
    /// How often the path was met.
    pub count: u32,
}

/// A member's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Unescaped; lone surrogates became U+FFFD. Not necessarily UTF-8.
    Text(&'a [u8]),
    /// A string beyond the path's bound.
    LongText,
    /// A number beyond the path's bound.
    LongNumber,
    /// As it is written.
    Number(&'a [u8]),
    Bool(bool),
    Null,
    Object,
    Array,
}

// === impl Member ===

impl Member<'_> {
    /// The text of a string that is UTF-8.
    pub fn text(&self) -> Option<&str> {
        let Value::Text(text) = self.value else { return None };
        std::str::from_utf8(text).ok()
    }

    /// A whole number; a fraction is cut off.
    pub fn integer(&self) -> Option<i64> {
        let Value::Number(text) = self.value else { return None };
        let text = std::str::from_utf8(text).ok()?;
        text.parse().ok().or_else(|| number::truncated(text))
    }

    /// A number.
    pub fn float(&self) -> Option<f64> {
        let Value::Number(text) = self.value else { return None };
        std::str::from_utf8(text).ok()?.parse().ok()
    }

    /// A boolean.
    pub fn boolean(&self) -> Option<bool> {
        let Value::Bool(value) = self.value else { return None };
        Some(value)
    }
}
