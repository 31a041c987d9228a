//! `GET /admin/v1/lanes` and `/lanes/{signer}`: the ones in trouble first, and the ladder of one signer.

use super::State;
use crate::http::problem::{Kind, Problem};
use crate::operator::{explain_lane, lanes};
use actix_web::HttpResponse;
use actix_web::web::Path;
use entity::values::Address;

pub async fn list(state: State) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(lanes::list(&state.desk).await?))
}

pub async fn get(state: State, signer: Path<String>) -> Result<HttpResponse, Problem> {
    let signer: Address = signer.parse().map_err(|_| Problem::new(Kind::NotFound, "a lane is named by the address of its signer"))?;
    Ok(HttpResponse::Ok().json(explain_lane::explain(&state.desk, signer).await?))
}
