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
    /// Which transaction mined and in which block; None: it was given up to a stranger.
    pub mined: Option<(Hash, i64)>,
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

/// The final ends that thawing would open again: those in these blocks, and the nonces from `consumed` on that were given up to strangers.
/// Lowest nonce first, at most `limit`; and how many there are in all. Served by lineages_finalized, lineages_given_up.
///
/// # Errors
/// See [`Error`].
pub async fn undone_ends(db: &Reader, lane: LaneId, blocks: &[EndBlock], consumed: i64, limit: u32) -> Result<(Vec<FinalEnd>, i64), Error> {
    let sql = "WITH ends AS (
                   SELECT l.job_id, l.nonce, l.mined_hash, l.block_number FROM unnest($2::bigint[], $3::bytea[]) AS b (number, hash)
                   JOIN holdfast.lineages l ON l.lane_id = $1 AND l.block_number = b.number AND l.block_hash = b.hash
                   WHERE l.finalized_at IS NOT NULL AND l.block_number IS NOT NULL
                   UNION ALL
                   SELECT l.job_id, l.nonce, NULL, NULL FROM holdfast.lineages l
                   WHERE l.lane_id = $1 AND l.state = 'superseded' AND l.finalized_at IS NOT NULL AND l.nonce >= $4
               )
               SELECT *, count(*) OVER () AS total FROM ends ORDER BY nonce LIMIT $5";
    let values = vec![
        lane.into(),
        array(blocks.iter().map(|b| b.number)),
        array(blocks.iter().map(|b| b.hash)),
        consumed.into(),
        i64::from(limit).into(),
    ];
    let rows = db.rows("undone_ends", sql, values).await?;
    let total = rows.first().map_or(Ok(0), |row| row.try_get("", "total"))?;
    let ends = rows.iter().map(|row| {
        let (hash, block): (Option<Hash>, Option<i64>) = (row.try_get("", "mined_hash")?, row.try_get("", "block_number")?);
        Ok(FinalEnd { job: row.try_get("", "job_id")?, nonce: row.try_get("", "nonce")?, mined: hash.zip(block) })
    });
    Ok((ends.collect::<Result<_, Error>>()?, total))
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
