//! Nonces and what was signed for them, as operators see them. Metadata only: there is no way to the bytes from here.

use super::{Desk, Error, List, seconds};
use crate::store::Reader;
use crate::store::transactions::{self as rows, Attempt, Lineage};
use chrono::{DateTime, Utc};
use entity::ids::{JobId, LineageId};
use entity::states::{AttemptPurpose, LineageState, NoopReason};
use entity::values::{Address, Hash, Wei};
use serde::Serialize;
use std::time::Duration;
use uuid::Uuid;

/// One use of one nonce.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Transaction {
    pub id: LineageId,
    pub job: JobId,
    pub chain_id: i64,
    pub signer: Address,
    pub nonce: i64,
    pub state: LineageState,
    /// The mined one, otherwise the newest.
    pub hash: Option<Hash>,
    pub to: Address,
    pub value: Wei,
    pub gas_limit: i64,
    pub max_fee_per_gas: Option<Wei>,
    pub max_priority_fee_per_gas: Option<Wei>,
    /// Signed so far.
    pub attempts: i64,
    pub sends: i32,
    pub last_sent_at: Option<DateTime<Utc>>,
    pub last_answer: Option<String>,
    pub block: Option<Block>,
    pub gas_used: Option<i64>,
    pub effective_gas_price: Option<Wei>,
    pub created_at: DateTime<Utc>,
    pub ended_at: Option<DateTime<Utc>>,
    /// Attempts at the call after its first, and at the no-op.
    pub replacements: i32,
    pub noops: i32,
    /// Why the nonce is to be used up by a transfer of nothing, and the words of a refusal.
    pub noop_reason: Option<NoopReason>,
    pub noop_detail: Option<String>,
    /// Since when it stands at its price limit.
    pub capped_at: Option<DateTime<Utc>>,
    /// When its end was seen TX_REORG_LOOKBACK_BLOCKS deep.
    pub finalized_at: Option<DateTime<Utc>>,
    /// Since it got its nonce, or from then until it ended.
    pub age_seconds: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Block {
    pub number: i64,
    pub hash: Hash,
}

/// Signed bytes, without the bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Signed {
    pub ordinal: i32,
    pub hash: Hash,
    pub purpose: AttemptPurpose,
    pub max_fee_per_gas: Wei,
    pub max_priority_fee_per_gas: Wei,
    pub gas_limit: i64,
    pub journal_key: String,
    pub created_at: DateTime<Utc>,
}

/// A transaction, everything that was signed for it, and the proof of its end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Detail {
    #[serde(flatten)]
    pub transaction: Transaction,
    pub signed: Vec<Signed>,
    pub proof: Option<serde_json::Value>,
}

impl Transaction {
    pub(super) fn at(now: DateTime<Utc>, row: Lineage) -> Self {
        Self {
            id: row.id,
            job: row.job,
            chain_id: row.chain_id,
            signer: row.signer,
            nonce: row.nonce,
            state: row.state,
            hash: row.mined_hash.or(row.newest_hash),
            to: row.to,
            value: row.value,
            gas_limit: row.gas_limit,
            max_fee_per_gas: row.newest_price.map(|(cap, _)| cap),
            max_priority_fee_per_gas: row.newest_price.map(|(_, tip)| tip),
            attempts: row.attempts,
            sends: row.sends,
            last_sent_at: row.last_sent_at,
            last_answer: row.last_answer,
            block: row.block.map(|(number, hash)| Block { number, hash }),
            gas_used: row.gas_used,
            effective_gas_price: row.effective_gas_price,
            created_at: row.created_at,
            ended_at: row.ended_at,
            replacements: row.replacements,
            noops: row.noops,
            noop_reason: row.noop_reason,
            noop_detail: row.noop_detail,
            capped_at: row.capped_at,
            finalized_at: row.finalized_at,
            age_seconds: since(row.created_at, row.ended_at.unwrap_or(now)),
        }
    }
}

/// Whole seconds from one time to another, none when they are the other way round.
pub(super) fn since(from: DateTime<Utc>, to: DateTime<Utc>) -> u64 {
    seconds((to - from).to_std().unwrap_or(Duration::ZERO))
}

fn signed(row: Attempt) -> Signed {
    Signed {
        ordinal: row.ordinal,
        hash: row.hash,
        purpose: row.purpose,
        max_fee_per_gas: row.max_fee_per_gas,
        max_priority_fee_per_gas: row.max_priority_fee_per_gas,
        gas_limit: row.gas_limit,
        journal_key: row.journal_key,
        created_at: row.created_at,
    }
}

/// Which transactions are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter {
    pub signer: Option<Address>,
    /// With a signer and a chain: the newest nonces, ended ones too. Otherwise open ones only.
    pub ended_on: Option<i64>,
    pub limit: u32,
}

/// Open transactions, the oldest first; or the newest nonces of a signer on a chain.
///
/// # Errors
/// See [`Error`].
pub async fn list(desk: &Desk, filter: Filter) -> Result<List<Transaction>, Error> {
    let rows = match (filter.signer, filter.ended_on) {
        (Some(signer), Some(chain_id)) => rows::newest(&desk.reader(), chain_id, signer, filter.limit).await?,
        (signer, _) => rows::open(&desk.reader(), signer, filter.limit).await?,
    };
    let now = desk.clock.now();
    Ok(List::whole(rows.into_iter().map(|row| Transaction::at(now, row)).collect()))
}

/// The rows that an id names; at least one.
pub(super) async fn named(db: &Reader, id: &str) -> Result<Vec<Lineage>, Error> {
    let found: Vec<_> = match (id.parse::<Hash>(), Uuid::try_parse(id)) {
        (Ok(hash), _) => rows::by_hash(db, hash).await?.into_iter().collect(),
        (_, Ok(id)) => rows::by_id(db, id).await?,
        _ => return Err(Error::Invalid("transaction", "must be its id, the id of its job, or a hash".into())),
    };
    if found.is_empty() {
        return Err(Error::NotFound { what: "transaction", id: id.to_owned() });
    }
    Ok(found)
}

/// The transactions that an id names: a transaction's own, that of its job, or a hash.
///
/// # Errors
/// `Invalid` when it is none of these, `NotFound` when there is none.
pub async fn show(desk: &Desk, id: &str) -> Result<List<Detail>, Error> {
    let db = desk.reader();
    let found = named(&db, id).await?;
    let now = desk.clock.now();
    let mut items = Vec::with_capacity(found.len());
    for row in found {
        let signed = rows::attempts(&db, row.id).await?.into_iter().map(signed).collect();
        let proof = row.proof.clone();
        items.push(Detail { transaction: Transaction::at(now, row), signed, proof });
    }
    Ok(List::whole(items))
}
