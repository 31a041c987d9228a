//! The processes that execute jobs, live ones first.

use super::{Desk, Error, Limits, List, seconds};
use crate::store::workers::{self as rows, WorkerView};
use chrono::{DateTime, Utc};
use entity::ids::WorkerId;
use entity::states::WorkerState;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Worker {
    pub id: WorkerId,
    pub instance: String,
    pub role: String,
    pub version: String,
    pub state: WorkerState,
    /// Whether its heartbeat is recent and it has not stopped.
    pub live: bool,
    pub processing: i32,
    pub pool_size: i32,
    pub started_at: DateTime<Utc>,
    pub heartbeat_at: DateTime<Utc>,
    pub heartbeat_age_seconds: u64,
}

impl Worker {
    pub(super) fn new(row: WorkerView, limits: &Limits) -> Self {
        Self {
            live: is_live(&row, limits),
            id: row.id,
            instance: row.instance,
            role: row.role,
            version: row.version,
            state: row.state,
            processing: row.processing,
            pool_size: row.pool_size,
            started_at: row.started_at,
            heartbeat_at: row.heartbeat_at,
            heartbeat_age_seconds: seconds(row.heartbeat_age),
        }
    }
}

pub(super) fn is_live(row: &WorkerView, limits: &Limits) -> bool {
    !matches!(row.state, WorkerState::Stopped | WorkerState::Stale) && row.heartbeat_age <= limits.stale
}

/// # Errors
/// See [`Error`].
pub async fn list(desk: &Desk) -> Result<List<Worker>, Error> {
    let rows = rows::list(&desk.reader()).await?;
    Ok(List::whole(rows.into_iter().map(|row| Worker::new(row, &desk.limits)).collect()))
}
