//! Owns how Redis is reached and how deliveries are paced. Never connects. Read by `delivery` and the actors of the queue.

use super::fault::Problem;
use super::layers::{Layers, Overrides, Section};
use super::url;
use secrecy::{ExposeSecret, SecretString};
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Queue {
    pub url: SecretString,
    pub prefix: String,
    pub concurrency: usize,
    pub lock: Duration,
    pub reconcile: Duration,
    pub max_attempts: u32,
    pub outbox_poll: Duration,
}

impl Queue {
    /// The defaults, for a Redis at this URL.
    #[must_use]
    pub fn at(url: impl Into<String>) -> Self {
        let overrides = Overrides::default();
        Self::read(&Layers::new(None, &|_| None, &overrides).section("queue"), SecretString::from(url.into()))
    }

    pub(super) fn url(from: &Section<'_>) -> Option<SecretString> {
        let url = from.secret("url", "REDIS_URL")?;
        if url::has_host(url.expose_secret(), &["redis", "rediss"]) {
            return Some(url);
        }
        from.layers().fault(from.name_of("url", "REDIS_URL"), Problem::NotAUrl("redis:// or rediss://"));
        None
    }

    pub(super) fn read(from: &Section<'_>, url: SecretString) -> Self {
        Self {
            url,
            // Braces would choose a cluster slot, a colon would blur where the prefix ends.
            prefix: from.plain_name("prefix", "QUEUE_PREFIX", 64, "_.-").unwrap_or_default(),
            concurrency: from.size("concurrency", "QUEUE_CONCURRENCY", 1, 100_000),
            lock: from.seconds("lock_seconds", "QUEUE_LOCK_SECONDS", 5),
            reconcile: from.seconds("reconcile_seconds", "QUEUE_RECONCILE_SECONDS", 1),
            max_attempts: from.integer_u32("max_attempts", "JOB_MAX_ATTEMPTS", 1, 10_000),
            outbox_poll: from.millis("outbox_poll_ms", "OUTBOX_POLL_MILLISECONDS", 1),
        }
    }
}
