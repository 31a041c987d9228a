//! Redis: its version, that it never evicts, and whether it keeps what it has.

use super::{Check, is_local};
use crate::config::{Config, Queue};
use crate::delivery::{Delivery, Facts};
use secrecy::ExposeSecret;

pub(super) async fn examine(config: &Config) -> Vec<Check> {
    let Some(settings) = &config.queue else { return Vec::new() };
    let asked = async { Delivery::connect(settings, &config.service.instance_id)?.check().await };
    match asked.await {
        Ok(facts) => of_facts(&facts, settings),
        Err(error) => vec![Check::fail("redis", error.to_string(), "look at the server, and at the host, port and password of REDIS_URL")],
    }
}

fn of_facts(facts: &Facts, settings: &Queue) -> Vec<Check> {
    let (major, minor, patch) = facts.version;
    let policy = facts.eviction_policy.as_deref().unwrap_or("unknown");
    let (version, policy) = (format!("Redis {major}.{minor}.{patch}"), format!("maxmemory-policy is {policy}"));
    let alone = "set maxmemory-policy noeviction, and share this Redis with no cache";
    let mut checks = vec![
        Check::that(facts.is_supported(), "redis.version", &version, "7 or newer is needed", "upgrade the server"),
        Check::that(facts.never_evicts(), "redis.eviction", &policy, "any other than noeviction may drop deliveries", alone),
    ];
    if facts.is_primary == Some(false) {
        checks.push(Check::fail("redis.primary", "the server is a replica: it takes no writes", "point REDIS_URL at the primary"));
    }
    // Losing it costs latency and no job, so this is advice only.
    if facts.append_only == Some(false) && facts.snapshots == Some(false) {
        checks.push(Check::warn(
            "redis.persistence",
            "neither append-only file nor snapshots: a restart republishes every delivery",
            "set appendonly yes",
        ));
    }
    let url = settings.url.expose_secret();
    if !url.to_ascii_lowercase().starts_with("rediss://") && !is_local(url) {
        checks.push(Check::warn("redis.tls", "the connection is not encrypted", "use rediss:// in REDIS_URL"));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn an_evicting_or_old_redis_fails_and_a_forgetful_one_is_a_warning() {
        let good = Facts { version: (7, 2, 4), eviction_policy: Some("noeviction".into()), append_only: Some(true), ..Facts::default() };
        let here = Queue::at("redis://127.0.0.1:6379");
        assert!(of_facts(&good, &here).iter().all(|check| check.status == Status::Ok));
        let bad = Facts {
            version: (6, 2, 0),
            eviction_policy: Some("allkeys-lru".into()),
            append_only: Some(false),
            snapshots: Some(false),
            ..Facts::default()
        };
        let told: Vec<_> =
            of_facts(&bad, &Queue::at("redis://cache.example.org")).into_iter().map(|check| (check.name, check.status)).collect();
        let expected = [
            ("redis.version", Status::Fail),
            ("redis.eviction", Status::Fail),
            ("redis.persistence", Status::Warn),
            ("redis.tls", Status::Warn),
        ];
        assert_eq!(told, expected.map(|(name, status)| (name.to_owned(), status)));
    }
}
