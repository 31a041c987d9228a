//! One job, explained: where it stands, why, what happens next and when, and all that led there. Asks Postgres only, so it explains
//! also while everything else is away.

use super::jobs::{Execution, Job};
use super::ladder::Place;
use super::lanes::{self, Lane};
use super::transactions::{Transaction, since};
use super::workers::is_live;
use super::{Desk, Error, age, explain_tx};
use crate::domain::encoding::checksummed;
use crate::store::standing::{self, Executor};
use crate::store::{jobs, transactions, workers};
use chrono::{DateTime, Utc};
use entity::ids::JobId;
use entity::states::{AttemptOutcome, JobState, LaneState, LineageState};
use entity::values::Wei;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    pub job: Job,
    pub why: String,
    pub next: Next,
    /// Executions that may still fail before the job is dead; null when it has ended.
    pub attempts_left: Option<i32>,
    /// Of its newest executions, those that were given back and cost nothing.
    pub given_back: usize,
    /// Every nonce that it had, newest first.
    pub transactions: Vec<Transaction>,
    /// What happens to its open nonce, what it offers and may still offer; null without one.
    pub outlook: Option<explain_tx::Explanation>,
    /// The errors of its executions, grouped, the newest first.
    pub errors: Vec<ErrorGroup>,
    /// All its executions by how they ended, the newest group first.
    pub outcomes: Vec<OutcomeGroup>,
    pub executions: Vec<Execution>,
    pub history: Vec<Change>,
}

/// As endpoints' answers and errors of executions are recorded.
const UNFUNDED: &str = "insufficient_funds";
/// Lanes that are named one by one.
const LANES_TOLD: usize = 5;

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Next {
    pub action: String,
    /// Null when it waits for an event and not for a time.
    pub at: Option<DateTime<Utc>>,
    /// For the operator, where there is something to do or to look at.
    pub command: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorGroup {
    pub r#type: String,
    pub count: usize,
    pub last_at: DateTime<Utc>,
    /// Of the newest.
    pub detail: Option<String>,
}

/// Executions that ended alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutcomeGroup {
    /// Null: it runs.
    pub outcome: Option<AttemptOutcome>,
    pub error: Option<String>,
    pub count: i64,
    pub last_at: DateTime<Utc>,
    /// Of the newest.
    pub detail: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    pub version: i32,
    pub state: String,
    pub at: DateTime<Utc>,
}

/// What else decides about the job.
struct Around {
    now: DateTime<Utc>,
    executor: Executor,
    live_workers: usize,
    /// The lanes of its pool on its chain.
    lanes: Vec<Lane>,
    /// Its newest execution that has ended, where that gave the job back: its error and detail.
    given_back: Option<(String, String)>,
    /// Its newest transaction.
    newest: Option<explain_tx::Explanation>,
}

/// # Errors
/// `NotFound`, and see [`Error`].
pub async fn explain(desk: &Desk, id: JobId) -> Result<Explanation, Error> {
    let db = desk.reader();
    let missing = || Error::NotFound { what: "job", id: id.to_string() };
    let view = jobs::by_ids(&db, &[id], None).await?.pop().ok_or_else(missing)?;
    let executor = standing::executor(&db, id).await?.ok_or_else(missing)?;
    let (attempts, history, lineages, workers, outcomes) = futures::try_join!(
        jobs::attempts(&db, id),
        jobs::history(&db, id),
        transactions::of_job(&db, id),
        workers::list(&db),
        standing::outcomes(&db, id)
    )?;
    let now = executor.now;
    let job = Job::at(now, view);
    let mut lanes = lanes::load(&db).await?;
    lanes.retain(|lane| lane.chain_id == job.chain_id && lane.pool == job.pool);
    let live_workers = workers.iter().filter(|worker| is_live(worker, &desk.limits)).count();
    let newest = explain_tx::explained(desk, lineages.iter().take(1).cloned().collect()).await?.pop();
    let transactions: Vec<_> = lineages.into_iter().map(|row| Transaction::at(now, row)).collect();
    let executions: Vec<_> = attempts.into_iter().map(Execution::from).collect();
    let around = Around { now, executor, live_workers, lanes, given_back: given_back(&executions), newest };
    let (why, next) = verdict(&job, transactions.first(), &around);
    Ok(Explanation {
        why,
        next,
        attempts_left: (!job.state.is_final()).then_some((around.executor.budget - job.attempts).max(0)),
        given_back: executions.iter().filter(|one| one.outcome == Some(AttemptOutcome::Snoozed)).count(),
        transactions,
        outlook: around.newest.filter(|newest| newest.place.is_some()),
        errors: grouped(&executions),
        outcomes: outcomes.into_iter().map(OutcomeGroup::from).collect(),
        executions,
        history: history.into_iter().map(|(version, state, at)| Change { version, state, at }).collect(),
        job,
    })
}

impl From<standing::Outcome> for OutcomeGroup {
    fn from(row: standing::Outcome) -> Self {
        Self { outcome: row.outcome, error: row.error, count: row.count, last_at: row.last_at, detail: row.detail }
    }
}

/// What the newest execution that has ended said, if it gave the job back: that stays out of the job's own error.
fn given_back(executions: &[Execution]) -> Option<(String, String)> {
    let last = executions.iter().find(|one| one.outcome.is_some()).filter(|one| one.outcome == Some(AttemptOutcome::Snoozed))?;
    Some((last.error.clone()?, last.detail.clone().unwrap_or_else(|| "no detail was recorded".into())))
}

fn next(action: impl Into<String>, at: Option<DateTime<Utc>>, command: Option<String>) -> Next {
    Next { action: action.into(), at, command }
}

/// Why it stands where it stands, and what comes.
fn verdict(job: &Job, transaction: Option<&Transaction>, around: &Around) -> (String, Next) {
    match job.state {
        JobState::Queued | JobState::Retry => waiting(job, around),
        JobState::Processing => processing(job, around),
        JobState::Submitted => submitted(transaction, around),
        JobState::PendingBatch | JobState::Batched => {
            ("it is to be sent together with others".into(), next("its batch is formed", None, None))
        }
        state => ended(job, state, around),
    }
}

fn waiting(job: &Job, around: &Around) -> (String, Next) {
    let mut why = match (&around.given_back, &job.error, job.state) {
        (Some((error, detail)), _, JobState::Retry) => held_up(error, detail),
        (None, Some(error), JobState::Retry) => {
            let detail = error.detail.as_ref().unwrap_or(&error.title);
            if error.r#type == UNFUNDED {
                held_up(UNFUNDED, detail)
            } else {
                format!("execution {} ended without a transaction: {detail}", job.attempts)
            }
        }
        (None, None, JobState::Retry) => "it was given back unharmed".to_owned(),
        _ => "it was accepted and no worker has taken it yet".to_owned(),
    };
    let delivery = &job.delivery;
    if delivery.deliver_at > around.now {
        if job.attempts == 0 {
            return (why, next("it is due at its run_at", Some(delivery.deliver_at), None));
        }
        // What kept the last execution from a lane most likely keeps the next one from it.
        let trouble = lane_trouble(job, &around.lanes);
        why.extend(trouble.iter().map(|(trouble, _)| format!("; {trouble}")));
        return (why, next("the next execution is due", Some(delivery.deliver_at), trouble.map(|(_, command)| command)));
    }
    if delivery.published_at.is_none() {
        let failures = around.executor.failures;
        why.push_str(&format!("; its delivery is due for {} and not in Redis yet", told(Some(delivery.deliver_at), around.now)));
        if failures > 0 {
            why.push_str(&format!(", {failures} tries failed"));
        }
        return (why, next("the outbox is published", delivery.next_at, (failures > 0).then(|| "holdfast doctor".into())));
    }
    why.push_str(&format!("; its delivery {} is in Redis since {}", delivery.generation, told(delivery.published_at, around.now)));
    if around.live_workers == 0 {
        return (format!("{why}, and no worker is alive"), next("a worker starts", None, Some("holdfast workers list".into())));
    }
    match lane_trouble(job, &around.lanes) {
        Some((trouble, command)) => {
            (format!("{why}; {trouble}"), next("a worker takes it when a lane has room", delivery.next_at, Some(command)))
        }
        None => (why, next("a worker takes it; its place in Redis is looked at", delivery.next_at, None)),
    }
}

/// Why an execution gave the job back, in words; that cost it no attempt.
fn held_up(error: &str, detail: &str) -> String {
    match error {
        UNFUNDED => format!("it waits for money: {detail}"),
        // Why none has room is told of the lanes as they are now.
        "no_lane" => "it waits for a lane".to_owned(),
        "fee_over_limit" => format!("it waits for a lower price: {detail}"),
        "simulation_unavailable" => format!("it waits for the endpoints, the call could not be simulated: {detail}"),
        "market_unknown" => format!("it waits for the endpoints: {detail}"),
        "postgres" => format!("it waits for Postgres: {detail}"),
        error => format!("it was given back unharmed ({error}): {detail}"),
    }
}

/// Why no lane of the pool would take it.
fn lane_trouble(job: &Job, lanes: &[Lane]) -> Option<(String, String)> {
    let all = "holdfast lanes list".to_owned();
    if lanes.is_empty() {
        return Some((format!("pool {} has no lane on chain {}", job.pool, job.chain_id), all));
    }
    if lanes.iter().any(|lane| lane.free > 0) {
        return None;
    }
    let worst = lanes.iter().max_by_key(|lane| (lane.state == LaneState::Paused, lane.oldest_open_seconds));
    let command = worst.map_or(all, |lane| format!("holdfast lanes explain {}", checksummed(&lane.signer)));
    let mut trouble = format!("no lane of pool {} has room", job.pool);
    for lane in lanes.iter().take(LANES_TOLD) {
        let state = match (lane.state, &lane.reason) {
            (LaneState::Active, _) => {
                let oldest = lane.oldest_open_seconds.map_or_else(String::new, |old| format!(", the oldest for {}", age(old)));
                format!("full, {} of {} open{oldest}", lane.next_nonce - lane.latest_nonce, lane.width)
            }
            (state, reason) => format!("{state}: {}", reason.as_deref().unwrap_or("no reason was given")),
        };
        trouble.push_str(&format!("; lane {} is {state}", checksummed(&lane.signer)));
    }
    if lanes.len() > LANES_TOLD {
        trouble.push_str(&format!("; and {} more", lanes.len() - LANES_TOLD));
    }
    Some((trouble, command))
}

fn processing(job: &Job, around: &Around) -> (String, Next) {
    let Some((id, instance, state, from)) = &around.executor.worker else {
        return ("an execution has just ended".into(), next("its end is written", None, None));
    };
    let name = if instance.is_empty() { id.to_string() } else { instance.clone() };
    let asked = if job.cancel_asked_at.is_some() { "; cancelling was asked for, it will get no nonce" } else { "" };
    let why = format!("execution {} runs on worker {name} ({state}) for {}{asked}", job.attempts, age(since(*from, around.now)));
    match state.as_str() {
        "stopped" | "stale" | "unknown" => {
            let action = "that worker is gone: when its lock has run out, another takes the job over";
            (why, next(action, job.delivery.next_at, Some("holdfast workers list".into())))
        }
        _ => (why, next("the execution ends, or its lock runs out and another worker takes over", job.delivery.next_at, None)),
    }
}

fn submitted(transaction: Option<&Transaction>, around: &Around) -> (String, Next) {
    let Some(t) = transaction else {
        return (
            "it is submitted, but no transaction is on record: this must not be".into(),
            next("report it", None, Some("holdfast db check".into())),
        );
    };
    let signer = checksummed(&t.signer);
    let lane = format!("holdfast lanes explain {signer}");
    let place = format!("nonce {} of {signer} on chain {}", t.nonce, t.chain_id);
    if t.last_answer.as_deref() == Some(UNFUNDED) && !t.state.is_final() {
        let most = most_cost(t).map_or("what it costs is not known".into(), |cost| format!("it costs at most {cost} wei"));
        let why = format!("it waits for money at {place} for {} now: the signer cannot pay, {most}", age(t.age_seconds));
        return (why, next(format!("send native currency to {signer}: its bytes are then sent again by themselves"), None, Some(lane)));
    }
    match t.state {
        LineageState::Allocated => {
            (format!("it owns {place}, unsigned"), next("it is signed, or its nonce goes to the tail", None, Some(lane)))
        }
        LineageState::Signed => (format!("it is signed at {place} and not sent yet"), next("the bytes are sent", None, Some(lane))),
        LineageState::Broadcast | LineageState::Replaced => {
            let answer = t.last_answer.as_deref().unwrap_or("none");
            let sends = format!("sent {} times, the last answer was {answer}", t.sends);
            let why = format!("it was sent at {place} for {} now: {sends}", age(t.age_seconds));
            let Some(newest) = &around.newest else {
                return (why, next("it is mined and reaches TX_CONFIRMATIONS", None, Some(lane)));
            };
            let behind = matches!(newest.place, Some(Place::Behind)).then_some("; it waits for the nonces before it");
            (why + behind.unwrap_or_default(), next(newest.next.text.clone(), newest.next.at, Some(lane)))
        }
        _ => (format!("{place} has ended as {}", t.state), next("the job is settled with it", None, Some(lane))),
    }
}

/// What a transaction takes from its signer if all its gas is used at its highest price.
fn most_cost(t: &Transaction) -> Option<Wei> {
    let gas = Wei::from(u64::try_from(t.gas_limit).ok()?);
    let gas = gas.0.checked_mul(t.max_fee_per_gas?.0)?;
    t.value.0.checked_add(gas).map(Wei)
}

fn ended(job: &Job, state: JobState, around: &Around) -> (String, Next) {
    let nothing = |action: &str| next(action, None, None);
    let error = job.error.as_ref().map_or("no error was recorded", |error| error.detail.as_ref().unwrap_or(&error.title));
    let newest = around.newest.as_ref();
    let proof = newest.map_or_else(|| "its transaction is no longer on record".to_owned(), |newest| newest.why.clone());
    // Whether a reorganisation may still undo it.
    let then = newest.map_or("nothing", |newest| newest.next.text.as_str());
    match state {
        JobState::Completed => (format!("a majority showed its receipt at TX_CONFIRMATIONS: {proof}"), nothing(then)),
        JobState::Reverted => (format!("{proof}: {error}"), nothing(&format!("{then}; the nonce is used up, new work needs a new job"))),
        JobState::NotActionable => (format!("there was nothing to do: {error}"), nothing("nothing")),
        JobState::Cancelled if job.transaction.is_some() => {
            (format!("it was cancelled, a no-op was mined at its nonce instead of it: {proof}"), nothing(then))
        }
        JobState::Cancelled => ("it was cancelled before it owned a nonce".into(), nothing("nothing")),
        JobState::Dead => {
            let why = match job.transaction {
                Some(_) => format!("its nonce was used up without it: {error}; {proof}"),
                None => format!("its last execution, number {}, failed: {error}", job.attempts),
            };
            (why, nothing("nothing by itself: it waits for an operator's decision"))
        }
        _ => (format!("it was set aside: {error}"), nothing("nothing by itself: it waits for an operator's decision")),
    }
}

fn told(at: Option<DateTime<Utc>>, now: DateTime<Utc>) -> String {
    at.map_or_else(|| "never".into(), |at| age(since(at, now)))
}

/// The errors of executions (newest first) by their type.
fn grouped(executions: &[Execution]) -> Vec<ErrorGroup> {
    let mut groups: Vec<ErrorGroup> = Vec::new();
    for execution in executions {
        let Some(kind) = &execution.error else { continue };
        match groups.iter_mut().find(|group| group.r#type == *kind) {
            Some(group) => group.count += 1,
            None => groups.push(ErrorGroup {
                r#type: kind.clone(),
                count: 1,
                last_at: execution.finished_at.unwrap_or(execution.started_at),
                detail: execution.detail.clone(),
            }),
        }
    }
    groups
}

#[cfg(test)]
#[path = "explain_job_tests.rs"]
mod tests;
