//! The closed lists that metric labels come from. Pure.

use crate::domain::{outcome::Class, select::Reason};

/// A closed list of label values; `index` counts them from 0 in the order of `ALL`.
pub trait LabelSet: Copy + 'static {
    const ALL: &'static [Self];
    fn index(self) -> usize;
    fn label(self) -> &'static str;
}

macro_rules! labels {
    ($($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $value:ident = $label:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$about])* $value,)* }

        impl LabelSet for $name {
            const ALL: &'static [Self] = &[$(Self::$value,)*];

            fn index(self) -> usize {
                self as usize
            }

            fn label(self) -> &'static str {
                match self { $(Self::$value => $label,)* }
            }
        }

        impl $name {
            /// How many values there are.
            pub const COUNT: usize = Self::ALL.len();
        }
    )*};
}

labels! {
    Route {
        Models = "models",
        Responses = "responses",
        Compact = "compact",
        Memories = "memories",
        Search = "search",
        Images = "images",
        Wham = "wham",
        Files = "files",
        Health = "health",
        Other = "other",
    }
    /// What carries the answer.
    Transport {
        Http = "http",
        Sse = "sse",
        WebSocket = "websocket",
    }
    /// The first digit of a status.
    CodeClass {
        Informational = "1xx",
        Success = "2xx",
        Redirection = "3xx",
        ClientError = "4xx",
        ServerError = "5xx",
        /// The client left before there was a status.
        None = "none",
    }
    /// The gateway's own work in a request.
    Phase {
        Admit = "admit",
        Select = "select",
        Refresh = "refresh",
        Settle = "settle",
    }
    /// How one attempt with one account ended.
    AttemptOutcome {
        Success = "success",
        Caller = "caller",
        Credential = "credential",
        Workspace = "workspace",
        Quota = "quota",
        ModelUnsupported = "model_unsupported",
        Transient = "transient",
        Transport = "transport",
        Unreachable = "unreachable",
        TimedOut = "timed_out",
        Cancelled = "cancelled",
    }
    /// Why an account was chosen for an attempt.
    Selected {
        Bound = "bound",
        Reserved = "reserved",
        PoolRank = "pool_rank",
        Spill = "spill",
        Failover = "failover",
        Probe = "probe",
        Direct = "direct",
    }
    /// Why a request moved on to another account.
    FailoverReason {
        Credential = "credential",
        Workspace = "workspace",
        Quota = "quota",
        ModelUnsupported = "model_unsupported",
        Transient = "transient",
        Transport = "transport",
        Unreachable = "unreachable",
        TimedOut = "timed_out",
    }
    /// Why a failed attempt was the request's last although another account could have been tried.
    ReplayRefusal {
        OutputBegun = "output_begun",
        MayHaveTakenEffect = "may_have_taken_effect",
        BodyIsGone = "body_is_gone",
        AttemptsUsedUp = "attempts_used_up",
        DeadlinePassed = "deadline_passed",
        NoOtherAccount = "no_other_account",
        ExactAccount = "exact_account",
    }
    /// Where an account of the pool stands.
    AccountState {
        Ready = "ready",
        Avoided = "avoided",
        Cooling = "cooling",
        NeedsLogin = "needs_login",
        Disabled = "disabled",
        Paused = "paused",
        OutOfSight = "out_of_sight",
    }
    /// What a look at the credential directory has changed.
    Reconciled {
        Added = "added",
        Removed = "removed",
        Renamed = "renamed",
        Credentials = "credentials",
        Metadata = "metadata",
        Eligibility = "eligibility",
        Sources = "sources",
        Purged = "purged",
    }
    /// How a refresh of tokens ended.
    RefreshResult {
        Refreshed = "refreshed",
        /// Somebody else had refreshed the tokens; theirs were taken.
        Adopted = "adopted",
        /// The new tokens are in memory and in the journal, not in the file.
        NotPersisted = "not_persisted",
        /// The new tokens are another account's.
        OtherAccount = "other_account",
        NoRefreshToken = "no_refresh_token",
        /// Only a new sign-in helps.
        Terminal = "terminal",
        /// It may work the next time.
        Passing = "passing",
    }
    TokenKind {
        Input = "input",
        CachedInput = "cached_input",
        Output = "output",
        Reasoning = "reasoning",
    }
}

// === impl CodeClass ===

impl CodeClass {
    /// The class of a status; 0 stands for none.
    pub fn of(status: u16) -> Self {
        match status {
            100..=199 => Self::Informational,
            200..=299 => Self::Success,
            300..=399 => Self::Redirection,
            400..=499 => Self::ClientError,
            500..=599 => Self::ServerError,
            _ => Self::None,
        }
    }
}

// === impl AttemptOutcome ===

impl From<Class> for AttemptOutcome {
    fn from(class: Class) -> Self {
        match class {
            Class::Success => Self::Success,
            Class::Caller => Self::Caller,
            Class::Credential => Self::Credential,
            Class::Workspace => Self::Workspace,
            Class::Quota => Self::Quota,
            Class::ModelUnsupported => Self::ModelUnsupported,
            Class::Transient => Self::Transient,
            Class::Transport => Self::Transport,
        }
    }
}

// === impl Selected ===

impl From<Reason> for Selected {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Bound => Self::Bound,
            Reason::Reserved => Self::Reserved,
            Reason::PoolRank => Self::PoolRank,
            Reason::Spill => Self::Spill,
            Reason::Failover => Self::Failover,
            Reason::Probe => Self::Probe,
            Reason::Direct => Self::Direct,
        }
    }
}

// === impl FailoverReason ===

impl FailoverReason {
    /// The reason that a failed attempt gives; a success and the caller's own fault give none.
    pub fn of(outcome: AttemptOutcome) -> Option<Self> {
        match outcome {
            AttemptOutcome::Success | AttemptOutcome::Caller | AttemptOutcome::Cancelled => None,
            AttemptOutcome::Credential => Some(Self::Credential),
            AttemptOutcome::Workspace => Some(Self::Workspace),
            AttemptOutcome::Quota => Some(Self::Quota),
            AttemptOutcome::ModelUnsupported => Some(Self::ModelUnsupported),
            AttemptOutcome::Transient => Some(Self::Transient),
            AttemptOutcome::Transport => Some(Self::Transport),
            AttemptOutcome::Unreachable => Some(Self::Unreachable),
            AttemptOutcome::TimedOut => Some(Self::TimedOut),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_and_its_outcome_share_a_label() {
        for class in [Class::Success, Class::Caller, Class::Quota, Class::Transport] {
            assert_eq!(AttemptOutcome::from(class).label(), class.label());
        }
    }

    #[test]
    fn the_index_is_the_place_in_the_list() {
        assert!(Route::ALL.iter().enumerate().all(|(at, it)| it.index() == at));
    }
}
