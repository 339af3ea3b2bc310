//! Which members of a document are wanted, and what was found of them. Pure.
//!
//! A path goes through objects only. As long as the scanner is inside an object that lies on some
//! path, that object is tracked; everything else is passed over without a look at its keys.

use super::{Kind, Member, Value};

const PATHS_MAX: usize = 64;
const KEYS_MAX: usize = 6;
const KEY_LEN_MAX: usize = 48;
/// Classes of key lengths, a power of two.
const LENS: usize = 16;

/// One wanted member.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// The keys from the root to the member, unescaped.
    pub keys: &'static [&'static str],
    /// Bytes kept of a string (unescaped) or number.
    pub text_max: usize,
}

/// The wanted members; a path's place in the list is its index.
#[derive(Debug)]
pub struct Paths {
    list: &'static [Path],
    /// For each level, by the length of the key there (its lowest bits), the paths, one bit each.
    by_len: [[u64; LENS]; KEYS_MAX],
}

/// Follows the scanner through the document and keeps what is wanted.
#[derive(Debug)]
pub(super) struct Tracker {
    paths: &'static Paths,
    slots: Vec<Slot>,
    /// Slots that were used since the last reset, one bit each.
    used: u64,
    /// For each tracked object the paths that lead through it, one bit each.
    through: [u64; KEYS_MAX],
    /// For each tracked object the slot of the member that is an object or array and still open.
    open: [Option<usize>; KEYS_MAX + 1],
    /// How many tracked objects are open.
    depth: usize,
    /// The paths that lead through the value that comes next, and the slot of that value itself.
    next: u64,
    slot: Option<usize>,
    key: Key,
    listener: Listener,
}

/// Who gets the bytes of the string or number at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listener {
    Nobody,
    Key,
    Slot(usize),
}

#[derive(Debug, Default)]
struct Slot {
    text: Vec<u8>,
    kind: Option<Kind>,
    too_long: bool,
    key_start: usize,
    start: usize,
    end: usize,
    count: u32,
}

/// The key at hand. One that is longer than every wanted key equals none.
#[derive(Debug)]
struct Key {
    bytes: [u8; KEY_LEN_MAX],
    len: usize,
    start: usize,
}

// === impl Paths ===

impl Paths {
    /// Checks the list; meant for constants, so that a wrong list does not compile.
    ///
    /// # Panics
    ///
    /// On more than 64 paths, more than 6 keys in one, or a key of more than 48 bytes.
    pub const fn new(paths: &'static [Path]) -> Self {
        let mut by_len = [[0; LENS]; KEYS_MAX];
        assert!(paths.len() <= PATHS_MAX, "too many paths");
        let mut path = 0;
        while path < paths.len() {
            let keys = paths[path].keys;
            assert!(!keys.is_empty() && keys.len() <= KEYS_MAX, "a path has 1 to 6 keys");
            let mut key = 0;
            while key < keys.len() {
                assert!(keys[key].len() <= KEY_LEN_MAX, "a key is too long");
                by_len[key][keys[key].len() % LENS] |= 1 << path;
                key += 1;
            }
            path += 1;
        }
        Self { list: paths, by_len }
    }

    fn all(&self) -> u64 {
        if self.list.len() == PATHS_MAX { u64::MAX } else { (1 << self.list.len()) - 1 }
    }

    /// The paths whose key at `level` may be one of this length.
    #[inline]
    fn with_len(&self, level: usize, len: usize) -> u64 {
        self.by_len.get(level).and_then(|it| it.get(len % LENS)).copied().unwrap_or_default()
    }
}

// === impl Tracker ===

impl Tracker {
    pub(super) fn new(paths: &'static Paths) -> Self {
        Self {
            paths,
            slots: paths.list.iter().map(|_| Slot::default()).collect(),
            used: 0,
            through: [0; KEYS_MAX],
            open: [None; KEYS_MAX + 1],
            depth: 0,
            next: paths.all(),
            slot: None,
            key: Key { bytes: [0; KEY_LEN_MAX], len: 0, start: 0 },
            listener: Listener::Nobody,
        }
    }

    pub(super) fn reset(&mut self) {
        while self.used != 0 {
            let index = self.used.trailing_zeros() as usize;
            self.used &= self.used - 1;
            if let Some(slot) = self.slots.get_mut(index) {
                slot.count = 0;
                slot.kind = None;
            }
        }
        self.open = [None; KEYS_MAX + 1];
        self.depth = 0;
        self.next = self.paths.all();
        self.slot = None;
        self.listener = Listener::Nobody;
    }

    /// How many tracked objects are open. The scanner is directly inside the innermost one if its
    /// own depth is the same.
    #[inline]
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// Whether the bytes of the string or number at hand are wanted.
    #[inline]
    pub(super) fn is_listening(&self) -> bool {
        self.listener != Listener::Nobody
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        match self.listener {
            Listener::Nobody => {}
            Listener::Key => self.key.push(bytes),
            Listener::Slot(index) => {
                if let (Some(slot), Some(path)) =
                    (self.slots.get_mut(index), self.paths.list.get(index))
                {
                    slot.push(bytes, path.text_max);
                }
            }
        }
    }

    /// A key of the innermost tracked object begins.
    pub(super) fn begin_key(&mut self, start: usize) {
        self.key.len = 0;
        self.key.start = start;
        self.listener = Listener::Key;
    }

    /// A key ended; compares it if it was one of a tracked object.
    #[inline]
    pub(super) fn end_key(&mut self) {
        if self.listener == Listener::Key {
            self.listener = Listener::Nobody;
            self.compare_key();
        }
    }

    fn compare_key(&mut self) {
        self.next = 0;
        self.slot = None;
        let Some(level) = self.depth.checked_sub(1) else { return };
        let Some(key) = self.key.text() else { return };
        let mut left = self.through.get(level).copied().unwrap_or_default();
        left &= self.paths.with_len(level, key.len());
        while left != 0 {
            let index = left.trailing_zeros() as usize;
            left &= left - 1;
            let Some(path) = self.paths.list.get(index) else { return };
            if path.keys.get(level).is_some_and(|wanted| wanted.as_bytes() == key) {
                if path.keys.len() == self.depth {
                    self.slot = Some(index);
                } else {
                    self.next |= 1 << index;
                }
            }
        }
    }

    /// A value directly inside the innermost tracked object, or the root, begins.
    #[inline]
    pub(super) fn begin_value(&mut self, kind: Kind, start: usize) {
        if let Some(index) = self.slot {
            self.begin_wanted(index, kind, start);
        }
    }

    fn begin_wanted(&mut self, index: usize, kind: Kind, start: usize) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        self.used |= 1 << index;
        slot.text.clear();
        slot.kind = Some(kind);
        slot.too_long = false;
        slot.key_start = self.key.start;
        slot.start = start;
        slot.end = start;
        slot.count = slot.count.saturating_add(1);
        if matches!(kind, Kind::Object | Kind::Array) {
            if let Some(open) = self.open.get_mut(self.depth) {
                *open = Some(index);
            }
        } else {
            self.listener = Listener::Slot(index);
        }
    }

    /// A string, number or literal directly inside the innermost tracked object ended.
    #[inline]
    pub(super) fn end_value(&mut self, end: usize) {
        self.listener = Listener::Nobody;
        self.next = 0;
        if let Some(index) = self.slot.take()
            && let Some(slot) = self.slots.get_mut(index)
        {
            slot.end = end;
        }
    }

    /// An object opens at `depth`; it is tracked if a path leads through it.
    #[inline]
    pub(super) fn enter_object(&mut self, depth: usize) {
        if depth == self.depth
            && self.next != 0
            && let Some(through) = self.through.get_mut(depth)
        {
            *through = self.next;
            self.depth = depth + 1;
        }
    }

    /// An object or array closed; `depth` brackets remain open around it.
    #[inline]
    pub(super) fn leave(&mut self, depth: usize, end: usize) {
        if depth + 1 == self.depth {
            self.depth = depth;
        }
        if depth == self.depth {
            if let Some(index) = self.open.get_mut(depth).and_then(Option::take)
                && let Some(slot) = self.slots.get_mut(index)
            {
                slot.end = end;
            }
            self.next = 0;
            self.slot = None;
        }
    }

    pub(super) fn member(&self, index: usize) -> Option<Member<'_>> {
        let slot = self.slots.get(index)?;
        let value = match slot.kind? {
            Kind::Object => Value::Object,
            Kind::Array => Value::Array,
            Kind::Null => Value::Null,
            Kind::Bool => Value::Bool(slot.text == b"true"),
            Kind::String if slot.too_long => Value::LongText,
            Kind::Number if slot.too_long => Value::LongNumber,
            Kind::String => Value::Text(&slot.text),
            Kind::Number => Value::Number(&slot.text),
        };
        let span = slot.start..slot.end;
        Some(Member { value, span, key_start: slot.key_start, count: slot.count })
    }
}

#[cfg(test)]
impl Tracker {
    /// Bytes of memory held for values.
    pub(super) fn kept(&self) -> usize {
        self.slots.iter().map(|slot| slot.text.capacity()).sum()
    }
}

// === impl Slot ===

impl Slot {
    fn push(&mut self, bytes: &[u8], text_max: usize) {
        if self.too_long || matches!(self.kind, Some(Kind::Null)) {
            return;
        }
        // The text of a boolean is ours and always fits.
        if self.text.len() + bytes.len() > text_max && self.kind != Some(Kind::Bool) {
            self.too_long = true;
            self.text.clear();
            return;
        }
        self.text.extend_from_slice(bytes);
    }
}

// === impl Key ===

impl Key {
    fn push(&mut self, bytes: &[u8]) {
        let end = self.len.saturating_add(bytes.len());
        if let Some(place) = self.bytes.get_mut(self.len..end) {
            place.copy_from_slice(bytes);
        }
        self.len = end;
    }

    /// The key, unless it is longer than any wanted one.
    fn text(&self) -> Option<&[u8]> {
        self.bytes.get(..self.len)
    }
}
