//! Works: what one delivery of a job does. One file a kind; this file holds the one match over kinds and the steps all kinds share:
//! revalidate and simulate while there is no nonce, then a lane, then the nonce.

mod contract_call;
mod transfer;
mod waiting;

use crate::actors::nonce_allocator::{self, Outcome, Plan};
use crate::actors::rpc_quorum::{self, Desk};
use crate::actors::tx_journal::{self, Submitted};
use crate::actors::worker::{Ended, Run};
use crate::chain::{Call, SimulationError};
use crate::domain::encoding::checksummed;
use crate::domain::{fees, gas};
use crate::fail;
use crate::store::{self, execution::Execution};
use entity::ids::{LaneId, LineageId};
use entity::states::{JobKind, LineageState};
use entity::values::{Address, Wei};
use futures::FutureExt;
use std::sync::Arc;
use std::time::Duration;
use waiting::Waiting;

/// What a kind wants done on the chain. No nonce, no price, no signer yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallPlan {
    pub to: Address,
    /// In wei.
    pub value: Wei,
    pub data: Vec<u8>,
    /// Given by the caller; estimated otherwise.
    pub gas_limit: Option<u64>,
}

/// What jobs work with.
#[derive(Clone)]
pub struct Context {
    chains: rpc_quorum::Handle,
    lanes: nonce_allocator::Handle,
    journal: tx_journal::Handle,
    waiting: Arc<Waiting>,
}

impl Context {
    /// `hands` is QUEUE_CONCURRENCY.
    #[must_use]
    pub fn new(chains: rpc_quorum::Handle, lanes: nonce_allocator::Handle, journal: tx_journal::Handle, hands: usize) -> Self {
        Self { chains, lanes, journal, waiting: Waiting::new(hands) }
    }
}

/// Longest wait inside an execution for a block that gives a lane room.
const BLOCK_WAIT: Duration = Duration::from_secs(3);
/// Longest wait outside of one, for a lane with room, a provider that answers, and money: while few of the pool wait.
const LANE_WAIT: Duration = Duration::from_secs(10);
const PROVIDER_WAIT: Duration = Duration::from_secs(15);
const FUNDS_WAIT: Duration = Duration::from_secs(15);

/// The work of every kind, for the Worker.
#[must_use]
pub fn run(context: Context) -> Run {
    Arc::new(move |execution| {
        let context = context.clone();
        async move { context.spaced(&execution, context.work(&execution).await) }.boxed()
    })
}

fn plan(execution: &Execution) -> CallPlan {
    match execution.kind {
        JobKind::ContractCall => contract_call::plan(execution),
        JobKind::Transfer => transfer::plan(execution),
    }
}

fn later(why: &'static str, detail: impl ToString, at_most: Duration) -> Ended {
    Ended::Later { why, detail: detail.to_string(), at_most }
}

impl Context {
    /// The more of a pool are away, the longer each stays. What owns a nonce is waited for by its lane and comes back soon.
    fn spaced(&self, execution: &Execution, ended: Ended) -> Ended {
        match ended {
            Ended::Later { why, detail, at_most } if execution.lineage.is_none() && at_most >= LANE_WAIT => {
                Ended::Later { why, detail, at_most: self.waiting.leave(execution.chain_id, &execution.pool, at_most) }
            }
            other => other,
        }
    }

    async fn work(&self, execution: &Execution) -> Ended {
        if let Some((lineage, state)) = execution.lineage {
            return self.go_on(execution, lineage, state).await;
        }
        let Some(desk) = self.chains.desk(execution.chain_id) else {
            return Ended::Failed {
                error: "chain_unknown",
                title: "The chain is not configured in this process",
                detail: format!("chain {} has no endpoints here", execution.chain_id),
            };
        };
        let plan = plan(execution);
        let (lane, signer) = match self.lane(desk, execution).await {
            Ok(Some(dealt)) => dealt,
            Ok(None) => return later("no_lane", format!("no lane of pool {} has room", execution.pool), LANE_WAIT),
            Err(error) => return later("postgres", error, PROVIDER_WAIT),
        };
        let (gas_limit, max_fee_per_gas) = match gas_and_price(desk, signer, &plan).await {
            Ok(found) => found,
            Err(ended) => return ended,
        };
        fail::point("worker.planned");
        let CallPlan { to, value, data, .. } = plan;
        let plan = Plan { job: execution.job, token: execution.token, to, value, data, gas_limit, max_fee_per_gas };
        match self.lanes.submit(lane, plan).await {
            Outcome::Submitted(submitted) => submitted_as(submitted),
            Outcome::Full => later("no_lane", "the lane filled up meanwhile", LANE_WAIT),
            Outcome::Unfunded => later(
                "insufficient_funds",
                format!("signer {} cannot pay for the call beside what it has open", checksummed(&signer)),
                FUNDS_WAIT,
            ),
            Outcome::Owned => later("nonce_bound", "an earlier execution bound a nonce", Duration::from_millis(100)),
            Outcome::Cancelled => Ended::Cancelled,
            Outcome::Fenced => Ended::Fenced,
            Outcome::Unfinished(error) => unfinished(&error),
        }
    }
}

impl Context {
    /// Goes on with a job that owns a nonce. While nothing is signed for it the call is tried once more: what reverts now is not signed.
    async fn go_on(&self, execution: &Execution, lineage: LineageId, state: LineageState) -> Ended {
        if state == LineageState::Allocated {
            match self.still_works(execution, lineage).await {
                Ok(None) => {}
                Ok(Some(ended)) => return ended,
                Err(error) => return unfinished(&error),
            }
        }
        match self.journal.resume(lineage, execution.token).await {
            Ok(submitted) => submitted_as(submitted),
            Err(error) => unfinished(&error),
        }
    }

    /// None: sign it.
    async fn still_works(&self, execution: &Execution, lineage: LineageId) -> Result<Option<Ended>, tx_journal::Error> {
        let (Some(stored), Some(desk)) = (self.journal.unsigned(lineage).await?, self.chains.desk(execution.chain_id)) else {
            return Ok(None);
        };
        // Estimated anew: that the old limit has become too low by a little is no ground to give the call up.
        let plan = CallPlan { to: stored.to, value: stored.value, data: stored.data, gas_limit: None };
        match gas_and_price(desk, stored.signer, &plan).await {
            Ok(_) => Ok(None),
            Err(Ended::NotActionable { detail, .. }) => {
                let released = self.journal.abandon(lineage, execution.token, &detail).await?;
                Ok(released.then_some(Ended::Released))
            }
            Err(later) => Ok(Some(later)),
        }
    }

    /// A lane with room. When none has any, the next block may make some: that is waited for once before the job is given back,
    /// so that a long queue in front of a narrow lane does not go round and round through Postgres; by so many of a pool as leave hands for the others.
    async fn lane(&self, desk: &Desk, execution: &Execution) -> Result<Option<(LaneId, Address)>, store::Error> {
        let mut blocks = desk.watch();
        blocks.mark_unchanged();
        let first = self.lanes.deal(execution.chain_id, &execution.pool).await?;
        if first.is_some() {
            return Ok(first);
        }
        let Some(_seat) = self.waiting.sit(execution.chain_id, &execution.pool) else { return Ok(None) };
        if tokio::time::timeout(BLOCK_WAIT, blocks.changed()).await.is_err() {
            return Ok(None);
        }
        self.lanes.deal(execution.chain_id, &execution.pool).await
    }
}

fn submitted_as(submitted: Submitted) -> Ended {
    match submitted {
        Submitted::Noted(_) => Ended::Submitted,
        Submitted::Fenced => Ended::Fenced,
        Submitted::Unnoted => later("postgres", "the bytes were sent and not noted", Duration::from_secs(1)),
    }
}

fn unfinished(error: &tx_journal::Error) -> Ended {
    match error {
        tx_journal::Error::Fenced => Ended::Fenced,
        other => later("unfinished", other, PROVIDER_WAIT),
    }
}

/// Simulates the call as the lane's signer, and gives its gas limit and the price it would offer now. A nonce that has no price, or that no
/// block can hold, would jam its lane: both are known before one is bound.
async fn gas_and_price(desk: &Desk, signer: Address, plan: &CallPlan) -> Result<(i64, Wei), Ended> {
    let Some(view) = desk.view() else { return Err(later("market_unknown", "no head was seen yet", PROVIDER_WAIT)) };
    let settings = &desk.settings;
    let bounds = gas::Bounds { block_gas_limit: view.head.gas_limit, share_bps: settings.block_gas_share_bps };
    let limit =
        |estimate| gas::limit(plan.gas_limit, estimate, settings.gas_buffer_bps, &plan.data, bounds).map_err(|out| too_much_gas(&out));
    if plan.gas_limit.is_some() {
        // What was asked for can be refused without asking a node.
        limit(0)?;
    }
    let price = |limit| {
        fees::first(view.fees.tx_type, view.fees.market(), settings.min_priority_fee, limit)
            .map_err(|over| later("fee_over_limit", over, PROVIDER_WAIT))
    };
    // A market above the limit is known without asking a node, and all that wait would ask.
    price(settings.max_fee_per_gas)?;
    let call = Call { from: signer, to: Some(plan.to), value: plan.value, data: plan.data.clone(), gas: plan.gas_limit };
    let simulated = desk.simulate(call).await.map_err(|error| match error {
        SimulationError::Reverted { reason, .. } => Ended::NotActionable { title: "The call reverts", detail: reason },
        SimulationError::InsufficientFunds => {
            later("insufficient_funds", format!("signer {} cannot pay for the call", checksummed(&signer)), FUNDS_WAIT)
        }
        SimulationError::Unavailable => later("simulation_unavailable", "no endpoint gave a reliable answer", PROVIDER_WAIT),
    })?;
    let gas_limit = limit(simulated.gas_estimate)?;
    let most = fees::limit_at(gas_limit, settings.max_fee_per_gas, settings.max_total_fee);
    let price = price(most)?;
    // Bounded by the protocol, far below the limit of the column.
    Ok((i64::try_from(gas_limit).unwrap_or(i64::MAX), price.max_fee_per_gas))
}

fn too_much_gas(out: &gas::OutOfBounds) -> Ended {
    Ended::NotActionable { title: "The call needs more gas than a transaction may have", detail: out.to_string() }
}
