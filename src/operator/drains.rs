//! Drains: mark first, wait second. A mark stays when the wait runs out, and is taken back only by a command of its own.

use super::cancel::check;
use super::lanes::{Lane, load};
use super::transactions::{self, Filter, Transaction};
use super::workers::Worker;
use super::{Desk, Error};
use crate::store::audited::Operator;
use crate::store::{drains, workers};
use entity::ids::WorkerId;
use entity::states::{LaneState, WorkerState};
use entity::values::Address;
use serde::Serialize;
use std::time::Duration;

/// The part of docs/operations.md that says how to go on when a signer does not drain.
pub const SIGNER_RUNBOOK: &str = "docs/operations.md#rotate-a-signer";
pub const WORKER_RUNBOOK: &str = "docs/operations.md#drain-a-worker";
/// Open nonces that are shown.
const SHOWN: u32 = 100;

/// How often a wait looks.
pub const LOOK: Duration = Duration::from_millis(500);

/// Marks the newest process of an instance as draining; it takes no more deliveries from its next heartbeat on.
///
/// # Errors
/// `NotFound`, and `Gate` when the process has ended or is silent.
pub async fn drain_worker(desk: &Desk, instance: &str, operator: (&str, &str)) -> Result<Worker, Error> {
    check(operator.0, operator.1)?;
    let found = mark(desk, instance, true, operator).await?;
    let already = found.healthy && matches!(found.state, WorkerState::Draining | WorkerState::Drained);
    if !found.moved && !already {
        return Err(not_healthy(&found, "nothing is left to drain"));
    }
    worker(desk, found.id).await
}

/// Takes the drain of a process back, if that very process still lives.
///
/// # Errors
/// `NotFound`, and `Gate` when that process has ended, is silent, or is another start than the one that was drained.
pub async fn undrain_worker(desk: &Desk, instance: &str, operator: (&str, &str)) -> Result<Worker, Error> {
    check(operator.0, operator.1)?;
    let found = mark(desk, instance, false, operator).await?;
    if !found.moved {
        if found.healthy && matches!(found.state, WorkerState::Active | WorkerState::Starting) {
            let why = format!(
                "process {} of {} is {}: a drain belongs to the start that it was given to, and this one is not draining",
                found.id.0, found.instance, found.state
            );
            return Err(Error::Gate { gate: "not-draining", why, next: "holdfast workers list" });
        }
        return Err(not_healthy(&found, "it cannot take work again; a new start is not draining"));
    }
    worker(desk, found.id).await
}

async fn mark(desk: &Desk, instance: &str, drain: bool, operator: (&str, &str)) -> Result<drains::Process, Error> {
    let by = Operator { id: operator.0, reason: operator.1 };
    let found = drains::worker(&desk.db, instance, drain, desk.limits.stale, by).await?;
    found.ok_or_else(|| Error::NotFound { what: "process", id: instance.to_owned() })
}

fn not_healthy(found: &drains::Process, so: &str) -> Error {
    let why = if found.healthy {
        format!("process {} of {} is {}: {so}", found.id.0, found.instance, found.state)
    } else {
        format!("process {} of {} is {} and gives no heartbeat: {so}", found.id.0, found.instance, found.state)
    };
    Error::Gate { gate: "heartbeat", why, next: "holdfast workers list" }
}

/// A process as it is now.
///
/// # Errors
/// See [`Error`].
pub async fn worker(desk: &Desk, id: WorkerId) -> Result<Worker, Error> {
    let row = workers::list(&desk.reader()).await?.into_iter().find(|row| row.id == id);
    row.map(|row| Worker::new(row, &desk.limits)).ok_or_else(|| Error::NotFound { what: "process", id: id.0.to_string() })
}

/// How far the drain of a signer has come.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SignerDrain {
    pub signer: Address,
    /// No lane of it gives out nonces, and no nonce of it is open.
    pub drained: bool,
    pub lanes: Vec<Lane>,
    /// The first open nonces.
    pub open: Vec<Transaction>,
}

/// Closes the fence of a signer on all chains, for all processes at once, and says how far it has come.
///
/// # Errors
/// `NotFound` when the signer has no lane.
pub async fn drain_signer(desk: &Desk, signer: Address, operator: (&str, &str)) -> Result<SignerDrain, Error> {
    check(operator.0, operator.1)?;
    let fences = drains::signer(&desk.db, signer, true, Operator { id: operator.0, reason: operator.1 }).await?;
    if fences.is_empty() {
        return Err(Error::NotFound { what: "signer", id: signer.to_string() });
    }
    signer_drain(desk, signer).await
}

/// Looks again; lanes without an open nonce become drained.
///
/// # Errors
/// See [`Error`].
pub async fn signer_drain(desk: &Desk, signer: Address) -> Result<SignerDrain, Error> {
    drains::settle_signer(&desk.db, signer).await?;
    let mut lanes = load(&desk.reader()).await?;
    lanes.retain(|lane| lane.signer == signer);
    let open = transactions::list(desk, Filter { signer: Some(signer), ended_on: None, limit: SHOWN }).await?.items;
    let closed = |lane: &Lane| matches!(lane.state, LaneState::Drained | LaneState::Retired);
    Ok(SignerDrain { signer, drained: open.is_empty() && lanes.iter().all(closed), lanes, open })
}

/// Opens the fence of a signer again, on every chain where it is draining or drained.
///
/// # Errors
/// `NotFound`, and `Gate` when no lane of it is draining or drained.
pub async fn undrain_signer(desk: &Desk, signer: Address, operator: (&str, &str)) -> Result<SignerDrain, Error> {
    check(operator.0, operator.1)?;
    let fences = drains::signer(&desk.db, signer, false, Operator { id: operator.0, reason: operator.1 }).await?;
    if fences.is_empty() {
        return Err(Error::NotFound { what: "signer", id: signer.to_string() });
    }
    if !fences.iter().any(|fence| fence.moved) {
        let states: Vec<String> = fences.iter().map(|fence| format!("{} on chain {}", fence.state, fence.chain_id)).collect();
        let why = format!("signer {signer} is {}: nothing of it is draining or drained", states.join(", "));
        return Err(Error::Gate { gate: "not-draining", why, next: "holdfast lanes list" });
    }
    signer_drain(desk, signer).await
}
