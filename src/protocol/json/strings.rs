//! The scanner inside strings, keys and values alike. Pure.

use super::{Fault, Malformed, Scanner, State, find, unescape};

impl Scanner {
    /// Reads string content up to the closing quote, an escape that is cut, or the piece's end.
    #[inline]
    pub(super) fn text(&mut self, piece: &[u8], mut at: usize) -> Result<usize, Malformed> {
        loop {
            let rest = piece.get(at..).unwrap_or_default();
            let plain = find::plain(rest);
            if self.tracker.is_listening() && plain > 0 {
                self.unescaper.flush(&mut self.tracker);
                self.tracker.push(rest.get(..plain).unwrap_or_default());
            }
            at += plain;
            match piece.get(at) {
                None => return Ok(at),
                Some(b'"') => {
                    self.end_text(at);
                    return Ok(at + 1);
                }
                Some(_) => at += 1,
            }
            let Some(&byte) = piece.get(at) else {
                self.state = State::Escape;
                return Ok(at);
            };
            at = self.escape(at, byte)?;
            if self.state != State::Text {
                return Ok(at);
            }
        }
    }

    #[inline]
    fn end_text(&mut self, at: usize) {
        if self.tracker.is_listening() {
            self.unescaper.flush(&mut self.tracker);
        }
        if self.in_key {
            self.tracker.end_key();
            self.state = State::Colon;
        } else {
            self.value_ended(self.offset + at + 1);
        }
    }

    /// Reads what follows a backslash.
    #[inline]
    pub(super) fn escape(&mut self, at: usize, byte: u8) -> Result<usize, Malformed> {
        if byte == b'u' {
            self.unescaper.begin_hex();
            self.state = State::Hex;
            return Ok(at + 1);
        }
        let Some(meant) = unescape::simple(byte) else {
            return Err(self.fail(Fault::BadEscape, at));
        };
        if self.tracker.is_listening() {
            self.unescaper.flush(&mut self.tracker);
            self.tracker.push(&[meant]);
        }
        self.state = State::Text;
        Ok(at + 1)
    }

    /// Reads one of the four digits of a `\u` escape.
    pub(super) fn hex(&mut self, at: usize, byte: u8) -> Result<usize, Malformed> {
        let Some(digit) = unescape::hex_digit(byte) else {
            return Err(self.fail(Fault::BadEscape, at));
        };
        if self.unescaper.push_hex(digit, &mut self.tracker) {
            self.state = State::Text;
        }
        Ok(at + 1)
    }
}
