//! What ends a nonce, and what undoes an end. Pure; called by the LaneReconciler with what a majority showed.
//!
//! The order of the reads is part of the rule: first how many nonces the account has used up at a block, then the receipts from
//! endpoints that are at that block or past it, then the canonical hash at the height of a receipt.

use super::job;
use super::lineage;
use entity::states::{AttemptPurpose, NoopReason};
use entity::values::Hash;

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
    is_deep(evidence.block, head, confirmations) && evidence.canonical == Some(evidence.block_hash)
}

/// Whether a block is, itself counted, `depth` blocks deep.
#[must_use]
pub fn is_deep(block: u64, head: u64, depth: u64) -> bool {
    head.checked_sub(block).is_some_and(|above| above.saturating_add(1) >= depth)
}

/// How many more blocks make it `depth` blocks deep, itself counted.
#[must_use]
pub const fn blocks_left(block: u64, head: u64, depth: u64) -> u64 {
    depth.saturating_sub(1).saturating_sub(head.saturating_sub(block)).saturating_add(block.saturating_sub(head))
}

/// What a final receipt means for the nonce and for the job. What mined decides, not what was wanted last.
#[must_use]
pub const fn outcome(purpose: AttemptPurpose, succeeded: bool, noop: Option<NoopReason>) -> (lineage::Event, job::Event) {
    let ended = lineage::Event::ReceiptFinal { succeeded };
    match purpose {
        AttemptPurpose::Call | AttemptPurpose::Replacement => (ended, job::Event::ReceiptFinal { succeeded }),
        AttemptPurpose::Noop => (ended, job::Event::NoopFinal { cancelled: matches!(noop, Some(NoopReason::Cancelled)) }),
    }
}

/// What a majority showed of one of our hashes, where it matters whether there is a receipt at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    Receipt,
    /// A majority of endpoints at or past the block of the count has none.
    Absent,
    /// Errors, lag, disagreement: no ground for anything.
    Unknown,
}

/// Whether a nonce was used up by a transaction that is none of ours: it is below what a majority has counted, and every hash that was
/// ever signed for it is absent. Not one unknown may be among them, and not while many calls fail.
#[must_use]
pub fn is_consumed_by_stranger(nonce: u64, settled: u64, shown: &[Shown], calm: bool) -> bool {
    calm && nonce < settled && shown.iter().all(|one| *one == Shown::Absent)
}

/// What became of an end that a reorganisation may still undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Still there; may be undone.
    Provisional,
    /// TX_REORG_LOOKBACK_BLOCKS deep and still there.
    Final,
    /// A majority shows another block at its height.
    Orphaned,
    Unknown,
}

/// Where an end stands by the canonical hash at its height.
#[must_use]
pub fn standing(evidence: Evidence, head: u64, lookback: u64) -> Standing {
    match evidence.canonical {
        Some(hash) if hash != evidence.block_hash => Standing::Orphaned,
        Some(_) if is_deep(evidence.block, head, lookback) => Standing::Final,
        Some(_) => Standing::Provisional,
        None => Standing::Unknown,
    }
}

/// Where a stranger's use of a nonce stands by the counts at the newest block and TX_REORG_LOOKBACK_BLOCKS below it, and by what a
/// majority shows of our hashes. A receipt of ours, or a count that has gone back, undoes it; only every hash absent confirms it.
#[must_use]
pub fn loss(nonce: u64, latest: Option<u64>, deep: Option<u64>, shown: &[Shown], calm: bool) -> Standing {
    let free_again = latest.is_some_and(|latest| latest <= nonce);
    if calm && (free_again || shown.contains(&Shown::Receipt)) {
        return Standing::Orphaned;
    }
    if deep.is_some_and(|deep| is_consumed_by_stranger(nonce, deep, shown, calm)) { Standing::Final } else { Standing::Provisional }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: Hash = Hash([7; 32]);
    const OTHER: Hash = Hash([8; 32]);

    fn evidence(canonical: Option<Hash>) -> Evidence {
        Evidence { block: 100, block_hash: HASH, canonical }
    }

    #[test]
    fn txr_04_a_receipt_is_not_final_one_confirmation_short_and_is_final_at_the_last() {
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
        assert!(!is_final(evidence(Some(OTHER)), 1_000, 12));
        assert!(!is_final(evidence(None), 1_000, 12));
    }

    #[test]
    fn txr_05_an_end_is_orphaned_only_by_another_hash_and_final_only_at_the_lookback() {
        assert_eq!(standing(evidence(Some(OTHER)), 100, 64), Standing::Orphaned);
        assert_eq!(standing(evidence(None), 1_000, 64), Standing::Unknown);
        assert_eq!(standing(evidence(Some(HASH)), 162, 64), Standing::Provisional);
        assert_eq!(standing(evidence(Some(HASH)), 163, 64), Standing::Final);
    }

    #[test]
    fn jrn_10_a_stranger_is_believed_only_when_every_own_hash_is_absent_at_a_settled_nonce() {
        use Shown::{Absent, Receipt, Unknown};
        assert!(is_consumed_by_stranger(4, 5, &[Absent, Absent], true));
        assert!(is_consumed_by_stranger(4, 5, &[], true));
        for shown in [&[Absent, Unknown][..], &[Receipt], &[Unknown]] {
            assert!(!is_consumed_by_stranger(4, 5, shown, true));
        }
        assert!(!is_consumed_by_stranger(5, 5, &[Absent], true));
        assert!(!is_consumed_by_stranger(4, 5, &[Absent], false));
    }

    #[test]
    fn n_08_what_mines_decides_what_the_job_becomes() {
        let asked = Some(NoopReason::Cancelled);
        assert_eq!(outcome(AttemptPurpose::Call, true, asked).1, job::Event::ReceiptFinal { succeeded: true });
        assert_eq!(outcome(AttemptPurpose::Noop, true, asked).1, job::Event::NoopFinal { cancelled: true });
        assert_eq!(outcome(AttemptPurpose::Noop, true, Some(NoopReason::Refused)).1, job::Event::NoopFinal { cancelled: false });
    }

    #[test]
    fn a_stranger_s_use_is_confirmed_only_deep_and_undone_by_our_receipt_or_a_lower_count() {
        use Shown::{Absent, Receipt, Unknown};
        assert_eq!(loss(4, Some(9), Some(5), &[Absent], true), Standing::Final);
        assert_eq!(loss(4, Some(9), Some(4), &[Absent], true), Standing::Provisional);
        assert_eq!(loss(4, Some(9), Some(5), &[Absent, Unknown], true), Standing::Provisional);
        assert_eq!(loss(4, Some(9), Some(5), &[Absent, Receipt], true), Standing::Orphaned);
        assert_eq!(loss(4, Some(4), None, &[Absent], true), Standing::Orphaned);
        for (latest, shown) in [(Some(4), Absent), (Some(9), Receipt)] {
            assert_eq!(loss(4, latest, Some(5), &[shown], false), Standing::Provisional, "nothing is decided in a storm");
        }
    }

    #[test]
    fn so_many_blocks_are_left_until_a_block_is_deep_and_not_one_less() {
        for block in 95..105 {
            for depth in 0..12 {
                let left = blocks_left(block, 100, depth);
                assert!(is_deep(block, 100 + left, depth), "{block} {depth}: {left}");
                assert!(left == 0 || !is_deep(block, 100 + left - 1, depth), "{block} {depth}: {left}");
            }
        }
    }
}
