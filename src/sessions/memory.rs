//! A bounded memory by digest: what was not used for longest is forgotten first, in halves.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use super::Digest;

/// Two halves: entries in use move to the young one; when that is full, the old one goes.
#[derive(Debug)]
pub(super) struct Memory<T> {
    young: HashMap<Digest, Entry<T>>,
    old: HashMap<Digest, Entry<T>>,
    half: usize,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    value: T,
    until: Timestamp,
}

// === impl Memory ===

impl<T: Clone> Memory<T> {
    /// Holds `max` entries at the most.
    pub(super) fn new(max: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), half: (max / 2).max(1) }
    }

    pub(super) fn get(&mut self, digest: &Digest, now: Timestamp) -> Option<T> {
        if !self.young.contains_key(digest) {
            let entry = self.old.remove(digest)?;
            self.insert(*digest, entry);
        }
        self.young.get(digest).filter(|it| now < it.until).map(|it| it.value.clone())
    }

    pub(super) fn put(&mut self, digest: Digest, value: T, now: Timestamp, ttl: SignedDuration) {
        self.old.remove(&digest);
        let until = now.checked_add(ttl).unwrap_or(Timestamp::MAX);
        self.insert(digest, Entry { value, until });
    }

    fn insert(&mut self, digest: Digest, entry: Entry<T>) {
        if self.young.len() >= self.half && !self.young.contains_key(&digest) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(digest, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded_and_what_is_used_stays() {
        let (mut memory, now) = (Memory::new(10), Timestamp::UNIX_EPOCH);
        let ttl = SignedDuration::from_hours(1);
        let digest = |at: u8| [at; 32];
        memory.put(digest(0), 0, now, ttl);
        for at in 1..200 {
            memory.put(digest(at), at, now, ttl);
            assert_eq!(memory.get(&digest(0), now), Some(0), "used after {at}");
            assert!(memory.young.len() + memory.old.len() <= 10);
        }
        assert_eq!(memory.get(&digest(1), now), None);
    }
}
