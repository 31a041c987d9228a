//! The queue: how much is where in Redis, since when, and whether Redis is fit for it; and what operators want of it, which Postgres keeps.

use super::cancel::check;
use super::{Desk, Error, seconds};
use crate::config;
use crate::delivery::Delivery;
use crate::store::audited::Operator;
use crate::store::queues as rows;
use chrono::{DateTime, Utc};
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

/// The same beside the service, by a connection of its own.
///
/// # Errors
/// `Unavailable` while Redis is.
pub async fn view_at(settings: &config::Queue, instance: &str) -> Result<Queue, Error> {
    let delivery = Delivery::connect(settings, instance).map_err(|error| Error::Unavailable(error.to_string()))?;
    view(&delivery).await
}

/// What operators want of a queue, and how far that is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wish {
    /// QUEUE_PREFIX.
    pub prefix: String,
    pub paused_at: Option<DateTime<Utc>>,
    /// Since when all that is open is to be published anew; null once that is done.
    pub rebuild_at: Option<DateTime<Utc>>,
    /// Since when Redis is known to have lost its data, while that is being made good.
    pub lost_at: Option<DateTime<Utc>>,
    /// Deliveries that are due and not published, counted up to 100,000.
    pub unpublished: i64,
}

impl Wish {
    /// Whether all that was asked for, and all that was lost, is in Redis again.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.rebuild_at.is_none() && self.lost_at.is_none() && self.unpublished == 0
    }
}

/// Without a prefix, the only queue that there is.
///
/// # Errors
/// `NotFound`; `Invalid` where there are several.
pub async fn wish(desk: &Desk, prefix: Option<&str>) -> Result<Wish, Error> {
    let mut found = rows::list(&desk.reader(), prefix).await?;
    let Some(one) = found.pop() else {
        return Err(Error::NotFound { what: "queue", id: prefix.unwrap_or("of any prefix").to_owned() });
    };
    if let Some(other) = found.pop() {
        return Err(Error::Invalid(
            "QUEUE_PREFIX",
            format!("there are several queues, {} and {} among them: name one", other.prefix, one.prefix),
        ));
    }
    let rows::Queue { prefix, paused_at, rebuild_at, lost_at, unpublished } = one;
    Ok(Wish { prefix, paused_at, rebuild_at, lost_at, unpublished })
}

/// Has nobody take deliveries of a queue, or (`paused` false) has them taken again; what is being executed goes on.
///
/// # Errors
/// As [`wish`].
pub async fn pause(desk: &Desk, prefix: Option<&str>, paused: bool, operator: (&str, &str)) -> Result<Wish, Error> {
    check(operator.0, operator.1)?;
    let found = wish(desk, prefix).await?;
    let operator = Operator { id: operator.0, reason: operator.1 };
    rows::pause(&desk.db, &found.prefix, paused, operator).await?;
    wish(desk, Some(&found.prefix)).await
}

/// Has every open delivery published anew, under the ids that they have: what Redis still holds stays what it is.
///
/// # Errors
/// As [`wish`].
pub async fn rebuild(desk: &Desk, prefix: Option<&str>, operator: (&str, &str)) -> Result<Wish, Error> {
    check(operator.0, operator.1)?;
    let found = wish(desk, prefix).await?;
    rows::rebuild(&desk.db, &found.prefix, Operator { id: operator.0, reason: operator.1 }).await?;
    wish(desk, Some(&found.prefix)).await
}
