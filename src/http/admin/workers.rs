//! `GET /admin/v1/workers`: live ones first.

use super::State;
use crate::http::problem::Problem;
use crate::operator::workers;
use actix_web::HttpResponse;

pub async fn list(state: State) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(workers::list(&state.desk).await?))
}
