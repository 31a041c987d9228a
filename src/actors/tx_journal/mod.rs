//! TxJournal: signed bytes and the state of lineages. Signs on CPU threads, encrypts, and commits all attempts that wait in one
//! statement; gives journaled bytes, and nothing else, to the chain. The only caller of `store::journal`'s writes.

mod replace;
mod seals;
mod send;

pub use crate::domain::lane_round::Priced;
pub use replace::NOOP_GAS_MAX;
pub use send::Submitted;

use super::rpc_quorum;
use super::{Door, DoorError, Fold, Stage};
use crate::domain::fees::{self, Price, TxType};
use crate::domain::transaction::{Unpriced, Unsigned};
use crate::fail;
use crate::signer::{self, Binding, Keyring, Sealed, Vault};
use crate::store::journal::{Record, Stored};
use crate::store::{self, Db};
use crate::telemetry::metrics;
use entity::ids::{ExecutionToken, JobId, LineageId};
use entity::states::{AttemptPurpose, LineageState};
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
    pub purpose: AttemptPurpose,
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
    #[error(transparent)]
    Seals(#[from] seals::Error),
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
    seals: seals::Seals,
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
    let seals = seals::Seals::new(db.clone(), vault.active_key_id().to_owned());
    let work = Arc::new(Work { db, keys, vault, seals, chains });
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
}

impl Work {
    fn price(&self, one: &ToSign, gas_limit: u64) -> Result<(TxType, Price), Error> {
        let desk = self.chains.desk(one.chain_id).ok_or(Error::NoChain(one.chain_id))?;
        let view = desk.view().ok_or(Error::NoMarket(one.chain_id))?;
        let settings = &desk.settings;
        let limit = fees::limit_at(gas_limit, settings.max_fee_per_gas, settings.max_total_fee);
        Ok((view.fees.tx_type, fees::first(view.fees.tx_type, view.fees.market(), settings.min_priority_fee, limit)?))
    }

    fn draft(&self, one: &ToSign) -> Result<Draft, Error> {
        let number = |value: i64| u64::try_from(value).map_err(|_| Error::Sign("a negative number".into()));
        let call = Unpriced {
            chain_id: number(one.chain_id)?,
            nonce: number(one.nonce)?,
            gas_limit: number(one.gas_limit)?,
            to: one.to,
            value: one.value,
            data: one.data.clone(),
        };
        let (tx_type, price) = self.price(one, call.gas_limit)?;
        Ok(Draft { lineage: one.lineage, signer: one.signer, transaction: call.priced(tx_type, price), price })
    }

    async fn commit(&self, batch: Vec<ToSign>) -> Vec<Answer> {
        let began = Instant::now();
        let drafts = batch.iter().map(|one| self.draft(one)).collect();
        let sealed = self.sign(drafts).await;
        let mut answers: Vec<Answer> = Vec::with_capacity(batch.len());
        let mut records = Vec::with_capacity(batch.len());
        for (one, sealed) in batch.iter().zip(sealed) {
            answers.push(sealed.map(|sealed| {
                let (record, journaled) = journaled(one, sealed);
                records.push(record);
                journaled
            }));
        }
        if let Some(one) = batch.first() {
            metrics::TX_SIGN_SECONDS.record(began.elapsed().as_secs_f64(), &[&one.chain_id.to_string()]);
        }
        fail::point("journal.signed");
        let written =
            if records.is_empty() { Ok(std::collections::HashSet::new()) } else { store::journal::record(&self.db, &records).await };
        fail::point("journal.committed");
        let answer = |answer: Answer| match (answer, &written) {
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

    /// Signs on CPU threads and encrypts; answers in the order of the input. Nothing is kept yet.
    async fn sign(&self, drafts: Vec<Result<Draft, Error>>) -> Vec<Result<SealedDraft, Error>> {
        // Counted before anything is sealed, so that a crash never counts too few.
        if let Err(error) = self.seals.take(drafts.len()).await {
            return drafts.into_iter().map(|draft| draft.and(Err(Error::Seals(error.clone())))).collect();
        }
        let mut orders = Vec::with_capacity(drafts.len());
        let mut ready = Vec::with_capacity(drafts.len());
        for draft in drafts {
            ready.push(draft.and_then(|draft| {
                let key = self.keys.signer(&draft.signer).ok_or(Error::NoKey(draft.signer))?;
                orders.push((key.clone(), draft.transaction.clone()));
                Ok(draft)
            }));
        }
        let mut signatures = signer::sign_many(orders).await.into_iter();
        let seal = |draft: Draft| {
            let signature = signatures.next().ok_or(Error::Lost)?.map_err(|e| Error::Sign(e.to_string()))?;
            self.seal(draft, &signature)
        };
        let mut seal = seal;
        ready.into_iter().map(|draft| draft.and_then(&mut seal)).collect()
    }

    fn seal(&self, draft: Draft, signature: &crate::domain::transaction::Signature) -> Result<SealedDraft, Error> {
        let Draft { lineage, signer, transaction, price } = draft;
        let signed = transaction.signed(signature);
        let binding = Binding { lineage, chain_id: transaction.chain_id(), signer, nonce: transaction.nonce(), hash: signed.hash };
        let sealed = self.vault.seal(&binding, &signed.raw).map_err(|e| Error::Vault(e.to_string()))?;
        Ok(SealedDraft { hash: signed.hash, raw: signed.raw, price, tx_type: transaction.tx_type(), sealed })
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

/// A transaction that waits for its signature.
struct Draft {
    lineage: LineageId,
    signer: Address,
    transaction: Unsigned,
    price: Price,
}

/// Signed and encrypted, not yet kept.
struct SealedDraft {
    hash: Hash,
    raw: Vec<u8>,
    price: Price,
    tx_type: TxType,
    sealed: Sealed,
}

fn journaled(one: &ToSign, draft: SealedDraft) -> (Record, Journaled) {
    let SealedDraft { hash, raw, price, tx_type, sealed } = draft;
    let record = Record {
        lineage: one.lineage,
        job: one.job,
        token: one.token,
        hash,
        purpose: one.purpose,
        price,
        tx_type,
        gas_limit: one.gas_limit,
        key_id: sealed.key_id,
        iv: sealed.iv,
        ciphertext: sealed.ciphertext,
    };
    let journaled = Journaled { lineage: one.lineage, job: one.job, token: one.token, chain_id: one.chain_id, nonce: one.nonce, hash, raw };
    (record, journaled)
}

/// Whether a lineage may still be sent.
fn is_open(state: LineageState) -> bool {
    !state.is_final()
}
