//! The two listeners of a process, filled with what the engine has.

use super::engine::Engine;
use super::{Board, Error};
use crate::clock::SystemClock;
use crate::config::Config;
use crate::http::admin::{Late, State};
use crate::http::{self, Door};
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
    late.fill(State {
        desk,
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
