//! Turns the answer of one endpoint into its vote. Owns who may speak on which question: an error, the null of an endpoint that was not
//! there yet and an answer to something else abstain. Never asks anybody and never counts (that is `quorum`). Called by `chain` and by
//! whoever plays a chain, so that both follow the same rules.

use super::quorum::{Decision, Vote, decide};
use entity::values::{Hash, Wei};
use sha2::{Digest, Sha256};

/// Where an endpoint stood when it was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Its own newest block, as it was known before the question left. None: it has shown none.
    pub before: Option<u64>,
    /// Its own newest block as told together with the answer, where it was asked for. Another node may answer behind the same name.
    pub with_answer: Option<u64>,
    /// Too far behind the majority.
    pub lags: bool,
}

impl Standing {
    /// Whether it had seen this block when it was asked.
    #[must_use]
    pub fn is_past(&self, block: u64) -> bool {
        !self.lags && self.before.is_some_and(|head| head >= block) && self.with_answer.is_none_or(|head| head >= block)
    }
}

/// A receipt as an endpoint shows it; clients leave parts of it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    pub hash: Hash,
    pub block_number: Option<u64>,
    pub block_hash: Option<Hash>,
    pub status: Option<u64>,
    pub gas_used: u64,
    pub price: Option<Wei>,
}

/// What honest endpoints agree on about a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    pub block_number: u64,
    pub block_hash: Hash,
    pub succeeded: bool,
    pub gas_used: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub facts: Facts,
    /// Some clients leave it out, so it does not decide.
    pub price: Option<Wei>,
}

/// The vote on the receipt of `hash`. `answer` is None for an error. That there is none counts only from an endpoint that was at `since`
/// or past it before it was asked.
#[must_use]
pub fn receipt(hash: Hash, answer: Option<Option<Shown>>, standing: Standing, since: u64) -> Vote<Option<Seen>> {
    match answer {
        Some(None) if standing.is_past(since) => Vote::Says(None),
        Some(Some(shown)) if shown.hash == hash => match (shown.block_number, shown.block_hash, shown.status) {
            (Some(block_number), Some(block_hash), Some(status @ 0..=1)) => Vote::Says(Some(Seen {
                facts: Facts { block_number, block_hash, succeeded: status == 1, gas_used: shown.gas_used },
                price: shown.price,
            })),
            _ => Vote::Abstains,
        },
        _ => Vote::Abstains,
    }
}

/// The receipt that a majority shows. The price is told only where a majority tells the same.
#[must_use]
pub fn decide_receipt(configured: usize, votes: &[Vote<Option<Seen>>]) -> Decision<Option<Seen>> {
    let facts: Vec<Vote<Option<Facts>>> = votes.iter().map(|vote| vote.map(|seen| seen.map(|seen| seen.facts))).collect();
    decide(configured, &facts).map(|agreed| {
        agreed.map(|facts| {
            let of_agreeing = |vote: &Vote<Option<Seen>>| match vote {
                Vote::Says(Some(seen)) if seen.facts == facts => Vote::Says(seen.price),
                _ => Vote::Abstains,
            };
            let prices: Vec<_> = votes.iter().map(of_agreeing).collect();
            Seen { facts, price: decide(configured, &prices).agreed().flatten() }
        })
    })
}

/// The vote on how many nonces an account has used up at the block `at` (0: at the newest). Some clients answer for a block they do not
/// have, so only the head that came with the answer counts.
#[must_use]
pub fn consumed_nonce(answer: Option<u64>, head: Option<u64>, at: u64) -> Vote<u64> {
    match answer {
        Some(nonce) if head.is_some_and(|head| head >= at) => Vote::Says(nonce),
        _ => Vote::Abstains,
    }
}

/// The vote on the canonical hash at a height. Only who is past the block can know that there is none.
#[must_use]
pub fn block_hash(number: u64, answer: Option<Option<(u64, Hash)>>, head: Option<u64>) -> Vote<Option<Hash>> {
    match answer {
        Some(Some((shown, hash))) if shown == number => Vote::Says(Some(hash)),
        Some(None) if head.is_some_and(|head| head >= number) => Vote::Says(None),
        _ => Vote::Abstains,
    }
}

/// What one endpoint said about a receipt, short enough to be kept with a proof: equal words are equal facts.
#[must_use]
pub fn digest(hash: Hash, vote: &Vote<Option<Seen>>) -> String {
    match vote {
        Vote::Abstains => "abstains".to_owned(),
        Vote::Says(None) => "absent".to_owned(),
        Vote::Says(Some(Seen { facts, .. })) => {
            let status = u8::from(facts.succeeded);
            let text = format!("{hash}|{}|{}|{status}|{}", facts.block_number, facts.block_hash, facts.gas_used);
            hex::encode(&Sha256::digest(text.as_bytes())[..8])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Hash = Hash([7; 32]);
    const THERE: Standing = Standing { before: Some(100), with_answer: Some(100), lags: false };

    fn shown() -> Shown {
        Shown {
            hash: OURS,
            block_number: Some(90),
            block_hash: Some(Hash([9; 32])),
            status: Some(1),
            gas_used: 21_000,
            price: Some(Wei::from(5)),
        }
    }

    #[test]
    fn a_null_counts_only_from_who_was_past_the_block_before_it_was_asked() {
        let absent = |standing, since| receipt(OURS, Some(None), standing, since);
        assert_eq!(absent(THERE, 100), Vote::Says(None));
        assert_eq!(absent(THERE, 101), Vote::Abstains);
        assert_eq!(absent(Standing { before: None, ..THERE }, 0), Vote::Abstains, "who has shown no block knows nothing");
        assert_eq!(absent(Standing { before: Some(99), ..THERE }, 100), Vote::Abstains, "it has come there only since");
        assert_eq!(absent(Standing { with_answer: Some(99), ..THERE }, 100), Vote::Abstains, "another node behind the same name");
        assert_eq!(absent(Standing { with_answer: None, ..THERE }, 100), Vote::Says(None));
        assert_eq!(absent(Standing { lags: true, ..THERE }, 1), Vote::Abstains);
        assert_eq!(receipt(OURS, None, THERE, 1), Vote::Abstains, "an error is no null");
    }

    #[test]
    fn a_receipt_counts_from_anybody_if_it_is_whole_and_of_this_hash() {
        let behind = Standing { before: None, with_answer: None, lags: true };
        assert!(matches!(receipt(OURS, Some(Some(shown())), behind, 1_000), Vote::Says(Some(_))));
        for broken in [
            Shown { hash: Hash([8; 32]), ..shown() },
            Shown { block_number: None, ..shown() },
            Shown { block_hash: None, ..shown() },
            Shown { status: None, ..shown() },
            Shown { status: Some(2), ..shown() },
        ] {
            assert_eq!(receipt(OURS, Some(Some(broken)), THERE, 1), Vote::Abstains, "{broken:?}");
        }
    }

    #[test]
    fn the_price_is_told_only_where_a_majority_tells_the_same() {
        let vote = |price| receipt(OURS, Some(Some(Shown { price, ..shown() })), THERE, 1);
        let (five, six) = (Some(Wei::from(5)), Some(Wei::from(6)));
        for (prices, expected) in [([five, five, six], five), ([five, six, None], None), ([None, None, five], None)] {
            let Decision::Agreed(Some(seen), 3) = decide_receipt(3, &prices.map(vote)) else { panic!("no receipt") };
            assert_eq!(seen.price, expected, "{prices:?}");
        }
    }

    #[test]
    fn a_nonce_and_a_block_count_from_who_has_the_block() {
        assert_eq!(consumed_nonce(Some(7), Some(90), 90), Vote::Says(7));
        assert_eq!(consumed_nonce(Some(7), Some(89), 90), Vote::Abstains);
        assert_eq!(consumed_nonce(Some(7), None, 0), Vote::Abstains);
        assert_eq!(consumed_nonce(None, Some(90), 0), Vote::Abstains);
        assert_eq!(block_hash(90, Some(Some((90, OURS))), None), Vote::Says(Some(OURS)));
        assert_eq!(block_hash(90, Some(Some((91, OURS))), Some(100)), Vote::Abstains, "a block of another height");
        assert_eq!(block_hash(90, Some(None), Some(90)), Vote::Says(None));
        assert_eq!(block_hash(90, Some(None), Some(89)), Vote::Abstains);
        assert_eq!(block_hash(90, None, Some(100)), Vote::Abstains);
    }

    #[test]
    fn a_digest_is_the_same_for_the_same_facts_and_for_nothing_else() {
        let of = |shown| digest(OURS, &receipt(OURS, Some(Some(shown)), THERE, 1));
        assert_eq!(of(shown()).len(), 16);
        assert_eq!(of(shown()), of(Shown { price: None, ..shown() }), "the price is not among the facts");
        for other in [
            Shown { block_number: Some(91), ..shown() },
            Shown { block_hash: Some(OURS), ..shown() },
            Shown { status: Some(0), ..shown() },
            Shown { gas_used: 1, ..shown() },
        ] {
            assert_ne!(of(shown()), of(other), "{other:?}");
        }
        assert_eq!(digest(OURS, &Vote::Says(None)), "absent");
        assert_eq!(digest(OURS, &Vote::Abstains), "abstains");
    }
}
