//! The public labels of the accounts: made by chance, once, and unique.

use std::collections::{HashMap, HashSet};

use rand::{Rng, RngExt};

use crate::domain::account::{AuthId, LABEL_ALPHABET, Label};

/// How often a label that is taken is drawn anew.
const DRAWS_MAX: usize = 64;

/// All labels that were ever given, those of removed accounts included.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    by_account: HashMap<AuthId, Label>,
    taken: HashSet<Label>,
}

#[derive(Debug, thiserror::Error)]
pub enum LabelError {
    #[error("no free label was found in {DRAWS_MAX} draws: the random source is broken")]
    Exhausted,
}

// === impl Labels ===

impl Labels {
    /// Takes over the labels that the database holds.
    pub fn new(by_account: HashMap<AuthId, Label>) -> Self {
        let taken = by_account.values().cloned().collect();
        Self { by_account, taken }
    }

    pub fn get(&self, account: &AuthId) -> Option<&Label> {
        self.by_account.get(account)
    }

    /// Draws a label that nobody has.
    ///
    /// # Errors
    /// A random source that repeats itself.
    pub fn mint(&mut self, account: &AuthId, random: &mut impl Rng) -> Result<Label, LabelError> {
        for _ in 0..DRAWS_MAX {
            let Some(label) = draw(random) else { continue };
            if self.taken.insert(label.clone()) {
                self.by_account.insert(account.clone(), label.clone());
                return Ok(label);
            }
        }
        Err(LabelError::Exhausted)
    }

    /// Lets a label follow its account to another id. One that the new id has already stays.
    pub fn rename(&mut self, from: &AuthId, to: &AuthId) {
        if !self.by_account.contains_key(to)
            && let Some(label) = self.by_account.remove(from)
        {
            self.by_account.insert(to.clone(), label);
        }
    }
}

fn draw(random: &mut impl Rng) -> Option<Label> {
    let letter = |_| char::from(LABEL_ALPHABET[random.random_range(0..LABEL_ALPHABET.len())]);
    let letters: String = (0..6).map(letter).collect();
    Label::parse(&format!("p{letters}"))
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;

    fn id(number: u32) -> AuthId {
        AuthId::parse(&format!("acc_{number:020}")).unwrap()
    }

    #[test]
    fn a_label_that_is_taken_is_drawn_anew() {
        let first = Labels::default().mint(&id(1), &mut StdRng::seed_from_u64(7)).unwrap();
        let mut labels = Labels::new(HashMap::from([(id(1), first.clone())]));
        let second = labels.mint(&id(2), &mut StdRng::seed_from_u64(7)).unwrap();
        assert_ne!(first, second);
        assert_eq!((labels.get(&id(1)), labels.get(&id(2))), (Some(&first), Some(&second)));
    }

    #[test]
    fn a_label_follows_its_account_unless_the_new_id_has_one() {
        let mut labels = Labels::default();
        let mut random = StdRng::seed_from_u64(7);
        let first = labels.mint(&id(1), &mut random).unwrap();
        labels.rename(&id(1), &id(2));
        assert_eq!((labels.get(&id(1)), labels.get(&id(2))), (None, Some(&first)));
        let third = labels.mint(&id(3), &mut random).unwrap();
        labels.rename(&id(3), &id(2));
        assert_eq!((labels.get(&id(2)), labels.get(&id(3))), (Some(&first), Some(&third)));
    }
}
