//! A nonce that does not get mined: prices, their limits, no-ops. The node alone takes any higher price, so the proxies hold it to the
//! rules of geth and reth.

use crate::support::anvil::Mining;
use crate::support::command;
use crate::support::rpc_proxy::Sent;
use crate::support::wait::eventually;
use crate::support::world::{Instance, SOON, Setup, World};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const SEND: &str = "eth_sendRawTransaction";
const GWEI: u64 = 1_000_000_000;
const OPEN: &str = "jobs WHERE finished_at IS NULL";

fn setup() -> Setup {
    Setup { mining: Mining::OnDemand, ..Setup::default() }.with("TX_STUCK_SECONDS", 1).with("TX_REORG_LOOKBACK_BLOCKS", 8)
}

async fn pending(world: &World, count: usize) -> (Arc<Instance>, Vec<String>) {
    let all = world.serve("all", &[]).await;
    let ids = world.accept_records(&all, count).await;
    eventually("all are pending", SOON, async || world.count("jobs WHERE state = 'submitted'").await == i64::try_from(count).unwrap())
        .await;
    (all, ids)
}

/// A block that is too dear for what is pending.
async fn dear_block(world: &World, gwei: u64) {
    world.anvil.set_next_base_fee(gwei * GWEI).await;
    world.anvil.mine(1).await;
}

/// Distinct transactions of a nonce in the order of their first sight.
fn attempts(world: &World, nonce: u64) -> Vec<Sent> {
    let mut seen = BTreeSet::new();
    world.sent().into_iter().filter(|sent| sent.transaction.nonce == nonce && seen.insert(sent.transaction.hash.0)).collect()
}

fn refusals(world: &World) -> Vec<String> {
    world.sent().into_iter().filter_map(|sent| sent.answer?.err()).map(|(_, message)| message).collect()
}

/// The cap and the tip, in wei per gas.
fn fees(sent: &Sent) -> (u128, u128) {
    (sent.transaction.cap, sent.transaction.tip)
}

fn bump(x: u128) -> u128 {
    x * 110 / 100 + 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f_01_txr_07_txr_08_the_first_replacement_raises_both_fields_and_is_taken() {
    let world = World::with(setup()).await;
    world.providers.iter().for_each(|provider| drop(provider.geth_rule()));
    pending(&world, 1).await;
    dear_block(&world, 10).await;
    eventually("a second attempt is sent", SOON, async || attempts(&world, 0).len() >= 2).await;
    let tried = attempts(&world, 0);
    let (old, new) = (fees(&tried[0]), fees(&tried[1]));
    assert!(new.0 >= bump(old.0) && new.1 >= bump(old.1), "{old:?} became {new:?}");
    assert!(new.0 >= u128::from(8 * GWEI), "the market is at about 9 gwei: {new:?}");
    assert!(refusals(&world).is_empty(), "{:?}", refusals(&world));
    world.mine_until_none(OPEN, SOON).await;
    world.until_completed(SOON).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f_02_a_strict_node_takes_the_first_try_and_a_refused_price_is_never_tried_twice() {
    let world = World::with(setup().with("TX_FEE_BUMP_BASIS_POINTS", 1_000)).await;
    world.providers.iter().for_each(|provider| drop(provider.reth_rule()));
    pending(&world, 1).await;
    dear_block(&world, 10).await;
    eventually("a second attempt is sent", SOON, async || attempts(&world, 0).len() >= 2).await;
    assert!(refusals(&world).is_empty(), "{:?}", refusals(&world));
    let refused =
        world.writer().reply(SEND, json!({"error": {"code": -32_000, "message": "replacement transaction underpriced"}})).times(2);
    dear_block(&world, 30).await;
    eventually("refused prices are followed by others", SOON, async || {
        dear_block(&world, 40).await;
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        refused.applied() >= 2 && attempts(&world, 0).len() >= 4
    })
    .await;
    let prices: Vec<_> = attempts(&world, 0).iter().map(fees).collect();
    assert!(prices.windows(2).all(|pair| pair[1].0 >= bump(pair[0].0) && pair[1].1 >= bump(pair[0].1)), "{prices:?}");
    world.mine_until_none(OPEN, SOON).await;
    world.until_completed(SOON).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f_03_txr_09_at_the_cap_the_stored_bytes_are_sent_again_and_land_when_the_market_falls() {
    const CAP: u64 = 4 * GWEI;
    let world = World::with(setup().with("TX_MAX_FEE_PER_GAS_WEI", CAP)).await;
    let (all, _) = pending(&world, 1).await;
    eventually("the cap is reached", SOON, async || {
        dear_block(&world, 20).await;
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        world.count("lineages WHERE capped_at IS NOT NULL").await == 1
    })
    .await;
    assert!(world.metric(&all, "holdfast_tx_replacement_capped_total", &[]).await >= 1.0);
    world.anvil.drop_all_transactions().await;
    let before = world.sent().len();
    world.anvil.set_next_base_fee(GWEI / 10).await;
    world.mine_until_none(OPEN, SOON).await;
    world.until_completed(SOON).await;
    assert!(world.sent().len() > before, "the bytes were sent again");
    assert!(world.sent().iter().all(|sent| sent.transaction.cap <= u128::from(CAP)));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f_04_txr_10_every_attempt_of_a_job_has_its_one_nonce_and_no_more_than_the_limit_are_made() {
    let world = World::with(setup().with("TX_MAX_REPLACEMENTS", 3)).await;
    let (all, ids) = pending(&world, 1).await;
    // Each block is too dear for the attempt before it, and gives room for one more price.
    for (gwei, tried) in [(10, 2), (40, 3), (150, 4)] {
        dear_block(&world, gwei).await;
        eventually("one more is tried", SOON, async || attempts(&world, 0).len() >= tried).await;
    }
    for _ in 0..3 {
        dear_block(&world, 400).await;
        tokio::time::sleep(std::time::Duration::from_millis(1_200)).await;
    }
    assert_eq!(attempts(&world, 0).len(), 4, "the call and three replacements");
    let next = world.accept(&all, &world.record()).await;
    world.mine_until_none(OPEN, SOON).await;
    world.until_completed(SOON).await;
    let nonce = async |id: &str| world.job(&all, id).await["transaction"]["nonce"].as_i64();
    assert_eq!((nonce(&ids[0]).await, nonce(&next).await), (Some(0), Some(1)));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f_05_jrn_08_an_earlier_attempt_that_is_mined_is_the_outcome() {
    let world = World::with(setup()).await;
    let (all, ids) = pending(&world, 1).await;
    let first = attempts(&world, 0)[0].clone();
    // Taken, as the provider says, and never forwarded.
    let swallowed = world.writer().reply(SEND, json!({"result": format!("0x{}", "11".repeat(32))}));
    eventually("a second attempt is signed", SOON, async || attempts(&world, 0).len() >= 2).await;
    world.mine_until_none(OPEN, SOON).await;
    swallowed.lift();
    let job = world.job(&all, &ids[0]).await;
    assert_eq!(
        (job["state"].as_str(), job["transaction"]["hash"].as_str()),
        (Some("completed"), Some(&*first.transaction.hash.to_string()))
    );
    assert!(job["transaction"]["hashes"].as_array().is_some_and(|hashes| hashes.len() >= 2), "{job}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_06_a_nonce_too_low_for_a_replacement_is_not_a_second_payment() {
    let world = World::with(setup()).await;
    let lost = world.writer().accept_then_drop(SEND).times(1);
    let (all, ids) = pending(&world, 1).await;
    assert_eq!(lost.applied(), 1);
    // The node has it; the next sends are told that the nonce is used up, and receipts are hidden for a while.
    let hidden: Vec<_> =
        world.providers.iter().map(|provider| provider.reply("eth_getTransactionReceipt", json!({"result": null}))).collect();
    world.anvil.mine(1).await;
    tokio::time::sleep(std::time::Duration::from_millis(2_500)).await;
    hidden.into_iter().for_each(|rule| rule.lift());
    world.mine_until_none(OPEN, SOON).await;
    let job = world.job(&all, &ids[0]).await;
    assert_eq!(job["state"], "completed", "{job}");
    assert_eq!(world.anvil.next_nonce(world.signers[0].address).await, 1);
    assert_eq!(attempts(&world, 0).len(), world.sent().iter().map(|sent| sent.transaction.hash.0).collect::<BTreeSet<_>>().len());
    let events = world.events(&ids[0]).await;
    assert!(!events.iter().any(|event| ["dead", "reverted", "cancelled"].contains(&event.as_str())), "{events:?}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_07_bytes_that_no_node_takes_have_their_nonce_used_up_by_a_no_op() {
    let world = World::with(Setup { first_nonce: 10, ..setup() }).await;
    let refusal = json!({"error": {"code": -32_000, "message": "exceeds block gas limit"}});
    let rule = world.writer().reply(SEND, refusal).times(1);
    let all = world.serve("all", &[("TX_STUCK_SECONDS", "600")]).await;
    let first = world.accept(&all, &world.record()).await;
    world.until_state(&first, "submitted").await;
    rule.lift();
    // Whatever else comes of the refused bytes, they stay refused.
    let hash = attempts(&world, 10)[0].transaction.hash;
    let others = world.accept_records(&all, 2).await;
    let cancelled = world.post(&all, &format!("/v1/jobs/{first}/cancel"), "", &json!({})).await;
    assert_eq!(cancelled.status, 202, "{cancelled:?}");
    eventually("a no-op is sent", SOON, async || attempts(&world, 10).len() >= 2).await;
    world.anvil.drop_transaction(hash).await;
    world.mine_until_none(OPEN, SOON).await;
    let noop = &attempts(&world, 10)[1].transaction;
    assert_eq!((noop.to, noop.data.len()), (Some(world.signers[0].address), 0));
    assert_eq!(world.state(&first).await, "cancelled");
    for id in &others {
        assert_eq!(world.state(id).await, "completed");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_07_bytes_that_are_refused_for_good_are_given_up_without_being_asked() {
    let world = World::with(setup()).await;
    let refused = world.writer().reply(SEND, json!({"error": {"code": -32_000, "message": "exceeds block gas limit"}})).times(3);
    let all = world.serve("all", &[]).await;
    let first = world.accept(&all, &world.record()).await;
    eventually("the no-op is wanted", SOON, async || world.count("lineages WHERE noop_reason = 'refused'").await == 1).await;
    assert!(refused.applied() >= 3);
    eventually("the no-op is sent", SOON, async || attempts(&world, 0).len() >= 2).await;
    world.mine_until_none(OPEN, SOON).await;
    let job = world.job(&all, &first).await;
    assert_eq!((job["state"].as_str(), job["error"]["type"].as_str()), (Some("dead"), Some("refused")), "{job}");
    assert!(job["error"]["detail"].as_str().is_some_and(|detail| detail.contains("gas_block_limit")), "{job}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_refused_for_their_gas_are_signed_again_with_a_new_estimate_at_the_same_nonce() {
    let world = World::with(setup()).await;
    // What the nodes estimate at first is too little by the time that it is sent.
    let low: Vec<_> = world.providers.iter().map(|provider| provider.reply("eth_estimateGas", json!({"result": "0x6000"}))).collect();
    let refused = world.writer().reply(SEND, json!({"error": {"code": -32_000, "message": "intrinsic gas too low"}})).times(3);
    let all = world.serve("all", &[]).await;
    let id = world.accept(&all, &world.record()).await;
    world.until_state(&id, "submitted").await;
    low.into_iter().for_each(|rule| rule.lift());
    eventually("another attempt is signed", SOON, async || world.count("tx_attempts").await == 2).await;
    assert!(refused.applied() >= 3, "not at the first refusal");
    let gas = world.rows("SELECT gas_limit, purpose FROM holdfast.tx_attempts ORDER BY ordinal").await;
    let (first, second) = (gas[0].split_once('|').unwrap(), gas[1].split_once('|').unwrap());
    assert!(first.0.parse::<u64>().unwrap() < second.0.parse::<u64>().unwrap() && second.1 == "replacement", "{gas:?}");
    world.mine_until_none(OPEN, SOON).await;
    world.until_completed(SOON).await;
    assert_eq!(world.rows("SELECT nonce, noop_reason FROM holdfast.lineages").await, ["0|"], "one nonce, and no no-op");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gas_limit_that_the_caller_gave_is_not_changed_and_its_refusal_is_told() {
    let world = World::with(setup()).await;
    let refused = world.writer().reply(SEND, json!({"error": {"code": -32_000, "message": "intrinsic gas too low"}})).times(3);
    let all = world.serve("all", &[]).await;
    let mut job = world.record();
    job["gas_limit"] = json!("100000");
    let id = world.accept(&all, &job).await;
    eventually("the no-op is wanted", SOON, async || world.count("lineages WHERE noop_reason = 'refused'").await == 1).await;
    assert!(refused.applied() >= 3);
    world.mine_until_none(OPEN, SOON).await;
    let job = world.job(&all, &id).await;
    assert!(job["error"]["detail"].as_str().is_some_and(|detail| detail.contains("given by the caller")), "{job}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_08_what_mines_decides_whether_a_job_was_cancelled() {
    for original_first in [true, false] {
        let world = World::with(setup().with("TX_STUCK_SECONDS", 600)).await;
        let (all, ids) = pending(&world, 1).await;
        let original = attempts(&world, 0)[0].transaction.hash;
        // The no-op is signed and reaches nobody while the original is mined.
        let held = original_first.then(|| world.writer().reset(SEND));
        let reply = world.post(&all, &format!("/v1/jobs/{}/cancel", ids[0]), "", &json!({})).await;
        assert_eq!((reply.status, reply.body["state"].as_str()), (202, Some("submitted")), "nothing ends before a receipt");
        eventually("a no-op is signed", SOON, async || world.count("tx_attempts WHERE purpose = 'noop'").await == 1).await;
        if let Some(held) = held {
            world.anvil.mine(1).await;
            held.lift();
        } else {
            eventually("the no-op is taken", SOON, async || {
                attempts(&world, 0).iter().any(|sent| sent.transaction.hash != original && sent.forwarded)
            })
            .await;
        }
        world.mine_until_none(OPEN, SOON).await;
        let job = world.job(&all, &ids[0]).await;
        assert_eq!(job["cancellation"], if original_first { "too_late" } else { "done" }, "{job}");
        let expected = if original_first { ("completed", true) } else { ("cancelled", false) };
        assert_eq!((job["state"].as_str().unwrap(), job["transaction"]["hash"] == original.to_string()), expected, "{job}");
        assert_eq!(world.anvil.next_nonce(world.signers[0].address).await, 1);
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_05_jrn_10_a_nonce_that_a_stranger_used_ends_with_a_proof_and_its_job_can_be_replayed() {
    let world = World::with(Setup { first_nonce: 2, ..setup() }).await;
    let held: Vec<_> = world.providers.iter().map(|provider| provider.reset(SEND)).collect();
    let all = world.serve("all", &[]).await;
    let first = world.accept(&all, &world.record()).await;
    eventually("it is signed", SOON, async || world.count("tx_attempts").await == 1).await;
    all.kill9();
    world.anvil.use_nonce(world.signers[0].address).await;
    world.anvil.mine(1).await;
    held.into_iter().for_each(|rule| rule.lift());
    let all = world.serve("all", &[]).await;
    let behind = world.accept_records(&all, 2).await;
    world.mine_until_none(OPEN, SOON).await;
    assert_eq!(world.state(&first).await, "dead");
    for id in &behind {
        assert_eq!(world.state(id).await, "completed");
    }
    let proof: serde_json::Value = world.scalar("SELECT proof FROM holdfast.lineages WHERE state = 'superseded'").await;
    let agreeing = proof["absent"][0]["votes"]["agreeing"].as_u64();
    assert!(proof["rule"] == "consumed_by_stranger" && agreeing >= Some(2), "{proof}");
    let dead = world.sent().into_iter().filter(|sent| sent.transaction.nonce == 2 && sent.answer.is_some()).count();
    assert!(dead <= 3, "{dead} sends of dead bytes");
    assert!(world.metric(&all, "holdfast_foreign_nonce_use_total", &[]).await >= 1.0);
    world.anvil.mine(10).await;
    eventually("the head is deep enough", SOON, async || {
        let chain = [("RPC_URL", world.writer().url.as_str()), ("TX_REORG_LOOKBACK_BLOCKS", "8")];
        command::run(&world, &["jobs", "replay", &first, "--reason", "a stranger used its nonce"], &chain).await.0 == 0
    })
    .await;
    world.mine_until_none(OPEN, SOON).await;
    world.until_completed(SOON).await;
    let nonces = world.rows(&format!("SELECT nonce FROM holdfast.lineages WHERE job_id = '{first}' ORDER BY nonce")).await;
    assert_eq!(nonces, ["2", "5"]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_10_a_lagging_provider_moves_no_nonce() {
    let world = World::with(setup()).await;
    world.providers[1].lag(3);
    let all = world.serve("all", &[]).await;
    for _ in 0..30 {
        let id = world.accept(&all, &world.record()).await;
        eventually("it is sent", SOON, async || world.state(&id).await != "queued" && world.state(&id).await != "processing").await;
        world.anvil.mine(1).await;
    }
    world.mine_until_none(OPEN, SOON).await;
    world.until_completed(SOON).await;
    let mut by_nonce: BTreeMap<u64, BTreeSet<[u8; 32]>> = BTreeMap::new();
    for sent in world.sent() {
        by_nonce.entry(sent.transaction.nonce).or_default().insert(sent.transaction.hash.0);
    }
    assert_eq!(by_nonce.keys().copied().collect::<Vec<_>>(), (0..30).collect::<Vec<_>>());
    assert!(all.is_alive());
    world.finish().await;
}
