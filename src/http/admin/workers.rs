//! `GET /admin/v1/workers`: live ones first.

use super::State;
use crate::http::problem::{Problem, ProblemBody};
use crate::operator::workers;
use actix_web::HttpResponse;

#[utoipa::path(
    get, path = "/admin/v1/workers", tag = "operators", operation_id = "listWorkers", security(("admin_token" = [])),
    responses(
        (status = 200, description = "the processes that execute jobs, live ones first", body = serde_json::Value),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn list(state: State) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(workers::list(&state.desk).await?))
}
