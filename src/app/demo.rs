//! `demo`: the main job, shown. An engine in this process, two relayers beside it, one of them killed with SIGKILL in the middle,
//! and at the end the chain itself is asked what happened.

use super::dev::{self, DevOptions, POOL, World};
use super::{Error, Progress, serve};
use crate::chain::dev_node::DevNode;
use crate::domain::encoding::keccak256;
use crate::local::{self, Sibling};
use crate::store::{self, Db, lanes::Lane};
use entity::states::WorkerState;
use entity::values::{Address, Hash};
use secrecy::ExposeSecret;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Submissions in one request.
const REQUEST: usize = 100;
/// Longest wait for all jobs to end.
const PATIENCE: Duration = Duration::from_secs(80);
/// The relayer that is killed.
const KILLED: &str = "relayer-1";

#[derive(Clone, Debug)]
pub struct DemoOptions {
    pub jobs: u32,
    pub lanes: u32,
    /// Where the demo keeps its data while it runs.
    pub data: Option<PathBuf>,
    pub json: bool,
}

/// What the chain and the database show at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub jobs: usize,
    pub effects: usize,
    pub lost: usize,
    pub duplicated: usize,
    pub gaps: u64,
}

impl Verdict {
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.effects == self.jobs && self.lost == 0 && self.duplicated == 0 && self.gaps == 0
    }
}

/// Runs the demo; gives the exit code: 0 only when every figure is right.
///
/// # Errors
/// What kept it from running to its end.
pub fn demo(options: DemoOptions) -> Result<i32, Error> {
    super::run(start(options))
}

async fn start(options: DemoOptions) -> Result<i32, Error> {
    let folder = options.data.clone().unwrap_or_else(local::default_dir).join(format!("demo-{}", nix::unistd::Pid::this()));
    let dev = DevOptions { data: Some(folder), lanes: Some(options.lanes), json: options.json, ..DevOptions::default() };
    dev::embedded("demo", &dev)?;
    let world = World::start(&dev, None).await?;
    let dir = world.dir.clone();
    let shown = Box::pin(show(&world, &dev, &options)).await;
    let stopped = world.running.stop().await;
    let code = shown?;
    stopped?;
    if code == 0 {
        let _ = std::fs::remove_dir_all(&dir);
    } else {
        tracing::error!(event = "demo_failed", logs = %dir.display(), "the figures are wrong; data and logs are kept");
    }
    Ok(code)
}

async fn show(world: &World, dev: &DevOptions, options: &DemoOptions) -> Result<i32, Error> {
    let any = || "127.0.0.1:0".to_owned();
    let engine = world.config_without_keys(
        dev,
        &[
            ("HOLDFAST_ROLE", "engine".into()),
            ("HTTP_LISTEN", any()),
            ("ADMIN_LISTEN", any()),
            ("INSTANCE_ID", "engine".into()),
            ("LOG_LEVEL", "warn".into()),
        ],
    )?;
    let mut relayers = vec![relayer(world, KILLED)?, relayer(world, "relayer-2")?];
    let db = Db::connect(&crate::config::Database::at(world.running.database_url.expose_secret())).await?;
    wait(Duration::from_secs(30), "both relayers", async || {
        let workers = store::workers::list(&db.reader()).await?;
        Ok(workers.iter().filter(|worker| worker.state == WorkerState::Active).count() >= relayers.len())
    })
    .await?;
    let (tell, told) = tokio::sync::oneshot::channel::<SocketAddr>();
    let ready = move |http, _| {
        let _ = tell.send(http);
    };
    let outcome = serve::serve_during(
        &engine,
        ready,
        Box::pin(async {
            let http = told.await.map_err(|_| Error::GaveUp("the engine did not become ready".into()))?;
            play(world, options, &db, http, &mut relayers).await
        }),
    )
    .await;
    db.close().await;
    for relayer in &mut relayers {
        if !relayer.has_ended() {
            let _ = tokio::time::timeout(Duration::from_secs(15), relayer.terminate()).await;
        }
    }
    outcome
}

fn relayer(world: &World, instance: &str) -> Result<Sibling, Error> {
    let mut environment = world.environment();
    // Short, so that the death of a relayer shows within the demo and not half a minute later.
    environment.extend([("INSTANCE_ID", instance.to_owned()), ("QUEUE_LOCK_SECONDS", "5".into()), ("ADMIN_LISTEN", "127.0.0.1:0".into())]);
    Ok(Sibling::start(&["serve", "--role", "relayer", "--single-endpoint"], &environment, &world.dir.join(format!("{instance}.log")))?)
}

async fn play(world: &World, options: &DemoOptions, db: &Db, http: SocketAddr, relayers: &mut [Sibling]) -> Result<i32, Error> {
    let node = DevNode::new(world.rpc_url.clone())?;
    let ids: Vec<Hash> = (0..options.jobs).map(|n| keccak256(format!("{}/{n}", world.dir.display()).as_bytes())).collect();
    let progress = Progress { json: options.json };
    progress.tell(&format!("submitting {} jobs over {} lanes", options.jobs, options.lanes));
    let began = Instant::now();
    let (first, second) = ids.split_at(ids.len() / 2);
    submit(world, http, first).await?;
    submit(world, http, second).await?;
    relayers[0].kill().await?;
    progress.tell("relayer-1 killed with SIGKILL in the middle");
    wait(PATIENCE, "every job to end", async || Ok(!store::facts::is_anything_open(&db.reader()).await?)).await?;
    let took = began.elapsed();
    let lanes = store::lanes::all(&db.reader()).await?;
    let verdict = judge(&node, world.recorder, &ids, &lanes).await?;
    let rows = table(&node, db, &lanes).await?;
    say(&rows, &verdict, took, options.json);
    Ok(i32::from(!verdict.is_clean()))
}

async fn wait(patience: Duration, what: &str, mut done: impl AsyncFnMut() -> Result<bool, Error>) -> Result<(), Error> {
    let began = Instant::now();
    while !done().await? {
        if began.elapsed() > patience {
            return Err(Error::GaveUp(format!("waited {} s for {what}", patience.as_secs())));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn submit(world: &World, http: SocketAddr, ids: &[Hash]) -> Result<(), Error> {
    let client = reqwest::Client::new();
    for chunk in ids.chunks(REQUEST) {
        let jobs: Vec<_> = chunk
            .iter()
            .map(|id| {
                serde_json::json!({
                    "kind": "contract_call", "chain_id": world.chain_id, "pool": POOL, "to": world.recorder,
                    "function": "record(bytes32)", "args": [id], "idempotency_key": format!("demo-{id}"),
                })
            })
            .collect();
        let body = serde_json::json!({"jobs": jobs});
        let sent = client.post(format!("http://{http}/v1/jobs/batch")).bearer_auth(&world.api_key).json(&body).send().await;
        let answer = sent.map_err(|error| Error::GaveUp(format!("the engine does not answer: {error}")))?;
        let (status, body) = (answer.status(), answer.text().await.unwrap_or_default());
        let accepted = serde_json::from_str::<serde_json::Value>(&body)
            .ok()
            .and_then(|body| Some(body["results"].as_array()?.iter().filter(|item| item["status"] == 202).count()));
        if !status.is_success() || accepted != Some(chunk.len()) {
            return Err(Error::GaveUp(format!("the engine answered {status}: {}", body.chars().take(1_000).collect::<String>())));
        }
    }
    Ok(())
}

async fn judge(node: &DevNode, recorder: Address, ids: &[Hash], lanes: &[Lane]) -> Result<Verdict, Error> {
    let topic = keccak256(b"Recorded(bytes32,address)");
    let mut seen: HashMap<Hash, usize> = HashMap::new();
    for id in node.events(recorder, topic).await? {
        *seen.entry(id).or_default() += 1;
    }
    let mut gaps = 0;
    for lane in lanes {
        // A used nonce is one that the chain counts; what the fence gave out beyond that is a hole or was never sent.
        gaps += node.nonce(lane.signer).await?.abs_diff(u64::try_from(lane.next_nonce).unwrap_or(0));
    }
    Ok(Verdict {
        jobs: ids.len(),
        effects: ids.iter().filter(|id| seen.contains_key(id)).count(),
        lost: ids.iter().filter(|id| !seen.contains_key(id)).count(),
        duplicated: ids.iter().filter_map(|id| seen.get(id)).map(|count| count - 1).sum(),
        gaps,
    })
}

async fn table(node: &DevNode, db: &Db, lanes: &[Lane]) -> Result<Vec<String>, Error> {
    let mut rows = vec![format!("{:<44} {:>8} {:>12} {:>8}", "lane", "fence", "chain nonce", "state")];
    for lane in lanes {
        let signer = crate::domain::encoding::checksummed(&lane.signer);
        rows.push(format!("{signer:<44} {:>8} {:>12} {:>8}", lane.next_nonce, node.nonce(lane.signer).await?, lane.state.as_str()));
    }
    rows.push(String::new());
    for worker in store::workers::list(&db.reader()).await? {
        // Nobody tells Postgres that a process was killed: its row says so only when its heartbeats have stayed away for long.
        let state = if worker.instance == KILLED { "lost" } else { worker.state.as_str() };
        rows.push(format!("{:<44} {state:>8}", worker.instance));
    }
    Ok(rows)
}

#[expect(clippy::print_stdout, reason = "the result of the command")]
fn say(rows: &[String], verdict: &Verdict, took: Duration, as_json: bool) {
    let Verdict { jobs, effects, lost, duplicated, gaps } = verdict;
    let rate = *jobs as f64 / took.as_secs_f64();
    if as_json {
        let data = serde_json::json!({"jobs": jobs, "effects": effects, "lost": lost, "duplicated": duplicated, "nonce_gaps": gaps, "tx_per_second": rate});
        println!("{}", serde_json::json!({"schema": "holdfast.cli/demo/v1", "data": data, "warnings": []}));
        return;
    }
    for row in rows {
        println!("{row}");
    }
    println!("\ndemo: {jobs} jobs, {effects} effects, {lost} lost, {duplicated} duplicated, {gaps} nonce gaps, {rate:.1} tx/s");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_figure_makes_the_demo_fail() {
        let clean = Verdict { jobs: 2, effects: 2, lost: 0, duplicated: 0, gaps: 0 };
        assert!(clean.is_clean());
        for wrong in [
            Verdict { effects: 1, ..clean.clone() },
            Verdict { lost: 1, ..clean.clone() },
            Verdict { duplicated: 1, ..clean.clone() },
            Verdict { gaps: 1, ..clean.clone() },
        ] {
            assert!(!wrong.is_clean(), "{wrong:?}");
        }
    }
}
