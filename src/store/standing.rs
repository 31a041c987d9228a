//! How things stand, where only operators ask: the load of each lane, the newest blocks, the budget and executor of a job.
//! Reads only, all bounded by partial indexes; called by `operator`.

use super::arrays::array;
use super::settling::{self, Open};
use super::{Error, Reader};
use crate::domain::fees::{Quote, TxType};
use chrono::{DateTime, Utc};
use entity::ids::{JobId, LaneId, LineageId, WorkerId};
use entity::states::AttemptOutcome;
use entity::values::{Address, Wei};
use sea_orm::QueryResult;
use std::time::Duration;

/// The open nonces of a lane, counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    pub lane: LaneId,
    pub open: i64,
    /// Since the oldest of them got its nonce.
    pub oldest: Duration,
    /// Their lowest nonce: the one that all others wait for.
    pub lowest: i64,
    /// Reserved and not signed yet.
    pub unsigned: i64,
}

/// Of the lanes that have open nonces. Served by lineages_open.
///
/// # Errors
/// See [`Error`].
pub async fn loads(db: &Reader) -> Result<Vec<Load>, Error> {
    let sql = "SELECT lane_id, count(*) AS open, min(nonce) AS lowest, count(*) FILTER (WHERE state = 'allocated') AS unsigned,
               extract(epoch FROM now() - min(created_at))::double precision AS oldest
               FROM holdfast.lineages WHERE state IN ('allocated', 'signed', 'broadcast', 'replaced') GROUP BY lane_id ORDER BY lane_id LIMIT 10000";
    let rows = db.rows("lane_loads", sql, vec![]).await?;
    rows.iter()
        .map(|row| {
            Ok(Load {
                lane: row.try_get("", "lane_id")?,
                open: row.try_get("", "open")?,
                oldest: Duration::try_from_secs_f64(row.try_get("", "oldest")?).unwrap_or_default(),
                lowest: row.try_get("", "lowest")?,
                unsigned: row.try_get("", "unsigned")?,
            })
        })
        .collect()
}

/// The newest block of a chain that a majority had reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub chain_id: i64,
    pub number: i64,
    pub seen_at: DateTime<Utc>,
    pub age: Duration,
    /// What the market asked for there, and the form of a transaction that the chain takes.
    pub market: Option<(Quote, TxType)>,
}

/// # Errors
/// See [`Error`].
pub async fn heads(db: &Reader) -> Result<Vec<Head>, Error> {
    let sql =
        "SELECT chain_id, number, seen_at, extract(epoch FROM now() - seen_at)::double precision AS age, base_fee, priority_fee, tx_type
               FROM holdfast.heads ORDER BY chain_id LIMIT 1000";
    let rows = db.rows("heads", sql, vec![]).await?;
    rows.iter()
        .map(|row| {
            Ok(Head {
                chain_id: row.try_get("", "chain_id")?,
                number: row.try_get("", "number")?,
                seen_at: row.try_get("", "seen_at")?,
                age: Duration::try_from_secs_f64(row.try_get("", "age")?).unwrap_or_default(),
                market: market(row)?,
            })
        })
        .collect()
}

fn market(row: &QueryResult) -> Result<Option<(Quote, TxType)>, Error> {
    let (base_fee, priority_fee): (Option<Wei>, Option<Wei>) = (row.try_get("", "base_fee")?, row.try_get("", "priority_fee")?);
    let quote = base_fee.zip(priority_fee).map(|(base_fee, priority_fee)| Quote { base_fee, priority_fee });
    Ok(quote.zip(row.try_get::<Option<i16>>("", "tx_type")?.and_then(TxType::of)))
}

/// What the settling of a lane has last seen.
#[derive(Clone, Copy, Debug)]
pub struct Sight {
    pub lane: LaneId,
    /// What a pool has counted, with what waits in it: a hint.
    pub pending: Option<i64>,
    pub block: Option<i64>,
    /// Since the chain was last counted.
    pub age: Option<Duration>,
    /// Since when the chain waits for the lane's latest nonce.
    pub head_for: Duration,
    pub balance: Option<Wei>,
    pub balance_age: Option<Duration>,
    /// Some process settles it now.
    pub leased: bool,
}

/// Of the lanes of one signer.
///
/// # Errors
/// See [`Error`].
pub async fn sights(db: &Reader, signer: Address) -> Result<Vec<Sight>, Error> {
    let sql = "SELECT id, pending_nonce, observed_block, extract(epoch FROM now() - observed_at)::double precision AS age,
                      extract(epoch FROM now() - head_since)::double precision AS head_for, balance,
                      extract(epoch FROM now() - balance_at)::double precision AS balance_age, coalesce(lease_until > now(), false) AS leased
               FROM holdfast.lanes WHERE signer = $1 ORDER BY id LIMIT 1000";
    let rows = db.rows("lane_sights", sql, vec![signer.into()]).await?;
    rows.iter()
        .map(|row| {
            let span = |name| Ok::<_, Error>(row.try_get::<Option<f64>>("", name)?.and_then(|s| Duration::try_from_secs_f64(s).ok()));
            Ok(Sight {
                lane: row.try_get("", "id")?,
                pending: row.try_get("", "pending_nonce")?,
                block: row.try_get("", "observed_block")?,
                age: span("age")?,
                head_for: span("head_for")?.unwrap_or_default(),
                balance: row.try_get("", "balance")?,
                balance_age: span("balance_age")?,
                leased: row.try_get("", "leased")?,
            })
        })
        .collect()
}

/// Open nonces by their ids, as the rounds of a lane see them.
///
/// # Errors
/// See [`Error`].
pub async fn open_of(db: &Reader, ids: &[LineageId]) -> Result<Vec<Open>, Error> {
    let rows = db.rows("open_of", include_str!("sql/open_of.sql"), vec![array(ids.iter().map(|id| id.0))]).await?;
    rows.iter().map(settling::open_row).collect()
}

/// Executions that ended alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// None: it runs.
    pub outcome: Option<AttemptOutcome>,
    pub error: Option<String>,
    pub count: i64,
    pub last_at: DateTime<Utc>,
    /// Of the newest.
    pub detail: Option<String>,
}

/// The executions of a job by outcome and error, the newest group first. Served by job_attempts_pkey.
///
/// # Errors
/// See [`Error`].
pub async fn outcomes(db: &Reader, job: JobId) -> Result<Vec<Outcome>, Error> {
    let sql = "SELECT outcome, error_type, count(*) AS count, max(coalesce(finished_at, started_at)) AS last_at,
                      (array_agg(detail ORDER BY number DESC))[1] AS detail
               FROM (SELECT number, outcome, error_type, detail, started_at, finished_at FROM holdfast.job_attempts
                     WHERE job_id = $1 ORDER BY number DESC LIMIT 10000) a
               GROUP BY outcome, error_type ORDER BY max(number) DESC LIMIT 100";
    let rows = db.rows("job_outcomes", sql, vec![job.into()]).await?;
    rows.iter()
        .map(|row| {
            Ok(Outcome {
                outcome: row.try_get("", "outcome")?,
                error: row.try_get("", "error_type")?,
                count: row.try_get("", "count")?,
                last_at: row.try_get("", "last_at")?,
                detail: row.try_get("", "detail")?,
            })
        })
        .collect()
}

/// A signer that came into a pool or left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    pub chain_id: i64,
    pub pool: String,
    /// `joined` or `left`.
    pub change: String,
    pub actor: String,
    pub at: DateTime<Utc>,
}

/// All that is on record of a signer, oldest first, at most 1000.
///
/// # Errors
/// See [`Error`].
pub async fn memberships(db: &Reader, signer: Address) -> Result<Vec<Membership>, Error> {
    let sql = "SELECT chain_id, pool, change, actor, at FROM holdfast.signer_history WHERE signer = $1 ORDER BY id LIMIT 1000";
    let rows = db.rows("memberships", sql, vec![signer.into()]).await?;
    rows.iter()
        .map(|row| {
            Ok(Membership {
                chain_id: row.try_get("", "chain_id")?,
                pool: row.try_get("", "pool")?,
                change: row.try_get("", "change")?,
                actor: row.try_get("", "actor")?,
                at: row.try_get("", "at")?,
            })
        })
        .collect()
}

/// What a job may still cost and who has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Executor {
    pub budget: i32,
    /// Worker, its instance, its state, and since when it has the job.
    pub worker: Option<(WorkerId, String, String, DateTime<Utc>)>,
    /// Publishing failures in a row.
    pub failures: i32,
    /// By the clock of Postgres, which also set the times of the job.
    pub now: DateTime<Utc>,
}

/// # Errors
/// See [`Error`].
pub async fn executor(db: &Reader, job: JobId) -> Result<Option<Executor>, Error> {
    let sql = "SELECT j.attempts_budget, j.worker_id, j.processing_since, w.instance, w.state, coalesce(o.failures, 0) AS failures, now() AS now
               FROM holdfast.jobs j LEFT JOIN holdfast.workers w ON w.id = j.worker_id LEFT JOIN holdfast.outbox o ON o.job_id = j.id WHERE j.id = $1";
    let rows = db.rows("job_executor", sql, vec![job.into()]).await?;
    rows.first()
        .map(|row| {
            let worker: Option<WorkerId> = row.try_get("", "worker_id")?;
            let since: Option<DateTime<Utc>> = row.try_get("", "processing_since")?;
            let instance: Option<String> = row.try_get("", "instance")?;
            let state: Option<String> = row.try_get("", "state")?;
            Ok(Executor {
                budget: row.try_get("", "attempts_budget")?,
                worker: worker
                    .zip(since)
                    .map(|(id, since)| (id, instance.unwrap_or_default(), state.unwrap_or_else(|| "unknown".into()), since)),
                failures: row.try_get("", "failures")?,
                now: row.try_get("", "now")?,
            })
        })
        .transpose()
}

#[cfg(test)]
mod tests {
    #[test]
    fn who_explains_a_nonce_sees_it_as_the_rounds_of_its_lane_do() {
        let read = |sql: &'static str| {
            sql.lines().filter(|line| !line.starts_with("--")).take_while(|line| !line.starts_with("WHERE")).collect::<Vec<_>>()
        };
        assert_eq!(read(include_str!("sql/open_of.sql")), read(include_str!("sql/open_lineages.sql")));
    }
}
