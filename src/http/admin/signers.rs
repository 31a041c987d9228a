//! `GET /admin/v1/signers`: each with its lanes.

use super::State;
use crate::http::problem::Problem;
use crate::operator::lanes;
use actix_web::HttpResponse;

pub async fn list(state: State) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(lanes::signers(&state.desk).await?))
}
