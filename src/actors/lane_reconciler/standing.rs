//! Looks whether the ends of a lane still stand: undoes those whose block is no longer canonical, notes those that are deep enough, and
//! freezes the lane when an end was undone that nothing should undo.

use super::rpc_quorum::View;
use super::{Work, number};
use crate::domain::lane_round::{self, EndBlock, Recheck};
use crate::store;
use crate::store::lanes::Lane;
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
        let deep = number(view.reached) - number(self.desk.settings.reorg_lookback) + 1;
        let mut blocks = self.journal.end_blocks(self.lane, NEWEST, deep, FINAL_BLOCKS).await?;
        if blocks.is_empty() {
            return Ok(true);
        }
        let mut found = self.stand(&blocks, view).await;
        if found.reorganised {
            // All that may be undone, not only the newest.
            blocks = self.journal.end_blocks(self.lane, EVERY, deep, FINAL_BLOCKS).await?;
            found = self.stand(&blocks, view).await;
        }
        if let Some(broken) = found.broken {
            self.freeze(lane, broken).await?;
            return Ok(false);
        }
        if !found.orphaned.is_empty() {
            self.undo(lane, &rows(&found.orphaned)).await?;
        }
        if !found.deep.is_empty() {
            self.journal.finalize(self.lane, self.holder, &rows(&found.deep), FINALIZE).await?;
        }
        Ok(true)
    }

    async fn stand(&self, blocks: &[store::settling::EndBlock], view: View) -> Recheck {
        let block = |row: &store::settling::EndBlock| EndBlock {
            number: u64::try_from(row.number).unwrap_or_default(),
            hash: row.hash,
            finalized: row.finalized,
        };
        let blocks: Vec<EndBlock> = blocks.iter().map(block).collect();
        let canonical = self.canonical(blocks.iter().map(|block| block.number).collect()).await;
        lane_round::recheck(&blocks, &canonical, self.at(view, self.desk.settings.reorg_lookback))
    }

    async fn undo(&self, lane: &Lane, orphaned: &[store::settling::EndBlock]) -> Result<(), store::Error> {
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

    async fn freeze(&self, lane: &Lane, broken: EndBlock) -> Result<(), store::Error> {
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

fn rows(blocks: &[EndBlock]) -> Vec<store::settling::EndBlock> {
    let row = |block: &EndBlock| store::settling::EndBlock { number: number(block.number), hash: block.hash, finalized: block.finalized };
    blocks.iter().map(row).collect()
}
