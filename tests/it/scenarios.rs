//! Faults that were met in the field, brought about on purpose. The list of all of them, with those that other files show, is in
//! docs/scenarios.md.

use crate::support::anvil::Mining;
use crate::support::parts::OwnRedis;
use crate::support::wait::{eventually, found};
use crate::support::world::{Instance, Redis, SOON, Setup, World};
use entity::values::hex_from_bytes;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const SEND: &str = "eth_sendRawTransaction";
const RECEIPT: &str = "eth_getTransactionReceipt";
const OPEN: &str = "jobs WHERE finished_at IS NULL";
const GWEI: u64 = 1_000_000_000;

fn on_demand() -> Setup {
    Setup { mining: Mining::OnDemand, ..Setup::default() }
}

/// A process that sends to every provider.
async fn to_all(world: &World) -> Arc<Instance> {
    let others = format!("{},{}", world.providers[1].url, world.providers[2].url);
    world.serve("all", &[("RPC_BROADCAST_URLS", &others)]).await
}

fn said(message: &str) -> Value {
    json!({"error": {"code": -32_000, "message": message}})
}

fn hashes(world: &World) -> BTreeSet<[u8; 32]> {
    world.sent().iter().map(|sent| sent.transaction.hash.0).collect()
}

/// The attempts of a nonce in the order in which they were journaled.
async fn attempts(world: &World) -> Vec<String> {
    world.rows("SELECT '0x' || encode(hash, 'hex') AS hash FROM holdfast.tx_attempts ORDER BY ordinal").await
}

fn raw(world: &World, hash: &str) -> String {
    let sent = world.sent();
    hex_from_bytes(&sent.iter().find(|sent| sent.transaction.hash.to_string() == hash).expect("it was seen").raw)
}

/// Blocks that are too dear for what is pending, until so many attempts are journaled.
async fn until_attempts(world: &World, count: usize) {
    for gwei in (0..).map(|round| 10 * 3_u64.pow(round)) {
        if attempts(world).await.len() >= count {
            return;
        }
        assert!(gwei < 10_000, "no further price is made");
        world.anvil.set_next_base_fee(gwei * GWEI).await;
        world.anvil.mine(1).await;
        let before = attempts(world).await.len();
        eventually("one more is signed", SOON, async || attempts(world).await.len() > before).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_02_a_timeout_here_and_a_nonce_too_low_there_are_one_payment() {
    let world = World::with(Setup::default().with("TX_STUCK_SECONDS", 2)).await;
    let swallowed = world.writer().accept_then_drop(SEND);
    let low = world.providers[1].reply(SEND, said("nonce too low"));
    let low_too = world.providers[2].reply(SEND, said("nonce too low: next nonce 1, tx nonce 0"));
    let hidden: Vec<_> = world.providers.iter().map(|provider| provider.reply(RECEIPT, json!({ "result": null }))).collect();
    let all = to_all(&world).await;
    let id = world.accept(&all, &world.record()).await;
    let signer = world.signers[0].address;
    eventually("it is mined", SOON, async || world.anvil.next_nonce(signer).await == 1).await;
    // The receipts appear five seconds later.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.state(&id).await, "submitted", "nothing is decided without a receipt");
    hidden.into_iter().for_each(|rule| rule.lift());
    world.until_state(&id, "completed").await;
    [swallowed, low, low_too].into_iter().for_each(|rule| rule.lift());
    assert_eq!(world.rows("SELECT nonce FROM holdfast.lineages").await, ["0"], "one nonce, whatever was answered");
    assert_eq!(world.anvil.next_nonce(signer).await, 1);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_03_what_is_known_to_every_node_and_in_no_pool_is_sent_again_until_one_takes_it() {
    let world = World::with(Setup::default()).await;
    // Each says that it has the bytes; none does. Only the third will ever take them.
    let liars: Vec<_> = world.providers.iter().map(|provider| provider.reply(SEND, said("already known"))).collect();
    let all = to_all(&world).await;
    let id = world.accept(&all, &world.record()).await;
    world.until_state(&id, "submitted").await;
    eventually("they were sent again", SOON, async || liars.iter().all(|liar| liar.applied() >= 2)).await;
    let mut liars = liars.into_iter();
    let (first, second, third) = (liars.next().unwrap(), liars.next().unwrap(), liars.next().unwrap());
    third.lift();
    world.until_state(&id, "completed").await;
    assert_eq!(hashes(&world).len(), 1, "the identical bytes each time");
    [first, second].into_iter().for_each(|rule| rule.lift());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_04_the_first_attempt_that_one_node_refused_and_another_took_is_mined_after_the_third_was_signed() {
    let world = World::with(on_demand().with("TX_STUCK_SECONDS", 1)).await;
    let refused = world.writer().reply(SEND, said("transaction underpriced")).times(1);
    let all = to_all(&world).await;
    let id = world.accept(&all, &world.record()).await;
    world.until_state(&id, "submitted").await;
    assert_eq!(refused.applied(), 1);
    until_attempts(&world, 3).await;
    let first = attempts(&world).await[0].clone();
    // The block of a miner who kept the first one.
    world.providers.iter().for_each(|provider| drop(provider.reset(SEND)));
    world.anvil.drop_all_transactions().await;
    world.anvil.set_next_base_fee(GWEI / 10).await;
    world.anvil.ask("eth_sendRawTransaction", json!([raw(&world, &first)])).await;
    world.anvil.mine(1).await;
    world.providers.iter().for_each(crate::support::rpc_proxy::RpcProxy::heal);
    world.mine_until_none(OPEN, SOON).await;
    let job = world.job(&all, &id).await;
    assert_eq!((job["state"].as_str(), job["transaction"]["hash"].as_str()), (Some("completed"), Some(first.as_str())), "{job}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_05_a_base_fee_of_eight_times_for_forty_blocks_above_the_limit_of_three_needs_no_operator() {
    const BEFORE: u64 = GWEI;
    let world = World::with(on_demand().with("TX_STUCK_SECONDS", 1).with("TX_MAX_FEE_PER_GAS_WEI", 3 * BEFORE)).await;
    world.providers.iter().for_each(|provider| drop(provider.geth_rule()));
    world.anvil.set_next_base_fee(BEFORE).await;
    world.anvil.mine(1).await;
    let all = world.serve("all", &[]).await;
    let ids = world.accept_records(&all, 3).await;
    eventually("all are pending", SOON, async || world.count("jobs WHERE state = 'submitted'").await == 3).await;
    for _ in 0..40 {
        world.anvil.set_next_base_fee(8 * BEFORE).await;
        world.anvil.mine(1).await;
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    assert_eq!(world.count("jobs WHERE state = 'submitted'").await, 3, "nothing is given up");
    eventually("the limit is noted", SOON, async || world.count("lineages WHERE capped_at IS NOT NULL").await > 0).await;
    world.anvil.set_next_base_fee(BEFORE / 2).await;
    world.mine_until_none(OPEN, SOON).await;
    world.until_completed(SOON).await;
    assert!(world.sent().iter().all(|sent| sent.transaction.cap <= u128::from(3 * BEFORE)), "no price passed the limit");
    assert_eq!(ids.len(), 3);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_06_a_rising_base_fee_with_a_falling_tip_still_raises_both_fields_by_the_rule() {
    let world = World::with(on_demand().with("TX_STUCK_SECONDS", 1).with("TX_MIN_PRIORITY_FEE_PER_GAS_WEI", 1)).await;
    world.providers.iter().for_each(|provider| drop(provider.reth_rule()));
    // The tips of the past blocks: generous at first, next to nothing afterwards.
    let history = |tip: u64| {
        let ratios = vec![0.5; 20];
        json!({"result": {"oldestBlock": "0x1", "baseFeePerGas": vec!["0x3b9aca00"; 21], "gasUsedRatio": ratios,
                          "reward": vec![vec![format!("{tip:#x}"); 3]; 20]}})
    };
    let generous: Vec<_> = world.providers.iter().map(|provider| provider.reply("eth_feeHistory", history(4 * GWEI))).collect();
    let all = world.serve("all", &[]).await;
    let id = world.accept(&all, &world.record()).await;
    world.until_state(&id, "submitted").await;
    generous.into_iter().for_each(|rule| rule.lift());
    world.providers.iter().for_each(|provider| drop(provider.reply("eth_feeHistory", history(1))));
    until_attempts(&world, 3).await;
    let prices = world.rows("SELECT max_fee_per_gas, max_priority_fee_per_gas FROM holdfast.tx_attempts ORDER BY ordinal").await;
    let prices: Vec<(u128, u128)> =
        prices.iter().map(|row| row.split_once('|').map(|(cap, tip)| (cap.parse().unwrap(), tip.parse().unwrap())).unwrap()).collect();
    let up = |old: u128, new: u128| new > old * 110 / 100;
    assert!(prices.windows(2).all(|pair| up(pair[0].0, pair[1].0) && up(pair[0].1, pair[1].1)), "{prices:?}");
    let refusals: Vec<_> = world.sent().into_iter().filter_map(|sent| sent.answer?.err()).map(|(_, message)| message).collect();
    assert!(!refusals.iter().any(|message| message.contains("underpriced")), "{refusals:?}");
    world.mine_until_none(OPEN, SOON).await;
    world.until_completed(SOON).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_07_a_reorganisation_that_puts_the_no_op_in_the_place_of_the_call_cancels_the_job() {
    let world =
        World::with(on_demand().with("TX_CONFIRMATIONS", 3).with("TX_STUCK_SECONDS", 600).with("TX_REORG_LOOKBACK_BLOCKS", 6)).await;
    let all = world.serve("all", &[]).await;
    world.anvil.mine(8).await;
    let id = world.accept(&all, &world.record()).await;
    world.until_state(&id, "submitted").await;
    let reply = world.post(&all, &format!("/v1/jobs/{id}/cancel"), "", &json!({})).await;
    assert_eq!(reply.status, 202, "{reply:?}");
    eventually("a no-op is sent", SOON, async || hashes(&world).len() == 2).await;
    let [call, noop] = &attempts(&world).await[..] else { panic!("two attempts") };
    // First the call is mined, by a miner who had not seen the no-op.
    world.anvil.drop_all_transactions().await;
    world.providers.iter().for_each(|provider| drop(provider.reset(SEND)));
    world.anvil.ask("eth_sendRawTransaction", json!([raw(&world, call)])).await;
    world.anvil.mine(1).await;
    assert_eq!(world.anvil.recorded().await.len(), 1, "the call is on the chain");
    // Then the other fork wins.
    world.anvil.reorg(1, &[(raw(&world, noop), 0)]).await;
    world.providers.iter().for_each(crate::support::rpc_proxy::RpcProxy::heal);
    world.mine_until_none(OPEN, SOON).await;
    let job = world.job(&all, &id).await;
    assert_eq!((job["state"].as_str(), job["transaction"]["hash"].as_str()), (Some("cancelled"), Some(noop.as_str())), "{job}");
    assert!(world.anvil.recorded().await.is_empty());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_08_one_stuck_far_behind_and_one_with_a_forged_receipt_end_nothing_and_the_truth_does() {
    let world = World::with(on_demand().with("TX_STUCK_SECONDS", 600)).await;
    let all = world.serve("all", &[]).await;
    world.anvil.mine(60).await;
    let id = world.accept(&all, &world.record()).await;
    world.until_state(&id, "submitted").await;
    let hash = attempts(&world).await[0].clone();
    world.providers[1].lag(50);
    let forged = json!({"result": {
        "transactionHash": hash, "transactionIndex": "0x0", "blockHash": format!("0x{}", "ab".repeat(32)), "blockNumber": "0x3e",
        "from": world.signers[0].address.to_string(), "to": crate::support::anvil::RECORDER.to_string(), "cumulativeGasUsed": "0x5208", "gasUsed": "0x5208",
        "contractAddress": null, "logs": [], "logsBloom": format!("0x{}", "00".repeat(256)), "status": "0x0", "effectiveGasPrice": "0x1", "type": "0x2"
    }});
    let forger = world.providers[2].reply(RECEIPT, forged);
    world.anvil.mine(6).await;
    eventually("the forged receipt was told", SOON, async || forger.applied() >= 5).await;
    assert_eq!(world.state(&id).await, "submitted", "one true and one forged answer are no majority");
    world.providers[1].unfreeze();
    world.until_state(&id, "completed").await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_12_a_redis_that_forgets_and_delivers_everything_twice_doubles_nothing() {
    let redis = OwnRedis::start().await;
    let world = World::with(Setup { lanes: 2, redis: Redis::Own(redis), ..Setup::default() }).await;
    let engine = world.engine().await;
    let relayers = [world.serve("relayer", &[("INSTANCE_ID", "a")]).await, world.serve("relayer", &[("INSTANCE_ID", "b")]).await];
    let ids = world.accept_records(&engine, 200).await;
    let mut redis = world.redis().await;
    let base = format!("{}:jobs:", world.prefix);
    let mut doubled = 0_u64;
    // What is being worked on is handed out a second time, again and again: the lock goes and the id is ready once more.
    while world.count("jobs WHERE state IN ('queued', 'processing', 'retry')").await > 0 {
        let active: Vec<String> = redis::cmd("LRANGE").arg(format!("{base}active")).arg(0).arg(-1).query_async(&mut redis).await.unwrap();
        for id in active {
            let mut pipe = redis::pipe();
            pipe.atomic().del(format!("{base}{id}:lock")).ignore().lrem(format!("{base}active"), 0, &id).ignore();
            pipe.zadd(format!("{base}prioritized"), &id, 0).ignore().zadd(format!("{base}marker"), "0", 0).ignore();
            let () = pipe.query_async(&mut redis).await.unwrap();
            doubled += 1;
        }
        if doubled > 50 && doubled < 10_000 {
            let () = redis::cmd("FLUSHALL").query_async(&mut redis).await.unwrap();
            doubled = 10_000;
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    assert!(doubled > 10, "only {doubled} deliveries were doubled");
    world.until_completed(SOON * 2).await;
    assert_eq!(ids.len(), 200);
    assert!(relayers.iter().all(|relayer| relayer.is_alive()));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_17_bytes_that_cannot_be_opened_hold_their_nonce_and_nobody_elses() {
    let world = World::with(Setup { lanes: 2, ..Setup::default() }).await;
    let first = world.serve("all", &[("HOLDFAST_FAIL_POINT", "journal.committed")]).await;
    let id = world.accept(&first, &world.record()).await;
    assert_eq!(first.exit(SOON).await, -9, "{}", first.tail());
    let hash = attempts(&world).await[0].clone();
    let flip = "UPDATE holdfast.tx_attempts SET ciphertext = set_byte(ciphertext, 7, get_byte(ciphertext, 7) # 1)";
    forced(&world, flip).await;
    let second = world.serve("all", &[]).await;
    found("the failure is counted", SOON, async || {
        let failures = world.metric(&second, "holdfast_journal_decrypt_failures_total", &[]).await;
        (failures >= 1.0).then_some(())
    })
    .await;
    let others = world.accept_records(&second, 6).await;
    let held: String = world.scalar("SELECT encode(signer, 'hex') FROM holdfast.lineages ORDER BY created_at LIMIT 1").await;
    let free = format!("lineages WHERE encode(signer, 'hex') <> '{held}' AND state = 'mined'");
    eventually("the other lane goes on", SOON, async || world.count(&free).await >= 1).await;
    assert_eq!(world.count(&format!("jobs WHERE id = '{id}' AND finished_at IS NULL")).await, 1, "it has not ended");
    assert!(world.sent().iter().all(|sent| sent.transaction.nonce != 0 || sent.transaction.hash.to_string() != hash), "it was not sent");
    assert_eq!(world.count(&format!("tx_attempts a JOIN holdfast.lineages l ON l.id = a.lineage_id WHERE l.job_id = '{id}'")).await, 1);
    forced(&world, flip).await;
    world.until_completed(SOON * 2).await;
    let job = world.job(&second, &id).await;
    assert_eq!(job["transaction"]["hash"].as_str(), Some(hash.as_str()), "the bytes that were stored first");
    assert_eq!(others.len(), 6);
    world.finish().await;
}

/// What nobody but the owner may do.
async fn forced(world: &World, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&world.pool).await.expect("the owner may");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_18_one_key_with_two_payloads_at_two_engines_at_once_is_one_job_and_one_refusal() {
    let world = World::start().await;
    let (one, other) = (world.engine().await, world.serve("engine", &[]).await);
    for round in 0..50 {
        let key = format!("pair-{round}");
        let (mine, yours) = (world.record(), world.record());
        let (a, b) = tokio::join!(world.submit(&one, &key, &mine), world.submit(&other, &key, &yours));
        let mut statuses = [a.status, b.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [202, 422], "{a:?} {b:?}");
        let (won, body) = if a.status == 202 { (&a, &mine) } else { (&b, &yours) };
        let stored: String =
            world.scalar(&format!("SELECT '0x' || encode(data, 'hex') FROM holdfast.jobs WHERE id = '{}'", won.id())).await;
        assert_eq!(stored, body["data"], "the job is the one that was accepted");
    }
    assert_eq!(world.count("jobs").await, 50);
    world.finish_open().await;
}
