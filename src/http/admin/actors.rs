//! `GET /admin/v1/actors`: whether every actor of this process answers, and what it has on its hands.

use super::State;
use crate::actors::supervisor::{Error, Probe};
use crate::http::problem::{Problem, ProblemBody};
use actix_web::HttpResponse;
use serde::Serialize;
use serde_json::json;
use std::time::Duration;

/// How long an actor may take to give a sign of life.
const DEADLINE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Actor {
    pub actor: &'static str,
    /// `answers`, `silent` or `gone`.
    pub state: &'static str,
    pub waiting: usize,
    pub in_flight: usize,
    pub restarts: u64,
    /// How long its present poll has taken; more than moments means a blocked thread.
    pub busy_milliseconds: u64,
}

/// Asks actors for a sign of life, all at once; those without one come first.
pub async fn ask(probes: &[Probe]) -> Vec<Actor> {
    let mut actors = futures::future::join_all(probes.iter().map(one)).await;
    actors.sort_by_key(|actor| (actor.state == "answers", actor.actor));
    actors
}

async fn one(probe: &Probe) -> Actor {
    let (state, report) = match probe.status(DEADLINE).await {
        Ok(report) => ("answers", report),
        Err(Error::Silent) => ("silent", Default::default()),
        Err(Error::Gone) => ("gone", Default::default()),
    };
    Actor {
        actor: probe.actor,
        state,
        waiting: report.waiting,
        in_flight: report.in_flight,
        restarts: probe.vitals.restarts(),
        busy_milliseconds: u64::try_from(probe.vitals.busy_for().as_millis()).unwrap_or(u64::MAX),
    }
}

#[utoipa::path(
    get, path = "/admin/v1/actors", tag = "operators", operation_id = "listActors", security(("admin_token" = [])),
    responses(
        (status = 200, description = "whether every actor of this process answers; those that do not come first", body = serde_json::Value),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn list(state: State) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(json!({ "items": state.actors.ask(()).await, "next_cursor": null })))
}
