//! A real process dies at each step in turn, and a fresh one finishes what it began: once, with the same bytes, without a gap.

use crate::support::world::{SOON, World};
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
    // Each death is a task of its own, so that one that fails names its point and the others still run.
    let deaths = futures::stream::iter(holdfast::fail::POINTS.iter().map(|point| tokio::spawn(dies_at(point))));
    let ended: Vec<_> = deaths.buffered(AT_ONCE).collect().await;
    let failed: Vec<_> =
        holdfast::fail::POINTS.iter().zip(ended).filter_map(|(point, end)| end.err().map(|error| format!("{point}: {error}"))).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
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
