//! Owns a standby of a test's Postgres: the same data by streaming replication, each commit acknowledged by both, until it is promoted.

use super::parts::Servers;
use super::process::{Process, free_port};
use super::wait::eventually;
use secrecy::{ExposeSecret, SecretString};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection, Row};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

pub struct Standby {
    pub process: Process,
    pub address: SocketAddr,
    owner: PgConnectOptions,
}

async fn says(to: &PgConnectOptions, sql: &str) -> Vec<String> {
    let mut connection = PgConnection::connect_with(to).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let rows = sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_all(&mut connection).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let _ = connection.close().await;
    rows.iter().filter_map(|row| row.try_get::<String, _>(0).ok()).collect()
}

impl Standby {
    /// Copies the primary, follows it, and has it wait for this standby with every commit.
    pub async fn of(servers: &Servers) -> Self {
        let owner: PgConnectOptions = servers.owner_url().expose_secret().parse().expect("a URL");
        let password =
            servers.owner_url().expose_secret().split(':').nth(2).and_then(|rest| rest.split('@').next()).expect("a password").to_owned();
        let data = servers.dir().join("standby");
        fs::create_dir(&data).expect("a folder");
        let of = fs::metadata(servers.dir().join("postgres")).expect("the primary's data");
        chown(&data, Some(of.uid()), Some(of.gid())).expect("the same owner");
        fs::set_permissions(&data, Permissions::from_mode(0o700)).expect("private");
        // Where the running server came from: root may not run it, and its user reaches those programs.
        let bin = fs::read_link(format!("/proc/{}/exe", servers.postgres_pid()))
            .expect("the primary runs")
            .parent()
            .expect("a folder")
            .to_owned();
        let spawn = |name: &str, arguments: Vec<String>| {
            let environment = BTreeMap::from([("PGPASSWORD".to_owned(), password.clone())]);
            let program = bin.join(name).display().to_string();
            let own = nix::unistd::geteuid().as_raw() == of.uid();
            let prefix = [format!("--reuid={}", of.uid()), format!("--regid={}", of.gid()), "--clear-groups".to_owned(), program.clone()];
            let all: Vec<String> = if own { arguments } else { prefix.into_iter().chain(arguments).collect() };
            Process::spawn(name, if own { PathBuf::from(program) } else { "setpriv".into() }, all, &environment)
        };
        let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let (from, to) = (owner.get_port().to_string(), data.display().to_string());
        let copy = ["-h", "127.0.0.1", "-p", &from, "-U", owner.get_username(), "-D", &to, "-X", "stream", "-R", "-c", "fast"];
        let copied = spawn("pg_basebackup", text(&copy));
        assert_eq!(copied.exit(SOON).await, 0, "{}", copied.tail());
        let port = free_port();
        let listen = format!("port={port}");
        // Not as the copying program wrote it: the server may have been linked with an older client library.
        let follow = format!("primary_conninfo=host=127.0.0.1 port={from} user={} password={password}", owner.get_username());
        let options = [
            "-D",
            &to,
            "-c",
            &follow,
            "-c",
            &listen,
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "unix_socket_directories=",
            "-c",
            "fsync=off",
            "-c",
            "timezone=UTC",
        ];
        let process = spawn("postgres", text(&options));
        says(&owner, "ALTER SYSTEM SET synchronous_standby_names = '*'").await;
        says(&owner, "SELECT pg_reload_conf()::text").await;
        eventually("the standby follows", SOON, async || {
            assert!(process.is_alive(), "{}", process.tail());
            says(&owner, "SELECT sync_state FROM pg_stat_replication").await == ["sync"]
        })
        .await;
        Self { process, address: SocketAddr::from(([127, 0, 0, 1], port)), owner: owner.port(port) }
    }

    /// From now on it takes writes.
    pub async fn promote(&self) {
        assert_eq!(says(&self.owner, "SELECT pg_promote()::text").await, ["true"]);
    }

    /// The same database there.
    pub fn url(&self, on_primary: &SecretString) -> SecretString {
        let url = on_primary.expose_secret();
        let (front, name) = url.rsplit_once('/').expect("a URL with a database");
        let (login, _) = front.rsplit_once('@').expect("a URL with a login");
        SecretString::from(format!("{login}@{}/{name}", self.address))
    }
}
