//! Whether the voters of a chain answer well enough for what cannot be taken back. Owns the shared window of their calls, its metric and
//! its log; decides by `domain::calm`. Fed by `endpoint`, asked by `pool`.

use crate::domain::calm::Window;
use crate::telemetry::metrics;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub struct Calm {
    /// The chain id as a label.
    chain: String,
    window: Mutex<Window>,
}

impl Calm {
    pub fn new(chain: u64) -> Self {
        let chain = chain.to_string();
        metrics::RPC_DESTRUCTIVE_FROZEN.set(0.0, &[&chain]);
        Self { chain, window: Mutex::default() }
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One call of a voter that was in rotation. That one which is out stays out is no news.
    pub fn record(&self, failed: bool) {
        let mut window = self.window();
        if !window.record(failed) {
            return;
        }
        let (failed, of) = window.failures();
        if window.is_calm() {
            metrics::RPC_DESTRUCTIVE_FROZEN.set(0.0, &[&self.chain]);
            tracing::warn!(
                event = "rpc_thawed",
                chain = self.chain,
                failed,
                of,
                "endpoints answer again; what ends a nonce or a job is decided again"
            );
        } else {
            metrics::RPC_DESTRUCTIVE_FROZEN.set(1.0, &[&self.chain]);
            tracing::warn!(
                event = "rpc_frozen",
                chain = self.chain,
                failed,
                of,
                "too many calls fail; nothing is superseded, abandoned or failed meanwhile"
            );
        }
    }

    pub fn is_calm(&self) -> bool {
        self.window().is_calm()
    }
}
