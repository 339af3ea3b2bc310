//! Escapes inside JSON strings, and what they mean. Pure.

use super::paths::Tracker;

/// Written where an escaped surrogate has no partner.
const REPLACEMENT: char = '\u{FFFD}';

/// The `\u` escape at hand, and a high surrogate that waits for its partner.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unescaper {
    unit: u16,
    digits: u8,
    high: Option<u16>,
}

// === impl Unescaper ===

impl Unescaper {
    pub(super) fn begin_hex(&mut self) {
        self.unit = 0;
        self.digits = 0;
    }

    /// Takes a digit; true if it was the fourth.
    pub(super) fn push_hex(&mut self, digit: u8, out: &mut Tracker) -> bool {
        self.unit = self.unit << 4 | u16::from(digit);
        self.digits += 1;
        if self.digits < 4 {
            return false;
        }
        if out.is_listening() {
            self.take_unit(out);
        }
        true
    }

    /// Gives up waiting for the second half of a surrogate pair.
    #[inline]
    pub(super) fn flush(&mut self, out: &mut Tracker) {
        if self.high.take().is_some() {
            push_char(REPLACEMENT, out);
        }
    }

    fn take_unit(&mut self, out: &mut Tracker) {
        let unit = self.unit;
        if let (Some(high), 0xDC00..=0xDFFF) = (self.high, unit) {
            self.high = None;
            let code = 0x1_0000 + (u32::from(high - 0xD800) << 10) + u32::from(unit - 0xDC00);
            push_char(char::from_u32(code).unwrap_or(REPLACEMENT), out);
            return;
        }
        self.flush(out);
        if (0xD800..=0xDBFF).contains(&unit) {
            self.high = Some(unit);
        } else {
            push_char(char::from_u32(u32::from(unit)).unwrap_or(REPLACEMENT), out);
        }
    }
}

/// What a backslash and this letter mean.
#[inline]
pub(super) fn simple(letter: u8) -> Option<u8> {
    Some(match letter {
        b'"' | b'\\' | b'/' => letter,
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => 0x08,
        b'f' => 0x0C,
        _ => return None,
    })
}

#[inline]
pub(super) fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

fn push_char(letter: char, out: &mut Tracker) {
    out.push(letter.encode_utf8(&mut [0; 4]).as_bytes());
}
