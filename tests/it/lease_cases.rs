//! Who settles a lane: one process at a time, however slow the endpoints and whoever was asleep.

use crate::support::wait::eventually;
use crate::support::world::{SOON, Setup, World};
use std::time::Duration;

const LOST: &str = "holdfast_lane_leases_lost_total";

async fn holder(world: &World) -> Option<String> {
    let sql = "SELECT w.instance FROM holdfast.lanes l JOIN holdfast.workers w ON w.id = l.lease_holder WHERE l.lease_until > now()";
    world.rows(sql).await.pop()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_that_lasts_longer_than_the_lease_keeps_it_and_settles() {
    // A lease is 3 rounds and 5 s: 8 s.
    let world = World::with(Setup::default().with("RPC_TIMEOUT_MILLISECONDS", 20_000)).await;
    let all = world.serve("all", &[]).await;
    let id = world.accept(&all, &world.record()).await;
    world.until_state(&id, "submitted").await;
    let mut slow = Vec::new();
    for provider in &world.providers {
        for method in ["eth_getTransactionCount", "eth_getTransactionReceipt"] {
            slow.push(provider.hang(method, Duration::from_secs(5)));
        }
    }
    world.until_state(&id, "completed").await;
    assert_eq!(world.metric(&all, LOST, &[]).await, 0.0);
    drop(slow);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_11_a_process_that_wakes_up_after_its_lease_settles_nothing_and_says_so() {
    let world = World::start().await;
    let engine = world.engine().await;
    let first = world.serve("relayer", &[("INSTANCE_ID", "first")]).await;
    eventually("the first has the lane", SOON, async || holder(&world).await.as_deref() == Some("first")).await;
    let second = world.serve("relayer", &[("INSTANCE_ID", "second")]).await;
    let ids = world.accept_records(&engine, 20).await;
    world.until_state(&ids[0], "submitted").await;
    first.freeze();
    eventually("the second has taken over", SOON, async || holder(&world).await.as_deref() == Some("second")).await;
    world.until_completed(SOON).await;
    let ends = "SELECT id::text || state || ended_at::text || updated_at::text FROM holdfast.lineages ORDER BY nonce";
    let before = world.rows(ends).await;
    first.thaw();
    eventually("the first has noticed", SOON, async || world.metric(&first, LOST, &[]).await >= 1.0).await;
    first.logged("lane_lease_lost", SOON).await;
    assert_eq!(holder(&world).await.as_deref(), Some("second"));
    assert_eq!(world.rows(ends).await, before, "it ended nothing a second time");
    assert_eq!(world.metric(&second, LOST, &[]).await, 0.0);
    world.finish().await;
}
