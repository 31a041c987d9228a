//! Ends that a reorganisation undoes.

use crate::support::anvil::Mining;
use crate::support::command;
use crate::support::wait::{eventually, found};
use crate::support::world::{Instance, SOON, Setup, World};
use entity::values::hex_from_bytes;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const OPEN: &str = "jobs WHERE finished_at IS NULL";

fn setup(confirmations: u64) -> Setup {
    Setup { mining: Mining::OnDemand, ..Setup::default() }
        .with("TX_CONFIRMATIONS", confirmations)
        .with("TX_REORG_LOOKBACK_BLOCKS", 6)
        .with("TX_STUCK_SECONDS", 600)
}

async fn mined(world: &World, jobs: usize) -> (Arc<Instance>, Vec<String>) {
    let all = world.serve("all", &[]).await;
    world.anvil.mine(8).await;
    let ids = world.accept_records(&all, jobs).await;
    eventually("all are pending", SOON, async || world.count("jobs WHERE state = 'submitted'").await == i64::try_from(jobs).unwrap()).await;
    (all, ids)
}

fn raws(world: &World) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut sent: Vec<_> = world.sent().into_iter().filter(|sent| seen.insert(sent.transaction.hash.0)).collect();
    sent.sort_by_key(|sent| sent.transaction.nonce);
    sent.iter().map(|sent| hex_from_bytes(&sent.raw)).collect()
}

async fn block_of(world: &World, all: &Instance, id: &str) -> Option<u64> {
    world.job(all, id).await["transaction"]["block"]["number"].as_u64()
}

/// Only these kinds, in their first order.
fn told(events: &[String]) -> Vec<&str> {
    events.iter().map(String::as_str).filter(|event| ["completed", "reorged", "finalized", "dead", "reverted"].contains(event)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_01_a_transaction_that_is_mined_again_in_another_block_is_told_from_there() {
    let world = World::with(setup(2)).await;
    let (all, ids) = mined(&world, 1).await;
    world.anvil.mine(2).await;
    world.until_state(&ids[0], "completed").await;
    let before = block_of(&world, &all, &ids[0]).await.unwrap();
    // The block becomes empty and the transaction stands in the next.
    world.anvil.reorg(2, &[(raws(&world)[0].clone(), 1)]).await;
    world.anvil.mine(1).await;
    found("it stands in the next block", SOON, async || {
        let job = world.job(&all, &ids[0]).await;
        assert_ne!(job["state"], "reverted");
        let block = job["transaction"]["block"]["number"].as_u64();
        world.anvil.mine(1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        (job["state"] == "completed" && block == Some(before + 1)).then_some(())
    })
    .await;
    world.mine_until_none("lineages WHERE finalized_at IS NULL", SOON).await;
    assert_eq!(told(&world.events(&ids[0]).await), ["completed", "reorged", "completed", "finalized"]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_02_txr_06_a_completed_job_that_a_reorganisation_removes_is_sent_again_with_the_same_bytes() {
    let world = World::with(setup(1)).await;
    let (all, ids) = mined(&world, 3).await;
    world.anvil.mine(1).await;
    world.until_completed(SOON).await;
    let hashes: BTreeSet<_> = world.sent().iter().map(|sent| sent.transaction.hash.0).collect();
    world.anvil.reorg(2, &[]).await;
    world.anvil.drop_all_transactions().await;
    world.anvil.mine(1).await;
    eventually("the ends are undone", SOON, async || world.count("lineage_revivals").await == 3).await;
    world.mine_until_none(OPEN, SOON).await;
    world.until_completed(SOON).await;
    world.mine_until_none("lineages WHERE finalized_at IS NULL", SOON).await;
    for id in &ids {
        assert_eq!(told(&world.events(id).await), ["completed", "reorged", "completed", "finalized"]);
    }
    assert_eq!(world.sent().iter().map(|sent| sent.transaction.hash.0).collect::<BTreeSet<_>>(), hashes, "the same bytes");
    assert!(world.metric(&all, "holdfast_tx_reorg_revived_total", &[]).await >= 3.0);
    let generations = world.rows("SELECT DISTINCT generation > 1 FROM holdfast.outbox").await;
    assert_eq!(generations, ["true"], "each has a fresh delivery");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_03_a_reorganisation_while_every_process_is_dead_is_found_at_the_start() {
    let world = World::with(setup(1)).await;
    let (all, ids) = mined(&world, 2).await;
    world.anvil.mine(1).await;
    world.until_completed(SOON).await;
    all.kill9();
    world.anvil.reorg(2, &[]).await;
    world.anvil.drop_all_transactions().await;
    world.anvil.mine(3).await;
    let (first, second) = (world.launch("all", &[]), world.launch("all", &[]));
    world.until_ready(&first).await;
    world.until_ready(&second).await;
    let more = world.accept(&first, &world.record()).await;
    eventually("the ends are undone", SOON, async || world.count("lineage_revivals").await == 2).await;
    world.mine_until_none(OPEN, SOON).await;
    world.until_completed(SOON).await;
    assert_eq!(world.state(&more).await, "completed");
    for id in &ids {
        let events = world.events(id).await;
        assert_eq!(told(&events)[..3], ["completed", "reorged", "completed"], "{events:?}");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_04_a_transaction_that_a_reorganisation_puts_below_the_head_is_found() {
    let world = World::with(setup(2)).await;
    let (all, ids) = mined(&world, 1).await;
    let raw = raws(&world)[0].clone();
    let head = world.anvil.height().await;
    world.anvil.reorg(2, &[(raw, 0)]).await;
    found("it has ended below the head", SOON, async || {
        let job = world.job(&all, &ids[0]).await;
        (job["state"] == "completed").then(|| job["transaction"]["block"]["number"].as_u64())
    })
    .await
    .filter(|block| *block < head)
    .expect("the block below the head");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reorganisation_past_the_lookback_freezes_the_lane_until_an_operator_thaws_it() {
    let world = World::with(setup(1)).await;
    let (all, ids) = mined(&world, 1).await;
    world.anvil.mine(1).await;
    world.until_completed(SOON).await;
    world.mine_until_none("lineages WHERE finalized_at IS NULL", SOON).await;
    let depth = world.anvil.height().await - block_of(&world, &all, &ids[0]).await.unwrap() + 1;
    world.anvil.reorg(depth, &[]).await;
    world.anvil.drop_all_transactions().await;
    world.anvil.mine(1).await;
    let reason: Value = found("the lane is frozen", SOON, async || {
        world.rows("SELECT reason FROM holdfast.lanes WHERE state = 'frozen'").await.pop().map(Value::from)
    })
    .await;
    assert!(reason.as_str().unwrap().starts_with("finality_violated"), "{reason}");
    assert!(world.metric(&all, "holdfast_finality_violations_total", &[]).await >= 1.0);
    assert_eq!(world.state(&ids[0]).await, "completed", "what was told as final is for people to correct");

    // Without a majority nobody is let back in.
    let urls: Vec<&str> = world.providers.iter().map(|provider| provider.url.as_str()).collect();
    let reads = urls.join(",");
    let chain = [("RPC_URL", urls[0]), ("RPC_READ_URLS", reads.as_str()), ("TX_REORG_LOOKBACK_BLOCKS", "6")];
    let signer = world.signers[0].address.to_string();
    let dead: Vec<_> = world.providers[1..].iter().map(|provider| provider.status("*", 503)).collect();
    let (code, told) = command::run(&world, &["lanes", "thaw", &signer, "--reason", "looked at"], &chain).await;
    assert!(code != 0 && world.count("lanes WHERE state = 'frozen'").await == 1, "{told}");
    dead.into_iter().for_each(|rule| rule.lift());
    let (code, told) = command::run(&world, &["lanes", "thaw", &signer, "--reason", "looked at", "--dry-run"], &chain).await;
    assert!(code == 0 && told.contains(&ids[0]) && told.contains("would be thawed"), "{told}");
    assert_eq!(world.count("lanes WHERE state = 'frozen'").await, 1);

    let (code, told) = command::run(&world, &["lanes", "thaw", &signer, "--reason", "looked at"], &chain).await;
    assert!(code == 0 && told.contains("1 ends are provisional again"), "{told}");
    let again = command::run(&world, &["lanes", "thaw", &signer, "--reason", "looked at"], &chain).await;
    assert!(again.0 != 0 && again.1.contains("not-frozen"), "{}", again.1);
    eventually("the end is undone", SOON, async || world.count("lineage_revivals").await == 1).await;
    world.mine_until_none("lineages WHERE finalized_at IS NULL", SOON).await;
    assert_eq!(told_of(&world, &ids[0]).await, ["completed", "finalized", "reorged", "completed", "finalized"]);
    let waiting = world.accept(&all, &world.record()).await;
    eventually("it has no lane", SOON, async || world.count("job_attempts WHERE error_type = 'no_lane'").await > 0).await;
    assert_eq!(command::run(&world, &["jobs", "signer-undrain", &signer, "--reason", "looked at"], &[]).await.0, 0);
    world.mine_until_none(OPEN, SOON).await;
    assert_eq!(world.state(&waiting).await, "completed");
    let acts = world.rows("SELECT action, after FROM holdfast.operator_actions WHERE action = 'lanes.thaw'").await;
    assert_eq!(acts, ["lanes.thaw|draining, 1 ends are provisional again"]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_who_is_undone_past_the_lookback_freezes_the_lane_until_an_operator_thaws_it() {
    let world = World::with(setup(1)).await;
    world.anvil.mine(8).await;
    let held: Vec<_> = world.providers.iter().map(|provider| provider.reset("eth_sendRawTransaction")).collect();
    let all = world.serve("all", &[]).await;
    let id = world.accept(&all, &world.record()).await;
    eventually("it is signed", SOON, async || world.count("tx_attempts").await == 1).await;
    let signer = world.signers[0].address;
    world.anvil.use_nonce(signer).await;
    let undone = world.anvil.height().await;
    world.mine_until_none("lineages WHERE finalized_at IS NULL", SOON).await;
    assert_eq!(world.state(&id).await, "dead");
    held.into_iter().for_each(|rule| rule.lift());
    world.anvil.reorg(world.anvil.height().await - undone, &[]).await;
    world.anvil.drop_all_transactions().await;
    world.anvil.mine(1).await;
    assert_eq!(world.anvil.next_nonce(signer).await, 0, "the stranger is gone");
    let reason =
        found("the lane is frozen", SOON, async || world.rows("SELECT reason FROM holdfast.lanes WHERE state = 'frozen'").await.pop())
            .await;
    assert!(reason.starts_with("finality_violated: nonce 0"), "{reason}");
    assert!(world.metric(&all, "holdfast_finality_violations_total", &[]).await >= 1.0);

    let chain = [("RPC_URL", world.writer().url.as_str()), ("TX_REORG_LOOKBACK_BLOCKS", "6")];
    let address = signer.to_string();
    let (code, told) = command::run(&world, &["lanes", "thaw", &address, "--reason", "looked at", "--dry-run"], &chain).await;
    assert!(code == 0 && told.contains(&id) && told.contains("given up to a stranger"), "{told}");
    let elsewhere = command::run(&world, &["lanes", "thaw", &address, "--chain", "5", "--reason", "looked at"], &chain).await;
    assert!(elsewhere.0 != 0, "{}", elsewhere.1);
    let thaw = async |dry: bool| {
        let request = world.client.post(format!("{}/admin/v1/signers/{address}/thaw", all.admin)).bearer_auth(&world.admin_token);
        let body = serde_json::json!({ "reason": "looked at", "dry_run": dry });
        request.header("x-operator-id", "anna").json(&body).send().await.unwrap().json::<Value>().await.unwrap()
    };
    let told = thaw(true).await;
    assert!(told["items"][0]["undone"][0]["job"] == id.as_str() && told["items"][0]["reopened"].is_null(), "{told}");
    assert_eq!(world.count("lanes WHERE state = 'frozen'").await, 1);
    assert_eq!(thaw(false).await["items"][0]["reopened"], 1);
    assert_eq!(thaw(false).await["status"], 409, "only once");
    world.mine_until_none("lineages WHERE finalized_at IS NULL", SOON).await;
    assert_eq!(world.state(&id).await, "completed");
    assert_eq!(told_of(&world, &id).await, ["dead", "reorged", "completed", "finalized"]);
    world.finish().await;
}

async fn told_of(world: &World, id: &str) -> Vec<String> {
    told(&world.events(id).await).into_iter().map(ToOwned::to_owned).collect()
}
