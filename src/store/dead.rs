//! Dead jobs: which there are, taking them up again, and that one is dealt with. Called by `operator`.

use super::arrays::{array, words};
use super::audited::Operator;
use super::{Db, Error, Reader};
use crate::domain::job::{self, Event};
use chrono::{DateTime, Utc};
use entity::ids::JobId;
use entity::states::{JobKind, JobState};
use sea_orm::Value;
use std::collections::HashMap;

/// What became of a wish to replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replayed {
    Done,
    /// The job is not dead.
    NotDead(JobState),
    /// A nonce of it may still take effect.
    NonceBound,
    /// Its superseded nonce is proven at this block, which a reorganisation may still undo; the head that was seen.
    TooEarly {
        proven_at: i64,
        head: Option<i64>,
    },
    Unknown,
}

/// Takes dead jobs up again, each with `attempts` more executions; one outcome each, in their order.
///
/// # Errors
/// See [`Error`]; nothing is half done.
pub async fn replay(db: &Db, jobs: &[JobId], operator: Operator<'_>, attempts: u32) -> Result<Vec<Replayed>, Error> {
    let arrow = job::arrow(Event::Replayed).map_err(|e| Error::Answer(e.to_string()))?;
    let values = vec![
        array(jobs.iter().map(|job| job.0)),
        operator.id.into(),
        operator.reason.into(),
        words(arrow.from.clone()),
        arrow.to.to_string().into(),
        i32::try_from(attempts).unwrap_or(i32::MAX).into(),
    ];
    let mut told = HashMap::new();
    for row in db.rows("replay", include_str!("sql/replay.sql"), values).await? {
        let (job, state): (JobId, JobState) = (row.try_get("", "id")?, row.try_get("", "state")?);
        let proven_at: Option<i64> = row.try_get("", "superseded_at")?;
        let outcome = match (row.try_get::<bool>("", "replayed")?, row.try_get::<i64>("", "live")?, proven_at) {
            (true, ..) => Replayed::Done,
            _ if !arrow.from.contains(&state) => Replayed::NotDead(state),
            (false, 0, Some(proven_at)) => Replayed::TooEarly { proven_at, head: row.try_get("", "head")? },
            _ => Replayed::NonceBound,
        };
        told.insert(job, outcome);
    }
    Ok(jobs.iter().map(|job| told.get(job).copied().unwrap_or(Replayed::Unknown)).collect())
}

/// Which dead jobs are meant; those that are dealt with never are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub project: Option<String>,
    pub kind: Option<JobKind>,
    pub chain_id: Option<i64>,
    pub pool: Option<String>,
    /// The type of the error.
    pub error: Option<String>,
    /// When they died.
    pub since: Option<DateTime<Utc>>,
    pub until: Option<DateTime<Utc>>,
}

/// The condition of a filter, its parameters the first seven. Served by jobs_dead, job_resolutions_pkey.
macro_rules! meant {
    () => {
        "j.state = 'dead' AND ($1::text IS NULL OR j.project = $1) AND ($2::text IS NULL OR j.kind = $2) AND ($3::bigint IS NULL OR j.chain_id = $3)
         AND ($4::text IS NULL OR j.pool = $4) AND ($5::text IS NULL OR j.error_type = $5) AND j.finished_at >= coalesce($6::timestamptz, '-infinity')
         AND j.finished_at <= coalesce($7::timestamptz, 'infinity')
         AND NOT EXISTS (SELECT 1 FROM holdfast.job_resolutions r WHERE r.job_id = j.id AND r.finished_at = j.finished_at)"
    };
}

impl Filter {
    fn values(&self) -> Vec<Value> {
        vec![
            self.project.clone().into(),
            self.kind.map(|kind| kind.to_string()).into(),
            self.chain_id.into(),
            self.pool.clone().into(),
            self.error.clone().into(),
            self.since.into(),
            self.until.into(),
        ]
    }
}

/// Dead jobs of one kind that died of one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub project: String,
    pub kind: JobKind,
    pub error: Option<String>,
    pub jobs: i64,
    /// Of them, those that own a nonce or have lost one: some of these are refused.
    pub with_nonce: i64,
}

/// What a filter means, counted up to `most`; the largest group first, at most 50 groups.
///
/// # Errors
/// See [`Error`].
pub async fn groups(db: &Reader, filter: &Filter, most: i64) -> Result<Vec<Group>, Error> {
    let sql = concat!(
        "WITH meant AS (SELECT j.id, j.project, j.kind, j.error_type FROM holdfast.jobs j WHERE ",
        meant!(),
        " ORDER BY j.finished_at LIMIT $8)
         SELECT m.project, m.kind, m.error_type, count(*) AS jobs,
                count(*) FILTER (WHERE EXISTS (SELECT 1 FROM holdfast.lineages l WHERE l.job_id = m.id AND l.state <> 'abandoned')) AS with_nonce
         FROM meant m GROUP BY 1, 2, 3 ORDER BY count(*) DESC, 1, 2, 3 LIMIT 50"
    );
    let mut values = filter.values();
    values.push(most.into());
    let rows = db.rows("dead_groups", sql, values).await?;
    rows.iter()
        .map(|row| {
            Ok(Group {
                project: row.try_get("", "project")?,
                kind: row.try_get("", "kind")?,
                error: row.try_get("", "error_type")?,
                jobs: row.try_get("", "jobs")?,
                with_nonce: row.try_get("", "with_nonce")?,
            })
        })
        .collect()
}

/// The jobs that a filter means after a place in their order, those that died first before the others, and the place of each.
///
/// # Errors
/// See [`Error`].
pub async fn page(
    db: &Reader,
    filter: &Filter,
    after: Option<(DateTime<Utc>, JobId)>,
    limit: u32,
) -> Result<Vec<(DateTime<Utc>, JobId)>, Error> {
    let sql = concat!(
        "SELECT j.finished_at, j.id FROM holdfast.jobs j WHERE ",
        meant!(),
        " AND ($8::timestamptz IS NULL OR (j.finished_at, j.id) > ($8, $9::uuid)) ORDER BY j.finished_at, j.id LIMIT $10"
    );
    let mut values = filter.values();
    values.extend([after.map(|(at, _)| at).into(), after.map(|(_, id)| id.0).into(), i64::from(limit).into()]);
    let rows = db.rows("dead_page", sql, values).await?;
    rows.iter().map(|row| Ok((row.try_get("", "finished_at")?, row.try_get("", "id")?))).collect()
}

/// What became of a wish to resolve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved {
    Done,
    /// Somebody has done so before.
    Already,
    /// It waits for nobody.
    NotDead(JobState),
    Unknown,
}

/// Notes that the deaths of jobs are dealt with; one outcome each, in their order.
///
/// # Errors
/// See [`Error`].
pub async fn resolve(db: &Db, jobs: &[JobId], operator: Operator<'_>) -> Result<Vec<Resolved>, Error> {
    let values = vec![array(jobs.iter().map(|job| job.0)), operator.id.into(), operator.reason.into()];
    let mut told = HashMap::new();
    for row in db.rows("resolve", include_str!("sql/resolve.sql"), values).await? {
        let (job, state): (JobId, JobState) = (row.try_get("", "id")?, row.try_get("", "state")?);
        let outcome = match state {
            JobState::Dead | JobState::Quarantined if row.try_get("", "resolved")? => Resolved::Done,
            JobState::Dead | JobState::Quarantined => Resolved::Already,
            state => Resolved::NotDead(state),
        };
        told.insert(job, outcome);
    }
    Ok(jobs.iter().map(|job| told.get(job).copied().unwrap_or(Resolved::Unknown)).collect())
}

/// Who has dealt with the death of a job, why and when.
///
/// # Errors
/// See [`Error`].
pub async fn resolution(db: &Reader, job: JobId) -> Result<Option<(String, String, DateTime<Utc>)>, Error> {
    let sql = "SELECT r.operator_id, r.reason, r.at FROM holdfast.jobs j JOIN holdfast.job_resolutions r ON r.job_id = j.id AND r.finished_at = j.finished_at
               WHERE j.id = $1";
    let rows = db.rows("resolution", sql, vec![job.into()]).await?;
    rows.first().map(|row| Ok((row.try_get("", "operator_id")?, row.try_get("", "reason")?, row.try_get("", "at")?))).transpose()
}
