//! The operators' API below `/admin/v1`: everything that the command line shows, and the same acts. Never decides and never writes by
//! itself: each handler calls one function of `operator`. The listener around it asks for the operators' token.

pub(super) mod actors;
pub(super) mod drains;
pub(super) mod jobs;
pub(super) mod lanes;
pub(super) mod operators;
pub(super) mod overview;
mod query;
pub(super) mod queues;
pub(super) mod retire;
pub(super) mod rpc;
pub(super) mod signers;
pub(super) mod thaw;
pub(super) mod transactions;
pub(super) mod workers;

pub use actors::{Actor, ask};
pub use retire::{CheckAsked, RotateAsked};
pub use thaw::ThawAsked;

use super::door::Door;
use super::problem::{Kind, Problem};
use crate::operator::queues::Queue;
use crate::operator::retire::Proof;
use crate::operator::rotate::Rotated;
use crate::operator::rpc::Endpoint;
use crate::operator::thaw::Thawed;
use crate::operator::{self, Desk, List};
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use actix_web::middleware::{Next, from_fn};
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{FromRequest, HttpRequest, HttpResponse, Route};
use entity::values::Address;
use std::future::{Ready, ready};
use std::sync::{Arc, OnceLock};

/// What the operators' API serves from.
#[derive(Clone)]
pub struct State {
    pub desk: Desk,
    /// QUEUE_PREFIX.
    pub prefix: String,
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
    /// Thaws the lanes of a signer, for the operator who is named.
    pub thaw: Door<(Address, ThawAsked, String), Result<List<Thawed>, operator::Error>>,
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
    // Before the path that it would be taken for.
    (Method::POST, "/jobs/replay", || web::post().to(jobs::dead::many)),
    (Method::GET, "/jobs/{id}", || web::get().to(jobs::get::get)),
    (Method::POST, "/jobs/{id}/cancel", || web::post().to(jobs::cancel::cancel)),
    (Method::POST, "/jobs/{id}/replay", || web::post().to(jobs::dead::replay)),
    (Method::POST, "/jobs/{id}/resolve", || web::post().to(jobs::dead::resolve)),
    (Method::GET, "/transactions", || web::get().to(transactions::list)),
    (Method::GET, "/transactions/{id}", || web::get().to(transactions::get)),
    (Method::GET, "/transactions/{id}/explain", || web::get().to(transactions::explain)),
    (Method::GET, "/lanes", || web::get().to(lanes::list)),
    (Method::GET, "/lanes/{signer}", || web::get().to(lanes::get)),
    (Method::GET, "/signers", || web::get().to(signers::list)),
    (Method::POST, "/signers/{signer}/drain", || web::post().to(drains::signer)),
    (Method::POST, "/signers/{signer}/undrain", || web::post().to(drains::signer_back)),
    (Method::POST, "/signers/{signer}/thaw", || web::post().to(thaw::thaw)),
    (Method::POST, "/signers/{signer}/retire-check", || web::post().to(retire::signer)),
    (Method::POST, "/journal-keys/{id}/retire-check", || web::post().to(retire::key)),
    (Method::POST, "/pools/rotate", || web::post().to(retire::pool)),
    (Method::GET, "/workers", || web::get().to(workers::list)),
    (Method::POST, "/workers/{id}/drain", || web::post().to(drains::worker)),
    (Method::POST, "/workers/{id}/undrain", || web::post().to(drains::worker_back)),
    (Method::GET, "/queues", || web::get().to(queues::list)),
    (Method::POST, "/queues/pause", || web::post().to(queues::pause)),
    (Method::POST, "/queues/resume", || web::post().to(queues::resume)),
    (Method::POST, "/queues/rebuild", || web::post().to(queues::rebuild)),
    (Method::GET, "/operators/log", || web::get().to(operators::list)),
    (Method::GET, "/operators/verify", || web::get().to(operators::verify)),
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
        to.service(web::resource(*path).wrap(from_fn(named)).route(route()).default_service(other));
    }
}

const ACT: &str = "an act says who and why: the header X-Operator-Id, and a JSON body with a reason, {\"reason\":\"…\"}";

/// In front of every act: what it lacks is told at once, and before its body is looked at.
async fn named<B: MessageBody + 'static>(request: ServiceRequest, next: Next<B>) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    if request.method() == Method::POST {
        let operator = operator_of(request.request()).err();
        let length = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let bare = !request.headers().contains_key(TRANSFER_ENCODING) && length.is_none_or(|length| length.trim() == "0");
        if bare {
            return Ok(request.error_response(Problem::new(Kind::InvalidRequest, ACT)));
        }
        if let Some(problem) = operator {
            return Ok(request.error_response(problem));
        }
    }
    Ok(next.call(request).await?.map_into_boxed_body())
}

/// Whoever changes something has a name.
fn operator_of(request: &HttpRequest) -> Result<String, Problem> {
    let header = request.headers().get("x-operator-id").and_then(|value| value.to_str().ok()).map(str::trim).unwrap_or_default();
    if header.is_empty() {
        return Err(Problem::new(Kind::InvalidRequest, format!("X-Operator-Id is missing: {ACT}")));
    }
    Ok(header.to_owned())
}

#[cfg(test)]
mod tests;
