//! Drains: a process that takes no more deliveries, a signer that gets no more nonces. The mark and the row that tells who made it are one
//! statement; what ends a drain is a look of its own, made after the mark was seen by everybody. Called by `operator`.

use super::arrays::words;
use super::audited::Operator;
use super::{Db, Error};
use entity::ids::{LaneId, WorkerId};
use entity::states::{LaneState, LineageState, WorkerState};
use entity::values::Address;
use std::time::Duration;

/// What was found of a process, before the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub id: WorkerId,
    pub instance: String,
    pub state: WorkerState,
    pub processing: i32,
    /// Its heartbeat is recent.
    pub healthy: bool,
    pub moved: bool,
}

/// Marks the newest process of an instance as draining, or (`drain` false) takes that back. None: there never was one.
///
/// # Errors
/// See [`Error`].
pub async fn worker(db: &Db, instance: &str, drain: bool, stale: Duration, operator: Operator<'_>) -> Result<Option<Process>, Error> {
    let ms = i64::try_from(stale.as_millis()).unwrap_or(i64::MAX);
    let (to, from, action) = if drain {
        (WorkerState::Draining, vec![WorkerState::Starting, WorkerState::Active], "workers.drain")
    } else {
        (WorkerState::Active, vec![WorkerState::Draining, WorkerState::Drained], "workers.undrain")
    };
    let values =
        vec![instance.into(), ms.into(), to.to_string().into(), words(from), operator.id.into(), action.into(), operator.reason.into()];
    let rows = db.rows("drain_worker", include_str!("sql/drain_worker.sql"), values).await?;
    let process = |row: &sea_orm::QueryResult| {
        Ok(Process {
            id: row.try_get("", "id")?,
            instance: row.try_get("", "instance")?,
            state: row.try_get("", "state")?,
            processing: row.try_get("", "processing")?,
            healthy: row.try_get("", "healthy")?,
            moved: row.try_get("", "moved")?,
        })
    };
    rows.first().map(process).transpose()
}

/// A lane of a signer, before the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    pub lane: LaneId,
    pub chain_id: i64,
    pub state: LaneState,
    pub moved: bool,
}

/// Closes the fence of every lane of a signer, or (`drain` false) opens it again. Empty: the signer has no lane.
///
/// # Errors
/// See [`Error`].
pub async fn signer(db: &Db, signer: Address, drain: bool, operator: Operator<'_>) -> Result<Vec<Fence>, Error> {
    let (to, why, from, action) = if drain {
        (LaneState::Draining, "drain", vec![LaneState::Active, LaneState::Paused], "signers.drain")
    } else {
        (LaneState::Active, "", vec![LaneState::Draining, LaneState::Drained], "signers.undrain")
    };
    let values =
        vec![signer.into(), to.to_string().into(), why.into(), words(from), operator.id.into(), action.into(), operator.reason.into()];
    let rows = db.rows("drain_signer", include_str!("sql/drain_signer.sql"), values).await?;
    let fence = |row: &sea_orm::QueryResult| {
        Ok(Fence {
            lane: row.try_get("", "id")?,
            chain_id: row.try_get("", "chain_id")?,
            state: row.try_get("", "state")?,
            moved: row.try_get("", "moved")?,
        })
    };
    rows.iter().map(fence).collect()
}

/// Notes the draining lanes of a signer that have no open nonce as drained. A statement of its own: it sees every allocation that came
/// before the fence was closed, which the closing statement might not.
///
/// # Errors
/// See [`Error`].
pub async fn settle_signer(db: &Db, signer: Address) -> Result<u64, Error> {
    let sql = "UPDATE holdfast.lanes l SET state = 'drained', updated_at = now() WHERE l.signer = $1 AND l.state = 'draining'
               AND NOT EXISTS (SELECT 1 FROM holdfast.lineages o WHERE o.lane_id = l.id AND o.state = ANY ($2::text[]))";
    db.execute("settle_drain", sql, vec![signer.into(), words(open())]).await
}

/// States in which a nonce waits for its end.
pub(super) fn open() -> Vec<LineageState> {
    LineageState::all().into_iter().filter(|state| !state.is_final()).collect()
}
