//! `GET /admin/v1/signers`: each with its lanes.

use super::State;
use crate::http::problem::{Problem, ProblemBody};
use crate::operator::lanes;
use actix_web::HttpResponse;

#[utoipa::path(
    get, path = "/admin/v1/signers", tag = "operators", operation_id = "listSigners", security(("admin_token" = [])),
    responses(
        (status = 200, description = "each signer with its lanes", body = serde_json::Value),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn list(state: State) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(lanes::signers(&state.desk).await?))
}
