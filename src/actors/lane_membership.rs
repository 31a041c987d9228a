//! Whether a signer is still a member, where a contract says who is: looked at now and then by the LaneReconciler under the lane's lease, and before a
//! lane takes work for the first time. A signer that is none takes no work, and takes it again by itself. What is open is settled as ever.

use super::rpc_quorum::{self, Desk};
use crate::store::lanes::Lane;
use crate::store::{self, Db};
use entity::states::LaneState;
use std::sync::{Mutex, PoisonError};
use tokio::time::Instant;

/// The first word of the reason of a lane that this pauses.
pub const NO_MEMBER: &str = "no_member";
/// Rounds of a lane between two looks, while it works.
const ROUNDS: u32 = 4;

/// When a lane was last looked at, and whether it was active then.
#[derive(Debug, Default)]
pub struct Watch(Mutex<Option<(Instant, bool)>>);

fn is_out(lane: &Lane) -> bool {
    lane.state == LaneState::Paused && lane.reason.as_deref().is_some_and(|why| why.starts_with(NO_MEMBER))
}

impl Watch {
    /// Looks when it is time to.
    ///
    /// # Errors
    /// See [`store::Error`].
    pub async fn watch(&self, db: &Db, desk: &Desk, lane: &Lane) -> Result<(), store::Error> {
        let every = if is_out(lane) { desk.settings.reconcile } else { desk.settings.reconcile * ROUNDS };
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Whatever let it run again knows nothing of members.
        let active = lane.state == LaneState::Active;
        let runs_again = |was_active: bool| active && !was_active;
        if desk.settings.membership.is_none() || last.is_some_and(|(at, was_active)| at.elapsed() < every && !runs_again(was_active)) {
            return Ok(());
        }
        if look(db, desk, lane).await? {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), active));
        }
        Ok(())
    }
}

/// False: no majority says anything, and everything stays as it is.
async fn look(db: &Db, desk: &Desk, lane: &Lane) -> Result<bool, store::Error> {
    let Some(membership) = &desk.settings.membership else { return Ok(true) };
    let told = desk.chain.flag(membership.contract, membership.data(lane.signer)).await.agreed();
    match told {
        None => return Ok(false),
        Some(false) => {
            let reason = format!(
                "{NO_MEMBER}: contract {} says that the signer is none; the lane goes on by itself once it is",
                membership.contract
            );
            if store::lanes::hold(db, lane.id, &reason).await? {
                tracing::warn!(event = "lane_paused", lane = %lane.id, signer = %lane.signer, reason, "the signer is no member");
            }
        }
        Some(true) if is_out(lane) => {
            if store::lanes::let_go(db, lane.id, NO_MEMBER).await? {
                tracing::info!(event = "lane_readmitted", lane = %lane.id, signer = %lane.signer, "the signer is a member again");
            }
        }
        Some(true) => {}
    }
    Ok(true)
}

/// Before lanes take work.
///
/// # Errors
/// See [`store::Error`].
pub async fn prime(db: &Db, chains: &rpc_quorum::Handle, lanes: &[Lane]) -> Result<(), store::Error> {
    for lane in lanes {
        let Some(desk) = chains.desk(lane.chain_id) else { continue };
        if !look(db, desk, lane).await? {
            store::lanes::hold(db, lane.id, &format!("{NO_MEMBER}: no majority has shown yet whether the signer is one")).await?;
        }
    }
    Ok(())
}
