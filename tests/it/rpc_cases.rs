//! Providers that lag, hang, limit and contradict one another, in front of a real node: the cases R-03 to R-08, and the requirements on
//! the read pool, the quorum and the circuits.

use crate::support::anvil::{Mining, revert_data};
use crate::support::command;
use crate::support::rpc_proxy::RpcProxy;
use crate::support::wait::{eventually, found};
use crate::support::world::{Instance, SOON, Setup, World};
use serde_json::{Value, json};
use std::cell::Cell;
use std::time::{Duration, Instant};

const SEND: &str = "eth_sendRawTransaction";
const RECEIPT: &str = "eth_getTransactionReceipt";
const ESTIMATE: &str = "eth_estimateGas";

/// The endpoints as the program shows them to operators.
async fn endpoints(world: &World, at: &Instance) -> Vec<Value> {
    let url = format!("{}/admin/v1/rpc", at.admin);
    let text = world.client.get(url).bearer_auth(&world.admin_token).send().await.expect("an answer").text().await.expect("text");
    let answer: Value = serde_json::from_str(&text).expect("JSON");
    answer["items"].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
}

/// What is shown of one provider.
async fn endpoint(world: &World, at: &Instance, provider: &RpcProxy) -> Value {
    let mut shown = endpoints(world, at).await;
    shown.retain(|endpoint| provider.url.ends_with(endpoint["name"].as_str().unwrap()));
    assert_eq!(shown.len(), 1, "{shown:?}");
    shown.remove(0)
}

/// The types of all events that end a job, but for its completion.
async fn bad_ends(world: &World) -> Vec<String> {
    world
        .rows("SELECT key, type FROM holdfast.stream_events WHERE type IN ('reverted', 'dead', 'quarantined', 'not_actionable', 'failed')")
        .await
}

async fn quorum(world: &World, at: &Instance, results: &[&str]) -> f64 {
    let mut sum = 0.0;
    for result in results {
        sum += world.metric(at, "holdfast_rpc_quorum_total", &[&format!("result=\"{result}\"")]).await;
    }
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_03_the_null_of_a_lagging_provider_never_ends_a_mined_transaction() {
    let world = World::start().await;
    // The counts of all are current. One has no receipts, one cannot say, and only the third shows them.
    let null = world.providers[0].reply(RECEIPT, json!({ "result": null }));
    let mute = world.providers[1].reply(RECEIPT, json!({ "error": { "code": -32601, "message": "Method not found" } }));
    let all = world.serve("all", &[]).await;
    world.accept_records(&all, 10).await;
    let signer = world.signers[0].address;
    eventually("all are mined and the account has moved on", SOON, async || world.anvil.next_nonce(signer).await == 10).await;
    let undecided = || quorum(&world, &all, &["disagree", "insufficient"]);
    let before = undecided().await;
    eventually("the receipts were asked for ten times more", SOON, async || undecided().await >= before + 10.0).await;
    assert_eq!(world.count("jobs WHERE state <> 'submitted'").await, 0, "nothing is concluded from a null: {}", world.told().await);
    mute.lift();
    world.until_completed(SOON).await;
    assert!(null.applied() > 0, "the lagging provider was asked");
    assert_eq!(bad_ends(&world).await, Vec::<String>::new());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_04_a_provider_that_stands_still_is_out_of_rotation_until_it_has_caught_up() {
    let world = World::start().await;
    let all = world.serve("all", &[]).await;
    let (stale, sound) = (&world.providers[2], &world.providers[..2]);
    stale.freeze_head().await;
    world.accept_records(&all, 20).await;
    let head = Cell::new(0.0);
    eventually("the jobs are done and the provider is out", SOON, async || {
        for shown in endpoints(&world, &all).await {
            let (lag, score) = (shown["lag"].as_u64().unwrap(), shown["score"].as_f64().unwrap());
            assert!(lag <= 3 || score == 0.0, "beyond the limit and still asked: {shown}");
            let is_stale = stale.url.ends_with(shown["name"].as_str().unwrap());
            assert!(is_stale || (lag <= 3 && shown["circuit"] == "closed"), "a sound one flaps: {shown}");
        }
        let now = world.metric(&all, "holdfast_rpc_head_block", &[]).await;
        assert!(now >= head.replace(now), "the head went back to {now}");
        let out = endpoint(&world, &all, stale).await["score"] == 0.0;
        out && world.count("jobs WHERE finished_at IS NULL").await == 0
    })
    .await;
    world.until_completed(SOON).await;
    stale.unfreeze();
    eventually("it is back", SOON, async || endpoint(&world, &all, stale).await["score"].as_f64() > Some(0.0)).await;
    for provider in sound {
        assert_eq!(endpoint(&world, &all, provider).await["errors"], 0);
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_05_honest_providers_that_differ_by_their_lag_agree_on_everything() {
    let world = World::with(Setup { mining: Mining::Every(Duration::from_millis(500)), ..Setup::default() }).await;
    // The chain is as old as the largest lag.
    eventually("four blocks", SOON, async || world.anvil.height().await >= 4).await;
    world.providers[1].lag(1);
    world.providers[2].lag(2);
    let all = world.serve("all", &[]).await;
    world.accept_records(&all, 20).await;
    world.until_completed(SOON).await;
    assert!(quorum(&world, &all, &["agree"]).await > 20.0);
    assert_eq!(quorum(&world, &all, &["disagree", "insufficient"]).await, 0.0, "honest providers disagree");
    // The agreed head is that of the one in the middle: one block behind the first, so each is settled at most so much later.
    let height = world.anvil.height().await as f64;
    eventually("the head follows", SOON, async || world.metric(&all, "holdfast_rpc_head_block", &[]).await >= height).await;
    let seen = world.metric(&all, "holdfast_rpc_head_block", &[]).await;
    assert!(world.anvil.height().await as f64 > seen, "a head that no majority has");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_06_one_revert_in_three_wordings_is_one_revert_and_nobodys_fault() {
    let world = World::start().await;
    let all = world.serve("all", &[]).await;
    // Error(string) "no!"
    let data = format!("0x08c379a0{:064x}{:064x}6e6f21{}", 32, 3, "0".repeat(58));
    let words = [(3, "execution reverted: no!"), (-32000, "something strange"), (-32015, "VM execution error.")];
    for (provider, (code, message)) in world.providers.iter().zip(words) {
        provider.reply(ESTIMATE, json!({ "error": { "code": code, "message": message, "data": data } }));
    }
    let mut body = world.record();
    body["data"] = revert_data().into();
    let id = world.accept(&all, &body).await;
    world.until_state(&id, "not_actionable").await;
    let job = world.job(&all, &id).await;
    assert_eq!(job["attempts"], 1, "{job}");
    assert!(job["error"]["detail"].as_str().is_some_and(|detail| detail.contains("no!")), "{job}");
    let asked: u64 = world.providers.iter().map(|provider| provider.calls(ESTIMATE)).sum();
    assert_eq!((asked, world.sent().len()), (2, 0), "one says so and a second agrees");
    for shown in endpoints(&world, &all).await {
        assert_eq!((&shown["errors"], &shown["circuit"]), (&json!(0), &json!("closed")), "{shown}");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_07_a_provider_that_never_answers_holds_up_neither_the_start_nor_the_work() {
    let world = World::start().await;
    let silent = &world.providers[2];
    silent.hang("*", Duration::from_secs(60));
    let began = Instant::now();
    let all = world.serve("all", &[]).await;
    assert!(began.elapsed() < Duration::from_secs(5), "ready only after {:?}", began.elapsed());
    world.accept_records(&all, 50).await;
    let (most, opened) = (Cell::new(0), Cell::new(false));
    eventually("the work is done and the circuit has opened", SOON, async || {
        most.set(most.get().max(silent.open()));
        opened.set(opened.get() || endpoint(&world, &all, silent).await["circuit"] != "closed");
        opened.get() && world.count("jobs WHERE finished_at IS NULL").await == 0
    })
    .await;
    world.until_completed(SOON).await;
    assert!(most.get() <= 40, "{} connections to one that hangs", most.get());
    eventually("what was cancelled is hung up", SOON, async || silent.open() <= 2).await;
    let waits = world
        .rows("SELECT extract(epoch FROM finished_at - started_at) FROM holdfast.job_attempts ORDER BY finished_at - started_at")
        .await;
    let p95: f64 = waits[waits.len() * 95 / 100].parse().unwrap();
    assert!(p95 < 2.0, "an execution waits {p95} s: as long as the limit of a call that hangs");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_08_limits_and_pages_of_any_form_are_faults_of_the_provider_and_end_no_job() {
    let world = World::start().await;
    let all = world.serve("all", &[]).await;
    let (page, long) = ("<html><body>execution reverted</body></html>", format!("<html>{}</html>", "nonce too low ".repeat(7_200)));
    for (status, headers, body) in [
        (200, "", r#"{"error":{"code":429,"message":"slow down"}}"#),
        (200, "", r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32005,"message":"limit"}}"#),
        (200, "", r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32029,"message":"limit"}}"#),
        (429, "Retry-After: 3", "slow down"),
        (200, "Content-Type: text/html", page),
        (503, "Content-Type: text/html", &*long),
        (200, "", r#"{"jsonrpc":"2.0","id":1,"resu"#),
        (200, "", ""),
    ] {
        let on = |method| world.providers.iter().map(move |provider| provider.raw(method, status, headers, body).times(1));
        let faults: Vec<_> = [ESTIMATE, SEND, RECEIPT].into_iter().flat_map(on).collect();
        world.accept_records(&all, 3).await;
        world.until_completed(SOON).await;
        let met = faults.iter().filter(|fault| fault.applied() > 0).count();
        assert!(met >= 3, "{status} {body:.40}: only {met} faults were met");
        faults.into_iter().for_each(|fault| fault.lift());
    }
    assert_eq!(bad_ends(&world).await, Vec::<String>::new());
    assert_eq!(world.metric(&all, "holdfast_panics_total", &[]).await, 0.0);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_08_a_pause_that_a_provider_asks_for_is_kept_and_the_others_go_on() {
    let world = World::start().await;
    let all = world.serve("all", &[]).await;
    let (limited, other) = (&world.providers[1], &world.providers[2]);
    let fault = limited.raw("*", 429, "Retry-After: 3", "slow down").times(1);
    eventually("it was told to pause", SOON, async || fault.applied() == 1).await;
    let (seen, last, before) = (Cell::new(limited.requests()), Cell::new(Instant::now()), other.requests());
    // What was under way when the limit came may still arrive.
    let gap = found("it is asked again", SOON, async || {
        let now = limited.requests();
        if seen.replace(now) == now {
            return None;
        }
        let gap = last.replace(Instant::now()).elapsed();
        (gap > Duration::from_secs(1)).then_some(gap)
    })
    .await;
    assert!(gap > Duration::from_millis(2_500), "asked again after {gap:?}");
    assert!(other.requests() > before, "the others are asked meanwhile");
    assert_eq!(endpoint(&world, &all, limited).await["circuit"], "closed", "a limit is no breakdown");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rpc_01_transactions_go_to_rpc_url_alone_unless_others_are_named() {
    let world = World::start().await;
    let all = world.serve("all", &[]).await;
    world.accept_records(&all, 5).await;
    world.until_completed(SOON).await;
    let calls = || world.providers.iter().map(|provider| provider.calls(SEND)).collect::<Vec<_>>();
    let seen = calls();
    assert!(seen[0] >= 5 && seen[1..] == [0, 0], "{seen:?}");
    all.kill9();
    let extra = world.providers[2].url.clone();
    let wide = world.serve("all", &[("RPC_BROADCAST_URLS", &extra)]).await;
    // The first acceptance suffices: the one for writes is out.
    world.writer().status(SEND, 503);
    world.accept_records(&wide, 5).await;
    world.until_completed(SOON).await;
    assert!(world.providers[2].calls(SEND) >= 5 && world.providers[1].calls(SEND) == 0, "{:?}", calls());
    // One takes for good what the other refuses for good.
    world.writer().heal();
    world.writer().reply(SEND, json!({ "error": { "code": -32000, "message": "invalid sender" } }));
    world.accept_records(&wide, 2).await;
    world.until_completed(SOON).await;
    eventually("the contradiction is counted", SOON, async || world.metric(&wide, "holdfast_rpc_contradictions_total", &[]).await >= 1.0)
        .await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rpc_02_a_slow_read_is_asked_of_another_provider() {
    let world = World::start().await;
    let all = world.serve("all", &[]).await;
    // The best is asked first, and which that is changes: each is slow in turn until it was the best.
    let began = Instant::now();
    for provider in world.providers.iter().cycle() {
        let slow = provider.hang(ESTIMATE, Duration::from_millis(1_500));
        world.accept_records(&all, 2).await;
        world.until_completed(SOON).await;
        let met = slow.applied() > 0;
        slow.lift();
        if met && world.metric(&all, "holdfast_rpc_hedged_total", &[]).await >= 1.0 {
            break;
        }
        assert!(began.elapsed() < SOON, "no read was asked of a second provider");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rpc_06_a_circuit_opens_on_faults_and_closes_by_itself_after_its_cooldown() {
    let world = World::start().await;
    let all = world.serve("all", &[]).await;
    let broken = &world.providers[1];
    let fault = broken.status("*", 502);
    eventually("the circuit is open", SOON, async || endpoint(&world, &all, broken).await["circuit"] == "open").await;
    let probes = fault.applied();
    eventually("it is probed after each cooldown", SOON, async || fault.applied() >= probes + 2).await;
    world.accept_records(&all, 3).await;
    world.until_completed(SOON).await;
    fault.lift();
    eventually("the circuit is closed", SOON, async || endpoint(&world, &all, broken).await["circuit"] == "closed").await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rpc_07_without_a_majority_nothing_becomes_final_and_with_one_everything_does() {
    let world = World::start().await;
    let all = world.serve("all", &[]).await;
    let out: Vec<_> = world.providers[1..].iter().map(|provider| provider.status("*", 502)).collect();
    eventually("two circuits are open", SOON, async || {
        endpoints(&world, &all).await.iter().filter(|shown| shown["circuit"] != "closed").count() == 2
    })
    .await;
    world.accept_records(&all, 3).await;
    let signer = world.signers[0].address;
    eventually("what was sent is mined", SOON, async || world.anvil.next_nonce(signer).await == 3).await;
    let before = quorum(&world, &all, &["insufficient"]).await;
    eventually("it was asked again and again", SOON, async || quorum(&world, &all, &["insufficient"]).await >= before + 5.0).await;
    assert_eq!(world.count("jobs WHERE state <> 'submitted'").await, 0, "{}", world.told().await);
    out.into_iter().for_each(|fault| fault.lift());
    world.until_completed(SOON).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rpc_08_a_provider_of_another_chain_is_found_at_start_and_at_runtime_and_never_believed() {
    let world = World::start().await;
    let wrong = |provider: &RpcProxy| provider.reply("eth_chainId", json!({ "result": "0x1" }));
    let lie = wrong(&world.providers[2]);
    let all = world.serve("all", &[]).await;
    assert_eq!(endpoint(&world, &all, &world.providers[2]).await["chain_id_ok"], false);
    world.accept_records(&all, 3).await;
    world.until_completed(SOON).await;
    assert_eq!(world.providers[2].calls(RECEIPT), 0, "it was asked for evidence");
    assert!(world.metric(&all, "holdfast_rpc_chain_id_mismatch_total", &[]).await >= 1.0);
    lie.lift();
    world.accept_records(&all, 1).await;
    world.until_completed(SOON).await;
    world.providers[1].reset("*").times(1);
    let later = wrong(&world.providers[1]);
    eventually("it is found out when it has connected anew", SOON, async || {
        endpoint(&world, &all, &world.providers[1]).await["chain_id_ok"] == false
    })
    .await;
    later.lift();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_each_provider_can_do_is_shown_to_operators() {
    let world = World::start().await;
    world.providers[1].reply("eth_getBlockReceipts", json!({ "error": { "code": -32601, "message": "Method not found" } }));
    let all = world.serve("all", &[]).await;
    eventually("all have shown it", SOON, async || {
        endpoints(&world, &all).await.iter().all(|shown| shown["batch_requests"] == 100 && shown["request_bytes"].is_u64())
    })
    .await;
    assert_eq!(endpoint(&world, &all, &world.providers[0]).await["block_receipts"], true);
    assert_eq!(endpoint(&world, &all, &world.providers[1]).await["block_receipts"], false);
    let urls: Vec<_> = world.providers.iter().map(|provider| provider.url.as_str()).collect();
    let (urls, writer) = (urls.join(","), world.writer().url.as_str());
    let chain = [("RPC_URL", writer), ("RPC_READ_URLS", &*urls), ("REDIS_URL", world.redis_url.as_str())];
    let (code, text) = command::run(&world, &["status", "-o", "json"], &chain).await;
    let document = text.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{code}: {text}"));
    let status = serde_json::from_str::<Value>(document).expect("JSON")["data"].take();
    let shown: Vec<_> =
        status["endpoints"].as_array().unwrap().iter().map(|one| (&one["block_receipts"], &one["batch_requests"])).collect();
    assert_eq!(shown.len(), 3, "{status}");
    assert_eq!(shown.iter().filter(|able| **able == (&json!(false), &json!(100))).count(), 1, "{status}");
    let (_, doctor) = command::run(&world, &["doctor"], &chain).await;
    assert!(doctor.contains("batches of 100") && doctor.contains("block receipts: no"), "{doctor}");
    world.finish().await;
}
