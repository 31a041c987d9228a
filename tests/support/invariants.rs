//! What may never be false: each a named check that every test of the service runs when it ends.

use super::anvil::recorded_by;
use super::world::World;
use entity::values::{Hash, hex_from_bytes};
use sqlx::Row;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Runs every check and panics with all that is broken.
pub async fn check(world: &World) {
    let faults = broken(world).await;
    if !faults.is_empty() {
        let told = world.told().await;
        panic!("{} broken invariants:\n{}\n{told}", faults.len(), faults.join("\n"));
    }
}

/// What is broken, each with the name of its check.
pub async fn broken(world: &World) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, found) in [
        ("each effect happens exactly once", effects(world).await),
        ("nonces are dense and belong to one job each", nonces(world).await),
        ("nothing is sent that is not journaled", journaled(world).await),
        ("a job owns at most one live lineage", one_lineage(world).await),
        ("stored outcomes are those of the chain", outcomes(world).await),
        ("no secret is told", secrets(world)),
        ("nothing panics", panics(world)),
        ("the history of a job has no hole and ends in its state", history(world).await),
        ("nothing is delivered after the end", deliveries(world).await),
        ("a job and its delivery exist together", pairs(world).await),
    ] {
        faults.extend(found.into_iter().map(|fault| format!("{name}: {fault}")));
    }
    faults
}

/// Every completed job that records is on the chain once, and no other job is.
async fn effects(world: &World) -> Vec<String> {
    let recorded = world.anvil.recorded().await;
    let mut faults = Vec::new();
    let mut expected: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for row in world.rows("SELECT id, state, '0x' || encode(data, 'hex') AS data FROM holdfast.jobs").await {
        let mut columns = row.split('|');
        let (id, state, data) =
            (columns.next().unwrap_or_default(), columns.next().unwrap_or_default(), columns.next().unwrap_or_default());
        if let Some(record) = recorded_by(data) {
            let times = &mut expected.entry(record).or_insert((String::new(), 0));
            times.0 = format!("{} {id} ({state})", times.0);
            // What was given to the chain and is not final may be there or not.
            if state == "completed" {
                times.1 += 1;
            } else if matches!(state, "submitted" | "processing" | "retry") {
                times.1 = usize::MAX;
            }
        }
    }
    for (record, (jobs, times)) in &expected {
        let found = recorded.get(record).copied().unwrap_or(0);
        let right = if *times == usize::MAX { found <= 1 } else { found == *times };
        if !right {
            faults.push(format!("{record} of{jobs} is {found} times on the chain instead of {times}"));
        }
    }
    faults.extend(recorded.keys().filter(|record| !expected.contains_key(*record)).map(|record| format!("{record} belongs to no job")));
    faults
}

async fn nonces(world: &World) -> Vec<String> {
    let mut faults = Vec::new();
    let open = world.count("jobs WHERE finished_at IS NULL").await;
    let foreign = world.foreign_nonces.lock().unwrap().clone();
    let own = || (world.first_nonce..).filter(|nonce| !foreign.contains(nonce)).map(|nonce| i64::try_from(nonce).unwrap());
    for signer in &world.signers {
        let who = hex_from_bytes(&signer.address.0);
        let sql = "SELECT nonce, job_id::text AS job, state = 'superseded' AS lost FROM holdfast.lineages WHERE signer = $1 AND state <> 'abandoned' ORDER BY nonce";
        let rows = sqlx::query(sql).bind(signer.address.0.to_vec()).fetch_all(&world.pool).await.expect("lineages");
        let mut jobs = HashSet::new();
        for (dense, row) in own().zip(&rows) {
            let (nonce, job): (i64, String) = (row.get("nonce"), row.get("job"));
            if nonce != dense {
                faults.push(format!("{who}: nonce {nonce} stands where {dense} should"));
                break;
            }
            if !row.get::<bool, _>("lost") && !jobs.insert(job.clone()) {
                faults.push(format!("{who}: job {job} has two nonces"));
            }
        }
        let sql = "SELECT next_nonce FROM holdfast.lanes WHERE signer = $1";
        let Some(lane) = sqlx::query(sql).bind(signer.address.0.to_vec()).fetch_optional(&world.pool).await.expect("lanes") else {
            continue;
        };
        let fence: i64 = lane.get("next_nonce");
        let used = own().nth(rows.len()).unwrap();
        if fence != used {
            faults.push(format!("{who}: the fence is at {fence}, {used} is the next nonce that was never given"));
        }
        let chain = world.anvil.next_nonce(signer.address).await;
        if open == 0 && i64::try_from(chain).unwrap() != fence {
            faults.push(format!("{who}: the chain takes {chain} next, the fence is at {fence}"));
        }
    }
    faults
}

async fn journaled(world: &World) -> Vec<String> {
    let rows = world.rows("SELECT '0x' || encode(hash, 'hex') AS hash FROM holdfast.tx_attempts").await;
    let known: HashSet<Hash> = rows.iter().filter_map(|hash| hash.parse().ok()).collect();
    let mut faults: Vec<String> =
        world.sent().iter().filter(|sent| !known.contains(&sent.transaction.hash)).map(|sent| format!("{:?}", sent.transaction)).collect();
    let unreadable: u64 = world.providers.iter().map(super::rpc_proxy::RpcProxy::unreadable).sum();
    if unreadable > 0 {
        faults.push(format!("{unreadable} transactions that are not well-formed"));
    }
    faults
}

async fn one_lineage(world: &World) -> Vec<String> {
    let live = "lineages WHERE state NOT IN ('superseded', 'abandoned')";
    world.rows(&format!("SELECT job_id, count(*) AS n FROM holdfast.{live} GROUP BY job_id HAVING count(*) > 1")).await
}

async fn outcomes(world: &World) -> Vec<String> {
    let rows = world
        .rows(
            "SELECT j.id, j.state, l.state AS lineage, '0x' || encode(l.mined_hash, 'hex') AS hash, '0x' || encode(l.block_hash, 'hex') AS block
             FROM holdfast.jobs j LEFT JOIN holdfast.lineages l ON l.job_id = j.id AND l.state NOT IN ('superseded', 'abandoned')
             WHERE j.state IN ('completed', 'reverted')",
        )
        .await;
    let mut faults = Vec::new();
    for row in rows {
        let columns: Vec<&str> = row.split('|').collect();
        let [id, state, lineage, hash, block] = columns[..] else {
            faults.push(format!("{row}: no lineage that was mined"));
            continue;
        };
        let receipt = world.anvil.receipt(hash).await;
        let status = receipt["status"].as_str().unwrap_or("none");
        let right = match state {
            "completed" => lineage == "mined" && status == "0x1",
            _ => lineage == "reverted" && status == "0x0",
        };
        if !right || receipt["blockHash"] != block {
            faults.push(format!(
                "job {id} is {state}, its lineage {lineage} in {block}; the chain says {status} in {}",
                receipt["blockHash"]
            ));
        }
    }
    faults
}

/// In none of the forms that a careless print could give it.
fn secrets(world: &World) -> Vec<String> {
    let mut forms: HashMap<String, usize> = HashMap::new();
    for (place, secret) in world.secrets().iter().enumerate() {
        let bare = secret.trim_start_matches("0x");
        forms.insert(bare.to_owned(), place);
        forms.insert(bare.to_uppercase(), place);
    }
    let mut faults = Vec::new();
    for instance in world.instances() {
        for line in instance.log.lines() {
            // The line itself stays out of the message: it holds a secret.
            if let Some((_, place)) = forms.iter().find(|(form, _)| line.contains(form.as_str())) {
                faults.push(format!("secret number {place} in a line of {} bytes of {}", line.len(), instance.name));
            }
        }
    }
    faults
}

fn panics(world: &World) -> Vec<String> {
    if world.panics_expected.load(std::sync::atomic::Ordering::Relaxed) {
        return Vec::new();
    }
    let told = |line: &String| line.contains("panicked at") || line.contains("\"panic\"");
    world.instances().iter().flat_map(|instance| instance.log.lines()).filter(told).collect()
}

async fn history(world: &World) -> Vec<String> {
    world
        .rows(
            "SELECT j.id, j.state, j.version, e.n, e.low, e.high, e.last
             FROM holdfast.jobs j LEFT JOIN LATERAL (
                 SELECT count(*) AS n, min(version) AS low, max(version) AS high, (array_agg(CASE type WHEN 'reorged' THEN 'retry' ELSE type END ORDER BY version DESC) FILTER (WHERE type <> 'finalized'))[1] AS last
                 FROM holdfast.stream_events WHERE domain = 'job' AND key = j.id
             ) e ON true
             WHERE e.n <> j.version OR e.low <> 1 OR e.high <> j.version OR e.last <> j.state LIMIT 20",
        )
        .await
}

async fn deliveries(world: &World) -> Vec<String> {
    world.rows("SELECT j.id, j.state, o.next_at FROM holdfast.jobs j JOIN holdfast.outbox o ON o.job_id = j.id WHERE j.finished_at IS NOT NULL AND o.next_at IS NOT NULL LIMIT 20").await
}

async fn pairs(world: &World) -> Vec<String> {
    world
        .rows(
            "SELECT j.id, j.state FROM holdfast.jobs j WHERE NOT EXISTS (SELECT 1 FROM holdfast.outbox o WHERE o.job_id = j.id)
             OR NOT EXISTS (SELECT 1 FROM holdfast.idempotency_keys k WHERE k.job_id = j.id) LIMIT 20",
        )
        .await
}
