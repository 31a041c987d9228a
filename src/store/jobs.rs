//! Jobs as callers and operators see them, and cancelling before a nonce.

use super::arrays::{array, words};
use super::{Db, Error, Reader};
use crate::domain::job::{self, Event};
use chrono::{DateTime, Utc};
use entity::ids::{ExecutionToken, JobId, LineageId, WorkerId};
use entity::states::{AttemptOutcome, JobKind, JobState, LineageState};
use entity::values::{Address, Hash, Wei};
use sea_orm::QueryResult;

/// A job and what the chain knows of it.
#[derive(Clone, Debug)]
pub struct JobView {
    pub id: JobId,
    pub project: String,
    pub kind: JobKind,
    pub state: JobState,
    pub version: i32,
    pub chain_id: i64,
    pub pool: String,
    pub to: Address,
    pub value: Wei,
    pub priority: i16,
    pub attempts: i32,
    pub run_at: DateTime<Utc>,
    pub metadata: Option<serde_json::Value>,
    pub cancel_asked_at: Option<DateTime<Utc>>,
    /// Type, title, detail.
    pub error: Option<(String, String, Option<String>)>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
    pub delivery: DeliveryView,
    pub transaction: Option<TransactionView>,
}

#[derive(Clone, Debug)]
pub struct DeliveryView {
    pub generation: i32,
    pub deliver_at: DateTime<Utc>,
    pub next_at: Option<DateTime<Utc>>,
    pub published_at: Option<DateTime<Utc>>,
}

/// The newest lineage of a job: metadata only, never bytes.
#[derive(Clone, Debug)]
pub struct TransactionView {
    pub lineage: LineageId,
    pub signer: Address,
    pub nonce: i64,
    pub state: LineageState,
    /// Of every attempt, oldest first.
    pub hashes: Vec<Hash>,
    pub mined_hash: Option<Hash>,
    pub block: Option<(i64, Hash)>,
    pub head: Option<i64>,
    pub price: Option<(Wei, Wei)>,
    pub gas_used: Option<i64>,
    pub effective_gas_price: Option<Wei>,
    pub sends: i32,
    pub last_sent_at: Option<DateTime<Utc>>,
    pub last_answer: Option<String>,
    pub proof: Option<serde_json::Value>,
}

impl TransactionView {
    /// Blocks on top of and including the one it was mined in, as far as the service has seen.
    #[must_use]
    pub fn confirmations(&self) -> i64 {
        self.block.zip(self.head).map_or(0, |((number, _), head)| (head - number + 1).max(0))
    }

    /// The hash that counts: the mined one, otherwise the newest.
    #[must_use]
    pub fn hash(&self) -> Option<Hash> {
        self.mined_hash.or_else(|| self.hashes.last().copied())
    }
}

fn hashes(row: &QueryResult) -> Result<Vec<Hash>, Error> {
    let raw: Option<Vec<Vec<u8>>> = row.try_get("", "hashes")?;
    Ok(raw.unwrap_or_default().into_iter().filter_map(|hash| hash.try_into().ok().map(Hash)).collect())
}

fn transaction(row: &QueryResult) -> Result<Option<TransactionView>, Error> {
    let Some(lineage) = row.try_get::<Option<LineageId>>("", "lineage_id")? else { return Ok(None) };
    let block: Option<i64> = row.try_get("", "block_number")?;
    let price: Option<Wei> = row.try_get("", "max_fee")?;
    Ok(Some(TransactionView {
        lineage,
        signer: row.try_get("", "signer")?,
        nonce: row.try_get("", "nonce")?,
        state: row.try_get("", "lineage_state")?,
        hashes: hashes(row)?,
        mined_hash: row.try_get("", "mined_hash")?,
        block: block.zip(row.try_get("", "block_hash")?),
        head: row.try_get("", "head_number")?,
        price: price.zip(row.try_get("", "tip")?),
        gas_used: row.try_get("", "gas_used")?,
        effective_gas_price: row.try_get("", "effective_gas_price")?,
        sends: row.try_get("", "sends")?,
        last_sent_at: row.try_get("", "last_sent_at")?,
        last_answer: row.try_get("", "last_answer")?,
        proof: row.try_get("", "proof")?,
    }))
}

fn view(row: &QueryResult) -> Result<JobView, Error> {
    let error_type: Option<String> = row.try_get("", "error_type")?;
    let error_title: Option<String> = row.try_get("", "error_title")?;
    let detail: Option<String> = row.try_get("", "error_detail")?;
    Ok(JobView {
        id: row.try_get("", "id")?,
        project: row.try_get("", "project")?,
        kind: row.try_get("", "kind")?,
        state: row.try_get("", "state")?,
        version: row.try_get("", "version")?,
        chain_id: row.try_get("", "chain_id")?,
        pool: row.try_get("", "pool")?,
        to: row.try_get("", "to_address")?,
        value: row.try_get("", "value")?,
        priority: row.try_get("", "priority")?,
        attempts: row.try_get("", "attempts")?,
        run_at: row.try_get("", "run_at")?,
        metadata: row.try_get("", "metadata")?,
        cancel_asked_at: row.try_get("", "cancel_asked_at")?,
        error: error_type.zip(error_title).map(|(kind, title)| (kind, title, detail)),
        created_at: row.try_get("", "created_at")?,
        updated_at: row.try_get("", "updated_at")?,
        finished_at: row.try_get("", "finished_at")?,
        delivery: DeliveryView {
            generation: row.try_get("", "generation")?,
            deliver_at: row.try_get("", "deliver_at")?,
            next_at: row.try_get("", "next_at")?,
            published_at: row.try_get("", "published_at")?,
        },
        transaction: transaction(row)?,
    })
}

/// The jobs of these ids that exist (and belong to `project`, unless None), in the order of the ids.
///
/// # Errors
/// See [`Error`].
pub async fn by_ids(db: &Reader, ids: &[JobId], project: Option<&str>) -> Result<Vec<JobView>, Error> {
    let values = vec![array(ids.iter().map(|id| id.0)), project.unwrap_or_default().into()];
    db.rows("job_views", include_str!("sql/job_views.sql"), values).await?.iter().map(view).collect()
}

/// A page of jobs, newest first.
#[derive(Clone, Debug, Default)]
pub struct Page<'a> {
    pub project: Option<&'a str>,
    pub state: Option<JobState>,
    /// Only jobs accepted before this one.
    pub before: Option<JobId>,
    pub limit: u32,
}

/// # Errors
/// See [`Error`].
pub async fn list(db: &Reader, page: &Page<'_>) -> Result<Vec<JobView>, Error> {
    let sql = match (page.project, page.state) {
        (Some(_), Some(_)) => {
            "SELECT id FROM holdfast.jobs WHERE project = $1 AND state = $2 AND id < $3 ORDER BY project DESC, state DESC, id DESC LIMIT $4"
        }
        (Some(_), None) => {
            "SELECT id FROM holdfast.jobs WHERE project = $1 AND $2 = '' AND id < $3 ORDER BY project DESC, id DESC LIMIT $4"
        }
        (None, Some(_)) => "SELECT id FROM holdfast.jobs WHERE $1 = '' AND state = $2 AND id < $3 ORDER BY id DESC LIMIT $4",
        (None, None) => "SELECT id FROM holdfast.jobs WHERE $1 = '' AND $2 = '' AND id < $3 ORDER BY id DESC LIMIT $4",
    };
    let state = page.state.map(|state| state.to_string()).unwrap_or_default();
    let before = page.before.map_or(uuid::Uuid::max(), |id| id.0);
    let values = vec![page.project.unwrap_or_default().into(), state.into(), before.into(), i64::from(page.limit).into()];
    let rows = db.rows("job_list", sql, values).await?;
    let ids = rows.iter().map(|row| Ok(row.try_get("", "id")?)).collect::<Result<Vec<JobId>, Error>>()?;
    by_ids(db, &ids, None).await
}

/// The version of a job, for whoever waits for its next change.
///
/// # Errors
/// See [`Error`].
pub async fn versions(db: &Reader, ids: &[JobId]) -> Result<Vec<(JobId, i32)>, Error> {
    let rows = db
        .rows("job_versions", "SELECT id, version FROM holdfast.jobs WHERE id = ANY ($1::uuid[])", vec![array(ids.iter().map(|id| id.0))])
        .await?;
    rows.iter().map(|row| Ok((row.try_get("", "id")?, row.try_get("", "version")?))).collect()
}

/// One execution, as shown to operators.
#[derive(Clone, Debug)]
pub struct AttemptView {
    pub number: i32,
    pub token: ExecutionToken,
    pub worker: WorkerId,
    pub generation: i32,
    pub started_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
    pub outcome: Option<AttemptOutcome>,
    pub error: Option<String>,
    pub detail: Option<String>,
}

/// The newest executions of a job, newest first, at most 100.
///
/// # Errors
/// See [`Error`].
pub async fn attempts(db: &Reader, job: JobId) -> Result<Vec<AttemptView>, Error> {
    let sql = "SELECT number, token, worker_id, generation, started_at, finished_at, outcome, error_type, detail FROM holdfast.job_attempts WHERE job_id = $1 ORDER BY number DESC LIMIT 100";
    let rows = db.rows("job_attempts", sql, vec![job.into()]).await?;
    rows.iter()
        .map(|row| {
            Ok(AttemptView {
                number: row.try_get("", "number")?,
                token: row.try_get("", "token")?,
                worker: row.try_get("", "worker_id")?,
                generation: row.try_get("", "generation")?,
                started_at: row.try_get("", "started_at")?,
                finished_at: row.try_get("", "finished_at")?,
                outcome: row.try_get("", "outcome")?,
                error: row.try_get("", "error_type")?,
                detail: row.try_get("", "detail")?,
            })
        })
        .collect()
}

/// Every change of a job's state: version, state, time; oldest first, at most 200.
///
/// # Errors
/// See [`Error`].
pub async fn history(db: &Reader, job: JobId) -> Result<Vec<(i32, String, DateTime<Utc>)>, Error> {
    let sql = "SELECT version, type, at FROM holdfast.stream_events WHERE domain = 'job' AND key = $1 ORDER BY version LIMIT 200";
    let rows = db.rows("job_history", sql, vec![job.into()]).await?;
    rows.iter().map(|row| Ok((row.try_get("", "version")?, row.try_get("", "type")?, row.try_get("", "at")?))).collect()
}

/// What became of a wish to cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    Done,
    /// An execution is under way and owns no nonce: it will get none.
    Asked,
    /// The job owns a nonce: a no-op of the same nonce is wanted, and whichever mines decides.
    Noop,
    /// The job has ended.
    TooLate(JobState),
    Unknown,
}

/// Cancels a job, or asks for it. `operator` (id and reason) writes the audit row in the same statement.
///
/// # Errors
/// See [`Error`].
pub async fn cancel(db: &Db, job: JobId, project: Option<&str>, operator: Option<(&str, &str)>) -> Result<Cancelled, Error> {
    let arrow = job::arrow(Event::CancelAsked).map_err(|e| Error::Answer(e.to_string()))?;
    let idle = arrow.from.into_iter().filter(|state| *state != JobState::Processing);
    let bound = job::arrow(Event::NoopFinal { cancelled: true }).map_err(|e| Error::Answer(e.to_string()))?;
    let open = LineageState::all().into_iter().filter(|state| !state.is_final());
    let (who, why) = operator.unwrap_or_default();
    let values = vec![job.into(), project.unwrap_or_default().into(), words(idle), who.into(), why.into(), words(bound.from), words(open)];
    let mut rows = db.rows("cancel", include_str!("sql/cancel.sql"), values.clone()).await?;
    if rows.first().map_or(Ok(false), |row| row.try_get::<bool>("", "unseen"))? {
        rows = db.rows("cancel", include_str!("sql/cancel.sql"), values).await?;
    }
    let Some(row) = rows.first() else { return Ok(Cancelled::Unknown) };
    let state: JobState = row.try_get("", "state")?;
    let is = |column| row.try_get::<bool>("", column);
    Ok(match (is("cancelled")?, is("noop")?, is("asked")?) {
        (true, ..) => Cancelled::Done,
        (_, true, _) => Cancelled::Noop,
        (.., true) => Cancelled::Asked,
        _ if state == JobState::Cancelled => Cancelled::Done,
        _ => Cancelled::TooLate(state),
    })
}
