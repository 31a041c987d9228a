//! The first path, as a caller sees it: what is submitted ends once, and every answer says how it stands.

use crate::support::anvil::{CHAIN_ID, Mining, RECORDER, record_data, record_id, revert_data};
use crate::support::wait::eventually;
use crate::support::world::{POOL, SOON, Setup, World, until_count};
use entity::values::Address;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn call(data: &str) -> Value {
    json!({"kind": "contract_call", "chain_id": CHAIN_ID, "pool": POOL, "to": RECORDER.to_string(), "data": data})
}

fn pointers(body: &Value) -> Vec<&str> {
    body["errors"].as_array().map(|errors| errors.iter().filter_map(|error| error["pointer"].as_str()).collect()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_goes_from_its_submission_to_its_proven_end() {
    let world = World::start().await;
    let all = world.serve("all", &[]).await;
    let mut body = world.record();
    body["metadata"] = json!({"order": "17"});
    let reply = world.submit(&all, "first", &body).await;
    assert_eq!(reply.status, 202, "{reply:?}");
    let id = reply.id();
    assert_eq!(reply.headers["location"], format!("/v1/jobs/{id}"));
    assert_eq!((&reply.body["state"], &reply.body["kind"]), (&json!("queued"), &json!("contract_call")));
    world.until_state(&id, "completed").await;
    let job = world.job(&all, &id).await;
    let transaction = &job["transaction"];
    assert_eq!((&job["attempts"], &job["metadata"], &job["error"]), (&json!(1), &json!({"order": "17"}), &Value::Null), "{job}");
    assert_eq!(transaction["signer"].as_str().map(str::to_lowercase), Some(world.signers[0].address.to_string()), "{job}");
    assert_eq!((transaction["state"].as_str(), transaction["hashes"].as_array().map(Vec::len)), (Some("mined"), Some(1)), "{job}");
    assert!(transaction["confirmations"].as_i64().unwrap() >= 2, "{job}");
    let receipt = world.anvil.receipt(transaction["hash"].as_str().unwrap()).await;
    assert_eq!(receipt["blockHash"], transaction["block"]["hash"]);
    for field in ["max_fee_per_gas", "max_priority_fee_per_gas", "effective_gas_price"] {
        assert!(transaction[field].as_str().is_some_and(|text| text.bytes().all(|c| c.is_ascii_digit())), "{field}: {job}");
    }
    let states = world.rows(&format!("SELECT type FROM holdfast.stream_events WHERE key = '{id}' ORDER BY version")).await;
    assert_eq!(states, ["queued", "processing", "submitted", "completed"]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_arrives_exactly_as_it_was_written() {
    let world = World::start().await;
    let all = world.serve("all", &[]).await;
    let to = Address([0x77; 20]);
    // More digits than a float keeps.
    let wei = "18500000000000000001";
    let body = json!({"kind": "transfer", "chain_id": CHAIN_ID, "pool": POOL, "to": to.to_string(), "value": wei});
    let id = world.accept(&all, &body).await;
    world.until_state(&id, "completed").await;
    assert_eq!(world.anvil.balance(to).await.to_string(), wei);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_and_its_arguments_are_the_same_call_as_its_data() {
    let world = World::start().await;
    let all = world.serve("all", &[]).await;
    let mut body = call("");
    body.as_object_mut().unwrap().remove("data");
    body["function"] = "record(bytes32)".into();
    body["args"] = json!([record_id(4_711).to_string()]);
    let id = world.accept(&all, &body).await;
    world.until_state(&id, "completed").await;
    assert_eq!(world.anvil.recorded().await.get(&record_id(4_711).to_string()), Some(&1));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n_03_exe_10_a_call_that_reverts_in_simulation_is_not_actionable_and_owns_no_nonce() {
    let world = World::start().await;
    let all = world.serve("all", &[]).await;
    let bad = world.accept(&all, &call(&revert_data())).await;
    let good = world.accept(&all, &world.record()).await;
    world.until_state(&bad, "not_actionable").await;
    world.until_state(&good, "completed").await;
    let job = world.job(&all, &bad).await;
    assert!(job["error"]["detail"].as_str().is_some_and(|detail| detail.contains("Recorder: always")), "{job}");
    assert_eq!(job["transaction"], Value::Null);
    assert_eq!(world.count(&format!("lineages WHERE job_id = '{bad}'")).await, 0);
    assert_eq!(world.job(&all, &good).await["transaction"]["nonce"], 0);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exe_04_what_changed_between_acceptance_and_execution_is_noticed_before_anything_is_signed() {
    let world = World::start().await;
    let all = world.serve("all", &[]).await;
    let mut body = world.record();
    body["run_at"] = (chrono::Utc::now() + Duration::from_secs(2)).to_rfc3339().into();
    let id = world.accept(&all, &body).await;
    world.anvil.set_failing(true).await;
    world.until_state(&id, "not_actionable").await;
    assert_eq!((world.count("lineages").await, world.sent().len()), (0, 0));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_reverts_when_it_is_mined_ends_as_reverted_with_its_receipt() {
    let world = World::with(Setup { mining: Mining::OnDemand, ..Setup::default() }).await;
    let all = world.serve("all", &[]).await;
    let id = world.accept(&all, &world.record()).await;
    world.until_state(&id, "submitted").await;
    world.anvil.set_failing(true).await;
    world.anvil.mine(3).await;
    world.until_state(&id, "reverted").await;
    let job = world.job(&all, &id).await;
    assert_eq!((&job["error"]["type"], &job["transaction"]["state"]), (&json!("reverted"), &json!("reverted")), "{job}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mined_transaction_is_not_the_end_before_its_confirmations() {
    let world = World::with(Setup { mining: Mining::OnDemand, ..Setup::default() }.with("TX_CONFIRMATIONS", 5)).await;
    let all = world.serve("all", &[]).await;
    let id = world.accept(&all, &world.record()).await;
    world.until_state(&id, "submitted").await;
    world.anvil.mine(4).await;
    let height = world.anvil.height().await;
    eventually("the program has seen the fourth block and settled on it", SOON, async || {
        world.metric(&all, "holdfast_rpc_head_block", &[]).await >= height as f64
            && world.rows("SELECT latest_nonce FROM holdfast.lanes").await == ["1"]
    })
    .await;
    assert_eq!(world.state(&id).await, "submitted");
    world.anvil.mine(1).await;
    world.until_state(&id, "completed").await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn non_04_two_lanes_share_the_work_in_turn() {
    let world = World::with(Setup { lanes: 2, ..Setup::default() }).await;
    let all = world.serve("all", &[]).await;
    world.accept_records(&all, 40).await;
    world.until_completed(SOON).await;
    let shares = world.rows("SELECT count(*) FROM holdfast.lineages GROUP BY lane_id").await;
    let shares: Vec<i64> = shares.iter().map(|share| share.parse().unwrap()).collect();
    assert!(shares.len() == 2 && shares.iter().all(|share| (15..=25).contains(share)), "{shares:?}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_urgent_overtakes_what_waits() {
    let world = World::start().await;
    let engine = world.engine().await;
    for _ in 0..12 {
        let mut body = world.record();
        body["priority"] = 90.into();
        world.accept(&engine, &body).await;
    }
    let mut urgent = Vec::new();
    for _ in 0..3 {
        let mut body = world.record();
        body["priority"] = 1.into();
        urgent.push(world.accept(&engine, &body).await);
    }
    until_count(&world, "outbox WHERE published_at IS NOT NULL", SOON, |count| count == 15).await;
    world.serve("relayer", &[("QUEUE_CONCURRENCY", "1")]).await;
    world.until_completed(SOON).await;
    let order = world.rows("SELECT job_id FROM holdfast.job_attempts WHERE number = 1 ORDER BY started_at").await;
    assert!(urgent.iter().all(|id| order[..3].contains(id)), "{urgent:?} are not first in {order:?}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_never_runs_before_its_time() {
    let world = World::start().await;
    let all = world.serve("all", &[]).await;
    let mut body = world.record();
    body["run_at"] = (chrono::Utc::now() + Duration::from_secs(3)).to_rfc3339().into();
    let id = world.accept(&all, &body).await;
    world.until_state(&id, "completed").await;
    let early =
        world.count("job_attempts a JOIN holdfast.jobs j ON j.id = a.job_id WHERE a.started_at < j.run_at - interval '20 ms'").await;
    assert_eq!(early, 0);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_key_is_the_same_job_and_another_payload_under_it_is_refused() {
    let world = World::start().await;
    let all = world.serve("all", &[]).await;
    let mut body = world.record();
    body["value"] = "0".into();
    let first = world.submit(&all, "k", &body).await;
    let again = world.submit(&all, "k", &body).await;
    assert_eq!((first.status, again.status), (202, 200), "{again:?}");
    assert_eq!((again.id(), again.headers["idempotency-replayed"].as_str()), (first.id(), "true"));
    assert_eq!(again.body, first.body);
    // Another spelling of the same job.
    let mut spelt = body.clone();
    spelt["to"] = RECORDER.to_string().replace("5e", "5E").into();
    let spelt = world.submit(&all, "k", &spelt).await;
    assert_eq!((spelt.status, spelt.id()), (200, first.id()), "{spelt:?}");
    for (field, other) in [("value", json!("1")), ("priority", json!(7)), ("data", json!(record_data(999)))] {
        let mut changed = body.clone();
        changed[field] = other;
        let refused = world.submit(&all, "k", &changed).await;
        assert_eq!((refused.status, &refused.body["code"]), (422, &json!("idempotency-key-mismatch")), "{field}: {refused:?}");
    }
    world.until_completed(SOON).await;
    assert_eq!(world.count("jobs").await, 1);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enq_02_fifty_requests_with_one_key_at_once_make_one_job() {
    let world = World::start().await;
    let all = world.serve("all", &[]).await;
    let body = world.record();
    let replies = futures::future::join_all((0..50).map(|_| world.submit(&all, "one", &body))).await;
    let ids: std::collections::HashSet<String> = replies.iter().filter(|reply| reply.status != 409).map(|reply| reply.id()).collect();
    assert_eq!((ids.len(), replies.iter().filter(|reply| reply.status == 202).count()), (1, 1), "{replies:?}");
    world.until_completed(SOON).await;
    assert_eq!(world.count("jobs").await, 1);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_01_one_key_sent_to_two_engines_at_once_is_one_job_and_a_dead_engine_leaves_no_key_in_progress() {
    let world = World::start().await;
    world.serve("relayer", &[]).await;
    let engines = [world.serve("engine", &[]).await, world.serve("engine", &[("HOLDFAST_FAIL_POINT", "intake.committed:6")]).await];
    for round in 0..5 {
        let body = world.record();
        let key = format!("round-{round}");
        let posts = (0..50).map(|n| world.try_post(&engines[n % 2], "/v1/jobs", &key, &body));
        let replies: Vec<_> = futures::future::join_all(posts).await.into_iter().flatten().collect();
        let told = replies.iter().filter(|reply| matches!(reply.status, 200 | 202));
        let ids: std::collections::HashSet<String> = told.map(|reply| reply.id()).collect();
        assert_eq!(ids.len(), 1, "round {round}: {replies:?}");
        assert!(replies.iter().all(|reply| matches!(reply.status, 200 | 202 | 409)), "round {round}: {replies:?}");
        let again = world.submit(&engines[0], &key, &body).await;
        assert_eq!((again.status, ids.contains(&again.id())), (200, true), "{again:?}");
    }
    world.until_completed(SOON).await;
    assert_eq!(world.count("jobs").await, 5);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_is_older_than_its_relayers_learns_their_pools() {
    let world = World::start().await;
    let engine = world.serve("engine", &[]).await;
    let body = world.record();
    let refused = world.submit(&engine, "early", &body).await;
    assert_eq!((refused.status, pointers(&refused.body)), (400, vec!["/pool"]), "{refused:?}");
    world.serve("relayer", &[]).await;
    eventually("the pool is known", SOON, async || world.submit(&engine, "early", &body).await.status == 202).await;
    world.until_completed(SOON).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_intake_that_panics_after_its_commit_loses_nothing_and_repeats_nothing() {
    let world = World::start().await;
    world.panics_expected.store(true, std::sync::atomic::Ordering::Relaxed);
    let broken = world.serve("all", &[("HOLDFAST_FAIL_POINT", "intake.committed:panic")]).await;
    let body = world.record();
    let lost = world.submit(&broken, "k", &body).await;
    assert_eq!(lost.status, 503, "the outcome is unknown to the caller: {lost:?}");
    assert_eq!(world.count("jobs").await, 1, "the commit was not undone");
    broken.kill9();
    let sound = world.serve("all", &[]).await;
    let again = world.submit(&sound, "k", &body).await;
    assert_eq!(again.status, 200, "{again:?}");
    world.until_completed(SOON).await;
    assert_eq!(world.count("jobs").await, 1);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_answered_item_by_item_in_its_order() {
    let world = World::start().await;
    let all = world.serve("all", &[]).await;
    let item = |key: &str, mut job: Value| {
        job["idempotency_key"] = key.into();
        job
    };
    let twin = world.record();
    let jobs = [item("a", twin.clone()), item("b", json!({"kind": "transfer"})), item("c", world.record()), item("a", twin)];
    let reply = world.post(&all, "/v1/jobs/batch", "-", &json!({ "jobs": jobs })).await;
    let results = reply.body["results"].as_array().unwrap_or_else(|| panic!("{reply:?}"));
    let statuses: Vec<_> = results.iter().map(|result| result["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [202, 400, 202, 200], "{reply:?}");
    assert_eq!(results[0]["job"]["id"], results[3]["job"]["id"]);
    assert!(pointers(&results[1]["problem"]).iter().all(|pointer| pointer.starts_with("/jobs/1/")), "{reply:?}");
    world.until_completed(SOON).await;
    assert_eq!(world.count("jobs").await, 2);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_cancelled_before_it_has_a_nonce_and_then_never_sent() {
    let world = World::start().await;
    let all = world.serve("all", &[]).await;
    let mut body = world.record();
    body["run_at"] = (chrono::Utc::now() + Duration::from_secs(3_600)).to_rfc3339().into();
    let id = world.accept(&all, &body).await;
    let path = format!("/v1/jobs/{id}/cancel");
    let reply = world.post(&all, &path, "-", &json!({})).await;
    assert_eq!((reply.status, &reply.body["state"]), (200, &json!("cancelled")), "{reply:?}");
    let again = world.post(&all, &path, "-", &json!({})).await;
    assert_eq!((again.status, &again.body), (200, &reply.body), "asking twice is asking once: {again:?}");
    let done = world.accept(&all, &world.record()).await;
    world.until_state(&done, "completed").await;
    let late = world.post(&all, &format!("/v1/jobs/{done}/cancel"), "-", &json!({})).await;
    assert_eq!((late.status, &late.body["code"]), (409, &json!("not-cancellable")), "{late:?}");
    assert_eq!(world.count("outbox WHERE next_at IS NOT NULL").await, 0);
    let unknown = world.post(&all, &format!("/v1/jobs/{}/cancel", uuid::Uuid::nil()), "-", &json!({})).await;
    assert_eq!(unknown.status, 404, "{unknown:?}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_waits_is_answered_by_the_next_change() {
    let world = World::with(Setup { mining: Mining::OnDemand, ..Setup::default() }).await;
    let all = world.serve("all", &[]).await;
    let id = world.accept(&all, &world.record()).await;
    world.until_state(&id, "submitted").await;
    let began = Instant::now();
    let reader = world.client.get(format!("{}/v1/jobs/{id}", all.http)).bearer_auth(&world.api_key).header("prefer", "wait=25").send();
    let (answer, ()) = tokio::join!(reader, async {
        world.anvil.mine(3).await;
    });
    let answer: Value = serde_json::from_str(&answer.expect("an answer").text().await.expect("text")).expect("JSON");
    assert_eq!(answer["state"], "completed", "{answer}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_a_list_have_every_job_once_newest_first() {
    let world = World::start().await;
    let all = world.serve("all", &[]).await;
    let mut expected = world.accept_records(&all, 7).await;
    world.until_completed(SOON).await;
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = world.get(&all, &format!("/v1/jobs?state=completed&limit=3{cursor}")).await;
        assert_eq!(page.status, 200, "{page:?}");
        seen.extend(page.body["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_owned()));
        match page.body["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert!(seen.is_sorted_by(|a, b| a > b), "{seen:?}");
    expected.sort();
    seen.reverse();
    assert_eq!(seen, expected);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_valid_is_refused_with_the_place_of_the_fault_and_leaves_nothing() {
    let world = World::start().await;
    let all = world.serve("all", &[]).await;
    for (field, wrong) in [
        ("to", json!("0x1234")),
        ("value", json!(1.5)),
        ("value", json!(7)),
        ("value", json!("1e18")),
        ("value", json!("-1")),
        ("value", json!("115792089237316195423570985008687907853269984665640564039457584007913129639936")),
        ("data", json!("0xzz")),
        ("chain_id", json!(1)),
        ("pool", json!("no:such")),
        ("priority", json!(0)),
        ("surprise", json!("x")),
        ("kind", json!("magic")),
        ("run_at", json!("tomorrow")),
    ] {
        let mut body = world.record();
        body[field] = wrong.clone();
        let reply = world.submit(&all, "bad", &body).await;
        assert_eq!((reply.status, pointers(&reply.body)), (400, vec![format!("/{field}").as_str()]), "{field} {wrong}: {reply:?}");
        assert_eq!(reply.headers["content-type"], "application/problem+json");
    }
    let good = world.record();
    let url = format!("{}/v1/jobs", all.http);
    let request = || world.client.post(&url).json(&good);
    for (what, request, status) in [
        ("no credentials", request().header("idempotency-key", "x"), 401),
        ("a wrong key", request().header("idempotency-key", "x").bearer_auth("holdfast_live_0_0"), 401),
        ("no idempotency key", request().bearer_auth(&world.api_key), 400),
        (
            "no JSON",
            world
                .client
                .post(&url)
                .bearer_auth(&world.api_key)
                .header("idempotency-key", "x")
                .header("content-type", "application/json")
                .body("{"),
            400,
        ),
        (
            "too much",
            world
                .client
                .post(&url)
                .bearer_auth(&world.api_key)
                .header("idempotency-key", "x")
                .header("content-type", "application/json")
                .body("x".repeat(300 * 1024)),
            413,
        ),
    ] {
        let answer = request.send().await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        assert_eq!(answer.status().as_u16(), status, "{what}: {:?}", answer.text().await);
    }
    assert_eq!(world.count("jobs").await, 0);
    world.finish().await;
}
