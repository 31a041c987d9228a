//! The statements of `store` on a real database: what is atomic, what is fenced, who may do what, and which index serves it.

mod races;

use crate::support::anvil::{CHAIN_ID, RECORDER};
use crate::support::parts::{self, Database};
use crate::support::wait::eventually;
use chrono::DateTime;
use entity::ids::{ExecutionToken, JobId, LaneId, WorkerId};
use entity::states::{AttemptOutcome, JobKind};
use entity::values::{Address, Hash, Wei};
use futures::future::join_all;
use holdfast::config;
use holdfast::domain::job::Event;
use holdfast::domain::submission::NewJob;
use holdfast::local::RUNTIME_LOGIN;
use holdfast::store::execution::{self, Claim, Claimed, Finish, Finished};
use holdfast::store::intake::{self, Accepted, Submission};
use holdfast::store::lanes::{self, Reserved, Wanted};
use holdfast::store::{self, Db, jobs, workers};
use secrecy::{ExposeSecret, SecretString};
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Row};
use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};
use uuid::Uuid;

const CHAIN: i64 = CHAIN_ID as i64;
const POOL: &str = "local:relayer";
const BUDGET: u32 = 8;
const RECHECK: Duration = Duration::from_secs(30);

/// A database and the two ways to it: as the program, and as its owner.
struct Place {
    db: Db,
    owner: PgPool,
    database: Database,
}

fn settings(database: &Database) -> config::Database {
    config::Database { pool_min: 0, ..config::Database::at(database.runtime.expose_secret()) }
}

impl Place {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut config::Database)) -> Self {
        let database = parts::shared().database().await;
        let mut settings = settings(&database);
        change(&mut settings);
        let db = Db::connect(&settings).await.expect("the runtime login");
        let owner = PgPoolOptions::new().max_connections(2).connect(database.owner.expose_secret()).await.expect("the owner");
        Self { db, owner, database }
    }

    async fn count(&self, what: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM holdfast.{what}");
        sqlx::query(AssertSqlSafe(sql)).fetch_one(&self.owner).await.expect("a count").get(0)
    }

    async fn run(&self, sql: &str) {
        sqlx::query(AssertSqlSafe(sql.to_owned())).execute(&self.owner).await.expect("the owner may");
    }

    async fn text(&self, sql: &str) -> String {
        sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_one(&self.owner).await.expect("one row").get(0)
    }

    /// A lane at nonce 0, and who executes on it.
    async fn lane(&self, signer: Address, width: u32) -> LaneId {
        lanes::register(&self.db, CHAIN, POOL, signer, 0, width, "test").await.expect("a lane");
        let all = lanes::all(&self.db.reader()).await.expect("lanes");
        all.into_iter().find(|lane| lane.signer == signer).expect("the lane").id
    }

    async fn worker(&self) -> WorkerId {
        let id = WorkerId(Uuid::now_v7());
        let instance = id.0.to_string();
        let start = workers::Start { id, instance: &instance, role: "relayer", version: "0", signers: &[], pool_size: 1 };
        workers::register(&self.db, &start, Duration::from_secs(15)).await.expect("a worker");
        id
    }

    async fn accepted(&self, count: usize) -> Vec<JobId> {
        let batch: Vec<_> = (0..count).map(|_| submission(&Uuid::new_v4().to_string())).collect();
        intake::accept(&self.db, &batch, BUDGET).await.expect("accepted");
        batch.into_iter().map(|one| one.id).collect()
    }

    async fn claimed(&self, jobs: &[JobId], worker: WorkerId) -> Vec<Claim> {
        let claims: Vec<Claim> = jobs.iter().map(|job| claim(*job)).collect();
        let answers = execution::claim(&self.db, &claims, worker).await.expect("claims");
        assert!(answers.iter().all(|answer| matches!(answer, Ok(Claimed::Go(_)))), "{answers:?}");
        claims
    }

    async fn end(self) {
        self.db.close().await;
        self.owner.close().await;
        parts::shared().drop_database(&self.database).await;
    }
}

fn claim(job: JobId) -> Claim {
    Claim { job, generation: 1, token: ExecutionToken(Uuid::new_v4()) }
}

fn submission(key: &str) -> Submission {
    let job = NewJob {
        kind: JobKind::Transfer,
        chain_id: CHAIN,
        pool: POOL.into(),
        to: RECORDER,
        value: Wei::ZERO,
        data: Vec::new(),
        gas_limit: None,
        priority: 50,
        run_at: None,
        metadata: None,
    };
    Submission { id: JobId(Uuid::now_v7()), project: "tests".into(), key: key.into(), fingerprint: job.fingerprint(), job }
}

fn gwei() -> Wei {
    Wei::from(1_000_000_000)
}

fn wanted(claim: &Claim) -> Wanted {
    let call_hash = Hash([1; 32]);
    Wanted { job: claim.job, token: claim.token, call_hash, to: RECORDER, value: Wei::ZERO, data: Vec::new(), gas_limit: 21_000 }
}

fn failed(claim: &Claim) -> Finish {
    let error = Some(("x", "X", String::new()));
    Finish {
        job: claim.job,
        token: claim.token,
        number: 1,
        event: Event::AttemptFailed,
        outcome: AttemptOutcome::Retry,
        error,
        ceiling_ms: 0,
        fresh: 0,
    }
}

const SIGNER: Address = Address([0xaa; 20]);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enq_02_concurrent_submissions_of_one_key_make_one_job_and_are_told_its_id() {
    let place = Place::new().await;
    let answers = join_all((0..50).map(async |_| {
        let one = submission("the same");
        intake::accept(&place.db, &[one], BUDGET).await.expect("an answer")[0]
    }))
    .await;
    let new: Vec<_> = answers.iter().filter(|answer| matches!(answer, Accepted::New(_))).collect();
    let ids: HashSet<JobId> = answers
        .iter()
        .filter_map(|answer| match answer {
            Accepted::New(id) | Accepted::Replayed(id) => Some(*id),
            Accepted::Mismatch => None,
        })
        .collect();
    assert_eq!((new.len(), ids.len()), (1, 1), "{answers:?}");
    assert_eq!((place.count("jobs").await, place.count("outbox").await, place.count("stream_events").await), (1, 1, 1));
    place.end().await;
}

#[tokio::test]
async fn enq_02_one_key_with_another_payload_is_a_mismatch_also_within_one_batch() {
    let place = Place::new().await;
    let (first, same, mut other) = (submission("k"), submission("k"), submission("k"));
    other.fingerprint = Hash([9; 32]);
    let id = first.id;
    let batch = [first, same, other.clone()];
    assert_eq!(
        intake::accept(&place.db, &batch, BUDGET).await.expect("answers"),
        [Accepted::New(id), Accepted::Replayed(id), Accepted::Mismatch]
    );
    assert_eq!(intake::accept(&place.db, &[other], BUDGET).await.expect("answers"), [Accepted::Mismatch]);
    place.end().await;
}

#[tokio::test]
async fn enq_01_a_batch_in_which_the_schema_refuses_one_row_leaves_nothing_behind() {
    let place = Place::new().await;
    let mut batch: Vec<_> = (0..5).map(|n| submission(&n.to_string())).collect();
    batch[3].job.priority = 101;
    let refused = intake::accept(&place.db, &batch, BUDGET).await;
    assert!(matches!(refused, Err(store::Error::Refused(_))), "{refused:?}");
    for table in ["jobs", "outbox", "idempotency_keys", "stream_events"] {
        assert_eq!(place.count(table).await, 0, "{table}");
    }
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn non_01_fifty_allocators_at_once_give_dense_nonces_one_a_job() {
    let place = Place::new().await;
    let (lane, worker) = (place.lane(SIGNER, 1_000).await, place.worker().await);
    let jobs = place.accepted(200).await;
    let claims = place.claimed(&jobs, worker).await;
    let reserved = join_all(claims.chunks(4).map(async |some| {
        let plans: Vec<Wanted> = some.iter().map(wanted).collect();
        lanes::reserve(&place.db, lane, &plans, gwei()).await.expect("nonces")
    }))
    .await;
    let nonces: BTreeSet<i64> = reserved
        .iter()
        .flatten()
        .filter_map(|one| match one {
            Reserved::Nonce { nonce, .. } => Some(*nonce),
            _ => None,
        })
        .collect();
    assert_eq!(nonces, (0..200).collect());
    assert_eq!(place.text("SELECT next_nonce::text FROM holdfast.lanes").await, "200");
    place.end().await;
}

#[tokio::test]
async fn non_01_a_job_that_owns_a_nonce_gets_no_second_one_and_a_full_lane_gives_none() {
    let place = Place::new().await;
    let (lane, worker) = (place.lane(SIGNER, 3).await, place.worker().await);
    let jobs = place.accepted(5).await;
    let plans: Vec<Wanted> = place.claimed(&jobs, worker).await.iter().map(wanted).collect();
    let first = lanes::reserve(&place.db, lane, &plans, gwei()).await.expect("nonces");
    let got = first.iter().filter(|one| matches!(one, Reserved::Nonce { .. })).count();
    assert_eq!((got, first[3], first[4]), (3, Reserved::Full, Reserved::Full));
    let again = lanes::reserve(&place.db, lane, &plans[..1], gwei()).await.expect("answers");
    assert_eq!(again, [Reserved::Owned]);
    assert_eq!(place.text("SELECT next_nonce::text FROM holdfast.lanes").await, "3");
    place.end().await;
}

#[tokio::test]
async fn exe_02_a_stale_token_worker_or_attempt_number_changes_no_row() {
    let place = Place::new().await;
    let (lane, mine, other) = (place.lane(SIGNER, 16).await, place.worker().await, place.worker().await);
    let jobs = place.accepted(1).await;
    let stale = place.claimed(&jobs, mine).await[0];
    let current = place.claimed(&jobs, other).await[0];
    let before = place.text("SELECT j::text || o::text FROM holdfast.jobs j JOIN holdfast.outbox o ON o.job_id = j.id").await;
    let number_two = |claim: &Claim| Finish { number: 2, ..failed(claim) };
    for (what, finish, worker) in
        [("token", number_two(&stale), other), ("worker", number_two(&current), mine), ("number", failed(&current), other)]
    {
        let answer = execution::finish(&place.db, &[finish], worker, RECHECK).await.expect("an answer");
        assert_eq!(answer, [Finished::Fenced], "{what}");
    }
    assert_eq!(lanes::reserve(&place.db, lane, &[wanted(&stale)], gwei()).await.expect("an answer"), [Reserved::Fenced]);
    assert_eq!(place.count("lineages").await, 0);
    let after = place.text("SELECT j::text || o::text FROM holdfast.jobs j JOIN holdfast.outbox o ON o.job_id = j.id").await;
    assert_eq!(before, after);
    let answer = execution::finish(&place.db, &[number_two(&current)], other, RECHECK).await.expect("an answer");
    assert!(matches!(answer[..], [Finished::Written { .. }]), "the current one may: {answer:?}");
    place.end().await;
}

#[tokio::test]
async fn exe_02_fenced_and_current_executions_in_one_batch_get_their_own_answers() {
    let place = Place::new().await;
    let (mine, other) = (place.worker().await, place.worker().await);
    let jobs = place.accepted(2).await;
    let claims = place.claimed(&jobs, mine).await;
    place.claimed(&jobs[..1], other).await;
    let finishes: Vec<Finish> = claims.iter().map(failed).collect();
    let answers = execution::finish(&place.db, &finishes, mine, RECHECK).await.expect("answers");
    assert!(matches!(answers[..], [Finished::Fenced, Finished::Written { .. }]), "{answers:?}");
    place.end().await;
}

/// The first trap: a BEGIN whose future is dropped leaves the connection of sqlx inside an orphan transaction, and whatever
/// is acknowledged on it afterwards is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_begin_that_is_dropped_half_way_loses_nothing_that_is_acknowledged_afterwards() {
    let place = Place::with(|settings| settings.pool_max = 1).await;
    let mut acknowledged = Vec::new();
    for round in 0..300_u64 {
        let begin = place.db.begin();
        // From "not polled twice" to "well under way".
        let _ = tokio::time::timeout(Duration::from_micros(round * 5), begin).await;
        let one = submission(&round.to_string());
        if intake::accept(&place.db, std::slice::from_ref(&one), BUDGET).await.is_ok() {
            acknowledged.push(one.id);
        }
    }
    place.db.close().await;
    assert!(acknowledged.len() > 290, "{} of 300 were accepted", acknowledged.len());
    assert_eq!(place.count("jobs").await, i64::try_from(acknowledged.len()).unwrap());
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_whose_caller_leaves_runs_to_its_end() {
    let place = Place::with(|settings| settings.pool_max = 1).await;
    for round in 0..50_u64 {
        let batch = [submission(&round.to_string())];
        let _ = tokio::time::timeout(Duration::from_micros(round * 40), intake::accept(&place.db, &batch, BUDGET)).await;
    }
    // All of them were polled at least once, so all of them were taken in.
    eventually("all 50 are durable", Duration::from_secs(10), async || place.count("jobs").await == 50).await;
    place.end().await;
}

/// Holds the row locks of a lane for as long as it lives, so that whoever wants them waits.
async fn hold(place: &Place, lane: LaneId) -> sqlx::Transaction<'static, sqlx::Postgres> {
    let mut held = place.owner.begin().await.expect("a transaction");
    sqlx::query("SELECT id FROM holdfast.lanes WHERE id = $1 FOR UPDATE").bind(lane.0).execute(&mut *held).await.expect("the lock");
    held
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pgp_09_more_callers_than_the_queue_limit_are_refused_at_once() {
    let place = Place::with(|settings| {
        settings.pool_max = 1;
        settings.queue_limit = 2;
    })
    .await;
    let lane = place.lane(SIGNER, 16).await;
    let held = hold(&place, lane).await;
    let holder = WorkerId(Uuid::now_v7());
    let lease = || {
        let db = place.db.clone();
        tokio::spawn(async move { lanes::lease(&db, lane, holder, Duration::from_secs(5)).await })
    };
    let first = lease();
    eventually("the connection is taken", Duration::from_secs(5), async || {
        place.text("SELECT count(*)::text FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()").await
            == "1"
    })
    .await;
    let others = [lease(), lease()];
    eventually("two wait", Duration::from_secs(5), async || place.db.waiting() == 2).await;
    let since = Instant::now();
    let refused = lanes::lease(&place.db, lane, holder, Duration::from_secs(5)).await;
    assert!(matches!(refused, Err(store::Error::PoolExhausted { waiting: 2 })), "{refused:?}");
    assert!(since.elapsed() < Duration::from_millis(100), "{:?}", since.elapsed());
    held.rollback().await.expect("released");
    for waiter in [first].into_iter().chain(others) {
        waiter.await.expect("a task").expect("served once there is room");
    }
    place.end().await;
}

#[tokio::test]
async fn tmo_02_a_statement_over_the_limit_is_ended_by_postgres_and_told_as_a_timeout() {
    let place = Place::with(|settings| settings.statement_timeout = Duration::from_millis(200)).await;
    let lane = place.lane(SIGNER, 16).await;
    let held = hold(&place, lane).await;
    let slow = lanes::lease(&place.db, lane, WorkerId(Uuid::now_v7()), Duration::from_secs(5)).await;
    assert!(matches!(slow, Err(store::Error::Timeout)), "{slow:?}");
    held.rollback().await.expect("released");
    lanes::lease(&place.db, lane, WorkerId(Uuid::now_v7()), Duration::from_secs(5)).await.expect("the connection is as good as before");
    place.end().await;
}

#[tokio::test]
async fn tmo_01_every_session_has_the_timeout_that_was_set() {
    let place = Place::with(|settings| settings.statement_timeout = Duration::from_millis(1_234)).await;
    place.lane(SIGNER, 16).await;
    // What a session of ours is like is asked on a connection made in the same way.
    let mut url = place.database.runtime.expose_secret().to_owned();
    url.push_str("?application_name=looker");
    let seen = place
        .text("SELECT count(*)::text FROM pg_stat_activity WHERE application_name = 'holdfast' AND datname = current_database()")
        .await;
    assert_ne!(seen, "0", "the sessions name themselves");
    let lane = place.lane(Address([1; 20]), 16).await;
    let held = hold(&place, lane).await;
    let since = Instant::now();
    let slow = lanes::lease(&place.db, lane, WorkerId(Uuid::now_v7()), Duration::from_secs(5)).await;
    assert!(matches!(slow, Err(store::Error::Timeout)), "{slow:?}");
    assert!(since.elapsed() >= Duration::from_millis(1_200), "{:?}", since.elapsed());
    held.rollback().await.expect("released");
    place.end().await;
}

#[tokio::test]
async fn top_17_the_runtime_login_may_change_no_schema_and_no_history() {
    let place = Place::new().await;
    let runtime = PgPoolOptions::new().max_connections(1).connect(place.database.runtime.expose_secret()).await.expect("the runtime login");
    for sql in [
        "CREATE TABLE holdfast.mine (id int)",
        "CREATE TABLE public.mine (id int)",
        "CREATE SCHEMA mine",
        "ALTER TABLE holdfast.jobs ADD COLUMN mine int",
        "DROP TABLE holdfast.outbox",
        "TRUNCATE holdfast.jobs",
        "DELETE FROM holdfast.jobs",
        "UPDATE holdfast.tx_attempts SET ciphertext = ''",
        "DELETE FROM holdfast.tx_attempts",
        "UPDATE holdfast.stream_events SET type = 'x'",
        "DELETE FROM holdfast.operator_actions",
        "UPDATE holdfast.operator_actions SET operator_id = 'x'",
        "UPDATE holdfast.signer_history SET actor = 'x'",
        "INSERT INTO holdfast.schema_migrations (version, name, checksum) VALUES (9, 'x', 'x')",
    ] {
        let refused = sqlx::query(sql).execute(&runtime).await.expect_err(sql);
        let code = refused.as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned();
        assert_eq!(code, "42501", "{sql}: {refused}");
    }
    runtime.close().await;
    place.end().await;
}

#[tokio::test]
async fn jrn_09_what_ended_on_the_chain_needs_its_receipt_and_its_proof() {
    let place = Place::new().await;
    let (lane, worker) = (place.lane(SIGNER, 16).await, place.worker().await);
    let jobs = place.accepted(1).await;
    let claims = place.claimed(&jobs, worker).await;
    lanes::reserve(&place.db, lane, &[wanted(&claims[0])], gwei()).await.expect("a nonce");
    for sql in [
        "UPDATE holdfast.lineages SET state = 'mined'",
        "UPDATE holdfast.lineages SET state = 'superseded', ended_at = now()",
        "UPDATE holdfast.jobs SET state = 'completed'",
        "UPDATE holdfast.jobs SET state = 'processing', execution_token = NULL",
    ] {
        let refused = sqlx::query(sql).execute(&place.owner).await.expect_err(sql);
        let code = refused.as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned();
        assert_eq!(code, "23514", "{sql}: {refused}");
    }
    place.end().await;
}

async fn migrate(database: &Database, logins: &[migration::Login<'_>]) -> Result<migration::Report, migration::Error> {
    let owner = sea_orm::Database::connect(database.owner.expose_secret()).await.expect("the owner");
    let report = migration::migrate(&owner, logins).await;
    owner.close().await.expect("closed");
    report
}

#[tokio::test]
async fn mig_03_migrating_again_applies_nothing_and_a_new_password_replaces_the_old_one() {
    let database = parts::shared().empty_database().await;
    // A login of this test's own: the password of the shared one is in use.
    let name = format!("{RUNTIME_LOGIN}_{}", parts::serial());
    let login = |password: &'static str| [migration::Login { role: "runtime", name: Box::leak(name.clone().into_boxed_str()), password }];
    let first = migrate(&database, &login("first-password")).await.expect("applied");
    assert_eq!((first.applied.last().copied(), first.logins.len()), (Some(migration::EXPECTED), 1));
    let again = migrate(&database, &login("second-password")).await.expect("nothing to do");
    assert!(again.applied.is_empty());
    let url = |password: &str| {
        let shared = database.runtime.expose_secret();
        let (scheme, rest) = shared.split_once("://").expect("a URL");
        format!("{scheme}://{name}:{password}@{}", rest.rsplit_once('@').expect("a login").1)
    };
    let connect = async |password: &str| {
        let mut settings = config::Database::at(url(password));
        settings.pool_min = 1;
        Db::connect(&settings).await
    };
    connect("second-password").await.expect("the new password").close().await;
    assert!(connect("first-password").await.is_err(), "the old password is taken no more");
    parts::shared().drop_database(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mig_02_of_two_migrations_at_once_one_applies_and_the_other_finds_nothing_to_do() {
    let database = parts::shared().empty_database().await;
    let both = tokio::join!(migrate(&database, &[]), migrate(&database, &[]));
    let applied = [both.0.expect("the first"), both.1.expect("the second")].map(|report| report.applied.len());
    assert_eq!(applied.iter().sum::<usize>(), migration::MIGRATIONS.len(), "{applied:?}");
    assert!(applied.contains(&0), "{applied:?}");
    parts::shared().drop_database(&database).await;
}

#[tokio::test]
async fn non_04_plans_are_dealt_in_turn_and_lanes_that_are_full_or_fenced_get_none() {
    let place = Place::new().await;
    let signers: Vec<Address> = (1..=3).map(|n| Address([n; 20])).collect();
    for signer in &signers {
        place.lane(*signer, 16).await;
    }
    let dealt = lanes::pick(&place.db, CHAIN, POOL, 9, &signers).await.expect("dealt");
    for signer in &signers {
        assert_eq!(dealt.iter().filter(|(_, to)| to == signer).count(), 3, "{dealt:?}");
    }
    sqlx::query("UPDATE holdfast.lanes SET state = 'draining' WHERE signer = $1")
        .bind(signers[0].0.to_vec())
        .execute(&place.owner)
        .await
        .unwrap();
    sqlx::query("UPDATE holdfast.lanes SET next_nonce = 16, settled_nonce = 16 WHERE signer = $1")
        .bind(signers[1].0.to_vec())
        .execute(&place.owner)
        .await
        .unwrap();
    let dealt = lanes::pick(&place.db, CHAIN, POOL, 4, &signers).await.expect("dealt");
    assert!(dealt.len() == 4 && dealt.iter().all(|(_, to)| *to == signers[2]), "{dealt:?}");
    assert!(lanes::pick(&place.db, CHAIN, POOL, 4, &signers[..2]).await.expect("dealt").is_empty());
    place.end().await;
}

#[tokio::test]
async fn a_claim_before_its_time_is_told_how_long_to_wait_and_one_of_an_old_generation_is_spent() {
    let place = Place::new().await;
    let worker = place.worker().await;
    let mut late = submission("late");
    late.job.run_at = Some(chrono::Utc::now() + Duration::from_secs(3_600));
    let job = late.id;
    intake::accept(&place.db, &[late], BUDGET).await.expect("accepted");
    let answers = execution::claim(&place.db, &[claim(job), Claim { generation: 7, ..claim(job) }, claim(JobId(Uuid::nil()))], worker)
        .await
        .expect("answers");
    assert!(
        matches!(&answers[..], [Ok(Claimed::Early(left)), Ok(Claimed::Spent), Ok(Claimed::Spent)] if left.as_secs() > 3_500),
        "{answers:?}"
    );
    assert_eq!(place.text("SELECT state FROM holdfast.jobs").await, "queued");
    place.end().await;
}

/// A newer version has a kind that this one does not know.
#[tokio::test]
async fn a_row_that_this_version_cannot_read_fails_alone() {
    let place = Place::new().await;
    let worker = place.worker().await;
    let jobs = place.accepted(3).await;
    place.run("ALTER TABLE holdfast.jobs DROP CONSTRAINT jobs_kind_check").await;
    place.run(&format!("UPDATE holdfast.jobs SET kind = 'teleport' WHERE id = '{}'", jobs[1])).await;
    let claims: Vec<Claim> = jobs.iter().map(|job| claim(*job)).collect();
    let answers = execution::claim(&place.db, &claims, worker).await.expect("the batch is answered");
    assert!(matches!(&answers[..], [Ok(Claimed::Go(_)), Err(store::Error::Answer(_)), Ok(Claimed::Go(_))]), "{answers:?}");
    place.end().await;
}

#[tokio::test]
async fn a_job_is_cancelled_before_a_nonce_and_only_by_a_noop_after_one() {
    let place = Place::new().await;
    let (lane, worker) = (place.lane(SIGNER, 16).await, place.worker().await);
    let jobs = place.accepted(3).await;
    assert_eq!(jobs::cancel(&place.db, jobs[0], None, Some(("me", "why"))).await.expect("an answer"), jobs::Cancelled::Done);
    assert_eq!(place.count("operator_actions WHERE operator_id = 'me' AND action = 'jobs.cancel'").await, 1);
    let claims = place.claimed(&jobs[1..], worker).await;
    assert_eq!(jobs::cancel(&place.db, jobs[1], None, None).await.expect("an answer"), jobs::Cancelled::Asked);
    let reserved = lanes::reserve(&place.db, lane, &[wanted(&claims[0]), wanted(&claims[1])], gwei()).await.expect("answers");
    assert!(matches!(reserved[..], [Reserved::Cancelled, Reserved::Nonce { nonce: 0, .. }]), "{reserved:?}");
    assert_eq!(jobs::cancel(&place.db, jobs[2], None, None).await.expect("an answer"), jobs::Cancelled::Noop);
    assert_eq!(jobs::cancel(&place.db, jobs[0], Some("another project"), None).await.expect("an answer"), jobs::Cancelled::Unknown);
    place.end().await;
}

#[tokio::test]
async fn a_restart_under_the_same_name_is_another_worker() {
    let place = Place::new().await;
    let start = |id| workers::Start { id, instance: "host-1", role: "relayer", version: "0", signers: &[SIGNER], pool_size: 1 };
    let (first, second) = (WorkerId(Uuid::now_v7()), WorkerId(Uuid::now_v7()));
    let stale = Duration::from_secs(15);
    workers::register(&place.db, &start(first), stale).await.expect("the first");
    workers::register(&place.db, &start(second), stale).await.expect("the second, beside it");
    let names: HashSet<String> =
        workers::list(&place.db.reader()).await.expect("workers").into_iter().map(|worker| worker.instance).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    place.end().await;
}

/// The statement of a `.sql` file, and the indexes that its head names.
fn served_by(text: &str) -> Vec<&str> {
    let (_, rest) = text.split_once("Served by:").expect("the head names its indexes");
    let head = rest.lines().next().unwrap_or_default();
    let names = head.split(['.', ',', ' ', '(', ')']).map(str::trim);
    names.filter(|name| !name.is_empty() && !name.contains(|c: char| !(c.is_ascii_lowercase() || c == '_'))).collect()
}

fn statements() -> Vec<(String, String)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/sql");
    let mut all: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder of statements")
        .map(|entry| {
            let path = entry.expect("an entry").path();
            (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read_to_string(&path).expect("a statement"))
        })
        .collect();
    all.sort();
    all
}

/// A value for each parameter, by the type that the statement gives it or that Postgres finds out.
async fn parameters(connection: &mut sqlx::PgConnection, sql: &str) -> Vec<String> {
    sqlx::query(AssertSqlSafe(format!("PREPARE looked_at AS {sql}")))
        .execute(&mut *connection)
        .await
        .unwrap_or_else(|error| panic!("{error}\n{sql}"));
    let row = sqlx::query("SELECT parameter_types::text[] AS types FROM pg_prepared_statements WHERE name = 'looked_at'")
        .fetch_one(&mut *connection)
        .await
        .expect("the prepared statement");
    let types: Vec<String> = row.get("types");
    types
        .iter()
        .map(|kind| {
            let one = match kind.trim_end_matches("[]") {
                "uuid" => "'00000000-0000-0000-0000-000000000001'",
                "bytea" => "'\\x00'",
                "boolean" => "true",
                "text" => "'queued'",
                "timestamp with time zone" => "now()",
                _ => "1",
            };
            if kind.ends_with("[]") { format!("ARRAY[{one}]::{kind}") } else { format!("{one}::{kind}") }
        })
        .collect()
}

/// A history: twenty thousand jobs, one in ten of them still open, and what belongs to them.
async fn fill(owner: &PgPool) {
    let mut session = owner.acquire().await.expect("a connection");
    for sql in [
        "CREATE TEMP TABLE ids AS SELECT n, gen_random_uuid() AS id, gen_random_uuid() AS lineage, decode(md5(n::text) || md5(n::text), 'hex') AS hash,
             CASE WHEN n % 10 > 0 THEN 'completed' WHEN n % 40 = 0 THEN 'processing' WHEN n % 40 = 10 THEN 'submitted' ELSE 'queued' END AS state
         FROM generate_series(1, 20000) n",
        "INSERT INTO holdfast.jobs (id, project, kind, state, chain_id, pool, to_address, value, data, priority, run_at, attempts_budget, finished_at,
             execution_token, worker_id, processing_since)
         SELECT id, 'tests', 'transfer', state, 31337, 'local:relayer', decode(repeat('00', 20), 'hex'), 0, '', 50, now(), 8,
             CASE WHEN state = 'completed' THEN now() END, CASE WHEN state = 'processing' THEN id END, CASE WHEN state = 'processing' THEN id END,
             CASE WHEN state = 'processing' THEN now() END FROM ids",
        "INSERT INTO holdfast.outbox (job_id, priority, deliver_at, next_at, published_at)
         SELECT id, 50, now(), CASE WHEN state IN ('queued', 'processing') THEN now() + (CASE WHEN n % 20 > 0 THEN n ELSE -1 END) * interval '1 s' END,
             CASE WHEN n % 20 > 0 THEN now() END FROM ids",
        "INSERT INTO holdfast.idempotency_keys (project, key, fingerprint, job_id) SELECT 'tests', id::text, hash, id FROM ids",
        "INSERT INTO holdfast.job_attempts (job_id, number, token, worker_id, generation) SELECT id, 1, gen_random_uuid(), id, 1 FROM ids",
        "INSERT INTO holdfast.lineages (id, job_id, lane_id, chain_id, signer, nonce, call_hash, to_address, value, data, gas_limit, state, mined_hash,
             block_number, block_hash, gas_used, effective_gas_price, proof, ended_at)
         SELECT lineage, id, (SELECT min(l.id) FROM holdfast.lanes l), 31337, decode(repeat('aa', 20), 'hex'), n, hash, decode(repeat('00', 20), 'hex'), 0, '', 21000,
             CASE WHEN state = 'completed' THEN 'mined' ELSE 'signed' END, CASE WHEN state = 'completed' THEN hash END,
             CASE WHEN state = 'completed' THEN n END, CASE WHEN state = 'completed' THEN hash END, CASE WHEN state = 'completed' THEN 1 END,
             CASE WHEN state = 'completed' THEN 1 END, CASE WHEN state = 'completed' THEN '{}'::jsonb END, CASE WHEN state = 'completed' THEN now() END
         FROM ids WHERE state <> 'queued'",
        "INSERT INTO holdfast.tx_attempts (hash, lineage_id, ordinal, purpose, max_fee_per_gas, max_priority_fee_per_gas, gas_limit, key_id, iv, ciphertext)
         SELECT hash, lineage, 1, 'call', 1, 1, 21000, 'k', decode(repeat('00', 12), 'hex'), '' FROM ids WHERE state <> 'queued'",
        "INSERT INTO holdfast.signers (address) SELECT substring(hash FOR 20) FROM ids WHERE n <= 1000",
        "INSERT INTO holdfast.pools (chain_id, name) SELECT 1, 'filler:' || n FROM generate_series(0, 99) n",
        "INSERT INTO holdfast.lanes (chain_id, pool, signer, state, next_nonce, latest_nonce, settled_nonce, width)
         SELECT 1, 'filler:' || n % 100, substring(hash FOR 20), 'active', 0, 0, 0, 16 FROM ids WHERE n <= 1000",
        "DROP TABLE ids",
        "ANALYZE",
    ] {
        // The temporary table lives in one session.
        sqlx::query(sql).execute(&mut *session).await.unwrap_or_else(|error| panic!("{error}\n{sql}"));
    }
}

#[tokio::test]
async fn every_statement_file_is_served_by_the_indexes_that_its_head_names() {
    let place = Place::new().await;
    place.lane(SIGNER, 16).await;
    fill(&place.owner).await;
    let known: HashSet<String> = sqlx::query("SELECT indexname::text AS name FROM pg_indexes WHERE schemaname = 'holdfast'")
        .fetch_all(&place.owner)
        .await
        .unwrap()
        .iter()
        .map(|row| row.get("name"))
        .collect();
    let mut connection = place.owner.acquire().await.expect("a connection");
    // Tables of a few rows are always scanned; what is asked is what serves a statement where there are many.
    for setting in ["SET enable_seqscan = off", "SET plan_cache_mode = force_generic_plan"] {
        sqlx::query(AssertSqlSafe(setting.to_owned())).execute(&mut *connection).await.expect("a setting");
    }
    let mut faults = Vec::new();
    for (file, text) in statements() {
        let named: Vec<&str> =
            served_by(&text).into_iter().filter(|name| name.contains('_') && (known.contains(*name) || name.ends_with("_pkey"))).collect();
        let values = parameters(&mut connection, &text).await;
        let arguments = if values.is_empty() { String::new() } else { format!("({})", values.join(", ")) };
        let plan = sqlx::query(AssertSqlSafe(format!("EXPLAIN (COSTS off) EXECUTE looked_at{arguments}")))
            .fetch_all(&mut *connection)
            .await
            .unwrap_or_else(|error| panic!("{file}: {error}"));
        let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
        let plan = plan.join("\n");
        sqlx::query("DEALLOCATE looked_at").execute(&mut *connection).await.expect("deallocated");
        if named.is_empty() {
            faults.push(format!("{file}: its head names no index that exists"));
        }
        // A conflict target shows as "Conflict Arbiter Indexes"; an INSERT … ON CONFLICT has no other mention of it.
        faults.extend(named.iter().filter(|index| !plan.contains(*index)).map(|index| format!("{file}: {index} is not used\n{plan}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    drop(connection);
    place.end().await;
}

#[tokio::test]
async fn amounts_of_256_bits_come_back_as_they_went_in() {
    let place = Place::new().await;
    let mut one = submission("rich");
    one.job.value = Wei(primitive_types::U256::MAX);
    let (id, value) = (one.id, one.job.value);
    one.job.run_at = Some(DateTime::UNIX_EPOCH);
    intake::accept(&place.db, &[one], BUDGET).await.expect("accepted");
    assert_eq!(jobs::by_ids(&place.db.reader(), &[id], None).await.expect("a job")[0].value, value);
    place.end().await;
}

#[tokio::test]
async fn a_database_that_is_away_is_told_as_unavailable() {
    let mut settings = config::Database::at("postgres://nobody:nothing@127.0.0.1:1/none");
    settings.url = SecretString::from("postgres://nobody:nothing@127.0.0.1:1/none".to_owned());
    settings.connection_timeout = Duration::from_millis(300);
    let away = Db::connect(&settings).await.map(|_| ());
    assert!(matches!(away, Err(store::Error::Unavailable(_))), "{away:?}");
}
