//! What the settling of a lane reads and writes of its lineages: open nonces, prices, ends, what undoes an end. Every write names the
//! lane and the holder of its lease; the TxJournal actor is the only caller.

use super::arrays::{array, words};
use super::journal::sendable;
use super::{Db, Error, Reader};
use crate::domain::fees::{Price, TxType};
use crate::domain::{job, lineage};
use entity::ids::{JobId, LaneId, LineageId, WorkerId};
use entity::states::{AttemptPurpose, JobKind, JobState, LineageState, NoopReason};
use entity::values::{Hash, Wei};
use sea_orm::QueryResult;
use std::collections::HashSet;
use std::time::Duration;

/// An open nonce of a lane.
#[derive(Clone, Debug)]
pub struct Open {
    pub lineage: LineageId,
    pub job: JobId,
    pub nonce: i64,
    pub state: LineageState,
    pub sends: i32,
    pub gas_limit: i64,
    pub replacements: i32,
    pub noops: i32,
    /// The head when the newest replacement was priced.
    pub priced_block: Option<i64>,
    pub noop: Option<NoopReason>,
    pub noop_detail: Option<String>,
    pub last_answer: Option<String>,
    /// Noted as standing at its price limit.
    pub capped: bool,
    pub age: Duration,
    pub since_sent: Option<Duration>,
    pub since_priced: Option<Duration>,
    /// Every attempt, oldest first; empty while unsigned.
    pub attempts: Vec<(Hash, AttemptPurpose)>,
    /// The highest of each field over all attempts.
    pub tried: Option<Price>,
}

fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).unwrap_or_default()
}

/// The open nonces of a lane from `from` on, lowest first.
///
/// # Errors
/// See [`Error`].
pub async fn open(db: &Reader, lane: LaneId, from: i64, limit: u32) -> Result<Vec<Open>, Error> {
    let values = vec![lane.into(), from.into(), i64::from(limit).into()];
    db.rows("open_lineages", include_str!("sql/open_lineages.sql"), values).await?.iter().map(open_row).collect()
}

/// A row of open_lineages.sql, or of open_of.sql.
pub(super) fn open_row(row: &QueryResult) -> Result<Open, Error> {
    let hashes: Vec<Vec<u8>> = row.try_get("", "hashes")?;
    let purposes: Vec<String> = row.try_get("", "purposes")?;
    let mut attempts = Vec::with_capacity(hashes.len());
    for (hash, purpose) in hashes.into_iter().zip(purposes) {
        let hash = hash.try_into().map(Hash).map_err(|_| Error::Answer("a hash of a wrong length".into()))?;
        attempts.push((hash, purpose.parse().map_err(|e: entity::states::UnknownWord| Error::Answer(e.to_string()))?));
    }
    let max_fee: Option<Wei> = row.try_get("", "max_fee")?;
    let tip: Option<Wei> = row.try_get("", "tip")?;
    Ok(Open {
        lineage: row.try_get("", "id")?,
        job: row.try_get("", "job_id")?,
        nonce: row.try_get("", "nonce")?,
        state: row.try_get("", "state")?,
        sends: row.try_get("", "sends")?,
        gas_limit: row.try_get("", "gas_limit")?,
        replacements: row.try_get("", "replacements")?,
        noops: row.try_get("", "noops")?,
        priced_block: row.try_get("", "priced_block")?,
        noop: row.try_get("", "noop_reason")?,
        noop_detail: row.try_get("", "noop_detail")?,
        last_answer: row.try_get("", "last_answer")?,
        capped: row.try_get("", "capped")?,
        age: seconds(row.try_get("", "age_seconds")?),
        since_sent: row.try_get::<Option<f64>>("", "since_sent_seconds")?.map(seconds),
        since_priced: row.try_get::<Option<f64>>("", "since_priced_seconds")?.map(seconds),
        attempts,
        tried: max_fee.zip(tip).map(|(max_fee_per_gas, max_priority_fee_per_gas)| Price { max_fee_per_gas, max_priority_fee_per_gas }),
    })
}

/// A further attempt at a nonce.
#[derive(Clone, Debug)]
pub struct Replacement {
    pub lineage: LineageId,
    pub hash: Hash,
    pub ordinal: i32,
    pub purpose: AttemptPurpose,
    pub price: Price,
    pub gas_limit: i64,
    pub key_id: String,
    pub iv: [u8; 12],
    pub ciphertext: Vec<u8>,
    pub tx_type: TxType,
}

/// Commits further attempts, priced at the head `block`; says which lineages were written.
///
/// # Errors
/// See [`Error`]; nothing may be sent then.
pub async fn replace(db: &Db, lane: LaneId, holder: WorkerId, block: i64, batch: &[Replacement]) -> Result<HashSet<LineageId>, Error> {
    let values = vec![
        array(batch.iter().map(|r| r.lineage.0)),
        array(batch.iter().map(|r| r.hash)),
        array(batch.iter().map(|r| r.ordinal)),
        array(batch.iter().map(|r| r.purpose.to_string())),
        array(batch.iter().map(|r| r.price.max_fee_per_gas)),
        array(batch.iter().map(|r| r.price.max_priority_fee_per_gas)),
        array(batch.iter().map(|r| r.gas_limit)),
        array(batch.iter().map(|r| r.key_id.clone())),
        array(batch.iter().map(|r| r.iv.to_vec())),
        array(batch.iter().map(|r| r.ciphertext.clone())),
        array(batch.iter().map(|r| r.tx_type.code())),
        lane.into(),
        holder.into(),
        words(lineage::sources(lineage::Event::ReplacementJournaled, LineageState::Replaced)),
        block.into(),
    ];
    let rows = db.rows("replace", include_str!("sql/replace.sql"), values).await?;
    rows.iter().map(|row| Ok(row.try_get("", "lineage_id")?)).collect()
}

/// A nonce below the fence that nobody owns, and the job of the service that is to use it up.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    pub nonce: i64,
    pub job: JobId,
    pub lineage: LineageId,
    pub call_hash: Hash,
}

/// The project of jobs that the service makes for itself.
pub const OWN_PROJECT: &str = "holdfast";
/// Executions of such a job in one delivery; it owns its nonce from the start and never dies of them.
const OWN_BUDGET: i32 = 8;

/// Gives nonces that nobody owns to jobs of the service; says which.
///
/// # Errors
/// See [`Error`].
pub async fn fill_gaps(db: &Db, lane: LaneId, holder: WorkerId, gaps: &[Gap], gas_limit: i64) -> Result<Vec<i64>, Error> {
    let values = vec![
        lane.into(),
        holder.into(),
        array(gaps.iter().map(|gap| gap.nonce)),
        array(gaps.iter().map(|gap| gap.job.0)),
        array(gaps.iter().map(|gap| gap.lineage.0)),
        array(gaps.iter().map(|gap| gap.call_hash)),
        OWN_PROJECT.into(),
        gas_limit.into(),
        OWN_BUDGET.into(),
    ];
    let rows = db.rows("fill_gaps", include_str!("sql/fill_gaps.sql"), values).await?;
    rows.iter().map(|row| Ok(row.try_get("", "nonce")?)).collect()
}

/// Notes that nonces stand at their price limit, or no longer do.
///
/// # Errors
/// See [`Error`].
pub async fn note_capped(db: &Db, lane: LaneId, holder: WorkerId, lineages: &[LineageId]) -> Result<u64, Error> {
    let sql = "WITH held AS (
                   SELECT l.id FROM holdfast.lanes n JOIN holdfast.lineages l ON l.lane_id = n.id
                   WHERE n.id = $2 AND n.lease_holder = $3 AND n.lease_until > now() AND l.id = ANY ($1::uuid[]) AND l.capped_at IS NULL
                     AND l.state = ANY ($4::text[]) ORDER BY l.job_id FOR UPDATE OF l
               )
               UPDATE holdfast.lineages l SET capped_at = now(), updated_at = now() FROM held h WHERE l.id = h.id";
    let values = vec![array(lineages.iter().map(|id| id.0)), lane.into(), holder.into(), words(sendable())];
    db.execute("note_capped", sql, values).await
}

/// Wants nonces used up by a no-op, with the words of the refusal.
///
/// # Errors
/// See [`Error`].
pub async fn give_up(db: &Db, lane: LaneId, holder: WorkerId, batch: &[(LineageId, String)]) -> Result<u64, Error> {
    let values = vec![
        array(batch.iter().map(|(id, _)| id.0)),
        array(batch.iter().map(|(_, detail)| detail.clone())),
        lane.into(),
        holder.into(),
        words(sendable()),
    ];
    db.execute("give_up", include_str!("sql/give_up.sql"), values).await
}

/// A receipt that a majority showed at TX_CONFIRMATIONS, the proof of it as JSON text, and what it means.
#[derive(Clone, Debug)]
pub struct Settled {
    pub lineage: LineageId,
    pub hash: Hash,
    pub lineage_event: lineage::Event,
    pub job_event: job::Event,
    pub block_number: i64,
    pub block_hash: Hash,
    pub gas_used: i64,
    /// None: the node does not tell what was paid.
    pub gas_price: Option<Wei>,
    pub proof: String,
    /// Type, title and detail of what the client is told; empty where all went well.
    pub error: (&'static str, &'static str, String),
}

/// What ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub lineage: LineageId,
    pub kind: JobKind,
    pub state: JobState,
    pub since_sent: Duration,
}

/// Ends lineages and their jobs by their receipts.
///
/// # Errors
/// See [`Error`]; the next look at the lane finds the same receipts.
pub async fn settle(db: &Db, lane: LaneId, holder: WorkerId, batch: &[Settled]) -> Result<Vec<Ended>, Error> {
    let receipt = lineage::Event::ReceiptFinal { succeeded: true };
    let illegal = |e: job::Illegal| Error::Answer(e.to_string());
    let arrow = job::arrow(job::Event::ReceiptFinal { succeeded: true }).map_err(illegal)?;
    let mut jobs = Vec::with_capacity(batch.len());
    let mut lineages = Vec::with_capacity(batch.len());
    for one in batch {
        jobs.push(job::arrow(one.job_event).map_err(illegal)?.to.to_string());
        let to = lineage::next(LineageState::Broadcast, one.lineage_event).map_err(|e| Error::Answer(e.to_string()))?.to;
        lineages.push(to.to_string());
    }
    let values = vec![
        array(batch.iter().map(|s| s.lineage.0)),
        array(batch.iter().map(|s| s.hash)),
        array(lineages),
        array(batch.iter().map(|s| s.block_number)),
        array(batch.iter().map(|s| s.block_hash)),
        array(batch.iter().map(|s| s.gas_used)),
        array(batch.iter().map(|s| s.gas_price.map_or(String::new(), |price| price.to_string()))),
        array(batch.iter().map(|s| s.proof.clone())),
        array(jobs),
        array(batch.iter().map(|s| s.error.0.to_owned())),
        array(batch.iter().map(|s| s.error.1.to_owned())),
        array(batch.iter().map(|s| s.error.2.clone())),
        lane.into(),
        holder.into(),
        words(lineage::sources(receipt, LineageState::Mined)),
        words(arrow.from),
    ];
    let rows = db.rows("settle", include_str!("sql/settle.sql"), values).await?;
    rows.iter()
        .map(|row| {
            Ok(Ended {
                lineage: row.try_get("", "lineage_id")?,
                kind: row.try_get("", "kind")?,
                state: row.try_get("", "state")?,
                since_sent: seconds(row.try_get("", "since_sent_seconds")?),
            })
        })
        .collect()
}

/// A nonce that a stranger used up, the proof as JSON text, and how many of our hashes were looked for.
#[derive(Clone, Debug)]
pub struct Superseded {
    pub lineage: LineageId,
    pub proof: String,
    pub hashes: i32,
}

/// Ends nonces that strangers used up; gives the jobs that moved and where to.
///
/// # Errors
/// See [`Error`].
pub async fn supersede(
    db: &Db,
    lane: LaneId,
    holder: WorkerId,
    batch: &[Superseded],
) -> Result<Vec<(LineageId, JobKind, JobState)>, Error> {
    let illegal = |e: job::Illegal| Error::Answer(e.to_string());
    let dead = job::arrow(job::Event::Superseded).map_err(illegal)?;
    let retry = job::arrow(job::Event::NonceLost).map_err(illegal)?;
    let values = vec![
        array(batch.iter().map(|s| s.lineage.0)),
        array(batch.iter().map(|s| s.proof.clone())),
        array(batch.iter().map(|s| s.hashes)),
        lane.into(),
        holder.into(),
        words(lineage::sources(lineage::Event::ConsumedByStranger, LineageState::Superseded)),
        words(dead.from),
        dead.to.to_string().into(),
        retry.to.to_string().into(),
    ];
    let rows = db.rows("supersede", include_str!("sql/supersede.sql"), values).await?;
    rows.iter().map(|row| Ok((row.try_get("", "lineage_id")?, row.try_get("", "kind")?, row.try_get("", "state")?))).collect()
}

/// A nonce that a stranger used up.
#[derive(Clone, Debug)]
pub struct Loss {
    pub lineage: LineageId,
    pub nonce: i64,
    /// The block at which the count was made.
    pub proven_at: i64,
    /// Seen TX_REORG_LOOKBACK_BLOCKS deep: nothing should undo it.
    pub finalized: bool,
    pub hashes: Vec<Hash>,
}

/// The nonces of a lane that strangers used up, while that may still be undone, lowest first; and the highest one that nothing should undo.
/// Served by lineages_lost, lineages_given_up.
///
/// # Errors
/// See [`Error`].
pub async fn losses(db: &Reader, lane: LaneId, limit: u32) -> Result<Vec<Loss>, Error> {
    let sql = "WITH lost AS (
                   (SELECT id, nonce, proof, finalized_at FROM holdfast.lineages
                    WHERE lane_id = $1 AND state = 'superseded' AND finalized_at IS NULL ORDER BY nonce LIMIT $2)
                   UNION ALL
                   (SELECT id, nonce, proof, finalized_at FROM holdfast.lineages
                    WHERE lane_id = $1 AND state = 'superseded' AND finalized_at IS NOT NULL ORDER BY nonce DESC LIMIT 1)
               )
               SELECT l.id, l.nonce, coalesce((l.proof -> 'account_nonce' ->> 'block')::bigint, 0) AS proven_at, l.finalized_at IS NOT NULL AS finalized,
                      ARRAY(SELECT a.hash FROM holdfast.tx_attempts a WHERE a.lineage_id = l.id ORDER BY a.ordinal) AS hashes
               FROM lost l ORDER BY l.nonce";
    let rows = db.rows("losses", sql, vec![lane.into(), i64::from(limit).into()]).await?;
    rows.iter()
        .map(|row| {
            let hashes: Vec<Vec<u8>> = row.try_get("", "hashes")?;
            Ok(Loss {
                lineage: row.try_get("", "id")?,
                nonce: row.try_get("", "nonce")?,
                proven_at: row.try_get("", "proven_at")?,
                finalized: row.try_get("", "finalized")?,
                hashes: hashes.into_iter().filter_map(|hash| hash.try_into().ok().map(Hash)).collect(),
            })
        })
        .collect()
}

/// Notes that strangers' uses of nonces were seen again TX_REORG_LOOKBACK_BLOCKS deep: their jobs may be taken up again.
///
/// # Errors
/// See [`Error`].
pub async fn confirm_losses(db: &Db, lane: LaneId, holder: WorkerId, lineages: &[LineageId]) -> Result<u64, Error> {
    let sql = "UPDATE holdfast.lineages l SET finalized_at = now(), updated_at = now() FROM holdfast.lanes n
               WHERE n.id = $2 AND n.lease_holder = $3 AND n.lease_until > now() AND l.lane_id = n.id AND l.id = ANY ($1::uuid[])
                 AND l.state = 'superseded' AND l.finalized_at IS NULL";
    db.execute("confirm_losses", sql, vec![array(lineages.iter().map(|id| id.0)), lane.into(), holder.into()]).await
}

/// A block with ends of a lane in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndBlock {
    pub number: i64,
    pub hash: Hash,
    /// TX_REORG_LOOKBACK_BLOCKS deep when it was looked at.
    pub finalized: bool,
}

/// The blocks of a lane's ends that have to be looked at again: the `newest` ones, those at or below `deep`, at most `limit` of
/// these, and the newest finalized one.
///
/// # Errors
/// See [`Error`].
pub async fn end_blocks(db: &Reader, lane: LaneId, newest: u32, deep: i64, limit: u32) -> Result<Vec<EndBlock>, Error> {
    let values = vec![lane.into(), i64::from(newest).into(), deep.into(), i64::from(limit).into()];
    let rows = db.rows("provisional_blocks", include_str!("sql/provisional_blocks.sql"), values).await?;
    rows.iter()
        .map(|row| {
            Ok(EndBlock {
                number: row.try_get("", "block_number")?,
                hash: row.try_get("", "block_hash")?,
                finalized: row.try_get("", "finalized")?,
            })
        })
        .collect()
}

/// The ends in these blocks, lowest nonce first.
///
/// # Errors
/// See [`Error`].
pub async fn ends_in(db: &Reader, lane: LaneId, blocks: &[EndBlock], limit: u32) -> Result<Vec<LineageId>, Error> {
    let values = vec![lane.into(), array(blocks.iter().map(|b| b.number)), array(blocks.iter().map(|b| b.hash)), i64::from(limit).into()];
    let rows = db.rows("orphans", include_str!("sql/orphans.sql"), values).await?;
    rows.iter().map(|row| Ok(row.try_get("", "id")?)).collect()
}

/// Ends that were undone.
#[derive(Clone, Debug, Default)]
pub struct Undone {
    /// Signed again.
    pub revived: Vec<LineageId>,
    /// They never had bytes, and nobody owns their nonces any more.
    pub freed: Vec<LineageId>,
}

/// Undoes ends that a reorganisation undid.
///
/// # Errors
/// See [`Error`]; nothing is half done.
pub async fn revive(db: &Db, lane: LaneId, holder: WorkerId, lineages: &[LineageId]) -> Result<Undone, Error> {
    let arrow = job::arrow(job::Event::Orphaned).map_err(|e| Error::Answer(e.to_string()))?;
    let values = vec![
        array(lineages.iter().map(|id| id.0)),
        lane.into(),
        holder.into(),
        words(lineage::sources(lineage::Event::Orphaned, LineageState::Signed)),
        words(arrow.from),
        arrow.to.to_string().into(),
        words(lineage::sources(lineage::Event::OrphanedUnsigned, LineageState::Abandoned)),
    ];
    let mut undone = Undone::default();
    for row in db.rows("revive", include_str!("sql/revive.sql"), values).await? {
        let lineage = row.try_get("", "lineage_id")?;
        if row.try_get("", "signed")? { undone.revived.push(lineage) } else { undone.freed.push(lineage) }
    }
    Ok(undone)
}

/// Notes that the ends in these blocks are final; at most `limit` of them.
///
/// # Errors
/// See [`Error`].
pub async fn finalize(db: &Db, lane: LaneId, holder: WorkerId, blocks: &[EndBlock], limit: u32) -> Result<u64, Error> {
    let values = vec![
        array(blocks.iter().map(|b| b.number)),
        array(blocks.iter().map(|b| b.hash)),
        lane.into(),
        holder.into(),
        i64::from(limit).into(),
    ];
    db.execute("finalize", include_str!("sql/finalize.sql"), values).await
}
