//! Prices under markets that lie, stay silent or are out of reach, and chains without a base fee.

use crate::support::anvil::{CHAIN_ID, Mining};
use crate::support::wait::{eventually, found};
use crate::support::world::{Instance, POOL, SOON, Setup, World};
use entity::values::Address;
use serde_json::{Value, json};
use std::time::Duration;

const GWEI: u128 = 1_000_000_000;
const HISTORY: &str = "eth_feeHistory";
const TIP: &str = "eth_maxPriorityFeePerGas";

/// Waits until a view of the market was made after now.
async fn until_asked_again(world: &World) {
    let asked = || world.providers.iter().map(|provider| provider.calls(HISTORY)).sum::<u64>();
    let before = asked();
    // The second round began after the first one of them.
    eventually("the market is asked twice more", SOON, async || asked() >= before + 2 * world.providers.len() as u64).await;
}

async fn one_job(world: &World, at: &Instance) -> (u128, u128) {
    let before = world.sent().len();
    let id = world.accept(at, &world.record()).await;
    world.until_state(&id, "completed").await;
    let sent = world.sent();
    let one = &sent[before].transaction;
    (one.tip, one.cap)
}

async fn base_fee(world: &World) -> u128 {
    let head = world.anvil.ask("eth_getBlockByNumber", json!(["latest", false])).await;
    u128::from_str_radix(head["baseFeePerGas"].as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f_06_a_tip_above_the_limit_never_makes_an_invalid_pair() {
    let world = World::with(Setup::default().with("TX_MAX_FEE_PER_GAS_WEI", 20 * GWEI)).await;
    let history = json!({"result": {"baseFeePerGas": ["0x3b9aca00", "0x3b9aca00"], "reward": [["0xba43b7400"]], "gasUsedRatio": [0.5], "oldestBlock": "0x1"}});
    world.providers.iter().for_each(|provider| drop(provider.reply(HISTORY, history.clone())));
    let all = world.serve("all", &[]).await;
    world.accept_records(&all, 10).await;
    world.until_completed(SOON).await;
    let sent = world.sent();
    assert!(sent.len() >= 10);
    for one in sent {
        assert!(one.transaction.tip <= one.transaction.cap && one.transaction.cap <= 20 * GWEI, "{:?}", one.transaction);
        assert!(one.answer.is_some_and(|answer| answer.is_ok()));
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f_07_a_fee_history_that_is_empty_null_or_wrong_never_prices_at_zero() {
    const FLOOR: u128 = 2_000_000;
    let world = World::with(Setup::default().with("TX_MIN_PRIORITY_FEE_PER_GAS_WEI", FLOOR)).await;
    let all = world.serve("all", &[]).await;
    let base = |fee: Value, reward: Value| json!({"result": {"baseFeePerGas": fee, "reward": reward, "gasUsedRatio": [0.5], "oldestBlock": "0x1"}});
    let fees = || json!(["0x3b9aca00", "0x3b9aca00"]);
    for (history, exact) in [
        (json!({"error": {"code": -32603, "message": "internal error"}}), false),
        (json!({"result": null}), false),
        (base(fees(), Value::Null), true),
        (base(fees(), json!([])), true),
        (base(fees(), json!([["0x0"], ["0x0"]])), true),
        (base(Value::Null, json!([["0x0"]])), true),
    ] {
        for (suggestion, expected) in [(json!("0xe4e1c0"), 15_000_000), (Value::Null, FLOOR)] {
            let mut rules: Vec<_> = world.providers.iter().map(|provider| provider.reply(HISTORY, history.clone())).collect();
            rules.extend(world.providers.iter().map(|provider| provider.reply(TIP, json!({"result": suggestion}))));
            until_asked_again(&world).await;
            let least = base_fee(&world).await;
            let (tip, cap) = one_job(&world, &all).await;
            assert!(tip >= FLOOR && cap >= least + tip, "tip {tip}, cap {cap}, base fee {least}: {history} {suggestion}");
            assert!(!exact || tip == expected, "tip {tip} instead of {expected}: {history} {suggestion}");
            rules.into_iter().for_each(|rule| rule.lift());
        }
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f_08_a_market_above_the_ceiling_binds_no_nonce_and_the_fall_gets_a_full_tip() {
    let setup = Setup { mining: Mining::OnDemand, ..Setup::default() }.with("TX_MAX_FEE_PER_GAS_WEI", 20 * GWEI);
    let world = World::with(setup).await;
    world.anvil.ask("anvil_setNextBlockBaseFeePerGas", json!([format!("{:#x}", 50 * GWEI)])).await;
    world.anvil.mine(1).await;
    world.providers.iter().for_each(|provider| drop(provider.min_tip(GWEI)));
    let all = world.serve("all", &[]).await;
    world.accept_records(&all, 1).await;
    eventually("the job was told why it waits", SOON, async || world.count("job_attempts WHERE outcome IS NOT NULL").await >= 1).await;
    assert_eq!((world.count("lineages").await, world.sent().len()), (0, 0));
    let fallen = world.anvil.height().await;
    world.anvil.ask("anvil_setNextBlockBaseFeePerGas", json!([format!("{:#x}", 5 * GWEI)])).await;
    world.anvil.mine(1).await;
    eventually("the job is sent", SOON, async || world.count("jobs WHERE state = 'submitted'").await == 1).await;
    found("it is mined within a few blocks", SOON, async || {
        world.anvil.mine(1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        (world.count("jobs WHERE finished_at IS NULL").await == 0).then_some(())
    })
    .await;
    let mined: i64 = world.scalar("SELECT block_number FROM holdfast.lineages").await;
    assert!(mined - i64::try_from(fallen).unwrap() <= 4, "mined in block {mined}, the fall came after {fallen}");
    assert!(world.sent().iter().all(|sent| sent.transaction.tip >= GWEI && sent.transaction.cap <= 20 * GWEI));
    world.until_completed(SOON).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chain_without_a_base_fee_gets_legacy_transactions_also_when_they_are_replaced() {
    let setup = Setup { mining: Mining::OnDemand, hardfork: "berlin", ..Setup::default() };
    let world = World::with(setup.with("TX_STUCK_SECONDS", 1)).await;
    let all = world.serve("all", &[]).await;
    let to = Address([0x77; 20]).to_string();
    let body = json!({"kind": "transfer", "chain_id": CHAIN_ID, "pool": POOL, "to": to, "value": "5"});
    for _ in 0..3 {
        world.accept(&all, &body).await;
    }
    eventually("all are with the chain", SOON, async || world.count("jobs WHERE state = 'submitted'").await == 3).await;
    // A dearer attempt needs a new block, and the head of the lane must not be in it.
    let head = world.sent().into_iter().find(|sent| sent.transaction.nonce == 0).expect("nonce 0").transaction.hash;
    eventually("the head has a dearer attempt", SOON, async || {
        world.anvil.drop_transaction(head).await;
        world.anvil.mine(1).await;
        world.count("tx_attempts WHERE purpose = 'replacement'").await >= 1
            || world.count("lineages WHERE nonce = 0 AND state = 'mined'").await == 1
    })
    .await;
    found("all are mined", SOON, async || {
        world.anvil.mine(1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        (world.count("jobs WHERE finished_at IS NULL").await == 0).then_some(())
    })
    .await;
    world.until_completed(SOON).await;
    assert!(world.sent().iter().all(|sent| sent.transaction.legacy));
    assert_eq!(world.count("tx_attempts WHERE tx_type <> 0").await, 0);
    assert!(world.count("tx_attempts WHERE purpose = 'replacement'").await >= 1);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_no_block_can_hold_is_refused_before_a_nonce() {
    // A ten-thousandth of the test chain's block: not even a transfer fits.
    let world = World::with(Setup::default().with("TX_MAX_BLOCK_GAS_SHARE_BASIS_POINTS", 1)).await;
    let all = world.serve("all", &[]).await;
    let id = world.accept(&all, &world.record()).await;
    world.until_state(&id, "not_actionable").await;
    let told = world.rows("SELECT error_title, error_detail FROM holdfast.jobs").await;
    assert!(
        told[0].contains("more gas than a transaction may have") && told[0].contains("TX_MAX_BLOCK_GAS_SHARE_BASIS_POINTS"),
        "{told:?}"
    );
    assert_eq!((world.count("lineages").await, world.sent().len()), (0, 0));
    world.finish().await;
}
