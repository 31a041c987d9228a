//! The writer of Postgres is lost and its standby takes over.

use crate::support::parts::Servers;
use crate::support::standby::Standby;
use crate::support::wait::eventually;
use crate::support::world::{SOON, Setup, World, until_count};
use secrecy::ExposeSecret;
use sqlx::postgres::PgPoolOptions;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn txr_11_fail_08_nothing_goes_on_before_the_promoted_writer_is_there_and_then_everything_does() {
    let setup = Setup { servers: Some(Servers::of_their_own().await), postgres_proxy: true, lanes: 2, ..Setup::default() };
    let mut world = World::with(setup.with("TX_LANE_WIDTH", 8)).await;
    let standby = Standby::of(world.servers()).await;
    let all = world.serve("all", &[]).await;
    let ids = world.accept_records(&all, 150).await;
    until_count(&world, "jobs WHERE state = 'completed'", SOON, |count| count > 10).await;

    // The writer is gone, and what answers under its name is a standby.
    world.servers().crash_postgres();
    world.postgres.as_ref().expect("a proxy").move_to(standby.address);
    let readyz = format!("{}/readyz", all.admin);
    eventually("readiness says why", SOON, async || {
        let answer = world.client.get(&readyz).send().await.expect("an answer");
        let (status, text) = (answer.status().as_u16(), answer.text().await.unwrap_or_default());
        status == 503 && text.contains("standby")
    })
    .await;
    let refused = world.submit(&all, "while-it-is-read-only", &world.record()).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
    let sent = world.sent().len();

    standby.promote().await;
    world.pool =
        PgPoolOptions::new().max_connections(3).connect(standby.url(&world.database.owner).expose_secret()).await.expect("the new writer");
    world.until_ready(&all).await;
    let kept = world.rows("SELECT id FROM holdfast.jobs").await;
    assert!(ids.iter().all(|id| kept.contains(id)), "what was acknowledged is there");
    world.until_completed(SOON * 2).await;
    assert!(world.sent().len() > sent, "the rest went out after the promotion");
    assert!(all.is_alive(), "the same process");
    // A process that starts now finds the same.
    let fresh = world.serve("all", &[]).await;
    let id = world.accept(&fresh, &world.record()).await;
    world.until_state(&id, "completed").await;
    world.finish().await;
}
