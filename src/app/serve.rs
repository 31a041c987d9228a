//! `serve`: the service from its first health check to its last commit. Health answers before anything else is there; SIGTERM and
//! SIGINT drain: no new work, what is at work finishes or is given back, then the connections close.

use super::engine::{self, Engine};
use super::{Board, Error};
use crate::actors::Stage;
use crate::actors::supervisor::Root;
use crate::config::{Config, Role};
use crate::http::admin::Late;
use crate::telemetry::logs::{self, Identity};
use crate::telemetry::{self, metrics};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The exit code of a drain that had to cut work short at its deadline.
const CUT_SHORT: i32 = 5;

/// Runs the service until it is told to stop; gives the exit code.
///
/// # Errors
/// What kept it from starting, or why it gave itself up.
pub fn serve(config: &Config) -> Result<i32, Error> {
    if config.service.role == Role::Auditor {
        return Err(Error::NotBuilt("auditor"));
    }
    super::run(serve_until(config, CancellationToken::new(), |_, _| {}))
}

/// `serve`, calling `ready` once with the public and the admin address, and stopping also when `stop` is cancelled.
///
/// # Errors
/// As `serve`.
pub(super) async fn serve_until(
    config: &Config,
    stop: CancellationToken,
    ready: impl FnOnce(SocketAddr, SocketAddr),
) -> Result<i32, Error> {
    config.check_service()?;
    super::servers::check(&config.http, config.service.role != Role::Relayer)?;
    let identity = Identity { role: config.service.role.as_str().to_owned(), instance: config.service.instance_id.clone() };
    let _rest = match logs::start_for_service(&config.log, identity) {
        Ok(rest) => Some(rest),
        // `dev`, `demo` and `bench` have begun to log before.
        Err(logs::Error::AlreadySet(_)) => None,
        Err(error) => return Err(Error::Runtime(error.to_string())),
    };
    telemetry::watch_panics();
    for warning in &config.warnings {
        tracing::warn!(event = "configuration_warning", setting = warning.name, "{warning}");
    }
    let metrics_handle = metrics::install().map_err(|error| Error::Runtime(error.to_string()))?;
    tokio::spawn(metrics::upkeep(metrics_handle.clone()));
    metrics::BUILD_INFO.set(1.0, &[env!("CARGO_PKG_VERSION"), config.service.role.as_str()]);
    let root = Root::new(stop);
    stop_on_signals(&root)?;
    let board = Board::expecting(&["postgres", "schema", "redis", "chains", "actors"]);
    let arbiter = actix::Arbiter::new();
    let stage = Stage { arbiter: arbiter.handle(), runtime: tokio::runtime::Handle::current(), root: root.clone() };
    let late = Late::default();
    let admin = super::servers::admin(config, &board, metrics_handle, late.clone())?;
    // Also after a start that failed the listener and the arbiter are stopped: the process does not end while they run.
    let ended = match Engine::start(config, stage, &board).await {
        Ok(Some(engine)) => run(config, &root, &board, engine, &late, admin.addr(), ready).await,
        Ok(None) => Ok(0),
        Err(error) => Err(error),
    };
    admin.stop().await;
    arbiter.stop();
    match root.reason() {
        Some(reason) => Err(Error::GaveUp(reason.to_owned())),
        None => ended,
    }
}

async fn run(
    config: &Config,
    root: &Root,
    board: &Board,
    engine: Engine,
    late: &Late,
    admin: SocketAddr,
    ready: impl FnOnce(SocketAddr, SocketAddr),
) -> Result<i32, Error> {
    let engine = std::sync::Arc::new(engine);
    super::servers::attach(late, config, &engine);
    engine::watch(&engine, board, root);
    // A relayer answers no callers; its health and its operators' API are on the admin listener.
    let public = if config.service.role == Role::Relayer { None } else { Some(super::servers::public(config, &engine)?) };
    board.started();
    let http = public.as_ref().map_or(admin, super::servers::Running::addr);
    tracing::info!(event = "started", %http, %admin, role = config.service.role.as_str(), "serving");
    if root.token().run_until_cancelled(until_ready(board)).await.is_some() {
        ready(http, admin);
    }
    root.token().cancelled().await;
    tracing::info!(event = "drain_started", deadline_s = config.service.shutdown_deadline.as_secs(), "draining");
    board.drain();
    let began = std::time::Instant::now();
    if let Some(public) = &public {
        public.stop().await;
    }
    let clean = engine.drain(config.service.shutdown_deadline.saturating_sub(began.elapsed())).await;
    tracing::info!(event = "drain_finished", clean, took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX), "drained");
    Ok(if clean { 0 } else { CUT_SHORT })
}

async fn until_ready(board: &Board) {
    while !board.read().ready {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn stop_on_signals(root: &Root) -> Result<(), Error> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signals = signal(kind).map_err(|error| Error::Runtime(error.to_string()))?;
        let token = root.token().clone();
        tokio::spawn(async move {
            if signals.recv().await.is_some() {
                token.cancel();
            }
        });
    }
    Ok(())
}

/// Serves while `work` runs and drains when it has ended; what `work` says counts.
///
/// # Errors
/// What `work` says, or what ended the service before it.
pub(super) async fn serve_during<T>(
    config: &Config,
    ready: impl FnOnce(SocketAddr, SocketAddr),
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let stop = CancellationToken::new();
    let mut served = std::pin::pin!(serve_until(config, stop.clone(), ready));
    tokio::select! {
        ended = &mut served => Err(ended.err().unwrap_or_else(|| Error::GaveUp("interrupted".into()))),
        outcome = work => {
            stop.cancel();
            served.await?;
            outcome
        }
    }
}
