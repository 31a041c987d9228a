use super::*;
use chrono::TimeDelta;
use entity::ids::{JobId, LaneId};
use entity::states::LineageState;
use uuid::Uuid;

pub(crate) const SIGNER: Address = Address([7; 20]);
const GWEI: u64 = 1_000_000_000;
const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn lane() -> Lane {
    Lane {
        id: LaneId(1),
        chain_id: 31_337,
        pool: "local:relayer".into(),
        signer: SIGNER,
        state: LaneState::Active,
        reason: None,
        next_nonce: 8,
        latest_nonce: 5,
        settled_nonce: 4,
        width: 16,
        delegated: false,
        free: 13,
        open: 4,
        unsigned: 0,
        oldest_open_seconds: None,
    }
}

pub(crate) fn settings() -> config::Chain {
    let chain = config::Chain::at(31_337, "http://localhost:8545");
    config::Chain {
        stuck: SECOND * 60,
        reconcile: SECOND * 5,
        confirmations: 12,
        reorg_lookback: 64,
        max_fee_per_gas: Wei::from(100 * GWEI),
        max_replacements: 10,
        fee_bump_bps: 1_250,
        ..chain
    }
}

pub(crate) fn ground<'a>(lane: &'a Lane, settings: &'a config::Chain) -> Ground<'a> {
    let market = Quote { base_fee: Wei::from(8 * GWEI), priority_fee: Wei::from(GWEI) };
    let now = DateTime::UNIX_EPOCH;
    Ground {
        lane,
        sight: Some(Sight {
            lane: lane.id,
            pending: Some(8),
            block: Some(100),
            age: Some(SECOND),
            head_for: SECOND * 30,
            balance: None,
            balance_age: None,
            leased: true,
        }),
        head: Some(Head {
            chain_id: 31_337,
            number: 100,
            seen_at: now,
            age: SECOND,
            market: Some((market, crate::domain::fees::TxType::Eip1559)),
        }),
        settings: Some(settings),
        now,
    }
}

pub(crate) fn transaction(nonce: i64, state: LineageState) -> Transaction {
    Transaction {
        id: LineageId(Uuid::nil()),
        job: JobId(Uuid::nil()),
        chain_id: 31_337,
        signer: SIGNER,
        nonce,
        state,
        hash: None,
        to: Address([1; 20]),
        value: Wei::ZERO,
        gas_limit: 21_000,
        max_fee_per_gas: None,
        max_priority_fee_per_gas: None,
        attempts: 1,
        sends: 4,
        last_sent_at: None,
        last_answer: Some("ok".into()),
        block: None,
        gas_used: None,
        effective_gas_price: None,
        created_at: DateTime::UNIX_EPOCH - TimeDelta::seconds(65),
        ended_at: None,
        replacements: 0,
        noops: 0,
        noop_reason: None,
        noop_detail: None,
        capped_at: None,
        finalized_at: None,
        age_seconds: 65,
    }
}

/// Sent and priced ten seconds ago, at 20 gwei.
pub(crate) fn open(nonce: i64) -> Open {
    Open {
        lineage: LineageId(Uuid::nil()),
        job: JobId(Uuid::nil()),
        nonce,
        state: LineageState::Broadcast,
        sends: 4,
        gas_limit: 21_000,
        replacements: 1,
        noops: 0,
        priced_block: Some(90),
        noop: None,
        noop_detail: None,
        last_answer: Some("ok".into()),
        capped: false,
        age: SECOND * 65,
        since_sent: Some(SECOND * 10),
        since_priced: Some(SECOND * 10),
        attempts: vec![(Hash([1; 32]), AttemptPurpose::Call), (Hash([2; 32]), AttemptPurpose::Replacement)],
        tried: Some(crate::domain::fees::Price { max_fee_per_gas: Wei::from(20 * GWEI), max_priority_fee_per_gas: Wei::from(2 * GWEI) }),
    }
}

pub(crate) fn told(lane: &Lane, open: &Open) -> Rung {
    rung(&ground(lane, &settings()), transaction(open.nonce, open.state), Some(open))
}

#[test]
fn a_rung_has_its_prices_the_next_one_and_what_is_left_to_the_limit() {
    let rung = told(&lane(), &open(5));
    let fees = rung.fees.unwrap();
    assert_eq!((fees.max_fee_per_gas_wei, fees.limit_max_fee_per_gas_wei), (Wei::from(20 * GWEI), Wei::from(100 * GWEI)));
    assert_eq!(fees.next_max_fee_per_gas_wei, Some(Wei::from(22_500_000_001)));
    // 20 gwei raised by an eighth thirteen times is 92 gwei, fourteen times 104; nine replacements are left of ten.
    assert_eq!((fees.limit_distance_wei, fees.limit_distance_percent), (Wei::from(80 * GWEI), 80));
    assert_eq!((fees.attempts_left, fees.replacements_left, fees.capped_by), (9, 9, None));
    assert_eq!(rung.hashes, [Hash([1; 32]), Hash([2; 32])]);
    assert_eq!((rung.next.act, rung.next.in_seconds), ("replace", Some(50)));
    assert_eq!(rung.next.text, "a dearer attempt is signed in 50s: at most 22.500000001 gwei, tip 2.250000001 gwei");
    assert_eq!(rung.next.at, Some(DateTime::UNIX_EPOCH + TimeDelta::seconds(50)));
}

#[test]
fn each_thing_that_may_come_has_its_words() {
    let words = |lane: &Lane, open: &Open| told(lane, open).next.text;
    let lane = lane();
    let poor = Open { last_answer: Some("insufficient_funds".into()), ..open(5) };
    assert_eq!(words(&lane, &poor), "the signer cannot pay, no price helps: the same bytes go again in 1m10s, and at once after a top-up");
    let waited = Open { since_priced: Some(SECOND * 90), ..open(5) };
    let behind = Open { nonce: 6, ..waited.clone() };
    assert_eq!(words(&lane, &behind), "it waits for nonce 5; the same bytes go again in 1m10s");
    let capped = Open {
        nonce: 5,
        tried: Some(crate::domain::fees::Price { max_fee_per_gas: Wei::from(7 * GWEI), max_priority_fee_per_gas: Wei::from(GWEI) }),
        replacements: 10,
        ..waited
    };
    assert_eq!(
        words(&lane, &capped),
        "all 10 replacements are made: the best bytes go again in 1m10s and every 1m20s; they land when the base fee is below 7 gwei, now 8 gwei"
    );
    assert_eq!(told(&lane, &capped).fees.unwrap().capped_by, Some("count"));
    let cancelled = Open { noop: Some(NoopReason::Cancelled), ..open(5) };
    assert!(words(&lane, &cancelled).starts_with("a no-op of the same nonce is signed at the next look at the lane, at "));
    assert!(words(&lane, &cancelled).ends_with(" gwei: its job was cancelled"));
    let refused = Open { last_answer: Some("oversized".into()), age: SECOND * 20, ..open(5) };
    assert_eq!(words(&lane, &refused), "every endpoint answers oversized: the bytes are given up in 40s, and a no-op uses the nonce up");
    let gas = Open { last_answer: Some("gas_block_limit".into()), ..refused };
    assert_eq!(told(&lane, &gas).next.act, "resize");
    assert!(words(&lane, &gas).starts_with("every endpoint answers gas_block_limit: the call is estimated anew in 40s; another gas limit"));
    let unsigned = Open { tried: None, attempts: vec![], state: LineageState::Allocated, ..open(5) };
    assert!(words(&lane, &unsigned).starts_with("nothing is signed for it yet"));
    assert_eq!(words(&lane, &open(4)), "mined at or before block 100: it ends in at most 11 blocks (TX_CONFIRMATIONS 12)");
    let narrow = Lane { width: 2, delegated: false, ..lane.clone() };
    let too_many = Open { nonce: 9, last_answer: Some("account_queue_cap".into()), ..open(5) };
    assert_eq!(
        words(&narrow, &too_many),
        "the node keeps no more of this account (account_queue_cap): it goes again once nonce 7 is taken"
    );
    let frozen = Lane { state: LaneState::Frozen, ..lane };
    assert_eq!(told(&frozen, &open(5)).next.act, "frozen");
    assert_eq!(told(&frozen, &open(4)).next.act, "frozen");
}

#[test]
fn a_process_that_does_not_know_the_chain_says_so_and_foretells_nothing() {
    let (lane, settings) = (lane(), settings());
    let ground = Ground { settings: None, ..ground(&lane, &settings) };
    let rung = rung(&ground, transaction(5, LineageState::Broadcast), Some(&open(5)));
    assert_eq!((rung.next.act, rung.fees, rung.hashes.len()), ("unknown", None, 2));
}

#[test]
fn an_end_is_final_in_so_many_blocks() {
    let (lane, settings) = (lane(), settings());
    let ground = ground(&lane, &settings);
    let block = |number| Some(super::super::transactions::Block { number, hash: Hash([3; 32]) });
    let mined = Transaction { block: block(90), ..transaction(4, LineageState::Mined) };
    assert_eq!(finality(&mined, &ground).as_deref(), Some("final in 53 blocks (TX_REORG_LOOKBACK_BLOCKS 64)"));
    let noted = Transaction { finalized_at: Some(DateTime::UNIX_EPOCH - TimeDelta::seconds(9)), ..mined };
    assert_eq!(finality(&noted, &ground).as_deref(), Some("final, noted 9s ago"));
    assert_eq!(finality(&transaction(4, LineageState::Abandoned), &ground), None);
}
