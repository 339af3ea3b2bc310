//! The grammar of a JSON number, read in pieces. Pure.

/// How far a number was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Number {
    #[default]
    Start,
    Minus,
    Zero,
    Whole,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

// === impl Number ===

impl Number {
    /// Reads on and returns how many bytes still belong to the number.
    #[inline]
    pub(super) fn read(&mut self, bytes: &[u8]) -> usize {
        for (at, &byte) in bytes.iter().enumerate() {
            match self.after(byte) {
                Some(next) => *self = next,
                None => return at,
            }
        }
        bytes.len()
    }

    /// Whether what was read is a whole number.
    pub(super) fn may_end(self) -> bool {
        matches!(self, Self::Zero | Self::Whole | Self::Fraction | Self::ExponentDigits)
    }

    #[inline]
    fn after(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Whole, b'0'..=b'9') => Self::Whole,
            (Self::Start, b'-') => Self::Minus,
            (Self::Start | Self::Minus, b'0') => Self::Zero,
            (Self::Start | Self::Minus, b'1'..=b'9') => Self::Whole,
            (Self::Zero | Self::Whole, b'.') => Self::Point,
            (Self::Point | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Zero | Self::Whole | Self::Fraction, b'e' | b'E') => Self::Exponent,
            (Self::Exponent, b'+' | b'-') => Self::ExponentSign,
            (Self::Exponent | Self::ExponentSign | Self::ExponentDigits, b'0'..=b'9') => {
                Self::ExponentDigits
            }
            _ => return None,
        })
    }
}

/// The whole part of a number written with a fraction or an exponent.
pub(super) fn truncated(text: &str) -> Option<i64> {
    let number: f64 = text.parse().ok()?;
    let whole = number.trunc();
    // Beyond 2^53 a float no longer names one whole number.
    (whole.abs() <= 9_007_199_254_740_992.0).then_some(whole as i64)
}
