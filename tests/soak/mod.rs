//! The whole service under everything at once for a while: two relayers, three endpoints of which one misbehaves at any time, reorganisations, a
//! base fee that swings eightfold, and SIGKILLs. At the end every job has ended once, and the last line gives the figures.
//!
//! `make soak` runs it for SOAK_SECONDS (600); SOAK_SEED repeats a run's faults. A short one is part of every test run.

mod chain;
mod faults;
pub mod load;

use crate::simulation::rng::Rng;
use crate::support::anvil::Mining;
use crate::support::invariants;
use crate::support::parts::{OwnRedis, Servers};
use crate::support::world::{Redis, Setup, World};
use chain::{Blocks, Seen};
use faults::{Faults, Processes};
use load::{Accepted, Load};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a run is like.
#[derive(Clone, Copy)]
struct Plan {
    seed: u64,
    lasts: Duration,
    block: Duration,
    /// Blocks between two reorganisations.
    reorg_every: u64,
    kill_every: Duration,
    jobs_a_second: u64,
    /// Blocks of a lane without a transaction of it, while work waits and the market is below the limit, that are too many.
    most_idle: Option<u64>,
}

const GWEI: u64 = 1_000_000_000;
/// The base fee swings between these; what the service may offer lies below the top of the wave.
const BASE_FEE: (u64, u64) = (GWEI, 8 * GWEI);
const MAX_FEE: u64 = 7 * GWEI;
/// Blocks of a whole wave.
const WAVE: u64 = 60;
const CONFIRMATIONS: u64 = 3;
const LOOKBACK: u64 = 12;
/// How long what is open at the end may take, once everything is well again.
const AFTERWARDS: Duration = Duration::from_secs(180);

fn setup(redis: OwnRedis, servers: Servers) -> Setup {
    Setup { lanes: 2, mining: Mining::OnDemand, redis: Redis::Own(redis), servers: Some(servers), ..Setup::default() }
        .with("TX_CONFIRMATIONS", CONFIRMATIONS)
        .with("TX_REORG_LOOKBACK_BLOCKS", LOOKBACK)
        .with("TX_MAX_FEE_PER_GAS_WEI", MAX_FEE)
        .with("TX_MIN_PRIORITY_FEE_PER_GAS_WEI", GWEI / 10)
        .with("TX_STUCK_SECONDS", 6)
        .with("TX_LANE_WIDTH", 32)
        .with("RPC_TIMEOUT_MILLISECONDS", 1_000)
        .with("LOG_LEVEL", "info")
}

async fn run(plan: Plan) {
    let world = World::with(setup(OwnRedis::start().await, Servers::of_their_own().await)).await;
    // What the endpoint of RPC_URL swallows reaches the chain by the others.
    let others = format!("{},{}", world.providers[1].url, world.providers[2].url);
    let mut processes = Processes::start(&world, &others).await;
    let (stop, began) = (AtomicBool::new(false), Instant::now());
    let mut dice = Rng::new(plan.seed);
    let (blocks, load, faults) = (
        Blocks::new(plan, Rng::new(dice.next())),
        Load::new(plan.jobs_a_second, Rng::new(dice.next())),
        Faults::new(plan, Rng::new(dice.next())),
    );
    let engine = processes.engine_address();
    let end = async {
        while began.elapsed() < plan.lasts {
            tokio::time::sleep(Duration::from_secs(10).min(plan.lasts.saturating_sub(began.elapsed()))).await;
            let open = world.try_count("jobs WHERE finished_at IS NULL").await.unwrap_or(-1);
            eprintln!("soak: {} s, {open} jobs are open", began.elapsed().as_secs());
        }
        stop.store(true, Ordering::Relaxed);
    };
    let ((), accepted, mut seen, done) =
        tokio::join!(end, load.run(&world, &engine, &stop), blocks.run(&world, &stop), faults.run(&world, &mut processes, &stop));

    // Everything is well again: what is open has to end.
    world.providers.iter().for_each(crate::support::rpc_proxy::RpcProxy::heal);
    let settled = Instant::now();
    loop {
        let open = world.try_count("jobs WHERE finished_at IS NULL").await;
        if open == Some(0) {
            break;
        }
        assert!(
            settled.elapsed() < AFTERWARDS,
            "{open:?} jobs have not ended {AFTERWARDS:?} after the last fault (SOAK_SEED={})\n{}",
            plan.seed,
            world.told().await
        );
        world.anvil.set_next_base_fee(BASE_FEE.0).await;
        world.anvil.mine(1).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    report(&world, plan, &accepted, &mut seen, &done, &processes).await;
    world.finish_open().await;
}

async fn report(world: &World, plan: Plan, accepted: &Accepted, seen: &mut Seen, done: &faults::Done, processes: &Processes) {
    let known = world.rows("SELECT id FROM holdfast.jobs").await;
    let lost = accepted.ids.iter().filter(|id| !known.contains(id)).count();
    let mut broken = invariants::broken(world).await;
    let by_state = world.rows("SELECT state, count(*) FROM holdfast.jobs GROUP BY state ORDER BY state").await.join(", ").replace('|', " ");
    let replaced = world.count("lineages WHERE replacements > 0").await;
    let noops = world.count("lineages WHERE noop_reason IS NOT NULL").await;
    let revived = world.count("lineage_revivals").await;
    let latency = world
        .rows("SELECT round(percentile_cont(0.5) WITHIN GROUP (ORDER BY s)), round(percentile_cont(0.99) WITHIN GROUP (ORDER BY s)) FROM (SELECT extract(epoch FROM finished_at - created_at) AS s FROM holdfast.jobs) q")
        .await
        .concat();
    let (p50, p99) = latency.split_once('|').unwrap_or(("?", "?"));
    if lost > 0 {
        broken.push(format!("{lost} acknowledged jobs are not in the database"));
    }
    let idle = seen.worst_idle();
    if let Some(most) = plan.most_idle.filter(|most| idle > *most) {
        broken.push(format!("a lane was idle for {idle} blocks while work waited, {most} are allowed: {}", seen.idle_told()));
    }
    let others = world.count("jobs WHERE state NOT IN ('completed', 'cancelled')").await;
    if others > 0 {
        broken.push(format!("{others} jobs ended neither completed nor cancelled: {by_state}"));
    }
    assert!(broken.is_empty(), "SOAK_SEED={}: {} faults:\n{}\n{}", plan.seed, broken.len(), broken.join("\n"), world.told().await);
    eprintln!(
        "soak: {} s, seed {}, {} jobs ({by_state}), {} ended once, 0 lost, 0 duplicated, 0 nonce gaps, {} blocks, {} reorganisations (deepest {}), \
         {} kills, {} freezes, {} FLUSHALL, {} Postgres crashes, {} endpoint faults, {replaced} nonces replaced, {noops} no-ops, {revived} revivals, \
         worst idle {idle} blocks, p50 {p50} s, p99 {p99} s, largest process {} MiB",
        plan.lasts.as_secs(),
        plan.seed,
        accepted.ids.len(),
        accepted.ids.len(),
        seen.blocks,
        seen.reorgs,
        seen.deepest,
        done.kills,
        done.freezes,
        done.flushes,
        done.crashes,
        done.endpoint_faults,
        processes.largest_mib(),
    );
}

pub fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

/// Ten minutes with blocks of 3 s: what twelve seconds make of three quarters of an hour; the faults are those of hours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes ten minutes: make soak"]
async fn long() {
    let seed = number("SOAK_SEED", u64::from(std::process::id()));
    let lasts = Duration::from_secs(number("SOAK_SECONDS", 600));
    eprintln!("soak: SOAK_SEED={seed}, {} s", lasts.as_secs());
    let plan = Plan {
        seed,
        lasts,
        block: Duration::from_secs(3),
        reorg_every: 20,
        kill_every: Duration::from_secs(15),
        jobs_a_second: 5,
        most_idle: Some(3),
    };
    run(plan).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_minute_of_everything_at_once_ends_every_job_once() {
    let plan = Plan {
        seed: 7,
        lasts: Duration::from_secs(25),
        block: Duration::from_millis(500),
        reorg_every: 12,
        kill_every: Duration::from_secs(6),
        jobs_a_second: 10,
        // Blocks that are faster than a process can be missed say nothing about idleness.
        most_idle: None,
    };
    run(plan).await;
}
