//! The operators' API below `/admin/v1`: everything that the command line shows, and the same acts. Never decides and never writes by
//! itself: each handler calls one function of `operator`. The listener around it asks for the operators' token.

mod actors;
mod drains;
mod jobs;
mod lanes;
mod overview;
mod queues;
mod retire;
mod rpc;
mod signers;
mod transactions;
mod workers;

pub use actors::{Actor, ask};
pub use retire::{CheckAsked, RotateAsked};

use super::door::Door;
use super::problem::{Kind, Problem};
use crate::operator::queues::Queue;
use crate::operator::retire::Proof;
use crate::operator::rotate::Rotated;
use crate::operator::rpc::Endpoint;
use crate::operator::{self, Desk};
use actix_web::dev::Payload;
use actix_web::http::Method;
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{FromRequest, HttpRequest, HttpResponse, Route};
use std::future::{Ready, ready};
use std::sync::{Arc, OnceLock};

/// What the operators' API serves from.
#[derive(Clone)]
pub struct State {
    pub desk: Desk,
    /// The queue in Redis.
    pub queue: Door<(), Result<Queue, operator::Error>>,
    /// The endpoints of every chain, the worst first.
    pub endpoints: Door<(), Vec<Endpoint>>,
    /// What [`ask`] says of the actors of this process.
    pub actors: Door<(), Vec<Actor>>,
    /// Proves that a signer or a journal key may go.
    pub retire: Door<CheckAsked, Result<Proof, operator::Error>>,
    /// Hands a place in a pool over, for the operator who is named.
    pub rotate: Door<(RotateAsked, String), Result<Rotated, operator::Error>>,
}

/// The state, once there is one: the admin listener answers for health before Postgres and Redis are there.
#[derive(Clone, Default)]
pub struct Late(Arc<OnceLock<State>>);

impl Late {
    /// From now on operators are served. Only the first call counts.
    pub fn fill(&self, state: State) {
        let _ = self.0.set(state);
    }
}

impl FromRequest for State {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let state = match request.app_data::<Data<Late>>() {
            Some(late) => late
                .0
                .get()
                .cloned()
                .ok_or_else(|| Problem::new(Kind::Unavailable, "the service is starting: /readyz says what it waits for")),
            None => Err(Problem::internal(&"the operators' API has no state")),
        };
        ready(state)
    }
}

type Line = (Method, &'static str, fn() -> Route);

/// Every route, its path below `/admin/v1`.
pub const ROUTES: &[Line] = &[
    (Method::GET, "/overview", || web::get().to(overview::overview)),
    (Method::GET, "/jobs", || web::get().to(jobs::list::list)),
    (Method::GET, "/jobs/{id}", || web::get().to(jobs::get::get)),
    (Method::POST, "/jobs/{id}/cancel", || web::post().to(jobs::cancel::cancel)),
    (Method::GET, "/transactions", || web::get().to(transactions::list)),
    (Method::GET, "/transactions/{id}", || web::get().to(transactions::get)),
    (Method::GET, "/lanes", || web::get().to(lanes::list)),
    (Method::GET, "/lanes/{signer}", || web::get().to(lanes::get)),
    (Method::GET, "/signers", || web::get().to(signers::list)),
    (Method::POST, "/signers/{signer}/drain", || web::post().to(drains::signer)),
    (Method::POST, "/signers/{signer}/undrain", || web::post().to(drains::signer_back)),
    (Method::POST, "/signers/{signer}/retire-check", || web::post().to(retire::signer)),
    (Method::POST, "/journal-keys/{id}/retire-check", || web::post().to(retire::key)),
    (Method::POST, "/pools/rotate", || web::post().to(retire::pool)),
    (Method::GET, "/workers", || web::get().to(workers::list)),
    (Method::POST, "/workers/{id}/drain", || web::post().to(drains::worker)),
    (Method::POST, "/workers/{id}/undrain", || web::post().to(drains::worker_back)),
    (Method::GET, "/queues", || web::get().to(queues::list)),
    (Method::GET, "/rpc", || web::get().to(rpc::list)),
    (Method::GET, "/actors", || web::get().to(actors::list)),
];

/// Registers the routes and what they are served from.
pub fn configure(to: &mut ServiceConfig, state: Late) {
    to.app_data(Data::new(state));
    for (method, path, route) in ROUTES {
        // Each path has one method, so that a resource a line is enough.
        let allow = method.clone();
        let other = web::to(move || {
            let refused: Result<HttpResponse, Problem> = Err(Problem::method_not_allowed(vec![allow.clone()]));
            std::future::ready(refused)
        });
        to.service(web::resource(*path).route(route()).default_service(other));
    }
}

/// Whoever changes something has a name.
fn operator_of(request: &HttpRequest) -> Result<String, Problem> {
    let header = request.headers().get("x-operator-id").and_then(|value| value.to_str().ok()).map(str::trim).unwrap_or_default();
    if header.is_empty() { Err(Problem::new(Kind::InvalidRequest, "X-Operator-Id must name who does this")) } else { Ok(header.to_owned()) }
}

fn limit(given: Option<u32>, most: u32) -> Result<u32, Problem> {
    let limit = given.unwrap_or(50);
    if (1..=most).contains(&limit) { Ok(limit) } else { Err(Problem::new(Kind::InvalidRequest, format!("limit must be from 1 to {most}"))) }
}

/// A query that cannot be read, as a problem.
fn query<T: serde::de::DeserializeOwned>(request: &HttpRequest) -> Result<T, Problem> {
    let read = web::Query::<T>::from_query(request.query_string());
    read.map(web::Query::into_inner).map_err(|error| Problem::new(Kind::InvalidRequest, format!("the query cannot be read: {error}")))
}

#[cfg(test)]
mod tests;
