//! LaneReconciler, one a lane, working for one process at a time under a lease in Postgres: at each new block it asks a majority how far
//! the account has come, looks whether ends still stand (`standing.rs`), ends what has its receipt or was used up by a stranger (`ends.rs`), and gives
//! open nonces what they need: the same bytes again, a price, a no-op (`pushes.rs`). Loads, lets `domain` decide, and records through TxJournal.

mod ends;
mod gaps;
mod lease;
mod pushes;
mod resize;
pub mod rules;
mod standing;

use super::rpc_quorum::{self, Desk, View};
use super::supervisor::Probe;
use super::{Beat, Stage, Wake, lane_funds, lane_membership, tx_journal};
use crate::chain::BlockTag;
use crate::domain::lane_round::{self, At, Consumed, OpenNonce};
use crate::domain::quorum::Decision;
use crate::store::lanes::{Lane, Leased, Observed};
use crate::store::settling::Open;
use crate::store::{self, Db};
use crate::telemetry::metrics;
use entity::ids::{LaneId, WorkerId};
use entity::states::LaneState;
use entity::values::Address;
use futures::FutureExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Most lineages that one round looks at.
const LOOK: u32 = 2_000;

#[derive(Clone)]
struct Work {
    db: Db,
    journal: tx_journal::Handle,
    desk: Arc<Desk>,
    lane: LaneId,
    holder: WorkerId,
    funds: Arc<lane_funds::Watch>,
    membership: Arc<lane_membership::Watch>,
    signer: Address,
    /// The last round had the lease.
    held: Arc<AtomicBool>,
}

/// Starts one actor a lane. Each is woken by every new block of its chain.
#[must_use]
pub fn start(
    stage: &Stage,
    db: &Db,
    journal: &tx_journal::Handle,
    chains: &rpc_quorum::Handle,
    lanes: &[Lane],
    holder: WorkerId,
) -> Vec<Probe> {
    let mut probes = Vec::new();
    for lane in lanes {
        let Some(desk) = chains.desk(lane.chain_id) else { continue };
        let work = Work {
            db: db.clone(),
            journal: journal.clone(),
            desk: desk.clone(),
            lane: lane.id,
            holder,
            funds: Arc::default(),
            membership: Arc::default(),
            signer: lane.signer,
            held: Arc::default(),
        };
        let wake = Wake::default();
        let (mut blocks, waker, stop) = (desk.watch(), wake.clone(), stage.root.token().clone());
        stage.runtime.spawn(async move {
            while let Some(Ok(())) = stop.run_until_cancelled(blocks.changed()).await {
                waker.wake();
            }
        });
        let every = desk.settings.reconcile;
        let round = move || {
            let work = work.clone();
            async move {
                if let Err(error) = work.round().await {
                    tracing::warn!(event = "lane_round_failed", lane = %work.lane, %error, "settling waits");
                }
            }
            .boxed()
        };
        probes.push(
            Beat { name: "lane_reconciler", of: format!("{} {}", desk.label(), lane.signer), every, wake, round: Arc::new(round) }
                .start(stage),
        );
    }
    probes
}

impl Work {
    async fn round(&self) -> Result<(), store::Error> {
        let Some(view) = self.desk.view() else { return Ok(()) };
        let Some(leased) = self.take().await? else {
            self.funds.rest(&self.desk, &self.signer.to_string());
            return Ok(());
        };
        tokio::select! {
            biased;
            ended = self.settle(leased, view) => ended,
            () = self.keep() => Ok(()),
        }
    }

    async fn settle(&self, Leased { lane, head_for }: Leased, view: View) -> Result<(), store::Error> {
        let (seen, pending) = self.consumed(&lane, view).await;
        // Where the depth cannot be read the newest count still opens the window.
        let noted = Consumed { settled: seen.settled.or(Some(lane.settled_nonce)), ..seen };
        if let Some((latest, settled)) = noted.observed() {
            self.observe(&lane, Observed { latest, settled, pending, block: number(view.reached) }).await?;
        }
        if lane.state != LaneState::Frozen && !self.recheck(&lane, view).await? {
            return Ok(());
        }
        let open = self.journal.open(self.lane, 0, LOOK).await?;
        self.show(&lane, seen, pending, &open);
        let look = lane_funds::Round { db: &self.db, desk: &self.desk, lane: &lane, holder: self.holder, latest: seen.latest, view };
        let topped_up = self.funds.watch(&look).await?;
        self.membership.watch(&self.db, &self.desk, &lane).await?;
        let nonces: Vec<OpenNonce<'_>> = open.iter().map(rules::nonce).collect();
        // What is frozen ends nothing and prices nothing; its bytes live on.
        if let Some(settled) = seen.settled.filter(|_| lane.state != LaneState::Frozen) {
            self.end(&lane, &open, &nonces, settled, view).await?;
        }
        if topped_up {
            self.send_head(&nonces, seen.latest).await?;
        }
        let head_for = lane_round::head_for(seen.latest, lane.latest_nonce, head_for);
        if lane.state != LaneState::Frozen {
            self.fill(&lane, &nonces, seen.latest, head_for).await?;
        }
        self.push(&lane, &open, &nonces, seen.latest, head_for, view).await
    }

    /// How many nonces the account has used up: at the newest block, at TX_CONFIRMATIONS below it, and with what a pool has.
    async fn consumed(&self, lane: &Lane, view: View) -> (Consumed, Option<i64>) {
        let (latest, settled, pending) = tokio::join!(
            self.desk.chain.consumed_nonces(vec![lane.signer], BlockTag::Latest),
            self.counted_at(lane, lane_round::settled_at(view.reached, self.desk.settings.confirmations)),
            self.desk.chain.pending_nonce(lane.signer)
        );
        let pending = pending.ok().and_then(|count| i64::try_from(count).ok());
        (Consumed { latest: agreed({ latest }.pop()), settled }, pending)
    }

    async fn counted_at(&self, lane: &Lane, block: Option<u64>) -> Option<i64> {
        agreed(self.desk.chain.consumed_nonces(vec![lane.signer], BlockTag::Number(block?)).await.pop())
    }

    async fn observe(&self, lane: &Lane, observed: Observed) -> Result<(), store::Error> {
        if store::lanes::observe(&self.db, self.lane, self.holder, observed).await? {
            let used = u64::try_from(observed.settled - lane.next_nonce).unwrap_or(1);
            metrics::FOREIGN_NONCE_USE.add(used, &[&self.desk.label(), &lane.signer.to_string()]);
            tracing::error!(
                event = "foreign_nonce_use", lane = %self.lane, signer = %lane.signer, fence = lane.next_nonce, settled = observed.settled,
                "somebody else sends with this key: nonces that were never given out here are used up on the chain; the fence has followed"
            );
        }
        Ok(())
    }

    /// Where a round stands for what is `depth` blocks deep.
    fn at(&self, view: View, depth: u64) -> At {
        At { head: view.reached, depth, calm: self.desk.chain.calm() }
    }

    fn show(&self, lane: &Lane, seen: Consumed, pending: Option<i64>, open: &[Open]) {
        let (label, signer) = (self.desk.label(), lane.signer.to_string());
        let labels = [label.as_str(), signer.as_str()];
        metrics::SIGNER_NONCE_FENCE.set(lane.next_nonce as f64, &labels);
        if let Some(latest) = seen.latest {
            metrics::SIGNER_NONCE_LATEST.set(latest as f64, &labels);
            // Positive: the chain is ahead of the fence, a stranger uses the key. Negative: nonces that are given out and not mined, and are
            // not open either, which must not be.
            let unaccounted =
                (lane.next_nonce - latest).max(0) - i64::try_from(open.iter().filter(|one| one.nonce >= latest).count()).unwrap_or(0);
            let drift = if latest > lane.next_nonce { latest - lane.next_nonce } else { (-unaccounted).min(0) };
            metrics::SIGNER_NONCE_DRIFT.set(drift as f64, &labels);
        }
        if let Some(pending) = pending {
            metrics::SIGNER_NONCE_PENDING.set(pending as f64, &labels);
        }
        metrics::SIGNER_IN_FLIGHT.set(open.len() as f64, &labels);
        metrics::SIGNER_OLDEST_PENDING_AGE.set(open.first().map_or(0.0, |one| one.age.as_secs_f64()), &labels);
        metrics::SIGNER_CAPPED.set(open.iter().filter(|one| one.capped).count() as f64, &labels);
        for state in LaneState::all() {
            metrics::SIGNER_LANE_STATE.set(f64::from(u8::from(state == lane.state)), &[&label, &signer, state.as_str()]);
        }
    }
}

fn agreed(count: Option<Decision<u64>>) -> Option<i64> {
    count.and_then(Decision::agreed).and_then(|count| i64::try_from(count).ok())
}

/// For the bigint columns of Postgres.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn count(value: i32) -> u32 {
    u32::try_from(value).unwrap_or_default()
}
