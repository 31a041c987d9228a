//! What the settling of a lane has the journal do, under the lane's lease: further attempts at a nonce, its end, the undoing of its end.

use super::{Draft, Error, Handle, Priced, is_open};
use crate::chain::{RawTx, SendOutcome};
use crate::domain::fees::TxType;
use crate::domain::transaction::Unpriced;
use crate::fail;
use crate::store::journal::Stored;
use crate::store::settling::{self, EndBlock, Ended, Loss, Open, Replacement, Settled, Superseded, Undone};
use crate::store::{self};
use crate::telemetry::metrics;
use entity::ids::{LaneId, LineageId, WorkerId};
use entity::states::{AttemptPurpose, JobKind, JobState};
use entity::values::{Address, Wei};
use std::collections::HashMap;

/// Gas of a transfer of nothing. Chains that count more than the transfer itself (rollups, a delegated sender) need more of it.
const NOOP_GAS_MIN: i64 = 21_000;
pub const NOOP_GAS_MAX: i64 = 100_000;

impl Handle {
    /// Signs, keeps and sends further attempts, priced at the head `block`; gives the answers to those that were written, in the order of
    /// their nonces.
    ///
    /// # Errors
    /// See [`store::Error`]: nothing was sent. A nonce whose attempt could not be made keeps its older bytes.
    pub async fn replace(&self, lane: LaneId, holder: WorkerId, block: i64, batch: &[Priced]) -> Result<Vec<SendOutcome>, Error> {
        let wanted: HashMap<LineageId, &Priced> = batch.iter().map(|one| (one.lineage, one)).collect();
        let ids: Vec<LineageId> = batch.iter().map(|one| one.lineage).collect();
        let mut stored = store::journal::stored(&self.work.db.reader(), &ids).await?;
        stored.retain(|one| is_open(one.state) && one.bytes.is_some());
        let drafts = stored.iter().filter_map(|one| Some(draft(one, wanted.get(&one.lineage)?))).collect();
        let (mut records, mut raws, mut chain_id) = (Vec::new(), HashMap::new(), 0);
        for (one, sealed) in stored.iter().zip(self.work.sign(drafts).await) {
            let Some(priced) = wanted.get(&one.lineage) else { continue };
            let sealed = match sealed {
                Ok(sealed) => sealed,
                Err(error) => {
                    tracing::error!(event = "replacement_unsigned", lineage = %one.lineage, %error, "the nonce keeps its older bytes");
                    continue;
                }
            };
            chain_id = one.chain_id;
            records.push(Replacement {
                lineage: one.lineage,
                hash: sealed.hash,
                ordinal: one.attempts.saturating_add(1),
                purpose: priced.purpose,
                price: sealed.price,
                gas_limit: priced.gas_limit.unwrap_or_else(|| gas(one, priced.purpose)),
                key_id: sealed.sealed.key_id,
                iv: sealed.sealed.iv,
                ciphertext: sealed.sealed.ciphertext,
                tx_type: sealed.tx_type,
            });
            raws.insert(one.lineage, RawTx { bytes: sealed.raw, hash: sealed.hash });
        }
        if records.is_empty() {
            return Ok(Vec::new());
        }
        fail::point("replacement.signed");
        let written = settling::replace(&self.work.db, lane, holder, block, &records).await?;
        fail::point("replacement.committed");
        let mut sent = Vec::with_capacity(written.len());
        let mut bytes = Vec::with_capacity(written.len());
        // `stored` gave them in the order of their nonces.
        for record in records.iter().filter(|record| written.contains(&record.lineage)) {
            if let Some(raw) = raws.remove(&record.lineage) {
                metrics::TX_REPLACEMENTS.add(1, &[&chain_id.to_string(), record.purpose.as_str()]);
                tracing::info!(
                    event = "tx_replaced", lineage = %record.lineage, purpose = %record.purpose, ordinal = record.ordinal, hash = %record.hash,
                    max_fee_per_gas = %record.price.max_fee_per_gas, max_priority_fee_per_gas = %record.price.max_priority_fee_per_gas, "a dearer attempt at the same nonce"
                );
                sent.push(record.lineage);
                bytes.push(raw);
            }
        }
        let outcomes = self.work.give(chain_id, bytes).await;
        let noted: Vec<_> = sent.iter().copied().zip(outcomes.iter().map(|outcome| outcome.class.as_str())).collect();
        store::journal::resent(&self.work.db, lane, holder, &noted).await?;
        Ok(outcomes)
    }

    /// What these nonces are for.
    ///
    /// # Errors
    /// See [`store::Error`].
    pub async fn calls(&self, lineages: &[LineageId]) -> Result<Vec<Stored>, store::Error> {
        store::journal::stored(&self.work.db.reader(), lineages).await
    }

    /// The open nonces of a lane, lowest first.
    ///
    /// # Errors
    /// See [`store::Error`].
    pub async fn open(&self, lane: LaneId, from: i64, limit: u32) -> Result<Vec<Open>, store::Error> {
        settling::open(&self.work.db.reader(), lane, from, limit).await
    }

    /// Ends lineages by receipts that a majority showed.
    ///
    /// # Errors
    /// See [`store::Error`].
    pub async fn settle(&self, lane: LaneId, holder: WorkerId, batch: &[Settled]) -> Result<Vec<Ended>, store::Error> {
        settling::settle(&self.work.db, lane, holder, batch).await
    }

    /// Ends nonces that strangers used up.
    ///
    /// # Errors
    /// See [`store::Error`].
    pub async fn supersede(
        &self,
        lane: LaneId,
        holder: WorkerId,
        batch: &[Superseded],
    ) -> Result<Vec<(LineageId, JobKind, JobState)>, store::Error> {
        settling::supersede(&self.work.db, lane, holder, batch).await
    }

    /// Wants nonces used up by a no-op, with the words of the refusal.
    ///
    /// # Errors
    /// See [`store::Error`].
    pub async fn give_up(&self, lane: LaneId, holder: WorkerId, batch: &[(LineageId, String)]) -> Result<u64, store::Error> {
        settling::give_up(&self.work.db, lane, holder, batch).await
    }

    /// Notes that nonces stand at their price limit.
    ///
    /// # Errors
    /// See [`store::Error`].
    pub async fn note_capped(&self, lane: LaneId, holder: WorkerId, lineages: &[LineageId]) -> Result<u64, store::Error> {
        settling::note_capped(&self.work.db, lane, holder, lineages).await
    }

    /// The blocks of ends that have to be looked at again.
    ///
    /// # Errors
    /// See [`store::Error`].
    pub async fn end_blocks(&self, lane: LaneId, newest: u32, deep: i64, limit: u32) -> Result<Vec<EndBlock>, store::Error> {
        settling::end_blocks(&self.work.db.reader(), lane, newest, deep, limit).await
    }

    /// The ends in blocks that are no longer canonical, at most `limit` of them.
    ///
    /// # Errors
    /// See [`store::Error`].
    pub async fn ends_in(&self, lane: LaneId, blocks: &[EndBlock], limit: u32) -> Result<Vec<LineageId>, store::Error> {
        settling::ends_in(&self.work.db.reader(), lane, blocks, limit).await
    }

    /// Undoes ends.
    ///
    /// # Errors
    /// See [`store::Error`].
    pub async fn revive(&self, lane: LaneId, holder: WorkerId, orphans: &[LineageId]) -> Result<Undone, store::Error> {
        if orphans.is_empty() {
            return Ok(Undone::default());
        }
        fail::point("revival.decided");
        let revived = settling::revive(&self.work.db, lane, holder, orphans).await;
        fail::point("revival.committed");
        revived
    }

    /// The nonces that strangers used up, while that may still be undone, and the highest one that nothing should undo.
    ///
    /// # Errors
    /// See [`store::Error`].
    pub async fn losses(&self, lane: LaneId, limit: u32) -> Result<Vec<Loss>, store::Error> {
        settling::losses(&self.work.db.reader(), lane, limit).await
    }

    /// Notes that strangers' uses of nonces were seen again deep enough.
    ///
    /// # Errors
    /// See [`store::Error`].
    pub async fn confirm_losses(&self, lane: LaneId, holder: WorkerId, lineages: &[LineageId]) -> Result<u64, store::Error> {
        settling::confirm_losses(&self.work.db, lane, holder, lineages).await
    }

    /// Notes that the ends in these blocks are final, at most `limit` of them.
    ///
    /// # Errors
    /// See [`store::Error`].
    pub async fn finalize(&self, lane: LaneId, holder: WorkerId, blocks: &[EndBlock], limit: u32) -> Result<u64, store::Error> {
        settling::finalize(&self.work.db, lane, holder, blocks, limit).await
    }
}

/// The gas limit of an attempt.
pub(super) fn gas(one: &Stored, purpose: AttemptPurpose) -> i64 {
    match purpose {
        AttemptPurpose::Call | AttemptPurpose::Replacement => one.gas_limit,
        AttemptPurpose::Noop => one.gas_limit.clamp(NOOP_GAS_MIN, NOOP_GAS_MAX),
    }
}

/// What an attempt does: the call, or nothing at all.
pub(super) fn content(one: &Stored, purpose: AttemptPurpose) -> (Address, Wei, Vec<u8>) {
    match purpose {
        AttemptPurpose::Call | AttemptPurpose::Replacement => (one.to, one.value, one.data.clone()),
        AttemptPurpose::Noop => (one.signer, Wei::ZERO, Vec::new()),
    }
}

fn draft(one: &Stored, priced: &Priced) -> Result<Draft, Error> {
    let number = |value: i64| u64::try_from(value).map_err(|_| Error::Sign("a negative number".into()));
    let (to, value, data) = content(one, priced.purpose);
    let gas_limit = number(priced.gas_limit.unwrap_or_else(|| gas(one, priced.purpose)))?;
    let call = Unpriced { chain_id: number(one.chain_id)?, nonce: number(one.nonce)?, gas_limit, to, value, data };
    // Pools refuse a replacement of another type, whatever the chain has come to take meanwhile.
    let tx_type = one.bytes.as_ref().map_or(TxType::Eip1559, |bytes| bytes.tx_type);
    let price = priced.price.shaped(tx_type);
    Ok(Draft { lineage: one.lineage, signer: one.signer, transaction: call.priced(tx_type, price), price })
}
