//! What the answers of several endpoints to the same bytes mean together. Owns the order in which they win; sends nothing.
//! Called by `chain` after each answer, and by whoever plays a chain.

use super::rpc_verdict::{Class, Verdict, verdict};

/// The place of the answer that counts; the endpoint of writes is the first. None where nobody has answered.
///
/// An acceptance beats everything, then comes doubt: the bytes may be in a pool. That they can be accepted nowhere is said only where all
/// who were asked refuse them for themselves. What was never sent says nothing while another was asked.
#[must_use]
pub fn decisive(answers: &[Option<Class>]) -> Option<usize> {
    let of = |wanted: &dyn Fn(Class) -> bool| answers.iter().position(|answer| answer.is_some_and(wanted));
    let is = |wanted: Verdict| move |class: Class| verdict(class) == wanted;
    of(&is(Verdict::Accepted))
        .or_else(|| of(&is(Verdict::Ambiguous)))
        .or_else(|| of(&|class| class != Class::NotSent && !is_stateless(class)))
        .or_else(|| of(&|class| class != Class::NotSent))
        .or_else(|| of(&|_| true))
}

fn is_stateless(class: Class) -> bool {
    verdict(class) == Verdict::Refused { stateless: true }
}

/// The places that say that these bytes cannot be accepted anywhere, while somebody has accepted them.
pub fn contradictions(answers: &[Option<Class>]) -> impl Iterator<Item = (usize, Class)> {
    let accepted = answers.iter().flatten().any(|class| verdict(*class) == Verdict::Accepted);
    let refused = answers.iter().enumerate().filter_map(|(place, answer)| Some((place, (*answer)?)));
    refused.filter(move |(_, class)| accepted && is_stateless(*class))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_acceptance_beats_all_and_doubt_beats_every_refusal() {
        use Class::{AlreadyKnown, InvalidSignature, NoAnswer, NonceTooLow, NotSent, Ok, Oversized, TxpoolFull, Unknown};
        for (answers, expected) in [
            (vec![Some(InvalidSignature), Some(AlreadyKnown)], Some(1)),
            (vec![Some(NoAnswer), Some(Ok)], Some(1)),
            (vec![Some(Oversized), Some(Unknown), Some(NonceTooLow)], Some(1)),
            (vec![Some(InvalidSignature), Some(NonceTooLow)], Some(1)),
            (vec![Some(TxpoolFull), Some(NonceTooLow)], Some(0)),
            (vec![Some(InvalidSignature), Some(Oversized)], Some(0)),
            (vec![Some(NotSent), Some(Oversized)], Some(1)),
            (vec![Some(NotSent), None], Some(0)),
            (vec![None, None], None),
        ] {
            assert_eq!(decisive(&answers), expected, "{answers:?}");
        }
    }

    #[test]
    fn a_contradiction_is_a_refusal_for_good_of_what_another_took() {
        use Class::{InvalidSignature, NonceTooLow, Ok};
        let found = |answers: &[Option<Class>]| contradictions(answers).collect::<Vec<_>>();
        assert_eq!(found(&[Some(Ok), Some(InvalidSignature), Some(NonceTooLow), None]), [(1, InvalidSignature)]);
        assert_eq!(found(&[Some(InvalidSignature), Some(NonceTooLow)]), []);
    }

    proptest! {
        #[test]
        fn never_accepted_is_said_only_where_all_who_were_asked_refuse_for_good(places in prop::collection::vec(0..Class::ALL.len(), 1..6)) {
            let answers: Vec<_> = places.iter().map(|place| Some(Class::ALL[*place])).collect();
            let Some(place) = decisive(&answers) else { panic!("all have answered") };
            if answers[place].is_some_and(is_stateless) {
                prop_assert!(answers.iter().flatten().all(|class| is_stateless(*class) || *class == Class::NotSent));
            }
        }
    }
}
