//! OutboxPublisher: moves due deliveries from Postgres to Redis under their stable id. The only writer of the publishing columns of the outbox.
//! Never removes a record of the queue. Woken after each commit of work, and looks by itself every OUTBOX_POLL_MILLISECONDS.

use super::supervisor::Probe;
use super::{Beat, Stage, Wake};
use crate::delivery::{Card, Delivery, Published, Standing};
use crate::fail;
use crate::store::{self, Db, outbox::Due};
use futures::FutureExt;
use std::sync::Arc;
use std::time::Duration;

/// Most deliveries in one round trip.
const BATCH: u32 = 500;
/// How long a publisher keeps claimed rows from the others; after its death they are due again.
pub(super) const LEASE: Duration = Duration::from_secs(5);

/// Starts the actor.
#[must_use]
pub fn start(stage: &Stage, db: Db, delivery: Arc<Delivery>, poll: Duration, recheck: Duration, wake: Wake) -> Probe {
    let round = move || {
        let (db, delivery) = (db.clone(), delivery.clone());
        async move {
            if let Err(error) = drain(&db, &delivery, recheck).await {
                tracing::warn!(event = "publish_failed", %error, "publishing waits for Postgres");
            }
        }
        .boxed()
    };
    Beat { name: "outbox_publisher", of: String::new(), every: poll, wake, round: Arc::new(round) }.start(stage)
}

async fn drain(db: &Db, delivery: &Delivery, recheck: Duration) -> Result<(), store::Error> {
    loop {
        let due = store::outbox::claim_unpublished(db, BATCH, LEASE).await?;
        if due.is_empty() {
            return Ok(());
        }
        fail::point("publisher.claimed");
        let all = due.len() == usize::try_from(BATCH).unwrap_or(usize::MAX);
        let failed = publish(db, delivery, &due, recheck).await?;
        if failed || !all {
            return Ok(());
        }
    }
}

/// The cards of due deliveries.
pub(super) fn cards(due: &[Due]) -> Vec<Card> {
    let card = |due: &Due| Card {
        job_id: due.job,
        generation: due.generation,
        priority: u8::try_from(due.priority).unwrap_or(100),
        delay: due.delay,
    };
    due.iter().map(card).collect()
}

/// Publishes and notes the outcome; says whether any of them failed.
pub(super) async fn publish(db: &Db, delivery: &Delivery, due: &[Due], recheck: Duration) -> Result<bool, store::Error> {
    let answers = delivery.publish(&cards(due)).await;
    fail::point("publisher.published");
    let (mut done, mut failed, mut spent) = (Vec::new(), Vec::new(), Vec::new());
    for (one, answer) in due.iter().zip(answers) {
        match answer {
            // The reconciler gives those a fresh generation or heals them at once: their check is due now.
            Ok(Published::Duplicate(Standing::Finished | Standing::Orphan)) => spent.push((one.job, one.generation)),
            Ok(Published::New | Published::Duplicate(_)) => done.push((one.job, one.generation)),
            Err(error) => {
                if failed.is_empty() {
                    tracing::warn!(event = "publish_failed", %error, deliveries = due.len(), "Redis refused deliveries; they stay in the outbox");
                }
                failed.push(one.job);
            }
        }
    }
    if !done.is_empty() {
        store::outbox::published(db, &done, recheck).await?;
    }
    if !spent.is_empty() {
        store::outbox::published(db, &spent, Duration::ZERO).await?;
    }
    if !failed.is_empty() {
        store::outbox::unpublished(db, &failed).await?;
    }
    Ok(!failed.is_empty())
}
