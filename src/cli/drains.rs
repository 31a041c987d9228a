//! `holdfast jobs drain`, `undrain`, `signer-drain` and `signer-undrain`: mark first, wait second; a wait that runs out leaves the mark.

use super::failure::{Code, Failure};
use super::output::answer;
use super::page::{Page, cell};
use super::waiting::{Waited, wait};
use super::{Global, session};
use crate::domain::encoding::checksummed;
use crate::operator::drains::{self, SIGNER_RUNBOOK, SignerDrain, WORKER_RUNBOOK};
use crate::operator::workers::Worker;
use crate::operator::{age, transactions::Transaction};
use entity::states::WorkerState;
use entity::values::Address;
use std::time::Duration;

pub fn drain(global: &Global, instance: &str, seconds: u64) -> Result<Code, Failure> {
    let config = session::config_for_postgres(global)?;
    let operator = session::operator(&config)?;
    let waited = session::at_desk_of(global, &config, async |_, desk| {
        let first = drains::drain_worker(desk, instance, (operator, &global.reason)).await?;
        let id = first.id;
        let done = |worker: &Worker| matches!(worker.state, WorkerState::Drained | WorkerState::Stopped | WorkerState::Stale);
        let tell = |worker: &Worker| format!("{} is {} and holds {} jobs", worker.instance, worker.state, worker.processing);
        wait(global.output, Duration::from_secs(seconds), first, async || drains::worker(desk, id).await, done, tell).await
    })?;
    match waited {
        Waited::Done(worker) => {
            answer(global, "jobs.drain", &worker, |page| page.line(drained(&worker)))?;
            Ok(Code::Done)
        }
        Waited::Out(worker) => Err(Failure::new(
            Code::TimedOut,
            format!("{} still holds {} jobs after {seconds} seconds", worker.instance, worker.processing),
            "it stays marked and takes no more: its deliveries end, or come back when their locks run out",
        )
        .then(format!("repeat the command, or read {WORKER_RUNBOOK}"))),
    }
}

fn drained(worker: &Worker) -> String {
    match worker.state {
        WorkerState::Drained => format!("{} is drained: it holds no job and takes none", worker.instance),
        state => format!("{} is {state}: what it held is delivered again when its locks run out", worker.instance),
    }
}

pub fn undrain(global: &Global, instance: &str) -> Result<Code, Failure> {
    let config = session::config_for_postgres(global)?;
    let operator = session::operator(&config)?;
    let worker =
        session::at_desk_of(global, &config, async |_, desk| drains::undrain_worker(desk, instance, (operator, &global.reason)).await)?;
    answer(global, "jobs.undrain", &worker, |page| {
        page.line(format!("{} takes deliveries again from its next heartbeat on", worker.instance))
    })?;
    Ok(Code::Done)
}

pub fn signer_drain(global: &Global, signer: Address, seconds: u64) -> Result<Code, Failure> {
    let config = session::config_for_postgres(global)?;
    let operator = session::operator(&config)?;
    let waited = session::at_desk_of(global, &config, async |_, desk| {
        let first = drains::drain_signer(desk, signer, (operator, &global.reason)).await?;
        let tell = |drain: &SignerDrain| {
            format!("signer {} has {} open nonces", checksummed(&signer), drain.lanes.iter().map(|lane| lane.open).sum::<i64>())
        };
        wait(
            global.output,
            Duration::from_secs(seconds),
            first,
            async || drains::signer_drain(desk, signer).await,
            |drain| drain.drained,
            tell,
        )
        .await
    })?;
    match waited {
        Waited::Done(drain) => {
            answer(global, "jobs.signer-drain", &drain, |page| {
                page.line(format!("signer {} is drained: it gets no nonce, and every nonce of it has ended", checksummed(&signer)));
                lanes(page, &drain);
            })?;
            Ok(Code::Done)
        }
        Waited::Out(drain) => Err(not_drained(&drain, seconds)),
    }
}

/// The lane stays closed, and whoever waits is told what it waits for before a replacement signer is thought of.
fn not_drained(drain: &SignerDrain, seconds: u64) -> Failure {
    let mut why = vec!["its fence stays closed. Look at the journal before another signer takes its place:".to_owned()];
    why.extend(drain.lanes.iter().filter(|lane| lane.state.as_str() != "drained").map(|lane| {
        let reason = lane.reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        format!("chain {}: {}{reason}, {} open", lane.chain_id, lane.state, lane.open)
    }));
    why.extend(drain.open.iter().map(line));
    Failure::new(Code::TimedOut, format!("signer {} is not drained after {seconds} seconds", checksummed(&drain.signer)), why.join("\n"))
        .then(format!("holdfast lanes explain {}; then repeat the command. Runbook: {SIGNER_RUNBOOK}", checksummed(&drain.signer)))
}

fn line(open: &Transaction) -> String {
    let hash = open.hash.map_or_else(|| "unsigned".to_owned(), |hash| hash.to_string());
    format!(
        "chain {} nonce {} {} for {}: lineage {}, job {}, {hash}",
        open.chain_id,
        open.nonce,
        open.state,
        age(open.age_seconds),
        open.id.0,
        open.job
    )
}

pub fn signer_undrain(global: &Global, signer: Address) -> Result<Code, Failure> {
    let config = session::config_for_postgres(global)?;
    let operator = session::operator(&config)?;
    let drain =
        session::at_desk_of(global, &config, async |_, desk| drains::undrain_signer(desk, signer, (operator, &global.reason)).await)?;
    answer(global, "jobs.signer-undrain", &drain, |page| {
        page.line(format!("signer {} gets nonces again", checksummed(&signer)));
        lanes(page, &drain);
    })?;
    Ok(Code::Done)
}

fn lanes(page: &mut Page, drain: &SignerDrain) {
    let row = |lane: &crate::operator::lanes::Lane| {
        vec![cell(lane.chain_id), cell(&lane.pool), cell(lane.state), cell(lane.next_nonce), cell(lane.open)]
    };
    page.table(&["CHAIN", "POOL", "STATE", "FENCE", "OPEN"], &drain.lanes.iter().map(row).collect::<Vec<_>>(), "no lane");
}
