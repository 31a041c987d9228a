//! Lanes, their fences and windows, and the pools that deal to them. Written by the NonceAllocator; the lease and what was
//! seen of the chain are written by the lane's settling under its lease.

use super::arrays::{array, words};
use super::{Db, Error, Reader};
use crate::domain::{job, lineage};
use entity::ids::{ExecutionToken, JobId, LaneId, LineageId, WorkerId};
use entity::states::{LaneState, LineageState};
use entity::values::{Address, Hash, Wei};
use sea_orm::QueryResult;
use std::time::Duration;
use uuid::Uuid;

/// A lane as its own actors see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    pub id: LaneId,
    pub chain_id: i64,
    pub pool: String,
    pub signer: Address,
    pub state: LaneState,
    pub reason: Option<String>,
    /// The fence: the nonce that the next plan gets.
    pub next_nonce: i64,
    /// The nonce that the chain would take next, at its newest block.
    pub latest_nonce: i64,
    /// The same at TX_CONFIRMATIONS.
    pub settled_nonce: i64,
    /// How many nonces may be open past `latest_nonce`.
    pub width: i32,
    /// The sender has delegated itself (EIP-7702): one nonce may be open, whatever the width.
    pub delegated: bool,
}

fn lane(row: &QueryResult) -> Result<Lane, Error> {
    Ok(Lane {
        id: row.try_get("", "id")?,
        chain_id: row.try_get("", "chain_id")?,
        pool: row.try_get("", "pool")?,
        signer: row.try_get("", "signer")?,
        state: row.try_get("", "state")?,
        reason: row.try_get("", "reason")?,
        next_nonce: row.try_get("", "next_nonce")?,
        latest_nonce: row.try_get("", "latest_nonce")?,
        settled_nonce: row.try_get("", "settled_nonce")?,
        width: row.try_get("", "width")?,
        delegated: row.try_get("", "delegated")?,
    })
}

/// Every lane, by id.
///
/// # Errors
/// See [`Error`].
pub async fn all(db: &Reader) -> Result<Vec<Lane>, Error> {
    let sql = "SELECT id, chain_id, pool, signer, state, reason, next_nonce, latest_nonce, settled_nonce, width, delegated FROM holdfast.lanes ORDER BY id LIMIT 10000";
    db.rows("lanes", sql, vec![]).await?.iter().map(lane).collect()
}

/// Makes the pool, the signer and the lane when they are new; a lane that exists keeps its fence, whatever the chain says.
///
/// # Errors
/// See [`Error`].
pub async fn register(db: &Db, chain_id: i64, pool: &str, signer: Address, nonce: i64, width: u32, actor: &str) -> Result<(), Error> {
    let lane = "WITH made AS (
                    INSERT INTO holdfast.lanes (chain_id, pool, signer, state, next_nonce, latest_nonce, settled_nonce, width)
                    VALUES ($1, $2, $3, 'active', $4, $4, $4, $5) ON CONFLICT (chain_id, signer) DO NOTHING RETURNING chain_id, pool, signer
                ), widened AS (
                    UPDATE holdfast.lanes SET width = $5 WHERE chain_id = $1 AND signer = $3 AND width <> $5
                )
                INSERT INTO holdfast.signer_history (chain_id, pool, signer, change, actor) SELECT chain_id, pool, signer, 'joined', $6 FROM made";
    let width = i32::try_from(width).unwrap_or(i32::MAX);
    let tx = db.begin().await?;
    tx.rows("INSERT INTO holdfast.pools (chain_id, name) VALUES ($1, $2) ON CONFLICT DO NOTHING", vec![chain_id.into(), pool.into()])
        .await?;
    tx.rows("INSERT INTO holdfast.signers (address) VALUES ($1) ON CONFLICT DO NOTHING", vec![signer.into()]).await?;
    tx.rows(lane, vec![chain_id.into(), pool.into(), signer.into(), nonce.into(), width.into(), actor.into()]).await?;
    tx.commit().await
}

/// Deals `count` plans to the lanes of a pool; fewer than `count` (none) when every lane is full or fenced.
///
/// # Errors
/// See [`Error`].
pub async fn pick(db: &Db, chain_id: i64, pool: &str, count: usize, loaded: &[Address]) -> Result<Vec<(LaneId, Address)>, Error> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let values = vec![chain_id.into(), pool.into(), count.into(), array(loaded.iter().copied())];
    let rows = db.rows("pick_lanes", include_str!("sql/pick_lanes.sql"), values).await?;
    rows.iter().map(|row| Ok((row.try_get("", "id")?, row.try_get("", "signer")?))).collect()
}

/// A plan that wants a nonce.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub job: JobId,
    pub token: ExecutionToken,
    pub call_hash: Hash,
    pub to: Address,
    pub value: Wei,
    pub data: Vec<u8>,
    pub gas_limit: i64,
}

/// What a plan got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    Nonce {
        lineage: LineageId,
        nonce: i64,
    },
    /// The job owns a nonce from an earlier execution.
    Owned,
    /// The lane has no room, or its fence is closed.
    Full,
    /// The balance that was seen does not cover the plan beside what is open.
    Unfunded,
    /// Another execution has the job.
    Fenced,
    /// Somebody asked for cancellation; no nonce was bound.
    Cancelled,
}

/// Reserves nonces for all plans that wait, in one statement; answers in the order of the input. The price is what they are counted at.
///
/// # Errors
/// `Conflict` when another replica bound one of the jobs at this very moment: asking again is safe.
pub async fn reserve(db: &Db, lane: LaneId, batch: &[Wanted], max_fee_per_gas: Wei) -> Result<Vec<Reserved>, Error> {
    let values = vec![
        lane.into(),
        array(batch.iter().map(|w| w.job.0)),
        array(batch.iter().map(|w| w.token.0)),
        array(batch.iter().map(|_| Uuid::now_v7())),
        array(batch.iter().map(|w| w.call_hash)),
        array(batch.iter().map(|w| w.to)),
        array(batch.iter().map(|w| w.value)),
        array(batch.iter().map(|w| w.data.clone())),
        array(batch.iter().map(|w| w.gas_limit)),
        max_fee_per_gas.into(),
    ];
    let rows = db.rows("reserve", include_str!("sql/reserve.sql"), values).await?;
    if rows.len() != batch.len() {
        return Err(Error::Answer(format!("{} rows for {} plans", rows.len(), batch.len())));
    }
    rows.iter().map(reserved).collect()
}

fn reserved(row: &QueryResult) -> Result<Reserved, Error> {
    let lineage: Option<LineageId> = row.try_get("", "lineage_id")?;
    let nonce: Option<i64> = row.try_get("", "nonce")?;
    Ok(match lineage.zip(nonce) {
        Some((lineage, nonce)) => Reserved::Nonce { lineage, nonce },
        None if !row.try_get::<bool>("", "current")? => Reserved::Fenced,
        None if row.try_get::<bool>("", "owned")? => Reserved::Owned,
        None if row.try_get::<bool>("", "cancelled")? => Reserved::Cancelled,
        None if row.try_get::<bool>("", "unfunded")? => Reserved::Unfunded,
        None => Reserved::Full,
    })
}

/// Gives an unsigned nonce back, from the tail of its lane only, and ends its job as not actionable: one statement. False: it is not the
/// tail, it is signed, or another execution has the job.
///
/// # Errors
/// See [`Error`].
pub async fn release(db: &Db, lineage: LineageId, token: ExecutionToken, reason: &str) -> Result<bool, Error> {
    let arrow = job::arrow(job::Event::NothingToDo).map_err(|e| Error::Answer(e.to_string()))?;
    let unsigned = lineage::sources(lineage::Event::ReleasedUnsigned, LineageState::Abandoned);
    let values = vec![lineage.into(), token.into(), reason.into(), words(unsigned), arrow.to.to_string().into()];
    Ok(!db.rows("release", include_str!("sql/release.sql"), values).await?.is_empty())
}

/// A lane whose settling this process has.
#[derive(Clone, Debug)]
pub struct Leased {
    pub lane: Lane,
    /// How long the chain has waited for its `latest_nonce`.
    pub head_for: Duration,
}

/// Takes or keeps the settling of a lane; None while another process has it.
///
/// # Errors
/// See [`Error`].
pub async fn lease(db: &Db, id: LaneId, holder: WorkerId, lease: Duration) -> Result<Option<Leased>, Error> {
    let ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
    let rows = db.rows("lease_lane", include_str!("sql/lease_lane.sql"), vec![id.into(), holder.into(), ms.into()]).await?;
    let leased = |row: &QueryResult| {
        let head_for = Duration::try_from_secs_f64(row.try_get("", "head_seconds")?).unwrap_or_default();
        Ok(Leased { lane: lane(row)?, head_for })
    };
    rows.first().map(leased).transpose()
}

/// Keeps the settling of a lane during a long round. False: another process has it.
///
/// # Errors
/// See [`Error`].
pub async fn renew(db: &Db, id: LaneId, holder: WorkerId, lease: Duration) -> Result<bool, Error> {
    let sql = "UPDATE holdfast.lanes SET lease_until = now() + $3::bigint * interval '1 ms' WHERE id = $1 AND lease_holder = $2";
    let ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
    Ok(db.execute("renew_lane", sql, vec![id.into(), holder.into(), ms.into()]).await? == 1)
}

/// Gives the settling of every lane back, for a drain.
///
/// # Errors
/// See [`Error`].
pub async fn release_leases(db: &Db, holder: WorkerId) -> Result<u64, Error> {
    let sql = "UPDATE holdfast.lanes SET lease_holder = NULL, lease_until = NULL WHERE lease_holder = $1";
    db.execute("release_leases", sql, vec![holder.into()]).await
}

/// What was seen of a lane's nonces.
#[derive(Clone, Copy, Debug)]
pub struct Observed {
    /// Used up at the newest block, and at TX_CONFIRMATIONS.
    pub latest: i64,
    pub settled: i64,
    /// With what one pool has: a hint.
    pub pending: Option<i64>,
    pub block: i64,
}

/// Notes what a majority showed of a lane's nonces. True: the chain had used up nonces that were never given out here, and the fence
/// has followed.
///
/// # Errors
/// See [`Error`].
pub async fn observe(db: &Db, id: LaneId, holder: WorkerId, seen: Observed) -> Result<bool, Error> {
    let values = vec![id.into(), holder.into(), seen.latest.into(), seen.settled.into(), seen.pending.into(), seen.block.into()];
    let rows = db.rows("observe_lane", include_str!("sql/observe_lane.sql"), values).await?;
    rows.first().map_or(Ok(false), |row| Ok(row.try_get("", "adopted")?))
}

/// Freezes a lane: an end that nothing should undo was undone. Only an operator lifts this.
///
/// # Errors
/// See [`Error`].
pub async fn freeze(db: &Db, id: LaneId, holder: WorkerId, reason: &str) -> Result<bool, Error> {
    let sql = "UPDATE holdfast.lanes SET state = 'frozen', reason = $3, updated_at = now()
               WHERE id = $1 AND lease_holder = $2 AND lease_until > now() AND state IN ('active', 'paused', 'draining', 'drained')";
    Ok(db.execute("freeze_lane", sql, vec![id.into(), holder.into(), reason.into()]).await? == 1)
}

/// What a lane's open nonces that the chain has not taken may cost, and what nodes said of them.
#[derive(Clone, Debug, Default)]
pub struct Committed {
    pub amount: Wei,
    pub open: i64,
    /// Open ones whose newest answer is one of those that were asked for.
    pub too_many: i64,
    /// Gas limit and highest price of the lowest one, and its newest answer.
    pub head: Option<(i64, Wei)>,
    pub head_answer: Option<String>,
}

/// Sums up the nonces from `latest` on; unsigned ones count at `max_fee_per_gas`.
///
/// # Errors
/// See [`Error`].
pub async fn committed(db: &Reader, id: LaneId, latest: i64, max_fee_per_gas: Wei, too_many: &[&str]) -> Result<Committed, Error> {
    let answers = array(too_many.iter().map(|answer| (*answer).to_owned()));
    let values = vec![id.into(), latest.into(), max_fee_per_gas.into(), answers];
    let rows = db.rows("lane_funds", include_str!("sql/lane_funds.sql"), values).await?;
    let Some(row) = rows.first() else { return Ok(Committed::default()) };
    let (gas, price): (Option<i64>, Option<Wei>) = (row.try_get("", "head_gas")?, row.try_get("", "head_max_fee")?);
    Ok(Committed {
        amount: row.try_get("", "committed")?,
        open: row.try_get("", "open")?,
        too_many: row.try_get("", "too_many")?,
        head: gas.zip(price),
        head_answer: row.try_get("", "head_answer")?,
    })
}

/// Notes the balance of a lane's signer.
///
/// # Errors
/// See [`Error`].
pub async fn note_balance(db: &Db, id: LaneId, balance: Wei) -> Result<(), Error> {
    let sql = "UPDATE holdfast.lanes SET balance = $2, balance_at = now() WHERE id = $1";
    db.execute("note_balance", sql, vec![id.into(), balance.into()]).await?;
    Ok(())
}

/// Notes whether a lane's signer has delegated itself (EIP-7702).
///
/// # Errors
/// See [`Error`].
pub async fn note_delegated(db: &Db, id: LaneId, delegated: bool) -> Result<bool, Error> {
    let sql = "UPDATE holdfast.lanes SET delegated = $2, updated_at = now() WHERE id = $1 AND delegated <> $2";
    Ok(db.execute("note_delegated", sql, vec![id.into(), delegated.into()]).await? == 1)
}

/// Changes how many nonces of a lane may be open.
///
/// # Errors
/// See [`Error`].
pub async fn set_width(db: &Db, id: LaneId, holder: WorkerId, width: u32) -> Result<(), Error> {
    let sql = "UPDATE holdfast.lanes SET width = $3, updated_at = now() WHERE id = $1 AND lease_holder = $2 AND lease_until > now()";
    db.execute("set_width", sql, vec![id.into(), holder.into(), i32::try_from(width).unwrap_or(i32::MAX).into()]).await?;
    Ok(())
}

/// Pauses an active lane for a reason that begins with a word of whoever lets it go again.
///
/// # Errors
/// See [`Error`].
pub async fn hold(db: &Db, id: LaneId, reason: &str) -> Result<bool, Error> {
    let sql = "UPDATE holdfast.lanes SET state = 'paused', reason = $2, updated_at = now() WHERE id = $1 AND state = 'active'";
    Ok(db.execute("hold_lane", sql, vec![id.into(), reason.into()]).await? == 1)
}

/// Lets a lane run again that is paused for a reason that begins with `word`.
///
/// # Errors
/// See [`Error`].
pub async fn let_go(db: &Db, id: LaneId, word: &str) -> Result<bool, Error> {
    let sql = "UPDATE holdfast.lanes SET state = 'active', reason = NULL, updated_at = now() WHERE id = $1 AND state = 'paused' AND starts_with(reason, $2)";
    Ok(db.execute("let_lane_go", sql, vec![id.into(), word.into()]).await? == 1)
}

/// Pauses an active lane, or (None) lets a lane run again that was paused for lack of money. Only the holder of the lease does this.
///
/// # Errors
/// See [`Error`].
pub async fn pause(db: &Db, id: LaneId, holder: WorkerId, reason: Option<&str>) -> Result<bool, Error> {
    let sql = match reason {
        Some(_) => {
            "UPDATE holdfast.lanes SET state = 'paused', reason = $3, updated_at = now() WHERE id = $1 AND lease_holder = $2 AND state = 'active'"
        }
        None => {
            "UPDATE holdfast.lanes SET state = 'active', reason = $3, updated_at = now() WHERE id = $1 AND lease_holder = $2 AND state = 'paused' AND reason LIKE 'insufficient\\_funds%'"
        }
    };
    Ok(db.execute("pause_lane", sql, vec![id.into(), holder.into(), reason.map(ToOwned::to_owned).into()]).await? == 1)
}
