//! The log of operators: complete, in one chain, and whoever tampers with it shows.

use crate::support::command;
use crate::support::world::World;
use futures::future::join_all;
use serde_json::json;

const PROBLEMS: i32 = 10;

async fn verify(world: &World, kept: &[&str]) -> (i32, String) {
    command::run(world, &[&["operators", "verify"], kept].concat(), &[]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acts_at_one_time_stand_in_one_chain_and_whatever_is_done_to_it_shows() {
    let world = World::start().await;
    let engine = world.engine().await;
    let ids = world.accept_records(&engine, 40).await;
    assert_eq!(verify(&world, &[]).await.0, 0, "an empty log is sound");
    let post = |id: String| {
        let request = world.client.post(format!("{}/admin/v1/jobs/{id}/cancel", engine.admin)).bearer_auth(&world.admin_token);
        let request = request.header("x-operator-id", "anna").json(&json!({ "reason": "not: needed; 5:x" }));
        async move { request.send().await.unwrap().status().as_u16() }
    };
    let told = join_all(ids.iter().cloned().map(post)).await;
    assert!(told.iter().all(|status| *status == 200), "{told:?}");
    let acts = "SELECT count(*), min(position), max(position), count(DISTINCT prev_hash) FROM holdfast.operator_actions";
    assert_eq!(world.rows(acts).await, ["40|1|40|40"]);
    let sound = command::data(&world, &["operators", "verify"]).await;
    let head = sound["head"].as_str().unwrap().to_owned();
    assert_eq!((&sound["rows"], &sound["broken"]), (&json!(40), &json!(null)), "{sound:#}");
    assert_eq!(verify(&world, &["--kept", &head]).await.0, 0);
    let page = command::data(&world, &["operators", "log", "--by", "anna", "--limit", "30"]).await;
    let cursor = page["next_cursor"].as_str().unwrap();
    let rest = command::data(&world, &["operators", "log", "--by", "anna", "--cursor", cursor]).await;
    assert_eq!((page["items"].as_array().unwrap().len(), rest["items"].as_array().unwrap().len()), (30, 10));
    assert_eq!(page["items"][0]["action"], "jobs.cancel");

    // By somebody who owns the table.
    let tamper = async |sql: &'static str| {
        sqlx::query(sql).execute(&world.pool).await.unwrap();
    };
    sqlx::query("CREATE TABLE kept AS TABLE holdfast.operator_actions").execute(&world.pool).await.unwrap();
    let restore = "TRUNCATE holdfast.operator_actions; ALTER TABLE holdfast.operator_actions DISABLE TRIGGER ALL;
                   INSERT INTO holdfast.operator_actions OVERRIDING SYSTEM VALUE TABLE kept; ALTER TABLE holdfast.operator_actions ENABLE TRIGGER ALL";
    for (what, sql, place) in [
        ("a reason", "UPDATE holdfast.operator_actions SET reason = 'other' WHERE position = 7", "row 7 is wrong"),
        ("a time", "UPDATE holdfast.operator_actions SET at = at + interval '1 s' WHERE position = 9", "row 9 is wrong"),
        ("a row", "DELETE FROM holdfast.operator_actions WHERE position = 5", "the rows from 5 to 5 are gone"),
        ("the beginning", "DELETE FROM holdfast.operator_actions WHERE position < 4", "the rows from 1 to 3 are gone"),
        (
            "a hash",
            "UPDATE holdfast.operator_actions SET reason = 'other', hash = holdfast.chained(ARRAY[position::text, encode(prev_hash, 'hex'), id::text, operator_id, login,
                client, action, target, 'other', before, after, (extract(epoch FROM at) * 1000000)::bigint::text]) WHERE position = 7",
            "row 8 is wrong",
        ),
    ] {
        tamper(sql).await;
        let (code, told) = verify(&world, &[]).await;
        assert!(code == PROBLEMS && told.contains(place), "{what}: {code}: {told}");
        sqlx::raw_sql(restore).execute(&world.pool).await.unwrap();
        assert_eq!(verify(&world, &[]).await.0, 0, "{what} is back");
    }
    tamper("DELETE FROM holdfast.operator_actions WHERE position > 38").await;
    assert_eq!(verify(&world, &[]).await.0, 0, "what was cut off leaves no trace in the rest");
    let (code, told) = verify(&world, &["--kept", &head]).await;
    assert!(code == PROBLEMS && told.contains("cut off"), "{code}: {told}");
    world.finish_open().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_log_says_of_a_row_cannot_be_given_by_whoever_writes_it() {
    let world = World::start().await;
    world.engine().await;
    let pool = sqlx::PgPool::connect(world.setting("DATABASE_URL")).await.unwrap();
    let forged = "INSERT INTO holdfast.operator_actions (operator_id, login, action, target, client, position, prev_hash, hash)
                  VALUES ('anna', 'postgres', 'x', 'y', 'elsewhere', 99, sha256('a'), sha256('b'))";
    sqlx::query(forged).execute(&pool).await.unwrap();
    let row =
        world.rows("SELECT login <> 'postgres', client <> 'elsewhere', position, hash <> sha256('b') FROM holdfast.operator_actions").await;
    assert_eq!(row, ["true|true|1|true"]);
    assert_eq!(verify(&world, &[]).await.0, 0);
    world.finish().await;
}
