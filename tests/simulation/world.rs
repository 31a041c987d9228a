//! The stage: one clock, the store, the chain and the processes as tasks that take one step at a time. Whoever is due next goes next, so a
//! seed decides every interleaving. A process dies by having its tasks dropped between two steps.

use super::chain::{Bytes, Chain, Effect, GAS};
use super::checks::Ledger;
use super::plan::{BLOCK_MS, Fault, GWEI, PROCESSES, Plan, QUIET_BASE_FEE};
use super::process::{self, Ctx, Mind};
use super::rng::Rng;
use super::store::{Lane, Store};
use entity::states::{LaneState, LineageState};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};

/// What is broken on purpose, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    Nothing,
    /// A replacement is one wei short.
    ShortBump,
    /// The null of an endpoint that lags counts as absence.
    NullIsAbsence,
    /// After an ambiguous send the nonce is given back.
    NonceAgain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Postgres {
    Answers,
    Refuses,
    LosesAnswers,
}

pub struct World {
    pub plan: Rc<Plan>,
    pub planted: Planted,
    pub rng: Rng,
    pub store: Store,
    pub chain: Chain,
    pub minds: Vec<Mind>,
    pub ledger: Ledger,
    pub postgres: Postgres,
    /// Deliveries that come once whatever lock is on them.
    pub again: Vec<bool>,
    /// Which process has a delivery, and until when its lock holds.
    pub locks: Vec<Option<(u64, u64)>>,
    pub spawned: Vec<(usize, usize)>,
    pub broken: Option<String>,
    pub trace: Option<Vec<String>>,
    boots: u64,
    accepted: usize,
}

impl World {
    pub fn say(&mut self, text: impl FnOnce() -> String) {
        let now = self.store.now;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>7} ms  {}", now, text()));
        }
    }

    pub fn check(&mut self, found: Result<(), String>) {
        if let Err(found) = found {
            self.say(|| format!("VIOLATION {found}"));
            self.broken.get_or_insert(found);
        }
    }

    pub fn fails(plan: &Plan, now: u64) -> impl Fn(usize) -> bool {
        move |job| plan.jobs[job].reverts || plan.jobs[job].hopeless.is_some_and(|from| from <= now)
    }

    fn mine(&mut self) {
        let plan = self.plan.clone();
        self.chain.mine(&mut self.rng, &Self::fails(&plan, self.store.now));
        self.told_of_tip();
        let watched = self.store.now >= plan.watched_from;
        let found = self.ledger.block(&self.store, &self.chain, watched);
        self.check(found);
    }

    fn told_of_tip(&mut self) {
        let tip = self.chain.tip();
        let (number, base, txs) = (tip.number, tip.base_fee, tip.txs.clone());
        self.say(|| {
            let shown = |(bytes, succeeded): &(Bytes, bool)| format!("{}/{} {:?} {succeeded}", bytes.account, bytes.nonce, bytes.effect);
            format!("block {number} base {base}: {}", txs.iter().map(shown).collect::<Vec<_>>().join(", "))
        });
    }

    fn begin(&mut self, at: usize) {
        let plan = self.plan.clone();
        let fault = plan.faults[at].fault;
        self.say(|| format!("fault {fault:?} begins"));
        let chain = &mut self.chain;
        match fault {
            Fault::Lag { endpoint, blocks } => chain.endpoints[endpoint].lag = blocks,
            Fault::Freeze { endpoint } => chain.endpoints[endpoint].frozen = true,
            Fault::Split { endpoint, blocks } => chain.endpoints[endpoint].split = blocks,
            Fault::Lie { endpoint, lie } => chain.endpoints[endpoint].lie = Some(lie),
            Fault::Down { endpoint } => chain.endpoints[endpoint].down = true,
            Fault::Send { endpoint, mood } => chain.endpoints[endpoint].sends = Some(mood),
            Fault::Evict { endpoint: Some(endpoint) } => chain.endpoints[endpoint].pool.clear(),
            Fault::Evict { endpoint: None } => chain.network.retain(|_, bytes| bytes.effect == Effect::Stranger),
            Fault::Reorg { depth, loses } => {
                chain.reorganise(depth, loses, &mut self.rng, &Self::fails(&plan, self.store.now));
                self.told_of_tip();
            }
            Fault::Market { times } => chain.target_fee = QUIET_BASE_FEE * times,
            Fault::Full => chain.full = true,
            Fault::Stranger { account } => {
                let bytes = chain.stranger(account);
                self.say(|| format!("a stranger sends nonce {} of account {account}", bytes.nonce));
            }
            Fault::Poor { account, affords } => chain.balance[account] = affords * GAS * (2 * QUIET_BASE_FEE + GWEI) + 1,
            Fault::Crash { process, steps } => self.minds[process].dies_in = Some(steps),
            Fault::Stop { process, point, dies } => {
                let until = plan.faults[at].until;
                self.minds[process].stops = Some((point, (!dies).then_some(until)));
            }
            Fault::Pause { process } => self.minds[process].paused_until = plan.faults[at].until,
            Fault::Cancel { job } if job < self.accepted => {
                let told = self.store.cancel(job);
                self.say(|| format!("job {job} is to be cancelled: {told:?}"));
            }
            Fault::Redeliver { job } if job < self.accepted => self.again[job] = true,
            Fault::Postgres { answers_lost } => self.postgres = if answers_lost { Postgres::LosesAnswers } else { Postgres::Refuses },
            Fault::Cancel { .. } | Fault::Redeliver { .. } => {}
        }
    }

    fn end(&mut self, at: usize) {
        let fault = self.plan.faults[at].fault;
        self.say(|| format!("fault {fault:?} ends"));
        let chain = &mut self.chain;
        match fault {
            Fault::Lag { endpoint, .. } => chain.endpoints[endpoint].lag = 0,
            Fault::Freeze { endpoint } => chain.endpoints[endpoint].frozen = false,
            Fault::Split { endpoint, .. } => chain.endpoints[endpoint].split = 0,
            Fault::Lie { endpoint, .. } => chain.endpoints[endpoint].lie = None,
            Fault::Down { endpoint } => chain.endpoints[endpoint].down = false,
            Fault::Send { endpoint, .. } => chain.endpoints[endpoint].sends = None,
            Fault::Market { .. } => chain.target_fee = QUIET_BASE_FEE,
            Fault::Full => chain.full = false,
            Fault::Poor { .. } => chain.rich(),
            Fault::Postgres { .. } => self.postgres = Postgres::Answers,
            Fault::Crash { process, .. } | Fault::Stop { process, .. } => {
                self.minds[process].dies_in = None;
                self.minds[process].stops = None;
                self.minds[process].back = true;
            }
            _ => {}
        }
    }

    /// Accepts the jobs that are due; gives the time of the next.
    fn accept(&mut self) -> u64 {
        let due = (self.accepted..self.plan.jobs.len()).filter(|at| self.plan.jobs[*at].at <= self.store.now).count();
        for _ in 0..due {
            let job = self.store.accept();
            self.accepted += 1;
            self.say(|| format!("job {job} is accepted"));
        }
        self.plan.jobs.get(self.accepted).map_or(u64::MAX, |job| job.at)
    }

    fn met(&self) -> BTreeSet<String> {
        let jobs = self.store.jobs.iter().map(|job| format!("job {}", job.state));
        let ends = self.store.lineages.iter().map(|l| {
            let signed = if l.attempts.is_empty() { "unsigned" } else { "signed" };
            format!("lineage {} {signed}", l.state)
        });
        let of = |l: &super::store::Lineage| {
            let reverted_noop = l.noop.is_some() && l.attempts.len() == 1;
            [(l.revivals > 0, "revived"), (l.replacements > 0, "replaced"), (l.noops > 0, "noop"), (reverted_noop, "noop first")]
        };
        let deeds = self.store.lineages.iter().flat_map(of).filter(|(met, _)| *met).map(|(_, word)| word.to_owned());
        jobs.chain(ends).chain(deeds).chain(self.store.met.iter().map(|word| (*word).to_owned())).collect()
    }

    fn done(&self) -> bool {
        let abandoned = |l: &super::store::Lineage| l.state == LineageState::Abandoned;
        let ended = |l: &super::store::Lineage| l.state.is_final() && (l.finalized || abandoned(l));
        self.accepted == self.plan.jobs.len()
            && self.store.jobs.iter().all(|job| job.state.is_final())
            && self.store.lineages.iter().all(ended)
    }
}

pub struct Task {
    process: usize,
    wake: Rc<Cell<u64>>,
    future: Pin<Box<dyn Future<Output = ()>>>,
}

/// How a run ended.
pub struct Outcome {
    pub violation: Option<String>,
    pub trace: Vec<String>,
    pub steps: u64,
    /// What came about in it.
    pub met: BTreeSet<String>,
}

pub fn run(plan: Plan, planted: Planted, traced: bool) -> Outcome {
    let plan = Rc::new(plan);
    let lane = Lane {
        state: LaneState::Active,
        reason: None,
        next: 0,
        latest: 0,
        settled: 0,
        head_since: 0,
        width: plan.width,
        balance: None,
        holder: None,
        until: 0,
    };
    let mut jobs = plan.jobs.clone();
    jobs.sort_by_key(|job| job.at);
    let plan = Rc::new(Plan { jobs, ..(*plan).clone() });
    let world = World {
        planted,
        rng: Rng::new(plan.seed),
        store: Store { lanes: vec![lane; plan.accounts], ..Store::default() },
        chain: Chain::new(&plan),
        minds: (0..PROCESSES).map(|_| Mind::default()).collect(),
        ledger: Ledger::default(),
        postgres: Postgres::Answers,
        again: vec![false; plan.jobs.len()],
        locks: vec![None; plan.jobs.len()],
        spawned: Vec::new(),
        broken: None,
        trace: traced.then(Vec::new),
        boots: 0,
        accepted: 0,
        plan,
    };
    Stage { world: Rc::new(RefCell::new(world)), tasks: Vec::new() }.play()
}

struct Stage {
    world: Rc<RefCell<World>>,
    tasks: Vec<Task>,
}

impl Stage {
    fn boot(&mut self, process: usize) {
        let me = {
            let mut world = self.world.borrow_mut();
            world.boots += 1;
            let me = world.boots;
            world.minds[process] = Mind { me, alive: true, ..Mind::default() };
            world.say(|| format!("process {process} starts as {me}"));
            me
        };
        let lanes = self.world.borrow().plan.accounts;
        for part in 0..2 + lanes {
            self.task(process, me, |ctx| match part {
                0 => Box::pin(process::watch(ctx)),
                1 => Box::pin(process::take(ctx)),
                lane => Box::pin(super::round::rounds(ctx, lane - 2)),
            });
        }
    }

    fn task(&mut self, process: usize, me: u64, with: impl FnOnce(Ctx) -> Pin<Box<dyn Future<Output = ()>>>) {
        let wake = Rc::new(Cell::new(self.world.borrow().store.now));
        let plan = self.world.borrow().plan.clone();
        let ctx = Ctx { plan, world: self.world.clone(), process, me, wake: wake.clone() };
        self.tasks.push(Task { process, wake, future: with(ctx) });
    }

    fn kill(&mut self, process: usize) {
        self.tasks.retain(|task| task.process != process);
        let mut world = self.world.borrow_mut();
        world.minds[process].alive = false;
        world.say(|| format!("process {process} dies"));
    }

    /// The task that is due next, and when.
    fn next(&self) -> Option<(usize, u64)> {
        let world = self.world.borrow();
        let due = |task: &Task| task.wake.get().max(world.minds[task.process].paused_until);
        self.tasks.iter().enumerate().map(|(at, task)| (at, due(task))).min_by_key(|(_, due)| *due)
    }

    fn play(mut self) -> Outcome {
        (0..PROCESSES).for_each(|process| self.boot(process));
        let plan = self.world.borrow().plan.clone();
        let mut events: Vec<(u64, usize, bool)> =
            plan.faults.iter().enumerate().flat_map(|(at, fault)| [(fault.at, at, true), (fault.until, at, false)]).collect();
        events.sort_by_key(|event| (event.0, event.1, !event.2));
        let (mut events, mut next_block, mut next_job, mut quiet) = (events.into_iter().peekable(), BLOCK_MS, 0, false);
        let mut steps = 0_u64;
        loop {
            let (task, due) = self.next().unwrap_or((usize::MAX, u64::MAX));
            let event = events.peek().map_or(u64::MAX, |event| event.0);
            let calm = if quiet { u64::MAX } else { plan.quiet_at };
            let first = due.min(event).min(next_block).min(next_job).min(calm);
            {
                let mut world = self.world.borrow_mut();
                world.store.now = first.max(world.store.now);
                if world.store.now > plan.horizon {
                    let open = late(&world);
                    world.check(Err(open));
                }
            }
            if first == next_job {
                next_job = self.world.borrow_mut().accept();
            } else if first == event {
                let (_, at, begins) = events.next().unwrap();
                let mut world = self.world.borrow_mut();
                if begins { world.begin(at) } else { world.end(at) }
            } else if first == calm {
                quiet = true;
                self.world.borrow_mut().chain.quiet = true;
                self.world.borrow_mut().say(|| "no fault from here on".to_owned());
            } else if first == next_block {
                let mut world = self.world.borrow_mut();
                world.mine();
                next_block += BLOCK_MS;
                if world.done() {
                    let found = Ledger::end(&world.store, &world.chain);
                    world.check(found);
                    break;
                }
            } else {
                steps += 1;
                self.step(task);
            }
            self.settle();
            if self.world.borrow().broken.is_some() {
                break;
            }
        }
        let mut world = self.world.borrow_mut();
        Outcome { violation: world.broken.take(), trace: world.trace.take().unwrap_or_default(), steps, met: world.met() }
    }

    fn step(&mut self, task: usize) {
        let process = self.tasks[task].process;
        let ended = self.tasks[task].future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        if ended {
            self.tasks.swap_remove(task);
        }
        let dies = {
            let mut world = self.world.borrow_mut();
            let mind = &mut world.minds[process];
            mind.dies_in = mind.dies_in.map(|left| left.saturating_sub(1));
            mind.dies_in == Some(0)
        };
        if dies {
            self.kill(process);
        }
    }

    /// What follows from a step: the invariants, new tasks, processes that come back.
    fn settle(&mut self) {
        let (spawned, back) = {
            let mut world = self.world.borrow_mut();
            if std::mem::take(&mut world.store.changed) {
                let found = world.ledger.step(&world.store);
                world.check(found);
            }
            if world.spawned.is_empty() && !world.minds.iter().any(|mind| mind.back) {
                return;
            }
            let back: Vec<usize> =
                (0..PROCESSES).filter(|at| std::mem::take(&mut world.minds[*at].back) && !world.minds[*at].alive).collect();
            (std::mem::take(&mut world.spawned), back)
        };
        for (process, job) in spawned {
            let me = self.world.borrow().minds[process].me;
            self.task(process, me, |ctx| Box::pin(process::handle(ctx, job)));
        }
        back.into_iter().for_each(|process| self.boot(process));
    }
}

fn late(world: &World) -> String {
    let jobs: Vec<String> = world
        .store
        .jobs
        .iter()
        .enumerate()
        .filter(|(_, job)| !job.state.is_final())
        .map(|(at, job)| format!("job {at} is {}", job.state))
        .collect();
    let lineages = world.store.lineages.iter().filter(|l| !l.state.is_final() || !l.finalized);
    let lineages: Vec<String> = lineages.map(|l| format!("{l:?}")).collect();
    format!("not everything has ended long after the last fault: {} {}", jobs.join(", "), lineages.join("; "))
}
