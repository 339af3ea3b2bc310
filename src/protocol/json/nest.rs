//! The brackets a scanner is inside of. Pure.

/// The brackets that are open, one bit each; the word at hand is kept out of the vector.
#[derive(Debug, Default)]
pub(super) struct Nest {
    pub(super) depth: usize,
    /// Lowest bit: the innermost bracket; set for an object.
    word: u64,
    outer: Vec<u64>,
}

// === impl Nest ===

impl Nest {
    #[inline]
    pub(super) fn push(&mut self, object: bool) {
        if self.depth.is_multiple_of(64) && self.depth > 0 {
            self.outer.push(self.word);
        }
        self.word = self.word << 1 | u64::from(object);
        self.depth += 1;
    }

    #[inline]
    pub(super) fn pop(&mut self) {
        self.word >>= 1;
        self.depth -= 1;
        if self.depth.is_multiple_of(64) && self.depth > 0 {
            self.word = self.outer.pop().unwrap_or_default();
        }
    }

    #[inline]
    pub(super) fn in_object(&self) -> bool {
        self.word & 1 == 1
    }

    pub(super) fn clear(&mut self) {
        self.depth = 0;
        self.word = 0;
        self.outer.clear();
    }

    #[cfg(test)]
    pub(super) fn words(&self) -> usize {
        self.outer.capacity()
    }
}
