//! The journal: encrypted signed bytes, and the notes of giving them away. The TxJournal actor is the only writer.

use super::arrays::{array, words};
use super::{Db, Error, Reader};
use crate::domain::fees::{Price, TxType};
use crate::domain::{job, lineage};
use entity::ids::{ExecutionToken, JobId, LaneId, LineageId, WorkerId};
use entity::states::{AttemptPurpose, LineageState, NoopReason};
use entity::values::{Address, Hash, Wei};
use sea_orm::QueryResult;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Signed bytes as they are kept.
#[derive(Clone, Debug)]
pub struct Record {
    pub lineage: LineageId,
    pub job: JobId,
    pub token: ExecutionToken,
    pub hash: Hash,
    pub purpose: AttemptPurpose,
    pub price: Price,
    pub tx_type: TxType,
    pub gas_limit: i64,
    pub key_id: String,
    pub iv: [u8; 12],
    pub ciphertext: Vec<u8>,
}

/// Commits the bytes of a batch; says which lineages were written. The others were fenced or signed by another replica.
///
/// # Errors
/// See [`Error`]; nothing may be sent then.
pub async fn record(db: &Db, batch: &[Record]) -> Result<HashSet<LineageId>, Error> {
    let values = vec![
        array(batch.iter().map(|r| r.lineage.0)),
        array(batch.iter().map(|r| r.job.0)),
        array(batch.iter().map(|r| r.token.0)),
        array(batch.iter().map(|r| r.hash)),
        array(batch.iter().map(|r| r.price.max_fee_per_gas)),
        array(batch.iter().map(|r| r.price.max_priority_fee_per_gas)),
        array(batch.iter().map(|r| r.gas_limit)),
        array(batch.iter().map(|r| r.key_id.clone())),
        array(batch.iter().map(|r| r.iv.to_vec())),
        array(batch.iter().map(|r| r.ciphertext.clone())),
        words(lineage::sources(lineage::Event::Journaled, LineageState::Signed)),
        array(batch.iter().map(|r| r.purpose.to_string())),
        array(batch.iter().map(|r| r.tx_type.code())),
    ];
    let rows = db.rows("record_attempts", include_str!("sql/record_attempts.sql"), values).await?;
    rows.iter().map(|row| Ok(row.try_get("", "lineage_id")?)).collect()
}

/// Bytes that an endpoint was given by an execution.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub lineage: LineageId,
    pub job: JobId,
    pub token: ExecutionToken,
    /// The class of the answer.
    pub answer: &'static str,
}

pub(super) fn sendable() -> Vec<LineageState> {
    LineageState::all().into_iter().filter(|state| lineage::next(*state, lineage::Event::Sent).is_ok()).collect()
}

/// Ends the executions of a batch as submitted; gives the time since acceptance of those that were written.
///
/// # Errors
/// See [`Error`]; the bytes are on their way whatever this says, and the settling of the lane will notice.
pub async fn sent(db: &Db, batch: &[Sent]) -> Result<HashMap<ExecutionToken, Duration>, Error> {
    let arrow = job::arrow(job::Event::Sent).map_err(|e| Error::Answer(e.to_string()))?;
    let values = vec![
        array(batch.iter().map(|s| s.lineage.0)),
        array(batch.iter().map(|s| s.job.0)),
        array(batch.iter().map(|s| s.token.0)),
        array(batch.iter().map(|s| s.answer.to_owned())),
        words(arrow.from),
        words(sendable()),
        arrow.to.to_string().into(),
    ];
    let rows = db.rows("sent", include_str!("sql/sent.sql"), values).await?;
    rows.iter()
        .map(|row| Ok((row.try_get("", "token")?, Duration::try_from_secs_f64(row.try_get("", "age_seconds")?).unwrap_or_default())))
        .collect()
}

/// Wants an unsigned nonce used up by a no-op, for the execution that holds the token: its call reverts and it is not the tail.
///
/// # Errors
/// See [`Error`].
pub async fn refuse(db: &Db, lineage: LineageId, token: ExecutionToken, reason: &str) -> Result<bool, Error> {
    let sql = "UPDATE holdfast.lineages l SET noop_reason = 'refused', noop_detail = left($3, 4000), updated_at = now() FROM holdfast.jobs j
               WHERE l.id = $1 AND j.id = l.job_id AND j.state = 'processing' AND j.execution_token = $2 AND l.noop_reason IS NULL AND l.state = ANY ($4::text[])";
    let unsigned = lineage::sources(lineage::Event::Journaled, LineageState::Signed);
    Ok(db.execute("refuse_unsigned", sql, vec![lineage.into(), token.into(), reason.into(), words(unsigned)]).await? == 1)
}

/// Notes that the settling of a lane sent bytes again.
///
/// # Errors
/// See [`Error`].
pub async fn resent(db: &Db, lane: LaneId, holder: WorkerId, batch: &[(LineageId, &'static str)]) -> Result<u64, Error> {
    let values = vec![
        array(batch.iter().map(|(id, _)| id.0)),
        array(batch.iter().map(|(_, answer)| (*answer).to_owned())),
        lane.into(),
        holder.into(),
        words(sendable()),
    ];
    db.execute("resent", include_str!("sql/resent.sql"), values).await
}

/// A lineage that can be signed or sent: what the vault needs to open its bytes, or the call to sign.
#[derive(Clone, Debug)]
pub struct Stored {
    pub lineage: LineageId,
    pub job: JobId,
    pub lane: LaneId,
    pub state: LineageState,
    pub chain_id: i64,
    pub signer: Address,
    pub nonce: i64,
    pub to: Address,
    pub value: Wei,
    pub data: Vec<u8>,
    /// Of the newest attempt of the call.
    pub gas_limit: i64,
    /// The caller gave it: nobody changes it.
    pub gas_given: bool,
    pub noop: Option<NoopReason>,
    /// Signed so far.
    pub attempts: i32,
    /// The newest attempt, if one was signed: the dearest, for prices only rise.
    pub bytes: Option<StoredBytes>,
}

#[derive(Clone, Debug)]
pub struct StoredBytes {
    pub hash: Hash,
    pub key_id: String,
    pub iv: [u8; 12],
    pub ciphertext: Vec<u8>,
    pub tx_type: TxType,
}

/// The calls and newest bytes of lineages, in the order of their nonces.
///
/// # Errors
/// See [`Error`].
pub async fn stored(db: &Reader, lineages: &[LineageId]) -> Result<Vec<Stored>, Error> {
    let sql = "SELECT l.id, l.job_id, l.lane_id, l.state, l.chain_id, l.signer, l.nonce, l.to_address, l.value, l.data, coalesce(g.gas_limit, l.gas_limit) AS gas_limit, l.noop_reason, j.gas_limit IS NOT NULL AS gas_given, a.ordinal, a.hash, a.key_id, a.iv, a.ciphertext, a.tx_type
               FROM holdfast.lineages l
               LEFT JOIN LATERAL (SELECT ordinal, hash, key_id, iv, ciphertext, tx_type FROM holdfast.tx_attempts WHERE lineage_id = l.id ORDER BY ordinal DESC LIMIT 1) a ON true
               LEFT JOIN LATERAL (SELECT gas_limit FROM holdfast.tx_attempts WHERE lineage_id = l.id AND purpose <> 'noop' ORDER BY ordinal DESC LIMIT 1) g ON true
               JOIN holdfast.jobs j ON j.id = l.job_id
               WHERE l.id = ANY ($1::uuid[]) ORDER BY l.lane_id, l.nonce";
    let rows = db.rows("stored_bytes", sql, vec![array(lineages.iter().map(|id| id.0))]).await?;
    rows.iter().map(stored_row).collect()
}

fn stored_row(row: &QueryResult) -> Result<Stored, Error> {
    let hash: Option<Hash> = row.try_get("", "hash")?;
    let bytes = match hash {
        None => None,
        Some(hash) => Some(StoredBytes {
            hash,
            key_id: row.try_get("", "key_id")?,
            iv: row.try_get::<Vec<u8>>("", "iv")?.try_into().map_err(|_| Error::Answer("an iv of a wrong length".into()))?,
            ciphertext: row.try_get("", "ciphertext")?,
            tx_type: TxType::of(row.try_get("", "tx_type")?).ok_or_else(|| Error::Answer("an unknown type of transaction".into()))?,
        }),
    };
    Ok(Stored {
        lineage: row.try_get("", "id")?,
        job: row.try_get("", "job_id")?,
        lane: row.try_get("", "lane_id")?,
        state: row.try_get("", "state")?,
        chain_id: row.try_get("", "chain_id")?,
        signer: row.try_get("", "signer")?,
        nonce: row.try_get("", "nonce")?,
        to: row.try_get("", "to_address")?,
        value: row.try_get("", "value")?,
        data: row.try_get("", "data")?,
        gas_limit: row.try_get("", "gas_limit")?,
        gas_given: row.try_get("", "gas_given")?,
        noop: row.try_get("", "noop_reason")?,
        attempts: row.try_get::<Option<i32>>("", "ordinal")?.unwrap_or_default(),
        bytes,
    })
}
