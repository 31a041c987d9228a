//! What signers and journal keys were used for, the proofs that they may go, and the hand-over of a place in a pool. Called by `operator`.

use super::arrays::words;
use super::audited::Operator;
use super::drains::open;
use super::{Db, Error, Reader};
use chrono::{DateTime, Utc};
use entity::ids::LineageId;
use entity::states::LineageState;
use entity::values::{Address, Hash};
use sea_orm::QueryResult;
use std::time::Duration;
use uuid::Uuid;

/// What a proof is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    Signer(Address),
    JournalKey(String),
}

impl Subject {
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Signer(_) => "signer",
            Self::JournalKey(_) => "journal_key",
        }
    }

    /// The name of it.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Signer(address) => address.to_string(),
            Self::JournalKey(id) => id.clone(),
        }
    }
}

/// A lineage that needed it.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    pub lineage: LineageId,
    pub chain_id: i64,
    pub signer: Address,
    pub nonce: i64,
    pub state: LineageState,
    pub block: Option<(i64, Hash)>,
    /// Since it was last signed, sent or ended.
    pub unused_for: Duration,
}

fn used(row: &QueryResult) -> Result<Used, Error> {
    let (number, hash): (Option<i64>, Option<Hash>) = (row.try_get("", "block_number")?, row.try_get("", "block_hash")?);
    Ok(Used {
        lineage: row.try_get("", "id")?,
        chain_id: row.try_get("", "chain_id")?,
        signer: row.try_get("", "signer")?,
        nonce: row.try_get("", "nonce")?,
        state: row.try_get("", "state")?,
        block: number.zip(hash),
        unused_for: Duration::try_from_secs_f64(row.try_get("", "unused_seconds")?).unwrap_or_default(),
    })
}

/// Where a page ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct After {
    lineage: Uuid,
    chain_id: i64,
    nonce: Option<i64>,
}

impl After {
    /// Behind this one.
    #[must_use]
    pub const fn of(last: &Used) -> Self {
        Self { lineage: last.lineage.0, chain_id: last.chain_id, nonce: Some(last.nonce) }
    }
}

/// A page of the lineages that needed it, at most `limit`; what was abandoned was never signed and is left out.
///
/// # Errors
/// See [`Error`].
pub async fn uses(db: &Reader, of: &Subject, after: After, limit: u32) -> Result<Vec<Used>, Error> {
    // Each is one range of an index: tx_attempts_by_key, and lineages_one_per_nonce for each chain of the signer.
    let by_key = "SELECT l.id, l.chain_id, l.signer, l.nonce, l.state, l.block_number, l.block_hash,
                         extract(epoch FROM now() - greatest(a.last, l.last_sent_at, l.ended_at))::double precision AS unused_seconds
                  FROM (SELECT lineage_id, max(created_at) AS last FROM holdfast.tx_attempts WHERE key_id = $1 AND lineage_id > $2
                        GROUP BY lineage_id ORDER BY lineage_id LIMIT $3) a
                  JOIN holdfast.lineages l ON l.id = a.lineage_id ORDER BY l.id";
    let by_signer = "SELECT l.id, l.chain_id, l.signer, l.nonce, l.state, l.block_number, l.block_hash,
                            extract(epoch FROM now() - greatest(l.created_at, l.last_sent_at, l.ended_at))::double precision AS unused_seconds
                     FROM (SELECT DISTINCT chain_id FROM holdfast.lanes WHERE signer = $1 AND chain_id >= $2) c
                     CROSS JOIN LATERAL (SELECT * FROM holdfast.lineages o WHERE o.chain_id = c.chain_id AND o.signer = $1 AND o.state <> 'abandoned'
                        AND (o.chain_id > $2 OR o.nonce > $3) ORDER BY o.nonce LIMIT $4) l
                     ORDER BY l.chain_id, l.nonce LIMIT $4";
    let limit = i64::from(limit);
    let rows = match of {
        Subject::JournalKey(id) => db.rows("uses_of_key", by_key, vec![id.as_str().into(), after.lineage.into(), limit.into()]).await?,
        Subject::Signer(address) => {
            let values = vec![(*address).into(), after.chain_id.into(), after.nonce.unwrap_or(-1).into(), limit.into()];
            db.rows("uses_of_signer", by_signer, values).await?
        }
    };
    rows.iter().map(used).collect()
}

/// Whether there ever was such a signer or key.
///
/// # Errors
/// See [`Error`].
pub async fn is_known(db: &Reader, of: &Subject) -> Result<bool, Error> {
    let (sql, value) = match of {
        Subject::Signer(address) => ("SELECT EXISTS (SELECT 1 FROM holdfast.signers WHERE address = $1) AS known", (*address).into()),
        Subject::JournalKey(id) => (
            "SELECT EXISTS (SELECT 1 FROM holdfast.journal_keys WHERE id = $1) OR EXISTS (SELECT 1 FROM holdfast.tx_attempts WHERE key_id = $1) AS known",
            id.as_str().into(),
        ),
    };
    let rows = db.rows("is_known", sql, vec![value]).await?;
    rows.first().map_or(Ok(false), |row| Ok(row.try_get("", "known")?))
}

/// Keeps a proof, passed or not, and writes down who asked for it.
///
/// # Errors
/// See [`Error`].
pub async fn keep(db: &Db, of: &Subject, passed: bool, proof: &str, operator: Operator<'_>) -> Result<(i64, DateTime<Utc>), Error> {
    let sql = "WITH kept AS (
                   INSERT INTO holdfast.retirement_proofs (kind, subject, passed, proof, operator_id) VALUES ($1, $2, $3, $4::jsonb, $5) RETURNING id, at
               ), audit AS (
                   INSERT INTO holdfast.operator_actions (operator_id, action, target, reason, after)
                   SELECT $5, $6, $2, $7, CASE WHEN $3 THEN 'proven, proof ' ELSE 'not proven, proof ' END || id FROM kept
               )
               SELECT id, at FROM kept";
    let action = match of {
        Subject::Signer(_) => "signers.retire_check",
        Subject::JournalKey(_) => "journal_keys.retire_check",
    };
    let values =
        vec![of.kind().into(), of.name().into(), passed.into(), proof.into(), operator.id.into(), action.into(), operator.reason.into()];
    let rows = db.rows("keep_proof", sql, values).await?;
    let row = rows.first().ok_or_else(|| Error::Answer("no proof was kept".into()))?;
    Ok((row.try_get("", "id")?, row.try_get("", "at")?))
}

/// A place in a pool, from one signer to another.
#[derive(Clone, Copy, Debug)]
pub struct HandOver<'a> {
    pub chain_id: i64,
    pub pool: &'a str,
    pub old: Address,
    pub new: Address,
    /// The fence of the new lane, where there is none yet: what a majority shows as used up.
    pub fence: i64,
    pub width: u32,
    /// Older proofs count for nothing.
    pub proof_age: Duration,
    pub stale: Duration,
    /// The new signer need not be held by a live process yet.
    pub unloaded: bool,
}

/// How a hand-over ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedOver {
    /// The gate that refused; None: it is done.
    pub gate: Option<String>,
    pub proof: Option<i64>,
    /// Live processes that hold the new signer.
    pub workers: i64,
    /// The new lane was made now; otherwise it was there.
    pub made: bool,
}

/// Hands a place over, or does nothing at all.
///
/// # Errors
/// See [`Error`].
pub async fn hand_over(db: &Db, one: &HandOver<'_>, operator: Operator<'_>) -> Result<HandedOver, Error> {
    let ms = |length: Duration| i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
    let values = vec![
        one.chain_id.into(),
        one.pool.into(),
        one.old.into(),
        one.new.into(),
        one.fence.into(),
        i32::try_from(one.width).unwrap_or(i32::MAX).into(),
        operator.id.into(),
        operator.reason.into(),
        ms(one.proof_age).into(),
        ms(one.stale).into(),
        one.unloaded.into(),
        words(open()),
    ];
    let rows = db.rows("rotate_pool", include_str!("sql/rotate_pool.sql"), values).await?;
    let row = rows.first().ok_or_else(|| Error::Answer("a hand-over without a verdict".into()))?;
    Ok(HandedOver {
        gate: row.try_get("", "gate")?,
        proof: row.try_get("", "proof")?,
        workers: row.try_get("", "workers")?,
        made: row.try_get("", "made")?,
    })
}
