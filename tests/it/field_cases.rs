//! Failures of queues, probes and metrics that others met, brought about on purpose.

use crate::support::anvil::Mining;
use crate::support::command;
use crate::support::parts::OwnRedis;
use crate::support::tcp_proxy::TcpProxy;
use crate::support::wait::eventually;
use crate::support::world::{Instance, Redis, SOON, Setup, World};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::time::{Duration, Instant};

async fn submit_in(world: &World, at: &Instance, seconds: u64) -> String {
    let mut body = world.record();
    body["run_at"] = (chrono::Utc::now() + Duration::from_secs(seconds)).to_rfc3339().into();
    world.accept(at, &body).await
}

/// Lines of a process that tell of a warning or an error.
fn complaints(process: &Instance) -> usize {
    process.log.lines().iter().filter(|line| line.contains("\"level\":\"WARN\"") || line.contains("\"level\":\"ERROR\"")).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q_02_a_redis_that_comes_back_empty_needs_no_restart_and_no_loud_waiting() {
    let setup = Setup { redis: Redis::Own(OwnRedis::start().await), ..Setup::default() };
    let world = World::with(setup.with("QUEUE_CONCURRENCY", 20).with("RPC_TIMEOUT_MILLISECONDS", 30_000)).await;
    let all = world.serve("all", &[]).await;
    let held: Vec<_> = world.providers.iter().map(|provider| provider.hang("eth_estimateGas", Duration::from_secs(8))).collect();
    world.accept_records(&all, 40).await;
    for _ in 0..20 {
        submit_in(&world, &all, 12).await;
    }
    eventually("twenty are at work", SOON, async || world.count("jobs WHERE state = 'processing'").await == 20).await;
    let before = complaints(&all);
    let mut redis = world.redis.as_ref().expect("its own").lock().await;
    let away = Instant::now();
    redis.stop().await;
    eventually("readiness names Redis", SOON, async || !world.is_ready(&all).await).await;
    tokio::time::sleep_until((away + Duration::from_secs(5)).into()).await;
    redis.start_again().await;
    let seconds = away.elapsed().as_secs_f64();
    drop(redis);
    let told = complaints(&all) - before;
    assert!((told as f64) < 5.0 * seconds, "{told} lines in {seconds} s");
    held.into_iter().for_each(|rule| rule.lift());
    world.until_completed(SOON * 2).await;
    assert_eq!(world.count("jobs WHERE state = 'completed'").await, 60);
    assert!(all.is_alive());
    world.finish().await;
}

/// Runs a job that is due in 10 s while `fault` befalls the link to Redis after three.
async fn due_in_ten(fault: impl AsyncFnOnce(&TcpProxy, &World)) {
    let redis = OwnRedis::start().await;
    let link = TcpProxy::start(([127, 0, 0, 1], redis.port()).into()).await;
    let setup = Setup { redis: Redis::Own(redis), ..Setup::default() };
    let world = World::with(setup.with("REDIS_URL", format!("redis://127.0.0.1:{}", link.port))).await;
    let all = world.serve("all", &[]).await;
    let due = Instant::now() + Duration::from_secs(10);
    let id = submit_in(&world, &all, 10).await;
    eventually("it is published", SOON, async || world.count("outbox WHERE published_at IS NOT NULL").await == 1).await;
    tokio::time::sleep_until((due - Duration::from_secs(7)).into()).await;
    fault(&link, &world).await;
    let earliest = due.max(Instant::now());
    eventually("it runs", SOON, async || world.count("job_attempts").await > 0).await;
    assert!(earliest.elapsed() < Duration::from_secs(4), "{:?} late", earliest.elapsed());
    assert!(Instant::now() + Duration::from_millis(100) > due, "before its time");
    world.until_state(&id, "completed").await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q_03_delayed_work_is_on_time_although_its_consumer_was_cut_off_while_it_waited() {
    due_in_ten(async |_, world| {
        let mut redis = world.redis().await;
        let killed: i64 = ::redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"]).query_async(&mut redis).await.unwrap();
        assert!(killed > 0);
    })
    .await;
    due_in_ten(async |link, _| {
        link.blackhole(true);
        tokio::time::sleep(Duration::from_secs(5)).await;
        link.blackhole(false);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q_09_what_commits_late_with_an_earlier_id_is_delivered_and_told_all_the_same() {
    let world = World::start().await;
    let all = world.serve("all", &[]).await;
    let first = world.accept(&all, &world.record()).await;
    world.until_state(&first, "completed").await;
    // The same rows that an acceptance writes, held open while later ones commit and are delivered.
    let mut late = world.pool.begin().await.unwrap();
    let id = uuid::Uuid::now_v7().to_string();
    let copy = format!(
        "WITH job AS (INSERT INTO holdfast.jobs (id, project, kind, state, chain_id, pool, to_address, value, data, priority, run_at, attempts_budget)
             SELECT '{id}', project, kind, 'queued', chain_id, pool, to_address, value, overlay(data placing decode(md5('{id}'), 'hex') from 21), priority, now(), attempts_budget
             FROM holdfast.jobs WHERE id = '{first}' RETURNING id, project, priority
         ), key AS (INSERT INTO holdfast.idempotency_keys (project, key, fingerprint, job_id) SELECT project, 'late', sha256('late'), id FROM job
         ), delivery AS (INSERT INTO holdfast.outbox (job_id, priority, deliver_at, next_at) SELECT id, priority, now(), now() FROM job)
         INSERT INTO holdfast.stream_events (domain, key, version, type) SELECT 'job', id, 1, 'queued' FROM job RETURNING seq"
    );
    let seq: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(copy)).fetch_one(&mut *late).await.unwrap();
    let later = world.accept_records(&all, 3).await;
    for id in &later {
        world.until_state(id, "completed").await;
    }
    let newest: i64 = world.scalar("SELECT max(seq) FROM holdfast.stream_events").await;
    assert!(newest > seq, "later events are there before it");
    late.commit().await.unwrap();
    world.until_state(&id, "completed").await;
    world.finish_open().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_05_two_replays_at_once_of_what_never_landed_are_one_more_delivery_and_one_transaction() {
    let world = World::with(Setup::default().with("JOB_MAX_ATTEMPTS", 1)).await;
    world.panics_expected.store(true, std::sync::atomic::Ordering::Relaxed);
    let engine = world.engine().await;
    let relayer = world.serve("relayer", &[("HOLDFAST_FAIL_POINT", "worker.planned:panic")]).await;
    let id = world.accept(&engine, &world.record()).await;
    world.until_state(&id, "dead").await;
    relayer.kill9();
    let url = format!("{}/admin/v1/jobs/{id}/replay", engine.admin);
    let replay = || {
        let request = world.client.post(&url).bearer_auth(&world.admin_token).header("x-operator-id", "anna");
        async move { request.json(&json!({ "reason": "mended" })).send().await.unwrap().status().as_u16() }
    };
    let (one, other) = tokio::join!(replay(), replay());
    assert_eq!(HashSet::from([one, other]), HashSet::from([200, 409]));
    world.serve("relayer", &[]).await;
    world.until_state(&id, "completed").await;
    assert_eq!(world.rows("SELECT generation FROM holdfast.outbox").await, ["2"]);
    assert_eq!((world.count("lineages").await, world.count("tx_attempts").await), (1, 1));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_05_what_was_mined_unseen_ends_by_its_receipt_and_is_never_sent_anew() {
    let world = World::with(Setup { mining: Mining::OnDemand, ..Setup::default() }.with("JOB_MAX_ATTEMPTS", 1)).await;
    let all = world.serve("all", &[]).await;
    let hidden: Vec<_> =
        world.providers.iter().map(|provider| provider.reply("eth_getTransactionReceipt", json!({ "result": null }))).collect();
    let id = world.accept(&all, &world.record()).await;
    world.until_state(&id, "submitted").await;
    world.anvil.mine(5).await;
    let (code, told) = command::run(&world, &["jobs", "replay", &id, "--reason", "it hangs"], &[]).await;
    assert!(code == 4 && told.contains("not-dead"), "{code}: {told}");
    hidden.into_iter().for_each(|rule| rule.lift());
    world.mine_until_none("jobs WHERE finished_at IS NULL", SOON).await;
    assert_eq!(world.state(&id).await, "completed");
    let (code, told) = command::run(&world, &["jobs", "replay", &id, "--reason", "again"], &[]).await;
    assert!(code == 4 && told.contains("not-dead"), "{code}: {told}");
    let raw: HashSet<_> = world.sent().into_iter().map(|sent| sent.transaction.hash.0).collect();
    assert_eq!(raw.len(), 1, "one transaction was ever seen");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o_03_no_request_makes_a_series_of_its_own() {
    let world = World::start().await;
    let all = world.serve("all", &[]).await;
    let id = world.accept(&all, &world.record()).await;
    world.until_state(&id, "completed").await;
    let series = async || {
        let text = world.client.get(format!("{}/metrics", all.admin)).send().await.unwrap().text().await.unwrap();
        let values = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
        values.map(|(series, _)| series.to_owned()).collect::<HashSet<_>>()
    };
    let ask = async |turn: usize| {
        let (some, text) = (uuid::Uuid::now_v7(), format!("x{turn}"));
        for path in [format!("/v1/jobs/{some}"), format!("/{text}"), format!("/v1/{text}/{some}?a={text}")] {
            let method = reqwest::Method::from_bytes(format!("X{turn}").as_bytes()).unwrap();
            let asked = [reqwest::Method::GET, reqwest::Method::POST, method].into_iter().map(|method| {
                world
                    .client
                    .request(method, format!("{}{path}", all.http))
                    .bearer_auth(&world.api_key)
                    .header("idempotency-key", &text)
                    .send()
            });
            futures::future::join_all(asked).await;
        }
    };
    // Every route and every kind of method once; what comes then differs in nothing that may be a label.
    ask(0).await;
    series().await;
    let before = series().await;
    for turn in 1..=500 {
        ask(turn).await;
    }
    let after = series().await;
    // What the process asks of Redis and of its endpoints meanwhile is no request of ours.
    let own = |series: &&String| series.starts_with("holdfast_redis_call") || series.starts_with("holdfast_rpc_");
    let new: Vec<_> = after.difference(&before).filter(|series| !own(series)).collect();
    assert!(new.len() <= 20, "{} new series: {new:?}", new.len());
    world.finish_open().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o_04_a_process_whose_parts_are_away_is_not_ready_and_lives_on() {
    let servers = crate::support::parts::Servers::of_their_own().await;
    let setup = Setup { redis: Redis::Own(OwnRedis::start().await), postgres_proxy: true, servers: Some(servers), ..Setup::default() };
    let world = World::with(setup.with("DB_CONNECTION_TIMEOUT", 1_000)).await;
    let all = world.serve("all", &[]).await;
    let live = async || world.client.get(format!("{}/livez", all.admin)).send().await.is_ok_and(|answer| answer.status().is_success());
    let away_for = Duration::from_secs(12);
    let watch = async |what: &str| {
        let since = Instant::now();
        eventually(&format!("it is not ready without {what}"), SOON, async || !world.is_ready(&all).await).await;
        while since.elapsed() < away_for {
            assert!(live().await, "it lives on without {what}");
            assert!(!world.is_ready(&all).await, "nor is it ready again before {what} is back");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let back = async |what: &str| {
        let since = Instant::now();
        eventually(&format!("it is ready again with {what}"), SOON, async || world.is_ready(&all).await).await;
        assert!(since.elapsed() <= Duration::from_secs(10), "{what}: {:?}", since.elapsed());
    };
    let accepted = world.accept_records(&all, 10).await;
    let postgres = world.postgres.as_ref().expect("a proxy");
    postgres.refuse(true).await;
    postgres.reset();
    watch("Postgres").await;
    postgres.heal().await;
    back("Postgres").await;
    let mut redis = world.redis.as_ref().expect("its own").lock().await;
    redis.stop().await;
    watch("Redis").await;
    redis.start_again().await;
    drop(redis);
    back("Redis").await;
    let down: Vec<_> = world.providers.iter().map(|provider| provider.status("*", 503)).collect();
    let since = Instant::now();
    let waiting = world.accept(&all, &world.record()).await;
    while since.elapsed() < away_for {
        assert!(live().await && world.is_ready(&all).await, "without its endpoints it accepts work and lets it wait");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_ne!(world.state(&waiting).await, "completed");
    down.into_iter().for_each(|rule| rule.lift());
    assert!(all.is_alive(), "the same process");
    for id in accepted.iter().chain([&waiting]) {
        world.until_state(id, "completed").await;
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_07_no_page_of_another_origin_is_let_in() {
    let world = World::start().await;
    let all = world.serve("all", &[]).await;
    for origin in ["https://evil.example", "null", "https://allowed.example.evil.example"] {
        for base in [&all.http, &all.admin] {
            let url = format!("{base}/v1/jobs");
            for method in [reqwest::Method::GET, reqwest::Method::POST, reqwest::Method::OPTIONS] {
                let asked = world.client.request(method.clone(), &url).header("origin", origin).bearer_auth(&world.api_key);
                let asked = asked.header("access-control-request-method", "POST").header("access-control-request-headers", "authorization");
                let answer = asked.json(&Value::Null).send().await.unwrap();
                let shared: Vec<_> = answer.headers().keys().filter(|name| name.as_str().starts_with("access-control-")).collect();
                assert!(shared.is_empty(), "{method} {url} from {origin}: {shared:?}");
            }
        }
    }
    world.finish().await;
}
