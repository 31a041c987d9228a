//! The endpoints of a chain, as far as an operator asks: by host, never by URL.

use crate::chain::{Chain, EndpointView, Pool};
use crate::config::Config;
use serde::Serialize;
use std::time::Duration;
use tokio::time::timeout;

/// Longest that somebody who asks waits for endpoints.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Endpoint {
    pub chain_id: u64,
    pub name: String,
    pub role: &'static str,
    /// 1 is perfect, 0 is out of rotation.
    pub score: f64,
    pub circuit: &'static str,
    pub head: Option<u64>,
    pub lag: u64,
    pub chain_id_ok: Option<bool>,
    pub requests: u64,
    pub errors: u64,
    /// What it can do; null until it has shown it.
    pub finalized_tag: Option<bool>,
    pub block_receipts: Option<bool>,
    pub batch_requests: Option<usize>,
    pub request_bytes: Option<usize>,
}

impl Endpoint {
    fn new(chain_id: u64, view: EndpointView) -> Self {
        Self {
            chain_id,
            name: view.name,
            role: view.role.as_str(),
            score: view.score,
            circuit: view.circuit.as_str(),
            head: view.head,
            lag: view.lag,
            chain_id_ok: view.chain_id_ok,
            requests: view.requests,
            errors: view.errors,
            finalized_tag: view.capabilities.finalized_tag,
            block_receipts: view.capabilities.block_receipts,
            batch_requests: view.capabilities.batch_requests,
            request_bytes: view.capabilities.request_bytes,
        }
    }
}

/// The endpoints of a chain, the worst first.
#[must_use]
pub fn view(chain: &dyn Chain) -> Vec<Endpoint> {
    let mut endpoints: Vec<_> = chain.endpoints().into_iter().map(|view| Endpoint::new(chain.chain_id(), view)).collect();
    endpoints.sort_by(|a, b| a.score.total_cmp(&b.score));
    endpoints
}

/// The endpoints of the configured chains as they are seen from here. A chain whose endpoints do not show it has none.
pub async fn examine(config: &Config) -> Vec<Endpoint> {
    let one = async |chain| {
        let Ok(pool) = Pool::connect(chain).await else { return Vec::new() };
        // What has not answered by then is unknown.
        let _ = timeout(PATIENCE, async { tokio::join!(pool.heads(), pool.probe()) }).await;
        view(&pool)
    };
    futures::future::join_all(config.chains.iter().map(one)).await.into_iter().flatten().collect()
}
