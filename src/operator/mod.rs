//! What operators do and ask, one file an act. Admin API and CLI call the same function, and what changes something writes its audit
//! row in the same statement. Never speaks HTTP, never prints: the answers are views that both show in their own way.

pub mod api_key;
pub mod cancel;
pub mod doctor;
pub mod drains;
pub mod explain_job;
pub mod explain_lane;
pub mod explain_tx;
pub mod jobs;
pub mod ladder;
pub mod lanes;
pub mod log;
pub mod overview;
pub mod queues;
pub mod replay;
pub mod retire;
pub mod rotate;
pub mod rpc;
pub mod schema;
pub mod thaw;
pub mod transactions;
pub mod workers;

use crate::actors::worker::HEARTBEAT;
use crate::clock::{Clock, SystemClock};
use crate::config;
use crate::store::{self, Db, Reader};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// Where operators are served: Postgres, a clock, and what counts as too long.
#[derive(Clone)]
pub struct Desk {
    db: Db,
    clock: Arc<dyn Clock>,
    limits: Limits,
    /// What is set of the chains, where something is foretold; empty in a process that knows none.
    chains: Arc<[config::Chain]>,
}

/// Past these an operator is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// An open nonce (TX_STUCK_SECONDS).
    pub stuck: Duration,
    /// A heartbeat: its worker is given up, and its row is marked.
    pub stale: Duration,
    /// A heartbeat: a worker that has missed three is silent, whatever its row says.
    pub silent: Duration,
    /// Work that is due and that nobody has taken.
    pub waiting: Duration,
    /// One execution.
    pub processing: Duration,
    /// Executions that a job gets when it is taken up again (JOB_MAX_ATTEMPTS).
    pub attempts: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            stuck: Duration::from_secs(60),
            stale: Duration::from_secs(30),
            silent: HEARTBEAT * 3,
            waiting: Duration::from_secs(60),
            processing: Duration::from_secs(300),
            attempts: 8,
        }
    }
}

impl Limits {
    /// From what the operator set.
    #[must_use]
    pub fn of(config: &config::Config) -> Self {
        let ours = Self::default();
        let stuck = config.chains.iter().map(|chain| chain.stuck).max().unwrap_or(ours.stuck);
        let waiting = config.queue.as_ref().map_or(ours.waiting, |queue| queue.reconcile.saturating_mul(2));
        let attempts = config.queue.as_ref().map_or(ours.attempts, |queue| queue.max_attempts);
        Self { stuck, waiting, attempts, ..ours }
    }
}

impl Desk {
    #[must_use]
    pub fn new(db: Db, limits: Limits) -> Self {
        Self { db, clock: Arc::new(SystemClock), limits, chains: Arc::default() }
    }

    /// With what the operator set of the chains.
    #[must_use]
    pub fn knowing(self, chains: &[config::Chain]) -> Self {
        Self { chains: chains.into(), ..self }
    }

    /// For a command that runs beside the service: two connections, and no waiting in its queue.
    ///
    /// # Errors
    /// When Postgres does not answer.
    pub async fn open(settings: &config::Database, limits: Limits) -> Result<Self, Error> {
        let settings = config::Database { pool_min: 0, pool_max: settings.pool_max.clamp(1, 4), ..settings.clone() };
        Ok(Self::new(Db::connect(&settings).await.map_err(Error::at_connecting)?, limits))
    }

    pub async fn close(&self) {
        self.db.close().await;
    }

    fn reader(&self) -> Reader {
        self.db.reader()
    }
}

/// Why an act was not done, by what the operator does about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("nobody is named as the operator: OPERATOR_ID must be 1 to 128 characters")]
    NoOperator,
    #[error("the reason must be at most 1000 characters without control characters")]
    BadReason,
    #[error("{what} {id} does not exist")]
    NotFound { what: &'static str, id: String },
    /// A safety gate, by its name.
    #[error("{why}")]
    Gate { gate: &'static str, why: String, next: &'static str },
    /// A value that was given makes no sense.
    #[error("{0}: {1}")]
    Invalid(&'static str, String),
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error(transparent)]
    Migration(#[from] migration::Error),
    /// Redis, or the chain.
    #[error("{0}")]
    Unavailable(String),
    #[error("the system gives no random numbers")]
    NoRandomness,
}

impl From<store::owner::Failed> for Error {
    fn from(failed: store::owner::Failed) -> Self {
        match failed {
            store::owner::Failed::Store(error) => Self::at_connecting(error),
            store::owner::Failed::Migration(error) => Self::Migration(error),
        }
    }
}

/// What an error means to whoever asked: the exit code of a command and the status of an answer follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    Usage,
    NotFound,
    Refused,
    Changed,
    Unavailable,
    Internal,
}

impl Error {
    /// A wrong password or database is no defect of ours, and nothing that was asked for can be had.
    fn at_connecting(error: store::Error) -> Self {
        match error {
            store::Error::Answer(told) | store::Error::Denied(told) => Self::Unavailable(format!("Postgres does not let us in: {told}")),
            error => Self::Store(error),
        }
    }

    #[must_use]
    pub fn meaning(&self) -> Meaning {
        use store::Error as Store;
        match self {
            Self::NoOperator | Self::BadReason | Self::Invalid(..) => Meaning::Usage,
            Self::NotFound { .. } => Meaning::NotFound,
            Self::Gate { .. } => Meaning::Refused,
            Self::Unavailable(_)
            | Self::Store(Store::PoolExhausted { .. } | Store::NoConnection | Store::Unavailable(_) | Store::Timeout) => {
                Meaning::Unavailable
            }
            Self::Store(Store::Conflict(_)) => Meaning::Changed,
            Self::Store(Store::Denied(_) | Store::Refused(_) | Store::Schema { .. }) => Meaning::Refused,
            Self::Migration(migration::Error::Database(_)) | Self::Store(Store::Answer(_)) | Self::NoRandomness => Meaning::Internal,
            Self::Migration(migration::Error::SameLogin | migration::Error::Password(..)) => Meaning::Usage,
            Self::Migration(_) => Meaning::Refused,
        }
    }

    /// The safety gate that refused, by its name.
    #[must_use]
    pub fn gate(&self) -> Option<&'static str> {
        use migration::Error as Migration;
        match self {
            Self::Gate { gate, .. } => Some(gate),
            Self::Store(store::Error::Denied(_)) => Some("privileges"),
            Self::Store(store::Error::Refused(_)) => Some("constraints"),
            Self::Store(store::Error::Schema { .. }) | Self::Migration(Migration::Newer { .. }) => Some("schema-version"),
            Self::Migration(Migration::Changed { .. }) => Some("migration-checksum"),
            Self::Migration(Migration::NotOwner { .. }) => Some("schema-owner"),
            Self::Migration(Migration::TooOld { .. }) => Some("postgres-version"),
            Self::Migration(Migration::Member { .. } | Migration::Owner { .. } | Migration::Attribute { .. }) => Some("runtime-login"),
            _ => None,
        }
    }

    /// What to do next.
    #[must_use]
    pub fn next(&self) -> Option<&'static str> {
        if let Self::Gate { next, .. } = self {
            return Some(next);
        }
        match self.meaning() {
            Meaning::Unavailable => Some("holdfast doctor"),
            Meaning::Changed => Some("look again, then repeat the command"),
            Meaning::Refused if self.gate() == Some("privileges") => Some("holdfast db migrate"),
            Meaning::Refused if matches!(self, Self::Store(store::Error::Schema { .. })) => Some("holdfast db migrate"),
            Meaning::Usage if matches!(self, Self::NoOperator) => Some("set OPERATOR_ID to your name, or give --operator-id"),
            _ => None,
        }
    }
}

/// A page of something.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct List<T> {
    pub items: Vec<T>,
    /// Give it to get the next page; null on the last.
    pub next_cursor: Option<String>,
}

impl<T> List<T> {
    fn whole(items: Vec<T>) -> Self {
        Self { items, next_cursor: None }
    }
}

fn seconds(duration: Duration) -> u64 {
    duration.as_secs()
}

/// A length of time for people: the two largest units.
#[must_use]
pub fn age(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes, seconds % 60) {
        (0, 0, 0, s) => format!("{s}s"),
        (0, 0, m, 0) => format!("{m}m"),
        (0, 0, m, s) => format!("{m}m{s}s"),
        (0, h, 0, _) => format!("{h}h"),
        (0, h, m, _) => format!("{h}h{m}m"),
        (d, 0, ..) => format!("{d}d"),
        (d, h, ..) => format!("{d}d{h}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_told_in_its_two_largest_units() {
        let told: Vec<_> = [0, 59, 60, 61, 3_600, 3_725, 86_400, 90_000].into_iter().map(age).collect();
        assert_eq!(told, ["0s", "59s", "1m", "1m1s", "1h", "1h2m", "1d", "1d1h"]);
    }

    #[test]
    fn what_an_error_means_follows_from_what_the_operator_can_do() {
        let unavailable = Error::Store(store::Error::Unavailable("away".into()));
        assert_eq!((unavailable.meaning(), unavailable.next()), (Meaning::Unavailable, Some("holdfast doctor")));
        assert_eq!(Error::NoOperator.meaning(), Meaning::Usage);
        assert_eq!(Error::Store(store::Error::Conflict("taken".into())).meaning(), Meaning::Changed);
        let denied = Error::Store(store::Error::Denied("jobs".into()));
        assert_eq!((denied.meaning(), denied.gate()), (Meaning::Refused, Some("privileges")));
        let changed = migration::Error::Changed { version: 1, applied: "a".into(), expected: "b".into() };
        assert_eq!(Error::from(changed).gate(), Some("migration-checksum"));
    }
}
