//! What can be wrong with a document. Pure.

use std::fmt;

/// Why a document is not JSON, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault} at byte {at}")]
pub struct Malformed {
    pub fault: Fault,
    /// Offset in the document.
    pub at: usize,
}

/// What is wrong; its text continues a sentence that begins with the document's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Empty,
    ByteOrderMark,
    Unexpected(u8),
    TrailingData,
    BadEscape,
    BadNumber,
    BadLiteral,
    TooDeep,
    EndsInString,
    EndsInNumber,
    EndsTooEarly,
}

// === impl Fault ===

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty"),
            Self::ByteOrderMark => f.write_str("begins with a byte order mark"),
            Self::Unexpected(byte) if byte.is_ascii_graphic() => {
                write!(f, "is not JSON: unexpected `{}`", char::from(*byte))
            }
            Self::Unexpected(byte) => write!(f, "is not JSON: unexpected byte 0x{byte:02x}"),
            Self::TrailingData => f.write_str("goes on after the end of its JSON value"),
            Self::BadEscape => f.write_str("has an invalid escape in a string"),
            Self::BadNumber => f.write_str("has an invalid number"),
            Self::BadLiteral => f.write_str("has a misspelt true, false or null"),
            Self::TooDeep => f.write_str("is nested too deeply"),
            Self::EndsInString => f.write_str("ends in the middle of a string"),
            Self::EndsInNumber => f.write_str("ends in the middle of a number"),
            Self::EndsTooEarly => f.write_str("ends before its JSON value is complete"),
        }
    }
}
