//! The load on the service: what a client would send, over its own API.

use super::PATIENCE;
use crate::app::Error;
use crate::app::dev::{POOL, World};
use crate::domain::encoding::keccak256;
use crate::store::ceiling::Percentiles;
use crate::store::{self, Db};
use entity::values::Address;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Clients of the closed loop.
const CLIENTS: usize = 32;
/// Submissions in one request of the closed loop.
const REQUEST: u32 = 10;

#[derive(Clone)]
pub struct Load {
    pub url: String,
    pub key: String,
    pub chain_id: u64,
    pub recorder: Address,
}

pub struct Closed {
    pub accept: Percentiles,
    pub accepted_in: Duration,
}

fn percentiles(mut millis: Vec<f64>) -> Percentiles {
    millis.sort_by(f64::total_cmp);
    let at = |share: f64| millis.get(((millis.len().saturating_sub(1)) as f64 * share) as usize).copied().unwrap_or_default();
    Percentiles([at(0.5), at(0.95), at(0.99)])
}

impl Load {
    fn job(&self, run: &str, n: u32) -> serde_json::Value {
        let id = keccak256(format!("{run}/{n}").as_bytes());
        serde_json::json!({
            "kind": "contract_call", "chain_id": self.chain_id, "pool": POOL, "to": self.recorder,
            "function": "record(bytes32)", "args": [id], "idempotency_key": format!("{run}-{n}"),
        })
    }

    async fn post(&self, client: &reqwest::Client, jobs: Vec<serde_json::Value>) -> Result<f64, Error> {
        let began = Instant::now();
        let sent =
            client.post(format!("{}/v1/jobs/batch", self.url)).bearer_auth(&self.key).json(&serde_json::json!({"jobs": jobs})).send().await;
        let answer = sent.map_err(|error| Error::GaveUp(format!("the service does not answer: {error}")))?;
        if !answer.status().is_success() {
            return Err(Error::GaveUp(format!("the service answered {}: {}", answer.status(), answer.text().await.unwrap_or_default())));
        }
        Ok(began.elapsed().as_secs_f64() * 1_000.0)
    }

    /// As many as `jobs`, from several clients, each sending its next request when it has its answer; waits until all have ended.
    pub async fn closed(&self, db: &Db, run: &'static str, jobs: u32) -> Result<Closed, Error> {
        let next = Arc::new(AtomicU32::new(0));
        let began = Instant::now();
        let clients = (0..CLIENTS).map(|_| {
            let (load, next) = (self.clone(), next.clone());
            tokio::spawn(async move {
                let client = reqwest::Client::new();
                let mut took = Vec::new();
                loop {
                    let first = next.fetch_add(REQUEST, Relaxed);
                    if first >= jobs {
                        return Ok::<_, Error>(took);
                    }
                    let batch = (first..(first + REQUEST).min(jobs)).map(|n| load.job(run, n)).collect();
                    took.push(load.post(&client, batch).await?);
                }
            })
        });
        let mut took = Vec::new();
        for client in futures::future::join_all(clients).await {
            took.extend(client.map_err(|error| Error::GaveUp(error.to_string()))??);
        }
        let accepted_in = began.elapsed();
        all_ended(db).await?;
        Ok(Closed { accept: percentiles(took), accepted_in })
    }

    /// One submission each `1/rate` seconds for `length`, whatever the answers take; waits until all have ended.
    pub async fn open(&self, db: &Db, run: &'static str, rate: f64, length: Duration) -> Result<Percentiles, Error> {
        let client = reqwest::Client::new();
        let mut beat = tokio::time::interval(Duration::from_secs_f64(1.0 / rate));
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
        let (began, mut n, mut sent) = (Instant::now(), 0, Vec::new());
        while began.elapsed() < length {
            beat.tick().await;
            let (load, client) = (self.clone(), client.clone());
            sent.push(tokio::spawn(async move { load.post(&client, vec![load.job(run, n)]).await }));
            n += 1;
        }
        let mut took = Vec::new();
        for one in sent {
            took.push(one.await.map_err(|error| Error::GaveUp(error.to_string()))??);
        }
        all_ended(db).await?;
        Ok(percentiles(took))
    }
}

async fn all_ended(db: &Db) -> Result<(), Error> {
    let began = Instant::now();
    loop {
        if !store::facts::is_anything_open(&db.reader()).await? {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            return Err(Error::GaveUp(format!("jobs have not ended after {} s", PATIENCE.as_secs())));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// What the service has spent so far.
pub struct Counters {
    pub statements: f64,
    /// Scripts and blocking reads: what crosses the network, not what runs inside a script.
    pub redis: f64,
    pub rss_mib: f64,
}

impl Counters {
    pub async fn read(admin: SocketAddr, world: &World) -> Result<Self, Error> {
        let text = async { reqwest::get(format!("http://{admin}/metrics")).await?.text().await }.await;
        let text = text.map_err(|error| Error::GaveUp(format!("no metrics: {error}")))?;
        let statements = text
            .lines()
            .filter(|line| line.starts_with("holdfast_db_statements_total"))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum();
        let pages = std::fs::read_to_string("/proc/self/statm").ok().and_then(|text| text.split(' ').nth(1)?.parse::<f64>().ok());
        let redis = crate::delivery::round_trips(&world.running.redis_url).await?;
        Ok(Self { statements, redis, rss_mib: pages.unwrap_or_default() * 4.0 / 1_024.0 })
    }
}
