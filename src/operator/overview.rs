//! How everything stands, in one answer: what is wrong first, the worst first, each with the command that comes next.
//! Figures are bounded by partial indexes, so that asking costs little whatever the size of the history.

use super::lanes::{self, Lane};
use super::schema::{self, Comparison};
use super::workers::Worker;
use super::{Desk, Error, Limits, age, seconds};
use crate::domain::encoding::checksummed;
use crate::store::facts::{self, Figures};
use crate::store::standing::{self, Head};
use crate::store::workers;
use entity::states::{JobState, LaneState};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Work does not go on.
    Critical,
    /// Somebody should look.
    Warning,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    pub what: String,
    pub next: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Overview {
    /// The worst first; empty when all is well.
    pub findings: Vec<Finding>,
    /// Open jobs and those that wait for somebody, by state.
    pub jobs: BTreeMap<JobState, i64>,
    pub ages: Ages,
    pub outbox_pending: i64,
    pub lanes: LaneCounts,
    pub workers: WorkerCounts,
    pub heads: Vec<Newest>,
    pub schema: Comparison,
}

/// Of the oldest of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ages {
    pub ready_seconds: Option<u64>,
    pub processing_seconds: Option<u64>,
    pub outbox_seconds: Option<u64>,
    pub open_nonce_seconds: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LaneCounts {
    pub active: usize,
    pub other: usize,
    pub open_nonces: i64,
    pub free: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkerCounts {
    pub live: usize,
    pub stale: usize,
    pub processing: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Newest {
    pub chain_id: i64,
    pub number: i64,
    pub age_seconds: u64,
}

/// All that findings are made of.
struct Seen {
    figures: Figures,
    lanes: Vec<Lane>,
    workers: Vec<Worker>,
    heads: Vec<Head>,
    schema: Comparison,
}

/// # Errors
/// See [`Error`].
pub async fn overview(desk: &Desk) -> Result<Overview, Error> {
    let db = desk.reader();
    let schema = schema::check(desk).await?;
    // Without a schema there is nothing else to ask for.
    if schema.found.is_none() {
        return Ok(summary(
            Seen { figures: Figures::default(), lanes: Vec::new(), workers: Vec::new(), heads: Vec::new(), schema },
            &desk.limits,
        ));
    }
    let (figures, mut lanes, workers, heads) = futures::try_join!(
        async { Ok::<_, Error>(facts::figures(&db).await?) },
        lanes::load(&db),
        async { Ok(workers::list(&db).await?) },
        async { Ok(standing::heads(&db).await?) }
    )?;
    lanes::worst_first(&mut lanes);
    let workers = workers.into_iter().map(|row| Worker::new(row, &desk.limits)).collect();
    Ok(summary(Seen { figures, lanes, workers, heads, schema }, &desk.limits))
}

fn summary(seen: Seen, limits: &Limits) -> Overview {
    let mut findings = findings(&seen, limits);
    findings.sort_by_key(|finding| finding.severity);
    let Seen { figures, lanes, workers, heads, schema } = seen;
    let active = lanes.iter().filter(|lane| lane.state == LaneState::Active).count();
    Overview {
        findings,
        ages: Ages {
            ready_seconds: figures.oldest_ready.map(seconds),
            processing_seconds: figures.oldest_processing.map(seconds),
            outbox_seconds: figures.oldest_outbox.map(seconds),
            open_nonce_seconds: figures.oldest_submitted.map(seconds),
        },
        outbox_pending: figures.outbox_pending,
        jobs: figures.jobs.into_iter().collect(),
        lanes: LaneCounts {
            active,
            other: lanes.len() - active,
            open_nonces: lanes.iter().map(|lane| lane.open).sum(),
            free: lanes.iter().map(|lane| lane.free).sum(),
        },
        workers: WorkerCounts {
            live: workers.iter().filter(|worker| worker.live).count(),
            stale: workers.iter().filter(|worker| silent(worker)).count(),
            processing: workers.iter().filter(|worker| worker.live).map(|worker| i64::from(worker.processing)).sum(),
        },
        heads: heads.iter().map(|head| Newest { chain_id: head.chain_id, number: head.number, age_seconds: seconds(head.age) }).collect(),
        schema,
    }
}

/// Silent, or gone while it held work.
fn silent(worker: &Worker) -> bool {
    worker.silent || (!worker.live && worker.processing > 0)
}

/// In the order in which an operator would look, within each severity.
fn findings(seen: &Seen, limits: &Limits) -> Vec<Finding> {
    let mut found = Vec::new();
    for difference in &seen.schema.differences {
        found.push(critical(format!("the schema is not the one of this program: {difference}"), "holdfast db migrate"));
    }
    if seen.schema.found.is_some() {
        find_idle(seen, &mut found);
        find_late(&seen.figures, limits, &mut found);
        find_lanes(&seen.lanes, limits, &mut found);
        find_given_up(seen, limits, &mut found);
    }
    found
}

fn critical(what: String, next: impl Into<String>) -> Finding {
    Finding { severity: Severity::Critical, what, next: next.into() }
}

fn warning(what: String, next: impl Into<String>) -> Finding {
    Finding { severity: Severity::Warning, what, next: next.into() }
}

/// Work that nobody does at all.
fn find_idle(seen: &Seen, found: &mut Vec<Finding>) {
    let open: i64 = seen.figures.jobs.iter().filter(|(state, _)| !state.is_final()).map(|(_, count)| count).sum();
    if !seen.workers.iter().any(|worker| worker.live) {
        let start = "holdfast serve --role relayer";
        found.push(match open {
            0 => warning("no worker is live: what is accepted now would wait".into(), start),
            open => critical(format!("{open} open jobs and no live worker"), start),
        });
    }
    if open > 0 && seen.lanes.is_empty() {
        found.push(critical(format!("{open} open jobs and no lane: no process with SIGNER_KEYS has started yet"), "holdfast doctor"));
    }
}

fn find_late(figures: &Figures, limits: &Limits, found: &mut Vec<Finding>) {
    let late = |oldest: Option<Duration>, limit: Duration| oldest.filter(|oldest| *oldest > limit).map(|oldest| age(seconds(oldest)));
    if let Some(age) = late(figures.oldest_outbox, limits.waiting) {
        let what = format!("{} deliveries are not published, the oldest for {age}: Redis or the publisher is away", figures.outbox_pending);
        found.push(critical(what, "holdfast doctor"));
    }
    if let Some(age) = late(figures.oldest_ready, limits.waiting) {
        found.push(critical(format!("the oldest due job waits for a worker for {age}"), "holdfast workers list"));
    }
    if let Some(age) = late(figures.oldest_processing, limits.processing) {
        found.push(warning(format!("the longest execution has taken {age}"), "holdfast jobs list --state processing"));
    }
}

fn find_lanes(lanes: &[Lane], limits: &Limits, found: &mut Vec<Finding>) {
    for lane in lanes {
        let (signer, chain) = (checksummed(&lane.signer), lane.chain_id);
        let next = format!("holdfast lanes explain {signer}");
        if lane.state == LaneState::Paused {
            let why = lane.reason.as_deref().unwrap_or("no reason was given");
            found.push(critical(format!("lane {signer} on chain {chain} is paused with {} open nonces: {why}", lane.open), next));
        } else if let Some(old) = lane.oldest_open_seconds.filter(|old| *old > seconds(limits.stuck)) {
            let what = format!("lane {signer} on chain {chain}: its oldest open nonce is {} old, {} wait in all", age(old), lane.open);
            found.push(warning(what, next));
        } else if lane.state == LaneState::Active && lane.free == 0 && lane.open > 0 {
            found.push(warning(format!("lane {signer} on chain {chain} is full: {} open nonces of {}", lane.open, lane.width), next));
        }
    }
}

fn find_given_up(seen: &Seen, limits: &Limits, found: &mut Vec<Finding>) {
    for (state, count) in seen.figures.jobs.iter().filter(|(state, count)| state.is_final() && *count > 0) {
        found.push(warning(
            format!("{count} jobs are {state} and wait for somebody's decision"),
            format!("holdfast jobs list --state {state}"),
        ));
    }
    for worker in seen.workers.iter().filter(|worker| silent(worker)) {
        let what =
            format!("worker {} is silent for {} and held {} jobs", worker.instance, age(worker.heartbeat_age_seconds), worker.processing);
        found.push(warning(what, "holdfast workers list"));
    }
    for head in seen.heads.iter().filter(|head| head.age > limits.stuck) {
        let what = format!("chain {}: no majority has shown a block after {} for {}", head.chain_id, head.number, age(seconds(head.age)));
        found.push(warning(what, "holdfast doctor"));
    }
}

#[cfg(test)]
#[path = "overview_tests.rs"]
mod tests;
