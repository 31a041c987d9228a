//! The door to Postgres: every statement runs in a task of its own on the main runtime, so that no caller that goes away
//! (a reset connection, a timeout, an actor's restart) can cut it in half, and no more callers wait than POOL_QUEUE_LIMIT.
//! The only place that begins transactions. Called by the rest of `store` alone.

use super::Error;
use crate::config;
use crate::telemetry::metrics;
use sea_orm::{
    ConnectOptions, ConnectionTrait, Database, DatabaseConnection, DatabaseTransaction, DbBackend, QueryResult, Statement, Value,
};
use secrecy::ExposeSecret;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Reads and writes. `http` may not name it: it gets a [`Reader`].
#[derive(Clone)]
pub struct Db(Arc<Inner>);

/// Reads only: every function that takes a `Reader` changes nothing.
#[derive(Clone)]
pub struct Reader(Db);

struct Inner {
    pool: DatabaseConnection,
    runtime: Handle,
    slots: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    queue_limit: usize,
    patience: Duration,
    slow: Duration,
}

/// A transaction, and its place among the connections for as long as it lives. Dropped without `commit` it rolls back.
pub struct Tx {
    inner: DatabaseTransaction,
    _slot: OwnedSemaphorePermit,
}

struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    fn one(count: &Arc<AtomicUsize>) -> (Self, usize) {
        let before = count.fetch_add(1, AcqRel);
        metrics::DB_POOL_WAITING.set(before as f64 + 1.0, &[]);
        (Self(count.clone()), before)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let before = self.0.fetch_sub(1, AcqRel);
        metrics::DB_POOL_WAITING.set(before as f64 - 1.0, &[]);
    }
}

impl Db {
    /// Opens the pool. Must be called on the main runtime, which all statements then run on.
    ///
    /// # Errors
    /// `Unavailable` when the server does not answer.
    pub async fn connect(settings: &config::Database) -> Result<Self, Error> {
        let mut options = ConnectOptions::new(settings.url.expose_secret());
        let timeout = settings.statement_timeout;
        options
            .min_connections(settings.pool_min)
            .max_connections(settings.pool_max)
            .acquire_timeout(settings.connection_timeout)
            .connect_timeout(settings.connection_timeout)
            .idle_timeout(settings.idle_timeout)
            .test_before_acquire_if_idle_for(Duration::from_secs(5))
            .sqlx_logging(false)
            .set_application_name("holdfast");
        let session = settings.pool_mode == config::PoolMode::Session;
        options.map_sqlx_postgres_opts(move |pg| {
            if !session {
                // A pooler in transaction mode refuses start-up options and shares sessions: the timeout is set on the role.
                return pg.statement_cache_capacity(0);
            }
            let pg = pg.options([("idle_in_transaction_session_timeout", "15s"), ("lock_timeout", "4s")]);
            if timeout.is_zero() { pg } else { pg.options([("statement_timeout", format!("{}ms", timeout.as_millis()))]) }
        });
        let pool = Database::connect(options).await?;
        let slots = usize::try_from(settings.pool_max).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Ok(Self(Arc::new(Inner {
            pool,
            runtime: Handle::current(),
            slots: Arc::new(Semaphore::new(slots)),
            waiting: Arc::default(),
            queue_limit: settings.queue_limit,
            patience: settings.connection_timeout,
            slow: Duration::from_secs(1),
        })))
    }

    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader(self.clone())
    }

    /// Closes every connection.
    pub async fn close(&self) {
        let _ = self.0.pool.clone().close().await;
    }

    async fn slot(&self) -> Result<OwnedSemaphorePermit, Error> {
        let inner = &self.0;
        let slot = if let Ok(slot) = inner.slots.clone().try_acquire_owned() {
            slot
        } else {
            let (_waiting, before) = Waiting::one(&inner.waiting);
            if before >= inner.queue_limit {
                metrics::DB_POOL_EXHAUSTED.add(1, &[]);
                let (total, idle) = self.connections();
                tracing::warn!(
                    event = "pool_exhausted",
                    total,
                    idle,
                    waiting = before,
                    queueLimit = inner.queue_limit,
                    "Postgres pool exhausted"
                );
                return Err(Error::PoolExhausted { waiting: before });
            }
            let waited = tokio::time::timeout(inner.patience, inner.slots.clone().acquire_owned()).await;
            waited.ok().and_then(Result::ok).ok_or_else(|| Error::Unavailable("no connection within DB_CONNECTION_TIMEOUT".into()))?
        };
        let (total, idle) = self.connections();
        metrics::DB_POOL_ACTIVE.set(f64::from(total.saturating_sub(u32::try_from(idle).unwrap_or(u32::MAX))), &[]);
        metrics::DB_POOL_IDLE.set(idle as f64, &[]);
        Ok(slot)
    }

    /// Open connections and how many of them are idle.
    #[must_use]
    pub fn connections(&self) -> (u32, usize) {
        let pool = self.0.pool.get_postgres_connection_pool();
        (pool.size(), pool.num_idle())
    }

    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Acquire)
    }

    /// Runs one statement to its end, whatever becomes of the caller, and gives its rows.
    pub(super) async fn rows(&self, op: &'static str, sql: &'static str, values: Vec<Value>) -> Result<Vec<QueryResult>, Error> {
        let me = self.clone();
        self.detached(op, async move {
            let _slot = me.slot().await?;
            Ok(me.0.pool.query_all_raw(Statement::from_sql_and_values(DbBackend::Postgres, sql, values)).await?)
        })
        .await
    }

    /// Runs one statement to its end, whatever becomes of the caller, and says how many rows it changed.
    pub(super) async fn execute(&self, op: &'static str, sql: &'static str, values: Vec<Value>) -> Result<u64, Error> {
        let me = self.clone();
        self.detached(op, async move {
            let _slot = me.slot().await?;
            Ok(me.0.pool.execute_raw(Statement::from_sql_and_values(DbBackend::Postgres, sql, values)).await?.rows_affected())
        })
        .await
    }

    async fn detached<T: Send + 'static>(
        &self,
        op: &'static str,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let started = Instant::now();
        let result = self.0.runtime.spawn(work).await.unwrap_or_else(|e| Err(Error::Unavailable(e.to_string())));
        let took = started.elapsed();
        metrics::DB_STATEMENTS.add(1, &[]);
        metrics::DB_STATEMENT_SECONDS.record(took.as_secs_f64(), &[op]);
        if matches!(result, Err(Error::Timeout)) {
            metrics::DB_QUERY_TIMEOUTS.add(1, &[]);
        }
        if took > self.0.slow {
            tracing::warn!(
                event = "slow_statement",
                op,
                took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
                "Slow postgres query"
            );
        }
        result
    }

    /// Begins a transaction in a task of its own: when the caller is dropped meanwhile, the finished transaction is dropped
    /// there and rolls back before its connection goes back to the pool.
    ///
    /// # Errors
    /// `PoolExhausted` and `Unavailable`.
    pub async fn begin(&self) -> Result<Tx, Error> {
        let me = self.clone();
        self.detached("begin", async move {
            let slot = me.slot().await?;
            #[expect(clippy::disallowed_methods, reason = "the one place that begins, in a task that nobody cancels")]
            let inner = sea_orm::TransactionTrait::begin(&me.0.pool).await?;
            Ok(Tx { inner, _slot: slot })
        })
        .await
    }
}

impl Tx {
    pub(super) async fn rows(&self, sql: &'static str, values: Vec<Value>) -> Result<Vec<QueryResult>, Error> {
        Ok(self.inner.query_all_raw(Statement::from_sql_and_values(DbBackend::Postgres, sql, values)).await?)
    }

    /// # Errors
    /// Whatever Postgres says; nothing is kept then.
    pub async fn commit(self) -> Result<(), Error> {
        Ok(self.inner.commit().await?)
    }
}

impl Reader {
    pub(super) async fn rows(&self, op: &'static str, sql: &'static str, values: Vec<Value>) -> Result<Vec<QueryResult>, Error> {
        self.0.rows(op, sql, values).await
    }

    #[must_use]
    pub fn connections(&self) -> (u32, usize) {
        self.0.connections()
    }

    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.waiting()
    }
}
