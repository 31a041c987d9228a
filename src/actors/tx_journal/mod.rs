//! TxJournal: signed bytes and the state of lineages. Signs on CPU threads, encrypts, and commits all attempts that wait in one
//! statement; gives journaled bytes, and nothing else, to the chain. The only caller of `store::journal`'s writes.

mod send;

pub use send::Submitted;

use super::rpc_quorum;
use super::{Door, DoorError, Fold, Stage};
use crate::domain::fees::{self, Price, Quote};
use crate::domain::transaction::Eip1559;
use crate::fail;
use crate::signer::{self, Binding, Keyring, Sealed, Vault};
use crate::store::journal::{Ended, Open, Record, Settled, Stored};
use crate::store::{self, Db};
use crate::telemetry::metrics;
use entity::ids::{ExecutionToken, JobId, LaneId, LineageId, WorkerId};
use entity::states::LineageState;
use entity::values::{Address, Hash, Wei};
use futures::FutureExt;
use std::sync::Arc;
use std::time::Instant;

/// Most attempts in one commit.
const BATCH: usize = 256;
const CAPACITY: usize = 8_192;
const IN_FLIGHT: usize = 2;

/// A reserved nonce that waits for its signature.
#[derive(Clone, Debug)]
pub struct ToSign {
    pub lineage: LineageId,
    pub job: JobId,
    pub token: ExecutionToken,
    pub chain_id: i64,
    pub signer: Address,
    pub nonce: i64,
    pub to: Address,
    pub value: Wei,
    pub data: Vec<u8>,
    pub gas_limit: i64,
}

/// Bytes that are committed and may be sent.
#[derive(Clone, Debug)]
pub struct Journaled {
    pub lineage: LineageId,
    pub job: JobId,
    pub token: ExecutionToken,
    pub chain_id: i64,
    pub nonce: i64,
    pub hash: Hash,
    pub raw: Vec<u8>,
}

/// Why a nonce has no bytes yet. The nonce stays with its job; the next execution goes on from here.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("the key of signer {0} is not loaded in this process")]
    NoKey(Address),
    #[error("chain {0} is not configured in this process")]
    NoChain(i64),
    #[error("the market of chain {0} is not known yet")]
    NoMarket(i64),
    #[error(transparent)]
    Price(#[from] fees::OverLimit),
    #[error("signing failed: {0}")]
    Sign(String),
    #[error("the journal failed: {0}")]
    Vault(String),
    #[error("another execution has the job")]
    Fenced,
    #[error("the journal is busy or its answer was lost")]
    Lost,
    #[error(transparent)]
    Store(#[from] store::Error),
}

type Answer = Result<Journaled, Error>;

/// Everything the journal works with.
pub(super) struct Work {
    db: Db,
    keys: Keyring,
    vault: Vault,
    chains: rpc_quorum::Handle,
}

#[derive(Clone)]
pub struct Handle {
    work: Arc<Work>,
    door: Door<ToSign, Answer>,
}

/// Starts the actor.
#[must_use]
pub fn start(stage: &Stage, db: Db, keys: Keyring, vault: Vault, chains: rpc_quorum::Handle) -> Handle {
    let work = Arc::new(Work { db, keys, vault, chains });
    let flusher = work.clone();
    let flush = move |batch: Vec<ToSign>| {
        let work = flusher.clone();
        async move { work.commit(batch).await }.boxed()
    };
    Handle { door: stage.fold(Fold::new("tx_journal", BATCH, IN_FLIGHT, Arc::new(flush)), CAPACITY), work }
}

impl Handle {
    /// Signs, encrypts and commits; answers in the order of the input.
    pub async fn commit(&self, batch: Vec<ToSign>) -> Vec<Answer> {
        let count = batch.len();
        match self.door.ask_many_waiting(batch).await {
            Ok(answers) => answers,
            Err(DoorError::Full | DoorError::Lost | DoorError::Closed) => (0..count).map(|_| Err(Error::Lost)).collect(),
        }
    }

    /// The signers whose keys this process holds.
    #[must_use]
    pub fn loaded(&self) -> Vec<Address> {
        self.work.keys.addresses().copied().collect()
    }

    /// Ends lineages by receipts that a majority showed; for the settling of a lane, under its lease.
    ///
    /// # Errors
    /// See [`store::Error`].
    pub async fn settle(&self, lane: LaneId, holder: WorkerId, batch: &[Settled]) -> Result<Vec<Ended>, store::Error> {
        store::journal::settle(&self.work.db, lane, holder, batch).await
    }

    /// The open nonces of a lane, lowest first.
    ///
    /// # Errors
    /// See [`store::Error`].
    pub async fn open(&self, lane: LaneId, from: i64, limit: u32) -> Result<Vec<Open>, store::Error> {
        store::journal::open(&self.work.db.reader(), lane, from, limit).await
    }
}

impl Work {
    fn price(&self, one: &ToSign) -> Result<Price, Error> {
        let desk = self.chains.desk(one.chain_id).ok_or(Error::NoChain(one.chain_id))?;
        let view = desk.view().ok_or(Error::NoMarket(one.chain_id))?;
        let quote = Quote { base_fee: view.fees.base_fee, priority_fee: view.fees.priority_fee };
        Ok(fees::price(quote, desk.settings.min_priority_fee, desk.settings.max_fee_per_gas)?)
    }

    fn unsigned(&self, one: &ToSign) -> Result<(Eip1559, Price), Error> {
        let price = self.price(one)?;
        let number = |value: i64| u64::try_from(value).map_err(|_| Error::Sign("a negative number".into()));
        let transaction = Eip1559 {
            chain_id: number(one.chain_id)?,
            nonce: number(one.nonce)?,
            max_priority_fee_per_gas: price.max_priority_fee_per_gas,
            max_fee_per_gas: price.max_fee_per_gas,
            gas_limit: number(one.gas_limit)?,
            to: one.to,
            value: one.value,
            data: one.data.clone(),
        };
        Ok((transaction, price))
    }

    async fn commit(&self, batch: Vec<ToSign>) -> Vec<Answer> {
        let began = Instant::now();
        let mut answers: Vec<Option<Answer>> = Vec::new();
        let (mut places, mut unsigned, mut digests) = (Vec::new(), Vec::new(), Vec::new());
        for (place, one) in batch.iter().enumerate() {
            answers.push(None);
            let Some(key) = self.keys.signer(&one.signer) else {
                answers[place] = Some(Err(Error::NoKey(one.signer)));
                continue;
            };
            match self.unsigned(one) {
                Ok((transaction, price)) => {
                    digests.push((key.clone(), transaction.sighash()));
                    unsigned.push((transaction, price));
                    places.push(place);
                }
                Err(error) => answers[place] = Some(Err(error)),
            }
        }
        let signatures = signer::sign_many(digests).await;
        let mut records = Vec::with_capacity(places.len());
        for ((place, (transaction, price)), signature) in places.iter().zip(unsigned).zip(signatures) {
            match self.seal(&batch[*place], &transaction, price, signature) {
                Ok((record, journaled)) => {
                    records.push(record);
                    answers[*place] = Some(Ok(journaled));
                }
                Err(error) => answers[*place] = Some(Err(error)),
            }
        }
        if let Some(one) = batch.first() {
            metrics::TX_SIGN_SECONDS.record(began.elapsed().as_secs_f64(), &[&one.chain_id.to_string()]);
        }
        fail::point("journal.signed");
        let written =
            if records.is_empty() { Ok(std::collections::HashSet::new()) } else { store::journal::record(&self.db, &records).await };
        fail::point("journal.committed");
        let answer = |answer: Option<Answer>| match (answer.unwrap_or(Err(Error::Lost)), &written) {
            (Ok(journaled), Ok(written)) if written.contains(&journaled.lineage) => Ok(journaled),
            (Ok(_), Ok(_)) => {
                metrics::EXECUTION_FENCED.add(1, &["journal"]);
                Err(Error::Fenced)
            }
            (Ok(_), Err(error)) => Err(Error::Store(error.clone())),
            (Err(error), _) => Err(error),
        };
        answers.into_iter().map(answer).collect()
    }

    fn seal(
        &self,
        one: &ToSign,
        transaction: &Eip1559,
        price: Price,
        signature: Result<crate::domain::transaction::Signature, signer::Error>,
    ) -> Result<(Record, Journaled), Error> {
        let signed = transaction.signed(&signature.map_err(|e| Error::Sign(e.to_string()))?);
        let binding = Binding {
            lineage: one.lineage,
            chain_id: transaction.chain_id,
            signer: one.signer,
            nonce: transaction.nonce,
            hash: signed.hash,
        };
        let sealed = self.vault.seal(&binding, &signed.raw).map_err(|e| Error::Vault(e.to_string()))?;
        let record = Record {
            lineage: one.lineage,
            job: one.job,
            token: one.token,
            hash: signed.hash,
            price,
            gas_limit: one.gas_limit,
            key_id: sealed.key_id,
            iv: sealed.iv,
            ciphertext: sealed.ciphertext,
        };
        let journaled = Journaled {
            lineage: one.lineage,
            job: one.job,
            token: one.token,
            chain_id: one.chain_id,
            nonce: one.nonce,
            hash: signed.hash,
            raw: signed.raw,
        };
        Ok((record, journaled))
    }

    /// The bytes of a journaled lineage, or None while it is unsigned.
    fn unseal(&self, stored: &Stored) -> Result<Option<(Hash, Vec<u8>)>, Error> {
        let Some(bytes) = &stored.bytes else { return Ok(None) };
        let number = |value: i64| u64::try_from(value).map_err(|_| Error::Vault("a negative number".into()));
        let binding = Binding {
            lineage: stored.lineage,
            chain_id: number(stored.chain_id)?,
            signer: stored.signer,
            nonce: number(stored.nonce)?,
            hash: bytes.hash,
        };
        let sealed = Sealed { key_id: bytes.key_id.clone(), iv: bytes.iv, ciphertext: bytes.ciphertext.clone() };
        let raw = self.vault.open(&binding, &sealed).map_err(|error| {
            metrics::JOURNAL_DECRYPT_FAILURES.add(1, &[]);
            tracing::error!(event = "journal_key_unavailable", key_id = %bytes.key_id, lineage = %stored.lineage, %error, "journaled bytes cannot be opened");
            Error::Vault(error.to_string())
        })?;
        Ok(Some((bytes.hash, raw.to_vec())))
    }
}

/// Whether a lineage may still be sent.
fn is_open(state: LineageState) -> bool {
    !state.is_final()
}
