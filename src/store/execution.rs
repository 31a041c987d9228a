//! Executions: claiming a delivery under a token, and ending an execution that bound no nonce. The Worker is the only caller.

use super::arrays::{array, words};
use super::{Db, Error};
use crate::domain::job::{self, Event};
use entity::ids::{ExecutionToken, JobId, LineageId, WorkerId};
use entity::states::{AttemptOutcome, JobKind, JobState, LineageState};
use entity::values::{Address, Wei};
use sea_orm::QueryResult;
use std::collections::HashMap;
use std::time::Duration;

/// A delivery that a worker took.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    pub job: JobId,
    pub generation: i32,
    pub token: ExecutionToken,
}

/// What the worker may now do.
#[derive(Clone, Debug)]
pub enum Claimed {
    Go(Box<Execution>),
    /// The job ended, was given a newer delivery, or does not exist: the record in Redis is spent.
    Spent,
    /// By the clock of Postgres it is not due yet.
    Early(Duration),
}

/// One execution of one job, fenced by its token.
#[derive(Clone, Debug)]
pub struct Execution {
    pub job: JobId,
    pub token: ExecutionToken,
    pub number: i32,
    pub budget: i32,
    pub kind: JobKind,
    pub chain_id: i64,
    pub pool: String,
    pub to: Address,
    pub value: Wei,
    pub data: Vec<u8>,
    pub gas_limit: Option<i64>,
    /// Time since acceptance.
    pub age: Duration,
    /// The nonce that an earlier execution bound.
    pub lineage: Option<(LineageId, LineageState)>,
}

/// Writes the tokens of a batch; answers in the order of the input. A row that this version cannot read, as a newer one may write it, is an
/// error of its own and no one else's.
///
/// # Errors
/// See [`Error`].
pub async fn claim(db: &Db, batch: &[Claim], worker: WorkerId) -> Result<Vec<Result<Claimed, Error>>, Error> {
    let arrow = job::arrow(Event::Delivered).map_err(|e| Error::Answer(e.to_string()))?;
    let values = vec![
        array(batch.iter().map(|c| c.job.0)),
        array(batch.iter().map(|c| c.generation)),
        array(batch.iter().map(|c| c.token.0)),
        words(arrow.from),
        arrow.to.to_string().into(),
        worker.into(),
    ];
    let rows = db.rows("claim", include_str!("sql/claim.sql"), values).await?;
    let mut by_token = HashMap::with_capacity(rows.len());
    for row in &rows {
        by_token.insert(row.try_get::<ExecutionToken>("", "token")?, row);
    }
    Ok(batch.iter().map(|claim| by_token.get(&claim.token).map_or(Ok(Claimed::Spent), |row| claimed(claim, row))).collect())
}

fn claimed(claim: &Claim, row: &QueryResult) -> Result<Claimed, Error> {
    if !row.try_get::<bool>("", "claimed")? {
        let state: Option<JobState> = row.try_get("", "state_before")?;
        let generation: Option<i32> = row.try_get("", "generation_now")?;
        let early: Option<i64> = row.try_get("", "early_ms")?;
        let open = state.is_some_and(|state| job::next(state, Event::Delivered).is_ok()) && generation == Some(claim.generation);
        return Ok(match early.and_then(|ms| u64::try_from(ms).ok()).filter(|ms| open && *ms > 0) {
            Some(ms) => Claimed::Early(Duration::from_millis(ms)),
            // An open job that is due and was not claimed is just now claimed by another: its delivery comes again if that fails.
            None if open => Claimed::Early(Duration::from_millis(200)),
            None => Claimed::Spent,
        });
    }
    let lineage: Option<LineageId> = row.try_get("", "lineage_id")?;
    let lineage_state: Option<LineageState> = row.try_get("", "lineage_state")?;
    Ok(Claimed::Go(Box::new(Execution {
        job: claim.job,
        token: claim.token,
        number: row.try_get("", "attempts")?,
        budget: row.try_get("", "attempts_budget")?,
        kind: row.try_get("", "kind")?,
        chain_id: row.try_get("", "chain_id")?,
        pool: row.try_get("", "pool")?,
        to: row.try_get("", "to_address")?,
        value: row.try_get("", "value")?,
        data: row.try_get("", "data")?,
        gas_limit: row.try_get("", "gas_limit")?,
        age: Duration::try_from_secs_f64(row.try_get("", "age_seconds")?).unwrap_or_default(),
        lineage: lineage.zip(lineage_state),
    })))
}

/// The end of an execution that sent nothing.
#[derive(Clone, Debug)]
pub struct Finish {
    pub job: JobId,
    pub token: ExecutionToken,
    pub number: i32,
    pub event: Event,
    pub outcome: AttemptOutcome,
    /// A short stable word and its title, and what happened in detail.
    pub error: Option<(&'static str, &'static str, String)>,
    /// The longest wait before the next delivery, in milliseconds.
    pub ceiling_ms: i64,
    /// Above 0: the attempts of this delivery are spent and the job may not die. It goes on under the next generation with so many more.
    pub fresh: i32,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// Written; the delivery comes again after this time, if the job is still open.
    Written { delay: Duration },
    /// Another execution has the job: nothing was changed.
    Fenced,
}

/// Ends a batch of executions; answers in the order of the input. `recheck` is QUEUE_RECONCILE_SECONDS.
///
/// # Errors
/// See [`Error`].
pub async fn finish(db: &Db, batch: &[Finish], worker: WorkerId, recheck: Duration) -> Result<Vec<Finished>, Error> {
    let mut states = Vec::with_capacity(batch.len());
    for one in batch {
        states.push(job::next(JobState::Processing, one.event).map_err(|e| Error::Answer(e.to_string()))?.to);
    }
    let open: Vec<JobState> = JobState::all().into_iter().filter(|state| !state.is_final()).collect();
    let values = vec![
        array(batch.iter().map(|f| f.job.0)),
        array(batch.iter().map(|f| f.token.0)),
        array(batch.iter().map(|f| f.number)),
        words(states),
        words(batch.iter().map(|f| f.outcome)),
        array(batch.iter().map(|f| f.error.as_ref().map_or(String::new(), |e| e.0.to_owned()))),
        array(batch.iter().map(|f| f.error.as_ref().map_or(String::new(), |e| e.1.to_owned()))),
        array(batch.iter().map(|f| f.error.as_ref().map_or(String::new(), |e| shortened(&e.2)))),
        array(batch.iter().map(|f| f.ceiling_ms)),
        array(batch.iter().map(|f| f.outcome == AttemptOutcome::Snoozed)),
        worker.into(),
        words(open),
        i64::try_from(recheck.as_millis()).unwrap_or(i64::MAX).into(),
        array(batch.iter().map(|f| f.fresh)),
    ];
    let rows = db.rows("finish", include_str!("sql/finish.sql"), values).await?;
    let mut delays = HashMap::with_capacity(rows.len());
    for row in &rows {
        let delay: i64 = row.try_get("", "delay_ms")?;
        delays.insert(row.try_get::<ExecutionToken>("", "token")?, Duration::from_millis(u64::try_from(delay).unwrap_or(0)));
    }
    Ok(batch.iter().map(|one| delays.get(&one.token).map_or(Finished::Fenced, |delay| Finished::Written { delay: *delay })).collect())
}

/// At most 4 KiB, cut at a character.
fn shortened(text: &str) -> String {
    let mut end = text.len().min(4_000);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].replace('\0', "")
}
