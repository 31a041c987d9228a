//! The two listeners of a process, filled with what the engine has.

use super::engine::Engine;
use super::{Board, Error};
use crate::clock::SystemClock;
use crate::config::{self, Config};
use crate::http::admin::{CheckAsked, Late, RotateAsked, State, ThawAsked};
use crate::http::{self, Door};
use crate::operator::retire::{self, Chains, Proof, Subject};
use crate::operator::rotate::{self, Rotated};
use crate::operator::thaw;
use crate::operator::{self, Desk, Limits};
use actix_web::dev::ServerHandle;
use entity::values::Address;
use metrics_exporter_prometheus::PrometheusHandle;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
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
    Ok(Running::start(listening.map_err(|error| busy(ADMIN, config.http.admin_listen, &error))?))
}

const HTTP: &str = "HTTP_LISTEN (--http)";
const ADMIN: &str = "ADMIN_LISTEN (--admin)";

/// Tries the addresses of both listeners, or of the admin listener alone, before anything else is started.
///
/// # Errors
/// Every address that cannot be listened on.
pub fn check(http: &config::Http, public: bool) -> Result<(), Error> {
    let (listen, admin) = (http.listen, http.admin_listen);
    if public && listen == admin && listen.port() != 0 {
        let text = format!("{HTTP} and {ADMIN} are both {listen}: what operators see is never public, so it needs an address of its own");
        return Err(Error::Listen(vec![text]));
    }
    let wanted = [Some((ADMIN, admin)), public.then_some((HTTP, listen))];
    // All are held until all were tried: they may also be in each other's way.
    let tried: Vec<_> = wanted.into_iter().flatten().map(|(name, address)| (name, address, TcpListener::bind(address))).collect();
    let faults: Vec<_> = tried.iter().filter_map(|(name, address, bound)| Some(fault(name, *address, bound.as_ref().err()?))).collect();
    if faults.is_empty() { Ok(()) } else { Err(Error::Listen(faults)) }
}

fn fault(name: &str, address: SocketAddr, error: &std::io::Error) -> String {
    let why = match error.kind() {
        ErrorKind::AddrInUse => "is taken by another listener".to_owned(),
        ErrorKind::AddrNotAvailable => "is no address of this machine".to_owned(),
        ErrorKind::PermissionDenied => "is not open to this user".to_owned(),
        _ => format!("cannot be listened on: {error}"),
    };
    format!("{name}: {address} {why}")
}

fn busy(name: &str, address: SocketAddr, error: &std::io::Error) -> Error {
    Error::Listen(vec![fault(name, address, error)])
}

/// Binds the public listener.
pub fn public(config: &Config, engine: &Arc<Engine>) -> Result<Running, Error> {
    let desk = Desk::new(engine.db.clone(), Limits::of(config)).knowing(&config.chains);
    let state = http::Public::new(&engine.db.reader(), engine.intake.clone(), desk, engine.offers.clone(), Arc::new(SystemClock));
    tokio::spawn(state.waiters().run(engine.stop_token().cancelled_owned()));
    let listening = http::public_server(&config.http, state, config.service.shutdown_deadline);
    Ok(Running::start(listening.map_err(|error| busy(HTTP, config.http.listen, &error))?))
}

/// Gives the operators' API what it serves from.
pub fn attach(late: &Late, config: &Config, engine: &Arc<Engine>) {
    let desk = Desk::new(engine.db.clone(), Limits::of(config)).knowing(&config.chains);
    let (delivery, chains, actors) = (engine.delivery.clone(), engine.chains.clone(), engine.clone());
    let keeper = Keeper::new(config, engine);
    let (proving, rotating, thawing) = (keeper.clone(), keeper.clone(), keeper);
    late.fill(State {
        desk,
        prefix: config.queue.as_ref().map(|queue| queue.prefix.clone()).unwrap_or_default(),
        retire: Door::new(move |(subject, operator, reason): CheckAsked| {
            let keeper = proving.clone();
            async move { keeper.check(&subject, (&operator, &reason)).await }
        }),
        rotate: Door::new(move |(asked, operator): (RotateAsked, String)| {
            let keeper = rotating.clone();
            async move { keeper.rotate(&asked, &operator).await }
        }),
        thaw: Door::new(move |(signer, asked, operator): (Address, ThawAsked, String)| {
            let keeper = thawing.clone();
            async move { thaw::thaw(&keeper.desk, (signer, asked.chain_id), &keeper.chains(), asked.dry_run, (&operator, &asked.reason)).await }
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
            desk: Desk::new(engine.db.clone(), Limits::of(config)).knowing(&config.chains),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn told(listen: SocketAddr, admin_listen: SocketAddr, public: bool) -> Vec<String> {
        let http = config::Http { listen, admin_listen, admin_token: None, workers: 1 };
        match check(&http, public) {
            Err(Error::Listen(faults)) => faults,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_address_that_cannot_be_listened_on_is_named_with_its_setting() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let taken = TcpListener::bind(any).unwrap();
        let address = taken.local_addr().unwrap();
        assert_eq!(told(address, any, true), [format!("HTTP_LISTEN (--http): {address} is taken by another listener")]);
        assert_eq!(told(address, address, false), [format!("ADMIN_LISTEN (--admin): {address} is taken by another listener")]);
        let away: SocketAddr = "192.0.2.1:0".parse().unwrap();
        let both = told(address, away, true);
        assert!(both.len() == 2 && both[0].starts_with("ADMIN_LISTEN (--admin): 192.0.2.1:0 is no address"), "{both:?}");
        drop(taken);
        assert!(told(address, address, true)[0].contains("are both"));
        let everywhere = SocketAddr::from(([0, 0, 0, 0], address.port()));
        assert_eq!(told(everywhere, address, true).len(), 1, "they are in each other's way");
        let http = config::Http { listen: any, admin_listen: any, admin_token: None, workers: 1 };
        assert!(check(&http, true).is_ok());
    }
}
