use super::super::fees::{Price, Quote};
use super::super::replacement::Unmined;
use super::*;
use entity::ids::LineageId;
use entity::states::{LineageState, NoopReason};
use entity::values::{Hash, Wei};
use proptest::prelude::*;
use uuid::Uuid;

const GWEI: u64 = 1_000_000_000;
const SECOND: Duration = Duration::from_secs(1);
const ATTEMPTS: [(Hash, AttemptPurpose); 1] = [(Hash([1; 32]), AttemptPurpose::Call)];

fn rules() -> Rules {
    Rules {
        stuck: SECOND * 60,
        patience: SECOND * 5,
        bump_bps: 1_250,
        floor: Wei::from(GWEI),
        limit: Wei::from(500 * GWEI),
        noop_limit: Wei::from(1_000 * GWEI),
        max_replacements: 3,
    }
}

fn price(max: u64, tip: u64) -> Price {
    Price { max_fee_per_gas: Wei::from(max * GWEI), max_priority_fee_per_gas: Wei::from(tip * GWEI) }
}

/// The head of its lane, sent and priced ten seconds ago.
fn head() -> OpenNonce<'static> {
    let unmined = Unmined {
        state: LineageState::Broadcast,
        sends: 4,
        age: SECOND * 10,
        since_sent: Some(SECOND * 10),
        since_priced: Some(SECOND * 10),
        priced_block: Some(90),
        tried: Some(price(20, 2)),
        replacements: 0,
        noops: 0,
        noop: None,
        answer: Some(Class::Ok),
    };
    OpenNonce { lineage: LineageId(Uuid::nil()), nonce: 5, attempts: &ATTEMPTS, capped: false, unmined }
}

fn look() -> Look {
    Look {
        state: LaneState::Active,
        latest: Some(5),
        head_for: Some(SECOND * 30),
        block: 100,
        market: Quote { base_fee: Wei::from(8 * GWEI), priority_fee: Wei::from(GWEI) },
        calm: true,
    }
}

fn ahead(one: &OpenNonce<'_>, look: &Look) -> Outlook {
    outlook(one, look, &|_| Ok(rules()))
}

fn whole_seconds(planned: Planned) -> (Act, u64) {
    (planned.act, planned.after.as_secs_f64().round() as u64)
}

fn dearer() -> Act {
    Act::Sign {
        purpose: AttemptPurpose::Replacement,
        price: Price { max_fee_per_gas: Wei::from(22_500_000_001), max_priority_fee_per_gas: Wei::from(2_250_000_001) },
    }
}

#[test]
fn the_head_is_sent_again_first_or_priced_first_whatever_is_due_earlier() {
    let far = ahead(&head(), &look());
    assert_eq!(whole_seconds(far.next), (dearer(), 50), "80 s after the last send comes later");
    assert_eq!((far.then, far.capped), (None, None));
    let mut early = head();
    early.unmined.sends = 1;
    let near = ahead(&early, &look());
    assert_eq!(whole_seconds(near.next), (Act::Send, 0), "twice TX_RECONCILE_SECONDS are over");
    assert_eq!(near.then.map(whole_seconds), Some((dearer(), 50)));
}

#[test]
fn a_price_that_is_due_waits_for_the_next_block_after_the_last_one() {
    let mut one = head();
    one.unmined.since_priced = Some(SECOND * 61);
    let waited = Look { head_for: Some(SECOND * 61), ..look() };
    let now = ahead(&one, &waited);
    assert_eq!((now.next.act, now.next.after, now.next.needs_block), (dearer(), Duration::ZERO, false));
    one.unmined.priced_block = Some(100);
    let blocked = ahead(&one, &waited);
    assert_eq!((blocked.next.act, blocked.next.after, blocked.next.needs_block), (dearer(), Duration::ZERO, true));
}

#[test]
fn a_nonce_behind_the_head_has_no_price_of_its_own_unless_the_market_is_above_it() {
    let behind = OpenNonce { nonce: 6, ..head() };
    let calm = ahead(&behind, &look());
    assert_eq!((whole_seconds(calm.next), calm.then), ((Act::Send, 70), None));
    let dear = Look { market: Quote { base_fee: Wei::from(21 * GWEI), priority_fee: Wei::from(GWEI) }, ..look() };
    let risen = ahead(&behind, &dear);
    assert!(matches!(whole_seconds(risen.next), (Act::Sign { .. }, 50)), "{risen:?}");
}

#[test]
fn at_the_limit_the_bytes_go_again_slowly_and_the_limit_is_named() {
    let mut one = head();
    one.unmined.since_priced = Some(SECOND * 100);
    one.unmined.tried = Some(price(490, 2));
    let waited = Look { head_for: Some(SECOND * 100), ..look() };
    let capped = ahead(&one, &waited);
    assert_eq!((whole_seconds(capped.next), capped.capped), ((Act::SendCapped, 70), Some(Limit::Price)));
    assert_eq!(attempts_left(&one, &waited, &rules()), 0);
    one.unmined.tried = Some(price(20, 2));
    one.unmined.replacements = 3;
    assert_eq!(ahead(&one, &waited).capped, Some(Limit::Count));
    one.unmined.replacements = 1;
    assert_eq!((ahead(&one, &waited).capped, attempts_left(&one, &waited, &rules())), (None, 2));
    let soon = Outlook { capped: None, ..ahead(&OpenNonce { unmined: Unmined { replacements: 3, ..head().unmined }, ..head() }, &look()) };
    assert_eq!(whole_seconds(soon.next), (Act::SendCapped, 70), "told before it stands there, and not as standing there");
}

#[test]
fn a_no_op_that_is_wanted_comes_at_once() {
    let mut one = head();
    one.unmined.noop = Some(NoopReason::Cancelled);
    let Outlook { next: Planned { act: Act::Sign { purpose, .. }, after, needs_block: false }, .. } = ahead(&one, &look()) else {
        panic!("no price")
    };
    assert_eq!((purpose, after), (AttemptPurpose::Noop, Duration::ZERO));
}

#[test]
fn what_every_endpoint_refuses_is_given_up_after_stuck_seconds() {
    let mut one = head();
    one.unmined.answer = Some(Class::GasBlockLimit);
    assert_eq!(whole_seconds(ahead(&one, &look()).next), (Act::GiveUp(Class::GasBlockLimit), 50));
}

#[test]
fn without_money_the_same_bytes_go_again_and_no_price_helps() {
    let mut one = head();
    one.unmined.answer = Some(Class::InsufficientFunds);
    let poor = ahead(&one, &look());
    assert_eq!((whole_seconds(poor.next), poor.then), ((Act::Send, 70), None));
}

#[test]
fn a_frozen_lane_prices_nothing_and_what_was_mined_or_never_signed_waits_for_others() {
    let frozen = Look { state: LaneState::Frozen, ..look() };
    assert_eq!(whole_seconds(ahead(&head(), &frozen).next), (Act::Frozen, 50));
    let mined = OpenNonce { nonce: 4, ..head() };
    assert_eq!(ahead(&mined, &look()).next.act, Act::Settle);
    let mut unsigned = head();
    unsigned.unmined.tried = None;
    assert_eq!(ahead(&unsigned, &look()).next.act, Act::FirstSignature);
}

#[test]
fn what_the_node_has_no_room_for_waits_for_its_turn() {
    let mut behind = OpenNonce { nonce: 9, ..head() };
    behind.unmined.answer = Some(Class::AccountQueueCap);
    let held = |width| {
        let of = move |one: &OpenNonce<'_>| lane_round::held_back(one, 5, width, rules().patience).map_or(Ok(rules()), Err);
        outlook(&behind, &look(), &of).next
    };
    assert_eq!(held(4).act, Act::HeldBack);
    assert_eq!((held(5).act, held(5).after), (Act::Send, Duration::ZERO));
}

fn seconds(up_to: u64) -> impl Strategy<Value = Duration> {
    (0..up_to * 1_000).prop_map(Duration::from_millis)
}

fn nonces() -> impl Strategy<Value = OpenNonce<'static>> {
    let states = prop::sample::select(vec![LineageState::Signed, LineageState::Broadcast, LineageState::Replaced]);
    let reasons = prop::sample::select(vec![None, None, Some(NoopReason::Cancelled), Some(NoopReason::Refused)]);
    let answers = prop::option::of((0..Class::ALL.len()).prop_map(|place| Class::ALL[place]));
    let times = (seconds(900), prop::option::of(seconds(300)), seconds(300));
    let tried = (1_u64..600, 1_u64..20).prop_map(|(max, tip)| price(max, tip.min(max)));
    let counts = (0_u32..8, 0_u32..5, 0_u32..5, 95_u64..103);
    (states, reasons, answers, times, tried, counts, 3_i64..9).prop_map(|(state, noop, answer, times, tried, counts, nonce)| {
        let (age, since_sent, since_priced) = times;
        let (sends, replacements, noops, priced) = counts;
        let (priced_block, since_priced) = (Some(priced), Some(since_priced));
        let tried = Some(tried);
        let unmined = Unmined { state, sends, age, since_sent, since_priced, priced_block, tried, replacements, noops, noop, answer };
        OpenNonce { lineage: LineageId(Uuid::nil()), nonce, attempts: &ATTEMPTS, capped: false, unmined }
    })
}

fn looks() -> impl Strategy<Value = Look> {
    let states = prop::sample::select(vec![LaneState::Active, LaneState::Paused, LaneState::Draining, LaneState::Frozen]);
    let market =
        (0_u64..600, 1_u64..5).prop_map(|(base, tip)| Quote { base_fee: Wei::from(base * GWEI), priority_fee: Wei::from(tip * GWEI) });
    (states, prop::option::of(seconds(300)), market, any::<bool>()).prop_map(|(state, head_for, market, calm)| Look {
        state,
        latest: Some(5),
        head_for,
        block: 100,
        market,
        calm,
    })
}

/// What the lane does at that time, as its round asks; None for nothing.
fn done(one: &OpenNonce<'_>, look: &Look, by: Duration, of: &impl Fn(&OpenNonce<'_>) -> Result<Rules, Step>) -> Option<Act> {
    let (one, look) = later(one, look, by);
    let wanted = lane_round::wanted_by(&[one], &look, of);
    let signs = wanted.sign.first().map(|priced| Act::Sign { purpose: priced.purpose, price: priced.price });
    let gives_up = wanted.give_up.first().map(|(_, class)| Act::GiveUp(*class));
    let capped = matches!(lane_round::decided(&one, &look, of), Some(Step::Capped { .. }));
    signs.or(gives_up).or((!wanted.send.is_empty()).then_some(if capped { Act::SendCapped } else { Act::Send }))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_is_foretold_is_what_a_round_decides_then_and_nothing_is_decided_before(
        one in nonces(), look in looks(), width in 1_i32..8, part in 0.0_f64..1.0,
    ) {
        let of = |one: &OpenNonce<'_>| lane_round::held_back(one, 5, width, rules().patience).map_or(Ok(rules()), Err);
        let told = outlook(&one, &look, &of);
        let with_block = |planned: &Planned| Look { block: look.block + u64::from(planned.needs_block) * 10, ..look };
        for planned in [Some(told.next), told.then].into_iter().flatten() {
            match planned.act {
                Act::Settle => prop_assert!(one.nonce < 5),
                Act::FirstSignature => prop_assert!(one.unmined.tried.is_none()),
                Act::HeldBack => prop_assert_eq!(done(&one, &look, HORIZON, &of), None),
                Act::Frozen => {
                    prop_assert!(matches!(done(&one, &with_block(&planned), planned.after, &of), None | Some(Act::Send)), "the bytes live on");
                    let thawed = Look { state: LaneState::Active, ..with_block(&planned) };
                    let changes = matches!(done(&one, &thawed, planned.after, &of), Some(Act::Sign { .. } | Act::GiveUp(_)));
                    prop_assert!(changes, "{told:?}");
                }
                act => prop_assert_eq!(done(&one, &with_block(&planned), planned.after, &of), Some(act), "{:?}", told),
            }
        }
        // Nothing is done earlier, as long as no block comes.
        let before = told.next.after.mul_f64(part);
        if before + Duration::from_millis(2) < told.next.after {
            prop_assert_eq!(done(&one, &look, before, &of), None, "{:?} of {:?}", before, told);
        }
    }
}
