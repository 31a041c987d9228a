//! Parts that go away, come back, forget everything or answer too late, while work goes on.

use crate::support::anvil::Mining;
use crate::support::parts::{OwnRedis, Servers};
use crate::support::wait::eventually;
use crate::support::world::{Instance, Redis, SOON, Setup, World, until_count};
use futures::FutureExt;
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// What a submitting client came to know.
#[derive(Default, Debug)]
struct Told {
    accepted: Vec<String>,
    /// With the status; 0 when there was no answer.
    refused: Vec<(u16, String)>,
}

/// Submits one job after the other until it is told to stop; never the same key twice.
async fn load(world: &World, at: &Instance, stop: &AtomicBool) -> Told {
    let mut told = Told::default();
    while !stop.load(Ordering::Relaxed) {
        match world.try_post(at, "/v1/jobs", &uuid::Uuid::new_v4().to_string(), &world.record()).await {
            Ok(reply) if reply.status == 202 => told.accepted.push(reply.id()),
            Ok(reply) => told.refused.push((reply.status, reply.body["code"].as_str().unwrap_or_default().to_owned())),
            Err(error) => told.refused.push((0, error.to_string())),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    told
}

/// Loads while `fault` runs its course.
async fn under_load<T>(world: &World, at: &Instance, fault: impl Future<Output = T>) -> (Told, T) {
    let stop = AtomicBool::new(false);
    let both = async {
        let outcome = fault.await;
        stop.store(true, Ordering::Relaxed);
        outcome
    };
    tokio::join!(load(world, at, &stop), both)
}

async fn all_exist(world: &World, accepted: &[String]) {
    let known: HashSet<String> = world.rows("SELECT id FROM holdfast.jobs").await.into_iter().collect();
    let lost: Vec<_> = accepted.iter().filter(|id| !known.contains(*id)).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
}

async fn own_redis() -> Setup {
    Setup { redis: Redis::Own(OwnRedis::start().await), ..Setup::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_01_que_11_a_redis_that_forgets_everything_loses_no_job_and_no_effect() {
    const JOBS: usize = 1_000;
    let world = World::with(Setup { lanes: 2, ..own_redis().await }.with("TX_LANE_WIDTH", 256)).await;
    let all = world.serve("all", &[]).await;
    world.accept_records(&all, JOBS).await;
    let mut redis = world.redis().await;
    let open = async || world.count("jobs WHERE finished_at IS NULL").await;
    eventually("the first were taken", SOON, async || world.count("job_attempts").await > 0).await;
    let forgotten = open().await;
    let () = ::redis::cmd("FLUSHALL").query_async(&mut redis).await.expect("forgotten");
    assert!(forgotten > JOBS as i64 / 2, "only {forgotten} jobs were open");
    world.until_completed(SOON * 2).await;
    assert!(world.metric(&all, "holdfast_delivery_epochs_total", &[]).await >= 1.0, "the loss was noticed");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enq_16_while_redis_is_away_jobs_are_accepted_and_wait_and_then_they_drain() {
    let world = World::with(own_redis().await).await;
    let all = world.serve("all", &[]).await;
    let (told, backlog) = under_load(&world, &all, async {
        until_count(&world, "jobs WHERE state = 'completed'", SOON, |count| count > 3).await;
        let mut redis = world.redis.as_ref().expect("its own").lock().await;
        redis.stop().await;
        let backlog = until_count(&world, "outbox WHERE next_at IS NOT NULL AND published_at IS NULL", SOON, |count| count > 50).await;
        eventually("readiness names Redis", SOON, async || !world.is_ready(&all).await).await;
        redis.start_again().await;
        backlog
    })
    .await;
    assert!(told.refused.is_empty(), "{:?}", told.refused);
    assert!(backlog > 50 && told.accepted.len() > 50);
    all_exist(&world, &told.accepted).await;
    world.until_completed(SOON * 2).await;
    world.until_ready(&all).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enq_17_a_postgres_that_crashes_under_load_loses_nothing_that_was_acknowledged() {
    let servers = Servers::of_their_own().await;
    let world = World::with(Setup { servers: Some(servers), ..Setup::default() }).await;
    let all = world.serve("all", &[]).await;
    let (told, ()) = under_load(&world, &all, async {
        until_count(&world, "jobs WHERE state = 'completed'", SOON, |count| count > 3).await;
        for _ in 0..2 {
            let before = world.servers().postgres_pid();
            world.servers().crash_postgres();
            eventually("the server is another process", SOON, async || world.servers().postgres_pid() != before).await;
            eventually("it answers", SOON, async || world.try_count("jobs").await.is_some()).await;
            world.until_ready(&all).await;
        }
    })
    .await;
    let strange: Vec<_> = told.refused.iter().filter(|(status, _)| !matches!(status, 503 | 504)).collect();
    assert!(strange.is_empty(), "{strange:?}");
    all_exist(&world, &told.accepted).await;
    world.until_completed(SOON * 2).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enq_17_without_postgres_nothing_is_accepted_and_readiness_says_so_until_it_is_back() {
    let world = World::with(Setup { postgres_proxy: true, ..Setup::default() }).await;
    let all = world.serve("all", &[("DB_CONNECTION_TIMEOUT", "1000")]).await;
    let first = world.accept(&all, &world.record()).await;
    let postgres = world.postgres.as_ref().expect("a proxy");
    postgres.refuse(true).await;
    postgres.reset();
    let body = world.record();
    eventually("a submission is refused", SOON, async || world.submit(&all, "away", &body).await.status == 503).await;
    let refused = world.submit(&all, "away", &body).await;
    assert_eq!((refused.status, &refused.body["code"]), (503, &Value::from("unavailable")), "{refused:?}");
    assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
    eventually("not ready", SOON, async || !world.is_ready(&all).await).await;
    let live = world.client.get(format!("{}/livez", all.admin)).send().await.expect("livez");
    assert!(live.status().is_success(), "liveness asks nobody else");
    assert_eq!(world.count("jobs").await, 1);
    postgres.heal().await;
    world.until_ready(&all).await;
    let again = world.submit(&all, "away", &body).await;
    assert_eq!(again.status, 202, "the refusal did not spend the key: {again:?}");
    world.until_state(&first, "completed").await;
    world.until_completed(SOON).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_postgres_cuts_in_the_middle_lose_nothing_that_was_acknowledged() {
    let world = World::with(Setup { postgres_proxy: true, ..Setup::default() }).await;
    let all = world.serve("all", &[]).await;
    let postgres = world.postgres.as_ref().expect("a proxy");
    let (told, ()) = under_load(&world, &all, async {
        for turn in 0..20 {
            let count = world.count("jobs").await;
            if turn % 2 == 0 {
                postgres.reset()
            } else {
                postgres.cut()
            }
            until_count(&world, "jobs", SOON, |now| now > count + 2).await;
        }
    })
    .await;
    all_exist(&world, &told.accepted).await;
    world.until_completed(SOON).await;
    world.finish().await;
}

/// Sends a submission and goes away with RST after `patience`.
async fn hit_and_run(world: &World, at: &Instance, key: &str, patience: Duration) {
    let body = world.record().to_string();
    let address = at.http.trim_start_matches("http://");
    let Ok(mut stream) = TcpStream::connect(address).await else { return };
    stream.set_zero_linger().expect("an RST at the end");
    let head = format!(
        "POST /v1/jobs HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\nidempotency-key: {key}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        world.api_key,
        body.len()
    );
    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
    tokio::time::sleep(patience).await;
}

/// The first trap, through the whole program: with one connection to Postgres, a single orphan transaction would swallow everything
/// that is acknowledged after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_reset_their_connection_at_any_moment_of_a_submit_lose_nobody_an_acknowledged_job() {
    let world = World::start().await;
    let relayer = world.serve("relayer", &[]).await;
    let engine = world.serve("engine", &[("DB_POOL_MAX", "1"), ("POOL_QUEUE_LIMIT", "500")]).await;
    let mut accepted = Vec::new();
    for round in 0..100_u64 {
        let rude = (0..4).map(|n| {
            let key = format!("rude-{round}-{n}");
            let patience = Duration::from_micros((round * 4 + n) * 37 % 12_000);
            let (world, engine) = (&world, &engine);
            async move { hit_and_run(world, engine, &key, patience).await }.boxed()
        });
        let polite = async {
            let reply = world.submit(&engine, &format!("polite-{round}"), &world.record()).await;
            assert_eq!(reply.status, 202, "{reply:?}");
            reply.id()
        };
        let (id, _) = tokio::join!(polite, futures::future::join_all(rude));
        accepted.push(id);
    }
    assert_eq!(engine.term(SOON).await, 0);
    all_exist(&world, &accepted).await;
    let rude = world.count("idempotency_keys WHERE key LIKE 'rude-%'").await;
    assert!(rude > 0, "no reset came late enough to be interesting");
    assert!(relayer.is_alive());
    // Who publishes is one of the relayer's parts too.
    world.until_completed(SOON).await;
    world.finish().await;
}

/// A relayer that has claimed the only job and is held in its simulation.
async fn held(world: &World, engine: &Instance, settings: &[(&str, &str)]) -> (Arc<Instance>, String) {
    let relayer = world.serve("relayer", settings).await;
    for provider in &world.providers {
        drop(provider.hang("eth_estimateGas", Duration::from_secs(4)));
    }
    let id = world.accept(engine, &world.record()).await;
    world.until_state(&id, "processing").await;
    (relayer, id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exe_03_q_04_a_worker_that_wakes_up_too_late_changes_nothing() {
    let world = World::with(Setup::default().with("RPC_TIMEOUT_MILLISECONDS", 20_000)).await;
    let engine = world.engine().await;
    let (stale, id) = held(&world, &engine, &[("INSTANCE_ID", "stale")]).await;
    stale.freeze();
    world.providers.iter().for_each(|provider| provider.heal());
    world.serve("relayer", &[("INSTANCE_ID", "fresh")]).await;
    world.until_state(&id, "completed").await;
    let job = "SELECT j::text || l::text || o::text FROM holdfast.jobs j JOIN holdfast.lineages l ON l.job_id = j.id JOIN holdfast.outbox o ON o.job_id = j.id";
    let before: String = world.scalar(job).await;
    stale.thaw();
    eventually("the stale worker has noticed", SOON, async || {
        // Whichever comes first: its write is refused, or it sees that its lock is another's and drops the work.
        let fenced = world.metric(&stale, "holdfast_execution_fenced_total", &[]).await;
        let attempts = world.metric(&stale, "holdfast_job_attempts_total", &["fenced"]).await;
        fenced + attempts + world.metric(&stale, "holdfast_queue_locks_lost_total", &[]).await >= 1.0
    })
    .await;
    assert_eq!(world.scalar::<String>(job).await, before);
    assert_eq!(
        world.rows("SELECT number, outcome FROM holdfast.job_attempts ORDER BY number").await.last().map(String::as_str),
        Some("2|submitted")
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q_01_a_dead_worker_is_replaced_also_when_another_has_its_name() {
    let world = World::start().await;
    let engine = world.engine().await;
    let name = [("INSTANCE_ID", "relayer-0")];
    let (dead, id) = held(&world, &engine, &name).await;
    world.providers.iter().for_each(|provider| provider.heal());
    dead.kill9();
    let since = Instant::now();
    world.serve("relayer", &name).await;
    world.until_state(&id, "completed").await;
    assert!(since.elapsed() < Duration::from_secs(30), "lock, one sweep and the chain: {:?}", since.elapsed());
    let workers = world.rows("SELECT id, instance FROM holdfast.workers").await;
    let names: HashSet<_> = workers.iter().map(|row| row.split('|').next_back()).collect();
    assert_eq!((workers.len(), names.len()), (2, 2), "{workers:?}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enq_11_q_05_a_terminal_record_of_an_open_job_is_answered_by_a_fresh_delivery() {
    use holdfast::delivery::{Delivered, Delivery, Options, Settle};
    let world = World::start().await;
    let engine = world.engine().await;
    let id = world.accept(&engine, &world.record()).await;
    until_count(&world, "outbox WHERE published_at IS NOT NULL", SOON, |count| count == 1).await;
    // Somebody else takes the delivery and says that it is done.
    let mut settings = holdfast::config::Queue::at(world.redis_url.clone());
    settings.prefix = world.prefix.clone();
    let delivery = Arc::new(Delivery::connect(&settings, "impostor").expect("settings"));
    let (seen, mut done) = tokio::sync::mpsc::unbounded_channel();
    let handler = move |delivered: Delivered| {
        let _ = seen.send(delivered.generation);
        async { Settle::Done }.boxed()
    };
    let options = Options { concurrency: 1, lock: Duration::from_secs(5), name: "impostor".into() };
    let consumer = delivery.consume(options, Arc::new(handler));
    assert_eq!(done.recv().await, Some(1));
    assert!(consumer.close(Duration::from_secs(10)).await);
    world.serve("relayer", &[]).await;
    world.until_state(&id, "completed").await;
    let job = world.rows("SELECT o.generation, j.attempts, k.key IS NOT NULL AS kept FROM holdfast.outbox o JOIN holdfast.jobs j ON j.id = o.job_id JOIN holdfast.idempotency_keys k ON k.job_id = j.id").await;
    assert_eq!(job, ["2|1|true"]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enq_10_a_delivery_that_redis_lost_alone_is_made_again_within_a_reconcile_period() {
    let world = World::start().await;
    let engine = world.engine().await;
    let id = world.accept(&engine, &world.record()).await;
    until_count(&world, "outbox WHERE published_at IS NOT NULL", SOON, |count| count == 1).await;
    let mut redis = world.redis().await;
    let keys: Vec<String> = ::redis::cmd("KEYS").arg(format!("{}*", world.prefix)).query_async(&mut redis).await.expect("keys");
    for key in keys.iter().filter(|key| !key.ends_with("epoch") && !key.ends_with("meta")) {
        let () = ::redis::cmd("DEL").arg(key).query_async(&mut redis).await.expect("deleted");
    }
    world.serve("relayer", &[]).await;
    world.until_state(&id, "completed").await;
    assert_eq!(world.rows("SELECT generation FROM holdfast.outbox").await, ["1"], "under its own id");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drn_14_sigterm_drains_and_exits_with_0_and_what_is_left_is_finished_by_another() {
    let world = World::start().await;
    let engine = world.engine().await;
    let relayer = world.serve("relayer", &[("QUEUE_CONCURRENCY", "4")]).await;
    let accepted = world.accept_records(&engine, 60).await;
    until_count(&world, "job_attempts", SOON, |count| count > 4).await;
    assert_eq!(relayer.term(SOON).await, 0, "{}", relayer.tail());
    assert_eq!(world.rows("SELECT state, processing FROM holdfast.workers").await, ["stopped|0"]);
    assert_eq!(world.count("jobs WHERE state = 'processing'").await, 0, "what was at work was finished or given back");
    assert_eq!(world.count("lanes WHERE lease_holder IS NOT NULL").await, 0, "the lanes were given back");
    world.serve("relayer", &[]).await;
    world.until_completed(SOON).await;
    assert_eq!(accepted.len(), 60);
    assert_eq!(engine.term(SOON).await, 0, "{}", engine.tail());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_a_chain_that_is_away_delays_everything_and_loses_nothing() {
    let world = World::with(Setup { mining: Mining::Every(Duration::from_millis(200)), ..Setup::default() }).await;
    let all = world.serve("all", &[]).await;
    world.accept_records(&all, 5).await;
    world.anvil.freeze();
    let waiting = world.accept_records(&all, 5).await;
    eventually("an attempt had to wait", SOON, async || world.count("job_attempts WHERE outcome = 'snoozed'").await > 0).await;
    world.anvil.thaw();
    world.until_completed(SOON).await;
    assert_eq!(waiting.len(), 5);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drn_14_a_drain_that_its_deadline_cuts_says_so_and_gives_the_job_back() {
    let world = World::with(Setup::default().with("RPC_TIMEOUT_MILLISECONDS", 30_000)).await;
    let engine = world.engine().await;
    let (relayer, id) = held(&world, &engine, &[("SHUTDOWN_DEADLINE_SECONDS", "1")]).await;
    world.providers.iter().for_each(|provider| provider.heal());
    for provider in &world.providers {
        drop(provider.hang("eth_estimateGas", Duration::from_secs(20)));
    }
    relayer.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(relayer.exit(SOON).await, 5, "{}", relayer.tail());
    world.providers.iter().for_each(|provider| provider.heal());
    world.serve("relayer", &[]).await;
    world.until_state(&id, "completed").await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q_06_a_redis_that_may_evict_is_warned_about_and_refused_where_infrastructure_is_required() {
    let redis = OwnRedis::start_with(&["--maxmemory-policy", "allkeys-lru"]).await;
    let world = World::with(Setup { redis: Redis::Own(redis), ..Setup::default() }).await;
    let lenient = world.serve("all", &[]).await;
    lenient.logged("redis_may_evict", SOON).await;
    assert_eq!(world.metric(&lenient, "holdfast_redis_eviction_policy_ok", &[]).await, 0.0);
    let strict = world.launch("all", &[("INFRASTRUCTURE_REQUIRED", "true")]);
    eventually("readiness names the policy", SOON, async || {
        let answer = world.client.get(format!("{}/readyz", strict.admin)).send().await;
        let Ok(answer) = answer else { return false };
        !answer.status().is_success() && answer.text().await.is_ok_and(|text| text.contains("maxmemory-policy is not noeviction"))
    })
    .await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q_06_a_redis_without_memory_delays_deliveries_and_loses_none() {
    let world = World::with(own_redis().await).await;
    let all = world.serve("all", &[]).await;
    let before = world.accept(&all, &world.record()).await;
    world.until_state(&before, "completed").await;
    let mut redis = world.redis().await;
    let mut limit = async |bytes: &str| {
        let () = ::redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(bytes).query_async(&mut redis).await.expect("a limit");
    };
    limit("1").await;
    let accepted = world.accept_records(&all, 30).await;
    until_count(&world, "outbox WHERE next_at IS NOT NULL AND published_at IS NULL AND failures > 0", SOON, |count| count > 0).await;
    limit("0").await;
    world.until_completed(SOON).await;
    assert_eq!(accepted.len(), 30);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fail_07_nobody_who_reads_logs_or_metrics_is_needed_to_work() {
    use std::os::unix::fs::OpenOptionsExt;
    use tokio::io::AsyncWriteExt;
    let world = World::with(Setup::default()).await;
    let pipe = std::env::temp_dir().join(format!("unread-{}", uuid::Uuid::new_v4()));
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    // Held open and never read: a log collector that hangs.
    let _collector = std::fs::OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(&pipe).expect("its reader");
    let all = world.launch_unheard(&pipe);
    world.until_ready(&all).await;
    // Scrapers that ask and never take the answer.
    let admin = all.admin.trim_start_matches("http://").to_owned();
    let mut scrapers = Vec::new();
    for _ in 0..50 {
        let mut scraper = tokio::net::TcpStream::connect(&admin).await.expect("connects");
        scraper.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("asks");
        scrapers.push(scraper);
    }
    for _ in 0..5 {
        world.accept_records(&all, 100).await;
        world.until_completed(SOON).await;
    }
    let dropped = world.metric(&all, "holdfast_log_lines_dropped", &[]).await;
    assert!(dropped > 0.0, "the pipe was full, and {dropped} lines were dropped");
    assert_eq!(all.term(SOON).await, 0, "it also stops in order");
    drop(scrapers);
    let _ = std::fs::remove_file(&pipe);
    world.finish().await;
}
