//! Looks whether the ends of a lane still stand: undoes those whose block is no longer canonical, notes those that are deep enough, and
//! freezes the lane when an end was undone that nothing should undo.

use super::rpc_quorum::View;
use super::{Work, number};
use crate::domain::settlement::{self, Evidence, Standing};
use crate::store;
use crate::store::lanes::Lane;
use crate::store::settling::EndBlock;
use crate::telemetry::metrics;
use entity::states::LineageState;

/// Blocks with ends that are looked at in every round; a reorganisation changes the newest of them.
const NEWEST: u32 = 4;
/// Most blocks that are looked at once a reorganisation was seen, and most that become final in one round.
const EVERY: u32 = 10_000;
const FINAL_BLOCKS: u32 = 64;
/// Most ends that are undone, and most that are noted as final, in one statement.
const REVIVE: u32 = 1_000;
const FINALIZE: u32 = 5_000;
/// The words of the lane's state.
pub const FINALITY_VIOLATED: &str = "finality_violated";

impl Work {
    /// False when nothing more may be decided in this round.
    pub(super) async fn recheck(&self, lane: &Lane, view: View) -> Result<bool, store::Error> {
        let lookback = self.desk.settings.reorg_lookback;
        let deep = number(view.reached) - number(lookback) + 1;
        let mut blocks = self.journal.end_blocks(self.lane, NEWEST, deep, FINAL_BLOCKS).await?;
        if blocks.is_empty() {
            return Ok(true);
        }
        let mut stand = self.stand(&blocks, view).await;
        if stand.iter().any(|(block, standing)| !block.finalized && *standing == Standing::Orphaned) {
            // All that may be undone, not only the newest.
            blocks = self.journal.end_blocks(self.lane, EVERY, deep, FINAL_BLOCKS).await?;
            stand = self.stand(&blocks, view).await;
        }
        let of = |wanted: Standing, finalized: bool| -> Vec<EndBlock> {
            stand.iter().filter(|(block, standing)| *standing == wanted && block.finalized == finalized).map(|(block, _)| *block).collect()
        };
        if let Some(broken) = of(Standing::Orphaned, true).first().filter(|_| self.desk.chain.calm()) {
            self.freeze(lane, broken).await?;
            return Ok(false);
        }
        let orphaned = of(Standing::Orphaned, false);
        if !orphaned.is_empty() && self.desk.chain.calm() {
            self.undo(lane, &orphaned).await?;
        }
        let finals = of(Standing::Final, false);
        if !finals.is_empty() {
            self.journal.finalize(self.lane, self.holder, &finals, FINALIZE).await?;
        }
        Ok(true)
    }

    async fn stand(&self, blocks: &[EndBlock], view: View) -> Vec<(EndBlock, Standing)> {
        let height = |block: &EndBlock| u64::try_from(block.number).unwrap_or_default();
        let canonical = self.canonical(blocks.iter().map(height).collect()).await;
        blocks
            .iter()
            .map(|block| {
                let evidence = Evidence { block: height(block), block_hash: block.hash, canonical: canonical.get(&height(block)).copied() };
                (*block, settlement::standing(evidence, view.reached, self.desk.settings.reorg_lookback))
            })
            .collect()
    }

    async fn undo(&self, lane: &Lane, orphaned: &[EndBlock]) -> Result<(), store::Error> {
        let revived = self.journal.revive(self.lane, self.holder, orphaned, REVIVE).await?;
        if revived.is_empty() {
            return Ok(());
        }
        let label = self.desk.label();
        metrics::REORG_REVIVED.add(u64::try_from(revived.len()).unwrap_or(0), &[&label]);
        metrics::TX_TRANSITIONS.add(u64::try_from(revived.len()).unwrap_or(0), &[&label, LineageState::Signed.as_str()]);
        tracing::warn!(
            event = "lineage_revived", lane = %self.lane, signer = %lane.signer, lineages = revived.len(), lowest_block = orphaned.iter().map(|block| block.number).min(),
            "a reorganisation undid ends of this lane: their bytes are sent again"
        );
        // The bytes go out now; the executions that were called for find them sent.
        if let Err(error) = self.journal.resend(self.lane, self.holder, &revived, "reorg").await {
            tracing::warn!(event = "resend_failed", lane = %self.lane, %error, "the next round sends them");
        }
        Ok(())
    }

    async fn freeze(&self, lane: &Lane, broken: &EndBlock) -> Result<(), store::Error> {
        let reason =
            format!("{FINALITY_VIOLATED}: block {} with an end of this lane was undone after TX_REORG_LOOKBACK_BLOCKS", broken.number);
        if store::lanes::freeze(&self.db, self.lane, self.holder, &reason).await? {
            metrics::FINALITY_VIOLATIONS.add(1, &[&self.desk.label(), &lane.signer.to_string()]);
            tracing::error!(event = "finality_violated", lane = %self.lane, signer = %lane.signer, block = broken.number, hash = %broken.hash,
                "an end that nothing should undo was undone: the lane is frozen until an operator has looked");
        }
        Ok(())
    }
}
