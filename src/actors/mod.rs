//! Orders and owns: who waits for whom, and who alone may write what. Every actor is seen through a handle only.

mod beat;
mod fold;
pub mod intake;
pub mod lane_funds;
pub mod lane_membership;
pub mod lane_reconciler;
pub mod nonce_allocator;
pub mod outbox_publisher;
pub mod queue_reconciler;
pub mod rpc_quorum;
pub mod supervisor;
#[cfg(test)]
mod testing;
pub mod tx_journal;
pub mod worker;

pub use beat::{Beat, Wake};
pub use fold::{Door, Error as DoorError, Flush, Fold};

use supervisor::{Policy, Root};

/// Where actors live: an arbiter for their mailboxes, the main runtime for their work, the stop of the process.
#[derive(Clone)]
pub struct Stage {
    pub arbiter: actix::ArbiterHandle,
    pub runtime: tokio::runtime::Handle,
    pub root: Root,
}

impl Stage {
    /// Starts a group-commit actor; `capacity` counts what it has taken in and not yet answered.
    pub fn fold<I: Send + 'static, O: Send + 'static>(&self, fold: Fold<I, O>, capacity: usize) -> Door<I, O> {
        fold.start(&self.arbiter, self.runtime.clone(), Policy::default(), self.root.clone(), capacity)
    }
}
