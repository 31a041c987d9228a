//! The settling of a lane belongs to one process at a time. A round that lasts longer than the lease, because endpoints are slow, keeps it;
//! one that lost it ends at once, and says so: all that it would still write would change nothing.

use super::Work;
use crate::store;
use crate::store::lanes::Leased;
use crate::telemetry::metrics;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long the others wait for a process that died, beside three rounds.
const GRACE: Duration = Duration::from_secs(5);

impl Work {
    pub(super) fn lease(&self) -> Duration {
        self.desk.settings.reconcile * 3 + GRACE
    }

    /// Takes or keeps the lease; None while another process has it.
    pub(super) async fn take(&self) -> Result<Option<Leased>, store::Error> {
        let taken = store::lanes::lease(&self.db, self.lane, self.holder, self.lease()).await?;
        if self.held.swap(taken.is_some(), Ordering::Relaxed) && taken.is_none() {
            self.lost();
        }
        Ok(taken)
    }

    /// Keeps the lease while a round goes on; comes back once another process has it.
    pub(super) async fn keep(&self) {
        let every = self.lease() / 4;
        loop {
            tokio::time::sleep(every).await;
            // While Postgres is away nobody takes the lease; every write checks it.
            if let Ok(false) = store::lanes::renew(&self.db, self.lane, self.holder, self.lease()).await {
                self.held.store(false, Ordering::Relaxed);
                return self.lost();
            }
        }
    }

    fn lost(&self) {
        metrics::LANE_LEASES_LOST.add(1, &[&self.desk.label(), &self.signer.to_string()]);
        tracing::warn!(
            event = "lane_lease_lost", lane = %self.lane, signer = %self.signer,
            "another process has taken over the settling of this lane: this one was silent for longer than its lease"
        );
    }
}
