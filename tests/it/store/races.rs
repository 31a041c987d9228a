//! Statements that wait for a row's lock while another transaction binds a nonce: what they decide afterwards has to know of it.

use super::{CHAIN, Place, SIGNER, claim, failed, settings, wanted};
use crate::support::wait::eventually;
use entity::ids::{JobId, LaneId};
use entity::states::AttemptOutcome;
use entity::values::Wei;
use holdfast::domain::job::Event;
use holdfast::store::execution::{self, Claimed, Finish, Finished};
use holdfast::store::lanes::{self, Reserved};
use holdfast::store::{Db, jobs, lanes::Observed, outbox};
use sqlx::{Postgres, Transaction};
use std::time::Duration;
use uuid::Uuid;

/// What a reservation does to a job, in a transaction that the test ends when it likes.
async fn binding<'a>(place: &'a Place, lane: LaneId, job: JobId) -> Transaction<'a, Postgres> {
    let mut tx = place.owner.begin().await.unwrap();
    let id = Uuid::now_v7();
    sqlx::query(
        "INSERT INTO holdfast.lineages (id, job_id, lane_id, chain_id, signer, nonce, call_hash, to_address, value, data, gas_limit, state)
         VALUES ($1, $2, $3, $4, $5, 0, sha256('x'), $5, 0, '', 21000, 'allocated')",
    )
    .bind(id)
    .bind(job.0)
    .bind(lane.0)
    .bind(CHAIN)
    .bind(SIGNER.0.to_vec())
    .execute(&mut *tx)
    .await
    .unwrap();
    sqlx::query("UPDATE holdfast.jobs SET lineage_id = $1 WHERE id = $2").bind(id).bind(job.0).execute(&mut *tx).await.unwrap();
    sqlx::query("UPDATE holdfast.lanes SET next_nonce = 1 WHERE id = $1").bind(lane.0).execute(&mut *tx).await.unwrap();
    tx
}

async fn until_somebody_waits(place: &Place) {
    eventually("a statement waits for the lock", Duration::from_secs(10), async || {
        let sql = "SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        place.text(sql).await != "0"
    })
    .await;
}

#[tokio::test]
async fn a_claim_that_waited_for_a_reservation_knows_the_nonce_that_it_bound() {
    let place = Place::new().await;
    let (lane, worker) = (place.lane(SIGNER, 16).await, place.worker().await);
    let job = place.accepted(1).await[0];
    place.claimed(&[job], worker).await;
    let tx = binding(&place, lane, job).await;
    let db = place.db.clone();
    let second = tokio::spawn(async move { execution::claim(&db, &[claim(job)], worker).await });
    until_somebody_waits(&place).await;
    tx.commit().await.unwrap();
    let answers = second.await.unwrap().expect("an answer");
    let [Ok(Claimed::Go(execution))] = &answers[..] else { panic!("{answers:?}") };
    assert!(execution.lineage.is_some(), "it would look for another nonce, or end the job without this one");
    place.end().await;
}

#[tokio::test]
async fn an_execution_never_ends_a_job_that_owns_a_nonce() {
    let place = Place::new().await;
    let (lane, worker) = (place.lane(SIGNER, 16).await, place.worker().await);
    let claims = place.claimed(&place.accepted(3).await, worker).await;
    let wants: Vec<_> = claims.iter().map(wanted).collect();
    assert!(
        lanes::reserve(&place.db, lane, &wants, Wei::from(1))
            .await
            .expect("nonces")
            .iter()
            .all(|got| matches!(got, Reserved::Nonce { .. }))
    );
    let ends = [
        (Event::NothingToDo, AttemptOutcome::NotActionable),
        (Event::BudgetSpent, AttemptOutcome::Dead),
        (Event::CancelAsked, AttemptOutcome::Cancelled),
    ];
    let finishes: Vec<Finish> =
        claims.iter().zip(ends).map(|(claim, (event, outcome))| Finish { event, outcome, ..failed(claim) }).collect();
    let written = execution::finish(&place.db, &finishes, worker, Duration::from_secs(30)).await.expect("an answer");
    assert!(written.iter().all(|one| matches!(one, Finished::Written { .. })), "{written:?}");
    assert_eq!(place.count("jobs WHERE state = 'retry' AND finished_at IS NULL").await, 3);
    assert_eq!(place.count("outbox WHERE next_at IS NOT NULL").await, 3, "each comes again");
    place.end().await;
}

#[tokio::test]
async fn a_cancellation_that_waited_for_a_reservation_asks_for_a_no_op() {
    let place = Place::new().await;
    let (lane, worker) = (place.lane(SIGNER, 16).await, place.worker().await);
    let job = place.accepted(1).await[0];
    place.claimed(&[job], worker).await;
    let tx = binding(&place, lane, job).await;
    let db = place.db.clone();
    let cancelling = tokio::spawn(async move { jobs::cancel(&db, job, None, None).await });
    until_somebody_waits(&place).await;
    tx.commit().await.unwrap();
    assert_eq!(cancelling.await.unwrap().expect("an answer"), jobs::Cancelled::Noop);
    assert_eq!(place.count("lineages WHERE noop_reason = 'cancelled'").await, 1);
    place.end().await;
}

#[tokio::test]
async fn a_job_that_was_asked_to_end_while_no_lane_had_room_ends_with_its_execution() {
    let place = Place::new().await;
    let worker = place.worker().await;
    let job = place.accepted(1).await[0];
    let claims = place.claimed(&[job], worker).await;
    assert_eq!(jobs::cancel(&place.db, job, None, None).await.expect("an answer"), jobs::Cancelled::Asked);
    let later = Finish { event: Event::GivenBack, outcome: AttemptOutcome::Snoozed, ..failed(&claims[0]) };
    execution::finish(&place.db, &[later], worker, Duration::from_secs(30)).await.expect("an answer");
    assert_eq!(place.count("jobs WHERE state = 'cancelled' AND finished_at IS NOT NULL").await, 1);
    assert_eq!(place.count("outbox WHERE next_at IS NOT NULL").await, 0);
    place.end().await;
}

#[tokio::test]
async fn nonces_that_the_chain_has_used_up_are_given_to_nobody_and_the_fence_follows_once_they_are_settled() {
    let place = Place::new().await;
    let (lane, worker) = (place.lane(SIGNER, 16).await, place.worker().await);
    let claims = place.claimed(&place.accepted(1).await, worker).await;
    lanes::lease(&place.db, lane, worker, Duration::from_secs(60)).await.expect("the lease").expect("free");
    let seen = |latest, settled| Observed { latest, settled, pending: None, block: 9 };
    assert!(!lanes::observe(&place.db, lane, worker, seen(5, 0)).await.expect("noted"));
    assert_eq!(lanes::reserve(&place.db, lane, &[wanted(&claims[0])], Wei::from(1)).await.expect("an answer"), [Reserved::Full]);
    assert!(lanes::pick(&place.db, CHAIN, super::POOL, 1, &[SIGNER]).await.expect("dealt").is_empty());
    assert!(lanes::observe(&place.db, lane, worker, seen(5, 5)).await.expect("noted"), "the fence has followed");
    assert_eq!(place.count("operator_actions WHERE action = 'lanes.adopt_used_nonces'").await, 1);
    let reserved = lanes::reserve(&place.db, lane, &[wanted(&claims[0])], Wei::from(1)).await.expect("an answer");
    assert!(matches!(reserved[..], [Reserved::Nonce { nonce: 5, .. }]), "{reserved:?}");
    // A reorganisation takes the newest count back, and the wait for the head starts anew.
    lanes::observe(&place.db, lane, worker, seen(4, 5)).await.expect("noted");
    assert_eq!(place.text("SELECT latest_nonce::text FROM holdfast.lanes").await, "4");
    place.end().await;
}

/// Publishing notes deliveries while executions of the same jobs end: both lock the same rows, many at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ends_of_executions_and_notes_of_deliveries_never_wait_for_each_other_in_a_ring() {
    const JOBS: usize = 300;
    let mut place = Place::new().await;
    // With the plan of a large table, which gives the rows in the order of a hash.
    place.run(&format!("ALTER DATABASE {} SET enable_nestloop = off", place.database.name)).await;
    place.db.close().await;
    place.db = Db::connect(&settings(&place.database)).await.unwrap();
    let worker = place.worker().await;
    let jobs = place.accepted(JOBS).await;
    let mut mixed: Vec<(JobId, i32)> = jobs.iter().map(|job| (*job, 1)).collect();
    for round in 0..40 {
        sqlx::query("UPDATE holdfast.outbox SET deliver_at = now() - interval '1 s'").execute(&place.owner).await.unwrap();
        let claims = place.claimed(&jobs, worker).await;
        let mut finishes: Vec<Finish> = claims
            .iter()
            .map(|claim| Finish {
                number: round + 1,
                outcome: AttemptOutcome::Snoozed,
                event: Event::GivenBack,
                ceiling_ms: 0,
                ..failed(claim)
            })
            .collect();
        // Another order each time, as deliveries come.
        let turn = usize::try_from(round).unwrap() * 7 % JOBS;
        finishes.rotate_left(turn);
        finishes.reverse();
        mixed.rotate_left((JOBS / 3 + turn) % JOBS);
        let (one, other) = (place.db.clone(), place.db.clone());
        let notes = mixed.clone();
        let (ended, noted) = tokio::join!(
            tokio::spawn(async move { execution::finish(&one, &finishes, worker, Duration::from_secs(30)).await }),
            tokio::spawn(async move {
                for _ in 0..3 {
                    outbox::published(&other, &notes, Duration::from_secs(30)).await?;
                }
                Ok::<_, holdfast::store::Error>(())
            })
        );
        let ended = ended.unwrap().unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(ended.iter().all(|one| matches!(one, Finished::Written { .. })), "round {round}");
        noted.unwrap().unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    place.end().await;
}
