//! Looks at everything that the service depends on, and says what is not as it should be and what to do about it.
//! Changes nothing. What cannot be looked at because something before it failed is left out, not guessed.

mod chains;
mod postgres;
mod redis_server;

use crate::clock::Clock;
use crate::config::{Config, Faults};
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Fail,
    Warn,
    Ok,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    pub name: String,
    pub status: Status,
    pub detail: String,
    pub next: Option<String>,
}

impl Check {
    fn ok(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { name: name.into(), status: Status::Ok, detail: detail.into(), next: None }
    }

    fn warn(name: impl Into<String>, detail: impl Into<String>, next: impl Into<String>) -> Self {
        Self { name: name.into(), status: Status::Warn, detail: detail.into(), next: Some(next.into()) }
    }

    fn fail(name: impl Into<String>, detail: impl Into<String>, next: impl Into<String>) -> Self {
        Self { name: name.into(), status: Status::Fail, detail: detail.into(), next: Some(next.into()) }
    }

    /// `ok` where the condition holds; otherwise what was found is not what is needed.
    fn that(holds: bool, name: &str, found: &str, needed: &str, next: &str) -> Self {
        if holds { Self::ok(name, found) } else { Self::fail(name, format!("{found}; {needed}"), next) }
    }
}

/// What a configuration with faults comes to: nothing else can be looked at.
#[must_use]
pub fn of_faults(faults: &Faults) -> Vec<Check> {
    faults.0.iter().map(|fault| Check::fail("configuration", fault.to_string(), format!("set {} right", fault.name))).collect()
}

/// Every check, the failed ones first. The parts are asked at the same time.
pub async fn examine(config: &Config, clock: &dyn Clock) -> Vec<Check> {
    let mut checks = configuration(config);
    let (postgres, redis, chains) =
        futures::join!(postgres::examine(config, clock), redis_server::examine(config), chains::examine(config));
    checks.extend(postgres.into_iter().chain(redis).chain(chains));
    checks.sort_by_key(|check| check.status);
    checks
}

fn configuration(config: &Config) -> Vec<Check> {
    let mut checks = match config.check_service() {
        Ok(()) => vec![Check::ok("configuration", format!("role {} has what it needs", config.service.role))],
        Err(faults) => of_faults(&faults),
    };
    if config.operator_id.is_none() {
        checks.push(Check::warn(
            "configuration.operator",
            "OPERATOR_ID is not set: commands that change something will refuse",
            "set OPERATOR_ID to your name",
        ));
    }
    checks.extend(config.warnings.iter().map(|warning| {
        let next = format!("look at {}", warning.name);
        Check::warn("configuration", warning.to_string(), next)
    }));
    checks
}

/// Whether the text after `://` and before the path names this machine, so that the wire is no wire.
fn is_local(url: &str) -> bool {
    crate::config::url::host(url).is_some_and(|host| host == "localhost" || host.starts_with("127.") || host == "::1" || host == "[::1]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_of_the_configuration_is_a_failed_check() {
        let env = |name: &str| (name == "REDIS_URL" || name == "DB_POOL_MAX").then(|| "x".to_owned());
        let faults = Config::load(None, &env, &crate::config::Overrides::default()).unwrap_err();
        let checks = of_faults(&faults);
        assert!(checks.len() >= 2, "{checks:?}");
        assert!(checks.iter().all(|check| check.status == Status::Fail && check.next.is_some()));
    }

    #[test]
    fn without_infrastructure_the_configuration_fails_and_nothing_else_is_guessed() {
        let config = Config::load(None, &|_| None, &crate::config::Overrides::default()).unwrap();
        let checks = futures::executor::block_on(examine(&config, &crate::clock::SystemClock));
        let failed: Vec<_> = checks.iter().filter(|check| check.status == Status::Fail).map(|check| check.detail.as_str()).collect();
        assert_eq!(failed.len(), 3, "{failed:?}");
        assert!(checks.iter().all(|check| check.name.starts_with("configuration")), "{checks:?}");
    }

    #[test]
    fn a_url_of_this_machine_needs_no_tls() {
        assert!(is_local("postgres://a:b@localhost:5432/x") && is_local("redis://127.0.0.1") && is_local("http://[::1]:8545"));
        assert!(!is_local("postgres://db.example.org/x") && !is_local("nonsense"));
    }
}
