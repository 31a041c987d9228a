//! `GET /admin/v1/queues`: the queue in Redis; and `POST …/pause`, `resume` and `rebuild`: what operators want of the queue of this process.

use super::jobs::cancel::{Reason, reason};
use super::{State, operator_of};
use crate::http::Json;
use crate::http::problem::{Problem, ProblemBody};
use crate::operator::queues;
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;

#[utoipa::path(
    get, path = "/admin/v1/queues", tag = "operators", operation_id = "listQueues", security(("admin_token" = [])),
    responses(
        (status = 200, description = "the queue in Redis", body = serde_json::Value),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn list(state: State) -> Result<HttpResponse, Problem> {
    let queue = state.queue.ask(()).await?;
    Ok(HttpResponse::Ok().json(json!({ "items": [queue], "next_cursor": null })))
}

#[utoipa::path(
    post, path = "/admin/v1/queues/pause", tag = "operators", operation_id = "pauseQueue", security(("admin_token" = [])), request_body = Reason,
    params(("X-Operator-Id" = String, Header, description = "who does this")),
    responses(
        (status = 200, description = "within seconds no process takes deliveries; what is being executed goes on", body = serde_json::Value),
        (status = 400, description = "no operator or no reason", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "the queue has not begun yet", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn pause(state: State, request: HttpRequest, body: Json) -> Result<HttpResponse, Problem> {
    let operator = operator_of(&request)?;
    Ok(HttpResponse::Ok().json(queues::pause(&state.desk, Some(&state.prefix), true, (&operator, reason(&body.0)?)).await?))
}

#[utoipa::path(
    post, path = "/admin/v1/queues/resume", tag = "operators", operation_id = "resumeQueue", security(("admin_token" = [])), request_body = Reason,
    params(("X-Operator-Id" = String, Header, description = "who does this")),
    responses(
        (status = 200, description = "deliveries are taken again within seconds", body = serde_json::Value),
        (status = 400, description = "no operator or no reason", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "the queue has not begun yet", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn resume(state: State, request: HttpRequest, body: Json) -> Result<HttpResponse, Problem> {
    let operator = operator_of(&request)?;
    Ok(HttpResponse::Ok().json(queues::pause(&state.desk, Some(&state.prefix), false, (&operator, reason(&body.0)?)).await?))
}

#[utoipa::path(
    post, path = "/admin/v1/queues/rebuild", tag = "operators", operation_id = "rebuildQueue", security(("admin_token" = [])), request_body = Reason,
    params(("X-Operator-Id" = String, Header, description = "who does this")),
    responses(
        (status = 200, description = "every open delivery is published anew, under the id that it has; ask again for how far that is (`unpublished`)", body = serde_json::Value),
        (status = 400, description = "no operator or no reason", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "the queue has not begun yet", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn rebuild(state: State, request: HttpRequest, body: Json) -> Result<HttpResponse, Problem> {
    let operator = operator_of(&request)?;
    Ok(HttpResponse::Ok().json(queues::rebuild(&state.desk, Some(&state.prefix), (&operator, reason(&body.0)?)).await?))
}
