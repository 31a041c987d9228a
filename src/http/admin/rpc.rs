//! `GET /admin/v1/rpc`: the endpoints of the chains, by host.

use super::State;
use crate::http::problem::{Problem, ProblemBody};
use actix_web::HttpResponse;
use serde_json::json;

#[utoipa::path(
    get, path = "/admin/v1/rpc", tag = "operators", operation_id = "listEndpoints", security(("admin_token" = [])),
    responses(
        (status = 200, description = "the endpoints of the chains by host, the worst first", body = serde_json::Value),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn list(state: State) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(json!({ "items": state.endpoints.ask(()).await, "next_cursor": null })))
}
