//! Accepting work: the only writer of idempotency keys, new jobs and new outbox rows. Called by the Intake actor with whatever waits.

use super::arrays::{array, words};
use super::{Db, Error};
use crate::domain::submission::NewJob;
use chrono::DateTime;
use entity::ids::JobId;
use entity::values::Hash;
use std::collections::HashMap;

/// One request to accept a job.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The identity that the job gets if its key is new.
    pub id: JobId,
    pub project: String,
    pub key: String,
    pub fingerprint: Hash,
    pub job: NewJob,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Committed now.
    New(JobId),
    /// The same key with the same payload was committed before.
    Replayed(JobId),
    /// The same key was committed before with another payload.
    Mismatch,
}

/// Commits every submission whose key is new, in one statement; answers in the order of the input.
///
/// # Errors
/// On an error nothing was accepted, or it was and the same keys will say so: asking again is safe.
pub async fn accept(db: &Db, batch: &[Submission], attempts_budget: u32) -> Result<Vec<Accepted>, Error> {
    // Two requests of one batch with one key: the first is inserted, the others are answered as replays of it.
    let mut first: HashMap<(&str, &str), usize> = HashMap::with_capacity(batch.len());
    let mut unique = Vec::with_capacity(batch.len());
    for (at, one) in batch.iter().enumerate() {
        first.entry((&one.project, &one.key)).or_insert_with(|| {
            unique.push(at);
            at
        });
    }
    let rows: Vec<&Submission> = unique.iter().map(|at| &batch[*at]).collect();
    let inserted = insert(db, &rows, attempts_budget).await?;
    let missing: Vec<&Submission> = rows.iter().copied().filter(|one| !inserted.contains(&one.id)).collect();
    let known = if missing.is_empty() { HashMap::new() } else { known(db, &missing).await? };
    batch
        .iter()
        .map(|one| {
            let leader = &batch[first[&(one.project.as_str(), one.key.as_str())]];
            let (job, fingerprint) = if inserted.contains(&leader.id) {
                (leader.id, leader.fingerprint)
            } else {
                let found = known.get(&(one.project.clone(), one.key.clone()));
                *found.ok_or_else(|| Error::Conflict("the idempotency key was taken and released meanwhile".into()))?
            };
            Ok(match (job == one.id, fingerprint == one.fingerprint) {
                (true, _) => Accepted::New(job),
                (false, true) => Accepted::Replayed(job),
                (false, false) => Accepted::Mismatch,
            })
        })
        .collect()
}

async fn insert(db: &Db, rows: &[&Submission], attempts_budget: u32) -> Result<std::collections::HashSet<JobId>, Error> {
    let values = vec![
        array(rows.iter().map(|r| r.id.0)),
        array(rows.iter().map(|r| r.project.clone())),
        array(rows.iter().map(|r| r.key.clone())),
        array(rows.iter().map(|r| r.fingerprint)),
        words(rows.iter().map(|r| r.job.kind)),
        array(rows.iter().map(|r| r.job.chain_id)),
        array(rows.iter().map(|r| r.job.pool.clone())),
        array(rows.iter().map(|r| r.job.to)),
        array(rows.iter().map(|r| r.job.value)),
        array(rows.iter().map(|r| r.job.data.clone())),
        array(rows.iter().map(|r| r.job.gas_limit.unwrap_or(0))),
        array(rows.iter().map(|r| r.job.priority)),
        array(rows.iter().map(|r| r.job.run_at.unwrap_or(DateTime::UNIX_EPOCH))),
        array(rows.iter().map(|r| r.job.metadata.clone().unwrap_or_default())),
        i32::try_from(attempts_budget).unwrap_or(i32::MAX).into(),
    ];
    let rows = db.rows("accept", include_str!("sql/accept.sql"), values).await?;
    rows.iter().map(|row| Ok(row.try_get("", "id")?)).collect()
}

async fn known(db: &Db, rows: &[&Submission]) -> Result<HashMap<(String, String), (JobId, Hash)>, Error> {
    let values = vec![array(rows.iter().map(|r| r.project.clone())), array(rows.iter().map(|r| r.key.clone()))];
    let rows = db.rows("known_keys", include_str!("sql/known_keys.sql"), values).await?;
    rows.iter()
        .map(|row| {
            Ok(((row.try_get("", "project")?, row.try_get("", "key")?), (row.try_get("", "job_id")?, row.try_get("", "fingerprint")?)))
        })
        .collect()
}
