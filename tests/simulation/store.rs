//! Postgres as the statements of `store/sql` mean it: every method is one statement, all or nothing, with the guards of the tables. A
//! stale token or lease finds no row. It knows nothing of who calls it.

use super::chain::{Bytes, GAS};
use entity::ids::LineageId;
use entity::states::{AttemptPurpose, JobState, LaneState, LineageState, NoopReason};
use entity::values::Hash;
use holdfast::domain::fees::Price;
use holdfast::domain::lane_round::{self, EndBlock, OpenNonce};
use holdfast::domain::replacement::Unmined;
use holdfast::domain::rpc_verdict::Class;
use holdfast::domain::{job, lineage, window};
use std::collections::BTreeSet;
use std::time::Duration;
use uuid::Uuid;

#[derive(Clone, Debug)]
pub struct Job {
    pub state: JobState,
    pub token: Option<u64>,
    pub attempts: i32,
    pub budget: i32,
    pub cancel_asked: bool,
    /// The nonce it owns.
    pub lineage: Option<usize>,
    pub version: u64,
    pub generation: u32,
    pub deliver_at: u64,
    /// A delivery has to come.
    pub due: bool,
    pub created: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub bytes: Bytes,
    pub purpose: AttemptPurpose,
    pub price: Price,
    pub at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    pub hash: Hash,
    pub block: u64,
    pub block_hash: Hash,
}

#[derive(Clone, Debug)]
pub struct Lineage {
    pub job: usize,
    pub lane: usize,
    pub nonce: i64,
    pub state: LineageState,
    pub sends: u32,
    pub replacements: u32,
    pub noops: u32,
    pub priced_block: Option<u64>,
    pub noop: Option<NoopReason>,
    pub answer: Option<Class>,
    pub capped: bool,
    pub created: u64,
    pub last_sent: Option<u64>,
    pub attempts: Vec<Attempt>,
    pub end: Option<End>,
    pub finalized: bool,
    /// The block of the count that gave it to a stranger.
    pub proven_at: u64,
    pub revivals: u32,
}

#[derive(Clone, Debug)]
pub struct Lane {
    pub state: LaneState,
    pub reason: Option<&'static str>,
    pub next: i64,
    pub latest: i64,
    pub settled: i64,
    pub head_since: u64,
    pub width: i32,
    pub balance: Option<u128>,
    pub holder: Option<u64>,
    pub until: u64,
}

#[derive(Default)]
pub struct Store {
    pub now: u64,
    pub jobs: Vec<Job>,
    pub lineages: Vec<Lineage>,
    pub lanes: Vec<Lane>,
    pub cursor: usize,
    /// Raised by a guard that a correct caller never meets.
    pub guard: Option<String>,
    /// What else came about.
    pub met: BTreeSet<&'static str>,
    /// Rows were changed since this was last taken.
    pub changed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    Nonce(usize),
    Owned,
    Full,
    Unfunded,
    Fenced,
    Cancelled,
}

#[derive(Clone, Copy, Debug)]
pub enum Claimed {
    Go { number: i32, lineage: Option<usize> },
    Spent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    Ended,
    Asked,
    Noop,
    Refused,
}

/// An open nonce as it was read; it may have changed since.
pub struct Open {
    pub lineage: usize,
    pub nonce: i64,
    pub attempts: Vec<(Hash, AttemptPurpose)>,
    pub capped: bool,
    pub unmined: Unmined,
}

impl Open {
    pub fn nonce(&self) -> OpenNonce<'_> {
        OpenNonce { lineage: id(self.lineage), nonce: self.nonce, attempts: &self.attempts, capped: self.capped, unmined: self.unmined }
    }
}

pub fn id(lineage: usize) -> LineageId {
    LineageId(Uuid::from_u128(lineage as u128))
}

pub fn row(id: LineageId) -> usize {
    usize::try_from(id.0.as_u128()).unwrap()
}

fn ms(from: u64, to: u64) -> Duration {
    Duration::from_millis(to.saturating_sub(from))
}

fn can(job: JobState, event: job::Event) -> bool {
    job::next(job, event).is_ok()
}

fn sendable(state: LineageState) -> bool {
    lineage::next(state, lineage::Event::Sent).is_ok()
}

const RECEIPT: lineage::Event = lineage::Event::ReceiptFinal { succeeded: true };

impl Lineage {
    pub fn is_live(&self) -> bool {
        !matches!(self.state, LineageState::Superseded | LineageState::Abandoned)
    }

    /// The highest of each field over all attempts.
    pub fn tried(&self) -> Option<Price> {
        self.attempts.iter().map(|attempt| attempt.price).reduce(|a, b| Price {
            max_fee_per_gas: a.max_fee_per_gas.max(b.max_fee_per_gas),
            max_priority_fee_per_gas: a.max_priority_fee_per_gas.max(b.max_priority_fee_per_gas),
        })
    }
}

impl Lane {
    fn has_room(&self) -> bool {
        self.state == LaneState::Active && self.next - self.latest < i64::from(self.width) && self.next >= self.latest
    }
}

/// What a lane's open nonces may cost, as `lane_funds.sql` says it.
#[derive(Default)]
pub struct Committed {
    pub amount: u128,
    pub open: u32,
    pub too_many: u32,
    /// The highest price tried for the lowest one, and its newest answer.
    pub head: Option<(u128, Option<Class>)>,
}

impl Store {
    fn held(&mut self, job: usize, token: u64) -> bool {
        let held = self.jobs[job].state == JobState::Processing && self.jobs[job].token == Some(token);
        if !held {
            self.met.insert("token fenced");
        }
        held
    }

    pub fn leases(&mut self, lane: usize, holder: u64) -> bool {
        let leases = self.lanes[lane].holder == Some(holder) && self.lanes[lane].until > self.now;
        if !leases {
            self.met.insert("lease lost");
        }
        leases
    }

    fn move_job(&mut self, at: usize, event: job::Event) {
        let transition = job::next(self.jobs[at].state, event).unwrap();
        let job = &mut self.jobs[at];
        job.state = transition.to;
        job.version += 1;
        if transition.to != JobState::Processing {
            job.token = None;
        }
        job.due = transition.deliver;
        self.changed = true;
    }

    /// The trigger `guard_fence`.
    fn fence(&mut self, lane: usize, to: i64, settled: i64) {
        let from = self.lanes[lane].next;
        let bound =
            self.lineages.iter().filter(|l| l.lane == lane && l.state != LineageState::Abandoned && l.nonce >= from.min(to)).count();
        let bound = i64::try_from(bound).unwrap();
        if (to > from && bound != to - from && to > settled) || (to < from && bound != 0) {
            self.guard.get_or_insert(format!("lane {lane}: the fence may not move from {from} to {to} over {bound} bound nonces"));
        }
        self.lanes[lane].next = to;
    }

    /// The unique indexes of `lineages`.
    fn unique(&mut self, at: usize) {
        let one = &self.lineages[at];
        let twin = |other: &&Lineage| one.is_live() && other.is_live() && other.job == one.job;
        let nonce = |other: &&Lineage| other.state != LineageState::Abandoned && (other.lane, other.nonce) == (one.lane, one.nonce);
        let others = || self.lineages.iter().enumerate().filter(|(place, _)| *place != at).map(|(_, other)| other);
        let broken = if others().any(|other| twin(&other)) {
            Some("lineages_one_live_per_job")
        } else if one.state != LineageState::Abandoned && others().any(|other| nonce(&other)) {
            Some("lineages_one_per_nonce")
        } else {
            None
        };
        if let Some(index) = broken {
            self.guard.get_or_insert(format!("lineage {at} of job {} at nonce {} breaks {index}", one.job, one.nonce));
        }
    }

    pub fn accept(&mut self) -> usize {
        let job = Job {
            state: JobState::Queued,
            token: None,
            attempts: 0,
            budget: 8,
            cancel_asked: false,
            lineage: None,
            version: 1,
            generation: 1,
            deliver_at: self.now,
            due: true,
            created: self.now,
        };
        self.jobs.push(job);
        self.changed = true;
        self.jobs.len() - 1
    }

    pub fn claim(&mut self, job: usize, generation: u32, token: u64) -> Claimed {
        let row = &mut self.jobs[job];
        if !can(row.state, job::Event::Delivered) || row.generation != generation || row.deliver_at > self.now + 20 {
            return Claimed::Spent;
        }
        row.attempts += 1;
        row.token = Some(token);
        let number = row.attempts;
        self.move_job(job, job::Event::Delivered);
        Claimed::Go { number, lineage: self.jobs[job].lineage }
    }

    pub fn finish(&mut self, job: usize, token: u64, number: i32, event: job::Event, delay: u64) -> bool {
        if !self.held(job, token) || self.jobs[job].attempts != number {
            return false;
        }
        // A job that owns a nonce ends with it; one whose cancellation was asked and that has none ends now.
        let (owns, goes_on) = (self.jobs[job].lineage.is_some(), job::next(JobState::Processing, event).unwrap().deliver);
        let event = match (owns, goes_on) {
            (true, false) => job::Event::AttemptFailed,
            (false, true) if self.jobs[job].cancel_asked => job::Event::CancelAsked,
            _ => event,
        };
        self.move_job(job, event);
        let job = &mut self.jobs[job];
        job.budget += i32::from(event == job::Event::GivenBack);
        job.deliver_at = if job.due { self.now + delay } else { job.deliver_at };
        true
    }

    pub fn pick(&mut self) -> Option<usize> {
        let free: Vec<usize> = (0..self.lanes.len()).filter(|at| self.lanes[*at].has_room()).collect();
        self.cursor += 1;
        free.get(self.cursor % free.len().max(1)).copied()
    }

    pub fn reserve(&mut self, lane: usize, job: usize, token: u64, price: u128) -> Reserved {
        if !self.held(job, token) {
            return Reserved::Fenced;
        }
        if self.jobs[job].lineage.is_some() {
            return Reserved::Owned;
        }
        if self.jobs[job].cancel_asked {
            return Reserved::Cancelled;
        }
        let Lane { next, latest, settled, balance, .. } = self.lanes[lane];
        let committed = self.committed(lane, latest, price).amount;
        if self.lanes[lane].state == LaneState::Active && balance.is_some_and(|balance| committed + GAS * price > balance) {
            return Reserved::Unfunded;
        }
        if !self.lanes[lane].has_room() {
            return Reserved::Full;
        }
        self.lineages.push(Lineage {
            job,
            lane,
            nonce: next,
            state: LineageState::Allocated,
            sends: 0,
            replacements: 0,
            noops: 0,
            priced_block: None,
            noop: None,
            answer: None,
            capped: false,
            created: self.now,
            last_sent: None,
            attempts: Vec::new(),
            end: None,
            finalized: false,
            proven_at: 0,
            revivals: 0,
        });
        let at = self.lineages.len() - 1;
        self.jobs[job].lineage = Some(at);
        self.unique(at);
        self.fence(lane, next + 1, settled);
        self.changed = true;
        Reserved::Nonce(at)
    }

    pub fn committed(&self, lane: usize, latest: i64, price: u128) -> Committed {
        let mut found = Committed::default();
        let mut open: Vec<_> = self.lineages.iter().filter(|l| l.lane == lane && !l.state.is_final() && l.nonce >= latest).collect();
        open.sort_by_key(|l| l.nonce);
        for lineage in open {
            let highest = lineage.tried().map_or(price, |tried| tried.max_fee_per_gas.0.as_u128());
            found.amount += GAS * highest;
            found.open += 1;
            found.too_many += u32::from(lineage.answer.is_some_and(window::is_too_many));
            found.head.get_or_insert((highest, lineage.answer));
        }
        found
    }

    pub fn set_width(&mut self, lane: usize, holder: u64, width: u32) -> bool {
        let leased = self.leases(lane, holder);
        if leased {
            self.lanes[lane].width = i32::try_from(width).unwrap();
            self.met.insert("window changed");
        }
        leased
    }

    pub fn record(&mut self, at: usize, token: u64, attempt: Attempt) -> bool {
        if !self.held(self.lineages[at].job, token) || lineage::next(self.lineages[at].state, lineage::Event::Journaled).is_err() {
            return false;
        }
        self.lineages[at].state = LineageState::Signed;
        self.lineages[at].attempts.push(attempt);
        self.changed = true;
        true
    }

    fn note_sent(&mut self, at: usize, answer: Option<Class>) {
        let now = self.now;
        let lineage = &mut self.lineages[at];
        if let Ok(next) = lineage::next(lineage.state, lineage::Event::Sent) {
            lineage.state = next.to;
            lineage.sends += 1;
            lineage.last_sent = Some(now);
            lineage.answer = answer;
        }
        self.changed = true;
    }

    pub fn sent(&mut self, at: usize, token: u64, answer: Option<Class>) -> bool {
        let job = self.lineages[at].job;
        if self.jobs[job].token != Some(token) || !can(self.jobs[job].state, job::Event::Sent) {
            return false;
        }
        self.note_sent(at, answer);
        self.move_job(job, job::Event::Sent);
        true
    }

    pub fn resent(&mut self, lane: usize, holder: u64, at: usize, answer: Class) -> bool {
        let allowed = self.leases(lane, holder) && sendable(self.lineages[at].state);
        if allowed {
            self.note_sent(at, Some(answer));
        }
        allowed
    }

    pub fn replace(&mut self, lane: usize, holder: u64, at: usize, ordinal: u32, block: u64, attempt: Attempt) -> bool {
        let leased = self.leases(lane, holder);
        let lineage = &mut self.lineages[at];
        let open = lineage::next(lineage.state, lineage::Event::ReplacementJournaled).is_ok();
        let wanted = attempt.purpose != AttemptPurpose::Noop || lineage.noop.is_some();
        if !leased || !open || !wanted || ordinal != 2 + lineage.replacements + lineage.noops {
            return false;
        }
        lineage.state = LineageState::Replaced;
        lineage.priced_block = Some(block);
        lineage.capped = false;
        lineage.answer = None;
        match attempt.purpose {
            AttemptPurpose::Noop => lineage.noops += 1,
            AttemptPurpose::Call | AttemptPurpose::Replacement => lineage.replacements += 1,
        }
        lineage.attempts.push(attempt);
        self.changed = true;
        true
    }

    pub fn lease(&mut self, lane: usize, holder: u64, ms: u64) -> Option<Lane> {
        let now = self.now;
        let row = &mut self.lanes[lane];
        if row.holder.is_some_and(|other| other != holder) && row.until >= now {
            return None;
        }
        (row.holder, row.until) = (Some(holder), now + ms);
        Some(row.clone())
    }

    pub fn observe(&mut self, lane: usize, holder: u64, latest: i64, settled: i64) -> bool {
        if !self.leases(lane, holder) {
            return false;
        }
        let now = self.now;
        let row = &mut self.lanes[lane];
        if latest != row.latest {
            (row.latest, row.head_since) = (latest, now);
        }
        row.settled = row.settled.max(settled);
        let (next, to, settled) = (row.next, row.next.max(settled), row.settled);
        if to > next {
            self.met.insert("fence followed a stranger");
            self.fence(lane, to, settled);
        }
        self.changed = true;
        true
    }

    pub fn open(&self, lane: usize) -> Vec<Open> {
        let mut open: Vec<Open> = (self.lineages.iter().enumerate())
            .filter(|(_, l)| l.lane == lane && !l.state.is_final())
            .map(|(at, l)| {
                let attempts: Vec<_> = l.attempts.iter().map(|attempt| (attempt.bytes.hash, attempt.purpose)).collect();
                let unmined = Unmined {
                    state: l.state,
                    sends: l.sends,
                    age: ms(l.created, self.now),
                    since_sent: l.last_sent.map(|at| ms(at, self.now)),
                    since_priced: l.attempts.iter().map(|attempt| attempt.at).max().map(|at| ms(at, self.now)),
                    priced_block: l.priced_block,
                    tried: l.tried(),
                    replacements: l.replacements,
                    noops: lane_round::noops(l.noops, &attempts),
                    noop: l.noop,
                    answer: l.answer,
                };
                Open { lineage: at, nonce: l.nonce, attempts, capped: l.capped, unmined }
            })
            .collect();
        open.sort_by_key(|one| one.nonce);
        open
    }

    pub fn settle(&mut self, lane: usize, holder: u64, at: usize, events: (lineage::Event, job::Event), end: End) -> bool {
        let (state, job) = (self.lineages[at].state, self.lineages[at].job);
        if !self.leases(lane, holder) || lineage::next(state, RECEIPT).is_err() || !can(self.jobs[job].state, events.1) {
            return false;
        }
        self.lineages[at].state = lineage::next(state, events.0).unwrap().to;
        self.lineages[at].end = Some(end);
        self.move_job(job, events.1);
        true
    }

    pub fn supersede(&mut self, lane: usize, holder: u64, at: usize, hashes: usize, proven_at: u64) -> bool {
        let (state, job) = (self.lineages[at].state, self.lineages[at].job);
        let signed = usize::from(state != LineageState::Allocated);
        let all = signed + self.lineages[at].replacements as usize + self.lineages[at].noops as usize;
        let event = if hashes > 0 { job::Event::Superseded } else { job::Event::NonceLost };
        let illegal = lineage::next(state, lineage::Event::ConsumedByStranger).is_err() || !can(self.jobs[job].state, event);
        if !self.leases(lane, holder) || illegal || hashes != all {
            return false;
        }
        self.lineages[at].state = LineageState::Superseded;
        self.lineages[at].proven_at = proven_at;
        self.move_job(job, event);
        self.jobs[job].lineage = None;
        if hashes == 0 {
            self.jobs[job].generation += 1;
            self.jobs[job].deliver_at = self.now;
        }
        true
    }

    /// As `provisional_blocks.sql`.
    pub fn end_blocks(&self, lane: usize, newest: usize, deep: u64) -> Vec<EndBlock> {
        let ends = |finalized: bool| {
            let mut blocks: Vec<EndBlock> = (self.lineages.iter())
                .filter(|l| l.lane == lane && l.finalized == finalized)
                .filter_map(|l| l.end.map(|end| EndBlock { number: end.block, hash: end.block_hash, finalized }))
                .collect();
            blocks.sort_by_key(|block| std::cmp::Reverse((block.number, block.hash)));
            blocks.dedup();
            blocks
        };
        let mut heights: Vec<u64> = ends(false).iter().map(|block| block.number).collect();
        heights.dedup();
        let least = heights.get(newest - 1).copied().unwrap_or(0);
        let mut blocks = ends(false);
        blocks.retain(|block| block.number >= least || block.number <= deep);
        blocks.extend(ends(true).first());
        blocks
    }

    pub fn ends_in(&self, lane: usize, blocks: &[EndBlock]) -> Vec<usize> {
        let inside = |l: &Lineage| l.end.is_some_and(|end| blocks.iter().any(|b| b.number == end.block && b.hash == end.block_hash));
        (0..self.lineages.len())
            .filter(|at| self.lineages[*at].lane == lane && !self.lineages[*at].finalized && inside(&self.lineages[*at]))
            .collect()
    }

    pub fn revive(&mut self, lane: usize, holder: u64, ends: &[usize]) -> Vec<usize> {
        if !self.leases(lane, holder) {
            return Vec::new();
        }
        let mut revived = Vec::new();
        for at in ends {
            let lineage = &mut self.lineages[*at];
            if !lineage.finalized && lineage.state == LineageState::Superseded && lineage.attempts.is_empty() {
                lineage.state = lineage::next(lineage.state, lineage::Event::OrphanedUnsigned).unwrap().to;
                self.met.insert("unsigned taken back from a stranger");
                continue;
            }
            if lineage.finalized || lineage::next(lineage.state, lineage::Event::Orphaned).is_err() {
                continue;
            }
            if lineage.state == LineageState::Superseded {
                self.met.insert("taken back from a stranger");
            }
            lineage.state = LineageState::Signed;
            lineage.revivals += 1;
            (lineage.end, lineage.last_sent, lineage.answer) = (None, None, None);
            let job = lineage.job;
            if can(self.jobs[job].state, job::Event::Orphaned) {
                self.move_job(job, job::Event::Orphaned);
                self.jobs[job].lineage = Some(*at);
                self.jobs[job].generation += 1;
                self.jobs[job].deliver_at = self.now;
            }
            self.unique(*at);
            revived.push(*at);
        }
        self.changed = true;
        revived
    }

    /// Nonces that strangers used up, while that may be undone.
    pub fn losses(&self, lane: usize) -> Vec<usize> {
        let lost = |l: &Lineage| l.lane == lane && l.state == LineageState::Superseded && !l.finalized;
        (0..self.lineages.len()).filter(|at| lost(&self.lineages[*at])).collect()
    }

    pub fn confirm_loss(&mut self, lane: usize, holder: u64, at: usize) -> bool {
        let allowed = self.leases(lane, holder) && self.lineages[at].state == LineageState::Superseded && !self.lineages[at].finalized;
        if allowed {
            self.lineages[at].finalized = true;
            self.changed = true;
        }
        allowed
    }

    pub fn finalize(&mut self, lane: usize, holder: u64, blocks: &[EndBlock]) -> Vec<usize> {
        if !self.leases(lane, holder) {
            return Vec::new();
        }
        let ends = self.ends_in(lane, blocks);
        ends.iter().for_each(|at| self.lineages[*at].finalized = true);
        self.changed = true;
        ends
    }

    pub fn give_up(&mut self, lane: usize, holder: u64, at: usize) -> bool {
        let allowed = self.leases(lane, holder) && self.lineages[at].noop.is_none() && sendable(self.lineages[at].state);
        if allowed {
            self.lineages[at].noop = Some(NoopReason::Refused);
            self.changed = true;
        }
        allowed
    }

    pub fn note_capped(&mut self, lane: usize, holder: u64, at: usize) -> bool {
        let allowed = self.leases(lane, holder) && sendable(self.lineages[at].state);
        if allowed {
            self.lineages[at].capped = true;
            self.met.insert("capped");
        }
        allowed
    }

    pub fn pause(&mut self, lane: usize, holder: u64, reason: Option<&'static str>) -> bool {
        let (from, to) = if reason.is_some() { (LaneState::Active, LaneState::Paused) } else { (LaneState::Paused, LaneState::Active) };
        let lane = &mut self.lanes[lane];
        let allowed = lane.holder == Some(holder) && lane.state == from;
        if allowed {
            (lane.state, lane.reason) = (to, reason);
            self.met.insert(if to == LaneState::Paused { "lane paused" } else { "lane resumed" });
        }
        allowed
    }

    pub fn cancel(&mut self, job: usize) -> Cancelled {
        let bound = self.jobs[job].lineage;
        let state = self.jobs[job].state;
        match bound {
            None if can(state, job::Event::CancelAsked) && state != JobState::Processing => {
                self.jobs[job].cancel_asked = true;
                self.move_job(job, job::Event::CancelAsked);
                Cancelled::Ended
            }
            None if state == JobState::Processing => {
                self.jobs[job].cancel_asked = true;
                Cancelled::Asked
            }
            Some(at) if can(state, job::Event::NoopFinal { cancelled: true }) && !self.lineages[at].state.is_final() => {
                self.jobs[job].cancel_asked = true;
                self.lineages[at].noop = Some(NoopReason::Cancelled);
                self.changed = true;
                Cancelled::Noop
            }
            _ => Cancelled::Refused,
        }
    }

    /// True: given back, and the job has ended.
    pub fn release(&mut self, at: usize, token: u64) -> bool {
        let Lineage { job, lane, nonce, state, .. } = self.lineages[at];
        let tail = self.lanes[lane].next - 1 == nonce && self.lineages[at].attempts.is_empty();
        if !self.held(job, token) || !tail || lineage::next(state, lineage::Event::ReleasedUnsigned).is_err() {
            return false;
        }
        self.lineages[at].state = LineageState::Abandoned;
        self.fence(lane, nonce, self.lanes[lane].settled);
        self.move_job(job, job::Event::NothingToDo);
        self.jobs[job].lineage = None;
        true
    }

    pub fn refuse(&mut self, at: usize, token: u64) -> bool {
        let allowed = self.held(self.lineages[at].job, token)
            && self.lineages[at].state == LineageState::Allocated
            && self.lineages[at].noop.is_none();
        if allowed {
            self.lineages[at].noop = Some(NoopReason::Refused);
            self.changed = true;
        }
        allowed
    }
}
