//! `GET /admin/v1/jobs/{id}`: a job, explained.

use super::id_of;
use crate::http::admin::State;
use crate::http::problem::{Problem, ProblemBody};
use crate::operator::explain_job;
use actix_web::HttpResponse;
use actix_web::web::Path;

#[utoipa::path(
    get, path = "/admin/v1/jobs/{id}", tag = "operators", operation_id = "explainJob", security(("admin_token" = [])),
    params(("id" = String, Path, description = "of the job")),
    responses(
        (status = 200, description = "the job, why it stands where it stands, what comes next and when, its executions, nonces, errors and states", body = serde_json::Value),
        (status = 404, description = "there is none", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn get(state: State, id: Path<String>) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(explain_job::explain(&state.desk, id_of(&id)?).await?))
}
