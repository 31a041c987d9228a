//! The journal: encrypted signed bytes, and the state of the lineages they belong to. The TxJournal actor is the only writer.

use super::arrays::{array, words};
use super::{Db, Error, Reader};
use crate::domain::fees::Price;
use crate::domain::{job, lineage};
use entity::ids::{ExecutionToken, JobId, LaneId, LineageId, WorkerId};
use entity::states::{JobKind, JobState, LineageState};
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
    pub price: Price,
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

fn sendable() -> Vec<LineageState> {
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

/// An open nonce of a lane.
#[derive(Clone, Debug)]
pub struct Open {
    pub lineage: LineageId,
    pub job: JobId,
    pub nonce: i64,
    pub state: LineageState,
    pub sends: i32,
    pub age: Duration,
    pub since_sent: Option<Duration>,
    /// Of every attempt, oldest first; empty while unsigned.
    pub hashes: Vec<Hash>,
}

/// The open nonces of a lane from `from` on, lowest first.
///
/// # Errors
/// See [`Error`].
pub async fn open(db: &Reader, lane: LaneId, from: i64, limit: u32) -> Result<Vec<Open>, Error> {
    let values = vec![lane.into(), from.into(), i64::from(limit).into()];
    let rows = db.rows("open_lineages", include_str!("sql/open_lineages.sql"), values).await?;
    rows.iter()
        .map(|row| {
            let since_sent: Option<f64> = row.try_get("", "since_sent_seconds")?;
            let hashes: Vec<Vec<u8>> = row.try_get("", "hashes")?;
            Ok(Open {
                lineage: row.try_get("", "id")?,
                job: row.try_get("", "job_id")?,
                nonce: row.try_get("", "nonce")?,
                state: row.try_get("", "state")?,
                sends: row.try_get("", "sends")?,
                age: Duration::try_from_secs_f64(row.try_get("", "age_seconds")?).unwrap_or_default(),
                since_sent: since_sent.map(|s| Duration::try_from_secs_f64(s).unwrap_or_default()),
                hashes: hashes.into_iter().filter_map(|hash| hash.try_into().ok().map(Hash)).collect(),
            })
        })
        .collect()
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
    pub gas_limit: i64,
    /// The newest attempt, if one was signed.
    pub bytes: Option<StoredBytes>,
}

#[derive(Clone, Debug)]
pub struct StoredBytes {
    pub hash: Hash,
    pub key_id: String,
    pub iv: [u8; 12],
    pub ciphertext: Vec<u8>,
}

/// The calls and newest bytes of lineages, in the order of their nonces.
///
/// # Errors
/// See [`Error`].
pub async fn stored(db: &Reader, lineages: &[LineageId]) -> Result<Vec<Stored>, Error> {
    let sql = "SELECT l.id, l.job_id, l.lane_id, l.state, l.chain_id, l.signer, l.nonce, l.to_address, l.value, l.data, l.gas_limit, a.hash, a.key_id, a.iv, a.ciphertext
               FROM holdfast.lineages l
               LEFT JOIN LATERAL (SELECT hash, key_id, iv, ciphertext FROM holdfast.tx_attempts WHERE lineage_id = l.id ORDER BY ordinal DESC LIMIT 1) a ON true
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
        bytes,
    })
}

/// A receipt that a majority showed at TX_CONFIRMATIONS, and the proof of it as JSON text.
#[derive(Clone, Debug)]
pub struct Settled {
    pub lineage: LineageId,
    pub hash: Hash,
    pub succeeded: bool,
    pub block_number: i64,
    pub block_hash: Hash,
    pub gas_used: i64,
    pub gas_price: Wei,
    pub proof: String,
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
    let arrow = job::arrow(job::Event::ReceiptFinal { succeeded: true }).map_err(|e| Error::Answer(e.to_string()))?;
    let values = vec![
        array(batch.iter().map(|s| s.lineage.0)),
        array(batch.iter().map(|s| s.hash)),
        array(batch.iter().map(|s| s.succeeded)),
        array(batch.iter().map(|s| s.block_number)),
        array(batch.iter().map(|s| s.block_hash)),
        array(batch.iter().map(|s| s.gas_used)),
        array(batch.iter().map(|s| s.gas_price)),
        array(batch.iter().map(|s| s.proof.clone())),
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
                since_sent: Duration::try_from_secs_f64(row.try_get("", "since_sent_seconds")?).unwrap_or_default(),
            })
        })
        .collect()
}
