//! What may never be false, looked at after each step from books of its own: a guard of the store that fails to hold is found too.

use super::chain::{Bytes, Chain, Effect};
use super::plan::Plan;
use super::store::{Attempt, Store};
use entity::states::{AttemptPurpose, JobState, LineageState};
use entity::values::{Hash, Wei};
use primitive_types::U256;
use std::collections::HashMap;

#[derive(Default)]
pub struct Ledger {
    /// Committed attempts by lineage, as they were when they were committed.
    journal: Vec<Vec<Attempt>>,
    known: HashMap<Hash, Bytes>,
    /// Who signed first at a nonce, and where a job signed.
    nonces: HashMap<(usize, u64), usize>,
    jobs: HashMap<usize, (usize, u64)>,
    /// The block at which the newest replacement of a lineage was priced.
    priced: HashMap<usize, u64>,
    idle: u32,
    counts: Vec<u64>,
}

type Check = Result<(), String>;

fn check(holds: bool, or: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(or()) }
}

/// `floor(x * (10000 + bps) / 10000) + 1`, written down a second time on purpose.
fn bumped(x: Wei, bps: u32) -> U256 {
    x.0 * U256::from(10_000 + bps) / U256::from(10_000) + 1
}

impl Ledger {
    /// An attempt was committed; `block` is where a replacement was priced.
    pub fn journaled(&mut self, plan: &Plan, store: &Store, lineage: usize, attempt: Attempt, block: Option<u64>) -> Check {
        let Attempt { bytes, price, purpose, .. } = attempt;
        let job = store.lineages[lineage].job;
        let place = (bytes.account, bytes.nonce);
        check(self.known.insert(bytes.hash, bytes).is_none(), || format!("two attempts with hash {}", bytes.hash))?;
        let owner = *self.nonces.entry(place).or_insert(job);
        check(owner == job, || {
            format!("nonce {} of account {} has bytes of job {owner} and was given to job {job}", bytes.nonce, bytes.account)
        })?;
        let first = *self.jobs.entry(job).or_insert(place);
        check(first == place, || format!("job {job} has bytes at nonce {first:?} and was signed at {place:?} too"))?;
        let limit = if purpose == AttemptPurpose::Noop { plan.rules.noop_limit } else { plan.rules.limit };
        let (cap, tip) = (price.max_fee_per_gas, price.max_priority_fee_per_gas);
        check(tip <= cap && cap <= limit, || format!("tip {tip} of cap {cap} over limit {limit} (lineage {lineage})"))?;
        self.journal.resize_with(self.journal.len().max(lineage + 1), Vec::new);
        for old in &self.journal[lineage] {
            let least =
                (bumped(old.price.max_fee_per_gas, plan.rules.bump_bps), bumped(old.price.max_priority_fee_per_gas, plan.rules.bump_bps));
            check(cap.0 >= least.0 && tip.0 >= least.1, || {
                format!("lineage {lineage}: {cap}/{tip} is not over {:?} by the rule", old.price)
            })?;
        }
        if let Some(block) = block {
            let before = self.priced.insert(lineage, block);
            check(before.is_none_or(|before| before < block), || format!("lineage {lineage} was priced twice at block {block}"))?;
        }
        self.journal[lineage].push(attempt);
        Ok(())
    }

    /// Bytes are given to an endpoint.
    pub fn given(&self, bytes: &Bytes) -> Check {
        check(self.known.get(&bytes.hash) == Some(bytes), || {
            format!("{} at nonce {} is sent and was never journaled", bytes.hash, bytes.nonce)
        })
    }

    /// A write under a token or a lease.
    pub fn wrote(what: &str, current: bool, rows: usize) -> Check {
        check(current || rows == 0, || format!("{what} changed {rows} rows under a stale token or lease"))
    }

    /// Ends became final: nothing may ever undo them.
    pub fn finalized(store: &Store, chain: &Chain, lineages: &[usize]) -> Check {
        for at in lineages {
            let lineage = &store.lineages[*at];
            let end = lineage.end.ok_or_else(|| format!("lineage {at} is final without an end"))?;
            let truth = chain.canonical(end.hash);
            let same = truth.is_some_and(|mined| {
                mined.number == end.block && mined.block == end.block_hash && mined.succeeded == (lineage.state == LineageState::Mined)
            });
            check(same, || format!("lineage {at} is final as {} with {end:?}, and the chain shows {truth:?}", lineage.state))?;
        }
        Ok(())
    }

    /// After every step that changed rows.
    pub fn step(&self, store: &Store) -> Check {
        if let Some(guard) = &store.guard {
            return Err(format!("a guard of the tables fired: {guard}"));
        }
        for (at, lineage) in store.lineages.iter().enumerate() {
            let live = store.lineages.iter().filter(|other| other.job == lineage.job && other.is_live()).count();
            check(live <= 1, || format!("job {} has {live} live lineages", lineage.job))?;
            let booked = self.journal.get(at).map_or(&[][..], Vec::as_slice);
            check(booked == lineage.attempts, || format!("the attempts of lineage {at} were changed"))?;
            let abandoned = lineage.state == LineageState::Abandoned;
            check(!abandoned || booked.is_empty(), || format!("lineage {at} has signed bytes and was given up"))?;
        }
        Ok(())
    }

    /// After every block of the watched time.
    pub fn block(&mut self, store: &Store, chain: &Chain, watched: bool) -> Check {
        let counts = &chain.tip().counts;
        let moved = self.counts != counts;
        self.counts = counts.to_vec();
        let unmined = store.lineages.iter().any(|l| !l.state.is_final() && l.nonce >= i64::try_from(counts[l.lane]).unwrap());
        let unbound = |at: usize| !store.jobs[at].state.is_final() && !store.lineages.iter().any(|l| l.job == at && l.is_live());
        let waits = unmined || (0..store.jobs.len()).any(unbound);
        self.idle = if watched && waits && !moved { self.idle + 1 } else { 0 };
        check(self.idle <= 3, || format!("the lanes are idle for {} blocks while work waits and no fault holds", self.idle))
    }

    /// When everything has ended: every job against the canonical chain.
    pub fn end(store: &Store, chain: &Chain) -> Check {
        for (at, job) in store.jobs.iter().enumerate() {
            let ran: Vec<bool> =
                chain.history().filter(|(bytes, _)| bytes.effect == Effect::Job(at)).map(|(_, succeeded)| *succeeded).collect();
            let expected: &[bool] = match job.state {
                JobState::Completed => &[true],
                JobState::Reverted => &[false],
                _ => &[],
            };
            check(ran == expected, || format!("job {at} is {} and the chain ran its call as {ran:?}", job.state))?;
        }
        for (at, lane) in store.lanes.iter().enumerate() {
            let count = i64::try_from(chain.tip().counts[at]).unwrap();
            check(lane.next == count, || {
                format!("lane {at}: the fence is at {} and the chain at {count}: a nonce never ended", lane.next)
            })?;
        }
        let mut next = HashMap::new();
        for (bytes, _) in chain.history() {
            let expected = next.entry(bytes.account).or_insert(0);
            check(bytes.nonce == *expected, || format!("nonce {} after {expected}", bytes.nonce))?;
            *expected += 1;
        }
        Ok(())
    }
}
