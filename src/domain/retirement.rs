//! What has to be shown before a signer or a journal key may go: nothing of it is open, the incident-retention window has passed since its
//! last use, and every end stands deep enough on the chain that a majority of independent hosts shows. Pure; called by `operator::retire`.

use crate::domain::quorum::Decision;
use entity::states::LineageState;
use entity::values::Hash;
use std::time::Duration;

/// Independently hosted endpoints that a proof needs: two of three decide, and one may fail or lie.
pub const HOSTS_MIN: usize = 3;

/// What a proof failed at. Each has the name under which a command refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gate {
    /// A lane of the signer may still give out nonces.
    SignerNotDrained,
    /// The key encrypts new rows.
    KeyActive,
    ActiveLineages,
    IncidentRetention,
    /// Lineages are on a chain that is not configured where the check runs.
    ChainUnknown,
    IndependentHosts,
    /// No majority shows a head, or answers what it was asked.
    Quorum,
    ReceiptDepth,
    CanonicalHash,
}

impl Gate {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SignerNotDrained => "signer-not-drained",
            Self::KeyActive => "key-active",
            Self::ActiveLineages => "active-lineages",
            Self::IncidentRetention => "incident-retention",
            Self::ChainUnknown => "chain-not-configured",
            Self::IndependentHosts => "independent-hosts",
            Self::Quorum => "quorum",
            Self::ReceiptDepth => "receipt-depth",
            Self::CanonicalHash => "canonical-hash",
        }
    }
}

/// What a majority showed that bears on one end.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// The highest block that a majority of the endpoints has reached.
    pub head: u64,
    /// TX_REORG_LOOKBACK_BLOCKS.
    pub lookback: u64,
    /// The canonical hash at the height of the receipt.
    pub canonical: Decision<Option<Hash>>,
    /// How many nonces the account has used up at the deepest block that still counts.
    pub consumed: Option<u64>,
}

/// The deepest block that counts: TX_REORG_LOOKBACK_BLOCKS behind the head.
#[must_use]
pub const fn floor(head: u64, lookback: u64) -> Option<u64> {
    head.checked_sub(lookback)
}

/// Judges one lineage that has ended with a receipt: why it keeps its signer and its key, or None.
#[must_use]
pub fn receipt(block: u64, hash: Hash, shown: Shown) -> Option<Gate> {
    if floor(shown.head, shown.lookback).is_none_or(|floor| block > floor) {
        return Some(Gate::ReceiptDepth);
    }
    match shown.canonical {
        Decision::Agreed(Some(canonical), _) if canonical == hash => None,
        Decision::Agreed(..) => Some(Gate::CanonicalHash),
        Decision::Split | Decision::Insufficient => Some(Gate::Quorum),
    }
}

/// Judges one lineage whose nonce a stranger used up: it has no receipt of ours, so the account itself must be past the nonce that deep.
#[must_use]
pub fn stranger(nonce: u64, shown: Shown) -> Option<Gate> {
    match shown.consumed {
        Some(consumed) if consumed > nonce => None,
        Some(_) => Some(Gate::ReceiptDepth),
        None => Some(Gate::Quorum),
    }
}

/// Whether anything about a lineage in this state is open.
#[must_use]
pub const fn is_open(state: LineageState) -> bool {
    !state.is_final()
}

/// Whether the window has passed since the last use; what was never used needs none.
#[must_use]
pub fn has_rested(unused_for: Option<Duration>, window: Duration) -> bool {
    unused_for.is_none_or(|unused| unused >= window)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: Hash = Hash([7; 32]);

    fn shown(head: u64) -> Shown {
        Shown { head, lookback: 64, canonical: Decision::Agreed(Some(HASH), 2), consumed: Some(10) }
    }

    #[test]
    fn drn_10_a_receipt_counts_from_exactly_the_lookback_behind_the_head() {
        assert_eq!(receipt(100, HASH, shown(164)), None);
        assert_eq!(receipt(100, HASH, shown(163)), Some(Gate::ReceiptDepth));
        assert_eq!(receipt(100, HASH, shown(99)), Some(Gate::ReceiptDepth), "a head below the receipt is no head");
        assert_eq!(receipt(0, HASH, shown(63)), Some(Gate::ReceiptDepth));
        assert_eq!(receipt(0, HASH, shown(64)), None);
    }

    #[test]
    fn drn_12_only_the_stored_hash_on_the_chain_of_a_majority_is_a_proof() {
        let with = |canonical| receipt(100, HASH, Shown { canonical, ..shown(1_000) });
        assert_eq!(with(Decision::Agreed(Some(Hash([8; 32])), 2)), Some(Gate::CanonicalHash));
        assert_eq!(with(Decision::Agreed(None, 2)), Some(Gate::CanonicalHash));
        assert_eq!(with(Decision::Split), Some(Gate::Quorum));
        assert_eq!(with(Decision::Insufficient), Some(Gate::Quorum));
    }

    #[test]
    fn drn_10_a_nonce_without_a_receipt_of_ours_counts_once_the_account_is_past_it_that_deep() {
        assert_eq!(stranger(9, shown(1_000)), None);
        assert_eq!(stranger(10, shown(1_000)), Some(Gate::ReceiptDepth));
        assert_eq!(stranger(9, Shown { consumed: None, ..shown(1_000) }), Some(Gate::Quorum));
    }

    #[test]
    fn drn_09_the_window_has_passed_at_its_very_end_and_not_before() {
        let window = Duration::from_secs(604_800);
        assert!(has_rested(None, window) && has_rested(Some(window), window));
        assert!(!has_rested(Some(window - Duration::from_millis(1)), window));
    }

    #[test]
    fn every_state_that_is_not_final_is_open() {
        let open: Vec<_> = LineageState::all().into_iter().filter(|state| is_open(*state)).collect();
        assert_eq!(open, [LineageState::Allocated, LineageState::Signed, LineageState::Broadcast, LineageState::Replaced]);
    }
}
