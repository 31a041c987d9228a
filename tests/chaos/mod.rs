//! Operators at work while processes die: three relayers and two engines under load, SIGKILL, SIGSTOP, a Redis that forgets or is away, a Postgres that
//! crashes and whose standby takes over, and beside it drains, pauses, rebuilds, replays and a hand-over by the command line.
//!
//! `make chaos` runs it for CHAOS_SECONDS (600); CHAOS_SEED repeats a run's faults. A short one is part of every test run.

mod faults;
mod operators;

use crate::simulation::rng::Rng;
use crate::soak::load::{Accepted, Load};
use crate::soak::number;
use crate::support::anvil::Mining;
use crate::support::parts::{OwnRedis, Servers};
use crate::support::standby::Standby;
use crate::support::world::{Redis, Setup, World};
use crate::support::{command, invariants};
use faults::{Done, Faults, Processes};
use operators::{Acts, Operators};
use sqlx::postgres::PgPoolOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a run is like.
#[derive(Clone, Copy)]
struct Plan {
    seed: u64,
    lasts: Duration,
    strike_every: Duration,
    act_every: Duration,
    jobs_a_second: u64,
    /// When the standby takes over.
    promotion: Option<Duration>,
}

/// How long what is open at the end may take, once everything is well again.
const AFTERWARDS: Duration = Duration::from_secs(180);

async fn run(plan: Plan) {
    let (redis, servers) = (OwnRedis::start().await, Servers::of_their_own().await);
    let setup = Setup {
        lanes: 3,
        mining: Mining::Every(Duration::from_millis(500)),
        redis: Redis::Own(redis),
        servers: Some(servers),
        postgres_proxy: true,
        ..Setup::default()
    };
    let mut world = World::with(setup.with("TX_REORG_LOOKBACK_BLOCKS", 6).with("LOG_LEVEL", "info")).await;
    let standby = if plan.promotion.is_some() { Some(Arc::new(Standby::of(world.servers()).await)) } else { None };
    // The test looks through the same door as the service, so that it finds the new writer as well.
    let port = world.postgres.as_ref().expect("a proxy").port;
    let door = operators::through(&world.database.owner, port);
    world.pool = PgPoolOptions::new().max_connections(4).connect(&door).await.expect("the owner logs in");
    let world = world;

    let mut dice = Rng::new(plan.seed);
    let mut processes = Processes::start(&world).await;
    let mut operators = Operators::new(plan, Rng::new(dice.next()), &world);
    // It gives up its place before it has ever sent anything, so that its proof needs no week of waiting.
    operators.rest_a_signer(&world).await;
    let (load, faults) = (Load::new(plan.jobs_a_second, Rng::new(dice.next())), Faults::new(plan, Rng::new(dice.next()), standby.clone()));
    let (stop, began) = (AtomicBool::new(false), Instant::now());
    let engine = processes.engine_address();
    let end = async {
        while began.elapsed() < plan.lasts {
            tokio::time::sleep(Duration::from_secs(10).min(plan.lasts.saturating_sub(began.elapsed()))).await;
            let open = world.try_count("jobs WHERE finished_at IS NULL").await.unwrap_or(-1);
            eprintln!("chaos: {} s, {open} jobs are open", began.elapsed().as_secs());
        }
        stop.store(true, Ordering::Relaxed);
    };
    let ((), accepted, done, acts) =
        tokio::join!(end, load.run(&world, &engine, &stop), faults.run(&world, &mut processes, &stop), operators.run(&world, &stop));

    // Everything is well again, and nothing is held back: what is open has to end.
    operators.give_everything_back(&world).await;
    let settled = Instant::now();
    while world.try_count("jobs WHERE finished_at IS NULL").await != Some(0) {
        assert!(
            settled.elapsed() < AFTERWARDS,
            "jobs have not ended {AFTERWARDS:?} after the last fault (CHAOS_SEED={})\n{}",
            plan.seed,
            world.told().await
        );
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    report(&world, plan, &accepted, &done, &acts, &processes).await;
    world.finish_open().await;
    // The new writer ends with it.
    drop(standby);
}

async fn report(world: &World, plan: Plan, accepted: &Accepted, done: &Done, acts: &Acts, processes: &Processes) {
    let known = world.rows("SELECT id FROM holdfast.jobs").await;
    let lost = accepted.ids.iter().filter(|id| !known.contains(id)).count();
    let mut broken = invariants::broken(world).await;
    if lost > 0 {
        broken.push(format!("{lost} acknowledged jobs are not in the database"));
    }
    let others = world.rows("SELECT state, count(*) FROM holdfast.jobs WHERE state NOT IN ('completed', 'cancelled') GROUP BY state").await;
    if !others.is_empty() {
        broken.push(format!("jobs ended neither completed nor cancelled: {others:?}"));
    }
    for (action, times) in acts.told() {
        let rows = world.count(&format!("operator_actions WHERE action = '{action}'")).await;
        if rows < times {
            broken.push(format!("{action} was done {times} times and stands {rows} times in the log of operators"));
        }
    }
    let (code, told) = command::run(world, &["operators", "verify"], &[("DATABASE_URL", world.setting("DATABASE_URL"))]).await;
    if code != 0 {
        broken.push(format!("the log of operators: {told}"));
    }
    assert!(broken.is_empty(), "CHAOS_SEED={}: {} faults:\n{}\n{}", plan.seed, broken.len(), broken.join("\n"), world.told().await);
    let by_state = world.rows("SELECT state, count(*) FROM holdfast.jobs GROUP BY state ORDER BY state").await.join(", ").replace('|', " ");
    let latency = world
        .rows("SELECT round(percentile_cont(0.5) WITHIN GROUP (ORDER BY s)), round(percentile_cont(0.99) WITHIN GROUP (ORDER BY s)) FROM (SELECT extract(epoch FROM finished_at - created_at) AS s FROM holdfast.jobs) q")
        .await
        .concat();
    let (p50, p99) = latency.split_once('|').unwrap_or(("?", "?"));
    eprintln!(
        "chaos: {} s, seed {}, {} jobs ({by_state}), 0 lost, 0 duplicated, 0 nonce gaps, {} SIGKILL, {} SIGSTOP, {} FLUSHALL, {} Redis restarts, \
         {} Postgres crashes, {} promotions, {} acts of operators ({}), all of them in one chain, p50 {p50} s, p99 {p99} s, largest process {} MiB",
        plan.lasts.as_secs(),
        plan.seed,
        accepted.ids.len(),
        done.kills,
        done.freezes,
        done.flushes,
        done.restarts,
        done.crashes,
        done.promotions,
        acts.total(),
        acts.words(),
        processes.largest_mib(),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes ten minutes: make chaos"]
async fn long() {
    let seed = number("CHAOS_SEED", u64::from(std::process::id()));
    let lasts = Duration::from_secs(number("CHAOS_SECONDS", 600));
    eprintln!("chaos: CHAOS_SEED={seed}, {} s", lasts.as_secs());
    let plan = Plan {
        seed,
        lasts,
        strike_every: Duration::from_secs(8),
        act_every: Duration::from_secs(6),
        jobs_a_second: 8,
        promotion: Some(lasts / 2),
    };
    run(plan).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_minute_of_operators_among_dying_processes_loses_nothing_and_tells_all() {
    let plan = Plan {
        seed: 11,
        lasts: Duration::from_secs(25),
        strike_every: Duration::from_secs(5),
        act_every: Duration::from_secs(3),
        jobs_a_second: 8,
        promotion: None,
    };
    run(plan).await;
}
