//! What an endpoint's answer to a send means for the bytes that were sent. Owns the classes and the verdict of each; recognises no text
//! (that is the classification table of `chain`) and performs nothing. Called by `chain` to label answers and by the journal to act.

use std::{fmt, str::FromStr};

/// What the journal does next with the attempt whose bytes were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The endpoint has the bytes. No proof that the network has: the rebroadcast timer stays.
    Accepted,
    /// No verdict: the bytes may be in a pool. Send the identical bytes again; never a new nonce.
    Ambiguous,
    /// The nonce is used up as this endpoint sees it. The receipts of all own hashes decide, then a quorum on the consumed nonce.
    NonceTooLow,
    /// Not taken here and now, for a reason that passes. The identical bytes later, the lowest unmined nonce first.
    HoldSameBytes,
    /// The signer cannot pay. Pause the lane, keep nonce and bytes, go on by balance.
    NeedsFunds,
    /// Priced too low against the pool or against another attempt. Reconcile, then a higher priced attempt at the same nonce.
    Reprice,
    /// Built wrongly (gas limit or fee fields). Estimate again and sign a new attempt at the same nonce.
    Rebuild,
    /// This call will not be taken. `stateless`: true for every endpoint at any time, so these bytes cannot have been accepted
    /// anywhere; otherwise another endpoint may think differently. In both cases the nonce ends by a no-op or from the tail.
    Refused { stateless: bool },
}

const STATELESS: Verdict = Verdict::Refused { stateless: true };
const STATEFUL: Verdict = Verdict::Refused { stateless: false };

/// A word that names no class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownClass(pub String);

impl fmt::Display for UnknownClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no such class: {:?}", self.0)
    }
}

impl std::error::Error for UnknownClass {}

macro_rules! classes {
    ($($(#[$doc:meta])* $name:ident = $word:literal => $verdict:expr),+ $(,)?) => {
        /// What an answer says, whatever words or code the client uses for it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Class { $($(#[$doc])* $name),+ }

        impl Class {

            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The word for metrics, logs and the classification table.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word),+ }
            }
        }

        /// What the class means for the bytes that were sent.
        #[must_use]
        pub const fn verdict(class: Class) -> Verdict {
            match class { $(Class::$name => $verdict),+ }
        }
    };
}

classes! {
    Ok = "ok" => Verdict::Accepted,
    AlreadyKnown = "already_known" => Verdict::Accepted,
    /// Taken into a pool of lower priority (BSC); likely to need a higher price early.
    AcceptedOtherPool = "accepted_other_pool" => Verdict::Accepted,

    NonceTooLow = "nonce_too_low" => Verdict::NonceTooLow,

    NonceTooHigh = "nonce_too_high" => Verdict::HoldSameBytes,
    NonceLowerInvalid = "nonce_lower_invalid" => Verdict::HoldSameBytes,
    FutureReplacePending = "future_replace_pending" => Verdict::HoldSameBytes,
    AccountQueueCap = "account_queue_cap" => Verdict::HoldSameBytes,
    DelegatedInflightLimit = "delegated_inflight_limit" => Verdict::HoldSameBytes,
    PoolTypeConflict = "pool_type_conflict" => Verdict::HoldSameBytes,
    AuthorityConflict = "authority_conflict" => Verdict::HoldSameBytes,
    TxpoolFull = "txpool_full" => Verdict::HoldSameBytes,
    RateLimited = "rate_limited" => Verdict::HoldSameBytes,
    QuotaOrAuth = "quota_or_auth" => Verdict::HoldSameBytes,
    MethodUnsupported = "method_unsupported" => Verdict::HoldSameBytes,
    NodeNotReady = "node_not_ready" => Verdict::HoldSameBytes,
    /// The request certainly never left: no connection, an open circuit, a wrong chain id.
    NotSent = "not_sent" => Verdict::HoldSameBytes,

    InsufficientFunds = "insufficient_funds" => Verdict::NeedsFunds,

    ReplacementUnderpriced = "replacement_underpriced" => Verdict::Reprice,
    Underpriced = "underpriced" => Verdict::Reprice,

    GasIntrinsic = "gas_intrinsic" => Verdict::Rebuild,
    GasBlockLimit = "gas_block_limit" => Verdict::Rebuild,
    GasTxCap = "gas_tx_cap" => Verdict::Rebuild,
    FeeFieldsInvalid = "fee_fields_invalid" => Verdict::Rebuild,
    /// The node's own limit on gas limit times price; another node may have another limit.
    FeeCapExceeded = "fee_cap_exceeded" => Verdict::Rebuild,

    InvalidSignature = "invalid_signature" => STATELESS,
    WrongChainId = "wrong_chain_id" => STATELESS,
    UnsupportedType = "unsupported_type" => STATELESS,
    Oversized = "oversized" => STATELESS,
    Overflow = "overflow" => STATELESS,
    DecodeError = "decode_error" => STATELESS,

    /// The sender carries code: depends on the state, for a delegation can be set and cleared.
    InvalidSenderCode = "invalid_sender_code" => STATEFUL,
    PolicyRejected = "policy_rejected" => STATEFUL,
    TerminallyStuck = "terminally_stuck" => STATEFUL,
    Revert = "revert" => STATEFUL,
    EstimateExceedsAllowance = "estimate_exceeds_allowance" => STATEFUL,

    ServiceUnavailable = "service_unavailable" => Verdict::Ambiguous,
    /// No answer within the deadline, or the connection broke after the request was written.
    NoAnswer = "no_answer" => Verdict::Ambiguous,
    /// An answer that is no JSON-RPC, or lacks the call that was asked.
    Malformed = "malformed" => Verdict::Ambiguous,
    /// Accepted under a hash that is not the one computed before sending.
    HashMismatch = "hash_mismatch" => Verdict::Ambiguous,
    Unknown = "unknown" => Verdict::Ambiguous,
}

impl Class {
    /// The node refuses the bytes for their gas limit, and another limit may help.
    #[must_use]
    pub const fn is_about_gas(self) -> bool {
        matches!(self, Self::GasIntrinsic | Self::GasBlockLimit | Self::GasTxCap)
    }

    /// Whether the words of an endpoint can mean it; the others are found otherwise.
    #[must_use]
    pub const fn is_of_words(self) -> bool {
        !matches!(self, Self::Ok | Self::NotSent | Self::NoAnswer | Self::Malformed | Self::HashMismatch)
    }

    /// Whether the answer tells of a trouble of the endpoint, not of the call. Only these count against its health: a nonce that is too
    /// low or a revert is a correct answer, whatever code it came with.
    #[must_use]
    pub const fn is_endpoint_fault(self) -> bool {
        matches!(self, Self::RateLimited | Self::QuotaOrAuth | Self::NodeNotReady)
            || matches!(self, Self::ServiceUnavailable | Self::NoAnswer | Self::Malformed | Self::NotSent)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Class {
    type Err = UnknownClass;
    fn from_str(word: &str) -> Result<Self, UnknownClass> {
        Self::ALL.iter().copied().find(|class| class.as_str() == word).ok_or_else(|| UnknownClass(word.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_class_has_a_word_of_its_own_that_reads_back() {
        let words: HashSet<_> = Class::ALL.iter().map(|class| class.as_str()).collect();
        assert_eq!(words.len(), Class::ALL.len());
        for class in Class::ALL {
            assert_eq!(class.as_str().parse(), Ok(*class));
        }
        assert!("nonce too low".parse::<Class>().is_err());
    }

    #[test]
    fn nothing_that_may_have_reached_a_pool_is_refused_for_good() {
        for class in [Class::NoAnswer, Class::ServiceUnavailable, Class::Malformed, Class::HashMismatch, Class::Unknown] {
            assert_eq!(verdict(class), Verdict::Ambiguous, "{class}");
        }
        for class in [Class::NonceTooLow, Class::ReplacementUnderpriced, Class::TxpoolFull, Class::InsufficientFunds, Class::Revert] {
            assert_ne!(verdict(class), Verdict::Refused { stateless: true }, "{class}");
        }
    }

    #[test]
    fn a_correct_answer_is_no_fault_of_the_endpoint() {
        for class in Class::ALL.iter().filter(|class| class.is_endpoint_fault()) {
            assert!(matches!(verdict(*class), Verdict::Ambiguous | Verdict::HoldSameBytes), "{class}");
        }
        for class in [Class::Ok, Class::NonceTooLow, Class::Revert, Class::InsufficientFunds, Class::TxpoolFull, Class::Unknown] {
            assert!(!class.is_endpoint_fault(), "{class}");
        }
    }
}
