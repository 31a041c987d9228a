//! What raw Postgres can do, and what a load run did to it; for `holdfast bench` alone. The copies of the tables are dropped at the end.

use super::{Db, Error, Reader};
use std::time::{Duration, Instant};

/// Rows of one statement, as Intake would send them.
const BATCH: i64 = 256;

/// Accepts `rows` jobs by plain multi-row inserts into copies of the tables that Intake writes, two connections at a time;
/// gives the time it took. Needs the owner's connection.
///
/// # Errors
/// See [`Error`].
pub async fn raw_inserts(owner: &Db, rows: i64) -> Result<Duration, Error> {
    for sql in [
        "DROP SCHEMA IF EXISTS holdfast_bench CASCADE",
        "CREATE SCHEMA holdfast_bench",
        "CREATE TABLE holdfast_bench.jobs (LIKE holdfast.jobs INCLUDING ALL)",
        "CREATE TABLE holdfast_bench.idempotency_keys (LIKE holdfast.idempotency_keys INCLUDING ALL)",
        "CREATE TABLE holdfast_bench.outbox (LIKE holdfast.outbox INCLUDING ALL)",
        "CREATE TABLE holdfast_bench.stream_events (LIKE holdfast.stream_events INCLUDING ALL)",
    ] {
        owner.execute("bench_tables", sql, vec![]).await?;
    }
    let began = Instant::now();
    let half = rows / 2;
    tokio::try_join!(insert(owner, half), insert(owner, rows - half))?;
    let took = began.elapsed();
    owner.execute("bench_tables", "DROP SCHEMA holdfast_bench CASCADE", vec![]).await?;
    Ok(took)
}

async fn insert(owner: &Db, mut left: i64) -> Result<(), Error> {
    let sql = "WITH input AS (SELECT gen_random_uuid() AS id FROM generate_series(1, $1)), j AS (
                   INSERT INTO holdfast_bench.jobs (id, project, kind, state, chain_id, pool, to_address, value, data, priority, run_at, attempts_budget)
                   SELECT id, 'bench', 'contract_call', 'queued', 31337, 'local:relayer', decode(repeat('07', 20), 'hex'), 0, decode(repeat('07', 36), 'hex'), 50, now(), 8 FROM input
               ), k AS (
                   INSERT INTO holdfast_bench.idempotency_keys (project, key, fingerprint, job_id) SELECT 'bench', id::text, sha256(id::text::bytea), id FROM input
               ), o AS (
                   INSERT INTO holdfast_bench.outbox (job_id, priority, deliver_at, next_at) SELECT id, 50, now(), now() FROM input
               )
               INSERT INTO holdfast_bench.stream_events (domain, key, version, type) SELECT 'job', id, 1, 'queued' FROM input";
    while left > 0 {
        owner.execute("bench_insert", sql, vec![left.min(BATCH).into()]).await?;
        left -= BATCH;
    }
    Ok(())
}

/// Percentiles in milliseconds: 50, 95, 99.
#[derive(Clone, Copy, Debug, Default)]
pub struct Percentiles(pub [f64; 3]);

/// How long jobs of a load run took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spans {
    pub completed: i64,
    pub sent_once: i64,
    pub accept_to_broadcast: Percentiles,
    pub accept_to_mined: Percentiles,
    /// From the first acceptance to the last end.
    pub whole: Duration,
}

/// The spans of the completed jobs of one project whose idempotency keys begin with `run`.
///
/// # Errors
/// See [`Error`].
pub async fn spans(db: &Reader, run: &str) -> Result<Spans, Error> {
    let sql = "WITH mine AS (
                   SELECT j.created_at, j.finished_at, l.sends, l.last_sent_at
                   FROM holdfast.idempotency_keys k JOIN holdfast.jobs j ON j.id = k.job_id JOIN holdfast.lineages l ON l.job_id = j.id
                   WHERE k.key LIKE $1 || '%' AND j.state = 'completed'
               )
               SELECT count(*) AS completed, count(*) FILTER (WHERE sends = 1) AS sent_once,
                      coalesce(percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY extract(epoch FROM last_sent_at - created_at)::double precision * 1000)
                               FILTER (WHERE sends = 1), ARRAY[0, 0, 0]::double precision[]) AS broadcast,
                      coalesce(percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY extract(epoch FROM finished_at - created_at)::double precision * 1000),
                               ARRAY[0, 0, 0]::double precision[]) AS mined,
                      coalesce(extract(epoch FROM max(finished_at) - min(created_at)), 0)::double precision AS whole
               FROM mine";
    let rows = db.rows("bench_spans", sql, vec![run.into()]).await?;
    let row = rows.first().ok_or_else(|| Error::Answer("no row".into()))?;
    let three = |name: &str| -> Result<Percentiles, Error> {
        let found: Vec<f64> = row.try_get("", name)?;
        Ok(Percentiles(found.try_into().unwrap_or_default()))
    };
    Ok(Spans {
        completed: row.try_get("", "completed")?,
        sent_once: row.try_get("", "sent_once")?,
        accept_to_broadcast: three("broadcast")?,
        accept_to_mined: three("mined")?,
        whole: Duration::try_from_secs_f64(row.try_get("", "whole")?).unwrap_or_default(),
    })
}
