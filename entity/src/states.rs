//! The states that rows can be in, once for Postgres, the machines and the API.

use sea_orm::{DeriveActiveEnum, EnumIter, Iterable};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// A word that is none of the states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWord(pub String);

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown word {:?}", self.0)
    }
}

impl std::error::Error for UnknownWord {}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EnumIter, DeriveActiveEnum, Serialize, Deserialize)]
        #[sea_orm(rs_type = "String", db_type = "Text")]
        pub enum $name {
            $($(#[$vdoc])* #[sea_orm(string_value = $text)] #[serde(rename = $text)] $variant),+
        }

        impl $name {
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// Every word, in the order of life.
            #[must_use]
            pub fn all() -> Vec<Self> {
                Self::iter().collect()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;
            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                match text { $($text => Ok(Self::$variant),)+ _ => Err(UnknownWord(text.to_owned())) }
            }
        }
    )+};
}

words! {
    /// A family of nodes with rules of its own about one account's open transactions.
    ChainProfile {
        /// Clients that are not known.
        Default = "default",
        /// Keeps 16 of an account for sure and at most 64 that wait behind a gap; what is beyond is dropped in silence.
        Geth = "geth",
        /// Keeps 16 of an account.
        Reth = "reth",
        /// No pool: first come, first served; what comes before its turn waits for about a second only.
        Nitro = "nitro",
        /// A nonce window of its own, and one insertion of an account at a time.
        Zksync = "zksync",
        /// Takes the next 8 nonces of an account.
        Hyperevm = "hyperevm",
    }

    /// What a job does.
    JobKind { ContractCall = "contract_call", Transfer = "transfer" }

    JobState {
        PendingBatch = "pending_batch", Batched = "batched", Queued = "queued", Processing = "processing", Retry = "retry",
        Submitted = "submitted", Completed = "completed", NotActionable = "not_actionable", Reverted = "reverted", Dead = "dead",
        Quarantined = "quarantined", Cancelled = "cancelled",
    }

    LineageState {
        Allocated = "allocated", Signed = "signed", Broadcast = "broadcast", Replaced = "replaced",
        Mined = "mined", Reverted = "reverted", Superseded = "superseded", Abandoned = "abandoned",
    }

    LaneState { Active = "active", Paused = "paused", Draining = "draining", Drained = "drained", Retired = "retired",
        /// An end that was final was undone: nothing is decided here until an operator has looked.
        Frozen = "frozen" }

    WorkerState {
        Starting = "starting", Active = "active", Draining = "draining", Drained = "drained", Stopped = "stopped", Stale = "stale",
    }

    /// How one execution of a job ended.
    AttemptOutcome {
        Submitted = "submitted", NotActionable = "not_actionable", Retry = "retry",
        /// Given back without costing an attempt.
        Snoozed = "snoozed", Dead = "dead",
        /// Another execution took over; nothing was written.
        Fenced = "fenced", Cancelled = "cancelled",
    }

    /// Why a nonce is to be used up by a transfer of nothing.
    NoopReason {
        /// Somebody asked for cancellation.
        Cancelled = "cancelled",
        /// Every endpoint refuses the bytes for good.
        Refused = "refused",
    }

    /// Why bytes were signed at a nonce.
    AttemptPurpose { Call = "call", Replacement = "replacement", Noop = "noop" }
}

impl JobState {
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::NotActionable | Self::Reverted | Self::Dead | Self::Quarantined | Self::Cancelled)
    }
}

impl LineageState {
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Mined | Self::Reverted | Self::Superseded | Self::Abandoned)
    }
}
