//! The parts of a role, put together and stopped in order. Every part gets only its own section of the configuration.

use super::Error;
use super::gauges::{self, Unusable};
use crate::actors::supervisor::{Probe, Root};
use crate::actors::{
    Stage, Wake, intake, lane_funds, lane_membership, lane_reconciler, nonce_allocator, outbox_publisher, queue_reconciler, rpc_quorum,
    tx_journal, worker,
};
use crate::chain::{BlockTag, Chain, Pool};
use crate::config::{self, Config};
use crate::delivery::Delivery;
use crate::domain::quorum::Decision;
use crate::domain::window;
use crate::http::Offers;
use crate::jobs;
use crate::signer::{Keyring, Vault};
use crate::store::{self, Db};
use crate::telemetry::metrics;
use entity::ids::WorkerId;
use entity::states::WorkerState;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// How long a part that is not there yet is waited for before it is asked again.
const AGAIN: Duration = Duration::from_millis(500);

/// What every role runs.
pub struct Engine {
    pub db: Db,
    pub delivery: Arc<Delivery>,
    pub intake: intake::Handle,
    pub chains: rpc_quorum::Handle,
    pub offers: Offers,
    pub probes: Vec<Probe>,
    pub worker: Option<Relayer>,
    stage: Stage,
}

/// What signs and sends.
pub struct Relayer {
    id: WorkerId,
    handle: worker::Handle,
}

/// Waits until `attempt` succeeds; tells once why it does not. None when the process is told to stop meanwhile.
async fn until<T, E: std::fmt::Display>(root: &Root, what: &'static str, mut attempt: impl AsyncFnMut() -> Result<T, E>) -> Option<T> {
    let mut told = String::new();
    loop {
        match root.token().run_until_cancelled(attempt()).await? {
            Ok(value) => return Some(value),
            Err(error) => {
                let text = error.to_string();
                if text != told {
                    tracing::warn!(event = "waiting", part = what, error = %text, "waiting for a part that is not ready");
                    told = text;
                }
            }
        }
        root.token().run_until_cancelled(tokio::time::sleep(AGAIN)).await?;
    }
}

/// Opens the database and waits until it can be used by this program: the writer, at the right version. None when the process is
/// told to stop meanwhile.
///
/// # Errors
/// A login that owns the schema: waiting does not cure it, and nothing is done under it.
async fn database(root: &Root, settings: &config::Database, board: &super::Board) -> Result<Option<Db>, Error> {
    let db = until(root, "postgres", async || {
        let db = Db::connect(settings).await;
        if let Err(error) = &db {
            board.set("postgres", Err(error.to_string()));
        }
        db
    })
    .await;
    let Some(db) = db else { return Ok(None) };
    let gauges_of = db.clone();
    metrics::before_reading(move || gauges_of.tell_connections());
    let found = until(root, "schema", async || {
        let usable = gauges::usable(&db.reader()).await;
        gauges::post(board, &usable);
        match usable {
            Err(owner @ Unusable::Owner) => Ok(Err(Error::Login(owner.to_string()))),
            Err(fault) => Err(fault),
            Ok(version_num) => Ok(Ok(version_num)),
        }
    })
    .await;
    let Some(found) = found else { return Ok(None) };
    if found.is_err() {
        db.close().await;
    }
    let server_version_num = found?;
    tracing::info!(event = "database_found", server_version_num, schema = migration::EXPECTED, "the database can be used");
    Ok(Some(db))
}

async fn chains(root: &Root, settings: &[config::Chain], board: &super::Board) -> Option<Vec<(config::Chain, Arc<dyn Chain>)>> {
    let mut found: Vec<(config::Chain, Arc<dyn Chain>)> = Vec::new();
    for chain in settings {
        let pool = until(root, "chain", async || {
            let pool = Pool::connect(chain).await;
            board.set("chains", pool.as_ref().map(|_| ()).map_err(ToString::to_string));
            pool
        })
        .await?;
        found.push((chain.clone(), Arc::new(pool)));
    }
    Some(found)
}

/// Counters of what is configured begin at 0: one that is born at 1 shows no increase, and the alert on it stays silent.
fn precreate(chains: &[(config::Chain, Arc<dyn Chain>)], signers: &config::SignerKeys) {
    for (settings, chain) in chains {
        let id = settings.id.to_string();
        let endpoints: Vec<String> = chain.endpoints().into_iter().map(|endpoint| endpoint.name).collect();
        let endpoints: Vec<&str> = endpoints.iter().map(String::as_str).collect();
        metrics::precreate(&[("chain", &[&id]), ("endpoint", &endpoints)]);
    }
    let pools: Vec<&str> = signers.pool_names().into_iter().collect();
    metrics::precreate(&[("pool", &pools)]);
}

/// Makes the lanes of new signers, at the nonce that a majority shows; lanes that exist keep their fence.
async fn register_lanes(root: &Root, db: &Db, keys: &Keyring, chains: &rpc_quorum::Handle) -> Option<()> {
    let known = until(root, "lanes", async || store::lanes::all(&db.reader()).await).await?;
    for desk in chains.desks() {
        let Ok(chain_id) = i64::try_from(desk.settings.id) else { continue };
        for (pool, signers) in keys.pools() {
            for signer in signers.iter().map(|signer| signer.address()) {
                let lane = known.iter().find(|lane| lane.chain_id == chain_id && lane.signer == signer);
                let nonce = match lane {
                    Some(lane) => lane.next_nonce,
                    None => {
                        until(root, "nonce", async || match desk.chain.consumed_nonces(vec![signer], BlockTag::Latest).await.pop() {
                            Some(Decision::Agreed(nonce, _)) => i64::try_from(nonce).map_err(|_| "a nonce out of range"),
                            _ => Err("no majority shows the nonce of a new signer"),
                        })
                        .await?
                    }
                };
                let settings = &desk.settings;
                let width = window::configured(settings.profile, settings.lane_width, settings.lane_widths.get(&signer).copied());
                if let Some(most) = window::most(settings.profile).filter(|most| width > *most) {
                    tracing::warn!(event = "lane_too_wide", chain = settings.id, %signer, width, most, profile = %settings.profile, "nodes of this profile lose or refuse nonces beyond their own window");
                }
                until(root, "lanes", async || store::lanes::register(db, chain_id, pool, signer, nonce, width, "startup").await).await?;
            }
        }
    }
    Some(())
}

impl Engine {
    /// Brings the parts up in the order of their needs. None when the process is told to stop before all are there.
    ///
    /// # Errors
    /// What no waiting will cure: a key that is no key, a queue that cannot be.
    pub async fn start(config: &Config, stage: Stage, board: &super::Board) -> Result<Option<Self>, Error> {
        let (Some(database_settings), Some(queue)) = (&config.database, &config.queue) else { return Err(Error::Incomplete) };
        let root = stage.root.clone();
        let delivery = Arc::new(Delivery::connect(queue, &config.service.instance_id)?);
        let Some(db) = database(&root, database_settings, board).await? else { return Ok(None) };
        let Some(found) = chains(&root, &config.chains, board).await else { return Ok(None) };
        precreate(&found, &config.signers);
        let (chains, mut probes) = rpc_quorum::start(&stage, &db, found);
        let publisher = Wake::default();
        let intake = intake::start(&stage, db.clone(), queue.max_attempts, publisher.clone());
        probes.push(outbox_publisher::start(&stage, db.clone(), delivery.clone(), queue.outbox_poll, queue.reconcile, publisher.clone()));
        probes.push(queue_reconciler::start(&stage, db.clone(), delivery.clone(), &queue.prefix, queue.reconcile, publisher));
        let worker = match (&config.journal, config.service.role.may_hold_keys() && !config.signers.is_empty()) {
            (Some(journal), true) => {
                let keys = Keyring::new(&config.signers)?;
                let vault = Vault::new(journal)?;
                let started = Self::start_relayer(config, queue, &stage, &db, &delivery, &chains, keys, vault, &mut probes).await?;
                let Some(started) = started else { return Ok(None) };
                Some(started)
            }
            _ => None,
        };
        let offers = Offers::default();
        if until(&root, "pools", async || gauges::offer(&db.reader(), &config.chains, &offers).await).await.is_none() {
            return Ok(None);
        }
        if let Some(journal) = &config.journal {
            let ids = gauges::JournalIds::of(journal);
            if until(&root, "journal", async || gauges::journal(&db.reader(), &ids, board).await).await.is_none() {
                return Ok(None);
            }
        }
        gauges::start(&stage, &db, &delivery, &chains, board, config, &offers);
        Ok(Some(Self { db, delivery, intake, chains, offers, probes, worker, stage }))
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of a relayer are these")]
    async fn start_relayer(
        config: &Config,
        queue: &config::Queue,
        stage: &Stage,
        db: &Db,
        delivery: &Arc<Delivery>,
        chains: &rpc_quorum::Handle,
        keys: Keyring,
        vault: Vault,
        probes: &mut Vec<Probe>,
    ) -> Result<Option<Relayer>, Error> {
        let id = WorkerId(Uuid::now_v7());
        if register_lanes(&stage.root, db, &keys, chains).await.is_none() {
            return Ok(None);
        }
        let signers: Vec<_> = keys.addresses().copied().collect();
        let journal = tx_journal::start(stage, db.clone(), keys, vault, chains.clone());
        let all = until(&stage.root, "lanes", async || store::lanes::all(&db.reader()).await).await;
        let Some(lanes) = all else { return Ok(None) };
        let lanes: Vec<_> = lanes.into_iter().filter(|lane| signers.contains(&lane.signer)).collect();
        let prime = async || {
            lane_funds::prime(db, chains, &lanes).await?;
            lane_membership::prime(db, chains, &lanes).await
        };
        if until(&stage.root, "lanes", prime).await.is_none() {
            return Ok(None);
        }
        let allocators = nonce_allocator::start(stage, db, &journal, &lanes);
        let instance = &config.service.instance_id;
        let me = store::workers::Start {
            id,
            instance,
            role: config.service.role.as_str(),
            version: env!("CARGO_PKG_VERSION"),
            signers: &signers,
            pool_size: config.database.as_ref().map_or(0, |database| database.pool_max),
        };
        if until(&stage.root, "worker", async || store::workers::register(db, &me, worker::STALE).await).await.is_none() {
            return Ok(None);
        }
        probes.extend(lane_reconciler::start(stage, db, &journal, chains, &lanes, id));
        let context = jobs::Context::new(chains.clone(), allocators, journal, queue.concurrency);
        let mut handle = worker::start(stage, db, delivery, queue, instance, id, jobs::run(context));
        probes.append(&mut handle.probes);
        Ok(Some(Relayer { id, handle }))
    }

    /// Stops taking, finishes or gives back what is at work, and says whether everything ended by itself before the deadline.
    pub async fn drain(&self, deadline: Duration) -> bool {
        self.intake.drain().await;
        let mut clean = true;
        if let Some(relayer) = &self.worker {
            let _ = store::workers::set_state(&self.db, relayer.id, WorkerState::Draining).await;
            clean = relayer.handle.close(deadline).await;
            let _ = store::lanes::release_leases(&self.db, relayer.id).await;
            if let Err(error) = store::workers::set_state(&self.db, relayer.id, WorkerState::Stopped).await {
                tracing::warn!(%error, "the worker could not tell that it stopped; it will be marked stale");
            }
        }
        self.stage.root.token().cancel();
        self.db.close().await;
        clean
    }
}

impl Engine {
    #[must_use]
    pub fn stop_token(&self) -> tokio_util::sync::CancellationToken {
        self.stage.root.token().clone()
    }
}

/// For the signs of life that readiness asks for.
pub const SIGN_OF_LIFE: Duration = Duration::from_secs(2);

/// Names an actor that gave no sign of life.
pub async fn silent(probes: &[Probe]) -> Option<&'static str> {
    for probe in probes {
        if probe.status(SIGN_OF_LIFE).await.is_err() || probe.vitals.busy_for() > SIGN_OF_LIFE * 2 {
            return Some(probe.actor);
        }
    }
    None
}

/// Asks the actors for a sign of life every two seconds, for readiness.
pub fn watch(engine: &Arc<Engine>, board: &super::Board, root: &Root) {
    let (engine, board, stop) = (engine.clone(), board.clone(), root.token().clone());
    tokio::spawn(async move {
        while !stop.is_cancelled() {
            let silent = silent(&engine.probes).await;
            board.set("actors", silent.map_or(Ok(()), |actor| Err(format!("{actor} gave no sign of life"))));
            let _ = stop.run_until_cancelled(tokio::time::sleep(SIGN_OF_LIFE)).await;
        }
    });
}
