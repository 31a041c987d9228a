//! Gives open nonces what they need, the head of the lane first: the same bytes again, a dearer attempt, a no-op.

use super::rpc_quorum::View;
use super::{Work, number, resize, tx_journal};
use crate::chain::SendOutcome;
use crate::domain::fees;
use crate::domain::lane_round::{self, Look, OpenNonce};
use crate::domain::replacement::Rules;
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
        let (gas, rules): (HashMap<_, _>, _) = (rows.iter().map(|row| (row.lineage, row.gas_limit)).collect(), self.rules());
        let width = if lane.delegated { lane.width.min(window::DELEGATED) } else { lane.width };
        let next = latest.unwrap_or(lane.latest_nonce);
        let mut wanted = lane_round::wanted_by(open, &look, |one| match lane_round::held_back(one, next, width, rules.patience) {
            Some(step) => Err(step),
            None => Ok(self.at_gas(rules, gas.get(&one.lineage).copied().unwrap_or_default())),
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

    pub(super) fn rules(&self) -> Rules {
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

    /// The rules with the limit on a whole fee, at the gas of this nonce.
    pub(super) fn at_gas(&self, rules: Rules, gas_limit: i64) -> Rules {
        let (total, gas) = (self.desk.settings.max_total_fee, gas_limit.unsigned_abs());
        Rules {
            limit: fees::limit_at(gas, rules.limit, total),
            noop_limit: fees::limit_at(gas.min(tx_journal::NOOP_GAS_MAX.unsigned_abs()), rules.noop_limit, total),
            ..rules
        }
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
