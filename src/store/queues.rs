//! What operators want of the queues: paused, or published anew. The wish and the row that tells who has it are one statement; the
//! QueueReconciler makes Redis so. Called by `operator`.

use super::audited::Operator;
use super::{Db, Error, Reader};
use chrono::{DateTime, Utc};

/// A queue as operators want it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    pub prefix: String,
    pub paused_at: Option<DateTime<Utc>>,
    pub rebuild_at: Option<DateTime<Utc>>,
    /// Since when its Redis is known to have lost its data, while that is being made good.
    pub lost_at: Option<DateTime<Utc>>,
    /// Open deliveries that are due and not published, counted up to 100,000.
    pub unpublished: i64,
}

/// The queue of a prefix, or (None) all of them.
///
/// # Errors
/// See [`Error`].
pub async fn list(db: &Reader, prefix: Option<&str>) -> Result<Vec<Queue>, Error> {
    let sql = "SELECT prefix, paused_at, rebuild_at, lost_at, (SELECT count(*) FROM (SELECT 1 FROM holdfast.outbox
                   WHERE next_at IS NOT NULL AND published_at IS NULL AND next_at <= now() LIMIT 100000) AS due) AS unpublished
               FROM holdfast.delivery_epochs WHERE $1::text IS NULL OR prefix = $1 ORDER BY prefix";
    let rows = db.rows("queues", sql, vec![prefix.map(ToOwned::to_owned).into()]).await?;
    rows.iter()
        .map(|row| {
            Ok(Queue {
                prefix: row.try_get("", "prefix")?,
                paused_at: row.try_get("", "paused_at")?,
                rebuild_at: row.try_get("", "rebuild_at")?,
                lost_at: row.try_get("", "lost_at")?,
                unpublished: row.try_get("", "unpublished")?,
            })
        })
        .collect()
}

/// Pauses a queue, or lets it go on; says whether that changed anything. None: there is no such queue.
///
/// # Errors
/// See [`Error`].
pub async fn pause(db: &Db, prefix: &str, paused: bool, operator: Operator<'_>) -> Result<Option<bool>, Error> {
    let sql = "WITH held AS (
                   SELECT prefix, paused_at FROM holdfast.delivery_epochs WHERE prefix = $1 FOR UPDATE
               ), moved AS (
                   UPDATE holdfast.delivery_epochs e SET paused_at = CASE WHEN $2 THEN now() END FROM held h
                   WHERE e.prefix = h.prefix AND (h.paused_at IS NOT NULL) <> $2 RETURNING e.prefix
               ), audit AS (
                   INSERT INTO holdfast.operator_actions (operator_id, action, target, reason, before, after)
                   SELECT $3, CASE WHEN $2 THEN 'queues.pause' ELSE 'queues.resume' END, prefix, $4,
                       CASE WHEN $2 THEN 'running' ELSE 'paused' END, CASE WHEN $2 THEN 'paused' ELSE 'running' END FROM moved
               )
               SELECT EXISTS (SELECT 1 FROM moved) AS moved FROM held";
    let rows = db.rows("pause_queue", sql, vec![prefix.into(), paused.into(), operator.id.into(), operator.reason.into()]).await?;
    rows.first().map(|row| Ok(row.try_get("", "moved")?)).transpose()
}

/// Wants every open delivery published anew. False: there is no such queue.
///
/// # Errors
/// See [`Error`].
pub async fn rebuild(db: &Db, prefix: &str, operator: Operator<'_>) -> Result<bool, Error> {
    let sql = "WITH moved AS (
                   UPDATE holdfast.delivery_epochs SET rebuild_at = clock_timestamp() WHERE prefix = $1 RETURNING prefix
               ), audit AS (
                   INSERT INTO holdfast.operator_actions (operator_id, action, target, reason) SELECT $2, 'queues.rebuild', prefix, $3 FROM moved
               )
               SELECT prefix FROM moved";
    Ok(!db.rows("rebuild_queue", sql, vec![prefix.into(), operator.id.into(), operator.reason.into()]).await?.is_empty())
}
