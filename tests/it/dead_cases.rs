//! Dead jobs: taken up again, one by one or many at once, or noted as dealt with.

use crate::support::command;
use crate::support::parts::HOLDFAST;
use crate::support::process::Process;
use crate::support::wait::eventually;
use crate::support::world::{Instance, SOON, Setup, World};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const USAGE: i32 = 2;
const REFUSED: i32 = 4;
const PARTLY: i32 = 8;

/// A job that died of its only attempt; the process that killed it is gone.
async fn dead() -> (World, Arc<Instance>, String, Value) {
    let world = World::with(Setup::default().with("JOB_MAX_ATTEMPTS", 1)).await;
    world.panics_expected.store(true, Ordering::Relaxed);
    let engine = world.engine().await;
    let relayer = world.serve("relayer", &[("HOLDFAST_FAIL_POINT", "worker.planned:panic")]).await;
    let body = world.record();
    let id = world.submit(&engine, "the-key", &body).await.id().to_string();
    world.until_state(&id, "dead").await;
    relayer.kill9();
    (world, engine, id, body)
}

/// Many dead jobs, each third of them of another error.
async fn many(jobs: usize) -> (World, Arc<Instance>, Vec<String>) {
    let world = World::start().await;
    let engine = world.engine().await;
    let ids = world.accept_records(&engine, jobs).await;
    let kill =
        "WITH gone AS (UPDATE holdfast.jobs SET state = 'dead', version = version + 1, finished_at = now(), error_title = 'It is broken',
                    error_type = CASE WHEN abs(hashtext(id::text)) % 3 = 0 THEN 'other' ELSE 'broken' END RETURNING id, version
                ), told AS (INSERT INTO holdfast.stream_events (domain, key, version, type) SELECT 'job', id, version, 'dead' FROM gone)
                UPDATE holdfast.outbox o SET next_at = NULL FROM gone g WHERE g.id = o.job_id";
    sqlx::query(kill).execute(&world.pool).await.unwrap();
    (world, engine, ids)
}

async fn replay(world: &World, arguments: &[&str]) -> (i32, String) {
    command::run(world, &[&["jobs", "replay"], arguments].concat(), &[]).await
}

async fn admin(world: &World, at: &Instance, path: &str, body: Value) -> (u16, Value) {
    let request = world.client.post(format!("{}/admin/v1/{path}", at.admin)).bearer_auth(&world.admin_token);
    let answer = request.header("x-operator-id", "anna").json(&body).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dlq_01_dlq_02_dlq_03_dlq_04_a_dead_job_is_taken_up_again_with_its_key_its_history_and_a_whole_budget() {
    let (world, engine, id, body) = dead().await;
    eventually("the gauge tells it", SOON, async || world.metric(&engine, "holdfast_jobs", &["dead"]).await == 1.0).await;
    let before = world.rows("SELECT error_type, attempts, attempts_budget FROM holdfast.jobs").await;
    assert_eq!(before, ["panic|1|1"]);
    let (code, told) = command::run(&world, &["jobs", "replay", &id, "--reason", "mended"], &[("OPERATOR_ID", "")]).await;
    assert_eq!(code, USAGE, "{told}");
    assert_eq!(world.count("operator_actions").await, 0, "who is not named changes nothing");

    let (code, told) = replay(&world, &[&id, "--reason", "mended"]).await;
    assert_eq!(code, 0, "{told}");
    let rows = "SELECT j.state, j.attempts_budget, o.generation, (SELECT count(*) FROM holdfast.outbox) FROM holdfast.jobs j JOIN holdfast.outbox o ON o.job_id = j.id";
    assert_eq!(world.rows(rows).await, ["queued|9|2|1"]);
    let (code, told) = replay(&world, &[&id, "--reason", "once more"]).await;
    assert!(code == REFUSED && told.contains("not-dead"), "{code}: {told}");

    world.serve("relayer", &[]).await;
    world.until_state(&id, "completed").await;
    let shown = command::data(&world, &["jobs", "show", &id]).await;
    let outcomes: Vec<_> = shown["executions"].as_array().unwrap().iter().map(|one| one["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["submitted", "dead"], "{shown:#}");
    let again = world.submit(&engine, "the-key", &body).await;
    assert_eq!((again.status, again.id().to_string()), (200, id.clone()), "the key means the same job");
    assert_eq!(world.rows("SELECT action, before, after FROM holdfast.operator_actions ORDER BY id").await[0], "jobs.replay|dead|queued");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dlq_05_what_is_taken_up_again_is_simulated_before_anything_is_signed() {
    let (world, engine, id, _) = dead().await;
    world.anvil.set_failing(true).await;
    let (status, told) = admin(&world, &engine, &format!("jobs/{id}/replay"), json!({ "reason": "mended" })).await;
    assert_eq!(status, 200, "{told}");
    let (status, told) = admin(&world, &engine, &format!("jobs/{id}/replay"), json!({ "reason": "mended" })).await;
    assert_eq!(status, 409, "{told}");
    world.serve("relayer", &[]).await;
    world.until_state(&id, "not_actionable").await;
    assert_eq!((world.count("lineages").await, world.sent().len()), (0, 0));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dlq_06_many_are_taken_up_only_after_a_look_a_yes_and_a_reason() {
    let (world, engine, ids) = many(250).await;
    let broken = world.count("jobs WHERE error_type = 'broken'").await;
    let plan = command::data(&world, &["jobs", "replay", "--filter", "error=broken", "--dry-run"]).await;
    assert_eq!((&plan["plan"]["jobs"], &plan["plan"]["groups"][0]["error"]), (&json!(broken), &json!("broken")), "{plan:#}");
    for (arguments, why) in [
        (&["--filter", "error=broken", "--yes"][..], "--reason"),
        (&["--filter", "error=broken", "--reason", "mended"], "--yes"),
        (&["--filter", "colour=red", "--yes", "--reason", "mended"], "colour"),
        (&["--filter", "error=broken", &ids[0], "--yes", "--reason", "mended"], "cannot be used with"),
    ] {
        let (code, told) = replay(&world, arguments).await;
        assert!(code == USAGE && told.contains(why), "{arguments:?}: {code}: {told}");
    }
    assert_eq!(world.count("jobs WHERE state = 'dead'").await, 250, "nothing was changed so far");

    let (code, told) = replay(&world, &["--filter", "error=broken", "--yes", "--reason", "mended", "--per-second", "10000"]).await;
    assert!(code == 0 && told.contains(&format!("{broken} jobs are queued again, 0 are not")), "{code}: {told}");
    assert_eq!(world.count("jobs WHERE state = 'queued'").await, broken);
    assert_eq!(world.count("operator_actions WHERE action = 'jobs.replay' AND after = 'queued'").await, broken);

    // What may still take effect is refused among the others.
    let live =
        "INSERT INTO holdfast.lineages (id, job_id, lane_id, chain_id, signer, nonce, call_hash, to_address, value, data, gas_limit, state)
                SELECT gen_random_uuid(), j.id, l.id, l.chain_id, l.signer, 9999, sha256('x'), j.to_address, 0, '', 21000, 'allocated'
                FROM holdfast.lanes l, holdfast.jobs j WHERE j.error_type = 'other' LIMIT 1";
    let relayer = world.serve("relayer", &[]).await;
    world.until_final(SOON * 3).await;
    relayer.kill9();
    assert_eq!(sqlx::query(live).execute(&world.pool).await.unwrap().rows_affected(), 1);
    let dry = admin(&world, &engine, "jobs/replay", json!({ "dry_run": true, "reason": "look" })).await.1;
    let (left, until) = (250 - broken, dry["until"].clone());
    assert_eq!((&dry["jobs"], &dry["groups"][0]["with_nonce"]), (&json!(left), &json!(1)), "{dry:#}");
    let (status, told) = admin(&world, &engine, "jobs/replay", json!({ "reason": "mended" })).await;
    assert_eq!(status, 400, "an end in time is missing: {told}");
    let (mut cursor, mut outcomes) = (Value::Null, Vec::new());
    loop {
        let mut body = json!({ "filter": { "until": until }, "limit": 20, "reason": "mended" });
        if cursor.is_string() {
            body["cursor"] = cursor;
        }
        let (status, step) = admin(&world, &engine, "jobs/replay", body).await;
        assert_eq!(status, 200, "{step}");
        outcomes.extend(step["items"].as_array().unwrap().iter().map(|item| item["outcome"].as_str().unwrap().to_owned()));
        cursor = step["next_cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    let refused = outcomes.iter().filter(|outcome| *outcome == "nonce-bound").count();
    assert_eq!((outcomes.len() as i64, refused), (left, 1), "{outcomes:?}");
    let (code, told) = replay(&world, &["--filter", "dead", "--yes", "--reason", "mended"]).await;
    assert!(code == PARTLY && told.contains("0 jobs are queued again, 1 are not"), "{code}: {told}");
    let given_up = "UPDATE holdfast.lineages SET state = 'abandoned', ended_at = now() WHERE nonce = 9999";
    sqlx::query(given_up).execute(&world.pool).await.unwrap();
    world.finish_open().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dlq_06_a_run_that_is_killed_goes_on_where_it_was_and_takes_no_job_up_twice() {
    let (world, _engine, _) = many(250).await;
    let environment = [("DATABASE_URL", world.setting("DATABASE_URL").to_owned()), ("OPERATOR_ID", "tester".to_owned())];
    let environment = environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let arguments = ["jobs", "replay", "--filter", "dead", "--yes", "--reason", "mended", "--per-second", "20"];
    let process = Process::spawn("replay", HOLDFAST, arguments, &environment);
    eventually("a piece is done", SOON, async || world.count("jobs WHERE state = 'queued'").await >= 100).await;
    process.kill9();
    assert_eq!(world.count("jobs WHERE state = 'queued'").await, 100, "in whole pieces");
    let (code, told) = replay(&world, &["--filter", "dead", "--yes", "--reason", "mended", "--per-second", "10000"]).await;
    assert!(code == 0 && told.contains("150 jobs are queued again"), "{code}: {told}");
    assert_eq!(world.rows("SELECT DISTINCT generation FROM holdfast.outbox").await, ["2"]);
    assert_eq!(world.count("operator_actions WHERE action = 'jobs.replay'").await, 250);
    world.serve("relayer", &[]).await;
    world.until_completed(SOON * 2).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dlq_07_a_dead_job_is_kept_and_waits_until_somebody_has_dealt_with_it() {
    let (world, engine, id, _) = dead().await;
    eventually("the gauge tells it", SOON, async || world.metric(&engine, "holdfast_jobs", &["dead"]).await == 1.0).await;
    let resolve = async |reason: &str| command::run(&world, &["jobs", "resolve", &id, "--reason", reason], &[]).await;
    let (code, told) = resolve("").await;
    assert!(code == USAGE && told.contains("reason"), "{told}");
    assert_eq!(resolve("paid by hand").await.0, 0);
    let (code, told) = resolve("again").await;
    assert!(code == 0 && told.contains("dealt with before"), "{told}");
    assert_eq!(world.state(&id).await, "dead", "it is kept");
    let shown = command::data(&world, &["jobs", "show", &id]).await;
    assert_eq!((&shown["resolution"]["operator"], &shown["resolution"]["reason"]), (&json!("tester"), &json!("paid by hand")), "{shown:#}");
    eventually("nobody is called for it any more", SOON, async || world.metric(&engine, "holdfast_jobs", &["dead"]).await == 0.0).await;
    let none = command::data(&world, &["jobs", "replay", "--filter", "dead", "--dry-run"]).await;
    assert_eq!(none["plan"]["jobs"], 0, "{none:#}");

    // By its name it can be taken up all the same; its next death has to be dealt with anew.
    assert_eq!(replay(&world, &[&id, "--reason", "after all"]).await.0, 0);
    assert!(command::data(&world, &["jobs", "show", &id]).await["resolution"].is_null());
    let (status, told) = admin(&world, &engine, &format!("jobs/{id}/resolve"), json!({ "reason": "x" })).await;
    assert_eq!(status, 409, "{told}");
    world.serve("relayer", &[]).await;
    world.until_state(&id, "completed").await;
    let runtime = ["DELETE FROM holdfast.job_resolutions", "UPDATE holdfast.job_resolutions SET reason = 'x'", "DELETE FROM holdfast.jobs"];
    let pool = sqlx::PgPool::connect(world.setting("DATABASE_URL")).await.unwrap();
    for sql in runtime {
        let refused = sqlx::query(sql).execute(&pool).await.unwrap_err();
        assert!(refused.to_string().contains("permission denied"), "{sql}: {refused}");
    }
    world.finish().await;
}
