//! What operators want of the queue: kept in Postgres, whatever Redis forgets.

use crate::support::command;
use crate::support::wait::eventually;
use crate::support::world::{SOON, Setup, World};
use redis::AsyncCommands;

const TIMED_OUT: i32 = 5;

async fn queue(world: &World, arguments: &[&str]) -> (i32, String) {
    let prefix = world.setting("QUEUE_PREFIX").to_owned();
    let redis = world.setting("REDIS_URL").to_owned();
    command::run(world, &[&["queue"], arguments].concat(), &[("QUEUE_PREFIX", &prefix), ("REDIS_URL", &redis)]).await
}

/// Everything under the prefix but the mark of the data set.
async fn forget(world: &World, all: bool) {
    let mut redis = world.redis().await;
    let keys: Vec<String> = redis.keys(format!("{}:*", world.setting("QUEUE_PREFIX"))).await.unwrap();
    let gone: Vec<_> = keys.into_iter().filter(|key| all || !key.ends_with(":epoch")).collect();
    assert!(!gone.is_empty());
    let _: () = redis.del(gone).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn que_12_a_paused_queue_stays_paused_when_redis_forgets_it_and_when_processes_start_anew() {
    let world = World::with(Setup::default().with("QUEUE_RECONCILE_SECONDS", 2)).await;
    let engine = world.engine().await;
    let relayer = world.serve("relayer", &[]).await;
    let first = world.accept(&engine, &world.record()).await;
    world.until_state(&first, "completed").await;
    let (code, told) = queue(&world, &["pause", "--reason", "the market is mad"]).await;
    assert_eq!(code, 0, "{told}");
    let paused = async || world.metric(&engine, "holdfast_queue_paused", &[]).await;
    eventually("it is paused", SOON, async || paused().await == 1.0).await;
    let ids = world.accept_records(&engine, 3).await;
    let published = "outbox WHERE next_at IS NOT NULL AND published_at IS NOT NULL";
    eventually("they are published", SOON, async || world.count(published).await == 3).await;

    forget(&world, true).await;
    let epochs = async || world.rows("SELECT epoch::text FROM holdfast.delivery_epochs").await;
    let before = epochs().await;
    eventually("the loss is made good", SOON, async || epochs().await != before && world.count(published).await == 3).await;
    relayer.kill9();
    world.serve("relayer", &[]).await;
    let (code, told) = queue(&world, &["stats"]).await;
    assert!(code == 0 && told.contains("paused since"), "{told}");
    assert_eq!(paused().await, 1.0);
    assert_eq!(world.rows("SELECT DISTINCT state FROM holdfast.jobs WHERE finished_at IS NULL").await, ["queued"], "nobody took one");
    assert_eq!(world.count("job_attempts").await, 1);

    assert_eq!(queue(&world, &["resume", "--reason", "all is well"]).await.0, 0);
    for id in &ids {
        world.until_state(id, "completed").await;
    }
    let acts = world.rows("SELECT action, before, after FROM holdfast.operator_actions ORDER BY position").await;
    assert_eq!(acts, ["queues.pause|running|paused", "queues.resume|paused|running"]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fail_04_a_queue_is_rebuilt_on_demand_under_the_same_ids_and_the_command_waits_for_it() {
    let world = World::start().await;
    let engine = world.engine().await;
    let ids = world.accept_records(&engine, 60).await;
    let published = "outbox WHERE next_at IS NOT NULL AND published_at IS NOT NULL";
    eventually("they are published", SOON, async || world.count(published).await == 60).await;
    let records = async || {
        let keys: Vec<String> = world.redis().await.keys(format!("{}:*", world.setting("QUEUE_PREFIX"))).await.unwrap();
        keys.iter().filter(|key| ids.iter().any(|id| key.contains(id))).count()
    };
    assert_eq!(records().await, 60);
    forget(&world, false).await;
    assert_eq!(records().await, 0, "Redis lost what it held, and not its mark: nobody notices before the next check");
    let (code, told) = queue(&world, &["rebuild", "60", "--reason", "they are gone"]).await;
    assert_eq!(code, 0, "{told}");
    assert_eq!(records().await, 60);
    assert_eq!(world.rows("SELECT DISTINCT generation FROM holdfast.outbox").await, ["1"]);
    let (code, told) = queue(&world, &["rebuild", "60", "--reason", "for nothing"]).await;
    assert!(code == 0 && records().await == 60, "what is there stays as it is: {told}");

    // With nobody to do it, the wish is kept.
    engine.kill9();
    forget(&world, false).await;
    let (code, told) = queue(&world, &["rebuild", "1", "--reason", "again"]).await;
    assert!(code == TIMED_OUT && told.contains("holdfast queue stats"), "{code}: {told}");
    world.serve("all", &[]).await;
    world.until_completed(SOON).await;
    assert_eq!(world.count("delivery_epochs WHERE rebuild_at IS NOT NULL").await, 0);
    let (code, told) = queue(&world, &["pause", "--operator-id", " "]).await;
    assert_eq!(code, 2, "{told}");
    world.finish().await;
}
