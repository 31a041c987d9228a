//! Nonces that strangers had used up, until a reorganisation undid that: nobody owns them, and everything behind them waits.

use crate::support::anvil::Mining;
use crate::support::command;
use crate::support::wait::eventually;
use crate::support::world::{Instance, SOON, Setup, World};
use std::sync::Arc;

const OPEN: &str = "jobs WHERE finished_at IS NULL";
const GAPS: &str = "jobs WHERE project = 'holdfast'";
const LINEAGES: &str =
    "SELECT l.nonce, j.project, l.state FROM holdfast.lineages l JOIN holdfast.jobs j ON j.id = l.job_id ORDER BY l.nonce";

/// A lane whose fence followed two nonces of a stranger that a reorganisation then took back.
async fn undone() -> (World, Arc<Instance>) {
    let setup = Setup { mining: Mining::OnDemand, ..Setup::default() };
    let setup = setup.with("TX_STUCK_SECONDS", 2).with("TX_CONFIRMATIONS", 1).with("TX_REORG_LOOKBACK_BLOCKS", 8);
    let world = World::with(setup).await;
    world.anvil.mine(8).await;
    let all = world.serve("all", &[]).await;
    let signer = world.signers[0].address;
    for _ in 0..2 {
        world.anvil.use_nonce(signer).await;
        world.anvil.mine(1).await;
    }
    eventually("the fence has followed", SOON, async || {
        world.anvil.mine(1).await;
        world.rows("SELECT next_nonce FROM holdfast.lanes").await == ["2"]
    })
    .await;
    let height = world.anvil.height().await;
    world.anvil.reorg(height - 8, &[]).await;
    world.anvil.drop_all_transactions().await;
    world.anvil.mine(1).await;
    assert_eq!(world.anvil.next_nonce(signer).await, 0, "the chain waits for a nonce that nobody owns");
    (world, all)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonces_that_a_reorganisation_took_from_a_stranger_are_used_up_and_what_waits_behind_them_is_mined() {
    let (world, all) = undone().await;
    let id = world.accept(&all, &world.record()).await;
    world.until_state(&id, "submitted").await;
    eventually("both are filled", SOON, async || world.count(GAPS).await == 2).await;
    world.mine_until_none(OPEN, SOON).await;
    world.until_completed(SOON).await;
    assert_eq!(world.rows(LINEAGES).await, ["0|holdfast|mined", "1|holdfast|mined", "2|tests|mined"]);
    assert_eq!(world.count("operator_actions WHERE action = 'lanes.fill_gap'").await, 2);
    assert_eq!(world.metric(&all, "holdfast_gap_fills_total", &[]).await, 2.0);
    let (code, told) = command::run(&world, &["keys", "create", "--project", "holdfast", "--reason", "test"], &[]).await;
    assert!(code != 0 && told.contains("the service's own"), "{told}");
    // They are nobody's: the API of a project does not show them.
    let listed = world.get(&all, "/v1/jobs").await;
    let text = listed.body.to_string();
    assert!(text.contains(&id) && !text.contains("fills a gap"), "{text}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_who_comes_back_wins_and_the_lane_goes_on() {
    let (world, all) = undone().await;
    let held: Vec<_> = world.providers.iter().map(|provider| provider.reset("eth_sendRawTransaction")).collect();
    let id = world.accept(&all, &world.record()).await;
    eventually("both are signed", SOON, async || world.count("tx_attempts").await >= 2).await;
    let signer = world.signers[0].address;
    for _ in 0..2 {
        world.anvil.use_nonce(signer).await;
    }
    world.anvil.mine(1).await;
    held.into_iter().for_each(|rule| rule.lift());
    world.mine_until_none(OPEN, SOON).await;
    assert_eq!(world.state(&id).await, "completed");
    assert_eq!(world.rows(LINEAGES).await, ["0|holdfast|superseded", "1|holdfast|superseded", "2|tests|mined"]);
    assert_eq!(world.rows("SELECT DISTINCT state FROM holdfast.jobs WHERE project = 'holdfast'").await, ["dead"]);
    world.finish().await;
}

/// A lane whose only nonce was given out and never signed when a stranger used it up: its job has another one.
async fn unsigned(lookback: u64) -> (World, Arc<Instance>, String) {
    let setup = Setup { mining: Mining::OnDemand, ..Setup::default() };
    let setup = setup.with("TX_STUCK_SECONDS", 2).with("TX_CONFIRMATIONS", 1).with("TX_REORG_LOOKBACK_BLOCKS", lookback);
    let world = World::with(setup.with("QUEUE_LOCK_SECONDS", 120)).await;
    world.anvil.mine(20).await;
    let engine = world.engine().await;
    let relayer = world.serve("relayer", &[("HOLDFAST_FAIL_POINT", "lane.reserved")]).await;
    let id = world.accept(&engine, &world.record()).await;
    assert_eq!(relayer.exit(SOON).await, -9);
    world.anvil.use_nonce(world.signers[0].address).await;
    world.anvil.mine(1).await;
    let relayer = world.serve("relayer", &[]).await;
    eventually("its job has another nonce", SOON, async || world.rows(LINEAGES).await == ["0|tests|superseded", "1|tests|broadcast"]).await;
    assert_eq!(world.count("tx_attempts a JOIN holdfast.lineages l ON l.id = a.lineage_id WHERE l.nonce = 0").await, 0);
    (world, relayer, id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unsigned_nonce_that_a_reorganisation_took_from_a_stranger_is_filled() {
    let (world, relayer, id) = unsigned(8).await;
    world.anvil.reorg(2, &[]).await;
    world.anvil.drop_all_transactions().await;
    world.anvil.mine(1).await;
    world.mine_until_none(OPEN, SOON).await;
    assert_eq!(world.state(&id).await, "completed");
    let mut rows = world.rows(LINEAGES).await;
    rows.sort();
    assert_eq!(rows, ["0|holdfast|mined", "0|tests|abandoned", "1|tests|mined"]);
    assert_eq!(world.metric(&relayer, "holdfast_gap_fills_total", &[]).await, 1.0);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unsigned_nonce_that_a_stranger_keeps_is_his_for_good() {
    let (world, _relayer, id) = unsigned(4).await;
    world.mine_until_none("lineages WHERE finalized_at IS NULL", SOON).await;
    assert_eq!(world.state(&id).await, "completed");
    assert_eq!(world.rows(LINEAGES).await, ["0|tests|superseded", "1|tests|mined"]);
    world.finish().await;
}
