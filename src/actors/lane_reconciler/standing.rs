//! Looks whether the ends of a lane still stand: undoes those whose block is no longer canonical, notes those that are deep enough, and
//! freezes the lane when an end was undone that nothing should undo.

use super::rpc_quorum::View;
use super::{Work, number};
use crate::chain::{BlockTag, Receipt};
use crate::domain::lane_round::{self, EndBlock, Recheck};
use crate::domain::quorum::Decision;
use crate::domain::settlement::{self, Shown, Standing};
use crate::store;
use crate::store::lanes::Lane;
use crate::store::settling::Undone;
use crate::telemetry::metrics;
use entity::ids::LineageId;
use entity::states::LineageState;
use std::collections::HashMap;

/// Blocks with ends that are looked at in every round; a reorganisation changes the newest of them.
const NEWEST: u32 = 4;
/// Most blocks that are looked at once a reorganisation was seen, and most that become final in one round.
const EVERY: u32 = 10_000;
const FINAL_BLOCKS: u32 = 64;
/// Most lost nonces that are looked at in one round.
const LOSSES: u32 = 100;
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
        if let Some(nonce) = self.recheck_losses(lane, view).await? {
            self.freeze(lane, view, &format!("nonce {nonce} was a stranger's and is free again")).await?;
            return Ok(false);
        }
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
            self.freeze(lane, view, &format!("block {} ({}) with an end of this lane was undone", broken.number, broken.hash)).await?;
            return Ok(false);
        }
        if !found.orphaned.is_empty() {
            let orphans = self.journal.ends_in(self.lane, &rows(&found.orphaned), REVIVE).await?;
            self.undo(lane, &orphans).await?;
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

    /// A stranger's transaction can be undone like ours: then our bytes live again, and their job must not be taken up under another nonce.
    /// Gives a nonce that he had for good and has no longer.
    async fn recheck_losses(&self, lane: &Lane, view: View) -> Result<Option<i64>, store::Error> {
        let losses = self.journal.losses(self.lane, LOSSES).await?;
        let Some(deep) = lane_round::settled_at(view.reached, self.desk.settings.reorg_lookback).filter(|_| !losses.is_empty()) else {
            return Ok(None);
        };
        let count = |tag| async move { self.desk.chain.consumed_nonces(vec![lane.signer], tag).await.pop().and_then(Decision::agreed) };
        let (latest, deep_count) = (count(BlockTag::Latest).await, count(BlockTag::Number(deep)).await);
        let hashes: Vec<_> = losses.iter().filter(|loss| !loss.finalized).flat_map(|loss| loss.hashes.iter().copied()).collect();
        let told = self.desk.chain.receipts(hashes.clone(), view.reached).await;
        let told: HashMap<_, _> = hashes.into_iter().zip(told).map(|(hash, votes)| (hash, shown(&votes.decision))).collect();
        let (mut undone, mut confirmed) = (Vec::new(), Vec::new());
        for loss in &losses {
            let Ok(nonce) = u64::try_from(loss.nonce) else { continue };
            let shown: Vec<Shown> = loss.hashes.iter().map(|hash| told.get(hash).copied().unwrap_or(Shown::Unknown)).collect();
            match settlement::loss(nonce, latest, deep_count, &shown, self.desk.chain.calm()) {
                Standing::Orphaned if loss.finalized => return Ok(Some(loss.nonce)),
                Standing::Orphaned => undone.push(loss.lineage),
                _ if loss.finalized => {}
                Standing::Final if loss.proven_at <= number(deep) => confirmed.push(loss.lineage),
                _ => {}
            }
        }
        if !undone.is_empty() {
            self.undo(lane, &undone).await?;
        }
        if !confirmed.is_empty() {
            self.journal.confirm_losses(self.lane, self.holder, &confirmed).await?;
        }
        Ok(None)
    }

    async fn undo(&self, lane: &Lane, orphans: &[LineageId]) -> Result<(), store::Error> {
        let Undone { revived, freed } = self.journal.revive(self.lane, self.holder, orphans).await?;
        let label = self.desk.label();
        if !freed.is_empty() {
            metrics::TX_TRANSITIONS.add(u64::try_from(freed.len()).unwrap_or(0), &[&label, LineageState::Abandoned.as_str()]);
            tracing::warn!(
                event = "nonce_freed", lane = %self.lane, signer = %lane.signer, lineages = ?freed,
                "a reorganisation undid strangers that had used up nonces without bytes: transfers of nothing will use them up"
            );
        }
        if revived.is_empty() {
            return Ok(());
        }
        metrics::REORG_REVIVED.add(u64::try_from(revived.len()).unwrap_or(0), &[&label]);
        metrics::TX_TRANSITIONS.add(u64::try_from(revived.len()).unwrap_or(0), &[&label, LineageState::Signed.as_str()]);
        tracing::warn!(
            event = "lineage_revived", lane = %self.lane, signer = %lane.signer, lineages = revived.len(),
            "a reorganisation undid ends of this lane: their bytes are sent again"
        );
        // The bytes go out now; the executions that were called for find them sent.
        if let Err(error) = self.journal.resend(self.lane, self.holder, &revived, "reorg").await {
            tracing::warn!(event = "resend_failed", lane = %self.lane, %error, "the next round sends them");
        }
        Ok(())
    }

    async fn freeze(&self, lane: &Lane, view: View, what: &str) -> Result<(), store::Error> {
        let reason = format!("{FINALITY_VIOLATED}: {what} after TX_REORG_LOOKBACK_BLOCKS");
        if store::lanes::freeze(&self.db, self.lane, self.holder, &reason).await? {
            metrics::FINALITY_VIOLATIONS.add(1, &[&self.desk.label(), &lane.signer.to_string()]);
            tracing::error!(event = "finality_violated", lane = %self.lane, signer = %lane.signer, head = view.reached, reason,
                "an end that nothing should undo was undone: the lane is frozen until an operator has looked");
        }
        Ok(())
    }
}

fn shown(decision: &Decision<Option<Receipt>>) -> Shown {
    match decision {
        Decision::Agreed(Some(_), _) => Shown::Receipt,
        Decision::Agreed(None, _) => Shown::Absent,
        Decision::Split | Decision::Insufficient => Shown::Unknown,
    }
}

fn rows(blocks: &[EndBlock]) -> Vec<store::settling::EndBlock> {
    let row = |block: &EndBlock| store::settling::EndBlock { number: number(block.number), hash: block.hash, finalized: block.finalized };
    blocks.iter().map(row).collect()
}
