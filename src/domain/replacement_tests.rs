use super::*;
use entity::values::Wei;

const GWEI: u64 = 1_000_000_000;
const SECOND: Duration = Duration::from_secs(1);

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

/// Sent a moment ago, priced two minutes ago, at the head for as long.
fn sent() -> Unmined {
    Unmined {
        state: LineageState::Broadcast,
        sends: 1,
        age: SECOND * 120,
        since_sent: Some(SECOND),
        since_priced: Some(SECOND * 120),
        priced_block: Some(90),
        tried: Some(price(20, 2)),
        replacements: 0,
        noops: 0,
        noop: None,
        answer: Some(Class::Ok),
    }
}

fn at_head() -> Around {
    Around {
        head_for: Some(SECOND * 120),
        block: 100,
        market: Quote { base_fee: Wei::from(10 * GWEI), priority_fee: Wei::from(GWEI) },
        calm: true,
    }
}

fn signs(step: Step) -> Option<(AttemptPurpose, Price)> {
    if let Step::Sign { purpose, price } = step { Some((purpose, price)) } else { None }
}

#[test]
fn txr_07_the_head_gets_a_price_after_stuck_seconds_and_not_before() {
    assert!(signs(step(&sent(), &at_head(), &rules())).is_some_and(|(purpose, _)| purpose == AttemptPurpose::Replacement));
    let fresh = Unmined { since_priced: Some(SECOND * 59), ..sent() };
    assert_eq!(step(&fresh, &at_head(), &rules()), Step::Wait);
    let just_head = Around { head_for: Some(SECOND * 59), ..at_head() };
    assert_eq!(step(&sent(), &just_head, &rules()), Step::Wait);
}

#[test]
fn txr_07_one_price_a_block_and_nothing_for_those_behind_that_meet_the_market() {
    let this_block = Unmined { priced_block: Some(100), ..sent() };
    assert_eq!(step(&this_block, &at_head(), &rules()), Step::Wait);
    let behind = Around { head_for: None, ..at_head() };
    assert_eq!(step(&sent(), &behind, &rules()), Step::Wait);
    let dear = Around { market: Quote { base_fee: Wei::from(30 * GWEI), ..behind.market }, ..behind };
    assert!(signs(step(&sent(), &dear, &rules())).is_some());
}

#[test]
fn f_02_a_refused_price_raises_the_next_one_without_waiting() {
    let refused = Unmined { answer: Some(Class::ReplacementUnderpriced), since_priced: Some(SECOND), ..sent() };
    let (_, first) = signs(step(&refused, &at_head(), &rules())).unwrap();
    let again = Unmined { tried: Some(first), ..refused };
    let (_, second) = signs(step(&again, &at_head(), &rules())).unwrap();
    assert!(second.max_fee_per_gas > first.max_fee_per_gas && second.max_priority_fee_per_gas > first.max_priority_fee_per_gas);
}

#[test]
fn txr_10_the_count_is_a_limit_and_the_best_bytes_live_on_slowly() {
    let spent = Unmined { replacements: 3, ..sent() };
    assert_eq!(step(&spent, &at_head(), &rules()), Step::Capped { send: false });
    let rested = Unmined { since_sent: Some(SECOND * 80), ..spent };
    assert_eq!(step(&rested, &at_head(), &rules()), Step::Capped { send: true });
}

#[test]
fn txr_09_at_the_price_limit_nothing_is_signed() {
    let dear = Unmined { tried: Some(price(450, 2)), ..sent() };
    assert_eq!(step(&dear, &at_head(), &rules()), Step::Capped { send: false });
}

#[test]
fn n_08_a_wanted_no_op_is_priced_at_once_over_everything_tried_and_has_a_limit_of_its_own() {
    let asked =
        Unmined { noop: Some(NoopReason::Cancelled), tried: Some(price(450, 2)), replacements: 3, since_priced: Some(SECOND), ..sent() };
    let (purpose, offered) = signs(step(&asked, &Around { head_for: None, ..at_head() }, &rules())).unwrap();
    assert_eq!(purpose, AttemptPurpose::Noop);
    assert!(offered.max_fee_per_gas.0 >= fees::bumped(Wei::from(450 * GWEI), 1_250).0);
    let made = Unmined { noops: 1, ..asked };
    assert_eq!(step(&made, &at_head(), &rules()), Step::Wait);
    let spent = Unmined { noops: 4, since_priced: Some(SECOND * 61), ..asked };
    assert_eq!(step(&spent, &at_head(), &rules()), Step::Capped { send: false });
}

#[test]
fn n_07_bytes_refused_for_good_are_given_up_only_after_several_refusals_and_in_calm() {
    let refused = Unmined { answer: Some(Class::GasBlockLimit), sends: 3, ..sent() };
    assert_eq!(step(&refused, &at_head(), &rules()), Step::GiveUp(Class::GasBlockLimit));
    assert_ne!(step(&Unmined { sends: 2, ..refused }, &at_head(), &rules()), Step::GiveUp(Class::GasBlockLimit));
    assert!(!matches!(step(&refused, &Around { calm: false, ..at_head() }, &rules()), Step::GiveUp(_)));
}

#[test]
fn a_node_s_limit_on_the_whole_fee_is_never_answered_by_a_higher_price() {
    let capped = Unmined { answer: Some(Class::FeeCapExceeded), sends: 9, ..sent() };
    assert_eq!(step(&capped, &at_head(), &rules()), Step::Wait);
    assert_eq!(step(&Unmined { age: SECOND * 600, ..capped }, &at_head(), &rules()), Step::GiveUp(Class::FeeCapExceeded));
}

#[test]
fn bytes_that_do_not_leave_get_no_price() {
    for answer in
        [Class::NotSent, Class::RateLimited, Class::QuotaOrAuth, Class::NodeNotReady, Class::ServiceUnavailable, Class::TxpoolFull]
    {
        let held = Unmined { answer: Some(answer), sends: 40, ..sent() };
        assert_eq!(step(&held, &at_head(), &rules()), Step::Wait, "{answer}");
        assert_eq!(step(&Unmined { since_sent: Some(SECOND * 80), ..held }, &at_head(), &rules()), Step::Send, "{answer}");
    }
}

#[test]
fn n_13_nobody_offers_more_for_a_signer_without_money() {
    let poor = Unmined { answer: Some(Class::InsufficientFunds), ..sent() };
    assert_eq!(step(&poor, &at_head(), &rules()), Step::Wait);
    assert_eq!(step(&Unmined { since_sent: Some(SECOND * 10), ..poor }, &at_head(), &rules()), Step::Send);
}

#[test]
fn new_bytes_that_were_never_given_away_go_first() {
    let unsent = Unmined { state: LineageState::Replaced, since_priced: Some(SECOND), since_sent: Some(SECOND * 2), ..sent() };
    assert_eq!(step(&unsent, &at_head(), &rules()), Step::Send);
}

#[test]
fn bytes_that_were_sent_wait_longer_each_time_up_to_a_bound() {
    let due = |sends, since| is_due_again(LineageState::Broadcast, SECOND * 999, Some(SECOND * since), sends, SECOND);
    assert_eq!([due(1, 1), due(1, 2), due(2, 3), due(2, 4), due(50, 15), due(50, 16)], [false, true, false, true, false, true]);
}

#[test]
fn an_unsigned_or_ended_nonce_has_nothing_to_send() {
    for state in [LineageState::Allocated, LineageState::Mined, LineageState::Abandoned] {
        assert!(!is_due_again(state, Duration::MAX, Some(Duration::MAX), 1, Duration::ZERO));
    }
    assert_eq!(step(&Unmined { tried: None, ..sent() }, &at_head(), &rules()), Step::Wait);
}
