//! The Postgres and Redis that all tests of a process share, started once; a Redis of a test's own; databases cloned from a
//! template that was migrated once.

use super::process::{Process, free_port, remove_at_the_end};
use super::wait::eventually;
use holdfast::local::{Options, Part, Parts, RUNTIME_LOGIN, Running};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use secrecy::{ExposeSecret, SecretString};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The program under test.
pub const HOLDFAST: &str = env!("CARGO_BIN_EXE_holdfast");
const TEMPLATE: &str = "holdfast_template";

static SERIAL: AtomicU32 = AtomicU32::new(0);

/// A number that no one else in this process has.
pub fn serial() -> u32 {
    SERIAL.fetch_add(1, Ordering::Relaxed)
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("holdfast-{name}-{}", std::process::id()))
}

pub fn programs(dir: &Path, needs_evm: bool) -> Parts {
    Parts::find(None, dir, needs_evm).expect("`make tools` fetches the parts")
}

/// Postgres and Redis, with a migrated template.
pub struct Servers {
    running: Running,
    dir: PathBuf,
}

/// A database of a test's own.
#[derive(Clone, Debug)]
pub struct Database {
    pub name: String,
    pub owner: SecretString,
    /// What the service logs in as.
    pub runtime: SecretString,
}

fn with_database(url: &SecretString, name: &str) -> SecretString {
    let url = url.expose_secret();
    let (front, _) = url.rsplit_once('/').expect("a URL with a database");
    SecretString::from(format!("{front}/{name}"))
}

async fn owner_says(url: &SecretString, sql: String) {
    let mut owner = PgConnection::connect(url.expose_secret()).await.expect("the owner logs in");
    sqlx::query(AssertSqlSafe(sql.clone())).execute(&mut owner).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let _ = owner.close().await;
}

impl Servers {
    async fn start(dir: PathBuf) -> Self {
        let _ = std::fs::remove_dir_all(&dir);
        remove_at_the_end(&dir);
        let mut options = Options::new(&dir, programs(&dir, false));
        options.fsync = false;
        options.guard_program = Some(HOLDFAST.into());
        let running = Running::start(options, |_| {}).await.expect("the local parts start");
        let template = with_database(&running.owner_url, TEMPLATE);
        owner_says(&running.owner_url, format!("CREATE DATABASE {TEMPLATE}")).await;
        let login = migration::Login { role: "runtime", name: RUNTIME_LOGIN, password: running.runtime_password.expose_secret() };
        let owner = sea_orm::Database::connect(template.expose_secret()).await.expect("the owner logs in");
        migration::migrate(&owner, &[login]).await.expect("the template is migrated");
        owner.close().await.expect("closed");
        Self { running, dir }
    }

    /// Servers that a test may stop.
    pub async fn of_their_own() -> Self {
        Self::start(scratch(&format!("own-{}", serial()))).await
    }

    pub fn redis_url(&self) -> String {
        self.running.redis_url.expose_secret().to_owned()
    }

    pub fn runtime_password(&self) -> &str {
        self.running.runtime_password.expose_secret()
    }

    /// An empty database beside those of the worlds.
    pub async fn empty_database(&self) -> Database {
        self.create("").await
    }

    pub async fn database(&self) -> Database {
        self.create(&format!("TEMPLATE {TEMPLATE}")).await
    }

    async fn create(&self, like: &str) -> Database {
        let name = format!("world_{}", serial());
        owner_says(&self.running.owner_url, format!("CREATE DATABASE {name} {like}")).await;
        Database { owner: with_database(&self.running.owner_url, &name), runtime: with_database(&self.running.database_url, &name), name }
    }

    pub async fn drop_database(&self, database: &Database) {
        owner_says(&self.running.owner_url, format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", database.name)).await;
    }

    /// The owner of everything, on the database that is always there.
    pub fn owner_url(&self) -> &SecretString {
        &self.running.owner_url
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What the Postgres of these servers has logged.
    pub fn postgres_log(&self) -> String {
        std::fs::read_to_string(self.dir.join("postgres.log")).unwrap_or_default()
    }

    /// The postmaster's pid now: its guard starts it again when it ends.
    pub fn postgres_pid(&self) -> Pid {
        let text = std::fs::read_to_string(self.dir.join("postgres/postmaster.pid")).unwrap_or_default();
        let first = self.running.pids.iter().find(|(part, _)| *part == Part::Postgres).expect("it was started").1;
        let pid = text.lines().next().and_then(|line| line.trim().parse().ok()).unwrap_or(first);
        Pid::from_raw(i32::try_from(pid).unwrap())
    }

    /// A server that loses power: its guard starts it again.
    pub fn crash_postgres(&self) {
        // SIGQUIT is the immediate stop: no checkpoint, all sessions cut, recovery at the next start.
        kill(self.postgres_pid(), Signal::SIGQUIT).expect("Postgres runs");
    }

    pub async fn stop(self) {
        let dir = self.dir;
        self.running.stop().await.expect("the local parts stop");
        let _ = std::fs::remove_dir_all(dir);
    }
}

/// The runtime that the shared servers' watcher lives on: those of the tests end with their test.
static KEEPER: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime"));

static SHARED: LazyLock<Servers> =
    LazyLock::new(|| std::thread::spawn(|| KEEPER.block_on(Servers::start(scratch("tests")))).join().expect("the shared servers start"));

/// The servers of this test process. They stop when the process ends.
pub fn shared() -> &'static Servers {
    &SHARED
}

/// A part of the shared Redis that nobody else uses.
pub fn redis_url_and_prefix() -> (String, String) {
    (shared().redis_url(), format!("t{}-{}", std::process::id(), serial()))
}

/// A Redis that a test may stop, freeze and fill.
pub struct OwnRedis {
    port: u16,
    arguments: Vec<String>,
    process: Process,
}

fn spawn_redis(port: u16, arguments: &[String]) -> Process {
    let program = programs(&std::env::temp_dir(), false).redis;
    let port = port.to_string();
    let fixed = ["--port", &port, "--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--dir", "/"];
    Process::spawn("redis", program, fixed.into_iter().chain(arguments.iter().map(String::as_str)), &BTreeMap::new())
}

impl OwnRedis {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub async fn start_with(arguments: &[&str]) -> Self {
        let port = free_port();
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let redis = Self { port, process: spawn_redis(port, &arguments), arguments };
        redis.ready().await;
        redis
    }

    async fn ready(&self) {
        eventually("Redis takes connections", Duration::from_secs(10), async || {
            tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_ok()
        })
        .await;
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// At once, with all it held.
    pub async fn stop(&mut self) {
        self.process.kill9();
    }

    pub async fn start_again(&mut self) {
        self.process = spawn_redis(self.port, &self.arguments);
        self.ready().await;
    }

    pub fn freeze(&self) {
        self.process.freeze();
    }

    pub fn thaw(&self) {
        self.process.thaw();
    }
}
