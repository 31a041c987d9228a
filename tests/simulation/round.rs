//! The settling of a lane under its lease, step by step as `actors/lane_reconciler` does it, with the decisions of `domain::lane_round`.

use super::chain::GAS;
use super::checks::Ledger;
use super::plan::Point;
use super::process::{Away, Ctx, Funds, View, priced};
use super::store::{self, Committed, Lane, Open, row};
use entity::states::LaneState;
use entity::values::{Hash, Wei};
use holdfast::domain::ballot::Facts;
use holdfast::domain::fees;
use holdfast::domain::funds::{self, Head, Money};
use holdfast::domain::lane_round::{self, At, Consumed, Counts, EndBlock, Look, OpenNonce, Wanted};
use holdfast::domain::quorum::Decision;
use holdfast::domain::rpc_verdict::Class;
use holdfast::domain::settlement::{self, Shown, Standing};
use holdfast::domain::window;
use std::collections::HashMap;
use std::time::Duration;

/// How long a window rests between two changes.
const WINDOW_RESTS_MS: u64 = 30_000;
const LEASE_MS: u64 = 8_000;
/// Blocks with ends that are looked at in every round.
const NEWEST: usize = 4;

fn wei(value: u128) -> Wei {
    Wei(primitive_types::U256::from(value))
}

pub async fn rounds(ctx: Ctx, lane: usize) {
    loop {
        ctx.pause(800, 1_600).await;
        if let Some(view) = ctx.view() {
            let _ = Round { ctx: &ctx, lane, view }.run().await;
        }
    }
}

struct Round<'a> {
    ctx: &'a Ctx,
    lane: usize,
    view: View,
}

impl Round<'_> {
    async fn run(&self) -> Result<(), Away> {
        self.ctx.sql().await?;
        let Some(lane) = ({ self.ctx.world().store.lease(self.lane, self.ctx.me, LEASE_MS) }) else {
            self.ctx.mind(|mind| mind.funds[self.lane] = Funds::default());
            return Ok(());
        };
        let head_for = Duration::from_millis(self.ctx.world().store.now - lane.head_since);
        let confirmations = self.ctx.plan.confirmations;
        self.ctx.rpc().await;
        let latest = self.ctx.world().consumed(self.ctx.process, self.lane, None);
        self.ctx.rpc().await;
        let settled = lane_round::settled_at(self.view.reached, confirmations)
            .and_then(|block| self.ctx.world().consumed(self.ctx.process, self.lane, Some(block)));
        self.ctx.point(Point::Counted);
        let seen = Consumed { latest, settled };
        let noted = Consumed { settled: settled.or(Some(lane.settled)), ..seen };
        if let Some((latest, settled)) = noted.observed() {
            self.ctx.sql().await?;
            self.wrote("observe", |store| usize::from(store.observe(self.lane, self.ctx.me, latest, settled)));
        }
        if lane.state != LaneState::Frozen && !self.recheck().await? {
            return Ok(());
        }
        self.ctx.sql().await?;
        let open = self.ctx.world().store.open(self.lane);
        let topped_up = self.funds(&lane, latest).await?;
        let nonces: Vec<OpenNonce<'_>> = open.iter().map(Open::nonce).collect();
        if let Some(settled) = settled.filter(|_| lane.state != LaneState::Frozen) {
            self.end(&nonces, settled).await?;
        }
        if topped_up && let Some(head) = nonces.iter().find(|one| latest.is_none_or(|latest| one.nonce >= latest)) {
            self.resend(&[row(head.lineage)], "funded").await?;
        }
        let head_for = lane_round::head_for(latest, lane.latest, head_for);
        self.push(&lane, &nonces, latest, head_for).await
    }

    fn wrote(&self, what: &str, write: impl FnOnce(&mut store::Store) -> usize) -> usize {
        let mut world = self.ctx.world();
        let current = world.store.leases(self.lane, self.ctx.me);
        let rows = write(&mut world.store);
        let found = Ledger::wrote(what, current, rows);
        world.check(found);
        rows
    }

    fn at(&self, depth: u64) -> At {
        At { head: self.view.reached, depth, calm: self.ctx.calm() }
    }

    async fn canonical(&self, mut heights: Vec<u64>) -> HashMap<u64, Hash> {
        heights.sort_unstable();
        heights.dedup();
        self.ctx.rpc().await;
        let mut world = self.ctx.world();
        heights.into_iter().filter_map(|height| Some((height, world.block_hash(self.ctx.process, height)?))).collect()
    }

    /// The money and the window, as `actors/lane_funds.rs`. True: the head may be sent again at once.
    async fn funds(&self, lane: &Lane, latest: Option<i64>) -> Result<bool, Away> {
        let mut rose = false;
        if self.ctx.mind(|mind| mind.funds[self.lane].block) != Some(self.view.reached) {
            self.ctx.rpc().await;
            let asked = self.ctx.world().balance(self.lane);
            if let Some(balance) = asked {
                let before = self.ctx.mind(|mind| {
                    mind.funds[self.lane].block = Some(self.view.reached);
                    mind.funds[self.lane].balance.replace(balance)
                });
                self.ctx.sql().await?;
                self.ctx.world().store.lanes[self.lane].balance = Some(balance);
                rose = before.is_some_and(|before| before < balance);
            }
        }
        let Some(balance) = self.ctx.mind(|mind| mind.funds[self.lane].balance) else { return Ok(false) };
        let rules = self.ctx.plan.rules;
        let price = fees::price(self.view.market, rules.floor, rules.limit).map_or(rules.limit, |price| price.max_fee_per_gas);
        self.ctx.sql().await?;
        let found = self.ctx.world().store.committed(self.lane, latest.unwrap_or(lane.latest), price.0.as_u128());
        let refused = found.head.is_some_and(|(_, answer)| answer == Some(Class::InsufficientFunds));
        let money = Money {
            balance: wei(balance),
            committed: wei(found.amount),
            head: found.head.map(|(price, _)| Head { gas_limit: u64::try_from(GAS).unwrap(), max_fee_per_gas: wei(price) }),
            max_fee_per_gas: price,
            floor: Wei::ZERO,
            bump_bps: rules.bump_bps,
            limit: rules.limit,
            refused,
        };
        self.narrow(lane, &found).await?;
        let paused = lane.state == LaneState::Paused;
        let reason = match money.judge(paused) {
            _ if lane.state != LaneState::Active && !paused => None,
            funds::Verdict::Stays => None,
            funds::Verdict::Pause(_) => Some(Some("insufficient_funds")),
            funds::Verdict::Resume => Some(None),
        };
        if let Some(reason) = reason {
            self.ctx.sql().await?;
            self.ctx.world().store.pause(self.lane, self.ctx.me, reason);
            self.ctx.world().say(|| format!("lane {} pauses for {reason:?}", self.lane));
        }
        Ok(paused && refused && rose)
    }

    async fn narrow(&self, lane: &Lane, found: &Committed) -> Result<(), Away> {
        let now = self.ctx.world().store.now;
        let rested = self.ctx.mind(|mind| mind.funds[self.lane].window_at).is_none_or(|at| now - at >= WINDOW_RESTS_MS);
        let (width, configured) = (u32::try_from(lane.width).unwrap(), u32::try_from(self.ctx.plan.width).unwrap());
        let next = window::next(width, configured, found.open - found.too_many, found.too_many, rested);
        if next != width {
            self.ctx.sql().await?;
            self.wrote("set_width", |store| usize::from(store.set_width(self.lane, self.ctx.me, next)));
            self.ctx.mind(|mind| mind.funds[self.lane].window_at = Some(now));
        }
        Ok(())
    }

    /// What strangers used up, while that may be undone.
    async fn losses(&self) -> Result<(), Away> {
        self.ctx.sql().await?;
        let lost = self.ctx.world().store.losses(self.lane);
        let Some(deep) = lane_round::settled_at(self.view.reached, self.ctx.plan.lookback).filter(|_| !lost.is_empty()) else {
            return Ok(());
        };
        let count = |at| self.ctx.world().consumed(self.ctx.process, self.lane, at).and_then(|count| u64::try_from(count).ok());
        self.ctx.rpc().await;
        let latest = count(None);
        self.ctx.rpc().await;
        let deep_count = count(Some(deep));
        self.ctx.rpc().await;
        let mut undone = Vec::new();
        for at in lost {
            let (nonce, proven_at, hashes) = {
                let world = self.ctx.world();
                let one = &world.store.lineages[at];
                let hashes: Vec<Hash> = one.attempts.iter().map(|attempt| attempt.bytes.hash).collect();
                (u64::try_from(one.nonce).unwrap(), one.proven_at, hashes)
            };
            let shown: Vec<Shown> = hashes
                .iter()
                .map(|hash| match self.ctx.world().receipt(self.ctx.process, *hash, self.view.reached) {
                    Decision::Agreed(None, _) => Shown::Absent,
                    Decision::Agreed(Some(_), _) => Shown::Receipt,
                    Decision::Split | Decision::Insufficient => Shown::Unknown,
                })
                .collect();
            match settlement::loss(nonce, latest, deep_count, &shown, self.ctx.calm()) {
                Standing::Orphaned => undone.push(at),
                Standing::Final if proven_at <= deep => {
                    self.ctx.sql().await?;
                    self.wrote("confirm_losses", |store| usize::from(store.confirm_loss(self.lane, self.ctx.me, at)));
                }
                _ => {}
            }
        }
        if undone.is_empty() { Ok(()) } else { self.undo(&undone).await }
    }

    async fn recheck(&self) -> Result<bool, Away> {
        self.losses().await?;
        let lookback = self.ctx.plan.lookback;
        let deep = (self.view.reached + 1).saturating_sub(lookback);
        self.ctx.sql().await?;
        let mut blocks = self.ctx.world().store.end_blocks(self.lane, NEWEST, deep);
        if blocks.is_empty() {
            return Ok(true);
        }
        let heights = |blocks: &[EndBlock]| blocks.iter().map(|block| block.number).collect();
        let mut found = lane_round::recheck(&blocks, &self.canonical(heights(&blocks)).await, self.at(lookback));
        if found.reorganised {
            self.ctx.sql().await?;
            blocks = self.ctx.world().store.end_blocks(self.lane, usize::MAX, deep);
            found = lane_round::recheck(&blocks, &self.canonical(heights(&blocks)).await, self.at(lookback));
        }
        if let Some(broken) = found.broken {
            self.ctx.world().check(Err(format!("lane {} would freeze over {broken:?}, and no reorganisation was that deep", self.lane)));
            return Ok(false);
        }
        if !found.orphaned.is_empty() {
            self.ctx.sql().await?;
            let orphans = self.ctx.world().store.ends_in(self.lane, &found.orphaned);
            self.undo(&orphans).await?;
        }
        if !found.deep.is_empty() {
            self.ctx.sql().await?;
            let mut finals = Vec::new();
            self.wrote("finalize", |store| {
                finals = store.finalize(self.lane, self.ctx.me, &found.deep);
                finals.len()
            });
            let mut world = self.ctx.world();
            let checked = Ledger::finalized(&world.store, &world.chain, &finals);
            world.say(|| format!("lineages {finals:?} are final"));
            world.check(checked);
        }
        Ok(true)
    }

    async fn undo(&self, orphans: &[usize]) -> Result<(), Away> {
        self.ctx.sql().await?;
        let mut revived = Vec::new();
        self.wrote("revive", |store| {
            revived = store.revive(self.lane, self.ctx.me, orphans);
            revived.len()
        });
        self.ctx.world().say(|| format!("lineages {revived:?} are revived"));
        self.ctx.point(Point::Revived);
        self.resend(&self.ctx.answer(revived)?, "reorg").await
    }

    async fn end(&self, nonces: &[OpenNonce<'_>], settled: i64) -> Result<(), Away> {
        let used: Vec<&OpenNonce<'_>> = lane_round::used_up(nonces, settled).collect();
        if used.is_empty() {
            return Ok(());
        }
        self.ctx.rpc().await;
        let told: HashMap<Hash, Decision<Option<Facts>>> = {
            let mut world = self.ctx.world();
            let hashes = used.iter().flat_map(|one| one.attempts);
            hashes.map(|(hash, _)| (*hash, world.receipt(self.ctx.process, *hash, self.view.reached))).collect()
        };
        let heights = told
            .values()
            .filter_map(|decision| if let Decision::Agreed(Some(facts), _) = decision { Some(facts.block_number) } else { None });
        let canonical = self.canonical(heights.collect()).await;
        let at = self.at(self.ctx.plan.confirmations);
        let mut beyond = None;
        if used.iter().any(|one| lane_round::needs_beyond(one, &told)) {
            self.ctx.rpc().await;
            beyond = lane_round::settled_at(self.view.reached, self.ctx.plan.lookback)
                .and_then(|block| self.ctx.world().consumed(self.ctx.process, self.lane, Some(block)));
        }
        self.ctx.point(Point::Decided);
        let counts = Counts { settled, beyond };
        for one in used {
            let end = lane_round::end(one, counts, &told, &canonical, at);
            let found = self.proven(one, &end, &told, &canonical);
            self.ctx.world().check(found);
            self.ctx.world().say(|| format!("lineage {} below {settled}: {end:?}", row(one.lineage)));
            self.record(one, &end).await?;
        }
        Ok(())
    }

    /// That an end has the proof it needs, said a second time: a majority for each of its parts.
    fn proven(
        &self,
        one: &OpenNonce<'_>,
        end: &lane_round::End,
        told: &HashMap<Hash, Decision<Option<Facts>>>,
        canonical: &HashMap<u64, Hash>,
    ) -> Result<(), String> {
        let majority = |hash: &Hash| matches!(told.get(hash), Some(Decision::Agreed(_, votes)) if *votes >= 2);
        let absent = |hash: &Hash| matches!(told.get(hash), Some(Decision::Agreed(None, _)));
        let proven = match end {
            lane_round::End::Receipt { hash, facts, .. } => {
                let deep = facts.block_number + self.ctx.plan.confirmations <= self.view.reached + 1;
                deep && majority(hash) && canonical.get(&facts.block_number) == Some(&facts.block_hash)
            }
            lane_round::End::Stranger => one.attempts.iter().all(|(hash, _)| majority(hash) && absent(hash)),
            lane_round::End::NotYet | lane_round::End::Unproven => true,
        };
        if proven { Ok(()) } else { Err(format!("lineage {} ends without a majority for it: {end:?}", row(one.lineage))) }
    }

    async fn record(&self, one: &OpenNonce<'_>, end: &lane_round::End) -> Result<(), Away> {
        let (lane, me, lineage) = (self.lane, self.ctx.me, row(one.lineage));
        let depth = if one.attempts.is_empty() { self.ctx.plan.confirmations } else { self.ctx.plan.lookback };
        let proven_at = lane_round::settled_at(self.view.reached, depth).unwrap_or_default();
        match *end {
            lane_round::End::Receipt { hash, facts, lineage: nonce, job, .. } => {
                self.ctx.sql().await?;
                let end = store::End { hash, block: facts.block_number, block_hash: facts.block_hash };
                self.wrote("settle", |store| usize::from(store.settle(lane, me, lineage, (nonce, job), end)));
            }
            lane_round::End::Stranger => {
                self.ctx.sql().await?;
                self.wrote("supersede", |store| usize::from(store.supersede(lane, me, lineage, one.attempts.len(), proven_at)));
            }
            lane_round::End::NotYet | lane_round::End::Unproven => {}
        }
        self.ctx.answer(())
    }

    async fn push(&self, lane: &Lane, nonces: &[OpenNonce<'_>], latest: Option<i64>, head_for: Option<Duration>) -> Result<(), Away> {
        let rules = self.ctx.plan.rules;
        let look = Look { state: lane.state, latest, head_for, block: self.view.reached, market: self.view.market, calm: self.ctx.calm() };
        let Wanted { send, sign, capped, give_up } = lane_round::wanted_by(nonces, &look, |one| {
            lane_round::held_back(one, latest.unwrap_or(lane.latest), lane.width, rules.patience).map_or(Ok(rules), Err)
        });
        for (lineage, class) in give_up {
            self.ctx.sql().await?;
            self.wrote("give_up", |store| usize::from(store.give_up(self.lane, self.ctx.me, row(lineage))));
            self.ctx.world().say(|| format!("lineage {} is given up: {class}", row(lineage)));
        }
        for lineage in capped {
            self.ctx.sql().await?;
            self.wrote("note_capped", |store| usize::from(store.note_capped(self.lane, self.ctx.me, row(lineage))));
        }
        for wanted in &sign {
            let lineage = row(wanted.lineage);
            self.ctx.sql().await?;
            let (ordinal, attempt) = {
                let mut world = self.ctx.world();
                let stored = &world.store.lineages[lineage];
                if stored.state.is_final() || stored.attempts.is_empty() {
                    continue;
                }
                let ordinal = u32::try_from(stored.attempts.len()).unwrap() + 1;
                let price = priced(&world, wanted);
                (ordinal, world.sign(lineage, wanted.purpose, price))
            };
            self.ctx.sql().await?;
            let replaced = self.ctx.world().replace(self.lane, self.ctx.me, self.view.reached, (lineage, ordinal), attempt);
            self.ctx.point(Point::Replaced);
            if !self.ctx.answer(replaced)? {
                continue;
            }
            self.ctx.rpc().await;
            let class = self.ctx.world().give(self.ctx.process, attempt.bytes, "replacement");
            self.ctx.sql().await?;
            self.wrote("resent", |store| usize::from(store.resent(self.lane, self.ctx.me, lineage, class)));
        }
        self.resend(&send.iter().map(|id| row(*id)).collect::<Vec<_>>(), "overdue").await
    }

    async fn resend(&self, lineages: &[usize], why: &str) -> Result<(), Away> {
        if lineages.is_empty() {
            return Ok(());
        }
        self.ctx.sql().await?;
        let stored: Vec<_> = {
            let world = self.ctx.world();
            let mut open: Vec<_> = lineages.iter().filter(|at| !world.store.lineages[**at].state.is_final()).collect();
            open.sort_by_key(|at| world.store.lineages[**at].nonce);
            open.into_iter().filter_map(|at| Some((*at, world.store.lineages[*at].attempts.last()?.bytes))).collect()
        };
        self.ctx.rpc().await;
        let answers: Vec<_> = stored.iter().map(|(at, bytes)| (*at, self.ctx.world().give(self.ctx.process, *bytes, why))).collect();
        self.ctx.sql().await?;
        for (at, class) in &answers {
            self.wrote("resent", |store| usize::from(store.resent(self.lane, self.ctx.me, *at, *class)));
        }
        Ok(())
    }
}
