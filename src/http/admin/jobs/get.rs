//! `GET /admin/v1/jobs/{id}`: a job, explained.

use super::id_of;
use crate::http::admin::State;
use crate::http::problem::Problem;
use crate::operator::explain_job;
use actix_web::HttpResponse;
use actix_web::web::Path;

pub async fn get(state: State, id: Path<String>) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(explain_job::explain(&state.desk, id_of(&id)?).await?))
}
