//! `GET /admin/v1/overview`: how everything stands, the worst first.

use super::State;
use crate::http::problem::{Problem, ProblemBody};
use crate::operator::overview;
use actix_web::HttpResponse;

#[utoipa::path(
    get, path = "/admin/v1/overview", tag = "operators", operation_id = "getOverview", security(("admin_token" = [])),
    responses(
        (status = 200, description = "findings, the worst first, each with the command that comes next; then counts, ages, heads and the schema", body = serde_json::Value),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn overview(state: State) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(overview::overview(&state.desk).await?))
}
