//! Owns how Postgres is reached and how patient the pool is. Never connects. Read by `store`.

use super::fault::Problem;
use super::layers::{Layers, Overrides, Section, integer_from};
use super::url;
use secrecy::{ExposeSecret, SecretString};
use std::time::Duration;

/// More is a mistake: no Postgres serves as many.
const POOL_LIMIT: u64 = 10_000;

/// Whether a connection belongs to one client for its whole life, or for one transaction behind a pooler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMode {
    Session,
    Transaction,
}

#[derive(Clone, Debug)]
pub struct Database {
    pub url: SecretString,
    pub pool_min: u32,
    pub pool_max: u32,
    pub connection_timeout: Duration,
    pub idle_timeout: Duration,
    pub queue_limit: usize,
    /// ZERO leaves it to the server.
    pub statement_timeout: Duration,
    /// A statement that takes this long is logged; ZERO logs none.
    pub slow_statement: Duration,
    pub pool_mode: PoolMode,
}

impl Database {
    /// The defaults, for a database at this URL.
    #[must_use]
    pub fn at(url: impl Into<String>) -> Self {
        let overrides = Overrides::default();
        Self::read(&Layers::new(None, &|_| None, &overrides).section("database"), SecretString::from(url.into()))
    }

    pub(super) fn url(from: &Section<'_>, key: &str, name: &str) -> Option<SecretString> {
        let url = from.secret(key, name)?;
        if url::has_host(url.expose_secret(), &["postgres", "postgresql"]) {
            return Some(url);
        }
        from.layers().fault(from.name_of(key, name), Problem::NotAUrl("postgres:// or postgresql://"));
        None
    }

    pub(super) fn read(from: &Section<'_>, url: SecretString) -> Self {
        let pool_min = from.sound_integer("pool_min", "DB_POOL_MIN", 0, POOL_LIMIT);
        let pool_max = pool_max(from);
        if pool_max.is_some_and(|max| pool_min.is_some_and(|min| min > max)) {
            from.layers().fault(from.name_of("pool_min", "DB_POOL_MIN"), Problem::Above("DB_POOL_MAX"));
        }
        let connections = |number: Option<u64>| number.and_then(|number| u32::try_from(number).ok()).unwrap_or(1);
        Self {
            url,
            pool_min: connections(pool_min),
            pool_max: connections(pool_max),
            connection_timeout: from.millis("connection_timeout_ms", "DB_CONNECTION_TIMEOUT", 1),
            idle_timeout: from.millis("idle_timeout_ms", "DB_IDLE_TIMEOUT", 0),
            queue_limit: from.size("queue_limit", "POOL_QUEUE_LIMIT", 0, 1_000_000),
            statement_timeout: from.millis("statement_timeout_ms", "STATEMENT_TIMEOUT_MS", 0),
            slow_statement: from.millis("slow_statement_ms", "SLOW_STATEMENT_MS", 0),
            pool_mode: from.word(
                "pool_mode",
                "POOL_MODE",
                &[("session", PoolMode::Session), ("transaction", PoolMode::Transaction)],
                PoolMode::Session,
            ),
        }
    }
}

/// DATABASE_POOL_SIZE is an older name of DB_POOL_MAX; the two may only agree. None after a fault.
fn pool_max(from: &Section<'_>) -> Option<u64> {
    let max = from.sound_integer("pool_max", "DB_POOL_MAX", 1, POOL_LIMIT);
    let Some(alias) = from.layers().outside("DATABASE_POOL_SIZE") else { return max };
    let Some(alias) = integer_from(&alias).filter(|number| (1..=POOL_LIMIT).contains(number)) else {
        from.layers().fault("DATABASE_POOL_SIZE", Problem::NotAnInteger { min: 1, max: POOL_LIMIT });
        return None;
    };
    if from.layers().outside("DB_POOL_MAX").is_some() && max.is_some_and(|max| max != alias) {
        from.layers().fault("DATABASE_POOL_SIZE", Problem::AliasDiffers("DB_POOL_MAX"));
    }
    Some(alias)
}
