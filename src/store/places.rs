//! The places at the connection pool, one a connection: who has one, who waits for one, who is refused, and the gauges that say so.
//! Never opens a connection and never sends a statement. Called by `store::db` alone.

use super::Error;
use crate::telemetry::metrics;
use sea_orm::DatabaseConnection;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(super) struct Places {
    pool: DatabaseConnection,
    free: Arc<Semaphore>,
    /// As many as the pool may have connections.
    all: usize,
    waiting: AtomicUsize,
    queue_limit: usize,
    patience: Duration,
}

/// Whoever holds it finds a connection in the pool. The gauges follow when it comes and when it goes.
pub(super) struct Place {
    permit: Option<OwnedSemaphorePermit>,
    of: Arc<Places>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.permit.take();
        self.of.tell();
    }
}

struct Waiting<'a>(&'a Places);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, AcqRel);
        self.0.tell();
    }
}

impl Places {
    pub(super) fn new(pool: DatabaseConnection, connections: u32, queue_limit: usize, patience: Duration) -> Arc<Self> {
        let all = usize::try_from(connections).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Arc::new(Self { pool, free: Arc::new(Semaphore::new(all)), all, waiting: AtomicUsize::new(0), queue_limit, patience })
    }

    /// Takes a place, after a wait if all are taken.
    pub(super) async fn take(self: &Arc<Self>) -> Result<Place, Error> {
        let permit = match self.free.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait().await?,
        };
        let place = Place { permit: Some(permit), of: self.clone() };
        self.tell();
        Ok(place)
    }

    async fn wait(&self) -> Result<OwnedSemaphorePermit, Error> {
        // One that is refused never counts as waiting: it would have others refused.
        let queued = self.waiting.fetch_update(AcqRel, Acquire, |count| (count < self.queue_limit).then_some(count + 1));
        if let Err(waiting) = queued {
            return Err(self.refuse(waiting));
        }
        let _waiting = Waiting(self);
        self.tell();
        let permit = tokio::time::timeout(self.patience, self.free.clone().acquire_owned()).await;
        permit.ok().and_then(Result::ok).ok_or(Error::NoConnection)
    }

    fn refuse(&self, waiting: usize) -> Error {
        metrics::DB_POOL_EXHAUSTED.add(1, &[]);
        let (total, idle) = self.connections();
        tracing::warn!(event = "pool_exhausted", total, idle, waiting, queueLimit = self.queue_limit, "Postgres pool exhausted");
        Error::PoolExhausted { waiting }
    }

    /// Open connections and how many of them are idle. The pool itself learns only later that one came back.
    pub(super) fn connections(&self) -> (u32, usize) {
        let total = self.pool.get_postgres_connection_pool().size();
        (total, usize::try_from(total).unwrap_or(usize::MAX).saturating_sub(self.taken()))
    }

    fn taken(&self) -> usize {
        self.all.saturating_sub(self.free.available_permits())
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Acquire)
    }

    /// Sets the gauges to how it is now.
    pub(super) fn tell(&self) {
        metrics::DB_POOL_ACTIVE.set(self.taken() as f64, &[]);
        metrics::DB_POOL_IDLE.set(self.connections().1 as f64, &[]);
        metrics::DB_POOL_WAITING.set(self.waiting() as f64, &[]);
    }
}
