//! LaneReconciler, one a lane, working for one process at a time under a lease in Postgres: at each new block it asks a majority how far
//! the account has come, ends what has its receipt at TX_CONFIRMATIONS, and gives bytes that a crash or a pool swallowed to the chain again.
//! Writes lineages only through TxJournal. Never moves the fence.

use super::rpc_quorum::{self, Desk, View};
use super::supervisor::Probe;
use super::{Beat, Stage, Wake, tx_journal};
use crate::chain::BlockTag;
use crate::domain::quorum::Decision;
use crate::domain::rpc_verdict::Verdict;
use crate::domain::settlement::{self, Evidence};
use crate::fail;
use crate::store::journal::{Open, Settled};
use crate::store::lanes::Lane;
use crate::store::{self, Db};
use crate::telemetry::metrics;
use entity::ids::{LaneId, WorkerId};
use entity::states::{LaneState, LineageState};
use futures::FutureExt;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Most lineages that one round looks at.
const LOOK: u32 = 2_000;
/// Most bytes sent again in one round: the head of the lane first, the rest follows when it moves.
const RESEND: usize = 64;
/// A pause that lifts itself when the head of the lane is accepted.
pub const UNFUNDED: &str = "insufficient_funds";

#[derive(Clone)]
struct Work {
    db: Db,
    journal: tx_journal::Handle,
    desk: Arc<Desk>,
    lane: LaneId,
    holder: WorkerId,
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
        let work = Work { db: db.clone(), journal: journal.clone(), desk: desk.clone(), lane: lane.id, holder };
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
        probes.push(Beat { name: "lane_reconciler", every, wake, round: Arc::new(round) }.start(stage));
    }
    probes
}

impl Work {
    async fn round(&self) -> Result<(), store::Error> {
        let Some(view) = self.desk.view() else { return Ok(()) };
        let lease = self.desk.settings.reconcile * 3 + Duration::from_secs(5);
        let Some(lane) = store::lanes::lease(&self.db, self.lane, self.holder, lease).await? else { return Ok(()) };
        let (latest, settled) = self.consumed(&lane, view).await;
        if let (Some(latest), Some(settled)) = (latest, settled) {
            store::lanes::observe(&self.db, self.lane, self.holder, latest.max(settled), settled).await?;
        }
        let open = self.journal.open(self.lane, 0, LOOK).await?;
        self.show(&lane, latest, &open);
        if let Some(settled) = settled {
            self.settle(&open, settled, view).await?;
        }
        self.send_again(&lane, &open, latest).await
    }

    /// How many nonces the account has used up: at the newest block, and at TX_CONFIRMATIONS below it.
    async fn consumed(&self, lane: &Lane, view: View) -> (Option<i64>, Option<i64>) {
        let depth = self.desk.settings.confirmations.saturating_sub(1);
        let number = |decision: Option<Decision<u64>>| decision.and_then(Decision::agreed).and_then(|count| i64::try_from(count).ok());
        let ask = |tag| self.desk.chain.consumed_nonces(vec![lane.signer], tag);
        let confirmed = view.reached.checked_sub(depth);
        let (latest, settled) = tokio::join!(ask(BlockTag::Latest), async {
            match confirmed {
                Some(block) => number(ask(BlockTag::Number(block)).await.pop()),
                None => None,
            }
        });
        (number({ latest }.pop()), settled)
    }

    async fn settle(&self, open: &[Open], settled: i64, view: View) -> Result<(), store::Error> {
        let consumed: Vec<&Open> = open.iter().filter(|one| one.nonce < settled && !one.hashes.is_empty()).collect();
        if consumed.is_empty() {
            return Ok(());
        }
        let hashes: Vec<_> = consumed.iter().flat_map(|one| one.hashes.iter().copied()).collect();
        let receipts = self.desk.chain.receipts(hashes.clone(), view.reached).await;
        let mut by_hash = HashMap::with_capacity(hashes.len());
        for (hash, told) in hashes.into_iter().zip(receipts) {
            if let Some(receipt) = told.decision.agreed().flatten() {
                by_hash.insert(hash, receipt);
            }
        }
        let mut heights: Vec<u64> = by_hash.values().map(|receipt| receipt.block_number).collect();
        heights.sort_unstable();
        heights.dedup();
        let canonical = self.desk.chain.block_hashes(heights.clone()).await;
        let canonical: HashMap<_, _> =
            heights.into_iter().zip(canonical).filter_map(|(height, d)| Some((height, d.agreed().flatten()?))).collect();
        let mut ended = Vec::new();
        for one in consumed {
            let Some((hash, receipt)) = one.hashes.iter().find_map(|hash| Some((*hash, by_hash.get(hash)?))) else {
                tracing::warn!(event = "nonce_without_receipt", lineage = %one.lineage, nonce = one.nonce, "the nonce is used up and no majority shows a receipt of ours");
                continue;
            };
            let evidence = Evidence {
                block: receipt.block_number,
                block_hash: receipt.block_hash,
                canonical: canonical.get(&receipt.block_number).copied(),
            };
            if !settlement::is_final(evidence, view.reached, self.desk.settings.confirmations) {
                continue;
            }
            let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
            let votes = receipt.votes;
            let proof = serde_json::json!({
                "rule": "receipt", "head": view.reached, "confirmations": self.desk.settings.confirmations,
                "votes": {"agreeing": votes.agreeing, "differing": votes.differing, "abstaining": votes.abstaining},
            });
            ended.push(Settled {
                lineage: one.lineage,
                hash,
                succeeded: receipt.succeeded,
                block_number: number(receipt.block_number),
                block_hash: receipt.block_hash,
                gas_used: number(receipt.gas_used),
                gas_price: receipt.effective_gas_price.unwrap_or_default(),
                proof: proof.to_string(),
            });
        }
        fail::point("settle.decided");
        if ended.is_empty() {
            return Ok(());
        }
        let written = self.journal.settle(self.lane, self.holder, &ended).await?;
        fail::point("settle.committed");
        let label = self.desk.label();
        for one in written {
            let to = if one.state == entity::states::JobState::Completed { LineageState::Mined } else { LineageState::Reverted };
            metrics::TX_TRANSITIONS.add(1, &[&label, to.as_str()]);
            metrics::JOBS_FINISHED.add(1, &[one.kind.as_str(), one.state.as_str()]);
            metrics::TX_BROADCAST_TO_FINAL_SECONDS.record(one.since_sent.as_secs_f64(), &[&label]);
        }
        Ok(())
    }

    /// Bytes that a crash kept from the chain, and bytes that were sent and have not been mined for a while. The head of the lane first.
    async fn send_again(&self, lane: &Lane, open: &[Open], latest: Option<i64>) -> Result<(), store::Error> {
        let patience = self.desk.settings.reconcile;
        let unmined = open.iter().filter(|one| latest.is_none_or(|latest| one.nonce >= latest) && !one.hashes.is_empty());
        let due: Vec<_> = unmined
            .filter(|one| settlement::is_due_again(one.state, one.age, one.since_sent, one.sends, patience))
            .map(|one| one.lineage)
            .take(RESEND)
            .collect();
        if due.is_empty() {
            return Ok(());
        }
        let outcomes = match self.journal.resend(self.lane, self.holder, &due, "overdue").await {
            Ok(outcomes) => outcomes,
            Err(tx_journal::Error::Store(error)) => return Err(error),
            Err(error) => {
                tracing::error!(event = "resend_failed", lane = %self.lane, %error, "journaled bytes were not sent again");
                return Ok(());
            }
        };
        let Some(head) = outcomes.first() else { return Ok(()) };
        match (lane.state, head.verdict) {
            (LaneState::Active, Verdict::NeedsFunds) => {
                tracing::warn!(event = "lane_paused", lane = %self.lane, signer = %lane.signer, reason = UNFUNDED, "the signer cannot pay: top it up, the lane goes on by itself");
                store::lanes::pause(&self.db, self.lane, self.holder, Some(UNFUNDED)).await?;
            }
            (LaneState::Paused, Verdict::Accepted | Verdict::NonceTooLow) if lane.reason.as_deref() == Some(UNFUNDED) => {
                store::lanes::pause(&self.db, self.lane, self.holder, None).await?;
            }
            _ => {}
        }
        Ok(())
    }

    fn show(&self, lane: &Lane, latest: Option<i64>, open: &[Open]) {
        let (label, signer) = (self.desk.label(), lane.signer.to_string());
        let labels = [label.as_str(), signer.as_str()];
        metrics::SIGNER_NONCE_FENCE.set(lane.next_nonce as f64, &labels);
        if let Some(latest) = latest {
            metrics::SIGNER_NONCE_LATEST.set(latest as f64, &labels);
        }
        metrics::SIGNER_IN_FLIGHT.set(open.len() as f64, &labels);
        metrics::SIGNER_OLDEST_PENDING_AGE.set(open.first().map_or(0.0, |one| one.age.as_secs_f64()), &labels);
        for state in LaneState::all() {
            metrics::SIGNER_LANE_STATE.set(f64::from(u8::from(state == lane.state)), &[&label, &signer, state.as_str()]);
        }
    }
}
