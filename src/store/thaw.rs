//! A lane that was frozen because what nothing should undo was undone: what stands in question, and the way back. Called by `operator`.

use super::arrays::array;
use super::audited::Operator;
use super::settling::EndBlock;
use super::{Db, Error, Reader};
use entity::ids::{JobId, LaneId};
use entity::values::Hash;

/// An end that was told as final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinalEnd {
    pub job: JobId,
    pub nonce: i64,
    pub hash: Hash,
    pub block: i64,
}

/// The blocks below a height that hold final ends of a lane, newest first.
///
/// # Errors
/// See [`Error`].
pub async fn final_blocks(db: &Reader, lane: LaneId, below: i64, limit: u32) -> Result<Vec<EndBlock>, Error> {
    let sql = "SELECT DISTINCT block_number, block_hash FROM holdfast.lineages
               WHERE lane_id = $1 AND finalized_at IS NOT NULL AND block_number IS NOT NULL AND block_number < $2 ORDER BY block_number DESC LIMIT $3";
    let rows = db.rows("final_blocks", sql, vec![lane.into(), below.into(), i64::from(limit).into()]).await?;
    rows.iter()
        .map(|row| Ok(EndBlock { number: row.try_get("", "block_number")?, hash: row.try_get("", "block_hash")?, finalized: true }))
        .collect()
}

/// The final ends in these blocks, lowest nonce first.
///
/// # Errors
/// See [`Error`].
pub async fn ends_in(db: &Reader, lane: LaneId, blocks: &[EndBlock], limit: u32) -> Result<Vec<FinalEnd>, Error> {
    let sql = "SELECT l.job_id, l.nonce, l.mined_hash, l.block_number FROM unnest($2::bigint[], $3::bytea[]) AS b (number, hash)
               JOIN holdfast.lineages l ON l.lane_id = $1 AND l.block_number = b.number AND l.block_hash = b.hash
               WHERE l.finalized_at IS NOT NULL ORDER BY l.nonce LIMIT $4";
    let values = vec![lane.into(), array(blocks.iter().map(|b| b.number)), array(blocks.iter().map(|b| b.hash)), i64::from(limit).into()];
    let rows = db.rows("final_ends", sql, values).await?;
    rows.iter()
        .map(|row| {
            Ok(FinalEnd {
                job: row.try_get("", "job_id")?,
                nonce: row.try_get("", "nonce")?,
                hash: row.try_get("", "mined_hash")?,
                block: row.try_get("", "block_number")?,
            })
        })
        .collect()
}

/// Thaws a frozen lane; how many ends are provisional again. None: it is not frozen.
///
/// # Errors
/// See [`Error`].
pub async fn thaw(db: &Db, lane: LaneId, undone: &[EndBlock], consumed: i64, operator: Operator<'_>) -> Result<Option<i64>, Error> {
    let values = vec![
        lane.into(),
        array(undone.iter().map(|b| b.number)),
        array(undone.iter().map(|b| b.hash)),
        consumed.into(),
        operator.id.into(),
        operator.reason.into(),
    ];
    let rows = db.rows("thaw_lane", include_str!("sql/thaw_lane.sql"), values).await?;
    rows.first().map(|row| Ok(row.try_get("", "ends")?)).transpose()
}
