//! RpcQuorum: the chains this process talks to, their newest block and the price of the next one. The only writer of heads.
//! Calls nobody; everybody who needs a chain asks through its handle.

use super::supervisor::Probe;
use super::{Beat, Door, Fold, Stage, Wake};
use crate::chain::{Call, Chain, FeeQuote, Head, Simulated, SimulationError};
use crate::config;
use crate::store::{self, Db};
use crate::telemetry::metrics;
use futures::FutureExt;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What a chain looks like now.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The block that a majority of the endpoints has reached.
    pub reached: u64,
    pub head: Head,
    pub fees: FeeQuote,
}

/// A chain, what the operator set for it, and its newest view.
pub struct Desk {
    pub chain: Arc<dyn Chain>,
    pub settings: config::Chain,
    view: watch::Sender<Option<View>>,
    simulations: Door<Call, Result<Simulated, SimulationError>>,
}

/// Simulations in flight to one chain, each a batch of whatever waits.
const SIMULATIONS: usize = 4;
const CAPACITY: usize = 8_192;
/// How often is looked for endpoints that have connected anew.
const PROBE_EVERY: Duration = Duration::from_secs(2);

impl Desk {
    /// Tries a call against the latest block, together with whatever else waits.
    ///
    /// # Errors
    /// See [`SimulationError`].
    pub async fn simulate(&self, call: Call) -> Result<Simulated, SimulationError> {
        self.simulations.ask_waiting(call).await.unwrap_or(Err(SimulationError::Unavailable))
    }

    /// The chain id as metrics label it.
    #[must_use]
    pub fn label(&self) -> String {
        self.settings.id.to_string()
    }

    #[must_use]
    pub fn view(&self) -> Option<View> {
        *self.view.borrow()
    }

    /// Resolves when a newer block was seen.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Option<View>> {
        self.view.subscribe()
    }
}

#[derive(Clone)]
pub struct Handle {
    desks: Arc<HashMap<i64, Arc<Desk>>>,
}

impl Handle {
    #[must_use]
    pub fn desk(&self, chain_id: i64) -> Option<&Arc<Desk>> {
        self.desks.get(&chain_id)
    }

    pub fn desks(&self) -> impl Iterator<Item = &Arc<Desk>> {
        self.desks.values()
    }
}

/// Starts one head watcher a chain.
#[must_use]
pub fn start(stage: &Stage, db: &Db, chains: Vec<(config::Chain, Arc<dyn Chain>)>) -> (Handle, Vec<Probe>) {
    let mut desks = HashMap::new();
    let mut probes = Vec::new();
    for (settings, chain) in chains {
        let Ok(id) = i64::try_from(settings.id) else { continue };
        let every = settings.head_poll;
        let asked = chain.clone();
        let flush = move |calls: Vec<Call>| {
            let chain = asked.clone();
            async move { chain.simulate(calls).await }.boxed()
        };
        let simulations = stage.fold(Fold::new("rpc_simulations", settings.batch_requests, SIMULATIONS, Arc::new(flush)), CAPACITY);
        let desk = Arc::new(Desk { chain, settings, view: watch::channel(None).0, simulations });
        desks.insert(id, desk.clone());
        let (able, of) = (desk.clone(), desk.label());
        let ask = move || {
            let desk = able.clone();
            async move { desk.chain.probe().await }.boxed()
        };
        probes.push(
            Beat { name: "rpc_probe", of: desk.label(), every: PROBE_EVERY, wake: Wake::default(), round: Arc::new(ask) }.start(stage),
        );
        let db = db.clone();
        let round = move || {
            let (desk, db) = (desk.clone(), db.clone());
            async move { look(&desk, &db).await }.boxed()
        };
        probes.push(Beat { name: "rpc_quorum", of, every, wake: Wake::default(), round: Arc::new(round) }.start(stage));
    }
    (Handle { desks: Arc::new(desks) }, probes)
}

/// How long an unchanged head keeps its price.
const FEES_LAST: Duration = Duration::from_secs(30);

async fn look(desk: &Desk, db: &Db) {
    let heads = desk.chain.heads().await;
    let Some(reached) = heads.reached else { return };
    let known = desk.view();
    let newest =
        heads.endpoints.iter().filter_map(|endpoint| endpoint.head).filter(|head| head.number <= reached).max_by_key(|head| head.number);
    let Some(head) = newest else { return };
    // A lagging answer never moves the head back; a reorganisation shows another hash at the same height.
    if known.is_some_and(|view| reached < view.reached || (reached == view.reached && head.hash == view.head.hash)) {
        return;
    }
    let quote = tokio::time::timeout(FEES_LAST, desk.chain.fees()).await;
    let fees = match (quote, known) {
        (Ok(Ok(fees)), _) => fees,
        (_, Some(view)) => view.fees,
        (Ok(Err(error)), None) => {
            tracing::warn!(event = "fees_unknown", chain = desk.settings.id, %error, "nothing is priced before the market is known");
            return;
        }
        (Err(_), None) => return,
    };
    metrics::RPC_HEAD_BLOCK.set(reached as f64, &[&desk.label()]);
    desk.view.send_replace(Some(View { reached, head, fees }));
    let (Ok(id), Ok(number)) = (i64::try_from(desk.settings.id), i64::try_from(head.number)) else { return };
    if let Err(error) = store::facts::note_head(db, id, number, head.hash, fees.market(), fees.tx_type).await {
        tracing::debug!(%error, "the head is not noted");
    }
}
