//! `true`, `false` and `null`. Pure.

/// A literal of which at least the first letter was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Literal {
    text: &'static [u8],
    read: usize,
}

// === impl Literal ===

impl Literal {
    pub(super) const TRUE: Self = Self { text: b"true", read: 1 };
    pub(super) const FALSE: Self = Self { text: b"false", read: 1 };
    pub(super) const NULL: Self = Self { text: b"null", read: 1 };

    pub(super) fn text(self) -> &'static [u8] {
        self.text
    }

    /// Reads the next letter: `None` if it is a wrong one, `Some(true)` if it is the last one.
    pub(super) fn read(&mut self, byte: u8) -> Option<bool> {
        if self.text.get(self.read) != Some(&byte) {
            return None;
        }
        self.read += 1;
        Some(self.read == self.text.len())
    }
}
