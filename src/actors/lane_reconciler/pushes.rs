//! Gives open nonces what they need, the head of the lane first: the same bytes again, a dearer attempt, a no-op.

use super::rpc_quorum::View;
use super::{Work, number, resize, rules, tx_journal};
use crate::chain::SendOutcome;
use crate::domain::lane_round::{self, Look, OpenNonce};
use crate::domain::window;
use crate::store;
use crate::store::lanes::Lane;
use crate::store::settling::Open;
use crate::telemetry::metrics;
use entity::ids::LaneId;
use std::collections::HashMap;
use std::time::Duration;

impl Work {
    pub(super) async fn push(
        &self,
        lane: &Lane,
        rows: &[Open],
        open: &[OpenNonce<'_>],
        latest: Option<i64>,
        head_for: Option<Duration>,
        view: View,
    ) -> Result<(), store::Error> {
        let market = view.fees.market();
        let look = Look { state: lane.state, latest, head_for, block: view.reached, market, calm: self.desk.chain.calm() };
        let settings = &self.desk.settings;
        let gas: HashMap<_, _> = rows.iter().map(|row| (row.lineage, row.gas_limit)).collect();
        let width = window::effective(lane.width, lane.delegated);
        let next = latest.unwrap_or(lane.latest_nonce);
        let mut wanted = lane_round::wanted_by(open, &look, |one| {
            rules::of(one, gas.get(&one.lineage).copied().unwrap_or_default(), next, width, settings)
        });
        if !wanted.give_up.is_empty() {
            let resize::Verdicts { mut sign, give_up } = self.resize(&wanted.give_up, open, view).await?;
            wanted.sign.append(&mut sign);
            for (lineage, detail) in &give_up {
                tracing::warn!(event = "tx_given_up", %lineage, lane = %self.lane, detail, "the bytes are refused for good: a no-op will use the nonce up");
            }
            if !give_up.is_empty() {
                self.journal.give_up(self.lane, self.holder, &give_up).await?;
            }
        }
        if !wanted.capped.is_empty() && self.journal.note_capped(self.lane, self.holder, &wanted.capped).await? > 0 {
            metrics::REPLACEMENT_CAPPED.add(1, &[&self.desk.label(), &lane.signer.to_string()]);
            tracing::warn!(event = "replacement_capped", lane = %self.lane, signer = %lane.signer, nonces = wanted.capped.len(),
                "the limit of price or count is reached: the best bytes are sent again until the market falls");
        }
        if !wanted.sign.is_empty() {
            let outcomes = self.journal.replace(self.lane, self.holder, number(view.reached), &wanted.sign).await;
            heeded(self.lane, outcomes)?;
        }
        if wanted.send.is_empty() {
            return Ok(());
        }
        heeded(self.lane, self.journal.resend(self.lane, self.holder, &wanted.send, "overdue").await)
    }

    /// The head alone, at once: its signer was topped up.
    pub(super) async fn send_head(&self, open: &[OpenNonce<'_>], latest: Option<i64>) -> Result<(), store::Error> {
        let unmined = |one: &&OpenNonce<'_>| latest.is_none_or(|latest| one.nonce >= latest);
        let Some(head) = open.iter().find(unmined) else { return Ok(()) };
        heeded(self.lane, self.journal.resend(self.lane, self.holder, &[head.lineage], "funded").await)
    }
}

/// What was answered is on the rows; what the next round does follows from there.
fn heeded(lane: LaneId, outcomes: Result<Vec<SendOutcome>, tx_journal::Error>) -> Result<(), store::Error> {
    match outcomes {
        Ok(_) => Ok(()),
        Err(tx_journal::Error::Store(error)) => Err(error),
        Err(error) => {
            tracing::error!(event = "resend_failed", %lane, %error, "journaled bytes were not sent again");
            Ok(())
        }
    }
}
