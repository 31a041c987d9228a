//! NonceAllocator, one a signer lane: deals plans to lanes, and takes a lane's waiting plans together through reserve, sign, journal
//! and send, one batch after the other, so that the lane's nonces leave in their order. The only writer of fences and pool cursors.

use super::tx_journal::{self, Journaled, Submitted, ToSign};
use super::{Door, DoorError, Fold, Stage};
use crate::domain::encoding;
use crate::fail;
use crate::store::lanes::{Lane, Reserved, Wanted};
use crate::store::{self, Db};
use crate::telemetry::metrics;
use entity::ids::{ExecutionToken, JobId, LaneId};
use entity::states::AttemptPurpose;
use entity::values::{Address, Wei};
use futures::FutureExt;
use std::collections::HashMap;
use std::sync::Arc;

/// Most plans in one reservation.
const BATCH: usize = 200;
const CAPACITY: usize = 8_192;

/// A simulated call that wants a nonce.
#[derive(Clone, Debug)]
pub struct Plan {
    pub job: JobId,
    pub token: ExecutionToken,
    pub to: Address,
    pub value: Wei,
    pub data: Vec<u8>,
    pub gas_limit: i64,
    /// What it would offer now, in wei per gas: the lane has to be able to pay it.
    pub max_fee_per_gas: Wei,
}

/// How a plan ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    Submitted(Submitted),
    /// The lane has no room now; no nonce was bound.
    Full,
    /// The signer cannot pay for it beside what it has open; no nonce was bound.
    Unfunded,
    /// The job owns a nonce from an earlier execution: resume it.
    Owned,
    Cancelled,
    Fenced,
    /// A nonce is bound and has no bytes, or nothing is known: the next execution goes on from what is stored.
    Unfinished(tx_journal::Error),
}

type Dealt = Result<Option<(LaneId, Address)>, store::Error>;

#[derive(Clone)]
pub struct Handle {
    pools: Arc<HashMap<(i64, String), Door<(), Dealt>>>,
    lanes: Arc<HashMap<LaneId, Door<Plan, Outcome>>>,
}

/// Starts one dealer a pool and one allocator a lane, for the lanes whose keys are loaded.
#[must_use]
pub fn start(stage: &Stage, db: &Db, journal: &tx_journal::Handle, lanes: &[Lane]) -> Handle {
    let loaded: Arc<Vec<Address>> = Arc::new(journal.loaded());
    let mut pools = HashMap::new();
    let mut doors = HashMap::new();
    for lane in lanes.iter().filter(|lane| loaded.contains(&lane.signer)) {
        pools.entry((lane.chain_id, lane.pool.clone())).or_insert_with(|| dealer(stage, db, lane, &loaded));
        doors.insert(lane.id, allocator(stage, db, journal, lane));
    }
    Handle { pools: Arc::new(pools), lanes: Arc::new(doors) }
}

fn dealer(stage: &Stage, db: &Db, lane: &Lane, loaded: &Arc<Vec<Address>>) -> Door<(), Dealt> {
    let (db, chain_id, pool, loaded) = (db.clone(), lane.chain_id, lane.pool.clone(), loaded.clone());
    let flush = move |batch: Vec<()>| {
        let (db, pool, loaded) = (db.clone(), pool.clone(), loaded.clone());
        async move {
            match store::lanes::pick(&db, chain_id, &pool, batch.len(), &loaded).await {
                Ok(dealt) => {
                    if dealt.is_empty() {
                        metrics::SIGNER_POOL_EXHAUSTED.add(1, &[&pool]);
                    }
                    (0..batch.len()).map(|place| Ok(dealt.get(place).copied())).collect()
                }
                Err(error) => batch.iter().map(|()| Err(error.clone())).collect(),
            }
        }
        .boxed()
    };
    stage.fold(Fold::new("pool_dealer", 1_024, 1, Arc::new(flush)), CAPACITY)
}

fn allocator(stage: &Stage, db: &Db, journal: &tx_journal::Handle, lane: &Lane) -> Door<Plan, Outcome> {
    let (db, journal, lane) = (db.clone(), journal.clone(), Arc::new(lane.clone()));
    let flush = move |batch: Vec<Plan>| {
        let (db, journal, lane) = (db.clone(), journal.clone(), lane.clone());
        async move { take(&db, &journal, &lane, batch).await }.boxed()
    };
    stage.fold(Fold::new("nonce_allocator", BATCH, 1, Arc::new(flush)), CAPACITY)
}

fn wanted(lane: &Lane, plan: &Plan) -> Wanted {
    let (chain, gas) = (u64::try_from(lane.chain_id).unwrap_or_default(), u64::try_from(plan.gas_limit).unwrap_or_default());
    Wanted {
        job: plan.job,
        token: plan.token,
        call_hash: encoding::call_hash(chain, &plan.to, &plan.value, &plan.data, gas),
        to: plan.to,
        value: plan.value,
        data: plan.data.clone(),
        gas_limit: plan.gas_limit,
    }
}

async fn take(db: &Db, journal: &tx_journal::Handle, lane: &Lane, batch: Vec<Plan>) -> Vec<Outcome> {
    let wanted: Vec<Wanted> = batch.iter().map(|plan| wanted(lane, plan)).collect();
    let price = batch.iter().map(|plan| plan.max_fee_per_gas).max().unwrap_or_default();
    let mut reserved = store::lanes::reserve(db, lane.id, &wanted, price).await;
    if matches!(reserved, Err(store::Error::Conflict(_))) {
        // Another replica bound one of these jobs between our look and our write; the second look sees it.
        reserved = store::lanes::reserve(db, lane.id, &wanted, price).await;
    }
    fail::point("lane.reserved");
    let reserved = match reserved {
        Ok(reserved) => reserved,
        Err(error) => return batch.iter().map(|_| Outcome::Unfinished(error.clone().into())).collect(),
    };
    let mut to_sign = Vec::new();
    for (plan, got) in batch.into_iter().zip(&reserved) {
        if let Reserved::Nonce { lineage, nonce } = *got {
            let Plan { job, token, to, value, data, gas_limit, max_fee_per_gas: _ } = plan;
            to_sign.push(ToSign {
                lineage,
                job,
                token,
                chain_id: lane.chain_id,
                signer: lane.signer,
                nonce,
                to,
                value,
                data,
                gas_limit,
                purpose: AttemptPurpose::Call,
            });
        }
    }
    let mut sent = sign_and_send(journal, to_sign).await.into_iter();
    reserved
        .into_iter()
        .map(|got| match got {
            Reserved::Nonce { .. } => sent.next().unwrap_or(Outcome::Unfinished(tx_journal::Error::Lost)),
            Reserved::Owned => Outcome::Owned,
            Reserved::Full => Outcome::Full,
            Reserved::Unfunded => Outcome::Unfunded,
            Reserved::Cancelled => Outcome::Cancelled,
            Reserved::Fenced => {
                metrics::EXECUTION_FENCED.add(1, &["reserve"]);
                Outcome::Fenced
            }
        })
        .collect()
}

async fn sign_and_send(journal: &tx_journal::Handle, to_sign: Vec<ToSign>) -> Vec<Outcome> {
    if to_sign.is_empty() {
        return Vec::new();
    }
    let tokens: Vec<ExecutionToken> = to_sign.iter().map(|one| one.token).collect();
    let mut failed = HashMap::new();
    let mut journaled: Vec<Journaled> = Vec::with_capacity(tokens.len());
    for (token, answer) in tokens.iter().zip(journal.commit(to_sign).await) {
        match answer {
            Ok(one) => journaled.push(one),
            Err(error) => {
                failed.insert(*token, error);
            }
        }
    }
    let sent: HashMap<ExecutionToken, Submitted> = journal.send(journaled).await.into_iter().collect();
    let outcome = |token: &ExecutionToken| match (sent.get(token), failed.remove(token)) {
        (Some(submitted), _) => Outcome::Submitted(*submitted),
        (None, Some(tx_journal::Error::Fenced)) => Outcome::Fenced,
        (None, Some(error)) => Outcome::Unfinished(error),
        (None, None) => Outcome::Unfinished(tx_journal::Error::Lost),
    };
    tokens.iter().map(outcome).collect()
}

impl Handle {
    /// The next lane of a pool, by its round-robin cursor; None when every lane is full, fenced or not loaded.
    ///
    /// # Errors
    /// See [`store::Error`].
    pub async fn deal(&self, chain_id: i64, pool: &str) -> Result<Option<(LaneId, Address)>, store::Error> {
        let Some(door) = self.pools.get(&(chain_id, pool.to_owned())) else { return Ok(None) };
        door.ask_waiting(()).await.unwrap_or(Ok(None))
    }

    /// Takes a plan through its lane.
    pub async fn submit(&self, lane: LaneId, plan: Plan) -> Outcome {
        let Some(door) = self.lanes.get(&lane) else { return Outcome::Full };
        match door.ask_waiting(plan).await {
            Ok(outcome) => outcome,
            Err(DoorError::Full | DoorError::Closed) => Outcome::Full,
            Err(DoorError::Lost) => Outcome::Unfinished(tx_journal::Error::Lost),
        }
    }

    pub fn probes(&self) -> impl Iterator<Item = &super::supervisor::Probe> {
        self.lanes.values().map(Door::probe).chain(self.pools.values().map(Door::probe))
    }
}
