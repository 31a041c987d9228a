//! Looks at the parts every two seconds: what readiness says, and the figures that operators see. Reads only.

use super::Board;
use crate::actors::{Beat, Stage, Wake, rpc_quorum};
use crate::config::{self, Config};
use crate::delivery::Delivery;
use crate::http::{Offer, Offers};
use crate::store::{self, Db, Reader};
use crate::telemetry::metrics;
use entity::states::{JobState, WorkerState};
use futures::FutureExt;
use std::sync::Arc;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(2);
/// The figures cost a few index scans; one look in so many rounds is enough.
const FIGURES_EVERY: u32 = 3;

/// Why the database cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unusable {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("PostgreSQL {0} is too old: 16 or newer is needed")]
    TooOld(i32),
    #[error("the server is a standby: it cannot be written to")]
    Standby,
    #[error("the login of DATABASE_URL owns schema holdfast or may create in it: the runtime needs a login that owns nothing")]
    Owner,
}

impl Unusable {
    /// The readiness check that it fails.
    fn check(&self) -> &'static str {
        match self {
            Self::Store(store::Error::Schema { .. }) | Self::Owner => "schema",
            Self::Store(_) | Self::TooOld(_) | Self::Standby => "postgres",
        }
    }
}

/// Tells readiness what was found of the database.
pub fn post(board: &Board, usable: &Result<i32, Unusable>) {
    for check in ["postgres", "schema"] {
        let fault = usable.as_ref().err().filter(|fault| fault.check() == check);
        board.set(check, fault.map_or(Ok(()), |fault| Err(fault.to_string())));
    }
}

/// Whether this program may work on this database; the `server_version_num` of its server.
///
/// # Errors
/// What is wrong with it.
pub async fn usable(db: &Reader) -> Result<i32, Unusable> {
    let server = store::facts::server(db).await?;
    if server.version_num < 160_000 {
        return Err(Unusable::TooOld(server.version_num / 10_000));
    }
    if server.in_recovery {
        return Err(Unusable::Standby);
    }
    if server.schema != Some(migration::EXPECTED) {
        return Err(store::Error::Schema { found: server.schema.unwrap_or(0), expected: migration::EXPECTED }.into());
    }
    if server.may_create {
        return Err(Unusable::Owner);
    }
    Ok(server.version_num)
}

/// What readiness knows of the journal keys: never a key.
pub struct JournalIds {
    held: Vec<String>,
    active: String,
}

impl JournalIds {
    pub fn of(journal: &config::Journal) -> Self {
        Self { held: journal.keys.keys().cloned().collect(), active: journal.active.clone() }
    }
}

/// Tells readiness whether every key that open rows need is held, and whether the active one may still seal; and shows how much each has.
///
/// # Errors
/// See [`store::Error`]: nothing was told.
pub async fn journal(db: &Reader, ids: &JournalIds, board: &Board) -> Result<(), store::Error> {
    let seals = store::journal_keys::seals(db).await?;
    for (id, sealed) in &seals {
        metrics::JOURNAL_KEY_SEALS.set(*sealed as f64, &[id]);
    }
    let missing = store::journal_keys::missing(db, &ids.held).await?;
    let spent = seals.iter().any(|(id, sealed)| *id == ids.active && *sealed >= config::JOURNAL_SEALS_MAX);
    board.set(
        "journal",
        if !missing.is_empty() {
            Err(format!("TX_JOURNAL_KEYS lacks {}: open rows are encrypted with it, put it back", missing.join(", ")))
        } else if spent {
            Err(format!("journal key {} has sealed as many rows as a key may: make another the active one", ids.active))
        } else {
            Ok(())
        },
    );
    Ok(())
}

#[derive(Clone)]
struct Work {
    db: Db,
    delivery: Arc<Delivery>,
    chains: rpc_quorum::Handle,
    board: Board,
    configured: Arc<Vec<config::Chain>>,
    offers: Offers,
    /// The ids of the journal keys that are held, and the active one.
    journal: Option<Arc<JournalIds>>,
    /// Whether an unsafe Redis makes the process unready or is only told.
    strict: bool,
    round: Arc<std::sync::atomic::AtomicU32>,
}

/// Reads which pools jobs may name.
///
/// # Errors
/// See [`store::Error`].
pub async fn offer(db: &Reader, chains: &[config::Chain], offers: &Offers) -> Result<(), store::Error> {
    let mut pools: Vec<_> = store::lanes::all(db).await?.into_iter().map(|lane| (lane.chain_id, lane.pool)).collect();
    pools.sort();
    pools.dedup();
    offers.set(Offer { chains: chains.iter().filter_map(|chain| i64::try_from(chain.id).ok()).collect(), pools });
    Ok(())
}

/// Starts the watch.
pub fn start(
    stage: &Stage,
    db: &Db,
    delivery: &Arc<Delivery>,
    chains: &rpc_quorum::Handle,
    board: &Board,
    config: &Config,
    offers: &Offers,
) {
    let work = Work {
        db: db.clone(),
        delivery: delivery.clone(),
        chains: chains.clone(),
        board: board.clone(),
        configured: Arc::new(config.chains.clone()),
        offers: offers.clone(),
        journal: config.journal.as_ref().map(JournalIds::of).map(Arc::new),
        strict: config.service.infrastructure_required,
        round: Arc::default(),
    };
    let round = move || {
        let work = work.clone();
        async move { work.look().await }.boxed()
    };
    let _ = Beat { name: "gauges", of: String::new(), every: EVERY, wake: Wake::default(), round: Arc::new(round) }.start(stage);
}

impl Work {
    async fn look(&self) {
        let reader = self.db.reader();
        let usable = usable(&reader).await;
        post(&self.board, &usable);
        if usable.is_ok()
            && let Err(error) = offer(&reader, &self.configured, &self.offers).await
        {
            tracing::debug!(%error, "the pools are not read this time");
        }
        self.redis().await;
        let blind: Vec<String> = self.chains.desks().filter(|desk| desk.view().is_none()).map(|desk| desk.label()).collect();
        self.board
            .set("chains", if blind.is_empty() { Ok(()) } else { Err(format!("no majority shows a head of chain {}", blind.join(", "))) });
        if !self.round.fetch_add(1, std::sync::atomic::Ordering::Relaxed).is_multiple_of(FIGURES_EVERY) {
            return;
        }
        if let Some(ids) = &self.journal
            && let Err(error) = journal(&reader, ids, &self.board).await
        {
            tracing::debug!(%error, "the journal keys are not looked at this time");
        }
        if let Err(error) = self.figures(&reader).await {
            tracing::debug!(%error, "no figures this time");
        }
    }

    async fn redis(&self) {
        let facts = self.delivery.check().await;
        metrics::REDIS_UP.set(f64::from(u8::from(facts.is_ok())), &[]);
        self.board.set("redis", facts.as_ref().map(|_| ()).map_err(ToString::to_string));
        if let Ok(facts) = &facts {
            let safe = facts.never_evicts();
            metrics::REDIS_EVICTION_POLICY_OK.set(f64::from(u8::from(safe)), &[]);
            let (major, minor, patch) = facts.version;
            self.board.set(
                "redis_version",
                if facts.is_supported() { Ok(()) } else { Err(format!("Redis {major}.{minor}.{patch} is too old: 7 or newer is needed")) },
            );
            if !safe {
                tracing::warn!(event = "redis_may_evict", "maxmemory-policy is not noeviction: Redis may delete deliveries and locks");
            }
            let refused = !safe && self.strict;
            self.board.set(
                "redis_eviction",
                if refused { Err("maxmemory-policy is not noeviction: Redis may delete deliveries and locks".into()) } else { Ok(()) },
            );
        }
        if let Ok(counts) = self.delivery.counts().await {
            for (state, count) in [("ready", counts.ready()), ("delayed", counts.delayed), ("active", counts.active)] {
                metrics::QUEUE_DEPTH.set(count as f64, &[state]);
            }
            metrics::QUEUE_PAUSED.set(f64::from(u8::from(counts.paused)), &[]);
        }
    }

    async fn figures(&self, reader: &Reader) -> Result<(), store::Error> {
        let figures = store::facts::figures(reader).await?;
        // Of the ended ones only those that somebody must look at are counted; the others grow without end and are in counters.
        for state in
            JobState::all().into_iter().filter(|state| !state.is_final() || matches!(state, JobState::Dead | JobState::Quarantined))
        {
            let count = figures.jobs.iter().find(|(found, _)| *found == state).map_or(0, |(_, count)| *count);
            metrics::JOBS.set(count as f64, &[state.as_str()]);
        }
        let seconds = |age: Option<Duration>| age.unwrap_or_default().as_secs_f64();
        metrics::JOBS_OLDEST_READY_AGE.set(seconds(figures.oldest_ready), &[]);
        metrics::JOBS_OLDEST_PROCESSING_AGE.set(seconds(figures.oldest_processing), &[]);
        metrics::OUTBOX_PENDING.set(figures.outbox_pending as f64, &[]);
        metrics::OUTBOX_OLDEST_DUE_AGE.set(seconds(figures.oldest_outbox), &[]);
        for desk in self.chains.desks() {
            let label = desk.label();
            for state in entity::states::LineageState::all().into_iter().filter(|state| !state.is_final()) {
                let same = |(chain, found, _): &&(i64, String, i64)| chain.to_string() == label && found == state.as_str();
                metrics::TX_OPEN
                    .set(figures.lineages.iter().find(same).map_or(0, |(_, _, count)| *count) as f64, &[&label, state.as_str()]);
            }
        }
        let workers = store::workers::list(reader).await?;
        for state in WorkerState::all() {
            metrics::WORKERS.set(workers.iter().filter(|worker| worker.state == state).count() as f64, &[state.as_str()]);
        }
        let alive = workers.iter().filter(|worker| !matches!(worker.state, WorkerState::Stopped | WorkerState::Stale));
        metrics::WORKER_HEARTBEAT_AGE.set(alive.map(|worker| worker.heartbeat_age.as_secs_f64()).fold(0.0, f64::max), &[]);
        Ok(())
    }
}
