//! The simulation: the decisions of `domain` under a manual clock, a store, a chain and processes of our own, from one seed a run.
//!
//! `SIMULATION_SEED=n cargo test --test holdfast -- simulation` plays one seed again and prints its steps; `SIMULATION_SEEDS=n` sets how many
//! are played, `SIMULATION_FROM=n` from which on. A seed that fails is played again with ever fewer faults, and the smallest schedule that still fails is printed.

mod chain;
mod checks;
mod plan;
mod process;
pub mod rng;
mod round;
mod store;
mod world;

use plan::Plan;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use world::{Outcome, Planted, run};

const SEEDS: u64 = 10_000;
/// A planted fault has to be found in so many.
const WITHIN: u64 = 20000;
const THREADS: usize = 2;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

fn violates(plan: &Plan, planted: Planted) -> bool {
    run(plan.clone(), planted, false).violation.is_some()
}

/// Takes faults out of the schedule, one by one and again, while the run still fails.
fn smallest(seed: u64, planted: Planted) -> Plan {
    let mut plan = Plan::of(seed);
    loop {
        let before = plan.faults.len();
        let mut at = 0;
        while at < plan.faults.len() {
            let mut fewer = plan.clone();
            fewer.faults.remove(at);
            if violates(&fewer, planted) { plan = fewer } else { at += 1 }
        }
        if plan.faults.len() == before {
            return plan;
        }
    }
}

/// Everything somebody needs to understand a failure.
fn report(seed: u64, planted: Planted) -> String {
    let plan = smallest(seed, planted);
    let Outcome { violation, trace, .. } = run(plan.clone(), planted, true);
    let faults: Vec<String> = plan.faults.iter().map(|fault| format!("  {fault:?}")).collect();
    format!(
        "seed {seed}: {}\nplay it again: SIMULATION_SEED={seed} cargo test --test holdfast -- simulation\nthe smallest schedule that fails:\n{}\nits steps:\n{}",
        violation.unwrap_or_default(),
        faults.join("\n"),
        trace.join("\n")
    )
}

/// Plays seeds until one fails; gives the first of those that did.
fn play(from: u64, seeds: u64, planted: Planted) -> (Option<u64>, u64) {
    let (next, found, steps) = (AtomicU64::new(from), Mutex::new(None::<u64>), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while found.lock().unwrap().is_none() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from + seeds {
                        return;
                    }
                    let outcome = run(Plan::of(seed), planted, false);
                    steps.fetch_add(outcome.steps, Ordering::Relaxed);
                    if outcome.violation.is_some() {
                        let mut found = found.lock().unwrap();
                        *found = Some(found.map_or(seed, |other| other.min(seed)));
                    }
                }
            });
        }
    });
    (found.into_inner().unwrap(), steps.into_inner())
}

#[test]
fn ten_thousand_seeds_hold() {
    if let Some(seed) = number("SIMULATION_SEED") {
        let outcome = run(Plan::of(seed), Planted::Nothing, true);
        println!("{}\n{:#?}\n{:?}", outcome.trace.join("\n"), Plan::of(seed), outcome.met);
        assert!(outcome.violation.is_none(), "{}", report(seed, Planted::Nothing));
        return;
    }
    let (began, seeds) = (Instant::now(), number("SIMULATION_SEEDS").unwrap_or(SEEDS));
    let (failed, steps) = play(number("SIMULATION_FROM").unwrap_or(0), seeds, Planted::Nothing);
    println!("{seeds} seeds, {steps} steps, {:.1} s", began.elapsed().as_secs_f64());
    if let Some(seed) = failed {
        panic!("{}", report(seed, Planted::Nothing));
    }
}

fn is_found(planted: Planted) -> String {
    let (failed, _) = play(0, WITHIN, planted);
    let seed = failed.unwrap_or_else(|| panic!("{planted:?} was not found in {WITHIN} seeds"));
    println!("{planted:?} was found by seed {seed}");
    run(Plan::of(seed), planted, false).violation.unwrap()
}

#[test]
fn a_bump_that_is_one_wei_short_is_found() {
    let found = is_found(Planted::ShortBump);
    assert!(found.contains("by the rule"), "{found}");
}

#[test]
fn a_null_of_a_lagging_endpoint_taken_as_absence_is_found() {
    let found = is_found(Planted::NullIsAbsence);
    assert!(found.contains("the chain ran its call"), "{found}");
}

#[test]
fn a_nonce_used_again_after_an_ambiguous_send_is_found() {
    is_found(Planted::NonceAgain);
}

#[test]
fn a_seed_means_the_same_run_every_time() {
    for seed in 0..20 {
        assert_eq!(run(Plan::of(seed), Planted::Nothing, true).trace, run(Plan::of(seed), Planted::Nothing, true).trace, "seed {seed}");
    }
}

/// That nothing fails says little of runs in which little happens.
#[test]
fn the_runs_reach_every_end_and_every_turn() {
    let mut met = BTreeSet::new();
    for seed in 0..1_000 {
        met.append(&mut run(Plan::of(seed), Planted::Nothing, false).met);
    }
    let wanted = [
        "job completed",
        "job reverted",
        "job cancelled",
        "job dead",
        "job not_actionable",
        "lineage mined signed",
        "lineage reverted signed",
        "lineage superseded signed",
        "lineage abandoned unsigned",
        "revived",
        "replaced",
        "noop",
        "noop first",
        "capped",
        "lane paused",
        "lane resumed",
        "fence followed a stranger",
        "window changed",
        "token fenced",
        "lease lost",
    ];
    let missing: Vec<_> = wanted.into_iter().filter(|word| !met.contains(*word)).collect();
    assert!(missing.is_empty(), "never met: {missing:?}; met: {met:?}");
}
