//! Rows of lanes, nonces and the journal, each on the real program: who may touch a nonce, how often a lane is looked at, and what is
//! told when the chain and the fence disagree.

use crate::support::anvil::{CHAIN_ID, Mining};
use crate::support::command;
use crate::support::wait::{eventually, found};
use crate::support::world::{Instance, POOL, SOON, Setup, World};
use entity::values::{Address, hex_from_bytes};
use secrecy::ExposeSecret;
use serde_json::json;
use sqlx::AssertSqlSafe;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const COUNT: &str = "eth_getTransactionCount";

fn on_demand() -> Setup {
    Setup { mining: Mining::OnDemand, ..Setup::default() }
}

/// Mines until every job has ended.
async fn mined_to_the_end(world: &World) {
    found("all jobs have ended", SOON, async || {
        world.anvil.mine(1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        (world.count("jobs WHERE finished_at IS NULL").await == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jrn_13_a_delivery_whose_attempts_are_spent_is_followed_by_a_fresh_one_with_the_same_bytes() {
    // Nobody but executions sends: no block wakes the settling of the lane, and its period is long.
    let world = World::with(on_demand().with("TX_RECONCILE_SECONDS", 600).with("JOB_MAX_ATTEMPTS", 2)).await;
    world.panics_expected.store(true, Ordering::Relaxed);
    let engine = world.engine().await;
    // Every execution gives the bytes to the chain and fails before it can say so.
    let failing = world.serve("relayer", &[("HOLDFAST_FAIL_POINT", "lane.sent:panic")]).await;
    let id = world.accept(&engine, &world.record()).await;
    eventually("a third generation runs", SOON, async || world.count("job_attempts WHERE generation = 3").await > 0).await;
    failing.kill9();
    let spent = world.rows("SELECT generation, count(*) FILTER (WHERE outcome = 'retry') AS failed FROM holdfast.job_attempts WHERE generation < 3 GROUP BY 1 ORDER BY 1").await;
    assert_eq!(spent, ["1|2", "2|2"], "as many attempts in each generation as are set");
    let kept = "SELECT l.id, l.nonce, l.signer, encode(a.hash, 'hex') AS hash, encode(a.ciphertext, 'hex') AS bytes FROM holdfast.lineages l JOIN holdfast.tx_attempts a ON a.lineage_id = l.id";
    let journal = world.rows(kept).await;
    assert_eq!(journal.len(), 1, "one nonce and one row of the journal");
    assert!(!world.state(&id).await.starts_with("dead"));
    let sends = world.sent();
    assert!(sends.len() >= 4 && sends.iter().all(|sent| sent.raw == sends[0].raw), "{} sends of the same bytes", sends.len());
    assert_eq!(world.scalar::<i32>("SELECT generation FROM holdfast.outbox").await, 3);
    // The dead one's lease is as long as its period.
    sqlx::query("UPDATE holdfast.lanes SET lease_holder = NULL, lease_until = NULL").execute(&world.pool).await.expect("the lease ends");
    world.serve("relayer", &[("TX_RECONCILE_SECONDS", "1")]).await;
    mined_to_the_end(&world).await;
    world.until_completed(SOON).await;
    assert_eq!(world.rows(kept).await, journal, "the row of the journal that it had from the beginning");
    assert!(world.sent().iter().all(|sent| sent.raw == sends[0].raw));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn non_03_pools_of_a_chain_hold_their_signers_and_all_who_joined_are_on_record() {
    let world = World::with(Setup { lanes: 2, ..Setup::default() }).await;
    let first = world.serve("all", &[]).await;
    let mut key = [0; 32];
    getrandom::fill(&mut key).expect("random bytes");
    // Below the order of the curve.
    key[0] = 1;
    let secret = web3::signing::SecretKey::from_slice(&key).expect("a key");
    let guest = Address(web3::signing::Key::address(&web3::signing::SecretKeyRef::new(&secret)).0);
    world.anvil.fund(guest, 10).await;
    let keys = json!({ "local:guests": [hex_from_bytes(&key)] }).to_string();
    let other = world.serve("relayer", &[("SIGNER_KEYS", &keys)]).await;
    // A restart joins nobody again.
    assert_eq!(other.term(SOON).await, 0, "{}", other.tail());
    world.serve("relayer", &[("SIGNER_KEYS", &keys)]).await;

    let members: HashSet<(String, String)> = world
        .signers
        .iter()
        .map(|signer| (POOL.to_owned(), signer.address.to_string()))
        .chain([("local:guests".into(), guest.to_string())])
        .collect();
    let pools = world.rows("SELECT chain_id, name FROM holdfast.pools ORDER BY name").await;
    assert_eq!(pools, [format!("{CHAIN_ID}|local:guests"), format!("{CHAIN_ID}|{POOL}")]);
    let pairs = async |sql: &str| -> Vec<(String, String)> {
        world
            .rows(sql)
            .await
            .iter()
            .map(|row| row.split_once('|').expect("two columns"))
            .map(|(pool, signer)| (pool.into(), signer.into()))
            .collect()
    };
    let of_lanes = pairs("SELECT pool, '0x' || encode(signer, 'hex') AS signer FROM holdfast.lanes").await;
    let joined = pairs("SELECT pool, '0x' || encode(signer, 'hex') AS signer FROM holdfast.signer_history WHERE change = 'joined'").await;
    let lower = |pairs: &HashSet<(String, String)>| {
        pairs.iter().map(|(pool, signer)| (pool.clone(), signer.to_lowercase())).collect::<HashSet<_>>()
    };
    assert_eq!((of_lanes.len(), of_lanes.into_iter().collect()), (3, lower(&members)));
    assert_eq!((joined.len(), joined.into_iter().collect()), (3, lower(&members)), "once each");

    let list = command::data(&world, &["lanes", "list"]).await;
    let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let listed: HashSet<_> =
        list["items"].as_array().expect("a list").iter().map(|lane| (word(&lane["pool"]), word(&lane["signer"]))).collect();
    assert_eq!(listed, members);
    let explained = command::data(&world, &["lanes", "explain", &guest.to_string()]).await;
    let memberships = explained["items"][0]["memberships"].as_array().expect("a history");
    let history: Vec<_> = memberships.iter().map(|one| (word(&one["change"]), word(&one["pool"]), word(&one["by"]))).collect();
    assert_eq!(history, [("joined".into(), "local:guests".into(), "startup".into())], "{explained}");
    let page = command::told(&world, &["lanes", "explain", &guest.to_string()]).await;
    assert!(page.lines().any(|line| line.contains("joined") && line.contains("local:guests")), "{page}");

    for name in ["relayer", "local:", ":relayer", "Local:relayer", "local:relayer:x"] {
        let sql = "INSERT INTO holdfast.pools (chain_id, name) VALUES (1, $1)";
        let refused = sqlx::query(sql).bind(name).execute(&world.pool).await.expect_err(name);
        assert_eq!(refused.as_database_error().and_then(|error| error.code()).as_deref(), Some("23514"), "{name}");
    }
    let mut job = world.record();
    job["pool"] = "local:guests".into();
    eventually("the engine has learnt of the pool", SOON, async || world.submit(&first, "guests", &job).await.status < 300).await;
    world.accept_records(&first, 4).await;
    world.until_completed(SOON).await;
    let used =
        pairs("SELECT j.pool, '0x' || encode(l.signer, 'hex') AS signer FROM holdfast.jobs j JOIN holdfast.lineages l ON l.job_id = j.id")
            .await;
    assert_eq!(used.len(), 5);
    assert_eq!(used.into_iter().collect::<HashSet<_>>(), lower(&members), "each job on a signer of its pool");
    world.finish().await;
}

/// Every command of the program, with what its help says.
async fn commands(world: &World) -> BTreeMap<String, String> {
    let (mut known, mut open) = (BTreeMap::new(), vec![Vec::<String>::new()]);
    while let Some(path) = open.pop() {
        let mut arguments: Vec<&str> = path.iter().map(String::as_str).collect();
        arguments.push("--help");
        let help = command::told(world, &arguments).await;
        let below = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| line.starts_with("  "));
        let names =
            below.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
        open.extend(names.map(|name| path.iter().cloned().chain([name.to_owned()]).collect()));
        known.insert(path.join(" "), help);
    }
    known
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn non_07_nobody_deletes_or_moves_a_nonce_whose_transaction_has_not_ended() {
    let world = World::with(on_demand()).await;
    let all = world.serve("all", &[]).await;
    world.accept_records(&all, 3).await;
    eventually("all are sent", SOON, async || world.count("jobs WHERE state = 'submitted'").await == 3).await;
    let standing = "SELECT l.id, l.job_id, l.lane_id, l.chain_id, l.signer, l.nonce, l.state, n.next_nonce, encode(a.hash, 'hex') AS hash
                    FROM holdfast.lineages l JOIN holdfast.lanes n ON n.id = l.lane_id JOIN holdfast.tx_attempts a ON a.lineage_id = l.id ORDER BY l.nonce";
    let before = world.rows(standing).await;
    assert_eq!(before.len(), 3);
    let runtime = sqlx::PgPool::connect(world.database.runtime.expose_secret()).await.expect("the runtime logs in");
    let code = async |pool: &sqlx::PgPool, sql: &str| {
        let error = sqlx::query(AssertSqlSafe(sql.to_owned())).execute(pool).await.expect_err(sql);
        error.as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned()
    };
    // The services and the commands of operators have one login; what it has no right to is refused before anything is looked at.
    for sql in [
        "DELETE FROM holdfast.lineages",
        "DELETE FROM holdfast.tx_attempts",
        "DELETE FROM holdfast.lanes",
        "DELETE FROM holdfast.signers",
        "TRUNCATE holdfast.lineages CASCADE",
        "UPDATE holdfast.lineages SET nonce = nonce + 1",
        "UPDATE holdfast.lineages SET job_id = gen_random_uuid()",
        "UPDATE holdfast.lineages SET signer = '\\x00'",
        "UPDATE holdfast.lineages SET lane_id = lane_id + 1",
        "UPDATE holdfast.lineages SET chain_id = 1",
        "UPDATE holdfast.lineages SET data = ''",
        "UPDATE holdfast.lanes SET signer = '\\x00'",
        "ALTER TABLE holdfast.lanes DISABLE TRIGGER ALL",
    ] {
        assert_eq!(code(&runtime, sql).await, "42501", "{sql}");
    }
    // What the service itself writes is guarded where it is written; so is everything from the owner of the schema.
    let guarded = [
        "UPDATE holdfast.lanes SET next_nonce = next_nonce + 1",
        "UPDATE holdfast.lanes SET next_nonce = next_nonce - 1",
        "UPDATE holdfast.lanes SET next_nonce = 0",
        "UPDATE holdfast.lineages SET state = 'abandoned', ended_at = now() WHERE nonce = 2",
    ];
    for sql in guarded {
        assert_eq!(code(&runtime, sql).await, "23001", "{sql}");
        assert_eq!(code(&world.pool, sql).await, "23001", "{sql}");
    }
    for sql in ["DELETE FROM holdfast.lineages", "DELETE FROM holdfast.lineages WHERE nonce = 2"] {
        assert_eq!(code(&world.pool, sql).await, "23001", "{sql}");
    }
    runtime.close().await;
    assert_eq!(world.rows(standing).await, before);

    let commands = commands(&world).await;
    assert!(commands.contains_key("lanes explain") && commands.contains_key("jobs cancel"), "{:?}", commands.keys());
    for (name, help) in &commands {
        let options = help.split_whitespace().filter(|word| word.starts_with("--"));
        for word in name.split(' ').chain(options) {
            let acts = ["nonce", "fence", "skip", "advance", "delete", "remove", "reset"];
            assert!(!acts.iter().any(|act| word.contains(act)), "{word} of holdfast {name}");
        }
    }
    mined_to_the_end(&world).await;
    world.until_completed(SOON).await;
    world.finish().await;
}

/// Notes when the first provider is asked how far an account has come.
fn looks(world: &World) -> Arc<Mutex<Vec<Instant>>> {
    let times: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let noted = times.clone();
    drop(world.providers[0].crash_before(COUNT, Arc::new(move |_| noted.lock().unwrap().push(Instant::now()))));
    times
}

/// The times between rounds, in milliseconds: questions closer than half of the period belong to one round.
async fn between_rounds(times: &Mutex<Vec<Instant>>, period: Duration, wanted: usize) -> Vec<u128> {
    times.lock().unwrap().clear();
    found("enough rounds", SOON, async || {
        let times = times.lock().unwrap().clone();
        let mut rounds: Vec<Instant> = Vec::new();
        let mut last: Option<Instant> = None;
        for time in times {
            if last.is_none_or(|last| time - last > period / 2) {
                rounds.push(time);
            }
            last = Some(time);
        }
        // The first may have begun before it was looked at.
        let waits: Vec<u128> = rounds.windows(2).skip(1).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
        (waits.len() >= wanted).then_some(waits)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn txr_01_a_lane_is_looked_at_in_its_period_by_one_process_and_by_the_next_when_that_dies() {
    let world = World::with(on_demand()).await;
    let engine = world.engine().await;
    let every = |seconds: &'static str, name: &'static str| [("TX_RECONCILE_SECONDS", seconds), ("INSTANCE_ID", name)];
    let slow: Vec<Arc<Instance>> = vec![world.serve("relayer", &every("3", "a")).await, world.serve("relayer", &every("3", "b")).await];
    let times = looks(&world);
    // No block is mined, so that only the period makes rounds; two processes that both worked would show shorter waits.
    let waits = between_rounds(&times, Duration::from_secs(3), 3).await;
    assert!(waits.iter().all(|wait| (2_900..4_500).contains(wait)), "{waits:?}");
    for relayer in &slow {
        assert_eq!(relayer.term(SOON).await, 0, "{}", relayer.tail());
    }
    let quick: BTreeMap<&str, Arc<Instance>> =
        [("c", world.serve("relayer", &every("1", "c")).await), ("d", world.serve("relayer", &every("1", "d")).await)].into();
    let waits = between_rounds(&times, Duration::from_secs(1), 4).await;
    assert!(waits.iter().all(|wait| (900..2_500).contains(wait)), "{waits:?}");

    world.accept_records(&engine, 4).await;
    eventually("all are sent", SOON, async || world.count("jobs WHERE state = 'submitted'").await == 4).await;
    let holder = async || -> String {
        world.scalar("SELECT w.instance FROM holdfast.lanes n JOIN holdfast.workers w ON w.id = n.lease_holder").await
    };
    let first = holder().await;
    quick[first.as_str()].kill9();
    mined_to_the_end(&world).await;
    world.until_completed(SOON).await;
    let second = holder().await;
    assert!(second != first && quick.contains_key(second.as_str()), "{first} died and {second} settled");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn txr_02_chain_and_fence_that_disagree_are_told_apart_and_the_fence_never_moves_in_silence() {
    let world = World::with(on_demand()).await;
    let all = world.serve("all", &[]).await;
    let signer = world.signers[0].address;
    let gauge = async |name: &str| world.metric(&all, &format!("holdfast_signer_nonce_{name}"), &[]).await;
    let becomes = async |name: &str, value: f64| {
        eventually(&format!("{name} is {value}"), SOON, async || gauge(name).await == value).await;
    };
    let fence = async || world.scalar::<i64>("SELECT next_nonce FROM holdfast.lanes").await;
    let acts = "operator_actions WHERE action = 'lanes.adopt_used_nonces'";

    // What is sent and not mined is no drift: the fence and the pool agree.
    world.accept_records(&all, 3).await;
    becomes("pending", 3.0).await;
    becomes("fence", 3.0).await;
    assert_eq!((gauge("latest").await, gauge("drift").await), (0.0, 0.0));
    mined_to_the_end(&world).await;
    world.until_completed(SOON).await;
    becomes("latest", 3.0).await;

    // The chain has forgotten nonces that were given out and have ended.
    world.anvil.set_nonce(signer, 1).await;
    becomes("drift", -2.0).await;
    assert_eq!((fence().await, gauge("latest").await), (3, 1.0));
    world.anvil.set_nonce(signer, 3).await;
    becomes("drift", 0.0).await;

    // A stranger has used nonces that were never given out: told at once, and followed only at TX_CONFIRMATIONS.
    world.foreign_nonces.lock().unwrap().extend([3, 4]);
    world.anvil.set_nonce(signer, 5).await;
    becomes("drift", 2.0).await;
    assert_eq!((fence().await, world.count(acts).await), (3, 0));
    assert!(!all.log.has("foreign_nonce_use"));
    world.anvil.mine(3).await;
    eventually("the fence has followed", SOON, async || fence().await == 5).await;
    assert_eq!(world.rows(&format!("SELECT operator_id, before, after FROM holdfast.{acts}")).await, ["holdfast|3|5"]);
    all.logged("foreign_nonce_use", SOON).await;
    assert_eq!(world.metric(&all, "holdfast_foreign_nonce_use_total", &[]).await, 2.0);
    becomes("drift", 0.0).await;
    let next = world.accept(&all, &world.record()).await;
    mined_to_the_end(&world).await;
    world.until_state(&next, "completed").await;
    assert_eq!(world.job(&all, &next).await["transaction"]["nonce"], 5);
    world.finish().await;
}
