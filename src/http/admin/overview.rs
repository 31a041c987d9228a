//! `GET /admin/v1/overview`: how everything stands, the worst first.

use super::State;
use crate::http::problem::Problem;
use crate::operator::overview;
use actix_web::HttpResponse;

pub async fn overview(state: State) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(overview::overview(&state.desk).await?))
}
