//! Ends nonces: by a receipt that a majority showed deep enough, or by the proof that a stranger used the nonce up.

use super::rpc_quorum::View;
use super::{Work, number};
use crate::chain::{Receipt, ReceiptVotes};
use crate::domain::ballot::Facts;
use crate::domain::lane_round::{self, Counts, End, OpenNonce};
use crate::domain::quorum::Decision;
use crate::domain::{job, lineage};
use crate::fail;
use crate::store;
use crate::store::lanes::Lane;
use crate::store::settling::{Open, Settled, Superseded};
use crate::telemetry::metrics;
use entity::states::{JobState, LineageState};
use entity::values::Hash;
use serde_json::{Value, json};
use std::collections::HashMap;

impl Work {
    /// Looks at every open nonce that the account has used up at TX_CONFIRMATIONS. `nonces` are `open`, one for one.
    pub(super) async fn end(
        &self,
        lane: &Lane,
        open: &[Open],
        nonces: &[OpenNonce<'_>],
        settled: i64,
        view: View,
    ) -> Result<(), store::Error> {
        let hashes: Vec<Hash> = lane_round::used_up(nonces, settled).flat_map(|one| one.attempts.iter().map(|(hash, _)| *hash)).collect();
        if lane_round::used_up(nonces, settled).next().is_none() {
            return Ok(());
        }
        // After the count, and only from endpoints that are where the count was made.
        let told = self.desk.chain.receipts(hashes.clone(), view.reached).await;
        let told: HashMap<Hash, ReceiptVotes> = hashes.into_iter().zip(told).collect();
        let facts: HashMap<Hash, Decision<Option<Facts>>> = told.iter().map(|(hash, votes)| (*hash, shown(votes))).collect();
        let heights = facts
            .values()
            .filter_map(|decision| if let Decision::Agreed(Some(facts), _) = decision { Some(facts.block_number) } else { None });
        let canonical = self.canonical(heights.collect()).await;
        let at = self.at(view, self.desk.settings.confirmations);
        let gone = lane_round::used_up(nonces, settled).any(|one| lane_round::needs_beyond(one, &facts));
        let beyond =
            if gone { self.counted_at(lane, lane_round::settled_at(view.reached, self.desk.settings.reorg_lookback)).await } else { None };
        let counts = Counts { settled, beyond };
        let (mut ended, mut lost) = (Vec::new(), Vec::new());
        for (one, nonce) in open.iter().zip(nonces).filter(|(one, _)| one.nonce < settled) {
            match lane_round::end(nonce, counts, &facts, &canonical, at) {
                end @ End::Receipt { hash, .. } => ended.extend(told.get(&hash).and_then(|votes| self.settled(one, end, votes, view))),
                End::Stranger => lost.extend(self.superseded(one, counts, &told, view)),
                End::Unproven => {
                    tracing::warn!(event = "nonce_without_receipt", lineage = %one.lineage, nonce = one.nonce, "the nonce is used up and no majority shows a receipt of ours");
                }
                End::NotYet => {}
            }
        }
        fail::point("settle.decided");
        self.record_ends(&ended).await?;
        self.record_losses(lane, &lost).await?;
        fail::point("settle.committed");
        Ok(())
    }

    pub(super) async fn canonical(&self, mut heights: Vec<u64>) -> HashMap<u64, Hash> {
        heights.sort_unstable();
        heights.dedup();
        let told = self.desk.chain.block_hashes(heights.clone()).await;
        heights.into_iter().zip(told).filter_map(|(height, decision)| Some((height, decision.agreed().flatten()?))).collect()
    }

    fn settled(&self, one: &Open, end: End, votes: &ReceiptVotes, view: View) -> Option<Settled> {
        let End::Receipt { hash, purpose, facts, lineage: lineage_event, job: job_event } = end else { return None };
        let price = if let Decision::Agreed(Some(receipt), _) = &votes.decision { receipt.effective_gas_price } else { None };
        let proof = json!({
            "rule": "receipt", "head": view.reached, "confirmations": self.desk.settings.confirmations, "purpose": purpose.as_str(),
            "block": {"number": facts.block_number, "hash": facts.block_hash.to_string()},
            "votes": tally(votes), "answers": answers(votes),
        });
        Some(Settled {
            lineage: one.lineage,
            hash,
            lineage_event,
            job_event,
            block_number: number(facts.block_number),
            block_hash: facts.block_hash,
            gas_used: number(facts.gas_used),
            gas_price: price,
            proof: proof.to_string(),
            error: told_as(lineage_event, job_event, one),
        })
    }

    /// The proof that a stranger used the nonce up.
    fn superseded(&self, one: &Open, counts: Counts, told: &HashMap<Hash, ReceiptVotes>, view: View) -> Option<Superseded> {
        let hashes: Vec<Value> = one
            .attempts
            .iter()
            .filter_map(|(hash, _)| told.get(hash).map(|votes| (hash, votes)))
            .map(|(hash, votes)| json!({"hash": hash.to_string(), "votes": tally(votes), "answers": answers(votes)}))
            .collect();
        let unsigned = one.attempts.is_empty();
        let depth = if unsigned { self.desk.settings.confirmations } else { self.desk.settings.reorg_lookback };
        let (count, counted_at) =
            (counts.beyond.filter(|_| !unsigned).unwrap_or(counts.settled), lane_round::settled_at(view.reached, depth)?);
        let proof = json!({
            "rule": "consumed_by_stranger", "head": view.reached, "depth": depth,
            "account_nonce": {"count": count, "block": counted_at}, "absent": hashes,
        });
        Some(Superseded { lineage: one.lineage, proof: proof.to_string(), hashes: i32::try_from(one.attempts.len()).ok()? })
    }

    async fn record_ends(&self, ended: &[Settled]) -> Result<(), store::Error> {
        if ended.is_empty() {
            return Ok(());
        }
        let written = self.journal.settle(self.lane, self.holder, ended).await?;
        let label = self.desk.label();
        for one in written {
            let to = if one.state == JobState::Reverted { LineageState::Reverted } else { LineageState::Mined };
            metrics::TX_TRANSITIONS.add(1, &[&label, to.as_str()]);
            metrics::JOBS_FINISHED.add(1, &[one.kind.as_str(), one.state.as_str()]);
            metrics::TX_BROADCAST_TO_FINAL_SECONDS.record(one.since_sent.as_secs_f64(), &[&label]);
        }
        Ok(())
    }

    async fn record_losses(&self, lane: &Lane, lost: &[Superseded]) -> Result<(), store::Error> {
        if lost.is_empty() {
            return Ok(());
        }
        let (label, signer) = (self.desk.label(), lane.signer.to_string());
        for (lineage, kind, state) in self.journal.supersede(self.lane, self.holder, lost).await? {
            metrics::TX_TRANSITIONS.add(1, &[&label, LineageState::Superseded.as_str()]);
            metrics::FOREIGN_NONCE_USE.add(1, &[&label, &signer]);
            if state.is_final() {
                metrics::JOBS_FINISHED.add(1, &[kind.as_str(), state.as_str()]);
            }
            tracing::error!(
                event = "tx_superseded", %lineage, lane = %self.lane, %signer, job_state = %state,
                "somebody else sends with this key: its nonce was used up by a transaction that is not ours"
            );
        }
        Ok(())
    }
}

fn shown(votes: &ReceiptVotes) -> Decision<Option<Facts>> {
    votes.decision.clone().map(|receipt| {
        receipt.map(|Receipt { block_number, block_hash, succeeded, gas_used, .. }| Facts { block_number, block_hash, succeeded, gas_used })
    })
}

fn tally(votes: &ReceiptVotes) -> Value {
    json!({"agreeing": votes.votes.agreeing, "differing": votes.votes.differing, "abstaining": votes.votes.abstaining})
}

fn answers(votes: &ReceiptVotes) -> Value {
    votes
        .answers
        .iter()
        .map(|(endpoint, answer)| (endpoint.clone(), Value::from(answer.as_str())))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// What the client is told of an end that is no success.
fn told_as(nonce: lineage::Event, job: job::Event, one: &Open) -> (&'static str, &'static str, String) {
    match job {
        job::Event::NoopFinal { cancelled: true } => {
            ("cancelled", "Cancelled: a no-op used its nonce up", one.noop_detail.clone().unwrap_or_default())
        }
        job::Event::NoopFinal { cancelled: false } => {
            ("refused", "The chain refused the transaction; a no-op used its nonce up", one.noop_detail.clone().unwrap_or_default())
        }
        _ if nonce == (lineage::Event::ReceiptFinal { succeeded: false }) => {
            ("reverted", "The transaction reverted on the chain", String::new())
        }
        _ => ("", "", String::new()),
    }
}
