//! Rows of the outbox, of deliveries and of executions, each on the real program: how often, by whom, and what is on record of it.

use crate::support::anvil::{CHAIN_ID, RECORDER};
use crate::support::command;
use crate::support::wait::{eventually, found};
use crate::support::world::{Instance, POOL, SOON, Setup, World, until_count};
use entity::ids::{ExecutionToken, JobId, WorkerId};
use entity::states::{AttemptOutcome, JobKind};
use entity::values::Wei;
use futures::future::join_all;
use holdfast::domain::backoff;
use holdfast::domain::job::Event;
use holdfast::domain::submission::NewJob;
use holdfast::store::execution::{self, Claim, Claimed, Finish, Finished};
use holdfast::store::intake::{self, Submission};
use holdfast::store::{Db, outbox, workers};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use uuid::Uuid;

const UNPUBLISHED: &str = "outbox WHERE published_at IS NULL";
const PUBLISHED: &str = "holdfast_outbox_published_total";

async fn runtime(world: &World) -> Db {
    let mut settings = holdfast::config::Database::at(world.database.runtime.expose_secret());
    settings.pool_min = 0;
    Db::connect(&settings).await.expect("the runtime logs in")
}

/// Jobs that stand in Postgres and that no publisher was told of.
async fn written(db: &Db, count: usize) -> Vec<JobId> {
    let submission = || {
        let job = NewJob {
            kind: JobKind::Transfer,
            chain_id: i64::try_from(CHAIN_ID).unwrap(),
            pool: POOL.into(),
            to: RECORDER,
            value: Wei::ZERO,
            data: Vec::new(),
            gas_limit: None,
            priority: 50,
            run_at: None,
            metadata: None,
        };
        Submission {
            id: JobId(Uuid::now_v7()),
            project: "tests".into(),
            key: Uuid::new_v4().to_string(),
            fingerprint: job.fingerprint(),
            job,
        }
    };
    let batch: Vec<_> = (0..count).map(|_| submission()).collect();
    intake::accept(db, &batch, 8).await.expect("accepted");
    batch.into_iter().map(|one| one.id).collect()
}

/// Takes records of the queue away as a Redis that lost them would; by its clock, in milliseconds.
async fn lost(world: &World, deliveries: &[String]) -> i64 {
    let base = format!("{}:jobs:", world.prefix);
    let mut pipe = redis::pipe();
    pipe.atomic().cmd("TIME");
    for id in deliveries {
        pipe.cmd("ZREM").arg(format!("{base}prioritized")).arg(id).ignore();
        pipe.cmd("DEL").arg(format!("{base}{id}")).ignore();
    }
    let ((seconds, micros),): ((i64, i64),) = pipe.query_async(&mut world.redis().await).await.expect("Redis");
    seconds * 1_000 + micros / 1_000
}

/// When each of the records was written, by the clock of Redis in milliseconds; waits until all are there.
async fn recreated(world: &World, deliveries: &[String]) -> Vec<i64> {
    let redis = world.redis().await;
    found("all records are there again", SOON, async || {
        let mut pipe = redis::pipe();
        for id in deliveries {
            pipe.cmd("HGET").arg(format!("{}:jobs:{id}", world.prefix)).arg("timestamp");
        }
        let times: Vec<Option<i64>> = pipe.query_async(&mut redis.clone()).await.expect("Redis");
        times.into_iter().collect()
    })
    .await
}

async fn first_deliveries(world: &World) -> Vec<String> {
    world.rows("SELECT job_id || '.g' || generation FROM holdfast.outbox ORDER BY job_id").await
}

async fn milliseconds(world: &World, of: &str, id: &str) -> i64 {
    world.scalar(&format!("SELECT (extract(epoch FROM {of}) * 1000)::bigint FROM holdfast.outbox WHERE job_id = '{id}'")).await
}

/// A relayer that has claimed the only job and is held in its simulation.
async fn held(world: &World, engine: &Instance, settings: &[(&str, &str)]) -> (Arc<Instance>, String) {
    let relayer = world.serve("relayer", settings).await;
    for provider in &world.providers {
        drop(provider.hang("eth_estimateGas", Duration::from_secs(15)));
    }
    let id = world.accept(engine, &world.record()).await;
    eventually("it is being simulated", SOON, async || world.providers.iter().any(|one| one.calls("eth_estimateGas") > 0)).await;
    (relayer, id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enq_03_publishers_share_due_rows_and_none_is_published_twice() {
    let world = World::with(Setup::default().with("OUTBOX_POLL_MILLISECONDS", 50)).await;
    let db = runtime(&world).await;
    let mut engines = vec![world.engine().await];
    for _ in 0..2 {
        engines.push(world.serve("engine", &[]).await);
    }
    let published = async |result: &str| -> Vec<f64> {
        let labels = [result];
        join_all(engines.iter().map(|engine| world.metric(engine, PUBLISHED, &labels))).await
    };
    let mut jobs = 0;
    while published("\"new\"").await.iter().filter(|share| **share > 0.0).count() < 2 {
        assert!(jobs < 50_000, "one publisher does all the work");
        jobs += written(&db, 2_000).await.len();
        until_count(&world, UNPUBLISHED, SOON, |count| count == 0).await;
    }
    assert_eq!(published("\"new\"").await.iter().sum::<f64>(), jobs as f64);
    assert_eq!(published("\"duplicate\"").await, [0.0; 3]);
    let waiting: usize =
        redis::cmd("ZCARD").arg(format!("{}:jobs:prioritized", world.prefix)).query_async(&mut world.redis().await).await.expect("Redis");
    assert_eq!(waiting, jobs);
    db.close().await;
    world.finish_open().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enq_03_claims_at_one_time_are_disjoint_and_wait_for_no_locked_row() {
    let world = World::start().await;
    let db = runtime(&world).await;
    let jobs: HashSet<JobId> = written(&db, 400).await.into_iter().collect();
    let mut other = world.pool.begin().await.expect("a transaction");
    let locked: Uuid =
        sqlx::query_scalar("SELECT job_id FROM holdfast.outbox LIMIT 1 FOR UPDATE").fetch_one(&mut *other).await.expect("a row");
    let claims = join_all((0..10).map(|_| outbox::claim_unpublished(&db, 60, SOON)));
    let claims = tokio::time::timeout(SOON / 2, claims).await.expect("nobody waits for the locked row");
    let mut taken: Vec<JobId> = claims.into_iter().flat_map(|claim| claim.expect("claimed")).map(|due| due.job).collect();
    let distinct: HashSet<JobId> = taken.iter().copied().collect();
    assert_eq!(distinct.len(), taken.len(), "one row went to two publishers");
    // A row may be skipped for a moment while another claim has it; nothing else is.
    taken.extend(outbox::claim_unpublished(&db, 400, SOON).await.expect("claimed").into_iter().map(|due| due.job));
    assert_eq!((taken.len(), taken.contains(&JobId(locked))), (399, false));
    other.rollback().await.expect("released");
    let rest = outbox::claim_unpublished(&db, 400, SOON).await.expect("claimed");
    assert_eq!(rest.iter().map(|due| due.job.0).collect::<Vec<_>>(), [locked]);
    taken.push(JobId(locked));
    assert_eq!(taken.into_iter().collect::<HashSet<_>>(), jobs);
    db.close().await;
    world.finish_open().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enq_03_what_a_publisher_had_claimed_when_it_died_is_published_by_the_next() {
    let world = World::start().await;
    let db = runtime(&world).await;
    assert_eq!(world.engine().await.term(SOON).await, 0);
    let jobs = written(&db, 20).await.len();
    let dying = world.launch("engine", &[("HOLDFAST_FAIL_POINT", "publisher.claimed")]);
    assert_eq!(dying.exit(SOON).await, -9, "{}", dying.tail());
    assert_eq!(world.count(UNPUBLISHED).await, 20);
    let next = world.serve("engine", &[]).await;
    until_count(&world, UNPUBLISHED, SOON, |count| count == 0).await;
    assert_eq!(world.metric(&next, PUBLISHED, &["\"new\""]).await, jobs as f64);
    db.close().await;
    world.finish_open().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enq_05_the_next_check_of_a_delivery_is_set_when_it_is_published_and_is_made_then() {
    const PERIOD: i64 = 4_000;
    let world = World::with(Setup::default().with("QUEUE_RECONCILE_SECONDS", PERIOD / 1_000)).await;
    let engine = world.engine().await;
    let now = world.accept(&engine, &world.record()).await;
    let mut body = world.record();
    body["run_at"] = (chrono::Utc::now() + chrono::Duration::hours(1)).to_rfc3339().into();
    let later = world.accept(&engine, &body).await;
    until_count(&world, UNPUBLISHED, SOON, |count| count == 0).await;
    assert_eq!(milliseconds(&world, "next_at - deliver_at", &later).await, PERIOD, "after its time, not after its publication");
    let delivery = [format!("{now}.g1")];
    // Looked at and taken away before the check of the same period.
    let due = found("it is lost before its check", SOON, async || {
        let due = milliseconds(&world, "next_at", &now).await;
        let set: bool = world
            .scalar(&format!("SELECT next_at - published_at >= interval '{PERIOD} ms' FROM holdfast.outbox WHERE job_id = '{now}'"))
            .await;
        assert!(set, "a check before its time");
        (lost(&world, &delivery).await < due && milliseconds(&world, "next_at", &now).await == due).then_some(due)
    })
    .await;
    let made = recreated(&world, &delivery).await[0];
    assert!((due..due + 3_000).contains(&made), "due at {due}, made at {made}");
    world.finish_open().await;
}

/// The times between checks of each delivery under this period, by the clock of Redis in milliseconds.
async fn periods(world: &World, rounds: usize) -> Vec<i64> {
    let deliveries = first_deliveries(world).await;
    let mut periods = Vec::new();
    lost(world, &deliveries).await;
    let mut before = recreated(world, &deliveries).await;
    for _ in 0..rounds {
        lost(world, &deliveries).await;
        let now = recreated(world, &deliveries).await;
        periods.extend(now.iter().zip(&before).map(|(now, before)| now - before));
        before = now;
    }
    periods
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enq_09_every_waiting_delivery_is_checked_in_the_period_that_is_set() {
    let world = World::with(Setup::default().with("QUEUE_RECONCILE_SECONDS", 3)).await;
    let engine = world.engine().await;
    world.accept_records(&engine, 25).await;
    until_count(&world, UNPUBLISHED, SOON, |count| count == 0).await;
    // Due checks are looked for once a second; the rest is room for a busy machine.
    let tolerance = 2_500;
    let short = periods(&world, 2).await;
    assert_eq!(short.len(), 50);
    assert!(short.iter().all(|period| (2_990..3_000 + tolerance).contains(period)), "{short:?}");
    assert_eq!(engine.term(SOON).await, 0);
    let engine = world.serve("engine", &[("QUEUE_RECONCILE_SECONDS", "6")]).await;
    let long = periods(&world, 1).await;
    assert!(long.iter().all(|period| (5_990..6_000 + tolerance).contains(period)), "{long:?}");
    assert!(world.metric(&engine, "holdfast_outbox_recreated_total", &[]).await >= 50.0);
    world.finish_open().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enq_12_key_and_id_of_a_job_stay_what_they_are_over_all_its_generations() {
    let world = World::start().await;
    let engine = world.engine().await;
    let body = world.record();
    let accepted = world.submit(&engine, "the-key", &body).await;
    let (id, job) = (accepted.id(), JobId(accepted.id().parse().expect("a UUID")));
    let row = "SELECT k.project, k.key, encode(k.fingerprint, 'hex') AS print, k.job_id, k.created_at FROM holdfast.idempotency_keys k";
    let before = world.rows(row).await;
    let db = runtime(&world).await;
    for generation in 1..=3 {
        until_count(&world, &format!("outbox WHERE published_at IS NOT NULL AND generation = {generation}"), SOON, |count| count == 1)
            .await;
        let advanced = outbox::advance_generations(&db, &[(job, generation)]).await.expect("advanced");
        assert_eq!(advanced, [(job, generation + 1)]);
        let again = world.submit(&engine, "the-key", &body).await;
        assert_eq!((again.status, again.id()), (200, id.clone()), "generation {}", generation + 1);
        assert_eq!(world.submit(&engine, "the-key", &world.record()).await.status, 422, "another payload under the key");
        assert_eq!(world.rows(row).await, before);
    }
    world.serve("relayer", &[]).await;
    world.until_state(&id, "completed").await;
    assert_eq!(world.rows(row).await, before);
    assert_eq!(
        world.rows("SELECT j.id, o.generation FROM holdfast.jobs j JOIN holdfast.outbox o ON o.job_id = j.id").await,
        [format!("{id}|4")]
    );
    db.close().await;
    world.finish().await;
}

/// The times between publications of a row that is due again at once and of which nobody is told, in milliseconds.
async fn polls(world: &World, id: &str, count: usize) -> Vec<i64> {
    let mut times = Vec::new();
    for _ in 0..=count {
        let sql = format!("UPDATE holdfast.outbox SET published_at = NULL, next_at = now() WHERE job_id = '{id}'");
        sqlx::query(AssertSqlSafe(sql)).execute(&world.pool).await.expect("due again");
        until_count(world, UNPUBLISHED, SOON, |count| count == 0).await;
        times.push(milliseconds(world, "published_at", id).await);
    }
    times.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enq_14_the_outbox_is_polled_as_often_as_is_set_and_a_hint_only_shortens_the_wait() {
    let world = World::with(Setup::default().with("QUEUE_RECONCILE_SECONDS", 600)).await;
    assert_eq!(world.engine().await.term(SOON).await, 0);
    let hinted = world.serve("engine", &[("OUTBOX_POLL_MILLISECONDS", "120000")]).await;
    let id = world.accept(&hinted, &world.record()).await;
    until_count(&world, UNPUBLISHED, SOON, |count| count == 0).await;
    assert_eq!(hinted.term(SOON).await, 0);
    let slow = world.serve("engine", &[("OUTBOX_POLL_MILLISECONDS", "2000")]).await;
    let waits = polls(&world, &id, 3).await;
    assert!(waits.iter().all(|wait| (1_950..3_900).contains(wait)), "{waits:?}");
    assert_eq!(slow.term(SOON).await, 0);
    world.serve("engine", &[("OUTBOX_POLL_MILLISECONDS", "300")]).await;
    let waits = polls(&world, &id, 5).await;
    assert!(waits.iter().all(|wait| (250..1_900).contains(wait)), "{waits:?}");
    world.finish_open().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn que_03_postgres_spreads_the_waits_over_the_upper_half_of_each_ceiling() {
    const EACH: usize = 40;
    const ATTEMPTS: i32 = 12;
    let world = World::start().await;
    let db = runtime(&world).await;
    let worker = WorkerId(Uuid::now_v7());
    let start = workers::Start { id: worker, instance: "w", role: "relayer", version: "0", signers: &[], pool_size: 1 };
    workers::register(&db, &start, SOON).await.expect("a worker");
    let mut spans = Vec::new();
    for attempt in 1..=ATTEMPTS {
        let ceiling = backoff::ceiling_ms(attempt);
        let jobs = written(&db, EACH).await;
        let claims: Vec<Claim> = jobs.iter().map(|job| Claim { job: *job, generation: 1, token: ExecutionToken(Uuid::new_v4()) }).collect();
        let claimed = execution::claim(&db, &claims, worker).await.expect("claims");
        assert!(claimed.iter().all(|one| matches!(one, Ok(Claimed::Go(_)))));
        let finish = |claim: &Claim| Finish {
            job: claim.job,
            token: claim.token,
            number: 1,
            event: Event::AttemptFailed,
            outcome: AttemptOutcome::Retry,
            error: Some(("x", "X", String::new())),
            ceiling_ms: ceiling,
            fresh: 0,
        };
        let batch: Vec<Finish> = claims.iter().map(finish).collect();
        let finished = execution::finish(&db, &batch, worker, Duration::from_secs(30)).await.expect("finished");
        let mut waits = Vec::new();
        for (job, finished) in jobs.iter().zip(finished) {
            let Finished::Written { delay } = finished else { panic!("fenced") };
            let told = i64::try_from(delay.as_millis()).unwrap();
            let kept = world
                .scalar::<i64>(&format!(
                    "SELECT (extract(epoch FROM o.deliver_at - j.updated_at) * 1000)::bigint FROM holdfast.outbox o JOIN holdfast.jobs j ON j.id = o.job_id WHERE j.id = '{job}'"
                ))
                .await;
            assert_eq!(told, kept, "the worker was told another wait than Postgres keeps");
            waits.push(told);
        }
        let (least, most) = (*waits.iter().min().unwrap(), *waits.iter().max().unwrap());
        assert!(ceiling / 2 <= least && most <= ceiling, "attempt {attempt}: {least} to {most} under {ceiling}");
        assert!(most - least > ceiling / 5, "attempt {attempt}: {least} to {most} are no dice");
        spans.push((least, most));
    }
    // It grows until the cap holds it: each ceiling's least wait is the most that the one before may have.
    assert!(spans.windows(2).take(9).all(|pair| pair[0].1 <= pair[1].0 + 1), "{spans:?}");
    assert!(spans.iter().all(|(_, most)| *most <= backoff::CAP_MS));
    db.close().await;
    world.finish_open().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn que_03_a_job_that_fails_comes_again_after_its_wait_and_not_before() {
    let world = World::start().await;
    world.panics_expected.store(true, Ordering::Relaxed);
    let all = world.serve("all", &[("HOLDFAST_FAIL_POINT", "worker.planned:panic"), ("JOB_MAX_ATTEMPTS", "4")]).await;
    let id = world.accept(&all, &world.record()).await;
    world.until_state(&id, "dead").await;
    let waits = world
        .rows("SELECT (extract(epoch FROM started_at - lag(finished_at) OVER (ORDER BY number)) * 1000)::bigint AS wait FROM holdfast.job_attempts ORDER BY number OFFSET 1")
        .await;
    let waits: Vec<i64> = waits.iter().map(|wait| wait.parse().unwrap()).collect();
    assert_eq!(waits.len(), 3);
    for (wait, attempt) in waits.iter().zip(1..) {
        // A claim may be 20 ms early by the clock of Postgres.
        assert!(*wait >= backoff::ceiling_ms(attempt) / 2 - 20, "after attempt {attempt}: {waits:?}");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exe_01_token_worker_and_number_are_on_record_before_anything_else_happens() {
    let world = World::with(Setup::default().with("RPC_TIMEOUT_MILLISECONDS", 20_000)).await;
    let engine = world.engine().await;
    // Who dies before it has written its token has asked nobody anything.
    let early = world.serve("relayer", &[("HOLDFAST_FAIL_POINT", "worker.delivered")]).await;
    let first = world.accept(&engine, &world.record()).await;
    assert_eq!(early.exit(SOON).await, -9, "{}", early.tail());
    let simulations = || world.providers.iter().map(|one| one.calls("eth_estimateGas")).sum::<u64>();
    assert_eq!((world.count("job_attempts").await, world.count("lineages").await, simulations()), (0, 0, 0));
    assert_eq!(world.state(&first).await, "queued");
    let written = async || {
        let sql = format!(
            "SELECT a.number, a.number = j.attempts AS same_number, a.token = j.execution_token AS same_token, a.worker_id = j.worker_id AS same_worker,
                    w.instance, a.started_at <= clock_timestamp() AS started, a.finished_at IS NULL AS open
             FROM holdfast.job_attempts a JOIN holdfast.jobs j ON j.id = a.job_id JOIN holdfast.workers w ON w.id = a.worker_id WHERE j.id = '{first}'"
        );
        world.rows(&sql).await
    };
    for provider in &world.providers {
        drop(provider.hang("eth_estimateGas", Duration::from_secs(8)));
    }
    world.serve("relayer", &[("INSTANCE_ID", "the-one")]).await;
    eventually("it is being simulated", SOON, async || simulations() > 0).await;
    assert_eq!(written().await, ["1|true|true|true|the-one|true|true"]);
    assert_eq!((world.count("lineages").await, world.count("tx_attempts").await, world.sent().len()), (0, 0, 0));
    world.providers.iter().for_each(|provider| provider.heal());
    world.accept_records(&engine, 10).await;
    world.until_completed(SOON).await;
    let disorder = "SELECT a.job_id FROM holdfast.job_attempts a JOIN holdfast.lineages l ON l.job_id = a.job_id JOIN holdfast.tx_attempts t ON t.lineage_id = l.id
                    WHERE a.number = 1 AND NOT (a.started_at < l.created_at AND l.created_at < t.created_at AND t.created_at < l.last_sent_at)";
    assert_eq!((world.rows(disorder).await, world.count("tx_attempts").await), (Vec::<String>::new(), 11));
    world.finish().await;
}

async fn refused(pool: &sqlx::PgPool, sql: &str) -> String {
    let error = sqlx::query(AssertSqlSafe(sql.to_owned())).execute(pool).await.expect_err(sql);
    error.as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exe_05_every_attempt_of_a_job_is_shown_and_stays_as_it_was_told() {
    let world = World::start().await;
    world.panics_expected.store(true, Ordering::Relaxed);
    let engine = world.engine().await;
    let lost = world.serve("relayer", &[("HOLDFAST_FAIL_POINT", "worker.planned"), ("INSTANCE_ID", "lost")]).await;
    let id = world.accept(&engine, &world.record()).await;
    assert_eq!(lost.exit(SOON).await, -9, "{}", lost.tail());
    let failing = world.serve("relayer", &[("HOLDFAST_FAIL_POINT", "worker.planned:panic"), ("INSTANCE_ID", "failing")]).await;
    until_count(&world, "job_attempts WHERE outcome = 'retry'", SOON, |count| count > 0).await;
    failing.kill9();
    world.serve("relayer", &[("INSTANCE_ID", "sound")]).await;
    world.until_state(&id, "completed").await;

    let shown = command::data(&world, &["jobs", "show", &id]).await;
    let mut executions = shown["executions"].as_array().expect("a list").clone();
    executions.reverse();
    let numbers: Vec<_> = executions.iter().map(|one| one["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=executions.len() as u64).collect::<Vec<_>>(), "{shown}");
    let outcome = |place: usize| executions[place]["outcome"].as_str().unwrap_or("none");
    assert_eq!((outcome(0), outcome(1), outcome(executions.len() - 1)), ("fenced", "retry", "submitted"), "{shown}");
    assert_eq!((&executions[1]["error"], &executions[0]["error"]), (&json!("panic"), &Value::Null), "{shown}");
    assert!(executions[1]["detail"].as_str().is_some_and(|detail| detail.contains("worker.planned")), "{shown}");
    let names: BTreeMap<String, String> = world
        .rows("SELECT id, instance FROM holdfast.workers")
        .await
        .iter()
        .map(|row| row.split_once('|').unwrap())
        .map(|(id, name)| (id.into(), name.into()))
        .collect();
    let name = |place: usize| names[executions[place]["worker"].as_str().unwrap()].as_str();
    assert_eq!((name(0), name(1), name(executions.len() - 1)), ("lost", "failing", "sound"));
    let tokens: HashSet<_> = executions.iter().map(|one| one["token"].as_str().expect("a token")).collect();
    assert_eq!(tokens.len(), executions.len());
    assert!(executions.iter().all(|one| one["started_at"].as_str() < one["finished_at"].as_str()), "{shown}");
    let page = command::told(&world, &["jobs", "show", &id]).await;
    assert!(tokens.iter().all(|token| page.contains(token)) && page.contains("Executions"), "{page}");

    let runtime = sqlx::PgPool::connect(world.database.runtime.expose_secret()).await.expect("the runtime logs in");
    for sql in [
        "DELETE FROM holdfast.job_attempts",
        "TRUNCATE holdfast.job_attempts",
        "UPDATE holdfast.job_attempts SET number = number + 10",
        "UPDATE holdfast.job_attempts SET token = gen_random_uuid()",
        "UPDATE holdfast.job_attempts SET worker_id = gen_random_uuid()",
        "UPDATE holdfast.job_attempts SET started_at = now()",
    ] {
        assert_eq!(refused(&runtime, sql).await, "42501", "{sql}");
    }
    for set in ["outcome = 'submitted'", "finished_at = now()", "outcome = NULL, finished_at = NULL", "error_type = NULL", "detail = 'x'"] {
        let sql = format!("UPDATE holdfast.job_attempts SET {set}");
        assert_eq!(refused(&runtime, &sql).await, "23001", "{sql}");
    }
    runtime.close().await;
    assert_eq!(command::data(&world, &["jobs", "show", &id]).await["executions"], shown["executions"]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exe_08_rows_of_processes_that_are_long_gone_are_taken_out_once_no_job_is_theirs() {
    let world = World::with(Setup::default().with("RPC_TIMEOUT_MILLISECONDS", 20_000).with("QUEUE_LOCK_SECONDS", 10)).await;
    let engine = world.engine().await;
    let (holder, id) = held(&world, &engine, &[("INSTANCE_ID", "holder")]).await;
    let idle = world.serve("relayer", &[("INSTANCE_ID", "idle")]).await;
    let recent = world.serve("relayer", &[("INSTANCE_ID", "recent")]).await;
    for process in [&holder, &idle, &recent] {
        process.kill9();
    }
    let old = "UPDATE holdfast.workers SET state = 'stale', heartbeat_at = now() - interval '8 days' WHERE instance IN ('holder', 'idle')";
    sqlx::query(old).execute(&world.pool).await.unwrap();
    let left = async || world.rows("SELECT instance FROM holdfast.workers WHERE instance NOT LIKE 'next%' ORDER BY 1").await;
    assert_eq!(left().await, ["holder", "idle", "recent"]);
    let next = world.serve("relayer", &[("INSTANCE_ID", "next-1")]).await;
    eventually("the idle one is forgotten", SOON, async || left().await == ["holder", "recent"]).await;
    world.providers.iter().for_each(|provider| provider.heal());
    world.until_state(&id, "completed").await;
    next.kill9();
    world.serve("relayer", &[("INSTANCE_ID", "next-2")]).await;
    eventually("and so is the one that held the job", SOON, async || left().await == ["recent"]).await;
    let shown = command::data(&world, &["jobs", "show", &id]).await;
    assert_eq!(shown["executions"].as_array().map(Vec::len), Some(2), "what it did stays on record: {shown:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exe_06_each_process_is_on_record_with_what_it_holds_its_drain_and_its_heartbeat() {
    let world = World::with(Setup::default().with("RPC_TIMEOUT_MILLISECONDS", 20_000)).await;
    let engine = world.engine().await;
    let (relayer, id) = held(&world, &engine, &[("INSTANCE_ID", "relayer-7"), ("SHUTDOWN_DEADLINE_SECONDS", "40")]).await;
    let other = world.serve("relayer", &[("INSTANCE_ID", "relayer-8")]).await;
    let listed = async |name: &str| -> Value {
        let list = command::data(&world, &["workers", "list"]).await;
        list["items"].as_array().expect("a list").iter().find(|one| one["instance"] == name).cloned().unwrap_or_default()
    };
    let row =
        found("its heartbeat tells what it holds", SOON, async || Some(listed("relayer-7").await).filter(|row| row["processing"] == 1))
            .await;
    let expected = json!({"instance": "relayer-7", "role": "relayer", "version": env!("CARGO_PKG_VERSION"), "state": "active", "live": true, "processing": 1});
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&row[name], value, "{name} of {row}");
    }
    assert!(row["heartbeat_age_seconds"].as_u64().is_some_and(|age| age <= 15), "{row}");
    let answer =
        world.client.get(format!("{}/admin/v1/workers", engine.admin)).bearer_auth(&world.admin_token).send().await.expect("an answer");
    let served: Value = answer.json().await.expect("JSON");
    let ids = |list: &Value| list["items"].as_array().expect("a list").iter().map(|one| one["id"].to_string()).collect::<HashSet<_>>();
    assert_eq!(
        (ids(&served), served["items"].as_array().map(Vec::len)),
        (ids(&command::data(&world, &["workers", "list"]).await), Some(2))
    );

    relayer.signal(nix::sys::signal::Signal::SIGTERM);
    let row = found("it is told as draining", SOON, async || Some(listed("relayer-7").await).filter(|row| row["state"] != "active")).await;
    assert_eq!((&row["state"], &row["live"]), (&json!("draining"), &json!(true)), "{row}");
    world.providers.iter().for_each(|provider| provider.heal());
    assert_eq!(relayer.exit(SOON).await, 0, "{}", relayer.tail());
    let row = listed("relayer-7").await;
    assert_eq!((&row["state"], &row["processing"], &row["live"]), (&json!("stopped"), &json!(0), &json!(false)), "{row}");
    world.until_state(&id, "completed").await;

    let age = async || world.metric(&engine, "holdfast_worker_heartbeat_age_seconds", &[]).await;
    other.freeze();
    eventually("the age of its heartbeat grows", SOON, async || age().await > 6.0).await;
    other.thaw();
    eventually("it beats again", SOON, async || age().await < 6.0).await;
    world.finish().await;
}
