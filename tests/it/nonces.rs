//! Nonces under every way a send can go wrong: dense, one a job, and never twice.

use crate::support::anvil::Mining;
use crate::support::wait::{eventually, found};
use crate::support::world::{SOON, Setup, World};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

const SEND: &str = "eth_sendRawTransaction";

/// The nonces that the providers saw, each with its hashes.
fn seen(world: &World) -> BTreeMap<u64, HashSet<String>> {
    let mut seen: BTreeMap<u64, HashSet<String>> = BTreeMap::new();
    for sent in world.sent() {
        seen.entry(sent.transaction.nonce).or_default().insert(sent.transaction.hash.to_string());
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_01_a_death_right_after_the_reservation_burns_no_nonce() {
    let world = World::with(Setup { first_nonce: 5, ..Setup::default() }).await;
    world.providers.iter().for_each(|provider| drop(provider.strict_nonce()));
    let engine = world.engine().await;
    for _ in 0..3 {
        // Each one reserves for a fresh job and dies; what the one before left is taken up or waits.
        let relayer = world.serve("relayer", &[("HOLDFAST_FAIL_POINT", "lane.reserved")]).await;
        world.accept(&engine, &world.record()).await;
        assert_eq!(relayer.exit(SOON).await, -9);
    }
    world.serve("relayer", &[]).await;
    world.accept_records(&engine, 5).await;
    world.until_completed(SOON).await;
    assert_eq!(seen(&world).keys().copied().collect::<Vec<_>>(), (5..13).collect::<Vec<_>>());
    assert_eq!(world.anvil.next_nonce(world.signers[0].address).await, 13);
    let unseen = "lineages WHERE sends > 0 AND last_sent_at IS NULL";
    assert_eq!(world.count(unseen).await, 0);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_02_a_send_that_dies_on_the_wire_leaves_no_gap_and_no_second_nonce() {
    let world = World::start().await;
    let all = world.serve("all", &[("QUEUE_CONCURRENCY", "4")]).await;
    let fault = world.writer().reset(SEND).every(2);
    world.accept_records(&all, 20).await;
    eventually("some sends died", SOON, async || fault.applied() >= 3).await;
    fault.lift();
    world.until_completed(SOON).await;
    let seen = seen(&world);
    assert_eq!(seen.keys().copied().collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
    assert!(seen.values().all(|hashes| hashes.len() == 1), "{seen:?}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_04_bytes_that_were_stored_before_a_death_are_the_bytes_that_are_sent() {
    let world = World::start().await;
    let engine = world.engine().await;
    let relayer = world.serve("relayer", &[("HOLDFAST_FAIL_POINT", "journal.committed")]).await;
    let first = world.accept(&engine, &world.record()).await;
    assert_eq!(relayer.exit(SOON).await, -9);
    let stored = world.rows("SELECT '0x' || encode(hash, 'hex') FROM holdfast.tx_attempts").await;
    assert_eq!((stored.len(), world.sent().len()), (1, 0));
    world.serve("relayer", &[]).await;
    let second = world.accept(&engine, &world.record()).await;
    world.until_completed(SOON).await;
    assert_eq!(seen(&world)[&0], HashSet::from([stored[0].clone()]));
    let nonce = async |id: &str| world.job(&engine, id).await["transaction"]["nonce"].as_i64();
    assert_eq!((nonce(&first).await, nonce(&second).await), (Some(0), Some(1)));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn n_09_four_relayers_on_one_signer_give_two_hundred_jobs_two_hundred_dense_nonces() {
    let world = World::start().await;
    let engine = world.engine().await;
    for _ in 0..4 {
        world.launch("relayer", &[("QUEUE_CONCURRENCY", "16"), ("DB_POOL_MAX", "4")]);
    }
    for relayer in &world.instances()[1..] {
        world.until_ready(relayer).await;
    }
    let bodies: Vec<Value> = (0..200).map(|_| world.record()).collect();
    let round = async || {
        let all = bodies.iter().enumerate().map(|(at, body)| {
            let (world, engine) = (&world, &engine);
            async move { world.submit(engine, &format!("n-09-{at}"), body).await }
        });
        futures::future::join_all(all).await
    };
    let first = round().await;
    assert!(first.iter().all(|reply| reply.status == 202), "{:?}", first.iter().find(|reply| reply.status != 202));
    world.until_completed(SOON * 2).await;
    let nonces: BTreeSet<u64> = seen(&world).into_keys().collect();
    assert_eq!(nonces, (0..200).collect());
    let refused: Vec<_> = world.sent().into_iter().filter_map(|sent| sent.answer?.err()).collect();
    let bad = refused.iter().filter(|(_, message)| message.contains("underpriced") || message.contains("too low"));
    assert_eq!(bad.count(), 0, "{refused:?}");
    let sends = world.sent().len();
    let second = round().await;
    assert!(second.iter().zip(&first).all(|(again, before)| again.status == 200 && again.id() == before.id()));
    assert_eq!(world.sent().len(), sends, "a repeated request sends nothing");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_11_never_more_transactions_are_open_than_a_node_keeps() {
    const SLOTS: u64 = 16;
    let world = World::with(Setup { mining: Mining::OnDemand, ..Setup::default() }.with("TX_LANE_WIDTH", SLOTS)).await;
    world.providers.iter().for_each(|provider| drop(provider.max_slots(SLOTS)));
    let all = world.serve("all", &[]).await;
    world.accept_records(&all, 40).await;
    eventually("the lane is full", SOON, async || world.count("lineages WHERE state = 'broadcast'").await == SLOTS as i64).await;
    assert_eq!(world.count("jobs WHERE state = 'submitted'").await, SLOTS as i64, "who waits for room is not told as sent");
    found("all are mined, a block at a time", SOON, async || {
        let open = world.count("lineages WHERE state IN ('allocated', 'signed', 'broadcast')").await;
        let next = i64::try_from(world.anvil.next_nonce(world.signers[0].address).await).unwrap();
        let fence: i64 = world.scalar("SELECT next_nonce FROM holdfast.lanes").await;
        assert!(fence - next <= SLOTS as i64, "{} unmined nonces", fence - next);
        world.anvil.mine(1).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        (open == 0 && world.count("jobs WHERE finished_at IS NULL").await == 0).then_some(())
    })
    .await;
    let dropped = world.sent().into_iter().filter(|sent| !sent.forwarded).count();
    assert_eq!(dropped, 0, "the node had no room for what it was sent");
    world.until_completed(SOON).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_12_the_lowest_transaction_is_sent_again_when_the_node_forgot_it() {
    let world = World::with(Setup { mining: Mining::OnDemand, ..Setup::default() }).await;
    let all = world.serve("all", &[]).await;
    world.accept_records(&all, 5).await;
    eventually("all are pending", SOON, async || world.count("jobs WHERE state = 'submitted'").await == 5).await;
    let lowest = world.sent().into_iter().find(|sent| sent.transaction.nonce == 0).expect("nonce 0").transaction.hash;
    world.anvil.drop_transaction(lowest).await;
    found("all are mined", SOON, async || {
        world.anvil.mine(1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        (world.count("jobs WHERE finished_at IS NULL").await == 0).then_some(())
    })
    .await;
    let of_lowest = world.sent().into_iter().filter(|sent| sent.transaction.nonce == 0);
    let hashes: Vec<_> = of_lowest.map(|sent| sent.transaction.hash).collect();
    assert!(hashes.len() >= 2 && hashes.iter().all(|hash| *hash == lowest), "{hashes:?}");
    world.until_completed(SOON).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_01_a_nonce_too_low_in_disguise_blames_no_provider_and_is_not_sent_again_and_again() {
    let world = World::with(Setup { lanes: 2, ..Setup::default() }).await;
    let all = world.serve("all", &[]).await;
    let refusal = json!({"error": {"code": -32603, "message": "internal error: nonce too low: next nonce 4, tx nonce 3"}});
    let rules: Vec<_> = world.providers.iter().map(|provider| provider.reply(SEND, refusal.clone())).collect();
    let first = world.accept(&all, &world.record()).await;
    world.until_state(&first, "submitted").await;
    let sent = world.sent();
    rules.into_iter().for_each(|rule| rule.lift());
    // It was on the chain all the time; only the answer was about something else.
    let raw = entity::values::hex_from_bytes(&sent[0].raw);
    world.anvil.ask(SEND, json!([raw])).await;
    let others = world.accept_records(&all, 6).await;
    world.until_completed(SOON).await;
    let of_first = world.sent().into_iter().filter(|again| again.transaction.hash == sent[0].transaction.hash).count();
    assert!(of_first <= 2, "{of_first} sends of one transaction");
    assert_eq!(others.len(), 6);
    // 0 is closed.
    assert_eq!(world.metric(&all, "holdfast_rpc_circuit_state", &[]).await, 0.0);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_02_every_way_to_say_already_known_is_acceptance() {
    let world = World::with(Setup { mining: Mining::OnDemand, ..Setup::default() }).await;
    let all = world.serve("all", &[]).await;
    for (code, message) in [
        (-32_000, "already known"),
        (-32_603, "AlreadyKnown"),
        (-32_010, "Known transaction (3b7baba5)"),
        (-32_000, "ALREADY_EXISTS: already known"),
    ] {
        let lost = world.writer().accept_then_drop(SEND).times(1);
        let before = world.sent().len();
        let id = world.accept(&all, &world.record()).await;
        world.until_state(&id, "submitted").await;
        assert_eq!(lost.applied(), 1, "{message}");
        lost.lift();
        let known = world.writer().reply(SEND, json!({"error": {"code": code, "message": message}}));
        eventually("the bytes are sent again", SOON, async || world.sent().len() > before + 1).await;
        known.lift();
        let answer: String = found("the answer is noted", SOON, async || {
            let sql = format!("SELECT coalesce(last_answer, '') FROM holdfast.lineages WHERE job_id = '{id}' AND sends >= 2");
            world.rows(&sql).await.pop()
        })
        .await;
        assert_eq!(answer, "already_known", "{message}");
        world.anvil.mine(3).await;
        world.until_state(&id, "completed").await;
    }
    let seen = seen(&world);
    assert!(seen.len() == 4 && seen.values().all(|hashes| hashes.len() == 1), "{seen:?}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_whose_signer_cannot_pay_pauses_and_goes_on_by_itself_when_it_is_topped_up() {
    let world = World::start().await;
    let signer = world.signers[0].address;
    world.anvil.fund(signer, 0).await;
    let all = world.serve("all", &[]).await;
    world.accept_records(&all, 3).await;
    // Either simulation says so before a nonce, or the node does when it is sent; this node says it at sending.
    eventually("the lane pauses", SOON, async || {
        world.count("lanes WHERE state = 'paused' AND reason LIKE 'insufficient_funds: it holds 0 %'").await == 1
    })
    .await;
    world.anvil.fund(signer, 10).await;
    world.until_completed(SOON).await;
    assert_eq!(world.rows("SELECT state FROM holdfast.lanes").await, ["active"]);
    world.finish().await;
}
