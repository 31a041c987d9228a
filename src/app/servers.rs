//! The two listeners of a process, filled with what the engine has.

use super::engine::Engine;
use super::{Board, Error};
use crate::clock::SystemClock;
use crate::config::{self, Config};
use crate::http::admin::{CheckAsked, Late, RotateAsked, State};
use crate::http::{self, Door};
use crate::operator::retire::{self, Chains, Proof, Subject};
use crate::operator::rotate::{self, Rotated};
use crate::operator::{self, Desk, Limits};
use actix_web::dev::ServerHandle;
use metrics_exporter_prometheus::PrometheusHandle;
use std::net::SocketAddr;
use std::sync::Arc;

/// A running listener.
pub struct Running {
    handle: ServerHandle,
    address: SocketAddr,
}

impl Running {
    fn start(listening: http::Listening) -> Self {
        let handle = listening.server.handle();
        actix_rt::spawn(listening.server);
        Self { handle, address: listening.address }
    }

    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Finishes the requests that are under way and takes no new ones.
    pub async fn stop(&self) {
        self.handle.stop(true).await;
    }
}

/// Binds the admin listener first of all: health answers while the rest is not there yet, and so does a wrong address.
pub fn admin(config: &Config, board: &Board, metrics: PrometheusHandle, late: Late) -> Result<Running, Error> {
    let configure = Arc::new(move |routes: &mut actix_web::web::ServiceConfig| http::admin::configure(routes, late.clone()));
    let state = http::Admin { board: board.clone(), metrics, configure };
    let listening = http::admin_server(&config.http, state, config.service.shutdown_deadline);
    Ok(Running::start(listening.map_err(|error| busy("ADMIN_LISTEN", config.http.admin_listen, &error))?))
}

fn busy(name: &str, address: SocketAddr, error: &std::io::Error) -> Error {
    Error::Files { what: format!("{name} {address}"), detail: format!("{error}; choose another address") }
}

/// Binds the public listener.
pub fn public(config: &Config, engine: &Arc<Engine>) -> Result<Running, Error> {
    let desk = Desk::new(engine.db.clone(), Limits::of(config));
    let state = http::Public::new(&engine.db.reader(), engine.intake.clone(), desk, engine.offers.clone(), Arc::new(SystemClock));
    tokio::spawn(state.waiters().run(engine.stop_token().cancelled_owned()));
    let listening = http::public_server(&config.http, state, config.service.shutdown_deadline);
    Ok(Running::start(listening.map_err(|error| busy("HTTP_LISTEN", config.http.listen, &error))?))
}

/// Gives the operators' API what it serves from.
pub fn attach(late: &Late, config: &Config, engine: &Arc<Engine>) {
    let desk = Desk::new(engine.db.clone(), Limits::of(config));
    let (delivery, chains, actors) = (engine.delivery.clone(), engine.chains.clone(), engine.clone());
    let (proving, rotating) = (Keeper::new(config, engine), Keeper::new(config, engine));
    late.fill(State {
        desk,
        retire: Door::new(move |(subject, operator, reason): CheckAsked| {
            let keeper = proving.clone();
            async move { keeper.check(&subject, (&operator, &reason)).await }
        }),
        rotate: Door::new(move |(asked, operator): (RotateAsked, String)| {
            let keeper = rotating.clone();
            async move { keeper.rotate(&asked, &operator).await }
        }),
        queue: Door::new(move |()| {
            let delivery = delivery.clone();
            async move { operator::queues::view(&delivery).await }
        }),
        endpoints: Door::new(move |()| {
            let chains = chains.clone();
            async move { chains.desks().flat_map(|desk| operator::rpc::view(desk.chain.as_ref())).collect() }
        }),
        actors: Door::new(move |()| {
            let engine = actors.clone();
            async move { http::admin::ask(&engine.probes).await }
        }),
    });
}

/// What the acts around signers and keys need of a running service.
#[derive(Clone)]
struct Keeper {
    desk: Desk,
    chains: crate::actors::rpc_quorum::Handle,
    retirement: config::Retirement,
    active_key: Option<String>,
}

impl Keeper {
    fn new(config: &Config, engine: &Engine) -> Self {
        Self {
            desk: Desk::new(engine.db.clone(), Limits::of(config)),
            chains: engine.chains.clone(),
            retirement: config.retirement,
            active_key: config.journal.as_ref().map(|journal| journal.active.clone()),
        }
    }

    fn chains(&self) -> Chains<'static> {
        Chains::Connected(self.chains.desks().map(|desk| (desk.settings.clone(), desk.chain.clone())).collect())
    }

    async fn check(&self, subject: &Subject, operator: (&str, &str)) -> Result<Proof, operator::Error> {
        retire::check(&self.desk, subject, &self.chains(), &self.retirement, self.active_key.as_deref(), operator).await
    }

    async fn rotate(&self, asked: &RotateAsked, operator: &str) -> Result<Rotated, operator::Error> {
        let RotateAsked { chain_id, pool, old, new, unloaded, reason } = asked;
        let ask = rotate::Ask { chain_id: *chain_id, pool, old: *old, new: *new, unloaded: *unloaded };
        rotate::rotate(&self.desk, ask, &self.chains(), (operator, reason)).await
    }
}
