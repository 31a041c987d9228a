//! A worker process: it watches heads, takes deliveries and works on them, step by step as `actors` and `jobs` do. Between two steps
//! anything may happen. Decides nothing itself: prices, verdicts, votes and ends are those of `domain`.

use super::chain::{ACCOUNTS, Bytes, Effect};
use super::checks::Ledger;
use super::plan::{ENDPOINTS, Plan, Point, WRITER};
use super::store::{Attempt, Claimed, Lineage, Reserved, Store};
use super::world::{Planted, Postgres, World};
use entity::states::{AttemptPurpose, LineageState};
use entity::values::{Hash, Wei};
use holdfast::domain::ballot::{self, Facts, Shown, Standing};
use holdfast::domain::broadcast::decisive;
use holdfast::domain::fees::{self, Price, Quote};
use holdfast::domain::lane_round::Priced;
use holdfast::domain::quorum::{Decision, Vote, decide, reached};
use holdfast::domain::rpc_verdict::{Class, Verdict, verdict};
use holdfast::domain::{backoff, calm, job};
use primitive_types::U256;
use std::cell::{Cell, RefCell, RefMut};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

const LOCK_MS: u64 = 5_000;
const CONCURRENCY: usize = 4;
/// Blocks behind the majority that make an endpoint lag.
const LAG_MAX: u64 = 3;

/// What a process keeps in memory, and loses when it dies.
#[derive(Default)]
pub struct Mind {
    pub me: u64,
    pub alive: bool,
    pub dies_in: Option<u64>,
    /// Where it stops next, and until when; None: it dies there.
    pub stops: Option<(Point, Option<u64>)>,
    pub paused_until: u64,
    pub back: bool,
    pub view: Option<View>,
    pub heads: [Option<u64>; ENDPOINTS],
    pub lags: [bool; ENDPOINTS],
    pub calm: calm::Window,
    pub active: Vec<usize>,
    pub minted: u64,
    /// What was seen of the money and the window of each lane while it was ours.
    pub funds: [Funds; ACCOUNTS],
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Funds {
    pub block: Option<u64>,
    pub balance: Option<u128>,
    pub window_at: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub struct View {
    pub reached: u64,
    pub market: Quote,
}

/// Postgres did not answer.
pub struct Away;

pub struct Ctx {
    pub plan: Rc<Plan>,
    pub world: Rc<RefCell<World>>,
    pub process: usize,
    pub me: u64,
    pub wake: Rc<Cell<u64>>,
}

struct Nap<'a> {
    wake: &'a Cell<u64>,
    until: u64,
    slept: bool,
}

impl Future for Nap<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.slept {
            return Poll::Ready(());
        }
        self.slept = true;
        self.wake.set(self.until);
        Poll::Pending
    }
}

impl Ctx {
    pub fn world(&self) -> RefMut<'_, World> {
        self.world.borrow_mut()
    }

    /// The end of a step; the next one comes after some time.
    pub async fn pause(&self, low: u64, high: u64) {
        let until = {
            let mut world = self.world();
            world.store.now + world.rng.range(low, high)
        };
        Nap { wake: &self.wake, until, slept: false }.await;
    }

    /// A statement is on its way.
    pub async fn sql(&self) -> Result<(), Away> {
        self.pause(1, 15).await;
        if self.world().postgres == Postgres::Refuses { Err(Away) } else { Ok(()) }
    }

    /// A place that the schedule may stop a process at; it takes effect before the next step.
    pub fn point(&self, point: Point) {
        let process = self.process;
        let mut world = self.world();
        if let Some((_, until)) = world.minds[process].stops.filter(|(stops, _)| *stops == point) {
            world.say(|| format!("process {process} stops at {point:?}"));
            let mind = &mut world.minds[process];
            mind.stops = None;
            match until {
                Some(until) => mind.paused_until = until,
                None => mind.dies_in = Some(1),
            }
        }
    }

    /// The statement has been done; whether that is known is another matter.
    pub fn answer<T>(&self, answer: T) -> Result<T, Away> {
        let mut world = self.world();
        if world.postgres == Postgres::LosesAnswers && world.rng.chance(50) { Err(Away) } else { Ok(answer) }
    }

    /// A question to the endpoints is on its way.
    pub async fn rpc(&self) {
        self.pause(5, 250).await;
    }

    pub fn mind<T>(&self, with: impl FnOnce(&mut Mind) -> T) -> T {
        with(&mut self.world().minds[self.process])
    }

    pub fn view(&self) -> Option<View> {
        self.mind(|mind| mind.view)
    }

    pub fn calm(&self) -> bool {
        self.mind(|mind| mind.calm.is_calm())
    }

    pub fn mint(&self) -> u64 {
        let me = self.me;
        self.mind(|mind| {
            mind.minted += 1;
            me * 1_000_000 + mind.minted
        })
    }
}

/// Votes of all endpoints on one question, as `chain/reads.rs` makes them.
impl World {
    fn asked<T>(&mut self, process: usize, answers: [Option<T>; ENDPOINTS]) -> [Option<T>; ENDPOINTS] {
        for answer in &answers {
            self.minds[process].calm.record(answer.is_none());
        }
        answers
    }

    fn heads(&mut self, process: usize) -> Option<u64> {
        let heads = self.asked(process, std::array::from_fn(|at| self.chain.head(at)));
        let votes = heads.map(|head| head.map_or(Vote::Abstains, Vote::Says));
        let mind = &mut self.minds[process];
        for (known, head) in mind.heads.iter_mut().zip(heads) {
            *known = head.or(*known);
        }
        let reached = reached(ENDPOINTS, &votes).agreed()?;
        mind.lags = mind.heads.map(|head| reached.saturating_sub(head.unwrap_or(0)) > LAG_MAX);
        Some(reached)
    }

    pub fn consumed(&mut self, process: usize, account: usize, at: Option<u64>) -> Option<i64> {
        let answers = self.asked(process, std::array::from_fn(|end| self.chain.count(end, account, at)));
        let votes: Vec<Vote<u64>> = (0..ENDPOINTS)
            .map(|end| {
                let head = self.chain.head(end);
                self.minds[process].heads[end] = head.or(self.minds[process].heads[end]);
                ballot::consumed_nonce(answers[end], head, at.unwrap_or(0))
            })
            .collect();
        let decision = if at.is_some() { decide(ENDPOINTS, &votes) } else { reached(ENDPOINTS, &votes) };
        decision.agreed().and_then(|count| i64::try_from(count).ok())
    }

    pub fn receipt(&mut self, process: usize, hash: Hash, since: u64) -> Decision<Option<Facts>> {
        let answers = self.asked(process, std::array::from_fn(|end| self.chain.receipt(end, hash)));
        let votes: Vec<_> = (0..ENDPOINTS)
            .map(|end| {
                let mind = &self.minds[process];
                let mut standing = Standing { before: mind.heads[end], with_answer: self.chain.head_behind(end), lags: mind.lags[end] };
                if self.planted == Planted::NullIsAbsence {
                    standing = Standing { before: Some(u64::MAX), with_answer: None, lags: false };
                }
                let shown = answers[end].map(|mined| {
                    mined.map(|mined| Shown {
                        hash,
                        block_number: Some(mined.number),
                        block_hash: Some(mined.block),
                        status: Some(u64::from(mined.succeeded)),
                        gas_used: 21_000,
                        price: None,
                    })
                });
                ballot::receipt(hash, shown, standing, since)
            })
            .collect();
        ballot::decide_receipt(ENDPOINTS, &votes).map(|seen| seen.map(|seen| seen.facts))
    }

    /// A balance, from whoever answers first.
    pub fn balance(&mut self, account: usize) -> Option<u128> {
        let start = self.rng.index(ENDPOINTS);
        (0..ENDPOINTS).find(|at| self.chain.head((start + at) % ENDPOINTS).is_some()).map(|_| self.chain.balance[account])
    }

    pub fn block_hash(&mut self, process: usize, number: u64) -> Option<Hash> {
        let answers = self.asked(process, std::array::from_fn(|end| self.chain.block_hash(end, number)));
        let votes: Vec<_> = (0..ENDPOINTS).map(|end| ballot::block_hash(number, answers[end], self.minds[process].heads[end])).collect();
        decide(ENDPOINTS, &votes).agreed().flatten()
    }

    /// Gives journaled bytes to the writer.
    pub fn give(&mut self, process: usize, bytes: Bytes, why: &str) -> Class {
        let found = self.ledger.given(&bytes);
        self.check(found);
        let refused = matches!(bytes.effect, Effect::Job(job) if self.plan.jobs[job].refused);
        let asked = |at: usize| at == WRITER || self.plan.broadcasts;
        let answers: [Option<Class>; ENDPOINTS] =
            std::array::from_fn(|at| asked(at).then(|| self.chain.send(at, bytes, refused, &mut self.rng)));
        let class = decisive(&answers).and_then(|place| answers[place]).unwrap_or(Class::NoAnswer);
        self.say(|| {
            format!("process {process} sends {}/{} {:?} at {} ({why}): {class}", bytes.account, bytes.nonce, bytes.effect, bytes.max_fee)
        });
        class
    }

    pub fn sign(&mut self, lineage: usize, purpose: AttemptPurpose, price: Price) -> Attempt {
        let Lineage { job, lane, nonce, .. } = self.store.lineages[lineage];
        let effect = if purpose == AttemptPurpose::Noop { Effect::Nothing } else { Effect::Job(job) };
        let bytes = Bytes {
            hash: self.chain.mint(0xA7),
            account: lane,
            nonce: u64::try_from(nonce).unwrap(),
            max_fee: price.max_fee_per_gas.0.as_u128(),
            tip: price.max_priority_fee_per_gas.0.as_u128(),
            effect,
        };
        Attempt { bytes, purpose, price, at: self.store.now }
    }

    /// Commits the first bytes of a nonce.
    fn record(&mut self, lineage: usize, token: u64, attempt: Attempt) -> bool {
        let current = self.store.jobs[self.store.lineages[lineage].job].token == Some(token);
        let attempt = Attempt { at: self.store.now, ..attempt };
        let written = self.store.record(lineage, token, attempt);
        let found = Ledger::wrote("record", current, usize::from(written));
        self.check(found);
        if written {
            let found = self.ledger.journaled(&self.plan, &self.store, lineage, attempt, None);
            self.check(found);
        }
        written
    }

    /// Commits a further attempt.
    pub fn replace(&mut self, lane: usize, holder: u64, block: u64, (lineage, ordinal): (usize, u32), attempt: Attempt) -> bool {
        let current = self.store.leases(lane, holder);
        let attempt = Attempt { at: self.store.now, ..attempt };
        let written = self.store.replace(lane, holder, lineage, ordinal, block, attempt);
        let found = Ledger::wrote("replace", current, usize::from(written));
        self.check(found);
        if written {
            let found = self.ledger.journaled(&self.plan, &self.store, lineage, attempt, Some(block));
            self.check(found);
        }
        written
    }
}

/// The watcher of heads and prices.
pub async fn watch(ctx: Ctx) {
    loop {
        ctx.rpc().await;
        {
            let mut world = ctx.world();
            let reached = world.heads(ctx.process);
            let known = world.minds[ctx.process].view;
            if let Some(reached) = reached.filter(|reached| known.is_none_or(|view| *reached > view.reached)) {
                let start = world.rng.index(ENDPOINTS);
                let told = (0..ENDPOINTS).find_map(|at| world.chain.base_fee((start + at) % ENDPOINTS));
                let market = told.map(|base| Quote { base_fee: Wei(U256::from(base)), priority_fee: world.plan.rules.floor });
                if let Some(market) = market.or(known.map(|view| view.market)) {
                    world.minds[ctx.process].view = Some(View { reached, market });
                }
            }
        }
        ctx.pause(400, 800).await;
    }
}

/// Takes deliveries that nobody has a lock on.
pub async fn take(ctx: Ctx) {
    loop {
        ctx.pause(150, 350).await;
        let mut world = ctx.world();
        let now = world.store.now;
        for job in world.minds[ctx.process].active.clone() {
            // A lock that somebody else has taken meanwhile is lost.
            if world.locks[job].is_some_and(|(holder, _)| holder == ctx.me) {
                world.locks[job] = Some((ctx.me, now + LOCK_MS));
            }
        }
        for job in 0..world.store.jobs.len() {
            let row = &world.store.jobs[job];
            let due = row.due && row.deliver_at <= now;
            let free = world.locks[job].is_none_or(|(_, until)| until < now) || world.again[job];
            let mine = world.minds[ctx.process].active.contains(&job);
            if due && free && !mine && world.minds[ctx.process].active.len() < CONCURRENCY {
                world.again[job] = false;
                world.locks[job] = Some((ctx.me, now + LOCK_MS));
                world.minds[ctx.process].active.push(job);
                world.spawned.push((ctx.process, job));
            }
        }
    }
}

/// How the work on a job ended.
enum Ended {
    Elsewhere,
    NotActionable,
    Cancelled,
    Later(i64),
}

/// One delivery, from its claim to its end.
pub async fn handle(ctx: Ctx, job: usize) {
    let token = ctx.mint();
    let _ = deliver(&ctx, job, token).await;
    let mut world = ctx.world();
    world.minds[ctx.process].active.retain(|other| *other != job);
    if world.locks[job].is_some_and(|(holder, _)| holder == ctx.me) {
        world.locks[job] = None;
    }
}

async fn deliver(ctx: &Ctx, job: usize, token: u64) -> Result<(), Away> {
    let generation = ctx.world().store.jobs[job].generation;
    ctx.sql().await?;
    let claimed = ctx.world().store.claim(job, generation, token);
    ctx.point(Point::Claimed);
    let claimed = ctx.answer(claimed)?;
    let Claimed::Go { number, lineage } = claimed else { return Ok(()) };
    ctx.world().say(|| format!("process {} executes job {job} (attempt {number}, lineage {lineage:?})", ctx.process));
    let ended = match lineage {
        Some(lineage) => go_on(ctx, job, token, lineage).await,
        None => begin(ctx, job, token).await,
    };
    let (event, most) = match ended.unwrap_or(Ended::Later(1_000)) {
        Ended::Elsewhere => return Ok(()),
        Ended::NotActionable => (job::Event::NothingToDo, 0),
        Ended::Cancelled => (job::Event::CancelAsked, 0),
        Ended::Later(most) => (job::Event::GivenBack, most),
    };
    ctx.sql().await?;
    let ceiling = u64::try_from(backoff::ceiling_ms(number).min(most)).unwrap();
    let mut world = ctx.world();
    let delay = ceiling / 2 + world.rng.range(0, ceiling / 2);
    let current = world.store.jobs[job].token == Some(token);
    let written = world.store.finish(job, token, number, event, delay);
    world.say(|| format!("the execution of job {job} ends with {event:?}: {written}"));
    let found = Ledger::wrote("finish", current, usize::from(written));
    world.check(found);
    Ok(())
}

const LANE_WAIT: i64 = 10_000;
const PROVIDER_WAIT: i64 = 15_000;
const FUNDS_WAIT: i64 = 15_000;

fn hopeless(world: &World, job: usize) -> bool {
    world.plan.jobs[job].hopeless.is_some_and(|from| from <= world.store.now)
}

/// None: no endpoint answers. Some(true): it reverts.
async fn simulate(ctx: &Ctx, job: usize) -> Option<bool> {
    ctx.rpc().await;
    let world = ctx.world();
    (0..ENDPOINTS).any(|at| world.chain.head(at).is_some()).then(|| hopeless(&world, job))
}

fn price(ctx: &Ctx) -> Option<Price> {
    let view = ctx.view()?;
    let rules = ctx.plan.rules;
    fees::price(view.market, rules.floor, rules.limit).ok()
}

/// A job without a nonce: a lane, a simulation, a look at the price, then the nonce.
async fn begin(ctx: &Ctx, job: usize, token: u64) -> Result<Ended, Away> {
    ctx.sql().await?;
    let Some(lane) = ({ ctx.world().store.pick() }) else { return Ok(Ended::Later(LANE_WAIT)) };
    match simulate(ctx, job).await {
        None => return Ok(Ended::Later(PROVIDER_WAIT)),
        Some(true) => return Ok(Ended::NotActionable),
        Some(false) => {}
    }
    let Some(offered) = price(ctx) else { return Ok(Ended::Later(PROVIDER_WAIT)) };
    ctx.sql().await?;
    let reserved = ctx.world().store.reserve(lane, job, token, offered.max_fee_per_gas.0.as_u128());
    ctx.world().say(|| format!("job {job} asks lane {lane} for a nonce: {reserved:?}"));
    ctx.point(Point::Reserved);
    match ctx.answer(reserved)? {
        Reserved::Nonce(lineage) => sign(ctx, lineage, token, AttemptPurpose::Call).await,
        Reserved::Owned => Ok(Ended::Later(100)),
        Reserved::Full => Ok(Ended::Later(LANE_WAIT)),
        Reserved::Unfunded => Ok(Ended::Later(FUNDS_WAIT)),
        Reserved::Fenced => Ok(Ended::Elsewhere),
        Reserved::Cancelled => Ok(Ended::Cancelled),
    }
}

/// A job that owns a nonce: what is unsigned is tried again and signed, what is signed is sent, what was sent is left to its receipt.
async fn go_on(ctx: &Ctx, job: usize, token: u64, lineage: usize) -> Result<Ended, Away> {
    ctx.sql().await?;
    let unsigned = {
        let world = ctx.world();
        world.store.lineages[lineage].state == LineageState::Allocated && world.store.lineages[lineage].noop.is_none()
    };
    if unsigned {
        match simulate(ctx, job).await {
            None => return Ok(Ended::Later(PROVIDER_WAIT)),
            Some(true) => {
                ctx.sql().await?;
                let released = ctx.world().store.release(lineage, token);
                ctx.world().say(|| format!("the unsigned nonce of job {job} is released: {released}"));
                if ctx.answer(released)? {
                    return Ok(Ended::Elsewhere);
                }
                ctx.sql().await?;
                ctx.world().store.refuse(lineage, token);
            }
            Some(false) => {}
        }
    }
    ctx.sql().await?;
    let (state, noop, newest) = {
        let world = ctx.world();
        let lineage = &world.store.lineages[lineage];
        (lineage.state, lineage.noop, lineage.attempts.last().map(|attempt| attempt.bytes))
    };
    if state.is_final() {
        return Ok(Ended::Elsewhere);
    }
    if matches!(state, LineageState::Broadcast | LineageState::Replaced) {
        ctx.sql().await?;
        return Ok(note(ctx, lineage, token, None));
    }
    match newest {
        Some(bytes) => send(ctx, lineage, token, bytes).await,
        None => sign(ctx, lineage, token, if noop.is_some() { AttemptPurpose::Noop } else { AttemptPurpose::Call }).await,
    }
}

async fn sign(ctx: &Ctx, lineage: usize, token: u64, purpose: AttemptPurpose) -> Result<Ended, Away> {
    let Some(price) = price(ctx) else { return Ok(Ended::Later(PROVIDER_WAIT)) };
    let attempt = ctx.world().sign(lineage, purpose, price);
    ctx.sql().await?;
    let recorded = ctx.world().record(lineage, token, attempt);
    ctx.point(Point::Recorded);
    if !ctx.answer(recorded)? {
        return Ok(Ended::Elsewhere);
    }
    send(ctx, lineage, token, attempt.bytes).await
}

async fn send(ctx: &Ctx, lineage: usize, token: u64, bytes: Bytes) -> Result<Ended, Away> {
    ctx.rpc().await;
    let class = ctx.world().give(ctx.process, bytes, "execution");
    ctx.point(Point::Given);
    if ctx.world().planted == Planted::NonceAgain && verdict(class) == Verdict::Ambiguous {
        return Ok(give_back(&mut ctx.world(), lineage));
    }
    ctx.sql().await?;
    let noted = note(ctx, lineage, token, Some(class));
    ctx.answer(noted)
}

/// The planted fault: nobody took it, so the nonce is free again.
fn give_back(world: &mut World, lineage: usize) -> Ended {
    let Store { lineages, lanes, jobs, .. } = &mut world.store;
    let one = &mut lineages[lineage];
    one.state = LineageState::Abandoned;
    one.attempts.clear();
    jobs[one.job].lineage = None;
    lanes[one.lane].next = one.nonce;
    Ended::Later(1_000)
}

fn note(ctx: &Ctx, lineage: usize, token: u64, answer: Option<Class>) -> Ended {
    let mut world = ctx.world();
    let current = world.store.jobs[world.store.lineages[lineage].job].token == Some(token);
    let written = world.store.sent(lineage, token, answer);
    let found = Ledger::wrote("sent", current, usize::from(written));
    world.check(found);
    Ended::Elsewhere
}

/// Bytes of a replacement; one wei short where that is planted.
pub fn priced(world: &World, wanted: &Priced) -> Price {
    let short = U256::from(u8::from(world.planted == Planted::ShortBump));
    Price { max_fee_per_gas: Wei(wanted.price.max_fee_per_gas.0 - short), ..wanted.price }
}
