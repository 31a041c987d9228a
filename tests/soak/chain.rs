//! The chain: blocks at their pace, the wave of the base fee, reorganisations, and for how long a lane has mined nothing while it could.

use super::{BASE_FEE, CONFIRMATIONS, LOOKBACK, MAX_FEE, Plan, WAVE};
use crate::simulation::rng::Rng;
use crate::support::world::World;
use entity::values::hex_from_bytes;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What happened on the chain.
#[derive(Default)]
pub struct Seen {
    pub blocks: u64,
    pub reorgs: u64,
    pub deepest: u64,
    /// For each lane: its nonce at the last block, and how many blocks it has been idle.
    lanes: HashMap<String, (u64, u64)>,
    worst: u64,
    told: Vec<String>,
}

impl Seen {
    pub const fn worst_idle(&self) -> u64 {
        self.worst
    }

    pub fn idle_told(&self) -> String {
        self.told.join("; ")
    }

    /// After each block: a lane that could have mined something either did, or was idle for one block more.
    async fn look(&mut self, world: &World, began: Instant, could: bool) {
        for signer in &world.signers {
            let who = hex_from_bytes(&signer.address.0);
            let nonce = world.anvil.next_nonce(signer.address).await;
            let (last, idle) = self.lanes.get(&who).copied().unwrap_or((nonce, 0));
            let waits = could && work_waits(world, &who, nonce).await;
            let idle = if nonce > last || !waits { 0 } else { idle + 1 };
            if idle > self.worst {
                self.worst = idle;
                self.told.push(format!("{who} at nonce {nonce} for {idle} blocks, {} s after the start", began.elapsed().as_secs()));
            }
            self.lanes.insert(who, (nonce, idle));
        }
    }

    /// The blocks that were taken away say nothing, and neither does the time that they take to be noticed.
    fn forget(&mut self) {
        self.lanes.clear();
    }
}

/// Whether the lane has bytes that the chain could take, or could give a nonce to a job that has waited for longer than a moment.
async fn work_waits(world: &World, who: &str, nonce: u64) -> bool {
    let open = format!(
        "lineages WHERE signer = '\\x{}'::bytea AND nonce >= {nonce} AND state IN ('signed', 'broadcast', 'replaced') AND created_at < now() - interval '3 s'",
        who.trim_start_matches("0x")
    );
    world.try_count(&open).await.unwrap_or(0) > 0
}

pub struct Blocks {
    plan: Plan,
    dice: Rng,
}

impl Blocks {
    pub const fn new(plan: Plan, dice: Rng) -> Self {
        Self { plan, dice }
    }

    /// A triangle between the two prices.
    const fn base_fee(block: u64) -> u64 {
        let (low, high) = BASE_FEE;
        let at = block % WAVE;
        let up = if at < WAVE / 2 { at } else { WAVE - at };
        low + (high - low) * up / (WAVE / 2)
    }

    /// Until told to stop.
    pub async fn run(mut self, world: &World, stop: &AtomicBool) -> Seen {
        let (mut seen, began) = (Seen::default(), Instant::now());
        // Something below the first reorganisation.
        world.anvil.mine(LOOKBACK).await;
        let mut next = Instant::now() + self.plan.block;
        while !stop.load(Ordering::Relaxed) {
            tokio::time::sleep_until(next.into()).await;
            next += self.plan.block;
            seen.blocks += 1;
            let fee = Self::base_fee(seen.blocks);
            world.anvil.set_next_base_fee(fee).await;
            if seen.blocks.is_multiple_of(self.plan.reorg_every) {
                let depth = self.depth();
                world.anvil.reorg(depth, &[]).await;
                (seen.reorgs, seen.deepest) = (seen.reorgs + 1, seen.deepest.max(depth));
                seen.forget();
                continue;
            }
            world.anvil.mine(1).await;
            // Below the limit with room for the tip and for what the market does until the price is made.
            let could = fee + fee / 4 < MAX_FEE && Self::base_fee(seen.blocks.saturating_sub(3)) + fee / 4 < MAX_FEE;
            seen.look(world, began, could).await;
        }
        // The last reorganisation is not the last word.
        tokio::time::sleep(Duration::from_millis(100)).await;
        seen
    }

    /// Mostly ends that nobody was told of; now and then deeper, where jobs were told as completed.
    fn depth(&mut self) -> u64 {
        if self.dice.chance(30) { self.dice.range(CONFIRMATIONS, LOOKBACK - 4) } else { self.dice.range(1, CONFIRMATIONS) }
    }
}
