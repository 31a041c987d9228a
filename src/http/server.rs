//! Owns the two listeners: their limits and what is wrapped around every request.
//! Never handles signals: `app` stops a server through its handle. Called by `app`.

use super::auth::{AdminToken, operators_only};
use super::problem::{Kind, Problem};
use super::{Public, ReadinessBoard, access, routes};
use crate::config;
use actix_web::dev::Server;
use actix_web::middleware::from_fn;
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{App, HttpResponse, HttpServer};
use metrics_exporter_prometheus::PrometheusHandle;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Of one worker; more wait in the backlog of the kernel.
const CONNECTIONS: usize = 4_096;
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// For the head of a request; `body` has its own patience.
const HEAD_WITHIN: Duration = Duration::from_secs(10);

/// Adds routes and their state below `/admin/v1`.
pub type Configure = Arc<dyn Fn(&mut ServiceConfig) + Send + Sync>;

/// What the admin listener serves from.
#[derive(Clone)]
pub struct Admin {
    pub board: ReadinessBoard,
    pub metrics: PrometheusHandle,
    pub configure: Configure,
}

/// A bound listener. The server runs when it is awaited, and stops through `server.handle()`.
pub struct Listening {
    pub server: Server,
    /// With the port that the system chose.
    pub address: SocketAddr,
}

/// What both listeners have in common. A macro, because the type of an application cannot be named.
macro_rules! listen {
    ($server:expr, $workers:expr, $address:expr, $shutdown:expr) => {{
        let server = $server
            .workers($workers)
            .keep_alive(KEEP_ALIVE)
            .client_request_timeout(HEAD_WITHIN)
            .max_connections(CONNECTIONS)
            .tcp_nodelay(true)
            .disable_signals()
            .shutdown_timeout($shutdown.as_secs().max(1))
            .bind($address)?;
        let address = server.addrs().first().copied().unwrap_or($address);
        Ok(Listening { server: server.run(), address })
    }};
}

/// Binds the public listener. Needs a tokio runtime around it.
///
/// # Errors
/// When the address cannot be bound.
pub fn public_server(settings: &config::Http, state: Public, shutdown: Duration) -> io::Result<Listening> {
    let state = Data::new(state);
    let server = HttpServer::new(move || {
        App::new().wrap(from_fn(access::around)).app_data(state.clone()).configure(routes::public).default_service(web::to(nothing_here))
    });
    listen!(server, settings.workers, settings.listen, shutdown)
}

/// Binds the admin listener.
///
/// # Errors
/// When the address cannot be bound.
pub fn admin_server(settings: &config::Http, state: Admin, shutdown: Duration) -> io::Result<Listening> {
    let token = Data::new(AdminToken::new(settings.admin_token.as_ref()));
    let (board, metrics, configure) = (Data::new(state.board), Data::new(state.metrics), state.configure);
    let server = HttpServer::new(move || {
        let configure = Arc::clone(&configure);
        App::new()
            .wrap(from_fn(access::around))
            .app_data(board.clone())
            .app_data(metrics.clone())
            .app_data(token.clone())
            .configure(routes::health)
            .service(web::scope("/admin/v1").wrap(from_fn(operators_only)).configure(move |routes| configure(routes)))
            .default_service(web::to(nothing_here))
    });
    listen!(server, 1, settings.admin_listen, shutdown)
}

pub(super) async fn nothing_here() -> Result<HttpResponse, Problem> {
    Err(Problem::new(Kind::NotFound, "there is nothing here"))
}
