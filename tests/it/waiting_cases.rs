//! Jobs that wait, and what they may cost the others.

use crate::support::anvil::Mining;
use crate::support::wait::eventually;
use crate::support::world::{POOL, SOON, Setup, World, until_count};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The world's two signers in a pool each.
fn two_pools(world: &World) -> String {
    let keys: Value = serde_json::from_str(world.setting("SIGNER_KEYS")).expect("JSON");
    json!({ POOL: [keys[POOL][0]], "local:others": [keys[POOL][1]] }).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_without_room_leaves_hands_for_the_others() {
    let setup = Setup { lanes: 2, mining: Mining::OnDemand, ..Setup::default() }.with("TX_LANE_WIDTH", 1).with("QUEUE_CONCURRENCY", 4);
    let world = World::with(setup).await;
    let all = world.serve("all", &[("SIGNER_KEYS", &two_pools(&world))]).await;
    let first = world.accept(&all, &world.record()).await;
    world.until_state(&first, "submitted").await;
    // Its only nonce is taken, and nothing is mined: each of these waits for a block as long as it may.
    world.accept_records(&all, 40).await;
    until_count(&world, "job_attempts WHERE outcome = 'snoozed'", SOON, |count| count > 0).await;
    let began = Instant::now();
    let mut other = world.record();
    other["pool"] = json!("local:others");
    let other = world.accept(&all, &other).await;
    world.until_state(&other, "submitted").await;
    // With four hands, forty jobs that hold one for 3 s each are in the way for 30 s.
    assert!(began.elapsed() < Duration::from_secs(10), "the other pool waited for {:?}", began.elapsed());
    world.mine_until_none("jobs WHERE finished_at IS NULL", SOON * 2).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_market_above_the_limit_is_seen_without_asking_a_node() {
    let setup = Setup { mining: Mining::OnDemand, ..Setup::default() };
    let world = World::with(setup.with("TX_MAX_FEE_PER_GAS_WEI", 1_000).with("TX_MIN_PRIORITY_FEE_PER_GAS_WEI", 1)).await;
    let all = world.serve("all", &[]).await;
    world.accept_records(&all, 10).await;
    until_count(&world, "job_attempts WHERE error_type = 'fee_over_limit'", SOON, |count| count >= 10).await;
    let asked: u64 = world.providers.iter().map(|provider| provider.calls("eth_estimateGas") + provider.calls("eth_call")).sum();
    assert_eq!(asked, 0, "no call was simulated");
    eventually("no nonce is bound", SOON, async || world.count("lineages").await == 0).await;
    world.finish_open().await;
}
