//! When a receipt ends a nonce, and when bytes are sent again. Pure; called by the LaneReconciler.

use entity::states::LineageState;
use entity::values::Hash;
use std::time::Duration;

/// What a majority showed of a receipt and of the chain at its height.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    pub block: u64,
    pub block_hash: Hash,
    /// The canonical hash at that height; None without a majority.
    pub canonical: Option<Hash>,
}

/// A receipt is final when its block is the canonical one and, itself counted, `confirmations` blocks deep.
#[must_use]
pub fn is_final(evidence: Evidence, head: u64, confirmations: u64) -> bool {
    let deep = head.checked_sub(evidence.block).is_some_and(|above| above.saturating_add(1) >= confirmations);
    deep && evidence.canonical == Some(evidence.block_hash)
}

/// Bytes that never left are due after `patience`; bytes that left are due after twice as long as the last time, at most sixteen times.
#[must_use]
pub fn is_due_again(state: LineageState, age: Duration, since_sent: Option<Duration>, sends: i32, patience: Duration) -> bool {
    match (state, since_sent) {
        (LineageState::Signed, None) => age >= patience,
        (LineageState::Signed | LineageState::Broadcast | LineageState::Replaced, Some(since)) => {
            let doublings = u32::try_from(sends).unwrap_or(0).clamp(1, 4);
            since >= patience.saturating_mul(1 << doublings)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: Hash = Hash([7; 32]);

    fn evidence(canonical: Option<Hash>) -> Evidence {
        Evidence { block: 100, block_hash: HASH, canonical }
    }

    #[test]
    fn a_receipt_is_not_final_one_confirmation_short_and_is_final_at_the_last() {
        assert!(!is_final(evidence(Some(HASH)), 110, 12));
        assert!(is_final(evidence(Some(HASH)), 111, 12));
    }

    #[test]
    fn one_confirmation_is_the_block_itself() {
        assert!(is_final(evidence(Some(HASH)), 100, 1));
        assert!(!is_final(evidence(Some(HASH)), 99, 1));
    }

    #[test]
    fn a_receipt_of_another_block_or_without_a_majority_on_the_canonical_hash_is_never_final() {
        assert!(!is_final(evidence(Some(Hash([8; 32]))), 1_000, 12));
        assert!(!is_final(evidence(None), 1_000, 12));
    }

    #[test]
    fn bytes_that_were_sent_wait_longer_each_time_up_to_a_bound() {
        let second = Duration::from_secs(1);
        let due = |sends, since| is_due_again(LineageState::Broadcast, Duration::from_secs(999), Some(second * since), sends, second);
        assert_eq!([due(1, 1), due(1, 2), due(2, 3), due(2, 4), due(50, 15), due(50, 16)], [false, true, false, true, false, true]);
    }

    #[test]
    fn an_unsigned_or_ended_nonce_has_nothing_to_send() {
        for state in [LineageState::Allocated, LineageState::Mined, LineageState::Abandoned] {
            assert!(!is_due_again(state, Duration::MAX, Some(Duration::MAX), 1, Duration::ZERO));
        }
    }
}
