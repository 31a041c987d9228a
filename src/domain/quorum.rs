//! What a majority of the configured endpoints says. Owns the counting rule; never asks anybody and never reads a clock.
//! Called by `chain` with the votes that `ballot` makes of its answers.

/// What one endpoint said about one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote<T> {
    Says(T),
    Abstains,
}

impl<T: Copy> Vote<T> {
    #[must_use]
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Vote<U> {
        match self {
            Self::Says(value) => Vote::Says(change(value)),
            Self::Abstains => Vote::Abstains,
        }
    }
}

/// What the endpoints together said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision<T> {
    /// A majority of the configured endpoints said this; how many of them.
    Agreed(T, usize),
    /// A majority answered, but no majority said the same.
    Split,
    /// Too few answered for a majority.
    Insufficient,
}

impl<T> Decision<T> {
    /// The agreed value; None where nothing may be concluded.
    #[must_use]
    pub fn agreed(self) -> Option<T> {
        match self {
            Self::Agreed(value, _) => Some(value),
            Self::Split | Self::Insufficient => None,
        }
    }

    #[must_use]
    pub const fn is_agreed(&self) -> bool {
        matches!(self, Self::Agreed(..))
    }

    #[must_use]
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Decision<U> {
        match self {
            Self::Agreed(value, count) => Decision::Agreed(change(value), count),
            Self::Split => Decision::Split,
            Self::Insufficient => Decision::Insufficient,
        }
    }
}

/// How many endpoints are a majority. Counted over the configured ones, so an endpoint that is away makes agreement harder, never easier.
#[must_use]
pub const fn majority(configured: usize) -> usize {
    configured / 2 + 1
}

/// The value that a majority of the configured endpoints said.
#[must_use]
pub fn decide<T: Eq + Clone>(configured: usize, votes: &[Vote<T>]) -> Decision<T> {
    // More votes than endpoints would be a fault of the caller; it must not make a majority cheaper.
    let needed = majority(configured.max(votes.len()));
    let said = || votes.iter().filter_map(|vote| if let Vote::Says(value) = vote { Some(value) } else { None });
    for candidate in said() {
        let count = said().filter(|value| *value == candidate).count();
        if count >= needed {
            return Decision::Agreed(candidate.clone(), count);
        }
    }
    if said().count() >= needed { Decision::Split } else { Decision::Insufficient }
}

/// The highest value that a majority of the configured endpoints has reached: for counters that only grow, such as a head or a
/// consumed nonce, where honest endpoints differ by their lag. The count is how many have reached it.
#[must_use]
pub fn reached(configured: usize, votes: &[Vote<u64>]) -> Decision<u64> {
    let needed = majority(configured.max(votes.len()));
    let mut said: Vec<u64> = votes.iter().filter_map(|vote| if let Vote::Says(value) = vote { Some(*value) } else { None }).collect();
    said.sort_unstable_by(|a, b| b.cmp(a));
    match said.get(needed - 1) {
        Some(value) => Decision::Agreed(*value, said.iter().filter(|other| *other >= value).count()),
        None => Decision::Insufficient,
    }
}

#[cfg(test)]
mod tests {
    use super::Vote::{Abstains, Says};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn three_different_answers_are_no_decision() {
        assert_eq!(decide(3, &[Says(1), Says(2), Says(3)]), Decision::Split);
        assert_eq!(decide(3, &[Says(Some(1)), Says(Some(2)), Says(None)]), Decision::Split);
    }

    #[test]
    fn an_abstention_counts_for_nobody() {
        assert_eq!(decide(3, &[Says(1), Abstains, Abstains]), Decision::Insufficient);
        assert_eq!(decide(3, &[Says(1), Abstains, Says(1)]), Decision::Agreed(1, 2));
        assert_eq!(decide(3, &[Says(1), Abstains, Says(2)]), Decision::Split);
        assert_eq!(decide::<u8>(3, &[]), Decision::Insufficient);
        assert_eq!(decide::<u8>(0, &[]), Decision::Insufficient);
    }

    #[test]
    fn the_only_endpoint_is_the_whole_quorum_and_two_must_agree() {
        assert_eq!(decide(1, &[Says(7)]), Decision::Agreed(7, 1));
        assert_eq!(decide(2, &[Says(7), Abstains]), Decision::Insufficient);
        assert_eq!(decide(2, &[Says(7), Says(7)]), Decision::Agreed(7, 2));
    }

    #[test]
    fn votes_beyond_the_configured_endpoints_do_not_make_a_majority_cheaper() {
        assert_eq!(decide(1, &[Says(1), Says(2), Says(3)]), Decision::Split);
        assert_eq!(reached(1, &[Says(9), Abstains, Abstains]), Decision::Insufficient);
    }

    #[test]
    fn a_counter_is_believed_up_to_what_a_majority_has_reached() {
        assert_eq!(reached(3, &[Says(10), Says(8), Says(9)]), Decision::Agreed(9, 2));
        assert_eq!(reached(3, &[Says(10), Says(10), Says(4)]), Decision::Agreed(10, 2));
        assert_eq!(reached(3, &[Says(10), Abstains, Says(4)]), Decision::Agreed(4, 2));
        assert_eq!(reached(3, &[Says(10), Abstains, Abstains]), Decision::Insufficient);
    }

    fn vote() -> impl Strategy<Value = Vote<u64>> {
        prop_oneof![3 => (0_u64..5).prop_map(Says), 1 => Just(Abstains)]
    }

    proptest! {
        #[test]
        fn one_liar_of_three_never_changes_what_two_honest_endpoints_say(honest in 0_u64..5, lie in vote(), place in 0_usize..3) {
            let mut votes = vec![Says(honest); 3];
            votes[place] = lie;
            prop_assert_eq!(decide(3, &votes).agreed(), Some(honest));
            prop_assert_eq!(reached(3, &votes).agreed(), Some(honest));
        }

        #[test]
        fn a_liar_cannot_move_a_counter_outside_what_the_honest_saw(a in 0_u64..1000, b in 0_u64..1000, lie in any::<u64>()) {
            let value = reached(3, &[Says(a), Says(lie), Says(b)]).agreed();
            prop_assert!(value.is_some_and(|value| a.min(b) <= value && value <= a.max(b)));
        }

        #[test]
        fn what_is_agreed_was_said_by_a_majority(configured in 1_usize..8, votes in prop::collection::vec(vote(), 0..8)) {
            if let Decision::Agreed(value, count) = decide(configured, &votes) {
                prop_assert_eq!(votes.iter().filter(|vote| **vote == Says(value)).count(), count);
                prop_assert!(count >= majority(configured));
            }
        }

        #[test]
        fn the_order_of_the_votes_does_not_matter(mut votes in prop::collection::vec(vote(), 0..7), seed in any::<u64>()) {
            let before = (decide(7, &votes), reached(7, &votes));
            let len = votes.len().max(1);
            votes.rotate_left(usize::try_from(seed).unwrap_or(0) % len);
            votes.reverse();
            prop_assert_eq!((decide(7, &votes), reached(7, &votes)), before);
        }

        #[test]
        fn one_more_abstention_never_creates_an_agreement(votes in prop::collection::vec(vote(), 3)) {
            for place in 0..votes.len() {
                let mut fewer = votes.clone();
                fewer[place] = Abstains;
                if decide(3, &fewer).is_agreed() {
                    prop_assert_eq!(decide(3, &fewer).agreed(), decide(3, &votes).agreed());
                }
            }
        }
    }
}
