//! Keys and who holds them: drains, the proofs behind retiring a signer or a journal key, the hand-over in a pool, what a missing or spent
//! journal key does, and signers whose keys are elsewhere; each on the real program, Postgres and node, through three hosts.

use crate::support::anvil::{CHAIN_ID, Mining};
use crate::support::command::{self, run};
use crate::support::wait::eventually;
use crate::support::world::{Instance, POOL, SOON, Setup, World};
use entity::values::{Address, hex_from_bytes};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use std::sync::Arc;
use std::time::Duration;

const SEND: &str = "eth_sendRawTransaction";

fn on_demand() -> Setup {
    Setup { mining: Mining::OnDemand, ..Setup::default() }.with("TX_REORG_LOOKBACK_BLOCKS", 4)
}

/// Mines one block after the other until every job has ended.
async fn mined_to_the_end(world: &World) {
    eventually("all jobs have ended", SOON, async || {
        world.anvil.mine(1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.count("jobs WHERE finished_at IS NULL").await == 0
    })
    .await;
}

/// What the owner does to the tables behind all guards.
async fn forced(world: &World, sql: &str) {
    let guards = |word: &str| format!("ALTER TABLE holdfast.lineages {word} TRIGGER USER; ALTER TABLE holdfast.lanes {word} TRIGGER USER;");
    let sql = format!("BEGIN; {} {sql}; {} COMMIT", guards("DISABLE"), guards("ENABLE"));
    sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(&world.pool).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Everything that was ever used was used longer ago.
async fn age(world: &World, days: u32) {
    let by = format!("interval '{days} days'");
    forced(
        world,
        &format!(
            "UPDATE holdfast.tx_attempts SET created_at = created_at - {by};
             UPDATE holdfast.lineages SET created_at = created_at - {by}, last_sent_at = last_sent_at - {by}, ended_at = ended_at - {by}"
        ),
    )
    .await;
}

fn urls(world: &World, count: usize) -> String {
    world.providers[..count].iter().map(|provider| provider.url.as_str()).collect::<Vec<_>>().join(",")
}

/// A command that may ask the chain, through all three hosts.
async fn asked(world: &World, arguments: &[&str], more: &[(&str, &str)]) -> (i32, String) {
    let (write, read, id) = (world.providers[0].url.clone(), urls(world, 3), CHAIN_ID.to_string());
    let mut environment: Vec<(&str, &str)> = vec![
        ("RPC_URL", &write),
        ("RPC_READ_URLS", &read),
        ("CHAIN_ID", &id),
        ("TX_CONFIRMATIONS", "2"),
        ("TX_REORG_LOOKBACK_BLOCKS", "4"),
    ];
    environment.extend(more.iter().copied());
    run(world, arguments, &environment).await
}

/// Insists that a gate refused.
fn refused((code, told): (i32, String), gate: &str) -> String {
    assert!(code == 4 && told.contains(&format!("gate: {gate}")), "exit {code}, not refused by {gate}:\n{told}");
    told
}

fn passed((code, told): (i32, String)) -> String {
    assert_eq!(code, 0, "{told}");
    told
}

/// A key that nobody else has.
fn new_key() -> (String, Address) {
    let mut key = [0; 32];
    getrandom::fill(&mut key).expect("random bytes");
    // Below the order of the curve.
    key[0] = 1;
    let secret = web3::signing::SecretKey::from_slice(&key).expect("a key");
    let address = Address(web3::signing::Key::address(&web3::signing::SecretKeyRef::new(&secret)).0);
    (hex_from_bytes(&key), address)
}

async fn process(world: &World, instance: &str, column: &str) -> String {
    world
        .scalar(&format!("SELECT {column}::text FROM holdfast.workers WHERE instance = '{instance}' ORDER BY started_at DESC LIMIT 1"))
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drn_01_drn_02_a_drained_process_holds_nothing_and_takes_nothing_while_its_sibling_works() {
    let world = World::start().await;
    let engine = world.engine().await;
    let first = world.serve("relayer", &[("INSTANCE_ID", "node-a")]).await;
    let hang = world.writer().hang(SEND, Duration::from_secs(6));
    let held = world.accept(&engine, &world.record()).await;
    eventually("it is at work", SOON, async || world.writer().calls(SEND) > 0).await;
    let (code, told) = run(&world, &["jobs", "drain", "node-a", "1"], &[]).await;
    assert!(code == 5 && told.contains("it stays marked") && told.contains("drain-a-worker"), "exit {code}: {told}");
    assert_eq!(process(&world, "node-a", "state").await, "draining", "a wait that ran out leaves the mark");
    hang.lift();
    let (code, told) = run(&world, &["jobs", "drain", "node-a", "60"], &[]).await;
    assert!(code == 0 && told.contains("node-a is drained"), "exit {code}: {told}");
    assert_eq!(process(&world, "node-a", "state || ' ' || processing").await, "drained 0");
    let taken = world.count("job_attempts").await;
    assert!(taken >= 1, "what it held was finished by itself");
    first.logged("worker_drain", SOON).await;

    world.serve("relayer", &[("INSTANCE_ID", "node-b")]).await;
    world.accept_records(&engine, 8).await;
    world.until_completed(SOON).await;
    assert_eq!(world.state(&held).await, "completed");
    let by = world.rows("SELECT DISTINCT w.instance FROM holdfast.job_attempts a JOIN holdfast.workers w ON w.id = a.worker_id WHERE a.started_at > (SELECT max(at) FROM holdfast.operator_actions) ORDER BY 1").await;
    assert_eq!(by, ["node-b"], "only the sibling has worked since");
    assert_eq!(process(&world, "node-b", "state").await, "active");
    let acts =
        world.rows("SELECT action, operator_id, after FROM holdfast.operator_actions WHERE action LIKE 'workers.%' ORDER BY id").await;
    assert_eq!(acts, ["workers.drain|tester|draining", "workers.drain|tester|unchanged"]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drn_03_a_drain_is_taken_back_for_the_same_living_process_only() {
    let world = World::start().await;
    let engine = world.engine().await;
    let first = world.serve("relayer", &[("INSTANCE_ID", "node-a")]).await;
    refused(run(&world, &["jobs", "undrain", "node-a"], &[]).await, "not-draining");
    assert_eq!(run(&world, &["jobs", "undrain", "node-z"], &[]).await.0, 3);
    assert_eq!(run(&world, &["jobs", "drain", "node-a"], &[("OPERATOR_ID", "")]).await.0, 2, "somebody has to be named");
    passed(run(&world, &["jobs", "drain", "node-a", "60"], &[]).await);
    passed(run(&world, &["jobs", "undrain", "node-a"], &[]).await);
    world.accept_records(&engine, 3).await;
    world.until_completed(SOON).await;

    passed(run(&world, &["jobs", "drain", "node-a", "60"], &[]).await);
    first.kill9();
    forced(&world, "UPDATE holdfast.workers SET heartbeat_at = heartbeat_at - interval '10 minutes'").await;
    let told = refused(run(&world, &["jobs", "undrain", "node-a"], &[]).await, "heartbeat");
    assert!(told.contains("gives no heartbeat"), "{told}");
    world.serve("relayer", &[("INSTANCE_ID", "node-a")]).await;
    let told = refused(run(&world, &["jobs", "undrain", "node-a"], &[]).await, "not-draining");
    assert!(told.contains("belongs to the start that it was given to"), "{told}");
    world.accept_records(&engine, 1).await;
    world.until_completed(SOON).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drn_04_drn_15_a_drained_signer_gets_no_nonce_from_any_process_and_its_open_nonces_are_told() {
    let world = World::with(on_demand()).await;
    let engine = world.engine().await;
    for name in ["node-a", "node-b"] {
        world.serve("relayer", &[("INSTANCE_ID", name)]).await;
    }
    world.accept_records(&engine, 3).await;
    eventually("three are sent", SOON, async || world.count("lineages WHERE state = 'broadcast'").await == 3).await;
    let signer = world.signers[0].address.to_string();
    let (code, told) = run(&world, &["jobs", "signer-drain", &signer, "1"], &[]).await;
    assert_eq!(code, 5, "{told}");
    for nonce in 0..3 {
        assert!(told.contains(&format!("nonce {nonce} broadcast")), "{told}");
    }
    for lineage in world.rows("SELECT id FROM holdfast.lineages").await {
        assert!(told.contains(&lineage), "{told}");
    }
    assert!(told.contains("docs/operations.md#rotate-a-signer"), "{told}");
    assert_eq!(world.rows("SELECT state, reason FROM holdfast.lanes").await, ["draining|drain"]);
    // Rotation is refused as long as this stands.
    let (_, other) = new_key();
    let rotate = ["jobs", "signer-pool-rotate", &CHAIN_ID.to_string(), POOL, &signer, &other.to_string(), "--unloaded"];
    refused(asked(&world, &rotate, &[]).await, "signer-not-drained");

    world.accept_records(&engine, 6).await;
    let turned_away = "SELECT count(DISTINCT worker_id) FROM holdfast.job_attempts WHERE outcome = 'snoozed'";
    eventually("both processes found no lane", SOON, async || world.scalar::<i64>(turned_away).await == 2).await;
    assert_eq!(world.count("lineages").await, 3, "no allocation after the fence");
    eventually("the open ones have ended", SOON, async || {
        world.anvil.mine(1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.count("lineages WHERE ended_at IS NULL").await == 0
    })
    .await;
    let told = passed(run(&world, &["jobs", "signer-drain", &signer], &[]).await);
    assert!(told.contains("is drained"), "{told}");
    assert_eq!(world.scalar::<String>("SELECT state FROM holdfast.lanes").await, "drained");
    assert_eq!((world.count("lineages").await, world.count("jobs WHERE finished_at IS NULL").await), (3, 6));

    passed(run(&world, &["jobs", "signer-undrain", &signer], &[]).await);
    refused(run(&world, &["jobs", "signer-undrain", &signer], &[]).await, "not-draining");
    mined_to_the_end(&world).await;
    world.until_completed(SOON).await;
    let acts = "SELECT action, operator_id, after FROM holdfast.operator_actions WHERE action LIKE 'signers.%' ORDER BY id";
    let chain = CHAIN_ID;
    let kept = world.rows(acts).await;
    assert_eq!(
        kept,
        [
            format!("signers.drain|tester|{chain} draining"),
            "signers.drain|tester|unchanged".into(),
            format!("signers.undrain|tester|{chain} active"),
            "signers.undrain|tester|unchanged".into(),
        ]
    );
    world.finish().await;
}

/// A world in which the only signer has ended `jobs` jobs, is drained, and was last used 8 days ago.
async fn rested(jobs: usize) -> (World, Arc<Instance>, String) {
    let world = World::with(on_demand()).await;
    let all = world.serve("all", &[]).await;
    world.accept_records(&all, jobs).await;
    mined_to_the_end(&world).await;
    world.until_completed(SOON).await;
    let signer = world.signers[0].address.to_string();
    passed(run(&world, &["jobs", "signer-drain", &signer, "30"], &[]).await);
    age(&world, 8).await;
    (world, all, signer)
}

/// The newest proof: whether it passed, and its facts.
async fn proof(world: &World, subject: &str) -> (bool, Value) {
    let row = format!("FROM holdfast.retirement_proofs WHERE lower(subject) = lower('{subject}') ORDER BY id DESC LIMIT 1");
    let text: String = world.scalar(&format!("SELECT proof::text {row}")).await;
    (world.scalar(&format!("SELECT passed {row}")).await, serde_json::from_str(&text).expect("JSON"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drn_05_drn_10_drn_11_drn_12_a_signer_may_go_once_a_majority_of_three_hosts_shows_every_end_deep_and_unchanged() {
    let (world, _all, signer) = rested(3).await;
    let check = ["jobs", "signer-retire-check", &signer];
    world.anvil.mine(10).await;
    let told = passed(asked(&world, &check, &[]).await);
    assert!(told.contains("may go") && told.contains("127.0.0.3"), "{told}");
    let (ok, facts) = proof(&world, &signer).await;
    assert!(ok, "{facts}");
    let chain = &facts["chains"][0];
    assert_eq!((chain["hosts"].as_u64(), chain["receipts"].as_u64(), chain["lookback"].as_u64()), (Some(3), Some(3), Some(4)), "{facts}");
    assert_eq!(chain["head"].as_u64(), Some(world.anvil.height().await));

    // The boundary: exactly as deep as TX_REORG_LOOKBACK_BLOCKS, and one block less.
    let highest = u64::try_from(world.scalar::<i64>("SELECT max(block_number) FROM holdfast.lineages").await).unwrap();
    let deep = world.anvil.height().await - highest;
    passed(asked(&world, &check, &[("TX_REORG_LOOKBACK_BLOCKS", &deep.to_string())]).await);
    let told = refused(asked(&world, &check, &[("TX_REORG_LOOKBACK_BLOCKS", &(deep + 1).to_string())]).await, "receipt-depth");
    assert!(told.contains(&format!("in block {highest} ")), "{told}");
    assert!(!proof(&world, &signer).await.0, "what did not pass is kept too");

    // Two hosts are no three, whoever says so.
    let two = urls(&world, 2);
    refused(asked(&world, &check, &[("RPC_READ_URLS", &two)]).await, "independent-hosts");
    let same = [urls(&world, 1), format!("{}/other", world.providers[0].url)].join(",");
    assert_eq!(asked(&world, &check, &[("RPC_READ_URLS", &same)]).await.0, 2, "a host has one vote");
    // One that is ahead, behind or away changes nothing; with two away there is no majority.
    world.providers[2].lag(6);
    passed(asked(&world, &check, &[]).await);
    world.providers[2].heal();
    drop(world.providers[2].status("*", 500));
    passed(asked(&world, &check, &[]).await);
    drop(world.providers[1].status("*", 500));
    refused(asked(&world, &check, &[]).await, "quorum");
    world.providers.iter().for_each(|provider| provider.heal());
    // The head is the one that two of three have reached, not the highest.
    world.providers[1].lag(deep);
    world.providers[2].lag(deep);
    refused(asked(&world, &check, &[("TX_REORG_LOOKBACK_BLOCKS", &deep.to_string())]).await, "receipt-depth");
    world.providers.iter().for_each(|provider| provider.heal());

    // A reorganisation that nobody here has seen: the journal names a block that is not the one of the chain.
    forced(&world, "UPDATE holdfast.lineages SET block_hash = sha256(block_hash) WHERE nonce = 1").await;
    let told = refused(asked(&world, &check, &[]).await, "canonical-hash");
    let orphan: String = world.scalar("SELECT id::text FROM holdfast.lineages WHERE nonce = 1").await;
    assert!(told.contains(&orphan) && told.contains("not the one of a majority"), "{told}");
    let (ok, facts) = proof(&world, &signer).await;
    assert_eq!(
        (ok, facts["fault_count"].as_u64(), facts["faults"][0]["gate"].as_str()),
        (false, Some(1), Some("canonical-hash")),
        "{facts}"
    );
    let hash: String = world
        .anvil
        .ask(
            "eth_getBlockByNumber",
            json!([format!("{:#x}", world.scalar::<i64>("SELECT block_number FROM holdfast.lineages WHERE nonce = 1").await), false]),
        )
        .await["hash"]
        .as_str()
        .unwrap()
        .trim_start_matches("0x")
        .to_owned();
    forced(&world, &format!("UPDATE holdfast.lineages SET block_hash = '\\x{hash}' WHERE nonce = 1")).await;
    assert_eq!(asked(&world, &["jobs", "signer-retire-check", "0x00000000000000000000000000000000000000aa"], &[]).await.0, 3);
    assert_eq!(asked(&world, &check, &[("OPERATOR_ID", "")]).await.0, 2);
    let acts = world.count("operator_actions WHERE action = 'signers.retire_check'").await;
    assert_eq!(acts, world.count("retirement_proofs").await, "each is on record, with who asked");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drn_08_drn_09_a_key_with_open_rows_or_within_the_window_stays_and_no_setting_shortens_the_window() {
    let world = World::with(on_demand()).await;
    let all = world.serve("all", &[]).await;
    world.accept_records(&all, 2).await;
    eventually("both are sent", SOON, async || world.count("lineages WHERE state = 'broadcast'").await == 2).await;
    let check = ["jobs", "key-retire-check", "test-1"];
    let told = refused(asked(&world, &check, &[]).await, "active-lineages");
    for lineage in world.rows("SELECT id FROM holdfast.lineages").await {
        assert!(told.contains(&lineage) && told.contains("#rotate-a-journal-key"), "{told}");
    }
    let signer = world.signers[0].address.to_string();
    refused(asked(&world, &["jobs", "signer-retire-check", &signer], &[]).await, "signer-not-drained");
    mined_to_the_end(&world).await;
    world.anvil.mine(10).await;
    let told = refused(asked(&world, &check, &[]).await, "incident-retention");
    assert!(told.contains("kept for 7d"), "{told}");
    for short in ["0", "86399"] {
        assert_eq!(asked(&world, &check, &[("INCIDENT_RETENTION_SECONDS", short)]).await.0, 2, "{short}");
    }
    refused(asked(&world, &check, &[("INCIDENT_RETENTION_SECONDS", "86400")]).await, "incident-retention");
    age(&world, 8).await;
    refused(asked(&world, &check, &[("INCIDENT_RETENTION_SECONDS", "864000")]).await, "incident-retention");
    let told = passed(asked(&world, &check, &[]).await);
    assert!(told.contains("test-1 may go"), "{told}");
    assert!(proof(&world, "test-1").await.0);
    let keys = json!({ "test-1": format!("0x{}", "11".repeat(32)) }).to_string();
    let active = [("TX_JOURNAL_KEYS", keys.as_str()), ("TX_JOURNAL_ACTIVE_KEY_ID", "test-1")];
    refused(asked(&world, &check, &active).await, "key-active");
    assert_eq!(asked(&world, &["jobs", "key-retire-check", "nobody"], &[]).await.0, 3);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drn_06_drn_07_a_place_in_a_pool_is_handed_over_within_15_minutes_of_the_proof_and_all_at_once() {
    let (world, all, old) = rested(2).await;
    let (key, new) = new_key();
    world.anvil.fund(new, 10).await;
    world.anvil.set_nonce(new, 7).await;
    world.anvil.mine(10).await;
    let (chain, new_text) = (CHAIN_ID.to_string(), new.to_string());
    let rotate = ["jobs", "signer-pool-rotate", &chain, POOL, &old, &new_text];
    let unloaded = [&rotate[..], &["--unloaded"]].concat();
    let lanes = "SELECT '0x' || encode(signer, 'hex') AS signer, state, next_nonce FROM holdfast.lanes ORDER BY id";
    let before = world.rows(lanes).await;
    refused(asked(&world, &unloaded, &[]).await, "retirement-proof");
    let prove = ["jobs", "signer-retire-check", &old];
    passed(asked(&world, &prove, &[]).await);
    forced(&world, "UPDATE holdfast.retirement_proofs SET at = at - interval '15 minutes'").await;
    refused(asked(&world, &unloaded, &[]).await, "proof-age");
    passed(asked(&world, &prove, &[]).await);
    // A later check that fails takes the earlier proof away.
    refused(asked(&world, &prove, &[("INCIDENT_RETENTION_SECONDS", "864000")]).await, "incident-retention");
    refused(asked(&world, &unloaded, &[]).await, "retirement-proof");
    passed(asked(&world, &prove, &[]).await);
    refused(asked(&world, &rotate, &[]).await, "signer-not-loaded");
    let elsewhere = ["jobs", "signer-pool-rotate", &chain, "local:other", &old, &new_text, "--unloaded"];
    refused(asked(&world, &elsewhere, &[]).await, "other-pool");
    assert_eq!(asked(&world, &unloaded, &[("OPERATOR_ID", "")]).await.0, 2);
    assert_eq!(world.rows(lanes).await, before, "nothing of it was done");
    assert_eq!(world.count("signer_history").await, 1);

    let told = passed(asked(&world, &unloaded, &[]).await);
    assert!(told.contains(&new_text) && told.contains("SIGNER_KEYS"), "{told}");
    let lower = |text: &str| text.to_lowercase();
    assert_eq!(world.rows(lanes).await, [format!("{}|retired|2", lower(&old)), format!("{}|active|7", lower(&new_text))]);
    let history =
        world.rows("SELECT '0x' || encode(signer, 'hex') AS signer, change, pool, actor FROM holdfast.signer_history ORDER BY id").await;
    assert_eq!(history[1..], [format!("{}|left|{POOL}|tester", lower(&old)), format!("{}|joined|{POOL}|tester", lower(&new_text))]);
    let proof: i64 = world.scalar("SELECT max(id) FROM holdfast.retirement_proofs").await;
    let act = world
        .rows("SELECT target, before, after FROM holdfast.operator_actions WHERE action = 'pools.rotate' ORDER BY id DESC LIMIT 1")
        .await;
    assert_eq!(act, [format!("{chain} {POOL}|{} drained|{} from nonce 7, proof {proof}", lower(&old), lower(&new_text))]);
    refused(asked(&world, &unloaded, &[]).await, "signer-not-drained");
    refused(run(&world, &["jobs", "signer-undrain", &old], &[]).await, "not-draining");

    // The old key may still be loaded: it gets nothing. Once the new one is, it goes on from its own nonce.
    let id = world.accept(&all, &world.record()).await;
    let keys = json!({ POOL: [key] }).to_string();
    let engine_only = world.serve("relayer", &[("SIGNER_KEYS", &keys)]).await;
    mined_to_the_end(&world).await;
    assert!(engine_only.is_alive());
    world.until_state(&id, "completed").await;
    let used =
        world.rows("SELECT '0x' || encode(signer, 'hex') AS signer, nonce FROM holdfast.lineages ORDER BY created_at DESC LIMIT 1").await;
    assert_eq!(used, [format!("{}|7", lower(&new_text))]);
    world.finish().await;
}

/// The keys of the world's journal and another one, by id.
fn journal_keys(world: &World, with: &[&str]) -> String {
    let own: Value = serde_json::from_str(world.setting("TX_JOURNAL_KEYS")).expect("JSON");
    let all = json!({ "test-1": own["test-1"], "test-2": format!("0x{}", "22".repeat(32)) });
    let kept = with.iter().map(|id| ((*id).to_owned(), all[*id].clone()));
    Value::Object(kept.collect()).to_string()
}

async fn why_unready(world: &World, at: &Instance) -> String {
    let answer = world.client.get(format!("{}/readyz", at.admin)).send().await.expect("an answer");
    let status = answer.status().as_u16();
    format!("{status} {}", answer.text().await.expect("text"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jrn_04_drn_13_an_old_key_opens_what_it_sealed_the_active_one_seals_and_without_the_old_one_nothing_is_ready() {
    let world = World::with(on_demand()).await;
    let engine = world.engine().await;
    let first = world.serve("relayer", &[("HOLDFAST_FAIL_POINT", "journal.committed")]).await;
    let id = world.accept(&engine, &world.record()).await;
    assert_eq!(first.exit(SOON).await, -9);
    let bytes = world.rows("SELECT key_id, encode(hash, 'hex') AS hash FROM holdfast.tx_attempts").await;
    assert!(bytes.len() == 1 && bytes[0].starts_with("test-1|"), "{bytes:?}");
    let (new, both) = (journal_keys(&world, &["test-2"]), journal_keys(&world, &["test-1", "test-2"]));
    let without = world.launch("relayer", &[("TX_JOURNAL_KEYS", &new), ("TX_JOURNAL_ACTIVE_KEY_ID", "test-2")]);
    eventually("it says which key is missing", SOON, async || {
        world.client.get(format!("{}/readyz", without.admin)).send().await.is_ok() && why_unready(&world, &without).await.contains("test-1")
    })
    .await;
    let told = why_unready(&world, &without).await;
    assert!(told.starts_with("503 ") && told.contains("TX_JOURNAL_KEYS lacks test-1"), "{told}");
    assert_eq!(world.sent().len(), 0);
    without.kill9();
    world.serve("relayer", &[("TX_JOURNAL_KEYS", &both), ("TX_JOURNAL_ACTIVE_KEY_ID", "test-2")]).await;
    world.accept(&engine, &world.record()).await;
    mined_to_the_end(&world).await;
    world.until_completed(SOON).await;
    assert_eq!(world.state(&id).await, "completed");
    let keys = world.rows("SELECT l.nonce, a.key_id, encode(a.hash, 'hex') AS hash FROM holdfast.tx_attempts a JOIN holdfast.lineages l ON l.id = a.lineage_id ORDER BY l.nonce").await;
    assert!(keys.len() == 2 && keys[0].ends_with(&bytes[0]) && keys[1].starts_with("1|test-2|"), "{keys:?}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jrn_03_sealed_bytes_that_were_moved_to_another_row_or_key_are_never_sent() {
    let world = World::with(on_demand()).await;
    let engine = world.engine().await;
    let first = world.serve("relayer", &[("HOLDFAST_FAIL_POINT", "journal.committed:2"), ("QUEUE_CONCURRENCY", "1")]).await;
    let hang = world.writer().reset(SEND);
    world.accept(&engine, &world.record()).await;
    eventually("one is in the journal", SOON, async || world.count("tx_attempts").await == 1).await;
    world.accept(&engine, &world.record()).await;
    assert_eq!(first.exit(SOON).await, -9);
    assert_eq!(world.count("tx_attempts").await, 2);
    hang.lift();
    let swap = "UPDATE holdfast.tx_attempts a SET ciphertext = b.ciphertext, iv = b.iv FROM holdfast.tx_attempts b WHERE a.hash <> b.hash";
    let rename = |to: &str| format!("UPDATE holdfast.tx_attempts SET key_id = '{to}'");
    let both = journal_keys(&world, &["test-1", "test-2"]);
    let settings = [("TX_JOURNAL_KEYS", both.as_str()), ("TX_JOURNAL_ACTIVE_KEY_ID", "test-1")];
    for (change, back) in [(swap.to_owned(), swap.to_owned()), (rename("test-2"), rename("test-1"))] {
        let before = world.sent().len();
        forced(&world, &change).await;
        let relayer = world.serve("relayer", &settings).await;
        relayer.logged("a journal row fails its authentication", SOON).await;
        let failures = eventually_metric(&world, &relayer).await;
        assert!(failures >= 1.0, "{change}");
        assert_eq!(world.sent().len(), before, "{change}");
        relayer.kill9();
        forced(&world, &back).await;
    }
    world.serve("relayer", &settings).await;
    mined_to_the_end(&world).await;
    world.until_completed(SOON).await;
    world.finish().await;
}

async fn eventually_metric(world: &World, at: &Instance) -> f64 {
    world.metric(at, "holdfast_journal_decrypt_failures_total", &[]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jrn_03_seals_are_counted_ahead_for_each_key_and_a_spent_key_seals_nothing() {
    let world = World::with(on_demand()).await;
    let engine = world.engine().await;
    let relayer = world.serve("relayer", &[]).await;
    world.accept_records(&engine, 3).await;
    eventually("all are sent", SOON, async || world.count("lineages WHERE state = 'broadcast'").await == 3).await;
    assert_eq!(world.rows("SELECT id, sealed FROM holdfast.journal_keys").await, ["test-1|4096"]);
    eventually("the gauge shows it", SOON, async || {
        world.metric(&relayer, "holdfast_journal_key_seals", &["key_id=\"test-1\""]).await == 4096.0
    })
    .await;
    relayer.kill9();
    let relayer = world.serve("relayer", &[]).await;
    world.accept_records(&engine, 1).await;
    eventually("a crash counts too many and never too few", SOON, async || {
        world.scalar::<i64>("SELECT sealed FROM holdfast.journal_keys").await == 8192
    })
    .await;
    mined_to_the_end(&world).await;
    relayer.kill9();
    forced(&world, "UPDATE holdfast.journal_keys SET sealed = 4294967296").await;
    let attempts = world.count("tx_attempts").await;
    let spent = world.launch("relayer", &[]);
    eventually("it is not ready", SOON, async || {
        world.client.get(format!("{}/readyz", spent.admin)).send().await.is_ok()
            && why_unready(&world, &spent).await.contains("has sealed as many rows")
    })
    .await;
    world.accept_records(&engine, 1).await;
    eventually("it was tried", SOON, async || {
        world.count("job_attempts WHERE error_type IS NOT NULL AND detail LIKE '%as many rows as a key may%'").await > 0
    })
    .await;
    assert_eq!(world.count("tx_attempts").await, attempts);
    spent.kill9();
    let both = journal_keys(&world, &["test-1", "test-2"]);
    world.serve("relayer", &[("TX_JOURNAL_KEYS", &both), ("TX_JOURNAL_ACTIVE_KEY_ID", "test-2")]).await;
    mined_to_the_end(&world).await;
    world.until_completed(SOON).await;
    assert!(world.count("tx_attempts WHERE key_id = 'test-2'").await > 0);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jrn_14_commands_and_admin_api_show_the_journal_without_its_bytes() {
    let world = World::with(on_demand()).await;
    let all = world.serve("all", &[]).await;
    let id = world.accept(&all, &world.record()).await;
    eventually("it is sent", SOON, async || world.count("lineages WHERE state = 'broadcast'").await == 1).await;
    let lineage: String = world.scalar("SELECT id::text FROM holdfast.lineages").await;
    let hash: String = world.scalar("SELECT '0x' || encode(hash, 'hex') FROM holdfast.tx_attempts").await;
    let sealed: Vec<u8> = world.scalar("SELECT ciphertext FROM holdfast.tx_attempts").await;
    let iv: Vec<u8> = world.scalar("SELECT iv FROM holdfast.tx_attempts").await;
    let raw = world.sent().remove(0).raw;
    let signer = world.signers[0].address.to_string();
    let mut told = Vec::new();
    for arguments in [
        vec!["tx", "show", &lineage],
        vec!["tx", "show", &hash],
        vec!["tx", "explain", &hash],
        vec!["tx", "list"],
        vec!["jobs", "show", &id],
        vec!["jobs", "explain", &id],
        vec!["lanes", "explain", &signer],
    ] {
        for form in ["text", "json", "jsonl"] {
            told.push(command::told(&world, &[&arguments[..], &["-o", form]].concat()).await);
        }
    }
    assert!(told[0].contains("test-1") && told[0].contains(&hash), "the row itself is shown: {}", told[0]);
    for path in [
        format!("transactions/{lineage}"),
        format!("transactions/{lineage}/explain"),
        "transactions".into(),
        format!("jobs/{id}"),
        format!("lanes/{signer}"),
    ] {
        let answer =
            world.client.get(format!("{}/admin/v1/{path}", all.admin)).bearer_auth(&world.admin_token).send().await.expect("an answer");
        assert_eq!(answer.status().as_u16(), 200, "{path}");
        told.push(answer.text().await.expect("text"));
    }
    let raw = hex_from_bytes(&raw);
    for secret in [hex_from_bytes(&sealed), hex_from_bytes(&iv), raw] {
        let digits = secret.trim_start_matches("0x").to_owned();
        let found = told.iter().find(|text| text.to_lowercase().contains(&digits));
        assert!(found.is_none(), "{} bytes of the journal in {}", digits.len() / 2, found.unwrap());
    }
    mined_to_the_end(&world).await;
    world.finish().await;
}

/// This URL with another login.
fn with_login(url: &str, login: &str, password: &str) -> String {
    let (scheme, rest) = url.split_once("://").expect("a URL");
    format!("{scheme}://{login}:{password}@{}", rest.rsplit_once('@').expect("a login").1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jrn_14_the_login_of_operators_does_all_their_acts_and_cannot_read_the_bytes_of_the_journal() {
    let world = World::with(on_demand()).await;
    let runtime = world.database.runtime.expose_secret();
    let login = format!("operators_{}", uuid::Uuid::new_v4().simple());
    let own = with_login(runtime, &login, "a-password-of-operators");
    let owner = world.database.owner.expose_secret();
    let same = run(&world, &["db", "migrate"], &[("DATABASE_MIGRATION_URL", owner), ("DATABASE_OPERATOR_URL", runtime)]).await;
    assert!(same.0 == 2 && same.1.contains("one of their own"), "{same:?}");
    passed(run(&world, &["db", "migrate"], &[("DATABASE_MIGRATION_URL", owner), ("DATABASE_OPERATOR_URL", &own)]).await);

    let all = world.serve("all", &[("INSTANCE_ID", "node-a")]).await;
    let id = world.accept(&all, &world.record()).await;
    eventually("it is sent", SOON, async || world.count("lineages WHERE state = 'broadcast'").await == 1).await;
    let lineage: String = world.scalar("SELECT id::text FROM holdfast.lineages").await;
    let signer = world.signers[0].address.to_string();
    let by = [("DATABASE_OPERATOR_URL", own.as_str())];
    for arguments in [
        vec!["status"],
        vec!["jobs", "list"],
        vec!["jobs", "show", &id],
        vec!["jobs", "explain", &id],
        vec!["lanes", "list"],
        vec!["lanes", "explain", &signer],
        vec!["tx", "list"],
        vec!["tx", "show", &lineage],
        vec!["workers", "list"],
        vec!["keys", "create", "--project", "web"],
        vec!["jobs", "drain", "node-a", "30"],
        vec!["jobs", "undrain", "node-a"],
    ] {
        let (code, told) = run(&world, &arguments, &by).await;
        // The overview has its own code for what it found.
        assert!(code == 0 || (arguments[0] == "status" && code == 10), "{arguments:?}: exit {code}\n{told}");
    }
    assert_eq!(run(&world, &["jobs", "signer-drain", &signer, "0"], &by).await.0, 5);
    let (code, told) = run(&world, &["jobs", "cancel", &id], &by).await;
    assert_eq!(code, 0, "{told}");
    mined_to_the_end(&world).await;
    passed(run(&world, &["jobs", "signer-drain", &signer, "30"], &by).await);
    age(&world, 8).await;
    world.anvil.mine(10).await;
    passed(asked(&world, &["jobs", "key-retire-check", "test-1"], &by).await);
    passed(asked(&world, &["jobs", "signer-retire-check", &signer], &by).await);
    let (_, new) = new_key();
    passed(asked(&world, &["jobs", "signer-pool-rotate", &CHAIN_ID.to_string(), POOL, &signer, &new.to_string(), "--unloaded"], &by).await);
    let logins = world.rows("SELECT DISTINCT login FROM holdfast.operator_actions WHERE operator_id = 'tester'").await;
    assert_eq!(logins, [login]);

    let operators = sqlx::PgPool::connect(&own).await.expect("operators log in");
    for sql in [
        "SELECT ciphertext FROM holdfast.tx_attempts",
        "SELECT iv FROM holdfast.tx_attempts",
        "SELECT * FROM holdfast.tx_attempts",
        "SELECT secret_hash FROM holdfast.api_keys",
        "DELETE FROM holdfast.operator_actions",
        "UPDATE holdfast.operator_actions SET reason = ''",
        "UPDATE holdfast.lanes SET next_nonce = next_nonce",
        "UPDATE holdfast.retirement_proofs SET passed = true",
        "INSERT INTO holdfast.tx_attempts (hash) VALUES ('x')",
    ] {
        let error = sqlx::query(AssertSqlSafe(sql.to_owned())).execute(&operators).await.expect_err(sql);
        assert_eq!(error.as_database_error().and_then(|error| error.code()).as_deref(), Some("42501"), "{sql}");
    }
    operators.close().await;
    world.finish_open().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signer_whose_key_is_in_another_process_signs_by_eth_sign_transaction_and_its_bytes_are_journaled_first() {
    let world = World::start().await;
    let accounts = world.anvil.ask("eth_accounts", json!([])).await;
    let account: Address = accounts[0].as_str().expect("an account of the node").parse().expect("an address");
    let first = world.anvil.next_nonce(account).await;
    // The node that signs is reached past the providers: nothing that it signs is sent by it.
    let remote = json!({ "local:remote": { "url": world.anvil.url, "addresses": [account.to_string()] } }).to_string();
    let all = world.serve("all", &[("SIGNER_REMOTE_URLS", &remote)]).await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        let mut job = world.record();
        job["pool"] = "local:remote".into();
        ids.push(world.accept(&all, &job).await);
    }
    world.accept_records(&all, 3).await;
    world.until_completed(SOON).await;
    let of = format!("WHERE signer = '\\x{}'", account.to_string().trim_start_matches("0x").to_lowercase());
    let nonces = world.rows(&format!("SELECT nonce FROM holdfast.lineages {of} ORDER BY nonce")).await;
    assert_eq!(nonces, (first..first + 5).map(|nonce| nonce.to_string()).collect::<Vec<_>>());
    assert_eq!(world.anvil.next_nonce(account).await, first + 5);
    let attempts: i64 = world
        .scalar(&format!("SELECT count(*) FROM holdfast.tx_attempts WHERE lineage_id IN (SELECT id FROM holdfast.lineages {of})"))
        .await;
    assert_eq!(attempts, 5, "one signature each");

    // While it is away, its nonces wait; others go on.
    let away = json!({ "local:remote": { "url": "http://127.0.0.1:1", "addresses": [account.to_string()] } }).to_string();
    assert_eq!(all.term(SOON).await, 0);
    let all = world.serve("all", &[("SIGNER_REMOTE_URLS", &away)]).await;
    let mut job = world.record();
    job["pool"] = "local:remote".into();
    let waits = world.accept(&all, &job).await;
    let goes = world.accept(&all, &world.record()).await;
    world.until_state(&goes, "completed").await;
    eventually("it was tried", SOON, async || world.count("job_attempts WHERE detail LIKE '%gave no signature%'").await > 0).await;
    assert_eq!(world.count("lineages WHERE state = 'allocated'").await, 1);
    all.kill9();
    world.serve("all", &[("SIGNER_REMOTE_URLS", &remote)]).await;
    world.until_state(&waits, "completed").await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drn_04_drn_05_drn_06_the_admin_api_does_what_the_commands_do_and_writes_down_who() {
    let (world, all, signer) = rested(1).await;
    world.anvil.mine(10).await;
    let post = async |path: String, body: Value, operator: &str| {
        let request = world.client.post(format!("{}/admin/v1/{path}", all.admin)).bearer_auth(&world.admin_token);
        let answer = request.header("x-operator-id", operator).json(&body).send().await.expect("an answer");
        (answer.status().as_u16(), answer.json::<Value>().await.expect("JSON"))
    };
    let why = json!({ "reason": "practice" });
    assert_eq!(post(format!("signers/{signer}/undrain"), why.clone(), "").await.0, 400, "somebody has to be named");
    let (status, body) = post(format!("signers/{signer}/undrain"), why.clone(), "anna").await;
    assert_eq!((status, body["lanes"][0]["state"].as_str()), (200, Some("active")), "{body}");
    let (status, body) = post(format!("signers/{signer}/retire-check"), why.clone(), "anna").await;
    assert_eq!(
        (status, body["passed"].as_bool(), body["faults"][0]["gate"].as_str()),
        (200, Some(false), Some("signer-not-drained")),
        "{body}"
    );
    let (status, body) = post(format!("signers/{signer}/drain"), why.clone(), "anna").await;
    assert_eq!((status, body["drained"].as_bool()), (200, Some(true)), "{body}");
    let (_, new) = new_key();
    let mut rotate =
        json!({ "chain_id": CHAIN_ID, "pool": POOL, "old": signer, "new": new.to_string(), "unloaded": true, "reason": "practice" });
    assert_eq!(post("pools/rotate".into(), rotate.clone(), "anna").await.0, 409);
    let (status, body) = post(format!("signers/{signer}/retire-check"), why.clone(), "anna").await;
    assert_eq!((status, body["passed"].as_bool()), (200, Some(true)), "{body}");
    let (status, body) = post("journal-keys/test-1/retire-check".into(), why.clone(), "anna").await;
    assert_eq!((status, body["faults"][0]["gate"].as_str()), (200, Some("key-active")), "{body}");
    rotate["force"] = true.into();
    assert_eq!(post("pools/rotate".into(), rotate.clone(), "anna").await.0, 400);
    rotate.as_object_mut().unwrap().remove("force");
    let (status, body) = post("pools/rotate".into(), rotate, "anna").await;
    assert_eq!((status, body["fence"].as_i64()), (200, Some(0)), "{body}");
    let id = process_id(&world).await;
    let (status, body) = post(format!("workers/{id}/drain"), why.clone(), "anna").await;
    assert_eq!((status, body["state"].as_str()), (200, Some("draining")), "{body}");
    eventually("it is drained", SOON, async || world.scalar::<String>("SELECT state FROM holdfast.workers").await == "drained").await;
    assert_eq!(post(format!("workers/{id}/undrain"), why, "anna").await.0, 200);
    let acts = world
        .rows("SELECT DISTINCT action FROM holdfast.operator_actions WHERE operator_id = 'anna' AND reason = 'practice' ORDER BY 1")
        .await;
    assert_eq!(
        acts,
        [
            "journal_keys.retire_check",
            "pools.rotate",
            "signers.drain",
            "signers.retire_check",
            "signers.undrain",
            "workers.drain",
            "workers.undrain"
        ]
    );
    world.finish().await;
}

async fn process_id(world: &World) -> String {
    world.scalar("SELECT id::text FROM holdfast.workers").await
}
