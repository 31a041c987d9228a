//! Jobs as lists and as whole records. Payloads stay out of lists; a record has the call's target and value, never its data.

use super::transactions::since;
use super::{Desk, Error, List};
use crate::store::dead;
use crate::store::jobs::{self as rows, AttemptView, JobView, Page};
use chrono::{DateTime, Utc};
use entity::ids::{ExecutionToken, JobId, WorkerId};
use entity::states::{AttemptOutcome, JobKind, JobState, LineageState};
use entity::values::{Address, Hash, Wei};
use serde::Serialize;

/// Most jobs of a page.
pub const PAGE_MAX: u32 = 200;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Job {
    pub id: JobId,
    pub project: String,
    pub kind: JobKind,
    pub state: JobState,
    pub chain_id: i64,
    pub pool: String,
    pub to: Address,
    pub value: Wei,
    pub priority: i16,
    /// Executions that counted.
    pub attempts: i32,
    pub run_at: DateTime<Utc>,
    pub cancel_asked_at: Option<DateTime<Utc>>,
    pub error: Option<Problem>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
    /// Since acceptance, or from then until it ended.
    pub age_seconds: u64,
    pub delivery: Delivery,
    pub transaction: Option<Nonce>,
    pub metadata: Option<serde_json::Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub r#type: String,
    pub title: String,
    pub detail: Option<String>,
}

/// Where its delivery stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Delivery {
    pub generation: i32,
    pub deliver_at: DateTime<Utc>,
    /// When it is published or looked at next; null when nothing is to be delivered.
    pub next_at: Option<DateTime<Utc>>,
    pub published_at: Option<DateTime<Utc>>,
}

/// The newest nonce of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Nonce {
    pub signer: Address,
    pub nonce: i64,
    pub state: LineageState,
    pub hash: Option<Hash>,
    pub block: Option<i64>,
    pub confirmations: i64,
}

/// A job and its newest executions, newest first, at most 100.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Record {
    #[serde(flatten)]
    pub job: Job,
    pub executions: Vec<Execution>,
    /// How its death was dealt with; null until then, and again once it is taken up again.
    pub resolution: Option<Resolution>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Resolution {
    pub operator: String,
    pub reason: String,
    pub at: DateTime<Utc>,
}

/// One execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Execution {
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

impl Job {
    pub(super) fn at(now: DateTime<Utc>, view: JobView) -> Self {
        let transaction = view.transaction.as_ref().map(|t| Nonce {
            signer: t.signer,
            nonce: t.nonce,
            state: t.state,
            hash: t.hash(),
            block: t.block.map(|(number, _)| number),
            confirmations: t.confirmations(),
        });
        Self {
            id: view.id,
            project: view.project,
            kind: view.kind,
            state: view.state,
            chain_id: view.chain_id,
            pool: view.pool,
            to: view.to,
            value: view.value,
            priority: view.priority,
            attempts: view.attempts,
            run_at: view.run_at,
            cancel_asked_at: view.cancel_asked_at,
            error: view.error.map(|(r#type, title, detail)| Problem { r#type, title, detail }),
            created_at: view.created_at,
            updated_at: view.updated_at,
            finished_at: view.finished_at,
            age_seconds: since(view.created_at, view.finished_at.unwrap_or(now)),
            delivery: Delivery {
                generation: view.delivery.generation,
                deliver_at: view.delivery.deliver_at,
                next_at: view.delivery.next_at,
                published_at: view.delivery.published_at,
            },
            transaction,
            metadata: view.metadata,
        }
    }
}

impl From<AttemptView> for Execution {
    fn from(row: AttemptView) -> Self {
        Self {
            number: row.number,
            token: row.token,
            worker: row.worker,
            generation: row.generation,
            started_at: row.started_at,
            finished_at: row.finished_at,
            outcome: row.outcome,
            error: row.error,
            detail: row.detail,
        }
    }
}

/// Which jobs are wanted, newest first.
#[derive(Clone, Debug, Default)]
pub struct Filter<'a> {
    pub project: Option<&'a str>,
    pub state: Option<JobState>,
    /// The `next_cursor` of the page before.
    pub cursor: Option<JobId>,
    pub limit: u32,
}

/// # Errors
/// See [`Error`].
pub async fn list(desk: &Desk, filter: &Filter<'_>) -> Result<List<Job>, Error> {
    let limit = filter.limit.clamp(1, PAGE_MAX);
    // One more than asked for tells whether there is a next page.
    let page = Page { project: filter.project, state: filter.state, before: filter.cursor, limit: limit + 1 };
    let mut views = rows::list(&desk.reader(), &page).await?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = views.len() > limit;
    views.truncate(limit);
    let next_cursor = views.last().filter(|_| more).map(|view| view.id.to_string());
    let now = desk.clock.now();
    Ok(List { items: views.into_iter().map(|view| Job::at(now, view)).collect(), next_cursor })
}

/// # Errors
/// `NotFound`, and see [`Error`].
pub async fn show(desk: &Desk, id: JobId) -> Result<Record, Error> {
    let db = desk.reader();
    let ids = [id];
    let (mut views, attempts, resolution) =
        futures::try_join!(rows::by_ids(&db, &ids, None), rows::attempts(&db, id), dead::resolution(&db, id))?;
    let resolution = resolution.map(|(operator, reason, at)| Resolution { operator, reason, at });
    let view = views.pop().ok_or_else(|| Error::NotFound { what: "job", id: id.to_string() })?;
    Ok(Record { job: Job::at(desk.clock.now(), view), executions: attempts.into_iter().map(Execution::from).collect(), resolution })
}
