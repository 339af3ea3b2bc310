//! A bounded memory by digest: what was not used for longest is forgotten first, in halves.

use std::collections::HashMap;

use jiff::Timestamp;

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

impl<T: Clone + PartialEq> Memory<T> {
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

    /// Gives what was there before and still held.
    pub(super) fn put(
        &mut self,
        digest: Digest,
        value: T,
        now: Timestamp,
        until: Timestamp,
    ) -> Option<T> {
        let before = self.old.remove(&digest).or_else(|| self.young.remove(&digest));
        self.insert(digest, Entry { value, until });
        before.filter(|it| now < it.until).map(|it| it.value)
    }

    /// Everything that still holds.
    pub(super) fn values(&self, now: Timestamp) -> impl Iterator<Item = &T> {
        let all = self.young.values().chain(self.old.values());
        all.filter(move |it| now < it.until).map(|it| &it.value)
    }

    pub(super) fn replace(&mut self, from: &T, to: &T) {
        let all = self.young.values_mut().chain(self.old.values_mut());
        all.filter(|it| it.value == *from).for_each(|it| it.value = to.clone());
    }

    pub(super) fn forget(&mut self, value: &T) {
        self.young.retain(|_, it| it.value != *value);
        self.old.retain(|_, it| it.value != *value);
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
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn it_is_bounded_and_what_is_used_stays() {
        let (mut memory, now) = (Memory::new(10), Timestamp::UNIX_EPOCH);
        let until = now + SignedDuration::from_hours(1);
        let digest = |at: u8| [at; 32];
        memory.put(digest(0), 0, now, until);
        for at in 1..200 {
            memory.put(digest(at), at, now, until);
            assert_eq!(memory.get(&digest(0), now), Some(0), "used after {at}");
            assert!(memory.young.len() + memory.old.len() <= 10);
        }
        assert_eq!(memory.get(&digest(1), now), None);
    }

    #[test]
    fn a_value_is_replaced_or_forgotten_wherever_it_is() {
        let (mut memory, now) = (Memory::new(4), Timestamp::UNIX_EPOCH);
        let until = now + SignedDuration::from_hours(1);
        for at in 0..3 {
            assert_eq!(memory.put([at; 32], at % 2, now, until), None);
        }
        memory.replace(&0, &7);
        assert_eq!(memory.values(now).filter(|it| **it == 7).count(), 2);
        memory.forget(&7);
        assert_eq!(memory.values(now).collect::<Vec<_>>(), [&1]);
        assert_eq!(memory.values(until).count(), 0, "nothing holds for ever");
        assert_eq!(memory.put([1; 32], 5, now, until), Some(1));
    }
}
