//! The claims that name a user within a workspace. Pure.

use std::{fmt, sync::Arc};

use sha2::{Digest, Sha256};

use super::seats;
use crate::domain::account::normalized_id;

/// The claims that can name a user, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SeatKind {
    /// `chatgpt_account_user_id`
    AccountUser,
    /// `chatgpt_user_id`
    ChatgptUser,
    /// `user_id`
    User,
    /// `sub`
    Subject,
}

/// The user within a workspace, by the strongest claim that is known of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seat {
    kind: SeatKind,
    user: Arc<str>,
}

/// All claims of a token that can name its user.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Users([Option<Arc<str>>; 4]);

// === impl SeatKind ===

impl SeatKind {
    pub const ALL: [Self; 4] = [Self::AccountUser, Self::ChatgptUser, Self::User, Self::Subject];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::AccountUser => "chatgpt_account_user_id",
            Self::ChatgptUser => "chatgpt_user_id",
            Self::User => "user_id",
            Self::Subject => "sub",
        }
    }
}

// === impl Seat ===

impl Seat {
    pub fn kind(&self) -> SeatKind {
        self.kind
    }

    /// Eight hex digits that tell users apart and name none of them.
    pub fn digest(&self) -> String {
        let digest = Sha256::digest(format!("{}\n{}", self.kind.name(), self.user));
        digest.iter().take(4).map(|it| format!("{it:02x}")).collect()
    }

    /// The user itself, which nobody may see.
    pub(in crate::domain) fn user(&self) -> &str {
        &self.user
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seat({}, ..)", self.kind.name())
    }
}

// === impl Users ===

impl Users {
    /// Takes a claim in; one that is blank or malformed is as good as absent.
    pub fn set(&mut self, kind: SeatKind, text: &str) {
        self.0[kind as usize] = normalized_id(text);
    }

    /// This token's claims, and where it has none, the other's.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        Self(SeatKind::ALL.map(|kind| self.get(kind).or(other.get(kind)).cloned()))
    }

    /// Takes over what `known` has and these lack, unless `known` is of another user.
    #[must_use]
    pub fn with(&self, known: &Self) -> Self {
        if self.differ_from(known) { self.clone() } else { self.or(known) }
    }

    /// Whether the two name different users: the strongest kind of claim that both have differs.
    pub fn differ_from(&self, other: &Self) -> bool {
        seats::differ(self, other)
    }

    /// Puts a seat in, unless there is a claim of its kind.
    pub fn fill(&mut self, seat: &Seat) {
        self.0[seat.kind as usize].get_or_insert_with(|| Arc::clone(&seat.user));
    }

    pub fn is_empty(&self) -> bool {
        self.strongest().is_none()
    }

    pub fn has(&self, kind: SeatKind) -> bool {
        self.get(kind).is_some()
    }

    pub(super) fn get(&self, kind: SeatKind) -> Option<&Arc<str>> {
        self.0[kind as usize].as_ref()
    }

    pub(super) fn strongest(&self) -> Option<Seat> {
        let kind = SeatKind::ALL.into_iter().find(|kind| self.get(*kind).is_some())?;
        Some(Seat { kind, user: self.get(kind)?.clone() })
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = SeatKind::ALL.into_iter().filter(|kind| self.get(*kind).is_some());
        f.debug_list().entries(known).finish()
    }
}
