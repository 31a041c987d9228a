//! Money and windows: no nonce without the money for it, no more open nonces than the node keeps, and no operator's hand to go on.

use crate::support::anvil::{CHAIN_ID, Mining, RECORDER};
use crate::support::command;
use crate::support::wait::{eventually, found};
use crate::support::world::{Instance, POOL, SOON, Setup, World};
use entity::values::Address;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const UNFUNDED: &str = "lanes WHERE state = 'paused' AND reason LIKE 'insufficient_funds: %'";
const ETHER: &str = "1000000000000000000";

fn transfer(wei: &str) -> Value {
    let to = Address([0x77; 20]).to_string();
    json!({"kind": "transfer", "chain_id": CHAIN_ID, "pool": POOL, "to": to, "value": wei})
}

async fn on_demand(name: &'static str, value: impl ToString) -> World {
    World::with(Setup { mining: Mining::OnDemand, ..Setup::default() }.with(name, value)).await
}

fn nonces(world: &World) -> BTreeSet<u64> {
    world.sent().into_iter().map(|sent| sent.transaction.nonce).collect()
}

/// Mines a block at a time until nothing is open; `each` looks at the world after every block.
async fn mine_all(world: &World, within: Duration, each: impl AsyncFn(i64, i64)) {
    found("all are mined", within, async || {
        let next = i64::try_from(world.anvil.next_nonce(world.signers[0].address).await).unwrap();
        let fence: i64 = world.scalar("SELECT next_nonce FROM holdfast.lanes").await;
        each(next, fence).await;
        world.anvil.mine(1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        (world.count("jobs WHERE finished_at IS NULL").await == 0).then_some(())
    })
    .await;
}

/// The alert on a low balance, as its rule has it.
async fn balance_is_low(world: &World, at: &Instance) -> bool {
    let signer = world.signers[0].address.to_string();
    let balance = world.metric(at, "holdfast_signer_balance_native", &[&signer]).await;
    balance < world.metric(at, "holdfast_signer_balance_floor_native", &[&signer]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_13_an_empty_signer_binds_no_nonce_and_goes_on_by_itself_when_it_is_topped_up() {
    let world = World::with(Setup { first_nonce: 5, ..Setup::default() }).await;
    let signer = world.signers[0].address;
    world.anvil.fund(signer, 0).await;
    // A node whose estimate looks at no balance.
    world.providers.iter().for_each(|provider| drop(provider.reply("eth_estimateGas", json!({"result": "0x186a0"}))));
    let all = world.serve("all", &[]).await;
    world.accept_records(&all, 3).await;
    eventually("the lane pauses with a reason", SOON, async || world.count(UNFUNDED).await == 1).await;
    eventually("every job was tried", SOON, async || {
        world.scalar::<i64>("SELECT count(DISTINCT job_id) FROM holdfast.job_attempts WHERE outcome IS NOT NULL").await == 3
    })
    .await;
    assert!(balance_is_low(&world, &all).await);
    assert_eq!(
        (world.sent().len(), world.count("lineages").await, world.scalar::<i64>("SELECT next_nonce FROM holdfast.lanes").await),
        (0, 0, 5)
    );
    assert_eq!(world.count("jobs WHERE finished_at IS NOT NULL").await, 0);
    world.anvil.fund(signer, 10).await;
    world.until_completed(SOON).await;
    assert_eq!((nonces(&world), world.instances().len()), ((5..8).collect(), 1));
    assert_eq!(world.rows("SELECT state, coalesce(reason, '-') FROM holdfast.lanes").await, ["active|-"]);
    assert!(!balance_is_low(&world, &all).await);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn non_09_a_plan_that_the_balance_does_not_cover_beside_what_is_open_binds_no_nonce() {
    let world = on_demand("TX_LANE_WIDTH", 64).await;
    let signer = world.signers[0].address;
    // Two transfers of an ether and their gas, and not a third.
    world.anvil.fund(signer, 3).await;
    let all = world.serve("all", &[]).await;
    for _ in 0..5 {
        world.accept(&all, &transfer(ETHER)).await;
    }
    eventually("two are with the chain, the others were told why not", SOON, async || {
        let refused = "SELECT count(DISTINCT job_id) FROM holdfast.job_attempts WHERE error_type = 'insufficient_funds' OR detail LIKE '%cannot pay%'";
        world.count("jobs WHERE state = 'submitted'").await == 2 && world.scalar::<i64>(refused).await == 3
    })
    .await;
    assert_eq!(nonces(&world), (0..2).collect());
    assert!(world.sent().iter().all(|sent| sent.answer.as_ref().is_some_and(Result::is_ok)), "no node had to say so");
    world.anvil.fund(signer, 10).await;
    mine_all(&world, SOON * 2, async |_, _| {}).await;
    world.until_completed(SOON).await;
    assert_eq!(nonces(&world), (0..5).collect());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_10_a_balance_that_goes_with_ten_in_flight_pauses_the_lane_and_a_top_up_ends_all_of_them() {
    let world = on_demand("TX_LANE_WIDTH", 16).await;
    let signer = world.signers[0].address;
    let all = world.serve("all", &[]).await;
    world.accept_records(&all, 10).await;
    eventually("ten are in flight", SOON, async || world.count("jobs WHERE state = 'submitted'").await == 10).await;
    world.anvil.fund(signer, 0).await;
    world.anvil.ask("anvil_dropAllTransactions", json!([])).await;
    world.anvil.mine(1).await;
    eventually("the lane pauses", SOON, async || world.count(UNFUNDED).await == 1).await;
    let more = world.accept_records(&all, 2).await;
    eventually("a node refused the head", SOON, async || {
        world.count("lineages WHERE nonce = 0 AND last_answer = 'insufficient_funds'").await == 1
    })
    .await;
    assert_eq!(world.scalar::<i64>("SELECT next_nonce FROM holdfast.lanes").await, 10, "{more:?}");
    assert_eq!(world.count("jobs WHERE finished_at IS NOT NULL").await, 0);
    world.anvil.fund(signer, 10).await;
    mine_all(&world, SOON * 2, async |_, _| {}).await;
    world.until_completed(SOON).await;
    assert_eq!(nonces(&world), (0..12).collect());
    let mut hashes: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for sent in world.sent() {
        hashes.entry(sent.transaction.nonce).or_default().insert(sent.transaction.hash.to_string());
    }
    assert_eq!(world.count("tx_attempts WHERE purpose = 'noop'").await, 0, "{hashes:?}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_15_a_sender_that_becomes_delegated_with_ten_in_flight_goes_on_one_at_a_time() {
    const REFUSAL: &str = "in-flight transaction limit reached for delegated accounts";
    let world = on_demand("TX_LANE_WIDTH", 16).await;
    let signer = world.signers[0].address;
    let all = world.serve("all", &[]).await;
    world.accept_records(&all, 10).await;
    eventually("ten are in flight", SOON, async || world.count("jobs WHERE state = 'submitted'").await == 10).await;
    let designator = format!("0xef0100{}", &RECORDER.to_string()[2..]);
    world.anvil.ask("anvil_setCode", json!([signer.to_string(), designator])).await;
    world.providers.iter().for_each(|provider| drop(provider.refuse_beyond(1, REFUSAL)));
    // The pool keeps none of them but what it is given again.
    world.anvil.ask("anvil_dropAllTransactions", json!([])).await;
    world.anvil.mine(1).await;
    eventually("the delegation is seen", SOON * 2, async || world.count("lanes WHERE delegated").await == 1).await;
    let lane = command::data(&world, &["lanes", "explain", &signer.to_string()]).await["items"][0]["lane"].take();
    assert_eq!(
        (&lane["width"], &lane["delegated"], &lane["free"]),
        (&json!(1), &json!(true), &json!(0)),
        "what counts is told, not what is configured"
    );
    world.accept_records(&all, 3).await;
    mine_all(&world, SOON * 3, async |next, fence| {
        assert!(fence - next <= 1.max(10 - next), "the fence is at {fence} and the chain at {next}");
    })
    .await;
    world.until_completed(SOON).await;
    assert_eq!(nonces(&world), (0..13).collect());
    assert_eq!(world.count("tx_attempts WHERE purpose = 'noop'").await, 0);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_16_two_hundred_jobs_on_a_profile_of_eight_show_no_node_a_nonce_past_its_window() {
    const WINDOW: u64 = 8;
    let world = World::with(Setup::default().with("TX_LANE_WIDTH", 0).with("TX_CHAIN_PROFILE", "hyperevm")).await;
    world.providers.iter().for_each(|provider| drop(provider.max_slots(WINDOW)));
    let all = world.serve("all", &[]).await;
    assert_eq!(world.rows("SELECT width FROM holdfast.lanes").await, ["8"]);
    world.accept_records(&all, 200).await;
    world.until_completed(SOON * 3).await;
    let sent = world.sent();
    assert_eq!(sent.iter().filter(|sent| !sent.forwarded).count(), 0, "a node was shown more than it keeps");
    assert_eq!(nonces(&world), (0..200).collect());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_keeps_fewer_narrows_the_window_and_every_job_still_ends() {
    let world = on_demand("TX_LANE_WIDTH", 16).await;
    world.providers.iter().for_each(|provider| drop(provider.refuse_beyond(4, "account limit exceeded: pooled 4 txs")));
    let all = world.serve("all", &[]).await;
    world.accept_records(&all, 16).await;
    eventually("the window is what the node keeps", SOON, async || world.rows("SELECT width FROM holdfast.lanes").await == ["4"]).await;
    mine_all(&world, SOON * 2, async |_, _| {}).await;
    world.until_completed(SOON).await;
    assert_eq!(nonces(&world), (0..16).collect());
    world.finish().await;
}
