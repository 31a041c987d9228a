//! Deliveries as Postgres sees them. Publishing columns are written by the OutboxPublisher, generations by the QueueReconciler
//! and by the statements that end an execution or a lineage.

use super::arrays::array;
use super::{Db, Error};
use chrono::{DateTime, Utc};
use entity::ids::JobId;
use sea_orm::QueryResult;
use std::time::Duration;
use uuid::Uuid;

/// A delivery that is due to be published or checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    pub job: JobId,
    pub generation: i32,
    pub priority: i16,
    /// How long until it may run, by the clock of Postgres.
    pub delay: Duration,
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn due(row: &QueryResult) -> Result<Due, Error> {
    let delay: i64 = row.try_get("", "delay_ms")?;
    Ok(Due {
        job: row.try_get("", "job_id")?,
        generation: row.try_get("", "generation")?,
        priority: row.try_get("", "priority")?,
        delay: Duration::from_millis(u64::try_from(delay).unwrap_or(0)),
    })
}

/// Takes up to `limit` unpublished deliveries for `lease`.
///
/// # Errors
/// See [`Error`].
pub async fn claim_unpublished(db: &Db, limit: u32, lease: Duration) -> Result<Vec<Due>, Error> {
    let rows = db
        .rows("claim_unpublished", include_str!("sql/claim_unpublished.sql"), vec![i64::from(limit).into(), millis(lease).into()])
        .await?;
    rows.iter().map(due).collect()
}

/// Takes up to `limit` published deliveries that are due to be looked at again.
///
/// # Errors
/// See [`Error`].
pub async fn claim_checks(db: &Db, limit: u32, lease: Duration) -> Result<Vec<Due>, Error> {
    let rows = db.rows("claim_checks", include_str!("sql/claim_checks.sql"), vec![i64::from(limit).into(), millis(lease).into()]).await?;
    rows.iter().map(due).collect()
}

/// Notes that the deliveries stand in Redis; the next look is `recheck` after they are due.
///
/// # Errors
/// See [`Error`].
pub async fn published(db: &Db, done: &[(JobId, i32)], recheck: Duration) -> Result<u64, Error> {
    let values =
        vec![array(done.iter().map(|(job, _)| job.0)), array(done.iter().map(|(_, generation)| *generation)), millis(recheck).into()];
    db.execute("published", include_str!("sql/published.sql"), values).await
}

/// Notes that publishing failed.
///
/// # Errors
/// See [`Error`].
pub async fn unpublished(db: &Db, failed: &[JobId]) -> Result<u64, Error> {
    db.execute("unpublished", include_str!("sql/unpublished.sql"), vec![array(failed.iter().map(|job| job.0))]).await
}

/// Advances the generation of open deliveries that still are at the given one.
///
/// # Errors
/// See [`Error`].
pub async fn advance_generations(db: &Db, spent: &[(JobId, i32)]) -> Result<Vec<(JobId, i32)>, Error> {
    let values = vec![array(spent.iter().map(|(job, _)| job.0)), array(spent.iter().map(|(_, generation)| *generation))];
    let rows = db.rows("advance_generations", include_str!("sql/advance_generations.sql"), values).await?;
    rows.iter().map(|row| Ok((row.try_get("", "job_id")?, row.try_get("", "generation")?))).collect()
}

/// Where a pass over lost deliveries stands: the last row it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    next_at: DateTime<Utc>,
    job: JobId,
}

impl Cursor {
    pub const START: Self = Self { next_at: DateTime::UNIX_EPOCH, job: JobId(Uuid::nil()) };
}

/// Makes up to `limit` open deliveries after `from` due that were published before `lost_at`. Gives where the batch ended and how many it
/// had; None when this pass is through.
///
/// # Errors
/// See [`Error`].
pub async fn republish_lost(db: &Db, lost_at: DateTime<Utc>, from: Cursor, limit: u32) -> Result<Option<(Cursor, u64)>, Error> {
    let values = vec![lost_at.into(), from.next_at.into(), from.job.0.into(), i64::from(limit).into()];
    let rows = db.rows("republish_lost", include_str!("sql/republish_lost.sql"), values).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let deliveries: i64 = row.try_get("", "deliveries")?;
    let end = Cursor { next_at: row.try_get("", "next_at")?, job: row.try_get("", "job_id")? };
    Ok(Some((end, u64::try_from(deliveries).unwrap_or(0))))
}

/// Whether a delivery that was published before `lost_at` still waits to be made due: one that a pass had to skip.
///
/// # Errors
/// See [`Error`].
pub async fn any_lost(db: &Db, lost_at: DateTime<Utc>) -> Result<bool, Error> {
    let sql = "SELECT EXISTS (SELECT 1 FROM holdfast.outbox WHERE next_at IS NOT NULL AND published_at < $1) AS any_lost";
    let rows = db.rows("any_lost", sql, vec![lost_at.into()]).await?;
    rows.first().map_or(Ok(false), |row| Ok(row.try_get("", "any_lost")?))
}

/// Makes up to `limit` deliveries due that Redis refused and whose next try is further away than `beyond`, which is how long a
/// publisher may hold one.
///
/// # Errors
/// See [`Error`].
pub async fn hurry_unpublished(db: &Db, beyond: Duration, limit: u32) -> Result<u64, Error> {
    let values = vec![millis(beyond).into(), i64::from(limit).into()];
    db.execute("hurry_unpublished", include_str!("sql/hurry_unpublished.sql"), values).await
}

/// Notes that Redis lost the data set `old` and shows `new`; gives the moment of the loss. None when somebody has started `new` already.
///
/// # Errors
/// See [`Error`].
pub async fn note_loss(db: &Db, prefix: &str, old: Uuid, new: Uuid) -> Result<Option<DateTime<Utc>>, Error> {
    let values = vec![prefix.into(), old.into(), new.into()];
    let rows = db.rows("note_loss", include_str!("sql/note_loss.sql"), values).await?;
    rows.first().map(|row| Ok(row.try_get("", "lost_at")?)).transpose()
}

/// What the queue under a prefix must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The epoch that Redis must show.
    pub epoch: Uuid,
    /// Nobody takes deliveries.
    pub paused: bool,
    /// Every delivery that was published before is to be published again.
    pub rebuild_at: Option<DateTime<Utc>>,
}

/// What the queue under `prefix` must be; None: it has never begun.
///
/// # Errors
/// See [`Error`].
pub async fn wanted(db: &Db, prefix: &str) -> Result<Option<Wanted>, Error> {
    let sql = "SELECT epoch, paused_at IS NOT NULL AS paused, rebuild_at FROM holdfast.delivery_epochs WHERE prefix = $1";
    let rows = db.rows("wanted_queue", sql, vec![prefix.into()]).await?;
    rows.first()
        .map(|row| {
            Ok(Wanted { epoch: row.try_get("", "epoch")?, paused: row.try_get("", "paused")?, rebuild_at: row.try_get("", "rebuild_at")? })
        })
        .transpose()
}

/// Notes that what was asked for at `rebuild_at` is done; a later wish stays.
///
/// # Errors
/// See [`Error`].
pub async fn rebuilt(db: &Db, prefix: &str, rebuild_at: DateTime<Utc>) -> Result<u64, Error> {
    let sql = "UPDATE holdfast.delivery_epochs SET rebuild_at = NULL WHERE prefix = $1 AND rebuild_at = $2";
    db.execute("rebuilt", sql, vec![prefix.into(), rebuild_at.into()]).await
}

/// Replaces the epoch if it still is `old`; says whether this caller did.
///
/// # Errors
/// See [`Error`].
pub async fn start_epoch(db: &Db, prefix: &str, old: Option<Uuid>, new: Uuid) -> Result<bool, Error> {
    let sql = "INSERT INTO holdfast.delivery_epochs AS e (prefix, epoch) VALUES ($1, $2)
               ON CONFLICT (prefix) DO UPDATE SET epoch = $2, started_at = now(), next_epoch = NULL, lost_at = NULL WHERE e.epoch = $3";
    Ok(db.execute("start_epoch", sql, vec![prefix.into(), new.into(), old.unwrap_or(Uuid::nil()).into()]).await? == 1)
}
