//! Uses nonces up that nobody owns and that everything behind them waits for.

use super::Work;
use crate::actors::tx_journal::NOOP_GAS_MAX;
use crate::domain::encoding;
use crate::domain::lane_round::{self, OpenNonce};
use crate::store;
use crate::store::lanes::Lane;
use crate::store::settling::Gap;
use crate::telemetry::metrics;
use entity::ids::{JobId, LineageId};
use entity::values::Wei;
use std::time::Duration;
use uuid::Uuid;

impl Work {
    pub(super) async fn fill(
        &self,
        lane: &Lane,
        open: &[OpenNonce<'_>],
        latest: Option<i64>,
        head_for: Option<Duration>,
    ) -> Result<(), store::Error> {
        let Some(latest) = latest.filter(|_| self.desk.chain.calm()) else { return Ok(()) };
        let owned: Vec<i64> = open.iter().map(|one| one.nonce).collect();
        let gaps = lane_round::gaps(&owned, latest, lane.next_nonce, head_for, self.desk.settings.stuck);
        if gaps.is_empty() {
            return Ok(());
        }
        let gas = NOOP_GAS_MAX.unsigned_abs();
        let call_hash = encoding::call_hash(self.desk.settings.id, &lane.signer, &Wei::ZERO, &[], gas);
        let gaps: Vec<Gap> = gaps
            .into_iter()
            .map(|nonce| Gap { nonce, job: JobId(Uuid::now_v7()), lineage: LineageId(Uuid::now_v7()), call_hash })
            .collect();
        let filled = store::settling::fill_gaps(&self.db, self.lane, self.holder, &gaps, NOOP_GAS_MAX).await?;
        if !filled.is_empty() {
            metrics::GAP_FILLS.add(u64::try_from(filled.len()).unwrap_or(0), &[&self.desk.label(), &lane.signer.to_string()]);
            tracing::warn!(
                event = "lane_gap_filled", lane = %self.lane, signer = %lane.signer, nonces = ?filled,
                "a reorganisation undid strangers that had used these nonces up: transfers of nothing use them up again"
            );
        }
        Ok(())
    }
}
