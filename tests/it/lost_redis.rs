//! What the loss of Redis costs when the backlog is large: short statements, one way back for all processes, and nothing twice.

use crate::support::anvil::CHAIN_ID;
use crate::support::parts::OwnRedis;
use crate::support::wait::eventually;
use crate::support::world::{POOL, Redis, SOON, Setup, World};
use sqlx::AssertSqlSafe;

const BACKLOG: i64 = 40_000;

async fn execute(world: &World, sql: String) -> u64 {
    sqlx::query(AssertSqlSafe(sql)).execute(&world.pool).await.expect("the owner may").rows_affected()
}

/// Jobs for the next hour, as accepted and not yet published.
async fn backlog(world: &World) {
    execute(
        world,
        format!(
            "INSERT INTO holdfast.jobs (id, project, kind, state, chain_id, pool, to_address, value, data, priority, run_at, attempts_budget)
             SELECT gen_random_uuid(), 'tests', 'transfer', 'queued', {CHAIN_ID}, '{POOL}', decode(repeat('11', 20), 'hex'), 0, '', 50,
                    now() + interval '1 hour', 8 FROM generate_series(1, {BACKLOG})"
        ),
    )
    .await;
    execute(
        world,
        "INSERT INTO holdfast.outbox (job_id, priority, deliver_at, next_at) SELECT id, priority, run_at, now() FROM holdfast.jobs
         ON CONFLICT DO NOTHING"
            .to_owned(),
    )
    .await;
    execute(
        world,
        "INSERT INTO holdfast.idempotency_keys (project, key, fingerprint, job_id)
         SELECT project, id::text, decode(repeat('00', 32), 'hex'), id FROM holdfast.jobs"
            .to_owned(),
    )
    .await;
    execute(
        world,
        "INSERT INTO holdfast.stream_events (domain, key, version, type) SELECT 'job', id, 1, 'queued' FROM holdfast.jobs".to_owned(),
    )
    .await;
}

async fn held(world: &World) -> i64 {
    let mut redis = world.redis().await;
    ::redis::cmd("ZCARD").arg(format!("{}:jobs:delayed", world.prefix)).query_async(&mut redis).await.unwrap_or(0)
}

async fn lost_at(world: &World) -> String {
    world.rows("SELECT coalesce(lost_at::text, '') FROM holdfast.delivery_epochs").await.concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fail_04_a_large_backlog_comes_back_in_short_statements_whoever_dies_on_the_way() {
    let setup = Setup { redis: Redis::Own(OwnRedis::start().await), ..Setup::default() };
    // No statement over the whole backlog ends within this time.
    let world = World::with(setup.with("STATEMENT_TIMEOUT_MS", 1_000).with("QUEUE_RECONCILE_SECONDS", 3_600)).await;
    let first = world.serve("all", &[]).await;
    backlog(&world).await;
    eventually("all are published", SOON * 2, async || held(&world).await == BACKLOG).await;
    eventually("that is noted", SOON, async || world.count("outbox WHERE published_at IS NULL").await == 0).await;
    let epoch = world.rows("SELECT epoch::text FROM holdfast.delivery_epochs").await;

    let mut redis = world.redis().await;
    let () = ::redis::cmd("FLUSHALL").query_async(&mut redis).await.expect("forgotten");
    eventually("the way back has begun", SOON, async || held(&world).await > 0).await;
    first.kill9();
    let (noticed, back) = (lost_at(&world).await, held(&world).await);
    assert!(!noticed.is_empty() && back < BACKLOG, "the process died in the middle: {back} of {BACKLOG} were back");

    // What comes in now is not behind the whole backlog.
    let second = world.serve("all", &[]).await;
    let job = world.accept(&second, &world.record()).await;
    world.until_state(&job, "completed").await;
    eventually("all are published again", SOON * 2, async || held(&world).await == BACKLOG).await;
    eventually("the new epoch has begun", SOON, async || world.rows("SELECT epoch::text FROM holdfast.delivery_epochs").await != epoch)
        .await;
    assert_eq!(lost_at(&world).await, "", "the loss is over");
    eventually("nothing is left", SOON, async || world.count("outbox WHERE next_at IS NOT NULL AND published_at IS NULL").await == 0).await;
    let told = world.told().await;
    assert!(!told.contains("queue_reconcile_failed") && !told.contains("publish_failed"), "no statement was too long");
    assert_eq!(world.metric(&second, "holdfast_delivery_epochs_total", &[]).await, 1.0);
    world.finish_open().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fail_04_a_loss_is_dated_once_and_what_is_published_after_it_is_left_alone() {
    use holdfast::store::{Db, outbox};
    use secrecy::ExposeSecret;
    use std::time::Duration;
    use uuid::Uuid;
    let world = World::start().await;
    let mut settings = holdfast::config::Database::at(world.database.runtime.expose_secret());
    settings.pool_min = 0;
    let db = Db::connect(&settings).await.expect("the runtime logs in");
    let (old, new, newer) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
    assert!(outbox::start_epoch(&db, &world.prefix, None, old).await.unwrap());
    backlog(&world).await;
    execute(&world, "UPDATE holdfast.outbox SET published_at = now(), next_at = deliver_at".to_owned()).await;

    let first = outbox::note_loss(&db, &world.prefix, old, new).await.unwrap().expect("it is open");
    assert_eq!(outbox::note_loss(&db, &world.prefix, old, new).await.unwrap(), Some(first), "another process sees the same moment");
    // Ended, published again, refused for long: none of these is a lost one.
    execute(&world, "UPDATE holdfast.outbox SET next_at = NULL WHERE job_id IN (SELECT job_id FROM holdfast.outbox LIMIT 5)".to_owned())
        .await;
    let some =
        "job_id IN (SELECT job_id FROM holdfast.outbox WHERE next_at IS NOT NULL AND published_at IS NOT NULL ORDER BY job_id LIMIT 7)";
    execute(&world, format!("UPDATE holdfast.outbox SET published_at = clock_timestamp() WHERE {some}")).await;
    let refused = "job_id IN (SELECT job_id FROM holdfast.outbox WHERE next_at IS NOT NULL ORDER BY job_id DESC LIMIT 11)";
    execute(
        &world,
        format!("UPDATE holdfast.outbox SET published_at = NULL, failures = 9, next_at = now() + interval '1 minute' WHERE {refused}"),
    )
    .await;

    assert!(outbox::any_lost(&db, first).await.unwrap());
    let (mut from, mut all, mut batches) = (outbox::Cursor::START, 0, 0);
    while let Some((end, many)) = outbox::republish_lost(&db, first, from, 1_000).await.unwrap() {
        assert!(many <= 1_000);
        (from, all, batches) = (end, all + many, batches + 1);
    }
    assert_eq!((all, batches), (u64::try_from(BACKLOG).unwrap() - 5 - 7 - 11, 40));
    assert!(!outbox::any_lost(&db, first).await.unwrap());
    assert_eq!(outbox::republish_lost(&db, first, outbox::Cursor::START, 1_000).await.unwrap(), None, "and no second time");
    assert_eq!(outbox::hurry_unpublished(&db, Duration::from_secs(5), 10).await.unwrap(), 10);
    assert_eq!(outbox::hurry_unpublished(&db, Duration::from_secs(5), 10).await.unwrap(), 1);
    assert_eq!(outbox::hurry_unpublished(&db, Duration::from_secs(5), 10).await.unwrap(), 0);

    let again = outbox::note_loss(&db, &world.prefix, old, newer).await.unwrap().expect("still open");
    assert!(again > first, "a second loss on the way back has its own moment");
    assert!(outbox::start_epoch(&db, &world.prefix, Some(old), newer).await.unwrap());
    assert_eq!(outbox::note_loss(&db, &world.prefix, old, new).await.unwrap(), None, "it is over");
    world.finish_open().await;
}
