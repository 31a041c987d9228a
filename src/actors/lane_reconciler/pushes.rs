//! Gives open nonces what they need, the head of the lane first: the same bytes again, a dearer attempt, a no-op.

use super::rpc_quorum::View;
use super::{UNFUNDED, Work, number, tx_journal};
use crate::chain::SendOutcome;
use crate::domain::fees::Quote;
use crate::domain::replacement::{self, Around, Rules, Step, Unmined};
use crate::domain::rpc_verdict::{Class, Verdict};
use crate::store;
use crate::store::lanes::Lane;
use crate::store::settling::Open;
use crate::telemetry::metrics;
use entity::ids::LineageId;
use entity::states::{AttemptPurpose, LaneState};
use std::time::Duration;

/// Most bytes sent again, and most attempts signed, in one round: the head of the lane first, the rest follows when it moves.
const RESEND: usize = 64;
const SIGN: usize = 32;

/// What a round wants done.
#[derive(Default)]
struct Wanted {
    send: Vec<LineageId>,
    sign: Vec<tx_journal::Priced>,
    capped: Vec<LineageId>,
    give_up: Vec<(LineageId, String)>,
}

impl Work {
    pub(super) async fn push(
        &self,
        lane: &Lane,
        open: &[Open],
        latest: Option<i64>,
        head_for: Option<Duration>,
        view: View,
    ) -> Result<(), store::Error> {
        let wanted = self.wanted(lane, open, latest, head_for, view);
        if !wanted.give_up.is_empty() {
            for (lineage, detail) in &wanted.give_up {
                tracing::warn!(event = "tx_given_up", %lineage, lane = %self.lane, detail, "the bytes are refused for good: a no-op will use the nonce up");
            }
            self.journal.give_up(self.lane, self.holder, &wanted.give_up).await?;
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

    fn wanted(&self, lane: &Lane, open: &[Open], latest: Option<i64>, head_for: Option<Duration>, view: View) -> Wanted {
        let rules = self.rules();
        let market = Quote { base_fee: view.fees.base_fee, priority_fee: view.fees.priority_fee };
        let calm = self.desk.chain.calm();
        let mut wanted = Wanted::default();
        for one in open.iter().filter(|one| latest.is_none_or(|latest| one.nonce >= latest)) {
            let head_for = head_for.filter(|_| latest == Some(one.nonce));
            let step = replacement::step(&unmined(one), &Around { head_for, block: view.reached, market, calm }, &rules);
            match step {
                Step::Wait => {}
                Step::Send | Step::Capped { send: true } if wanted.send.len() < RESEND => wanted.send.push(one.lineage),
                Step::Sign { purpose, price } if lane.state != LaneState::Frozen && wanted.sign.len() < SIGN => {
                    wanted.sign.push(tx_journal::Priced { lineage: one.lineage, purpose, price });
                }
                Step::GiveUp(class) if lane.state != LaneState::Frozen => {
                    wanted.give_up.push((one.lineage, format!("every endpoint answered {class}")))
                }
                Step::Send | Step::Capped { .. } | Step::Sign { .. } | Step::GiveUp(_) => {}
            }
            if matches!(step, Step::Capped { .. }) && !one.capped {
                wanted.capped.push(one.lineage);
            }
        }
        wanted
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
        match (lane.state, head) {
            (LaneState::Active, Some(Verdict::NeedsFunds)) => {
                tracing::warn!(event = "lane_paused", lane = %self.lane, signer = %lane.signer, reason = UNFUNDED, "the signer cannot pay: top it up, the lane goes on by itself");
                store::lanes::pause(&self.db, self.lane, self.holder, Some(UNFUNDED)).await?;
            }
            (LaneState::Paused, Some(Verdict::Accepted | Verdict::NonceTooLow)) if lane.reason.as_deref() == Some(UNFUNDED) => {
                store::lanes::pause(&self.db, self.lane, self.holder, None).await?;
            }
            _ => {}
        }
        Ok(())
    }
}

fn count(value: i32) -> u32 {
    u32::try_from(value).unwrap_or_default()
}

fn unmined(one: &Open) -> Unmined {
    Unmined {
        state: one.state,
        sends: count(one.sends),
        age: one.age,
        since_sent: one.since_sent,
        since_priced: one.since_priced,
        priced_block: one.priced_block.and_then(|block| u64::try_from(block).ok()),
        tried: one.tried,
        replacements: count(one.replacements),
        // A nonce that was unsigned when the no-op was wanted has it as its first attempt.
        noops: count(one.noops).max(u32::from(one.attempts.iter().any(|(_, purpose)| *purpose == AttemptPurpose::Noop))),
        noop: one.noop,
        answer: one.last_answer.as_deref().and_then(|word| word.parse::<Class>().ok()),
    }
}
