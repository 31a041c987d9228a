//! A real process dies at each step in turn, and a fresh one finishes what it began: once, with the same bytes, without a gap.

use crate::support::anvil::Mining;
use crate::support::wait::eventually;
use crate::support::world::{SOON, Setup, World};
use futures::StreamExt;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering;

const JOBS: usize = 3;
/// Most worlds that live at one time: each waits for leases and locks most of its life.
const AT_ONCE: usize = 5;

/// Submits under a stable key; None when the process died before it answered.
async fn submitted(world: &World, at: &crate::support::world::Instance, bodies: &[Value]) -> Vec<Option<String>> {
    let mut ids = Vec::new();
    for (place, body) in bodies.iter().enumerate() {
        let reply = world.try_post(at, "/v1/jobs", &format!("job-{place}"), body).await;
        ids.push(reply.ok().filter(|reply| matches!(reply.status, 200 | 202)).map(|reply| reply.id()));
    }
    ids
}

async fn dies_at(point: &str) {
    let world = World::start().await;
    let first = world.serve("all", &[("HOLDFAST_FAIL_POINT", point)]).await;
    let bodies: Vec<Value> = (0..JOBS).map(|_| world.record()).collect();
    let before = submitted(&world, &first, &bodies).await;
    assert_eq!(first.exit(SOON).await, -9, "{point}: {}", first.tail());
    let stored = bytes(&world).await;
    let second = world.serve("all", &[]).await;
    let after = submitted(&world, &second, &bodies).await;
    for (acknowledged, now) in before.iter().zip(&after) {
        assert!(now.is_some() && (acknowledged.is_none() || acknowledged == now), "{point}: {before:?} became {after:?}");
    }
    world.until_completed(SOON).await;
    assert_eq!(world.count("jobs").await, i64::try_from(JOBS).unwrap(), "{point}");
    // What was signed before the death is what was sent, and nothing else was for that nonce.
    let mut sent: BTreeMap<u64, HashSet<String>> = BTreeMap::new();
    for one in world.sent() {
        sent.entry(one.transaction.nonce).or_default().insert(one.transaction.hash.to_string());
    }
    assert!(sent.values().all(|hashes| hashes.len() == 1), "{point}: {sent:?}");
    for (nonce, hash) in stored {
        assert_eq!(sent[&nonce], HashSet::from([hash]), "{point}: nonce {nonce}");
    }
    world.finish().await;
}

/// The nonces with stored bytes, and their hashes.
async fn bytes(world: &World) -> Vec<(u64, String)> {
    let sql =
        "SELECT l.nonce, '0x' || encode(a.hash, 'hex') AS hash FROM holdfast.tx_attempts a JOIN holdfast.lineages l ON l.id = a.lineage_id";
    let rows = world.rows(sql).await;
    rows.iter().map(|row| row.split_once('|').map(|(nonce, hash)| (nonce.parse().unwrap(), hash.to_owned())).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enq_06_enq_07_enq_08_jrn_whatever_the_step_at_which_a_process_dies_every_job_ends_once() {
    assert!(!holdfast::fail::POINTS.is_empty());
    all_survive(holdfast::fail::POINTS, |point| tokio::spawn(dies_at(point))).await;
}

/// Each death is a task of its own, so that one that fails names its point and the others still run.
async fn all_survive(points: &'static [&'static str], dies: impl Fn(&'static str) -> tokio::task::JoinHandle<()>) {
    let ended: Vec<_> = futures::stream::iter(points.iter().map(|point| dies(point))).buffered(AT_ONCE).collect().await;
    let failed: Vec<_> = points.iter().zip(ended).filter_map(|(point, end)| end.err().map(|error| format!("{point}: {error}"))).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// A price or a revival is what the process dies of; a fresh one goes on from what is stored.
async fn dies_in_the_lane_at(point: &'static str) {
    let setup = Setup { mining: Mining::OnDemand, ..Setup::default() };
    let setup = setup.with("TX_STUCK_SECONDS", 1).with("TX_CONFIRMATIONS", 1).with("TX_REORG_LOOKBACK_BLOCKS", 8);
    let world = World::with(setup).await;
    let first = world.serve("all", &[("HOLDFAST_FAIL_POINT", point)]).await;
    world.anvil.mine(10).await;
    let ids = world.accept_records(&first, JOBS).await;
    eventually("all are sent", SOON, async || world.count("jobs WHERE state = 'submitted'").await == JOBS as i64).await;
    let first_bytes: HashSet<String> = bytes(&world).await.into_iter().map(|(_, hash)| hash).collect();
    if point.starts_with("replacement") {
        world.anvil.set_next_base_fee(10_000_000_000).await;
        world.anvil.mine(1).await;
    } else {
        world.anvil.mine(1).await;
        world.until_completed(SOON).await;
        world.anvil.reorg(1, &[]).await;
        world.anvil.drop_all_transactions().await;
        world.anvil.mine(1).await;
    }
    assert_eq!(first.exit(SOON).await, -9, "{point}: {}", first.tail());
    world.serve("all", &[]).await;
    if point.starts_with("revival") {
        eventually("the ends are undone", SOON, async || world.count("lineage_revivals").await == JOBS as i64).await;
        assert_eq!(bytes(&world).await.len(), JOBS, "{point}: nothing new is signed");
    }
    world.mine_until_none("jobs WHERE finished_at IS NULL", SOON).await;
    world.until_completed(SOON).await;
    assert_eq!(world.rows("SELECT nonce FROM holdfast.lineages ORDER BY nonce").await, ["0", "1", "2"], "{point}: one nonce a job");
    let stored: HashSet<String> = bytes(&world).await.into_iter().map(|(_, hash)| hash).collect();
    assert!(stored.is_superset(&first_bytes) && ids.len() == JOBS, "{point}: no attempt is forgotten");
    // That nothing is sent which is not stored is among the invariants.
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jrn_txr_a_process_that_dies_in_a_price_or_in_a_revival_leaves_what_another_finishes() {
    all_survive(holdfast::fail::LANE_POINTS, |point| tokio::spawn(dies_in_the_lane_at(point))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enq_15_a_processor_that_panics_is_tried_again_and_then_the_job_is_dead_with_the_reason() {
    let world = World::start().await;
    world.panics_expected.store(true, Ordering::Relaxed);
    let all = world.serve("all", &[("HOLDFAST_FAIL_POINT", "worker.planned:panic"), ("JOB_MAX_ATTEMPTS", "2")]).await;
    let id = world.accept(&all, &world.record()).await;
    world.until_state(&id, "dead").await;
    let job = world.job(&all, &id).await;
    assert_eq!((&job["error"]["type"], &job["attempts"]), (&Value::from("panic"), &Value::from(2)), "{job}");
    assert!(job["error"]["detail"].as_str().is_some_and(|detail| detail.contains("worker.planned")), "{job}");
    assert_eq!(world.rows("SELECT outcome FROM holdfast.job_attempts ORDER BY number").await, ["retry", "dead"]);
    assert_eq!(world.count("lineages").await, 0);
    assert!(all.is_alive(), "a panic of one job is not the end of the process");
    world.finish().await;
}
