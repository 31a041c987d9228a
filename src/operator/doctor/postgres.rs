//! Postgres: the server, the login, the schema, the room for connections, its clock, and the journal keys that its rows need.

use super::super::{Desk, Limits, schema, workers};
use super::{Check, is_local};
use crate::clock::Clock;
use crate::config::{Config, Database};
use crate::store::facts::{self, Server};
use crate::store::login::{self, Login};
use crate::store::{self, workers as rows};
use chrono::{DateTime, TimeDelta, Utc};
use secrecy::ExposeSecret;

/// `server_version_num` of the oldest that is supported.
const VERSION_MIN: i32 = 160_000;
const SKEW_WARN: TimeDelta = TimeDelta::milliseconds(500);
const SKEW_MAX: TimeDelta = TimeDelta::seconds(5);

pub(super) async fn examine(config: &Config, clock: &dyn Clock) -> Vec<Check> {
    let Some(settings) = &config.database else { return Vec::new() };
    let desk = match Desk::open(settings, Limits::of(config)).await {
        Ok(desk) => desk,
        Err(error) => return vec![unreachable(&error.to_string())],
    };
    let checks = ask(&desk, config, settings, clock).await;
    desk.close().await;
    checks.unwrap_or_else(|error| vec![unreachable(&error.to_string())])
}

fn unreachable(detail: &str) -> Check {
    Check::fail("postgres", detail, "look at the server, and at the host, port, user and password of DATABASE_URL")
}

async fn ask(desk: &Desk, config: &Config, settings: &Database, clock: &dyn Clock) -> Result<Vec<Check>, store::Error> {
    let db = desk.reader();
    let server = facts::server(&db).await?;
    let before = clock.now();
    let login = login::facts(&db).await?;
    let mut checks = of_server(&server, is_local(settings.url.expose_secret()));
    checks.push(of_login(&login));
    checks.push(of_clock(before, login.now, clock.now()));
    let schema = schema::check(desk).await;
    checks.push(match &schema {
        Ok(schema) if schema.differences.is_empty() => {
            Check::ok("postgres.schema", format!("version {}, all checksums equal", schema.expected))
        }
        Ok(schema) => Check::fail("postgres.schema", schema.differences.join("; "), "holdfast db migrate"),
        Err(error) => Check::fail("postgres.schema", error.to_string(), "holdfast db migrate"),
    });
    if schema.is_ok_and(|schema| schema.differences.is_empty()) {
        let limits = Limits::of(config);
        let workers = rows::list(&db).await?;
        let live = workers.iter().filter(|worker| workers::is_live(worker, &limits));
        checks.push(of_pools(live.map(|worker| i64::from(worker.pool_size)).collect(), settings.pool_max, login.connections));
        checks.push(of_keys(config, &facts::needed_journal_keys(&db).await?));
    }
    Ok(checks)
}

fn of_server(server: &Server, local: bool) -> Vec<Check> {
    let (major, minor) = (server.version_num / 10_000, server.version_num % 10_000);
    let found = format!("PostgreSQL {major}.{minor}");
    let version = Check::that(server.version_num >= VERSION_MIN, "postgres.version", &found, "16 or newer is needed", "upgrade the server");
    let primary = if server.in_recovery {
        Check::fail("postgres.primary", "the server is a replica in recovery: it takes no writes", "point DATABASE_URL at the primary")
    } else {
        Check::ok("postgres.primary", "the server takes writes")
    };
    let tls = match (server.tls, local) {
        (true, _) => Check::ok("postgres.tls", "the connection is encrypted"),
        (false, true) => Check::ok("postgres.tls", "not encrypted; the server is on this machine"),
        (false, false) => Check::warn("postgres.tls", "the connection is not encrypted", "add ?sslmode=verify-full to DATABASE_URL"),
    };
    vec![version, primary, tls]
}

fn of_login(login: &Login) -> Check {
    let mut may = login.powers.clone();
    if login.owned > 0 {
        may.push(format!("ownership of {} tables, views or sequences", login.owned));
    }
    if login.memberships > 0 {
        may.push(format!("membership of {} roles", login.memberships));
    }
    if may.is_empty() {
        return Check::ok("postgres.login", format!("{} owns nothing and may create nothing", login.name));
    }
    let next = "run the service under a login that `holdfast db migrate` made; keep the owner for DATABASE_MIGRATION_URL";
    Check::fail("postgres.login", format!("{} has {}", login.name, may.join(", ")), next)
}

/// The server read its clock between two readings of ours.
fn of_clock(before: DateTime<Utc>, server: DateTime<Utc>, after: DateTime<Utc>) -> Check {
    let skew = (before - server).max(server - after).max(TimeDelta::zero());
    let detail = format!("the clocks of this machine and of Postgres differ by at least {} ms", skew.num_milliseconds());
    let next = "let both machines follow a time server (NTP)";
    match skew {
        skew if skew >= SKEW_MAX => Check::fail("postgres.clock", detail, next),
        skew if skew >= SKEW_WARN => Check::warn("postgres.clock", detail, next),
        _ => Check::ok("postgres.clock", "the clocks of this machine and of Postgres agree"),
    }
}

/// `live` holds the pool size of each live worker.
fn of_pools(live: Vec<i64>, ours: u32, connections: i32) -> Check {
    let sum: i64 = live.iter().sum();
    let detail = format!(
        "{} live workers may open {sum} connections, one more like this {ours}; the server gives {connections} to ordinary logins",
        live.len()
    );
    let next = "lower DB_POOL_MAX, run fewer processes, or raise max_connections";
    if sum > i64::from(connections) {
        Check::fail("postgres.connections", detail, next)
    } else if sum + i64::from(ours) > i64::from(connections) {
        Check::warn("postgres.connections", detail, next)
    } else {
        Check::ok("postgres.connections", detail)
    }
}

/// Open rows must stay readable: a missing key means that their bytes can never be sent again.
fn of_keys(config: &Config, needed: &[String]) -> Check {
    let name = "journal.keys";
    let Some(journal) = &config.journal else {
        let detail = format!("this configuration holds no journal keys; open transactions need {}", needed.len());
        return if needed.is_empty() || !config.service.role.may_hold_keys() {
            Check::ok(name, detail)
        } else {
            Check::warn(name, detail, "ask with the configuration of a process that signs")
        };
    };
    let missing: Vec<_> = needed.iter().filter(|id| !journal.keys.contains_key(*id)).map(String::as_str).collect();
    let next = "put the missing keys back into TX_JOURNAL_KEYS";
    if missing.is_empty() {
        Check::ok(name, format!("all {} keys that open transactions need are there; {} is active", needed.len(), journal.active))
    } else {
        Check::fail(name, format!("open transactions need keys that are not in TX_JOURNAL_KEYS: {}", missing.join(", ")), next)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    fn server() -> Server {
        Server {
            version_num: 180_006,
            in_recovery: false,
            schema: Some(1),
            may_create: false,
            max_connections: 100,
            tls: true,
            database: "holdfast".into(),
        }
    }

    fn status(checks: &[Check], name: &str) -> Status {
        checks.iter().find(|check| check.name == name).unwrap().status
    }

    #[test]
    fn an_old_server_a_replica_and_an_open_wire_are_told() {
        let sound = of_server(&server(), false);
        assert!(sound.iter().all(|check| check.status == Status::Ok), "{sound:?}");
        let bad = of_server(&Server { version_num: 150_004, in_recovery: true, tls: false, ..server() }, false);
        assert_eq!(status(&bad, "postgres.version"), Status::Fail);
        assert_eq!(status(&bad, "postgres.primary"), Status::Fail);
        assert_eq!(status(&bad, "postgres.tls"), Status::Warn);
        assert_eq!(status(&of_server(&Server { tls: false, ..server() }, true), "postgres.tls"), Status::Ok);
    }

    #[test]
    fn a_login_with_any_power_fails_and_its_powers_are_named() {
        let plain = Login { name: "app".into(), powers: vec![], owned: 0, memberships: 0, connections: 97, now: DateTime::UNIX_EPOCH };
        assert_eq!(of_login(&plain).status, Status::Ok);
        let owner = of_login(&Login { powers: vec!["SUPERUSER".into()], owned: 17, memberships: 1, ..plain });
        assert_eq!(owner.status, Status::Fail);
        assert_eq!(owner.detail, "app has SUPERUSER, ownership of 17 tables, views or sequences, membership of 1 roles");
    }

    #[test]
    fn the_time_of_the_answer_itself_is_no_skew() {
        let at = |ms: i64| DateTime::UNIX_EPOCH + TimeDelta::milliseconds(ms);
        assert_eq!(of_clock(at(0), at(300), at(2_000)).status, Status::Ok);
        assert_eq!(of_clock(at(0), at(-700), at(10)).status, Status::Warn);
        assert_eq!(of_clock(at(0), at(6_000), at(10)).status, Status::Fail);
    }

    #[test]
    fn the_sum_of_the_pools_must_fit_and_one_more_should() {
        assert_eq!(of_pools(vec![10, 10], 10, 97).status, Status::Ok);
        assert_eq!(of_pools(vec![45, 45], 10, 97).status, Status::Warn);
        assert_eq!(of_pools(vec![50, 50], 10, 97).status, Status::Fail);
    }
}
