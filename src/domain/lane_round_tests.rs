use super::*;
use entity::states::{LineageState, NoopReason};
use entity::values::Wei;
use uuid::Uuid;

const OURS: Hash = Hash([1; 32]);
const DEARER: Hash = Hash([2; 32]);
const BLOCK: Hash = Hash([9; 32]);
const CALM: At = At { head: 110, depth: 3, calm: true };
const COUNTS: Counts = Counts { settled: 5, beyond: Some(5) };
const ATTEMPTS: [(Hash, AttemptPurpose); 2] = [(OURS, AttemptPurpose::Call), (DEARER, AttemptPurpose::Noop)];

fn open(attempts: &[(Hash, AttemptPurpose)]) -> OpenNonce<'_> {
    let second = Duration::from_secs(1);
    let unmined = Unmined {
        state: LineageState::Broadcast,
        sends: 1,
        age: second * 600,
        since_sent: Some(second * 600),
        since_priced: Some(second * 600),
        priced_block: Some(1),
        tried: Some(fees::Price { max_fee_per_gas: Wei::from(20), max_priority_fee_per_gas: Wei::from(2) }),
        replacements: 0,
        noops: 0,
        noop: Some(NoopReason::Cancelled),
        answer: Some(Class::Ok),
    };
    OpenNonce { lineage: LineageId(Uuid::nil()), nonce: 4, attempts, capped: false, unmined }
}

fn mined(block_number: u64) -> Decision<Option<Facts>> {
    Decision::Agreed(Some(Facts { block_number, block_hash: BLOCK, succeeded: true, gas_used: 1 }), 2)
}

fn judged(told: [(Hash, Decision<Option<Facts>>); 2], at: At) -> End {
    end(&open(&ATTEMPTS), COUNTS, &HashMap::from(told), &HashMap::from([(108, BLOCK)]), at)
}

#[test]
fn the_attempt_that_mined_decides_and_only_in_the_canonical_block_at_its_depth() {
    let absent = Decision::Agreed(None, 3);
    let End::Receipt { hash, purpose, job, .. } = judged([(OURS, absent), (DEARER, mined(108))], CALM) else { panic!("no end") };
    assert_eq!((hash, purpose, job), (DEARER, AttemptPurpose::Noop, job::Event::NoopFinal { cancelled: true }));
    assert_eq!(judged([(OURS, absent), (DEARER, mined(108))], At { depth: 4, ..CALM }), End::NotYet);
    assert_eq!(judged([(OURS, mined(107)), (DEARER, absent)], CALM), End::NotYet, "nobody shows the block at this height");
}

#[test]
fn a_stranger_needs_every_hash_absent_and_calm() {
    let absent = Decision::Agreed(None, 2);
    assert_eq!(judged([(OURS, absent), (DEARER, absent)], CALM), End::Stranger);
    assert_eq!(judged([(OURS, absent), (DEARER, absent)], At { calm: false, ..CALM }), End::Unproven);
    assert_eq!(judged([(OURS, absent), (DEARER, Decision::Insufficient)], CALM), End::Unproven);
    let one_unasked = HashMap::from([(OURS, absent)]);
    assert_eq!(end(&open(&ATTEMPTS), COUNTS, &one_unasked, &HashMap::<u64, Hash>::new(), CALM), End::Unproven);
    assert_eq!(end(&open(&[]), Counts { beyond: None, ..COUNTS }, &one_unasked, &HashMap::<u64, Hash>::new(), CALM), End::Stranger);
}

#[test]
fn jrn_10_a_signed_nonce_goes_to_a_stranger_only_by_a_count_that_nothing_undoes() {
    let (absent, nowhere) = (Decision::Agreed(None, 2), HashMap::<u64, Hash>::new());
    let told = HashMap::from([(OURS, absent), (DEARER, absent)]);
    assert!(needs_beyond(&open(&ATTEMPTS), &told) && !needs_beyond(&open(&[]), &told));
    assert!(!needs_beyond(&open(&ATTEMPTS), &HashMap::from([(OURS, absent), (DEARER, mined(108))])));
    for beyond in [None, Some(4)] {
        assert_eq!(end(&open(&ATTEMPTS), Counts { beyond, ..COUNTS }, &told, &nowhere, CALM), End::NotYet);
    }
}

#[test]
fn txr_05_what_was_final_and_is_undone_stops_everything_else() {
    let block = |number, finalized| EndBlock { number, hash: BLOCK, finalized };
    let blocks = [block(90, true), block(100, false), block(101, false), block(109, false)];
    let other = Hash([8; 32]);
    let canonical = HashMap::from([(90, BLOCK), (100, BLOCK), (101, other)]);
    let at = At { head: 110, depth: 10, calm: true };
    let found = recheck(&blocks, &canonical, at);
    assert_eq!(found, Recheck { broken: None, orphaned: vec![block(101, false)], deep: vec![block(100, false)], reorganised: true });
    let hasty = recheck(&blocks, &canonical, At { calm: false, ..at });
    assert!(hasty.orphaned.is_empty() && hasty.reorganised, "nothing is undone while many calls fail");
    let undone = HashMap::from([(90, other), (100, BLOCK), (101, other)]);
    let broken = recheck(&blocks, &undone, at);
    assert_eq!((broken.broken, broken.orphaned, broken.deep), (Some(block(90, true)), Vec::new(), Vec::new()));
}

#[test]
fn what_is_frozen_sends_and_never_prices() {
    let rules = Rules {
        stuck: Duration::from_secs(60),
        patience: Duration::from_secs(5),
        bump_bps: 1_250,
        floor: Wei::from(1),
        limit: Wei::from(1_000),
        noop_limit: Wei::from(1_000),
        max_replacements: 3,
    };
    let market = fees::Quote { base_fee: Wei::from(10), priority_fee: Wei::from(1) };
    let look = Look { state: LaneState::Active, latest: Some(4), head_for: None, block: 110, market, calm: true };
    assert_eq!(wanted(&[open(&ATTEMPTS[..1])], &look, &rules).sign.len(), 1, "a no-op is wanted");
    assert_eq!(wanted(&[open(&ATTEMPTS[..1])], &Look { state: LaneState::Frozen, ..look }, &rules), Wanted::default());
    assert_eq!(wanted(&[open(&ATTEMPTS[..1])], &Look { latest: Some(5), ..look }, &rules), Wanted::default(), "the chain has taken it");
    let mut settled = open(&ATTEMPTS[..1]);
    settled.unmined.noop = None;
    let frozen = Look { state: LaneState::Frozen, ..look };
    assert_eq!(wanted(&[settled], &frozen, &rules).send, vec![settled.lineage]);
    // Where a running lane would offer more, the same bytes go again.
    let dear = Look { market: fees::Quote { base_fee: Wei::from(50), ..market }, ..look };
    assert_eq!(wanted(&[settled], &dear, &rules).sign.len(), 1);
    assert_eq!(wanted(&[settled], &Look { state: LaneState::Frozen, ..dear }, &rules).send, vec![settled.lineage]);
}

#[test]
fn what_the_node_had_no_room_for_goes_again_inside_the_window_only() {
    let refused = |nonce, answer| {
        let mut one = OpenNonce { nonce, ..open(&ATTEMPTS) };
        one.unmined.answer = Some(answer);
        held_back(&one, 4, 3, Duration::from_secs(5))
    };
    assert_eq!(refused(4, Class::AccountQueueCap), None, "the head goes by the rules");
    assert_eq!(refused(5, Class::Ok), None);
    assert_eq!((refused(6, Class::AccountQueueCap), refused(7, Class::AccountQueueCap)), (Some(Step::Send), Some(Step::Wait)));
}

#[test]
fn a_gap_is_what_the_chain_waits_for_and_nobody_owns() {
    let (long, patience) = (Some(Duration::from_secs(60)), Duration::from_secs(60));
    assert_eq!(gaps(&[7, 8], 5, 9, long, patience), [5, 6]);
    assert_eq!(gaps(&[6, 8], 5, 9, long, patience), [5, 7], "all of them at once");
    assert!(gaps(&[5, 7], 5, 8, long, patience).is_empty(), "the head has an owner");
    assert!(gaps(&[], 5, 5, long, patience).is_empty() && gaps(&[], 6, 5, long, patience).is_empty());
    assert!(gaps(&[], 5, 6, Some(Duration::from_secs(59)), patience).is_empty() && gaps(&[], 5, 6, None, patience).is_empty());
    assert!(gaps(&[], 0, 500, long, patience).is_empty(), "that is another chain");
    assert_eq!(gaps(&[], 0, 64, long, patience).len(), 64);
}
