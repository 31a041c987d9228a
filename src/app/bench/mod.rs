//! `bench`: load on the whole service, on the raw node and on raw Postgres, all in one run on one machine, so that the ratios say
//! something even where the figures do not. Closed loop: as fast as answers come. Open loop: a fixed rate, whatever the answers take.

mod ceilings;
mod load;

use super::dev::{self, DevOptions, World};
use super::{Error, Progress, serve};
use crate::local;
use crate::store::ceiling::{Percentiles, Spans};
use crate::store::{self, Db};
use secrecy::ExposeSecret;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Jobs of the closed loop.
    pub jobs: Option<u32>,
    /// Length of the open loop.
    pub seconds: Option<Duration>,
    /// Submissions a second in the open loop.
    pub rate: Option<f64>,
    pub lanes: u32,
    pub block_time: Option<Duration>,
    pub data: Option<PathBuf>,
    pub json: bool,
}

const JOBS: u32 = 6_000;
const RATE: f64 = 20.0;
const SECONDS: Duration = Duration::from_secs(15);
/// Longest wait for the last job of a loop.
pub(super) const PATIENCE: Duration = Duration::from_secs(240);

/// Everything that was measured.
#[derive(Clone, Debug, Default)]
struct Report {
    node_per_second: f64,
    postgres_per_second: f64,
    accepted_per_second: f64,
    confirmed_per_second: f64,
    accept: Percentiles,
    closed: Spans,
    open_rate: f64,
    open_accept: Percentiles,
    open: Spans,
    statements_per_job: f64,
    redis_calls_per_job: f64,
    rss_mib: f64,
}

/// Runs the bench; gives the exit code.
///
/// # Errors
/// What kept it from running to its end.
pub fn bench(options: BenchOptions) -> Result<i32, Error> {
    super::run(Box::pin(start(options)))
}

async fn start(options: BenchOptions) -> Result<i32, Error> {
    let folder = options.data.clone().unwrap_or_else(local::default_dir).join(format!("bench-{}", nix::unistd::Pid::this()));
    let dev = DevOptions {
        data: Some(folder),
        lanes: Some(options.lanes),
        block_time: options.block_time,
        json: options.json,
        ..DevOptions::default()
    };
    dev::embedded("bench", &dev)?;
    let world = World::start(&dev, None).await?;
    let any = || "127.0.0.1:0".to_owned();
    let more = [
        ("HTTP_LISTEN", any()),
        ("ADMIN_LISTEN", any()),
        ("TX_CONFIRMATIONS", "1".into()),
        ("QUEUE_CONCURRENCY", "256".into()),
        ("LOG_LEVEL", "warn".into()),
    ];
    let config = world.config(&dev, &more)?;
    let (tell, told) = tokio::sync::oneshot::channel();
    let ready = move |http, admin| {
        let _ = tell.send((http, admin));
    };
    let outcome = serve::serve_during(
        &config,
        ready,
        Box::pin(async {
            let (http, admin) = told.await.map_err(|_| Error::GaveUp("the service did not become ready".into()))?;
            measure(&world, &options, http, admin).await
        }),
    )
    .await;
    let dir = world.dir.clone();
    world.running.stop().await?;
    let report = outcome?;
    let _ = std::fs::remove_dir_all(&dir);
    say(&options, &report);
    Ok(0)
}

async fn measure(world: &World, options: &BenchOptions, http: SocketAddr, admin: SocketAddr) -> Result<Report, Error> {
    let jobs = options.jobs.unwrap_or(JOBS);
    let mut report = Report::default();
    let progress = Progress { json: options.json };
    let db = Db::connect(&crate::config::Database::at(world.running.database_url.expose_secret())).await?;
    let owner = Db::connect(&crate::config::Database::at(world.running.owner_url.expose_secret())).await?;
    progress.tell(&format!("open loop: {} jobs/s for {} s", options.rate.unwrap_or(RATE), options.seconds.unwrap_or(SECONDS).as_secs()));
    let load = load::Load { url: format!("http://{http}"), key: world.api_key.clone(), chain_id: world.chain_id, recorder: world.recorder };
    report.open_rate = options.rate.unwrap_or(RATE);
    report.open_accept = load.open(&db, "open", report.open_rate, options.seconds.unwrap_or(SECONDS)).await?;
    report.open = store::ceiling::spans(&db.reader(), "open-").await?;
    progress.tell(&format!("closed loop: {jobs} jobs, as fast as answers come"));
    let before = load::Counters::read(admin, world).await?;
    let closed = load.closed(&db, "closed", jobs).await?;
    let after = load::Counters::read(admin, world).await?;
    report.closed = store::ceiling::spans(&db.reader(), "closed-").await?;
    report.accept = closed.accept;
    report.accepted_per_second = f64::from(jobs) / closed.accepted_in.as_secs_f64();
    report.confirmed_per_second = report.closed.completed as f64 / report.closed.whole.as_secs_f64().max(0.001);
    report.statements_per_job = (after.statements - before.statements) / f64::from(jobs);
    report.redis_calls_per_job = (after.redis - before.redis) / f64::from(jobs);
    report.rss_mib = after.rss_mib;
    progress.tell(&format!("raw node: {jobs} pre-signed transactions in JSON-RPC batches"));
    report.node_per_second = f64::from(jobs) / ceilings::raw_node(world, jobs).await?.as_secs_f64();
    progress.tell("raw Postgres: the same rows by plain multi-row inserts");
    let rows = i64::from(jobs) * 4;
    report.postgres_per_second = rows as f64 / store::ceiling::raw_inserts(&owner, rows).await?.as_secs_f64();
    db.close().await;
    owner.close().await;
    Ok(report)
}

fn line(name: &str, p: Percentiles) -> String {
    format!("{name:<34} p50 {:>9.1}  p95 {:>9.1}  p99 {:>9.1} ms", p.0[0], p.0[1], p.0[2])
}

#[expect(clippy::print_stdout, reason = "the result of the command")]
fn say(options: &BenchOptions, report: &Report) {
    let Report {
        node_per_second: node, postgres_per_second: postgres, accepted_per_second: accepted, confirmed_per_second: confirmed, ..
    } = report;
    let (to_node, to_postgres) = (confirmed / node * 100.0, accepted / postgres * 100.0);
    if options.json {
        let three = |p: Percentiles| serde_json::json!({"p50_ms": p.0[0], "p95_ms": p.0[1], "p99_ms": p.0[2]});
        let data = serde_json::json!({
            "lanes": options.lanes, "node_per_second": node, "postgres_rows_per_second": postgres,
            "closed": {"accepted_per_second": accepted, "confirmed_per_second": confirmed, "completed": report.closed.completed, "sent_once": report.closed.sent_once,
                       "accept": three(report.accept), "accept_to_broadcast": three(report.closed.accept_to_broadcast), "accept_to_mined": three(report.closed.accept_to_mined)},
            "open": {"rate": report.open_rate, "completed": report.open.completed, "accept": three(report.open_accept),
                     "accept_to_broadcast": three(report.open.accept_to_broadcast), "accept_to_mined": three(report.open.accept_to_mined)},
            "statements_per_job": report.statements_per_job, "redis_calls_per_job": report.redis_calls_per_job, "rss_mib": report.rss_mib,
            "confirmed_to_node_percent": to_node, "accepted_to_postgres_percent": to_postgres,
        });
        println!("{}", serde_json::json!({"schema": "holdfast.cli/bench/v1", "data": data, "warnings": []}));
        return;
    }
    println!(
        "closed loop, {} lane(s): {} jobs completed, {} sent exactly once",
        options.lanes, report.closed.completed, report.closed.sent_once
    );
    println!("  accepted {accepted:.0}/s   confirmed {confirmed:.0}/s");
    println!("  {}", line("accept", report.accept));
    println!("  {}", line("accept to broadcast", report.closed.accept_to_broadcast));
    println!("  {}", line("accept to mined", report.closed.accept_to_mined));
    println!("open loop, {:.0} jobs/s: {} jobs completed", report.open_rate, report.open.completed);
    println!("  {}", line("accept", report.open_accept));
    println!("  {}", line("accept to broadcast", report.open.accept_to_broadcast));
    println!("  {}", line("accept to mined", report.open.accept_to_mined));
    let total = report.statements_per_job + report.redis_calls_per_job;
    println!(
        "cost of a job at full load: {:.2} statements + {:.2} Redis calls = {total:.2};  RSS {:.0} MiB",
        report.statements_per_job, report.redis_calls_per_job, report.rss_mib
    );
    println!("raw node ceiling {node:.0} tx/s: confirmed is {to_node:.0} % of it");
    println!("raw Postgres ceiling {postgres:.0} jobs/s of rows: accepted is {to_postgres:.0} % of it");
}
