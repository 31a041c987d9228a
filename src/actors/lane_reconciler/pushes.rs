//! Gives open nonces what they need, the head of the lane first: the same bytes again, a dearer attempt, a no-op.

use super::rpc_quorum::View;
use super::{Work, number, tx_journal};
use crate::chain::SendOutcome;
use crate::domain::fees::Quote;
use crate::domain::lane_round::{self, Heed, Look, OpenNonce, UNFUNDED};
use crate::domain::replacement::Rules;
use crate::domain::rpc_verdict::{Class, Verdict};
use crate::store;
use crate::store::lanes::Lane;
use crate::telemetry::metrics;
use entity::ids::LineageId;
use std::time::Duration;

impl Work {
    pub(super) async fn push(
        &self,
        lane: &Lane,
        open: &[OpenNonce<'_>],
        latest: Option<i64>,
        head_for: Option<Duration>,
        view: View,
    ) -> Result<(), store::Error> {
        if lane_round::is_through(lane.state, lane.reason.as_deref(), open, latest) {
            store::lanes::pause(&self.db, self.lane, self.holder, None).await?;
        }
        let market = Quote { base_fee: view.fees.base_fee, priority_fee: view.fees.priority_fee };
        let look = Look { state: lane.state, latest, head_for, block: view.reached, market, calm: self.desk.chain.calm() };
        let wanted = lane_round::wanted(open, &look, &self.rules());
        if !wanted.give_up.is_empty() {
            let said = |(lineage, class): &(LineageId, Class)| (*lineage, format!("every endpoint answered {class}"));
            let given_up: Vec<_> = wanted.give_up.iter().map(said).collect();
            for (lineage, detail) in &given_up {
                tracing::warn!(event = "tx_given_up", %lineage, lane = %self.lane, detail, "the bytes are refused for good: a no-op will use the nonce up");
            }
            self.journal.give_up(self.lane, self.holder, &given_up).await?;
        }
        if !wanted.capped.is_empty() && self.journal.note_capped(self.lane, self.holder, &wanted.capped).await? > 0 {
            metrics::REPLACEMENT_CAPPED.add(1, &[&self.desk.label(), &lane.signer.to_string()]);
            tracing::warn!(event = "replacement_capped", lane = %self.lane, signer = %lane.signer, nonces = wanted.capped.len(),
                "the limit of price or count is reached: the best bytes are sent again until the market falls");
        }
        if !wanted.sign.is_empty() {
            let outcomes = self.journal.replace(self.lane, self.holder, number(view.reached), &wanted.sign).await;
            self.heeded(lane, outcomes).await?;
        }
        if wanted.send.is_empty() {
            return Ok(());
        }
        self.heeded(lane, self.journal.resend(self.lane, self.holder, &wanted.send, "overdue").await).await
    }

    async fn heeded(&self, lane: &Lane, outcomes: Result<Vec<SendOutcome>, tx_journal::Error>) -> Result<(), store::Error> {
        match outcomes {
            Ok(outcomes) => self.heed(lane, outcomes.first().map(|outcome| outcome.verdict)).await,
            Err(tx_journal::Error::Store(error)) => Err(error),
            Err(error) => {
                tracing::error!(event = "resend_failed", lane = %self.lane, %error, "journaled bytes were not sent again");
                Ok(())
            }
        }
    }

    fn rules(&self) -> Rules {
        let settings = &self.desk.settings;
        Rules {
            stuck: settings.stuck,
            patience: settings.reconcile,
            bump_bps: settings.fee_bump_bps,
            floor: settings.min_priority_fee,
            limit: settings.max_fee_per_gas,
            noop_limit: settings.noop_max_fee_per_gas,
            max_replacements: settings.max_replacements,
        }
    }

    /// Pauses the lane when its signer cannot pay for the head, and lets it go on when the head is taken again.
    async fn heed(&self, lane: &Lane, head: Option<Verdict>) -> Result<(), store::Error> {
        match lane_round::heed(lane.state, lane.reason.as_deref(), head) {
            Some(Heed::Pause) => {
                tracing::warn!(event = "lane_paused", lane = %self.lane, signer = %lane.signer, reason = UNFUNDED, "the signer cannot pay: top it up, the lane goes on by itself");
                store::lanes::pause(&self.db, self.lane, self.holder, Some(UNFUNDED)).await?;
            }
            Some(Heed::Resume) => {
                store::lanes::pause(&self.db, self.lane, self.holder, None).await?;
            }
            None => {}
        }
        Ok(())
    }
}
