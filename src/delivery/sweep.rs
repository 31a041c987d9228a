//! Finds the deliveries whose process is gone and hands them on. Every consumer runs it; Redis lets one of them through per interval.

use super::{
    error::Error,
    keys::Keys,
    pool::Pool,
    scripts::{self, Invocation},
};
use crate::telemetry::metrics::QUEUE_STALLED;
use std::time::Duration;
use tokio::time::sleep;

/// In one call; more are left to the next, which follows at once.
const MOST: usize = 1000;

/// Until dropped.
pub async fn run(pool: Pool, keys: Keys, interval: Duration) {
    loop {
        sleep(interval).await;
        loop {
            match once(&pool, &keys, interval).await {
                Ok(MOST) => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::debug!(%error, "sweep for lost deliveries");
                    break;
                }
            }
        }
    }
}

async fn once(pool: &Pool, keys: &Keys, interval: Duration) -> Result<usize, Error> {
    // A little less than the interval, else the gate of one round would still be shut in the next.
    let gate = interval * 4 / 5;
    let call = Invocation::default()
        .key(keys.of("active"))
        .key(keys.of("stalled-check"))
        .arg(keys.base.clone())
        .arg(gate.as_millis().max(1).to_string())
        .arg(MOST.to_string());
    let handed: Vec<String> = scripts::read("sweep", scripts::run_one(pool, "sweep", &scripts::SWEEP, call).await?)?;
    if !handed.is_empty() {
        QUEUE_STALLED.add(handed.len() as u64, &[]);
        tracing::warn!(deliveries = handed.len(), first = %handed[0], "deliveries of a lost process handed on");
    }
    Ok(handed.len())
}
