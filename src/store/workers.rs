//! Processes that execute jobs: one row a start, never reused by a restart under the same INSTANCE_ID.

use super::{Db, Error, Reader};
use chrono::{DateTime, Utc};
use entity::ids::WorkerId;
use entity::states::WorkerState;
use entity::values::Address;
use std::time::Duration;

/// What a process says of itself when it starts.
#[derive(Clone, Debug)]
pub struct Start<'a> {
    pub id: WorkerId,
    pub instance: &'a str,
    pub role: &'a str,
    pub version: &'a str,
    pub signers: &'a [Address],
    pub pool_size: u32,
}

/// Registers a start. A predecessor of the same instance whose heartbeat is older than `stale` is marked stale; beside a live one
/// the newcomer gets its boot epoch appended to its name, so that each of them can be drained alone.
///
/// # Errors
/// See [`Error`].
pub async fn register(db: &Db, start: &Start<'_>, stale: Duration) -> Result<(), Error> {
    let ms = i64::try_from(stale.as_millis()).unwrap_or(i64::MAX);
    let old = "UPDATE holdfast.workers SET state = 'stale' WHERE instance = $1 AND state IN ('starting', 'active', 'draining', 'drained')
               AND heartbeat_at < now() - $2::bigint * interval '1 ms'";
    db.execute("stale_instance", old, vec![start.instance.into(), ms.into()]).await?;
    let sql = "INSERT INTO holdfast.workers (id, instance, role, version, state, signers, pool_size) VALUES ($1, $2, $3, $4, 'active', $5::bytea[], $6)";
    let signers = super::arrays::array(start.signers.iter().copied());
    let size = i32::try_from(start.pool_size).unwrap_or(i32::MAX);
    let values =
        |instance: String| vec![start.id.into(), instance.into(), start.role.into(), start.version.into(), signers.clone(), size.into()];
    match db.execute("register_worker", sql, values(start.instance.to_owned())).await {
        Err(Error::Conflict(_)) => {
            db.execute("register_worker", sql, values(format!("{}#{}", start.instance, start.id.0.simple()))).await?
        }
        other => other?,
    };
    Ok(())
}

/// Tells that the process lives, how many jobs it holds and whether it takes none (`paused`): a draining one that holds none is drained.
/// Marks the ones that do not tell any more; says what state the row has.
///
/// # Errors
/// See [`Error`].
pub async fn heartbeat(db: &Db, id: WorkerId, processing: usize, paused: bool, stale: Duration) -> Result<Option<WorkerState>, Error> {
    let sql = "WITH lost AS (
                   UPDATE holdfast.workers SET state = 'stale' WHERE state IN ('starting', 'active', 'draining', 'drained') AND id <> $1
                   AND heartbeat_at < now() - $3::bigint * interval '1 ms'
               )
               UPDATE holdfast.workers SET heartbeat_at = now(), processing = $2, state = CASE
                   WHEN state = 'stale' AND NOT $4 THEN 'active' WHEN state IN ('stale', 'draining') AND $4 AND $2 = 0 THEN 'drained'
                   WHEN state = 'stale' THEN 'draining' ELSE state END
               WHERE id = $1 AND state <> 'stopped' RETURNING state";
    let ms = i64::try_from(stale.as_millis()).unwrap_or(i64::MAX);
    let values = vec![id.into(), i32::try_from(processing).unwrap_or(i32::MAX).into(), ms.into(), paused.into()];
    let rows = db.rows("heartbeat", sql, values).await?;
    rows.first().map(|row| Ok(row.try_get("", "state")?)).transpose()
}

/// Takes out rows of processes that have not been heard of for `after` and that nothing refers to: no job that is being executed, no lane. At
/// most 100.
///
/// # Errors
/// See [`Error`].
pub async fn reap(db: &Db, after: Duration) -> Result<u64, Error> {
    let sql = "DELETE FROM holdfast.workers WHERE id IN (
                   SELECT w.id FROM holdfast.workers w WHERE w.state IN ('stopped', 'stale') AND w.heartbeat_at < now() - $1::bigint * interval '1 s'
                   AND NOT EXISTS (SELECT 1 FROM holdfast.jobs j WHERE j.worker_id = w.id AND j.state = 'processing')
                   AND NOT EXISTS (SELECT 1 FROM holdfast.lanes l WHERE l.lease_holder = w.id AND l.lease_until > now())
                   ORDER BY w.id LIMIT 100 FOR UPDATE OF w SKIP LOCKED)";
    db.execute("reap_workers", sql, vec![i64::try_from(after.as_secs()).unwrap_or(i64::MAX).into()]).await
}

/// Moves a worker along its life: draining, drained, stopped.
///
/// # Errors
/// See [`Error`].
pub async fn set_state(db: &Db, id: WorkerId, state: WorkerState) -> Result<(), Error> {
    let sql = "UPDATE holdfast.workers SET state = $2, processing = CASE WHEN $2 = 'stopped' THEN 0 ELSE processing END,
               stopped_at = CASE WHEN $2 = 'stopped' THEN now() END WHERE id = $1 AND state <> 'stopped'";
    db.execute("worker_state", sql, vec![id.into(), state.to_string().into()]).await?;
    Ok(())
}

/// A worker as operators see it.
#[derive(Clone, Debug)]
pub struct WorkerView {
    pub id: WorkerId,
    pub instance: String,
    pub role: String,
    pub version: String,
    pub state: WorkerState,
    pub processing: i32,
    pub pool_size: i32,
    pub started_at: DateTime<Utc>,
    pub heartbeat_at: DateTime<Utc>,
    pub heartbeat_age: Duration,
}

/// The newest workers, live ones first, at most 200.
///
/// # Errors
/// See [`Error`].
pub async fn list(db: &Reader) -> Result<Vec<WorkerView>, Error> {
    let sql = "SELECT id, instance, role, version, state, processing, pool_size, started_at, heartbeat_at,
               extract(epoch FROM now() - heartbeat_at)::double precision AS age_seconds
               FROM holdfast.workers ORDER BY (state IN ('stopped', 'stale')), started_at DESC LIMIT 200";
    let rows = db.rows("workers", sql, vec![]).await?;
    rows.iter()
        .map(|row| {
            Ok(WorkerView {
                id: row.try_get("", "id")?,
                instance: row.try_get("", "instance")?,
                role: row.try_get("", "role")?,
                version: row.try_get("", "version")?,
                state: row.try_get("", "state")?,
                processing: row.try_get("", "processing")?,
                pool_size: row.try_get("", "pool_size")?,
                started_at: row.try_get("", "started_at")?,
                heartbeat_at: row.try_get("", "heartbeat_at")?,
                heartbeat_age: Duration::try_from_secs_f64(row.try_get("", "age_seconds")?).unwrap_or_default(),
            })
        })
        .collect()
}
