//! The queue in Redis, as far as an operator asks: how much is where, since when, and whether Redis is fit for it.

use super::{Error, seconds};
use crate::delivery::Delivery;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Queue {
    pub paused: bool,
    /// Could be taken now.
    pub ready: u64,
    pub delayed: u64,
    pub active: u64,
    pub completed: u64,
    pub failed: u64,
    pub oldest_ready_seconds: Option<u64>,
    pub redis_version: String,
    pub eviction_policy: Option<String>,
    pub used_memory: Option<u64>,
    pub max_memory: Option<u64>,
}

/// # Errors
/// `Unavailable` while Redis is.
pub async fn view(delivery: &Delivery) -> Result<Queue, Error> {
    let away = |error: crate::delivery::Error| Error::Unavailable(error.to_string());
    let (counts, oldest, facts) = futures::try_join!(delivery.counts(), delivery.oldest_waiting_age(), delivery.check()).map_err(away)?;
    let (major, minor, patch) = facts.version;
    Ok(Queue {
        paused: counts.paused,
        ready: counts.ready(),
        delayed: counts.delayed,
        active: counts.active,
        completed: counts.completed,
        failed: counts.failed,
        oldest_ready_seconds: oldest.map(seconds),
        redis_version: format!("{major}.{minor}.{patch}"),
        eviction_policy: facts.eviction_policy,
        used_memory: facts.used_memory,
        max_memory: facts.max_memory,
    })
}
