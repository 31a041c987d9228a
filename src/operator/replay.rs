//! Dead jobs: taking them up again, one by one or all that a filter means, and noting that one is dealt with. Never takes one up while a
//! nonce of it may still take effect: nothing is sent twice.

use super::cancel::check;
use super::{Desk, Error};
use crate::store::audited::Operator;
use crate::store::dead;
use chrono::{DateTime, Utc};
use entity::ids::JobId;
use entity::states::JobKind;
use serde::Serialize;
use uuid::Uuid;

pub use crate::store::dead::{Filter, Replayed, Resolved};

/// Most jobs that one call takes up, and most that a plan counts.
pub const AT_ONCE: usize = 1_000;
const COUNTED: i64 = 10_000;

/// What a filter means now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    pub jobs: i64,
    /// More than were counted.
    pub more: bool,
    pub groups: Vec<Group>,
    /// Jobs that die later are not meant, so that none is taken up again and again.
    pub until: DateTime<Utc>,
}

/// Jobs of one kind that died of one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    pub project: String,
    pub kind: JobKind,
    pub error: Option<String>,
    pub jobs: i64,
    /// Of them, those that own a nonce, or had one: what is refused is among them.
    pub with_nonce: i64,
}

/// What became of some jobs, and where to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub outcomes: Vec<(JobId, Replayed)>,
    /// None: all that were meant were asked for.
    pub next_cursor: Option<String>,
}

/// Takes dead jobs up again, from their revalidation on, each with JOB_MAX_ATTEMPTS more executions; one outcome each.
///
/// # Errors
/// `NoOperator`, `BadReason` and `Invalid` before anything is asked of Postgres; otherwise see [`Error`].
pub async fn replay(desk: &Desk, jobs: &[JobId], operator: (&str, &str)) -> Result<Vec<Replayed>, Error> {
    check(operator.0, operator.1)?;
    if jobs.len() > AT_ONCE {
        return Err(Error::Invalid("jobs", format!("at most {AT_ONCE} at once")));
    }
    let operator = Operator { id: operator.0, reason: operator.1 };
    Ok(dead::replay(&desk.db, jobs, operator, desk.limits.attempts).await?)
}

/// What a filter means, and changes nothing.
///
/// # Errors
/// See [`Error`].
pub async fn plan(desk: &Desk, filter: &Filter) -> Result<Plan, Error> {
    let until = filter.until.unwrap_or_else(|| desk.clock.now());
    let meant = Filter { until: Some(until), ..filter.clone() };
    let groups = dead::groups(&desk.reader(), &meant, COUNTED + 1).await?;
    let jobs: i64 = groups.iter().map(|group| group.jobs).sum();
    let group =
        |one: dead::Group| Group { project: one.project, kind: one.kind, error: one.error, jobs: one.jobs, with_nonce: one.with_nonce };
    Ok(Plan { jobs: jobs.min(COUNTED), more: jobs > COUNTED, groups: groups.into_iter().map(group).collect(), until })
}

/// Takes up the next `limit` jobs that a filter means, after the place that a step before has given. The filter needs an end in time.
///
/// # Errors
/// `Invalid` for a cursor that is none; otherwise as [`replay`].
pub async fn step(desk: &Desk, filter: &Filter, cursor: Option<&str>, limit: usize, operator: (&str, &str)) -> Result<Step, Error> {
    check(operator.0, operator.1)?;
    if operator.1.trim().is_empty() {
        return Err(Error::Invalid("reason", "many jobs are meant: it must say why".into()));
    }
    if filter.until.is_none() {
        return Err(Error::Invalid("until", "must name the moment up to which jobs are meant".into()));
    }
    let after = cursor.map(place).transpose()?;
    let limit = limit.clamp(1, AT_ONCE);
    let page = dead::page(&desk.reader(), filter, after, u32::try_from(limit).unwrap_or(1)).await?;
    let ids: Vec<JobId> = page.iter().map(|(_, id)| *id).collect();
    let outcomes = if ids.is_empty() { Vec::new() } else { replay(desk, &ids, operator).await? };
    let next_cursor = page.last().filter(|_| page.len() == limit).map(|(at, id)| format!("{}.{id}", at.timestamp_micros()));
    Ok(Step { outcomes: ids.into_iter().zip(outcomes).collect(), next_cursor })
}

fn place(cursor: &str) -> Result<(DateTime<Utc>, JobId), Error> {
    let read = || {
        let (at, id) = cursor.split_once('.')?;
        Some((DateTime::from_timestamp_micros(at.parse().ok()?)?, JobId(id.parse::<Uuid>().ok()?)))
    };
    read().ok_or_else(|| Error::Invalid("cursor", "is not the next_cursor of a step before".into()))
}

/// Notes that the deaths of jobs are dealt with; one outcome each. They stay what they are and are kept.
///
/// # Errors
/// `Invalid` without a reason; otherwise as [`replay`].
pub async fn resolve(desk: &Desk, jobs: &[JobId], operator: (&str, &str)) -> Result<Vec<Resolved>, Error> {
    check(operator.0, operator.1)?;
    if operator.1.trim().is_empty() {
        return Err(Error::Invalid("reason", "it must say how the death of the job was dealt with".into()));
    }
    if jobs.len() > AT_ONCE {
        return Err(Error::Invalid("jobs", format!("at most {AT_ONCE} at once")));
    }
    Ok(dead::resolve(&desk.db, jobs, Operator { id: operator.0, reason: operator.1 }).await?)
}

/// The word of an outcome, and what it means for a job.
#[must_use]
pub fn told(id: JobId, outcome: Replayed) -> (&'static str, String) {
    match outcome {
        Replayed::Done => ("replayed", format!("job {id} is queued again")),
        Replayed::Unknown => ("not-found", format!("job {id} does not exist")),
        Replayed::NotDead(state) => ("not-dead", format!("job {id} is {state}: only a dead job is taken up again")),
        Replayed::NonceBound => {
            ("nonce-bound", format!("job {id} has used its nonce up: what was mined at it is its end; submit a new job"))
        }
        Replayed::TooEarly { proven_at, head } => (
            "reorg-lookback",
            format!(
                "job {id}: its nonce was used up by a stranger at block {proven_at}, and a reorganisation may still undo that: wait until that is TX_REORG_LOOKBACK_BLOCKS deep (the head is {})",
                head.map_or_else(|| "unknown".into(), |head| head.to_string())
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_told_and_nothing_else_is() {
        let (at, id) = place("1733561234123456.0190b3f0-0000-7000-8000-000000000000").unwrap();
        assert_eq!((at.timestamp_micros(), id.to_string().as_str()), (1_733_561_234_123_456, "0190b3f0-0000-7000-8000-000000000000"));
        for wrong in ["", "1", "1.x", "x.0190b3f0-0000-7000-8000-000000000000", "0190b3f0-0000-7000-8000-000000000000"] {
            assert!(matches!(place(wrong), Err(Error::Invalid("cursor", _))), "{wrong:?}");
        }
    }
}
