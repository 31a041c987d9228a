//! The machines under any order of events: what they may never do, whatever the world does to them.

use entity::states::{JobState, LineageState};
use holdfast::domain::{backoff, job, lineage, replacement, settlement};
use proptest::prelude::*;
use std::time::Duration;

fn job_events() -> impl Strategy<Value = Vec<job::Event>> {
    prop::collection::vec(prop::sample::select(job::Event::ALL.to_vec()), 0..60)
}

fn lineage_events() -> impl Strategy<Value = Vec<lineage::Event>> {
    prop::collection::vec(prop::sample::select(lineage::Event::ALL.to_vec()), 0..60)
}

proptest! {
    #[test]
    fn a_job_ends_at_most_once_until_its_end_is_undone(events in job_events()) {
        let mut state = JobState::Queued;
        let mut ended = None;
        for event in events {
            match job::next(state, event) {
                Ok(transition) => {
                    let undone = matches!(event, job::Event::Orphaned | job::Event::Replayed);
                    prop_assert!(ended.is_none() || undone, "{ended:?} took {event:?}");
                    state = transition.to;
                    ended = state.is_final().then_some(state);
                }
                Err(illegal) => prop_assert_eq!((illegal.from, illegal.event), (state, event)),
            }
        }
        prop_assert_eq!(ended.is_some(), state.is_final());
    }

    #[test]
    fn an_open_job_always_has_a_delivery_or_a_transaction_to_wait_for(events in job_events()) {
        let (mut state, mut deliver) = (JobState::Queued, true);
        for event in events {
            if let Ok(transition) = job::next(state, event) {
                (state, deliver) = (transition.to, transition.deliver);
            }
            prop_assert!(state.is_final() || deliver || state == JobState::Submitted, "{state} after {event:?} is forgotten");
        }
    }

    #[test]
    fn only_the_chain_completes_or_reverts_a_job(events in job_events()) {
        let mut state = JobState::Queued;
        for event in events {
            let Ok(transition) = job::next(state, event) else { continue };
            let by_chain = matches!(event, job::Event::ReceiptFinal { .. });
            prop_assert_eq!(matches!(transition.to, JobState::Completed | JobState::Reverted), by_chain);
            state = transition.to;
        }
    }

    #[test]
    fn a_nonce_that_ever_had_bytes_is_never_given_back(events in lineage_events()) {
        let (mut state, mut signed) = (LineageState::Allocated, false);
        for event in events {
            // Which of the two it is, the statement that undoes a loss reads from the attempts.
            if (event == lineage::Event::Orphaned && !signed) || (event == lineage::Event::OrphanedUnsigned && signed) {
                continue;
            }
            let Ok(transition) = lineage::next(state, event) else { continue };
            signed |= event == lineage::Event::Journaled;
            state = transition.to;
            prop_assert!(!(signed && state == LineageState::Abandoned), "{event:?}");
            let unsigned = matches!(state, LineageState::Allocated | LineageState::Abandoned | LineageState::Superseded);
            prop_assert!(signed || unsigned, "{state} without bytes");
        }
    }

    #[test]
    fn a_lineage_that_ended_takes_nothing_but_a_reorganisation(events in lineage_events()) {
        let mut state = LineageState::Allocated;
        for event in events {
            let was_final = state.is_final();
            if let Ok(transition) = lineage::next(state, event) {
                let undone = matches!(event, lineage::Event::Orphaned | lineage::Event::OrphanedUnsigned);
                prop_assert!(!was_final || undone, "{event:?}");
                state = transition.to;
            }
        }
    }

    #[test]
    fn waits_never_shrink_and_never_pass_their_cap(attempt in 1..10_000_i32) {
        prop_assert!(backoff::ceiling_ms(attempt) <= backoff::ceiling_ms(attempt + 1));
        prop_assert!((backoff::BASE_MS..=backoff::CAP_MS).contains(&backoff::ceiling_ms(attempt)));
    }

    #[test]
    fn a_receipt_once_final_stays_final_while_the_chain_grows(block in 0..1_000_u64, head in 0..2_000_u64, more in 0..1_000_u64, confirmations in 1..64_u64) {
        let hash = entity::values::Hash([1; 32]);
        let evidence = settlement::Evidence { block, block_hash: hash, canonical: Some(hash) };
        if settlement::is_final(evidence, head, confirmations) {
            prop_assert!(settlement::is_final(evidence, head + more, confirmations));
            prop_assert!(head >= block);
        }
    }

    #[test]
    fn what_is_due_to_be_sent_again_stays_due(sends in 0..100_u32, seconds in 0..10_000_u64, more in 0..10_000_u64, patience in 1..60_u64) {
        let due = |seconds| replacement::is_due_again(LineageState::Broadcast, Duration::from_secs(seconds), Some(Duration::from_secs(seconds)), sends, Duration::from_secs(patience));
        prop_assert!(!due(seconds) || due(seconds + more));
    }
}
