//! QueueReconciler: holds Redis against Postgres. Recreates what Redis lost, gives open jobs a fresh generation where Redis holds a
//! terminal record, heals leftovers, and notices the loss of all of Redis by an epoch key. Advances a generation only on what Redis shows; what ends an execution or a
//! lineage advances it in the same statement.

use super::supervisor::Probe;
use super::{Beat, Stage, Wake, outbox_publisher};
use crate::delivery::{Delivery, Published, Standing};
use crate::store::outbox::{Cursor, Due};
use crate::store::{self, Db};
use crate::telemetry::metrics;
use chrono::{DateTime, Utc};
use futures::FutureExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use uuid::Uuid;

const BATCH: u32 = 500;
/// Lost deliveries in one statement: some 50 ms of row locks.
const LOST_BATCH: u32 = 2_000;
/// How often all lost deliveries are gone through before the rest is left to their checks.
const LOST_PASSES: u32 = 5;
/// How often a long way back is told of.
const TELL: Duration = Duration::from_secs(5);
const LEASE: Duration = Duration::from_secs(5);
/// How often it looks for due checks and for the epoch.
const EVERY: Duration = Duration::from_secs(1);

#[derive(Clone)]
struct Work {
    db: Db,
    delivery: Arc<Delivery>,
    prefix: String,
    recheck: Duration,
    publisher: Wake,
    /// Whether this process has last seen the queue wanted paused.
    paused: Arc<Mutex<Option<bool>>>,
}

/// Starts the actor. `recheck` is QUEUE_RECONCILE_SECONDS.
#[must_use]
pub fn start(stage: &Stage, db: Db, delivery: Arc<Delivery>, prefix: &str, recheck: Duration, publisher: Wake) -> Probe {
    let work = Work { db, delivery, prefix: prefix.to_owned(), recheck, publisher, paused: Arc::default() };
    let round = move || {
        let work = work.clone();
        async move {
            if let Err(error) = work.round().await {
                tracing::warn!(event = "queue_reconcile_failed", %error, "reconciling waits for Postgres");
            }
        }
        .boxed()
    };
    Beat { name: "queue_reconciler", of: String::new(), every: EVERY.min(recheck), wake: Wake::default(), round: Arc::new(round) }
        .start(stage)
}

impl Work {
    async fn round(&self) -> Result<(), store::Error> {
        self.watch_epoch().await?;
        loop {
            let due = store::outbox::claim_checks(&self.db, BATCH, LEASE).await?;
            if due.is_empty() {
                return Ok(());
            }
            if !self.check(&due).await? {
                return Ok(());
            }
        }
    }

    /// A Redis without our epoch lost everything: every open delivery becomes due at once instead of at its next check.
    async fn watch_epoch(&self) -> Result<(), store::Error> {
        let Ok(held) = self.delivery.epoch().await else { return Ok(()) };
        let wanted = store::outbox::wanted(&self.db, &self.prefix).await?;
        if let Some(wanted) = wanted {
            self.pause(wanted.paused).await;
        }
        let known = wanted.map(|wanted| wanted.epoch);
        if held.is_some() && held == known {
            return match wanted.and_then(|wanted| wanted.rebuild_at) {
                Some(at) => self.rebuild(at).await,
                None => Ok(()),
            };
        }
        let planted = match held {
            Some(epoch) => epoch,
            None => match self.delivery.plant_epoch(Uuid::now_v7()).await {
                Ok(epoch) => epoch,
                Err(_) => return Ok(()),
            },
        };
        let Some(known) = known else {
            store::outbox::start_epoch(&self.db, &self.prefix, None, planted).await?;
            return Ok(());
        };
        // Deliveries first, then the epoch: a crash in between repeats the work, it never skips it.
        let Some(lost_at) = store::outbox::note_loss(&self.db, &self.prefix, known, planted).await? else { return Ok(()) };
        let deliveries = self.republish(lost_at).await?;
        if store::outbox::start_epoch(&self.db, &self.prefix, Some(known), planted).await? {
            metrics::DELIVERY_EPOCHS.add(1, &[]);
            tracing::warn!(event = "delivery_epoch_changed", deliveries, "Redis lost its data: every open delivery is published again");
        }
        Ok(())
    }

    /// Redis may forget that it is paused, so that is told again in every round; that it is not, once.
    async fn pause(&self, paused: bool) {
        let last = *self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        if !paused && last == Some(false) {
            return;
        }
        let told = if paused { self.delivery.pause_queue().await } else { self.delivery.resume_queue().await };
        match told {
            Ok(()) => {
                *self.paused.lock().unwrap_or_else(PoisonError::into_inner) = Some(paused);
                if last.is_some() && last != Some(paused) {
                    tracing::info!(event = "queue_pause", paused, "an operator has the queue taken by nobody, or taken again");
                }
            }
            Err(error) => tracing::debug!(%error, "the pause waits for Redis"),
        }
    }

    /// An operator wants all that is open published anew, under the ids that it has.
    async fn rebuild(&self, at: DateTime<Utc>) -> Result<(), store::Error> {
        let deliveries = self.republish(at).await?;
        if store::outbox::rebuilt(&self.db, &self.prefix, at).await? > 0 {
            tracing::info!(event = "queue_rebuilt", deliveries, "an operator had every open delivery published again");
        }
        Ok(())
    }

    /// Makes what was lost due again, a batch at a time: publishing begins with the first, and work that comes in meanwhile is
    /// published in its turn.
    async fn republish(&self, lost_at: DateTime<Utc>) -> Result<u64, store::Error> {
        let (mut deliveries, mut told) = (0, Instant::now());
        // What a pass skips is in the hands of somebody for a moment.
        for _ in 0..LOST_PASSES {
            let mut from = Cursor::START;
            while let Some((end, batch)) = store::outbox::republish_lost(&self.db, lost_at, from, LOST_BATCH).await? {
                from = end;
                deliveries += batch;
                self.publisher.wake();
                if told.elapsed() >= TELL {
                    told = Instant::now();
                    tracing::info!(event = "deliveries_lost", deliveries, "Redis lost its data: open deliveries are being published again");
                }
            }
            if !store::outbox::any_lost(&self.db, lost_at).await? {
                break;
            }
        }
        while store::outbox::hurry_unpublished(&self.db, outbox_publisher::LEASE, LOST_BATCH).await? > 0 {
            self.publisher.wake();
        }
        Ok(deliveries)
    }

    /// Says whether Redis answered.
    async fn check(&self, due: &[Due]) -> Result<bool, store::Error> {
        let ids: Vec<_> = due.iter().map(|one| (one.job, one.generation)).collect();
        let standings = match self.delivery.standing(&ids).await {
            Ok(standings) => standings,
            Err(error) => {
                tracing::debug!(%error, "checks wait for Redis");
                return Ok(false);
            }
        };
        let (mut fine, mut absent, mut spent) = (Vec::new(), Vec::new(), Vec::new());
        for (one, standing) in due.iter().zip(standings) {
            match standing {
                Standing::Waiting | Standing::Delayed | Standing::Active => fine.push((one.job, one.generation)),
                Standing::Absent => absent.push(*one),
                Standing::Finished => spent.push((one.job, one.generation)),
                Standing::Orphan => {
                    if self.delivery.heal_orphan(one.job, one.generation).await.unwrap_or(false) {
                        absent.push(*one);
                    }
                }
            }
        }
        if !fine.is_empty() {
            store::outbox::published(&self.db, &fine, self.recheck).await?;
        }
        self.recreate(&absent).await?;
        if !spent.is_empty() {
            let advanced = store::outbox::advance_generations(&self.db, &spent).await?;
            metrics::OUTBOX_GENERATIONS_ADVANCED.add(u64::try_from(advanced.len()).unwrap_or(0), &["terminal_record"]);
            for (job, generation) in advanced {
                tracing::info!(event = "generation_advanced", %job, generation, "Redis holds a terminal record of an open job");
            }
            self.publisher.wake();
        }
        Ok(true)
    }

    async fn recreate(&self, absent: &[Due]) -> Result<(), store::Error> {
        if absent.is_empty() {
            return Ok(());
        }
        let answers = self.delivery.publish(&outbox_publisher::cards(absent)).await;
        let done: Vec<_> =
            absent.iter().zip(&answers).filter(|(_, answer)| answer.is_ok()).map(|(one, _)| (one.job, one.generation)).collect();
        let new = answers.iter().filter(|answer| matches!(answer, Ok(Published::New))).count();
        metrics::OUTBOX_RECREATED.add(u64::try_from(new).unwrap_or(0), &[]);
        if !done.is_empty() {
            store::outbox::published(&self.db, &done, self.recheck).await?;
        }
        Ok(())
    }
}
