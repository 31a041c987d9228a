//! Bytes that every node refuses for their gas: their call is estimated anew, and another limit is another attempt at the same nonce. Only where that
//! leads nowhere is the nonce given up to a no-op.

use super::rpc_quorum::View;
use super::{Work, count, rules};
use crate::chain::{Call, SimulationError};
use crate::domain::fees::{self, Raised};
use crate::domain::gas::{self, Resized};
use crate::domain::lane_round::{OpenNonce, Priced};
use crate::domain::rpc_verdict::Class;
use crate::store::journal::Stored;
use crate::store::{self};
use entity::ids::LineageId;
use entity::states::AttemptPurpose;
use std::collections::HashMap;

/// Most calls that one round estimates anew.
const ESTIMATES: usize = 16;

/// What becomes of refused nonces.
#[derive(Default)]
pub(super) struct Verdicts {
    pub sign: Vec<Priced>,
    pub give_up: Vec<(LineageId, String)>,
}

impl Work {
    pub(super) async fn resize(
        &self,
        refused: &[(LineageId, Class)],
        open: &[OpenNonce<'_>],
        view: View,
    ) -> Result<Verdicts, store::Error> {
        let mut verdicts = Verdicts::default();
        let said = |class: Class| format!("every endpoint answered {class}");
        let (mut about_gas, others): (Vec<_>, Vec<_>) = refused.iter().copied().partition(|(_, class)| class.is_about_gas());
        verdicts.give_up.extend(others.into_iter().map(|(lineage, class)| (lineage, said(class))));
        if about_gas.is_empty() {
            return Ok(verdicts);
        }
        // Each block begins elsewhere: some whose estimates nobody answers do not keep the others waiting.
        let turn = usize::try_from(view.reached % 1_000).unwrap_or_default() * ESTIMATES % about_gas.len();
        about_gas.rotate_left(turn);
        let classes: HashMap<LineageId, Class> = about_gas.into_iter().take(ESTIMATES).collect();
        let nonces: HashMap<LineageId, &OpenNonce<'_>> = open.iter().map(|one| (one.lineage, one)).collect();
        let ids: Vec<LineageId> = classes.keys().copied().collect();
        let stored = self.journal.calls(&ids).await?;
        let estimates = futures::future::join_all(stored.iter().map(|call| self.estimate(call))).await;
        for (call, estimate) in stored.iter().zip(estimates) {
            let (Some(class), Some(one)) = (classes.get(&call.lineage), nonces.get(&call.lineage)) else { continue };
            let give_up = |why: String| (call.lineage, format!("{}; {why}", said(*class)));
            if call.gas_given {
                verdicts.give_up.push(give_up(format!("its gas limit of {} was given by the caller", call.gas_limit)));
                continue;
            }
            if one.unmined.replacements >= self.desk.settings.max_replacements {
                verdicts.give_up.push(give_up("no further attempt is allowed".into()));
                continue;
            }
            let bounds = gas::Bounds { block_gas_limit: view.head.gas_limit, share_bps: self.desk.settings.block_gas_share_bps };
            let refused = u64::try_from(call.gas_limit).unwrap_or_default();
            match estimate {
                Ok(estimate) => match gas::resized(refused, estimate, self.desk.settings.gas_buffer_bps, &call.data, bounds) {
                    Resized::To(limit) => verdicts.sign.extend(self.priced(one, limit, view)),
                    Resized::Same => verdicts.give_up.push(give_up(format!("a new estimate asks for the same {refused} gas"))),
                    Resized::Never(out) => verdicts.give_up.push(give_up(out.to_string())),
                },
                Err(SimulationError::Reverted { reason, .. }) => verdicts.give_up.push(give_up(format!("the call reverts now: {reason}"))),
                // Nobody can say now: the next round asks again.
                Err(SimulationError::InsufficientFunds | SimulationError::Unavailable) => {}
            }
        }
        Ok(verdicts)
    }

    async fn estimate(&self, call: &Stored) -> Result<u64, SimulationError> {
        let call = Call { from: call.signer, to: Some(call.to), value: call.value, data: call.data.clone(), gas: None };
        self.desk.simulate(call).await.map(|simulated| simulated.gas_estimate)
    }

    /// Dearer by the rule, because a pool may hold the old bytes after all; at the limit for the same price, which no pool with them takes
    /// and every other does.
    fn priced(&self, one: &OpenNonce<'_>, limit: u64, view: View) -> Option<Priced> {
        let (tried, gas_limit) = (one.unmined.tried?, i64::try_from(limit).ok()?);
        let rules = rules::at_gas(gas_limit, &self.desk.settings);
        let price = match fees::raised(tried, view.fees.market(), rules.bump_bps, rules.floor, rules.limit) {
            Raised::To(price) => price,
            _ => tried,
        };
        tracing::info!(
            event = "tx_resized", lineage = %one.lineage, lane = %self.lane, gas_limit, attempts = count(i32::try_from(one.attempts.len()).unwrap_or(i32::MAX)),
            "the bytes are refused for their gas: another attempt at the same nonce has what a new estimate asks for"
        );
        Some(Priced { lineage: one.lineage, purpose: AttemptPurpose::Replacement, price, gas_limit: Some(gas_limit) })
    }
}
