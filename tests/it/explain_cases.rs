//! What operators are told: the ladder of a lane, a transaction and a job, with what comes next and when. On real parts, because what is
//! told has to be what is done.

use crate::support::anvil::Mining;
use crate::support::command;
use crate::support::wait::{eventually, found};
use crate::support::world::{Instance, SOON, Setup, World};
use serde_json::{Value, json};
use std::sync::Arc;

const GWEI: u64 = 1_000_000_000;
const OPEN: &str = "jobs WHERE finished_at IS NULL";
/// Columns of a line of text.
const WIDE: usize = 100;

fn setup() -> Setup {
    Setup { mining: Mining::OnDemand, ..Setup::default() }.with("TX_REORG_LOOKBACK_BLOCKS", 8)
}

async fn pending(world: &World, count: usize) -> (Arc<Instance>, Vec<String>) {
    let all = world.serve("all", &[]).await;
    let ids = world.accept_records(&all, count).await;
    eventually("all are pending", SOON, async || world.count("jobs WHERE state = 'submitted'").await == i64::try_from(count).unwrap())
        .await;
    (all, ids)
}

fn signer(world: &World) -> String {
    world.signers[0].address.to_string()
}

/// What the operators' API says; the settings of the chain are those of the service.
async fn asked(world: &World, at: &Instance, path: &str) -> Value {
    let answer = world.client.get(format!("{}/admin/v1/{path}", at.admin)).bearer_auth(&world.admin_token).send().await.expect("an answer");
    assert_eq!(answer.status(), 200, "{path}");
    answer.json().await.expect("JSON")
}

async fn lane(world: &World, at: &Instance) -> Value {
    asked(world, at, &format!("lanes/{}", signer(world))).await["items"][0].take()
}

/// What a command says to people, with these settings of the chain; no line of sentences is too wide.
async fn said(world: &World, arguments: &[&str], settings: &[(&str, &str)]) -> String {
    let mut more = vec![("RPC_URL", world.writer().url.as_str()), ("TX_REORG_LOOKBACK_BLOCKS", world.setting("TX_REORG_LOOKBACK_BLOCKS"))];
    more.extend(["TX_RECONCILE_SECONDS", "CHAIN_ID"].map(|name| (name, world.setting(name))));
    more.extend(settings);
    let (code, text) = command::run(world, arguments, &more).await;
    assert_eq!(code, 0, "{text}");
    // An address, a hash and a table may need more.
    let wide: Vec<_> = text.lines().filter(|line| line.chars().count() > WIDE && line.contains(". ")).collect();
    assert!(wide.is_empty(), "{wide:#?}");
    text
}

/// The words of a text, whatever its lines.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn wei(value: &Value) -> u128 {
    value.as_str().unwrap_or_else(|| panic!("{value} is no amount")).parse().expect("an amount")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_that_waits_for_its_head_shows_its_rungs_in_order_with_the_coming_price() {
    let world = World::with(setup().with("TX_STUCK_SECONDS", 500)).await;
    let (all, _) = pending(&world, 3).await;
    let ids = world.rows("SELECT job_id FROM holdfast.lineages ORDER BY nonce").await;
    eventually("the lane was looked at", SOON, async || lane(&world, &all).await["observed"]["leased"] == true).await;
    let told = lane(&world, &all).await;
    let ladder = told["ladder"].as_array().unwrap();
    let rungs: Vec<_> = ladder.iter().map(|rung| (rung["nonce"].as_i64().unwrap(), rung["place"].as_str().unwrap())).collect();
    assert_eq!(rungs, [(0, "head"), (1, "behind"), (2, "behind")], "{told:#}");
    assert_eq!(told["ladder_left_off"], 0);
    for (rung, id) in ladder.iter().zip(&ids) {
        assert_eq!(rung["job"], **id);
        assert_eq!(rung["hashes"].as_array().unwrap().len(), 1);
        let fees = &rung["fees"];
        let (offer, next, limit) =
            (wei(&fees["max_fee_per_gas_wei"]), wei(&fees["next_max_fee_per_gas_wei"]), wei(&fees["limit_max_fee_per_gas_wei"]));
        assert!(next > offer * 110 / 100 && wei(&fees["limit_distance_wei"]) == limit - offer, "{fees}");
        assert_eq!((&fees["replacements_left"], &fees["capped_by"]), (&json!(10), &Value::Null), "{fees}");
        assert_eq!(rung["next"]["act"], "send");
    }
    let then = &ladder[0]["then"];
    assert_eq!(then["act"], "replace", "{told:#}");
    assert!(then["in_seconds"].as_u64().is_some_and(|seconds| (400..=500).contains(&seconds)), "{then}");
    assert!(ladder[1]["then"].is_null(), "only the head gets a price while the market is below all of them");
    assert!(told["next"]["text"].as_str().unwrap().starts_with("nonce 0 comes first: the same bytes go again"), "{told:#}");
    assert_eq!(told["funds"]["missing_wei"], "0");
    assert!(told["base_fee_per_gas_wei"].is_string() && told["observed"]["block"].is_i64(), "{told:#}");

    let text = said(&world, &["lanes", "explain", &signer(&world)], &[("TX_STUCK_SECONDS", "500")]).await;
    let flat = words(&text);
    for sentence in
        ["2 others wait behind it", "0 is what the chain takes next, for", "then: a dearer attempt is signed in", "the newest of 1"]
    {
        assert!(flat.contains(sentence), "no {sentence:?} in\n{text}");
    }
    let order: Vec<_> = ids.iter().map(|id| text.find(id.as_str()).expect("the job is named")).collect();
    assert!(order.is_sorted(), "{text}");

    let one = asked(&world, &all, &format!("transactions/{}/explain", ids[1])).await["items"][0].take();
    assert!(one["why"].as_str().unwrap().ends_with("it waits for nonce 0, which the chain takes first"), "{one:#}");
    let job = asked(&world, &all, &format!("jobs/{}", ids[1])).await;
    assert_eq!((job["outlook"]["nonce"].as_i64(), job["outlook"]["place"].as_str()), (Some(1), Some("behind")), "{job:#}");
    let shown = said(&world, &["tx", "explain", &ids[0]], &[("TX_STUCK_SECONDS", "500")]).await;
    assert!(words(&shown).contains("the chain takes it next") && words(&shown).contains("signed 0x"), "{shown}");
    // A process that does not know the chain says so and foretells nothing.
    let blind = words(&command::told(&world, &["lanes", "explain", &signer(&world)]).await);
    assert!(blind.contains("are not known to this process"), "{blind}");
    world.mine_until_none(OPEN, SOON).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_price_is_signed_when_it_was_foretold() {
    let world = World::with(setup().with("TX_STUCK_SECONDS", 6)).await;
    let (all, ids) = pending(&world, 1).await;
    let foretold = found("a price is foretold", SOON, async || {
        let rung = lane(&world, &all).await["ladder"][0].take();
        [&rung["next"], &rung["then"]]
            .into_iter()
            .find(|coming| coming["act"] == "replace")
            .map(|coming| (coming.clone(), rung["fees"].clone()))
    })
    .await;
    let (coming, fees) = foretold;
    let at: chrono::DateTime<chrono::Utc> = coming["at"].as_str().unwrap().parse().unwrap();
    eventually("the price is signed", SOON, async || world.count("tx_attempts").await == 2).await;
    let signed: chrono::DateTime<chrono::Utc> = world.scalar("SELECT max(created_at) FROM holdfast.tx_attempts").await;
    assert!((at - signed).num_milliseconds() <= 1_500, "foretold for {at}, signed at {signed}");
    let price: String = world.scalar("SELECT max(max_fee_per_gas)::text FROM holdfast.tx_attempts").await;
    assert_eq!(fees["next_max_fee_per_gas_wei"], *price, "no block came, so the market is the same");
    let rung = lane(&world, &all).await["ladder"][0].take();
    assert_eq!((&rung["replacements"], &rung["fees"]["replacements_left"]), (&json!(1), &json!(9)), "{rung:#}");
    assert_eq!(rung["hashes"].as_array().unwrap().len(), 2);
    world.mine_until_none(OPEN, SOON).await;
    assert_eq!(world.state(&ids[0]).await, "completed");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nonce_at_its_limit_says_below_which_base_fee_it_lands() {
    const CAP: u64 = 4 * GWEI;
    let world = World::with(setup().with("TX_MAX_FEE_PER_GAS_WEI", CAP).with("TX_STUCK_SECONDS", 1)).await;
    let (all, _) = pending(&world, 1).await;
    eventually("the limit is reached", SOON, async || {
        world.anvil.set_next_base_fee(20 * GWEI).await;
        world.anvil.mine(1).await;
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        world.count("lineages WHERE capped_at IS NOT NULL").await == 1
    })
    .await;
    let rung = found("it is told", SOON, async || {
        let rung = lane(&world, &all).await["ladder"][0].take();
        (rung["fees"]["capped_by"] == "price").then_some(rung)
    })
    .await;
    assert_eq!(rung["next"]["act"], "send_at_limit", "{rung:#}");
    assert_eq!((&rung["fees"]["next_max_fee_per_gas_wei"], &rung["fees"]["attempts_left"]), (&Value::Null, &json!(0)), "{rung:#}");
    let text = rung["next"]["text"].as_str().unwrap();
    assert!(text.starts_with("the next price is above the limit of 4 gwei: the best bytes go again"), "{text}");
    assert!(text.contains("they land when the base fee is below 3.") && text.contains(" gwei, now "), "{text}");
    world.anvil.set_next_base_fee(GWEI / 10).await;
    world.mine_until_none(OPEN, SOON).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_nonce_foretells_its_no_op_and_a_lane_that_nobody_settles_says_so() {
    let world = World::with(setup().with("TX_STUCK_SECONDS", 500)).await;
    let (all, ids) = pending(&world, 1).await;
    all.kill9();
    let (code, text) = command::run(&world, &["jobs", "cancel", &ids[0], "--reason", "not wanted"], &[]).await;
    assert_eq!(code, 0, "{text}");
    let told = found("the lease has run out", SOON, async || {
        let text = words(&said(&world, &["lanes", "explain", &signer(&world)], &[]).await);
        text.contains("no process settles it now, the last look was").then_some(text)
    })
    .await;
    assert!(told.contains("a no-op of the same nonce is signed at the next look at the lane, at "), "{told}");
    assert!(told.contains("its job was cancelled") && told.contains("holdfast workers list"), "{told}");
    let all = world.serve("all", &[]).await;
    eventually("the no-op is signed", SOON, async || world.count("tx_attempts WHERE purpose = 'noop'").await == 1).await;
    let rung = lane(&world, &all).await["ladder"][0].take();
    assert_eq!((&rung["noop_reason"], &rung["fees"]["replacements_left"]), (&json!("cancelled"), &json!(10)), "{rung:#}");
    world.mine_until_none(OPEN, SOON).await;
    assert_eq!(world.state(&ids[0]).await, "cancelled");
    let job = asked(&world, &all, &format!("jobs/{}", ids[0])).await;
    let why = job["why"].as_str().unwrap();
    assert!(why.starts_with("it was cancelled, a no-op was mined at its nonce instead of it: 0x") && why.contains(" in block "), "{why}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_without_money_says_how_much_is_missing_and_its_job_what_it_waits_for() {
    let world = World::with(Setup::default().with("TX_REORG_LOOKBACK_BLOCKS", 8)).await;
    world.anvil.fund(world.signers[0].address, 0).await;
    // A node whose estimate looks at no balance.
    world.providers.iter().for_each(|provider| drop(provider.reply("eth_estimateGas", json!({"result": "0x186a0"}))));
    let all = world.serve("all", &[]).await;
    let id = world.accept(&all, &world.record()).await;
    eventually("the lane pauses", SOON, async || world.count("lanes WHERE state = 'paused'").await == 1).await;
    eventually("the job was given back", SOON, async || world.count("job_attempts WHERE outcome = 'snoozed'").await > 0).await;
    let told = lane(&world, &all).await;
    let funds = &told["funds"];
    assert!(wei(&funds["missing_wei"]) > 0 && funds["missing_wei"] == funds["resumes_at_wei"] && funds["balance_wei"] == "0", "{funds}");
    assert_eq!(told["next"]["act"], "top_up");
    assert!(told["next"]["text"].as_str().unwrap().contains(&format!("({} wei)", wei(&funds["missing_wei"]))), "{told:#}");
    let job = found("the job says so", SOON, async || {
        let job = asked(&world, &all, &format!("jobs/{id}")).await;
        (job["job"]["state"] == "retry").then_some(job)
    })
    .await;
    let why = job["why"].as_str().unwrap();
    assert!(why.contains("it waits for") && why.contains(" is paused: insufficient_funds: it holds 0"), "{why}");
    let outcome = &job["outcomes"][0];
    assert_eq!(outcome["outcome"], "snoozed", "{job:#}");
    assert!(outcome["count"].as_i64() > Some(0) && outcome["last_at"].is_string() && outcome["error"].is_string(), "{outcome}");
    assert!(job["attempts_left"].as_i64() > Some(0));
    // What is told is enough.
    world.anvil.ask("anvil_setBalance", json!([signer(&world), format!("{:#x}", wei(&funds["missing_wei"]))])).await;
    eventually("the lane goes on", SOON, async || world.count("lanes WHERE state = 'active'").await == 1).await;
    world.anvil.fund(world.signers[0].address, 10).await;
    world.until_completed(SOON).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_lane_sends_its_reader_to_the_runbook() {
    let world = World::with(setup().with("TX_CONFIRMATIONS", 1).with("TX_REORG_LOOKBACK_BLOCKS", 2)).await;
    let (all, _) = pending(&world, 1).await;
    world.mine_until_none(OPEN, SOON).await;
    world.mine_until_none("lineages WHERE finalized_at IS NULL", SOON).await;
    let block: i64 = world.scalar("SELECT block_number FROM holdfast.lineages").await;
    let depth = world.anvil.height().await - u64::try_from(block).unwrap() + 1;
    world.anvil.reorg(depth, &[]).await;
    world.anvil.drop_all_transactions().await;
    world.anvil.mine(1).await;
    eventually("the lane is frozen", SOON, async || world.count("lanes WHERE state = 'frozen'").await == 1).await;
    let told = lane(&world, &all).await;
    assert_eq!(told["next"]["act"], "frozen");
    assert!(told["next"]["command"].as_str().unwrap().starts_with("holdfast lanes thaw 0x"), "{told:#}");
    assert!(told["next"]["text"].as_str().unwrap().contains("HoldfastFinalityViolated"), "{told:#}");
    assert!(told["why"].as_str().unwrap().starts_with("it is frozen and takes no work: finality_violated"), "{told:#}");
    world.instances().iter().for_each(|instance| instance.kill9());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_without_a_lane_names_the_lanes_and_why_none_has_room() {
    let world = World::with(setup().with("TX_LANE_WIDTH", 1).with("TX_STUCK_SECONDS", 500)).await;
    let (all, _) = pending(&world, 1).await;
    let second = world.accept(&all, &world.record()).await;
    eventually("it was given back", SOON, async || world.count("job_attempts WHERE error_type = 'no_lane'").await > 0).await;
    let job = found("it waits", SOON, async || {
        let job = asked(&world, &all, &format!("jobs/{second}")).await;
        (job["job"]["state"] == "retry").then_some(job)
    })
    .await;
    let why = job["why"].as_str().unwrap();
    assert!(
        why.starts_with("it waits for a lane; no lane of pool local:relayer has room; lane 0x")
            && why.contains(" is full, 1 of 1 open, the oldest for "),
        "{why}"
    );
    assert!(job["next"]["command"].as_str().unwrap().starts_with("holdfast lanes explain 0x"), "{job:#}");
    assert!(job["outcomes"].as_array().unwrap().iter().any(|one| one["error"] == "no_lane" && one["outcome"] == "snoozed"), "{job:#}");
    let text = words(&said(&world, &["jobs", "explain", &second], &[]).await);
    assert!(text.contains("Executions by how they ended") && text.contains("snoozed no_lane"), "{text}");
    world.mine_until_none(OPEN, SOON).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ended_job_says_what_proves_it_and_when_nothing_can_undo_it() {
    let world = World::with(setup()).await;
    let (all, ids) = pending(&world, 1).await;
    world.mine_until_none(OPEN, SOON).await;
    let told = asked(&world, &all, &format!("jobs/{}", ids[0])).await;
    let (hash, block) = (told["job"]["transaction"]["hash"].as_str().unwrap(), told["job"]["transaction"]["block"].as_i64().unwrap());
    let why = told["why"].as_str().unwrap();
    assert!(why.contains(&format!("TX_CONFIRMATIONS: {hash} was mined in block {block} (0x")), "{why}");
    let next = told["next"]["action"].as_str().unwrap();
    assert!(next.starts_with("final in ") && next.ends_with("(TX_REORG_LOOKBACK_BLOCKS 8)"), "{next}");
    assert_eq!((&told["outlook"], &told["attempts_left"]), (&Value::Null, &Value::Null));
    world.mine_until_none("lineages WHERE finalized_at IS NULL", SOON).await;
    let text = words(&said(&world, &["jobs", "explain", &ids[0]], &[]).await);
    assert!(text.contains("nothing: final, noted "), "{text}");
    let shown = words(&said(&world, &["tx", "explain", hash], &[]).await);
    assert!(shown.contains("and succeeded") && shown.contains("nothing: final, noted "), "{shown}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_exist_is_told_with_the_exit_code_for_it() {
    let world = World::with(setup()).await;
    world.serve("all", &[]).await;
    let nobody = "0x00000000000000000000000000000000000000aa";
    let nothing = uuid::Uuid::nil().to_string();
    let hash = format!("0x{}", "0a".repeat(32));
    for (arguments, code, told) in [
        (vec!["lanes", "explain", nobody], 3, "lane of 0x00000000000000000000000000000000000000AA does not exist"),
        (vec!["jobs", "explain", &nothing], 3, "job 00000000-0000-0000-0000-000000000000 does not exist"),
        (vec!["tx", "explain", &nothing], 3, "transaction 00000000-0000-0000-0000-000000000000 does not exist"),
        (vec!["tx", "explain", &hash], 3, "does not exist"),
        (vec!["tx", "explain", "nonsense"], 2, "must be its id, the id of its job, or a hash"),
        (vec!["lanes", "explain", "nonsense"], 2, "nonsense"),
    ] {
        let (exit, text) = command::run(&world, &arguments, &[]).await;
        assert!(exit == code && text.contains(told), "{arguments:?} ended with {exit}: {text}");
    }
    world.finish().await;
}
