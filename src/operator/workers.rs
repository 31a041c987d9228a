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
    /// As its row says; nobody tells Postgres of a process that was killed.
    pub state: WorkerState,
    /// Whether its heartbeat is recent and it has not stopped.
    pub live: bool,
    /// Whether it should be live by its row and has missed three heartbeats.
    pub silent: bool,
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
            silent: is_silent(&row, limits),
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

impl Worker {
    /// What it is called: its state, or that it is silent.
    #[must_use]
    pub fn standing(&self) -> &'static str {
        if self.silent { "silent" } else { self.state.as_str() }
    }
}

fn should_live(row: &WorkerView) -> bool {
    !matches!(row.state, WorkerState::Stopped | WorkerState::Stale)
}

pub(super) fn is_live(row: &WorkerView, limits: &Limits) -> bool {
    should_live(row) && row.heartbeat_age <= limits.silent
}

fn is_silent(row: &WorkerView, limits: &Limits) -> bool {
    should_live(row) && row.heartbeat_age > limits.silent
}

/// # Errors
/// See [`Error`].
pub async fn list(desk: &Desk) -> Result<List<Worker>, Error> {
    let rows = rows::list(&desk.reader()).await?;
    Ok(List::whole(rows.into_iter().map(|row| Worker::new(row, &desk.limits)).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_worker_that_missed_three_heartbeats_is_silent_and_not_live() {
        let limits = Limits::default();
        let seen = |state: WorkerState, age: Duration| {
            let row = WorkerView {
                id: WorkerId(uuid::Uuid::nil()),
                instance: "relayer-1".into(),
                role: "relayer".into(),
                version: "0".into(),
                state,
                processing: 0,
                pool_size: 1,
                started_at: DateTime::UNIX_EPOCH,
                heartbeat_at: DateTime::UNIX_EPOCH,
                heartbeat_age: age,
            };
            let worker = Worker::new(row, &limits);
            (worker.live, worker.standing())
        };
        let late = crate::actors::worker::HEARTBEAT * 3 + Duration::from_millis(1);
        assert_eq!(seen(WorkerState::Active, late - Duration::from_millis(1)), (true, "active"));
        assert_eq!(seen(WorkerState::Active, late), (false, "silent"));
        assert_eq!(seen(WorkerState::Draining, late), (false, "silent"));
        assert_eq!(seen(WorkerState::Stopped, late), (false, "stopped"));
        assert_eq!(seen(WorkerState::Stale, late), (false, "stale"));
    }
}
