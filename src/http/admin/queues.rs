//! `GET /admin/v1/queues`: the queue in Redis.

use super::State;
use crate::http::problem::{Problem, ProblemBody};
use actix_web::HttpResponse;
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
