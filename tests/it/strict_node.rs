//! The same on a second node, which is stricter than the first: it holds replacements to 10 % on both fields, keeps transactions that the base fee has
//! left behind, and knows neither receipts of whole blocks nor a tip of its own. What the proxies play elsewhere, this one does by itself.

use crate::support::anvil::{Mining, Node};
use crate::support::rpc_proxy::Rule;
use crate::support::wait::{eventually, found};
use crate::support::world::{Instance, POOL, SOON, Setup, World};
use entity::values::Address;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const OPEN: &str = "jobs WHERE finished_at IS NULL";
const GWEI: u64 = 1_000_000_000;

fn hardhat(mining: Mining) -> Setup {
    Setup { node: Node::Hardhat, mining, lanes: 1, ..Setup::default() }
}

fn refusals(world: &World) -> Vec<String> {
    world.sent().into_iter().filter_map(|sent| sent.answer?.err()).map(|(_, message)| message).collect()
}

async fn attempts(world: &World) -> Vec<(String, u128, u128)> {
    let sql =
        "SELECT '0x' || encode(hash, 'hex') AS hash, max_fee_per_gas, max_priority_fee_per_gas FROM holdfast.tx_attempts ORDER BY ordinal";
    let split = |row: &String| {
        let columns: Vec<&str> = row.split('|').collect();
        (columns[0].to_owned(), columns[1].parse().unwrap(), columns[2].parse().unwrap())
    };
    world.rows(sql).await.iter().map(split).collect()
}

async fn pending(world: &World) -> (Arc<Instance>, String) {
    let all = world.serve("all", &[]).await;
    let id = world.accept(&all, &world.record()).await;
    world.until_state(&id, "submitted").await;
    (all, id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_strict_node_takes_calls_and_transfers_to_their_proven_end() {
    let world = World::with(Setup { lanes: 2, ..hardhat(Mining::Every(Duration::from_millis(300))) }).await;
    let all = world.serve("all", &[]).await;
    let ids = world.accept_records(&all, 20).await;
    let to = Address([0x77; 20]);
    let transfer =
        json!({"kind": "transfer", "chain_id": crate::support::anvil::CHAIN_ID, "pool": POOL, "to": to.to_string(), "value": "12345"});
    let transfer = world.accept(&all, &transfer).await;
    world.until_completed(SOON).await;
    assert_eq!(world.anvil.balance(to).await, 12_345);
    for id in ids.iter().chain([&transfer]) {
        let job = world.job(&all, id).await;
        let receipt = world.anvil.receipt(job["transaction"]["hash"].as_str().unwrap()).await;
        assert_eq!(job["transaction"]["block"]["hash"], receipt["blockHash"], "{job}");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_strict_node_takes_the_first_price_of_every_replacement_and_the_market_above_the_limit_is_waited_out() {
    const CAP: u64 = 100 * GWEI;
    let setup = hardhat(Mining::OnDemand).with("TX_STUCK_SECONDS", 1).with("TX_MAX_FEE_PER_GAS_WEI", CAP);
    let world = World::with(setup.with("TX_REORG_LOOKBACK_BLOCKS", 8)).await;
    let (_, id) = pending(&world).await;
    // The base fee leaves the pooled transaction behind, and the node keeps it.
    for (gwei, count) in [(10, 2), (35, 3)] {
        world.anvil.set_next_base_fee(gwei * GWEI).await;
        world.anvil.mine(1).await;
        eventually("one more is signed", SOON, async || attempts(&world).await.len() >= count).await;
    }
    let tried = attempts(&world).await;
    let up = |old: u128, new: u128| new > old * 110 / 100;
    assert!(tried.windows(2).all(|pair| up(pair[0].1, pair[1].1) && up(pair[0].2, pair[1].2)), "{tried:?}");
    assert!(!refusals(&world).iter().any(|message| message.contains("underpriced")), "{:?}", refusals(&world));
    // Above the limit: nothing dearer is made, and nothing is given up.
    found("the limit is noted", SOON, async || {
        world.anvil.set_next_base_fee(400 * GWEI).await;
        world.anvil.mine(1).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        (world.count("lineages WHERE capped_at IS NOT NULL").await == 1).then_some(())
    })
    .await;
    assert_eq!(world.state(&id).await, "submitted");
    world.anvil.set_next_base_fee(GWEI).await;
    world.mine_until_none(OPEN, SOON).await;
    world.until_completed(SOON).await;
    assert!(attempts(&world).await.iter().all(|(_, cap, _)| *cap <= u128::from(CAP)));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_strict_node_takes_the_no_op_in_the_place_of_a_cancelled_call() {
    let world = World::with(hardhat(Mining::OnDemand).with("TX_STUCK_SECONDS", 600)).await;
    let (all, id) = pending(&world).await;
    let reply = world.post(&all, &format!("/v1/jobs/{id}/cancel"), "", &json!({})).await;
    assert_eq!(reply.status, 202, "{reply:?}");
    eventually("the no-op is taken", SOON, async || {
        let hashes: BTreeSet<[u8; 32]> =
            world.sent().into_iter().filter(|sent| matches!(sent.answer, Some(Ok(_)))).map(|sent| sent.transaction.hash.0).collect();
        hashes.len() == 2
    })
    .await;
    assert!(refusals(&world).is_empty(), "{:?}", refusals(&world));
    world.mine_until_none(OPEN, SOON).await;
    assert_eq!(world.state(&id).await, "cancelled");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_strict_node_that_loses_its_newest_blocks_is_given_the_same_bytes_again() {
    let setup = hardhat(Mining::OnDemand).with("TX_CONFIRMATIONS", 1).with("TX_REORG_LOOKBACK_BLOCKS", 6).with("TX_STUCK_SECONDS", 600);
    let world = World::with(setup).await;
    world.anvil.mine(8).await;
    let all = world.serve("all", &[]).await;
    let before: Value = world.anvil.ask("evm_snapshot", json!([])).await;
    let id = world.accept(&all, &world.record()).await;
    world.until_state(&id, "submitted").await;
    world.anvil.mine(1).await;
    world.until_state(&id, "completed").await;
    let bytes = attempts(&world).await;
    assert_eq!(world.anvil.ask("evm_revert", json!([before])).await, Value::Bool(true));
    assert_eq!(world.anvil.next_nonce(world.signers[0].address).await, 0, "the other fork has never seen it");
    // The fork becomes the longer one, with other blocks.
    world.anvil.set_next_base_fee(GWEI / 2).await;
    eventually("the end is undone", SOON, async || {
        world.anvil.mine(1).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        world.count("lineage_revivals").await == 1
    })
    .await;
    world.mine_until_none(OPEN, SOON).await;
    world.until_completed(SOON).await;
    assert_eq!(attempts(&world).await, bytes, "the same bytes");
    world.finish().await;
}

fn silenced(world: &World) -> Vec<Rule> {
    world.providers.iter().map(|provider| provider.reset("eth_sendRawTransaction")).collect()
}

fn ethereumjs() -> Setup {
    Setup { node: Node::EthereumJs, mining: Mining::OnDemand, ..Setup::default() }
        .with("TX_CONFIRMATIONS", 2)
        .with("TX_REORG_LOOKBACK_BLOCKS", 8)
        .with("TX_STUCK_SECONDS", 600)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn siblings_that_win_undo_an_end_and_the_proof_is_of_the_block_that_stays() {
    let world = World::with(ethereumjs()).await;
    world.anvil.mine(10).await;
    let all = world.serve("all", &[]).await;
    let ids = world.accept_records(&all, 3).await;
    eventually("all are pending", SOON, async || world.count("jobs WHERE state = 'submitted'").await == 3).await;
    world.mine_until_none(OPEN, SOON).await;
    world.until_completed(SOON).await;
    let bytes: BTreeSet<_> = attempts(&world).await.into_iter().collect();
    let block = async |id: &str| world.job(&all, id).await["transaction"]["block"]["hash"].as_str().map(ToOwned::to_owned);
    let before = block(&ids[0]).await.expect("a block");
    // Everything from the block of the first on has siblings, one more than there were blocks, and none of them has a transaction.
    let height = world.anvil.height().await;
    let mined = world.job(&all, &ids[0]).await["transaction"]["block"]["number"].as_u64().expect("a number");
    // Nobody may send before the fork is whole: its later blocks would have what is sent again.
    let held = silenced(&world);
    world.anvil.reorg(height - mined + 1, &[]).await;
    assert_eq!(world.anvil.next_nonce(world.signers[0].address).await, 0);
    held.into_iter().for_each(Rule::lift);
    let left: Value = world.anvil.ask("eth_getBlockByHash", json!([before, false])).await;
    assert_eq!(left["hash"], before, "the node still knows the block that lost");
    eventually("the ends are undone", SOON, async || world.count("lineage_revivals").await == 3).await;
    world.mine_until_none(OPEN, SOON).await;
    world.until_completed(SOON).await;
    assert_eq!(attempts(&world).await.into_iter().collect::<BTreeSet<_>>(), bytes, "the same bytes");
    let after = block(&ids[0]).await.expect("a block");
    assert_ne!(after, before);
    for id in &ids {
        let events = world.events(id).await;
        let told: Vec<&str> = events.iter().map(String::as_str).filter(|event| ["completed", "reorged"].contains(event)).collect();
        assert_eq!(told, ["completed", "reorged", "completed"], "{events:?}");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sibling_before_the_confirmations_is_no_end_at_all() {
    let world = World::with(ethereumjs().with("TX_CONFIRMATIONS", 4)).await;
    world.anvil.mine(10).await;
    let (all, id) = pending(&world).await;
    world.anvil.mine(2).await;
    assert_eq!(world.anvil.recorded().await.len(), 1, "it is mined");
    let held = silenced(&world);
    world.anvil.reorg(2, &[]).await;
    assert!(world.anvil.recorded().await.is_empty(), "and no longer");
    held.into_iter().for_each(Rule::lift);
    world.mine_until_none(OPEN, SOON).await;
    let events = world.events(&id).await;
    assert!(!events.iter().any(|event| event == "reorged"), "nothing was told before its time: {events:?}");
    let job = world.job(&all, &id).await;
    let receipt = world.anvil.receipt(job["transaction"]["hash"].as_str().unwrap()).await;
    assert_eq!((job["state"].as_str(), &job["transaction"]["block"]["hash"]), (Some("completed"), &receipt["blockHash"]), "{job}");
    world.finish().await;
}
