//! The pool of connections, row by row: who waits, who is refused, what the gauges and the log say. One thread each, so that what is
//! counted and logged is of this test alone.

use crate::support::anvil::Mining;
use crate::support::parts::{self, Database};
use crate::support::wait::eventually;
use crate::support::world::{SOON, Setup, World};
use chrono::DateTime;
use entity::values::Hash;
use holdfast::clock::SystemClock;
use holdfast::config::{self, LogFormat};
use holdfast::store::{self, Db, Tx, facts, keys};
use holdfast::telemetry::logs::{Identity, Lines};
use holdfast::telemetry::metrics as ours;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use secrecy::ExposeSecret;
use serde_json::Value;
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Row};
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tracing_subscriber::layer::SubscriberExt;

const QUICKLY: Duration = Duration::from_secs(10);

/// A pool of the program, and the server as its owner sees it.
struct Place {
    db: Db,
    owner: PgPool,
    database: Database,
}

type Checksums = JoinHandle<Result<Vec<(i32, String)>, store::Error>>;

impl Place {
    /// A pool without a connection that is kept open, changed.
    async fn with(change: impl FnOnce(&mut config::Database)) -> Self {
        let database = parts::shared().database().await;
        let mut settings = config::Database { pool_min: 0, ..config::Database::at(database.runtime.expose_secret()) };
        change(&mut settings);
        let db = Db::connect(&settings).await.expect("the runtime login");
        let owner = PgPoolOptions::new().max_connections(3).connect(database.owner.expose_secret()).await.expect("the owner");
        Self { db, owner, database }
    }

    /// Keeps everyone else from a table for as long as it lives.
    async fn lock(&self, table: &str) -> sqlx::Transaction<'static, sqlx::Postgres> {
        let mut held = self.owner.begin().await.expect("a transaction");
        let sql = format!("LOCK TABLE holdfast.{table} IN ACCESS EXCLUSIVE MODE");
        sqlx::query(AssertSqlSafe(sql)).execute(&mut *held).await.expect("the lock");
        held
    }

    /// A statement that waits while `schema_migrations` is locked.
    fn ask(&self) -> Checksums {
        let reader = self.db.reader();
        tokio::spawn(async move { facts::checksums(&reader).await })
    }

    /// The sessions of the pool, as the server sees them, of which this holds.
    async fn sessions(&self, of_which: &str) -> usize {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'holdfast' AND {of_which}"
        );
        let row = sqlx::query(AssertSqlSafe(sql)).fetch_one(&self.owner).await.expect("a count");
        usize::try_from(row.get::<i64, _>(0)).expect("a number")
    }

    async fn until_sessions(&self, count: usize, of_which: &str) {
        eventually(&format!("{count} sessions: {of_which}"), QUICKLY, async || self.sessions(of_which).await == count).await;
    }

    async fn transactions(&self, count: usize) -> Vec<Tx> {
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(self.db.begin().await.expect("a transaction"));
        }
        all
    }

    async fn end(self) {
        self.db.close().await;
        self.owner.close().await;
        parts::shared().drop_database(&self.database).await;
    }
}

const BLOCKED: &str = "wait_event_type = 'Lock'";
const ALL: &str = "true";

fn recorder() -> PrometheusRecorder {
    PrometheusBuilder::new().build_recorder()
}

/// A figure of this test's own recorder.
fn figure(handle: &PrometheusHandle, name: &str) -> usize {
    let text = handle.render();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<f64>().ok());
    value.map_or(0, |value| value as usize)
}

/// Active, idle, waiting.
fn gauges(handle: &PrometheusHandle) -> (usize, usize, usize) {
    let figure = |name| figure(handle, name);
    (figure("db_pool_active_connections"), figure("db_pool_idle_connections"), figure("db_pool_waiting_requests"))
}

/// The log of this test alone, as the program writes it.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn start(&self) -> tracing::subscriber::DefaultGuard {
        let identity = Identity { role: "test".into(), instance: "one".into() };
        let lines = Lines::new(LogFormat::Json, identity, SystemClock, self.clone());
        tracing::subscriber::set_default(tracing_subscriber::Registry::default().with(lines))
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).expect("text")
    }

    fn events(&self, name: &str) -> Vec<Value> {
        let text = self.text();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is JSON"));
        lines.filter(|line| line["event"] == name).collect()
    }
}

#[tokio::test]
async fn pgp_04_waiting_for_a_connection_ends_with_an_error_of_its_own() {
    let (recorder, patience) = (recorder(), Duration::from_millis(300));
    let handle = recorder.handle();
    let _recorded = metrics::set_default_local_recorder(&recorder);
    let place = Place::with(|settings| {
        settings.pool_max = 1;
        settings.connection_timeout = patience;
    })
    .await;
    let busy = place.transactions(1).await;
    let since = Instant::now();
    let answer = facts::checksums(&place.db.reader()).await;
    let waited = since.elapsed();
    assert!(matches!(answer, Err(store::Error::NoConnection)), "{answer:?}");
    assert!(answer.unwrap_err().to_string().contains("DB_CONNECTION_TIMEOUT"));
    assert!(waited >= patience && waited < Duration::from_secs(5), "{waited:?}");
    assert_eq!((place.db.waiting(), figure(&handle, "db_pool_exhausted_total")), (0, 0), "it waited and was not refused");
    drop(busy);
    facts::checksums(&place.db.reader()).await.expect("served once there is room");
    place.end().await;
}

#[tokio::test]
async fn pgp_05_connections_that_nobody_uses_close_down_to_the_minimum() {
    let place = Place::with(|settings| {
        settings.pool_min = 1;
        settings.pool_max = 4;
        settings.idle_timeout = Duration::from_millis(300);
    })
    .await;
    let busy = place.transactions(4).await;
    assert_eq!((place.db.connections(), place.sessions(ALL).await), ((4, 0), 4));
    drop(busy);
    place.until_sessions(1, ALL).await;
    eventually("the pool knows it", QUICKLY, async || place.db.connections() == (1, 1)).await;
    place.end().await;
}

#[tokio::test]
async fn pgp_10_a_full_pool_refuses_nobody_for_being_full() {
    let (recorder, log) = (recorder(), Log::default());
    let handle = recorder.handle();
    let (_recorded, _logged) = (metrics::set_default_local_recorder(&recorder), log.start());
    let place = Place::with(|settings| {
        settings.pool_max = 2;
        settings.queue_limit = 1;
    })
    .await;
    let mut busy = place.transactions(2).await;
    assert_eq!(gauges(&handle), (2, 0, 0), "full, and nobody waits");
    let one_more = place.ask();
    eventually("it waits", QUICKLY, async || place.db.waiting() == 1).await;
    busy.pop();
    one_more.await.expect("a task").expect("served once there is room");
    assert_eq!((figure(&handle, "db_pool_exhausted_total"), log.events("pool_exhausted").len()), (0, 0));
    drop(busy);
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pgp_10_a_process_whose_connections_are_all_at_work_is_ready() {
    const MAX: usize = 4;
    // Nothing else of the process asks Postgres for a while, but for the look that readiness takes every two seconds.
    let quiet = Setup { mining: Mining::OnDemand, ..Setup::default() };
    let quiet = quiet.with("DB_POOL_MAX", MAX).with("OUTBOX_POLL_MILLISECONDS", 60_000).with("QUEUE_RECONCILE_SECONDS", 60);
    let world = World::with(quiet).await;
    let engine = world.engine().await;
    let job = world.accept(&engine, &world.record()).await;
    let looked = async || world.metric(&engine, "holdfast_task_liveness_timestamp_seconds", &["\"gauges\""]).await;
    let before = looked().await;
    eventually("a look has just ended", SOON, async || looked().await > before).await;
    let mut lock = world.pool.begin().await.expect("a transaction");
    sqlx::query("LOCK TABLE holdfast.workers IN ACCESS EXCLUSIVE MODE").execute(&mut *lock).await.expect("the lock");
    let explain = || {
        let url = format!("{}/admin/v1/jobs/{job}", engine.admin);
        tokio::spawn(world.client.get(url).bearer_auth(&world.admin_token).send())
    };
    let asked: Vec<_> = (0..MAX).map(|_| explain()).collect();
    let figure = async |name: &str| world.metric(&engine, name, &[]).await as usize;
    eventually("every connection is at work and nobody waits", SOON, async || {
        (figure("db_pool_active_connections").await, figure("db_pool_waiting_requests").await) == (MAX, 0)
    })
    .await;
    assert!(world.is_ready(&engine).await);
    assert_eq!(figure("db_pool_exhausted_total").await, 0);
    lock.rollback().await.expect("released");
    for one in asked {
        assert_eq!(one.await.expect("a task").expect("an answer").status(), 200);
    }
    assert!(!engine.log.has("pool_exhausted"), "{}", engine.tail());
    world.finish_open().await;
}

#[tokio::test]
async fn pgp_11_pgp_15_each_refusal_is_one_warning_with_its_figures_and_one_count() {
    let (recorder, log) = (recorder(), Log::default());
    let handle = recorder.handle();
    let (_recorded, _logged) = (metrics::set_default_local_recorder(&recorder), log.start());
    let place = Place::with(|settings| {
        settings.pool_max = 2;
        settings.queue_limit = 3;
    })
    .await;
    let busy = place.transactions(2).await;
    let waiting: Vec<Checksums> = (0..3).map(|_| place.ask()).collect();
    eventually("three wait", QUICKLY, async || place.db.waiting() == 3).await;
    for refused in 1..=4 {
        let answer = facts::checksums(&place.db.reader()).await;
        assert!(matches!(answer, Err(store::Error::PoolExhausted { waiting: 3 })), "{answer:?}");
        assert_eq!((figure(&handle, "db_pool_exhausted_total"), log.events("pool_exhausted").len()), (refused, refused));
        assert_eq!(gauges(&handle), (2, 0, 3), "one that is refused never waits");
    }
    for line in log.events("pool_exhausted") {
        let timestamp = line["timestamp"].as_str().expect("a timestamp");
        DateTime::parse_from_rfc3339(timestamp).unwrap_or_else(|error| panic!("{timestamp}: {error}"));
        assert_eq!((&line["level"], &line["message"]), (&Value::from("warn"), &Value::from("Postgres pool exhausted")), "{line}");
        let figures = ["total", "idle", "waiting", "queueLimit"].map(|name| line[name].as_u64());
        assert_eq!(figures, [Some(2), Some(0), Some(3), Some(3)], "{line}");
    }
    drop(busy);
    for one in waiting {
        one.await.expect("a task").expect("served once there is room");
    }
    assert_eq!(figure(&handle, "db_pool_exhausted_total"), 4);
    place.end().await;
}

#[tokio::test]
async fn pgp_12_pgp_13_pgp_14_the_gauges_are_what_the_server_sees() {
    let recorder = recorder();
    let handle = recorder.handle();
    let _recorded = metrics::set_default_local_recorder(&recorder);
    let place = Place::with(|settings| settings.pool_max = 3).await;
    // All connections have been made before, so that there are idle ones.
    drop(place.transactions(3).await);
    place.until_sessions(3, "state = 'idle'").await;
    assert_eq!(gauges(&handle), (0, 3, 0));
    let lock = place.lock("schema_migrations").await;
    let mut asked = Vec::new();
    for at_work in 1..=3 {
        asked.push(place.ask());
        place.until_sessions(at_work, BLOCKED).await;
        assert_eq!((place.sessions("state = 'active'").await, place.sessions("state = 'idle'").await), (at_work, 3 - at_work));
        assert_eq!(gauges(&handle), (at_work, 3 - at_work, 0));
    }
    for waiting in 1..=2 {
        asked.push(place.ask());
        eventually("it waits", QUICKLY, async || place.db.waiting() == waiting).await;
        assert_eq!(gauges(&handle), (3, 0, waiting));
    }
    lock.rollback().await.expect("released");
    for one in asked {
        one.await.expect("a task").expect("an answer");
    }
    assert_eq!(gauges(&handle), (0, 3, 0));
    place.end().await;
}

#[tokio::test]
async fn pgp_16_the_gauges_follow_a_connection_from_its_making_to_its_removal_without_a_timer() {
    let recorder = recorder();
    let handle = recorder.handle();
    let _recorded = metrics::set_default_local_recorder(&recorder);
    let place = Place::with(|settings| {
        settings.pool_max = 2;
        settings.idle_timeout = Duration::from_millis(500);
    })
    .await;
    // As `app` has it done before each answer of /metrics.
    let watched = place.db.clone();
    ours::before_reading(move || watched.tell_connections());
    let first = place.transactions(1).await;
    assert_eq!(gauges(&handle), (1, 0, 0), "made and taken");
    let second = place.transactions(1).await;
    assert_eq!(gauges(&handle), (2, 0, 0));
    drop(first);
    assert_eq!(gauges(&handle), (1, 1, 0), "given back");
    drop(second);
    assert_eq!(gauges(&handle), (0, 2, 0));
    place.until_sessions(0, ALL).await;
    eventually("removed", QUICKLY, async || {
        let _ = ours::read(&handle);
        gauges(&handle) == (0, 0, 0)
    })
    .await;
    place.end().await;
}

#[tokio::test]
async fn pgp_18_taking_a_connection_moves_the_gauges_at_once() {
    let recorder = recorder();
    let handle = recorder.handle();
    let _recorded = metrics::set_default_local_recorder(&recorder);
    let place = Place::with(|settings| settings.pool_max = 3).await;
    drop(place.transactions(3).await);
    let mut taken = Vec::new();
    for count in 1..=3 {
        taken.extend(place.transactions(1).await);
        assert_eq!(gauges(&handle), (count, 3 - count, 0));
    }
    drop(taken);
    place.end().await;
}

#[tokio::test]
async fn pgp_23_a_slow_statement_is_told_by_its_name_and_never_with_its_values() {
    const LIMIT: Duration = Duration::from_millis(200);
    let log = Log::default();
    let _logged = log.start();
    for (limit, told) in [(LIMIT, 1), (Duration::ZERO, 0)] {
        let place = Place::with(|settings| {
            settings.pool_max = 1;
            settings.slow_statement = limit;
        })
        .await;
        facts::checksums(&place.db.reader()).await.expect("an answer");
        let before = log.events("slow_statement").len();
        let lock = place.lock("api_keys").await;
        let db = place.db.clone();
        let slow = tokio::spawn(async move { keys::create(&db, "canary00", "canary-project", Hash([0xca; 32])).await });
        place.until_sessions(1, BLOCKED).await;
        // Slow only because it waits for the one connection.
        let behind = place.ask();
        eventually("it waits", QUICKLY, async || place.db.waiting() == 1).await;
        let over = format!("{BLOCKED} AND clock_timestamp() - query_start > {} * interval '1 ms'", LIMIT.as_millis() + 50);
        place.until_sessions(1, &over).await;
        lock.rollback().await.expect("released");
        slow.await.expect("a task").expect("made");
        behind.await.expect("a task").expect("an answer");
        let lines = log.events("slow_statement").split_off(before);
        assert_eq!(lines.len(), told, "{lines:?}");
        for line in lines {
            assert_eq!((&line["level"], &line["message"]), (&Value::from("warn"), &Value::from("Slow postgres query")), "{line}");
            assert_eq!(line["op"], "create_key");
            assert!(line["took_ms"].as_u64().is_some_and(|took| u128::from(took) >= LIMIT.as_millis()), "{line}");
        }
        place.end().await;
    }
    let text = log.text().to_lowercase();
    assert!(!text.contains("canary") && !text.contains("cacaca") && !text.contains("insert into"), "{text}");
}
