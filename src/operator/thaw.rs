//! The way back of a lane that is frozen because an end was undone that nothing should undo. A majority is asked about every final end from the newest
//! down; what it contradicts becomes provisional again and is undone by the next round of the lane, with the same bytes. What stands, stands.

use super::cancel::check;
use super::lanes::load;
use super::retire::Chains;
use super::{Desk, Error, List};
use crate::domain::quorum::Decision;
use crate::store::audited::Operator;
use crate::store::settling::EndBlock;
use crate::store::thaw as rows;
use entity::ids::JobId;
use entity::states::LaneState;
use entity::values::{Address, Hash};
use serde::Serialize;

/// Blocks that a majority is asked about at once; as many that all stand end the search, for a reorganisation leaves nothing above them.
const BLOCKS: u32 = 64;
/// Contradicted blocks at which something else is wrong than a reorganisation.
const BLOCKS_MAX: usize = 10_000;
/// Ends that are shown; all of them are counted.
const SHOWN: u32 = 100;

/// A lane, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Thawed {
    pub signer: Address,
    pub chain_id: i64,
    pub reason: String,
    /// Final ends that a majority contradicts: their bytes are sent again. The first hundred.
    pub undone: Vec<Undone>,
    /// All of them.
    pub contradicted: i64,
    /// The nonce that the chain takes next, as a majority tells.
    pub consumed: u64,
    /// Blocks that a majority was asked about.
    pub blocks: u64,
    /// How many ends are provisional again; null: nothing was changed.
    pub reopened: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Undone {
    pub job: JobId,
    pub nonce: i64,
    /// What mined; null where the nonce was given up to a stranger.
    pub hash: Option<Hash>,
    /// Where it was told to stand.
    pub block: Option<i64>,
}

/// Thaws the frozen lanes of a signer, on one chain or (None) on all, or (`dry`) says what that would undo. Nothing is thawed before
/// a majority of each chain has told how the ends stand.
///
/// # Errors
/// `NotFound` when the signer has no lane; `Gate` when none of them is frozen, while many calls fail, or no majority says how its ends stand.
pub async fn thaw(
    desk: &Desk,
    (signer, on): (Address, Option<i64>),
    chains: &Chains<'_>,
    dry: bool,
    operator: (&str, &str),
) -> Result<List<Thawed>, Error> {
    check(operator.0, operator.1)?;
    let mut lanes = load(&desk.reader()).await?;
    lanes.retain(|lane| lane.signer == signer && on.is_none_or(|chain| lane.chain_id == chain));
    if lanes.is_empty() {
        return Err(Error::NotFound { what: "signer", id: signer.to_string() });
    }
    lanes.retain(|lane| lane.state == LaneState::Frozen);
    if lanes.is_empty() {
        let why = format!("no lane of {signer} is frozen");
        return Err(Error::Gate { gate: "not-frozen", why, next: "holdfast lanes list" });
    }
    let mut plans = Vec::new();
    for lane in lanes {
        let (undone, blocks) = contradicted(desk, &lane, chains).await?;
        let (_, consumed) = chains.consumed(lane.chain_id, signer).await?;
        plans.push((lane, undone, blocks, consumed));
    }
    let mut items = Vec::new();
    for (lane, undone, blocks, consumed) in plans {
        let from = i64::try_from(consumed).unwrap_or(i64::MAX);
        let (ends, total) = rows::undone_ends(&desk.reader(), lane.id, &undone, from, SHOWN).await?;
        let by = Operator { id: operator.0, reason: operator.1 };
        let reopened = if dry { None } else { rows::thaw(&desk.db, lane.id, &undone, from, by).await? };
        if reopened.is_none() && !dry {
            let why = format!("somebody else has thawed the lane of {signer} on chain {} meanwhile", lane.chain_id);
            return Err(Error::Gate { gate: "not-frozen", why, next: "holdfast lanes list" });
        }
        let shown = |end: rows::FinalEnd| Undone {
            job: end.job,
            nonce: end.nonce,
            hash: end.mined.map(|(hash, _)| hash),
            block: end.mined.map(|(_, block)| block),
        };
        items.push(Thawed {
            signer,
            chain_id: lane.chain_id,
            reason: lane.reason.unwrap_or_default(),
            undone: ends.into_iter().map(shown).collect(),
            contradicted: total,
            consumed,
            blocks,
            reopened,
        });
    }
    Ok(List { items, next_cursor: None })
}

/// The blocks with final ends that are not canonical any more, and how many were asked about.
async fn contradicted(desk: &Desk, lane: &super::lanes::Lane, chains: &Chains<'_>) -> Result<(Vec<EndBlock>, u64), Error> {
    let (_, chain) = chains.chain(lane.chain_id).await?;
    let (mut undone, mut below, mut asked) = (Vec::new(), i64::MAX, 0);
    loop {
        let blocks = rows::final_blocks(&desk.reader(), lane.id, below, BLOCKS).await?;
        let Some(last) = blocks.last() else { return Ok((undone, asked)) };
        below = last.number;
        let heights: Vec<u64> = blocks.iter().map(|block| u64::try_from(block.number).unwrap_or_default()).collect();
        let told = chain.block_hashes(heights).await;
        let before = undone.len();
        for (block, decision) in blocks.iter().zip(told) {
            asked += 1;
            match decision {
                Decision::Agreed(canonical, _) if canonical == Some(block.hash) => {}
                Decision::Agreed(..) => undone.push(*block),
                Decision::Split | Decision::Insufficient => {
                    let why = format!("no majority of chain {} says which block {} is", lane.chain_id, block.number);
                    return Err(Error::Gate { gate: "quorum", why, next: "holdfast doctor" });
                }
            }
        }
        if undone.len() == before {
            return Ok((undone, asked));
        }
        if undone.len() > BLOCKS_MAX {
            let why = format!("more than {BLOCKS_MAX} blocks with final ends are contradicted: is this the same chain {}?", lane.chain_id);
            return Err(Error::Gate { gate: "another-chain", why, next: "holdfast doctor" });
        }
    }
}
