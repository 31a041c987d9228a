//! The checks that end every test see what they are there to see: each is shown its own kind of damage.

use crate::support::invariants::broken;
use crate::support::world::{SOON, World};
use serde_json::json;
use sqlx::AssertSqlSafe;

/// Damage that Postgres undoes afterwards, and the name of the check that must notice it.
const DAMAGES: [(&str, &str); 9] = [
    ("UPDATE holdfast.jobs SET data = overlay(data PLACING '\\xff' FROM 36)", "each effect happens exactly once"),
    (
        "UPDATE holdfast.jobs SET state = 'dead' WHERE id = (SELECT min(id::text)::uuid FROM holdfast.jobs)",
        "each effect happens exactly once",
    ),
    ("UPDATE holdfast.lineages SET nonce = 7 WHERE nonce = 1", "nonces are dense"),
    ("UPDATE holdfast.lanes SET next_nonce = next_nonce + 1", "nonces are dense"),
    ("DELETE FROM holdfast.tx_attempts", "nothing is sent that is not journaled"),
    ("UPDATE holdfast.lineages SET block_hash = mined_hash", "stored outcomes are those of the chain"),
    ("UPDATE holdfast.jobs SET version = version + 1", "the history of a job has no hole"),
    ("UPDATE holdfast.outbox SET next_at = now() + interval '1 day'", "nothing is delivered after the end"),
    ("DELETE FROM holdfast.outbox", "a job and its delivery exist together"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_invariant_notices_its_own_kind_of_damage() {
    let world = World::start().await;
    let all = world.serve("all", &[]).await;
    world.accept_records(&all, 3).await;
    world.until_completed(SOON).await;
    all.kill9();
    assert_eq!(broken(&world).await, Vec::<String>::new());
    for table in ["jobs", "lineages", "lanes", "tx_attempts", "outbox"] {
        sqlx::query(AssertSqlSafe(format!("CREATE TABLE kept_{table} AS TABLE holdfast.{table}")))
            .execute(&world.pool)
            .await
            .expect("a copy");
    }
    for (damage, check) in DAMAGES {
        let mut tx = world.pool.begin().await.expect("a transaction");
        // Past the guards of the schema, which would refuse it: the checks stand behind them.
        sqlx::query("SET LOCAL session_replication_role = replica").execute(&mut *tx).await.expect("a setting");
        sqlx::query(damage).execute(&mut *tx).await.unwrap_or_else(|error| panic!("{damage}: {error}"));
        tx.commit().await.expect("damaged");
        let faults = broken(&world).await;
        assert!(faults.iter().any(|fault| fault.starts_with(check)), "{damage}: {faults:?}");
        restore(&world).await;
    }
    assert_eq!(broken(&world).await, Vec::<String>::new(), "all was put back");
    // An effect that no job stands for.
    let stray = json!([{"from": "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266", "to": world.record()["to"], "data": world.record()["data"]}]);
    let hash = world.anvil.ask("eth_sendTransaction", stray).await;
    crate::support::wait::eventually("it is mined", SOON, async || !world.anvil.receipt(hash.as_str().unwrap()).await.is_null()).await;
    assert!(broken(&world).await.iter().any(|fault| fault.contains("belongs to no job")));
}

async fn restore(world: &World) {
    let mut tx = world.pool.begin().await.expect("a transaction");
    // The copies hold what the keys between the tables allow; only their order would not.
    sqlx::query("SET LOCAL session_replication_role = replica").execute(&mut *tx).await.expect("a setting");
    for table in ["jobs", "lineages", "tx_attempts", "outbox"] {
        for sql in [format!("DELETE FROM holdfast.{table}"), format!("INSERT INTO holdfast.{table} SELECT * FROM kept_{table}")] {
            sqlx::query(AssertSqlSafe(sql.clone())).execute(&mut *tx).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
    }
    sqlx::query("UPDATE holdfast.lanes l SET next_nonce = k.next_nonce FROM kept_lanes k WHERE k.id = l.id")
        .execute(&mut *tx)
        .await
        .expect("fences");
    tx.commit().await.expect("restored");
}
