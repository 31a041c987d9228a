//! The door to Postgres: every statement runs in a task of its own on the main runtime, so that no caller that goes away
//! (a reset connection, a timeout, an actor's restart) can cut it in half, and no more callers wait than POOL_QUEUE_LIMIT.
//! The only place that begins transactions. Called by the rest of `store` alone.

use super::Error;
use super::places::{Place, Places};
use super::reach;
use crate::config;
use crate::telemetry::metrics;
use sea_orm::{
    ConnectOptions, ConnectionTrait, Database, DatabaseConnection, DatabaseTransaction, DbBackend, QueryResult, Statement, Value,
};
use secrecy::ExposeSecret;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// Reads and writes. `http` may not name it: it gets a [`Reader`].
#[derive(Clone)]
pub struct Db(Arc<Inner>);

/// Reads only: every function that takes a `Reader` changes nothing.
#[derive(Clone)]
pub struct Reader(Db);

struct Inner {
    pool: DatabaseConnection,
    runtime: Handle,
    places: Arc<Places>,
    slow: Duration,
}

/// A transaction, and its place among the connections for as long as it lives. Dropped without `commit` it rolls back.
pub struct Tx {
    inner: DatabaseTransaction,
    slow: Duration,
    _place: Place,
}

/// Counts a statement that ran out of time, and tells of one that was slow: its name and never its values.
fn judge<T>(op: &'static str, began: Instant, slow: Duration, result: &Result<T, Error>) {
    if matches!(result, Err(Error::Timeout)) {
        metrics::DB_QUERY_TIMEOUTS.add(1, &[]);
    }
    let took = began.elapsed();
    if !slow.is_zero() && took >= slow {
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(event = "slow_statement", op, took_ms, "Slow postgres query");
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
        let pool = match Database::connect(options).await {
            Ok(pool) => pool,
            Err(error) => return Err(reach::cause(&settings.url, settings.connection_timeout, error.into()).await),
        };
        let places = Places::new(pool.clone(), settings.pool_max, settings.queue_limit, settings.connection_timeout);
        Ok(Self(Arc::new(Inner { pool, runtime: Handle::current(), places, slow: settings.slow_statement })))
    }

    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader(self.clone())
    }

    /// Closes every connection.
    pub async fn close(&self) {
        let _ = self.0.pool.clone().close().await;
    }

    /// Open connections and how many of them are idle.
    #[must_use]
    pub fn connections(&self) -> (u32, usize) {
        self.0.places.connections()
    }

    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.places.waiting()
    }

    /// Sets the gauges of the pool: the one thing that happens there without our doing is that an idle connection is closed.
    pub fn tell_connections(&self) {
        self.0.places.tell();
    }

    /// Runs one statement to its end, whatever becomes of the caller, and gives its rows.
    pub(super) async fn rows(&self, op: &'static str, sql: &'static str, values: Vec<Value>) -> Result<Vec<QueryResult>, Error> {
        let statement = Statement::from_sql_and_values(DbBackend::Postgres, sql, values);
        self.detached(op, async move |pool, _place| Ok(pool.query_all_raw(statement).await?)).await
    }

    /// Runs one statement to its end, whatever becomes of the caller, and says how many rows it changed.
    pub(super) async fn execute(&self, op: &'static str, sql: &'static str, values: Vec<Value>) -> Result<u64, Error> {
        let statement = Statement::from_sql_and_values(DbBackend::Postgres, sql, values);
        self.detached(op, async move |pool, _place| Ok(pool.execute_raw(statement).await?.rows_affected())).await
    }

    async fn detached<T, W, F>(&self, op: &'static str, work: W) -> Result<T, Error>
    where
        T: Send + 'static,
        W: FnOnce(DatabaseConnection, Place) -> F + Send + 'static,
        F: Future<Output = Result<T, Error>> + Send,
    {
        let asked = Instant::now();
        let (pool, places, slow) = (self.0.pool.clone(), self.0.places.clone(), self.0.slow);
        let done = self.0.runtime.spawn(async move {
            let place = places.take().await?;
            // A statement is not slow because it had to wait for its connection.
            let began = Instant::now();
            let result = work(pool, place).await;
            judge(op, began, slow, &result);
            result
        });
        let result = done.await.unwrap_or_else(|e| Err(Error::Unavailable(e.to_string())));
        metrics::DB_STATEMENTS.add(1, &[]);
        metrics::DB_STATEMENT_SECONDS.record(asked.elapsed().as_secs_f64(), &[op]);
        result
    }

    /// Begins a transaction in a task of its own: when the caller is dropped meanwhile, the finished transaction is dropped
    /// there and rolls back before its connection goes back to the pool.
    ///
    /// # Errors
    /// `PoolExhausted`, `NoConnection` and `Unavailable`.
    pub async fn begin(&self) -> Result<Tx, Error> {
        let slow = self.0.slow;
        self.detached("begin", async move |pool, place| {
            #[expect(clippy::disallowed_methods, reason = "the one place that begins, in a task that nobody cancels")]
            let inner = sea_orm::TransactionTrait::begin(&pool).await?;
            Ok(Tx { inner, slow, _place: place })
        })
        .await
    }
}

impl Tx {
    pub(super) async fn rows(&self, sql: &'static str, values: Vec<Value>) -> Result<Vec<QueryResult>, Error> {
        let began = Instant::now();
        let rows = self.inner.query_all_raw(Statement::from_sql_and_values(DbBackend::Postgres, sql, values)).await;
        let rows = rows.map_err(Error::from);
        judge("in_transaction", began, self.slow, &rows);
        rows
    }

    /// # Errors
    /// Whatever Postgres says; nothing is kept then.
    pub async fn commit(self) -> Result<(), Error> {
        let began = Instant::now();
        let done = self.inner.commit().await.map_err(Error::from);
        judge("commit", began, self.slow, &done);
        done
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
