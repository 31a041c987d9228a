//! Lineages and their attempts as operators see them: who, which nonce, at what price, since when. Metadata only: the columns are
//! named, and neither the call's data nor ciphertext, key material or iv is among them. Reads only; called by `operator`.

use super::{Error, Reader};
use chrono::{DateTime, Utc};
use entity::ids::{JobId, LaneId, LineageId};
use entity::states::{AttemptPurpose, LineageState, NoopReason};
use entity::values::{Address, Hash, Wei};
use sea_orm::QueryResult;
use uuid::Uuid;

/// One use of one nonce.
#[derive(Clone, Debug)]
pub struct Lineage {
    pub id: LineageId,
    pub job: JobId,
    pub lane: LaneId,
    pub chain_id: i64,
    pub signer: Address,
    pub nonce: i64,
    pub state: LineageState,
    pub to: Address,
    pub value: Wei,
    pub gas_limit: i64,
    pub sends: i32,
    pub last_sent_at: Option<DateTime<Utc>>,
    pub last_answer: Option<String>,
    pub mined_hash: Option<Hash>,
    pub block: Option<(i64, Hash)>,
    pub gas_used: Option<i64>,
    pub effective_gas_price: Option<Wei>,
    pub proof: Option<serde_json::Value>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    pub ended_at: Option<DateTime<Utc>>,
    pub replacements: i32,
    pub noops: i32,
    pub noop_reason: Option<NoopReason>,
    pub noop_detail: Option<String>,
    /// Since when it stands at its price limit.
    pub capped_at: Option<DateTime<Utc>>,
    /// When its end was seen too deep to be undone.
    pub finalized_at: Option<DateTime<Utc>>,
    /// Signed so far.
    pub attempts: i64,
    pub newest_hash: Option<Hash>,
    pub newest_price: Option<(Wei, Wei)>,
}

/// Signed bytes, without the bytes.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub ordinal: i32,
    pub hash: Hash,
    pub purpose: AttemptPurpose,
    pub max_fee_per_gas: Wei,
    pub max_priority_fee_per_gas: Wei,
    pub gas_limit: i64,
    pub journal_key: String,
    pub created_at: DateTime<Utc>,
}

macro_rules! lineages {
    ($rest:literal) => {
        concat!(
            "SELECT l.id, l.job_id, l.lane_id, l.chain_id, l.signer, l.nonce, l.state, l.to_address, l.value, l.gas_limit, l.sends, l.last_sent_at,
             l.last_answer, l.mined_hash, l.block_number, l.block_hash, l.gas_used, l.effective_gas_price, l.proof, l.created_at, l.updated_at,
             l.ended_at, l.replacements, l.noops, l.noop_reason, l.noop_detail, l.capped_at, l.finalized_at, a.attempts, a.hash AS newest_hash, a.max_fee, a.tip FROM holdfast.lineages l LEFT JOIN LATERAL (
                 SELECT t.ordinal::bigint AS attempts, t.hash, t.max_fee_per_gas AS max_fee, t.max_priority_fee_per_gas AS tip
                 FROM holdfast.tx_attempts t WHERE t.lineage_id = l.id ORDER BY t.ordinal DESC LIMIT 1) a ON true ",
            $rest
        )
    };
}

fn lineage(row: &QueryResult) -> Result<Lineage, Error> {
    let block: Option<i64> = row.try_get("", "block_number")?;
    let price: Option<Wei> = row.try_get("", "max_fee")?;
    Ok(Lineage {
        id: row.try_get("", "id")?,
        job: row.try_get("", "job_id")?,
        lane: row.try_get("", "lane_id")?,
        chain_id: row.try_get("", "chain_id")?,
        signer: row.try_get("", "signer")?,
        nonce: row.try_get("", "nonce")?,
        state: row.try_get("", "state")?,
        to: row.try_get("", "to_address")?,
        value: row.try_get("", "value")?,
        gas_limit: row.try_get("", "gas_limit")?,
        sends: row.try_get("", "sends")?,
        last_sent_at: row.try_get("", "last_sent_at")?,
        last_answer: row.try_get("", "last_answer")?,
        mined_hash: row.try_get("", "mined_hash")?,
        block: block.zip(row.try_get("", "block_hash")?),
        gas_used: row.try_get("", "gas_used")?,
        effective_gas_price: row.try_get("", "effective_gas_price")?,
        proof: row.try_get("", "proof")?,
        created_at: row.try_get("", "created_at")?,
        updated_at: row.try_get("", "updated_at")?,
        ended_at: row.try_get("", "ended_at")?,
        replacements: row.try_get("", "replacements")?,
        noops: row.try_get("", "noops")?,
        noop_reason: row.try_get("", "noop_reason")?,
        noop_detail: row.try_get("", "noop_detail")?,
        capped_at: row.try_get("", "capped_at")?,
        finalized_at: row.try_get("", "finalized_at")?,
        attempts: row.try_get::<Option<i64>>("", "attempts")?.unwrap_or_default(),
        newest_hash: row.try_get("", "newest_hash")?,
        newest_price: price.zip(row.try_get("", "tip")?),
    })
}

/// Open lineages of one signer, or of all, the oldest first: what is stuck comes first. Served by lineages_open for one lane.
///
/// # Errors
/// See [`Error`].
pub async fn open(db: &Reader, signer: Option<Address>, limit: u32) -> Result<Vec<Lineage>, Error> {
    let all = lineages!(
        "WHERE l.state IN ('allocated', 'signed', 'broadcast', 'replaced') AND $1::bytea IS NULL ORDER BY l.created_at, l.id LIMIT $2"
    );
    let of_one = lineages!(
        "WHERE l.lane_id IN (SELECT id FROM holdfast.lanes WHERE signer = $1::bytea) AND l.state IN ('allocated', 'signed', 'broadcast', 'replaced')
         ORDER BY l.chain_id, l.nonce LIMIT $2"
    );
    let sql = if signer.is_some() { of_one } else { all };
    db.rows("open_transactions", sql, vec![signer.into(), i64::from(limit).into()]).await?.iter().map(lineage).collect()
}

/// The open lineages of one signer's lanes, the lowest nonces of each. Served by lineages_open.
///
/// # Errors
/// See [`Error`].
pub async fn ladder(db: &Reader, signer: Address, per_lane: u32) -> Result<Vec<Lineage>, Error> {
    let sql = lineages!(
        "WHERE l.id IN (SELECT o.id FROM holdfast.lanes n CROSS JOIN LATERAL (
             SELECT x.id FROM holdfast.lineages x WHERE x.lane_id = n.id AND x.state IN ('allocated', 'signed', 'broadcast', 'replaced')
             ORDER BY x.nonce LIMIT $2) o WHERE n.signer = $1) ORDER BY l.chain_id, l.nonce"
    );
    db.rows("ladder", sql, vec![signer.into(), i64::from(per_lane).into()]).await?.iter().map(lineage).collect()
}

/// The newest lineages of one signer by nonce, ended ones too. Served by lineages_one_per_nonce.
///
/// # Errors
/// See [`Error`].
pub async fn newest(db: &Reader, chain_id: i64, signer: Address, limit: u32) -> Result<Vec<Lineage>, Error> {
    let sql = lineages!("WHERE l.chain_id = $1 AND l.signer = $2 AND l.state <> 'abandoned' ORDER BY l.nonce DESC LIMIT $3");
    db.rows("newest_transactions", sql, vec![chain_id.into(), signer.into(), i64::from(limit).into()]).await?.iter().map(lineage).collect()
}

/// Every lineage of a job, newest first.
///
/// # Errors
/// See [`Error`].
pub async fn of_job(db: &Reader, job: JobId) -> Result<Vec<Lineage>, Error> {
    let sql = lineages!("WHERE l.job_id = $1 ORDER BY l.created_at DESC LIMIT 100");
    db.rows("job_transactions", sql, vec![job.into()]).await?.iter().map(lineage).collect()
}

/// The lineages that a UUID names: its own id, or that of its job. Newest first.
///
/// # Errors
/// See [`Error`].
pub async fn by_id(db: &Reader, id: Uuid) -> Result<Vec<Lineage>, Error> {
    let sql = lineages!("WHERE l.id = $1 OR l.job_id = $1 ORDER BY l.created_at DESC LIMIT 100");
    db.rows("transaction", sql, vec![id.into()]).await?.iter().map(lineage).collect()
}

/// The lineage that one of our hashes belongs to.
///
/// # Errors
/// See [`Error`].
pub async fn by_hash(db: &Reader, hash: Hash) -> Result<Option<Lineage>, Error> {
    let sql = lineages!("WHERE l.id = (SELECT lineage_id FROM holdfast.tx_attempts WHERE hash = $1)");
    db.rows("transaction_by_hash", sql, vec![hash.into()]).await?.first().map(lineage).transpose()
}

/// What was signed for a lineage, oldest first.
///
/// # Errors
/// See [`Error`].
pub async fn attempts(db: &Reader, id: LineageId) -> Result<Vec<Attempt>, Error> {
    let sql = "SELECT ordinal, hash, purpose, max_fee_per_gas, max_priority_fee_per_gas, gas_limit, key_id, created_at
               FROM holdfast.tx_attempts WHERE lineage_id = $1 ORDER BY ordinal LIMIT 1000";
    let rows = db.rows("transaction_attempts", sql, vec![id.into()]).await?;
    rows.iter()
        .map(|row| {
            Ok(Attempt {
                ordinal: row.try_get("", "ordinal")?,
                hash: row.try_get("", "hash")?,
                purpose: row.try_get("", "purpose")?,
                max_fee_per_gas: row.try_get("", "max_fee_per_gas")?,
                max_priority_fee_per_gas: row.try_get("", "max_priority_fee_per_gas")?,
                gas_limit: row.try_get("", "gas_limit")?,
                journal_key: row.try_get("", "key_id")?,
                created_at: row.try_get("", "created_at")?,
            })
        })
        .collect()
}
