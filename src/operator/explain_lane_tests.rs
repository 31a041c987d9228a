use super::super::ladder::tests::{SIGNER, ground, lane, open, settings, told};
use super::*;
use std::time::Duration;

fn verdict_of(lane: &Lane, ladder: &[Rung], funds: Option<&Funds>) -> (String, Coming) {
    verdict(&ground(lane, &settings()), ladder, funds)
}

#[test]
fn the_nonce_that_all_others_wait_for_is_named_with_what_happens_to_it() {
    let lane = lane();
    let ladder: Vec<_> = (4..8).map(|nonce| told(&lane, &open(nonce))).collect();
    assert_eq!(ladder.iter().map(|rung| rung.place).collect::<Vec<_>>(), [Place::Mined, Place::Head, Place::Behind, Place::Behind]);
    let (why, next) = verdict_of(&lane, &ladder, None);
    assert_eq!(why, "it takes work: 13 more nonces fit before the window of 16 is full");
    assert_eq!(
        next.text,
        "nonce 5 comes first: a dearer attempt is signed in 50s: at most 22.500000001 gwei, tip 2.250000001 gwei; 2 others wait behind it"
    );
    assert_eq!((next.act, next.in_seconds), ("replace", Some(50)));
}

#[test]
fn a_hole_at_the_head_is_told_and_so_is_rest() {
    let mut lane = lane();
    let (_, next) = verdict_of(&lane, &[told(&lane, &open(6))], None);
    assert!(next.text.starts_with("nonce 5 is next on the chain but not open here"), "{}", next.text);
    lane.next_nonce = 5;
    assert_eq!(verdict_of(&lane, &[], None).1.text, "nothing is open");
    let mined = told(&lane, &open(4));
    assert_eq!(verdict_of(&lane, &[mined], None).1.text, "1 nonce is mined: the first ends in at most 11 blocks");
}

#[test]
fn a_lane_without_money_says_how_much_is_missing() {
    let reason = Some("insufficient_funds: it holds 0 and the cheapest transaction costs 1 now".into());
    let lane = Lane { state: LaneState::Paused, reason, free: 0, ..lane() };
    let funds = Funds {
        balance_wei: Wei::ZERO,
        balance_age_seconds: Some(1),
        required_wei: Wei::ZERO,
        floor_wei: Wei::from(1_000),
        resumes_at_wei: Wei::from(1_200),
        missing_wei: Wei::from(1_200),
    };
    let (why, next) = verdict_of(&lane, &[], Some(&funds));
    assert!(why.starts_with("it is paused and takes no work: insufficient_funds: it holds 0"), "{why}");
    let signer = checksummed(&SIGNER);
    let text = format!("send at least 0.0000000000000012 (1200 wei) to {signer}: at a balance of 0.0000000000000012 it goes on by itself");
    assert_eq!((next.act, next.text), ("top_up", text));
    assert!(verdict_of(&lane, &[], None).1.text.contains("it goes on by itself"));
}

#[test]
fn a_frozen_a_drained_and_a_delegated_lane_are_told() {
    let frozen = Lane { state: LaneState::Frozen, reason: Some("finality_violated: block 7".into()), free: 0, ..lane() };
    let (why, next) = verdict_of(&frozen, &[told(&frozen, &open(5))], None);
    assert_eq!(why, "it is frozen and takes no work: finality_violated: block 7");
    assert_eq!(next.command, Some(format!("holdfast lanes thaw {}", checksummed(&SIGNER))));
    assert!(next.text.contains("HoldfastFinalityViolated"), "{}", next.text);
    let drained = Lane { state: LaneState::Drained, free: 0, ..lane() };
    assert_eq!(verdict_of(&drained, &[], None).1.command, Some(format!("holdfast jobs signer-retire-check {}", checksummed(&SIGNER))));
    let delegated = Lane { delegated: true, width: 1, free: 1, ..lane() };
    assert_eq!(
        verdict_of(&delegated, &[], None).0,
        "it takes work: 1 more nonce fits before the window of 1 is full; the sender has delegated itself (EIP-7702), so nodes keep one nonce of it at a time"
    );
}

#[test]
fn a_lane_that_nobody_settles_says_since_when() {
    let (lane, settings) = (lane(), settings());
    let mut ground = ground(&lane, &settings);
    ground.sight = ground.sight.map(|sight| standing::Sight { leased: false, age: Some(Duration::from_secs(125)), ..sight });
    let (why, next) = verdict(&ground, &[told(&lane, &open(5))], None);
    assert!(why.ends_with("; no process settles it now, the last look was 2m5s ago"), "{why}");
    assert_eq!((next.act, next.command.as_deref()), ("unattended", Some("holdfast workers list")));
}
