//! `POST /admin/v1/workers/{id}/drain` and `undrain`, `/signers/{signer}/drain` and `undrain`: they mark and answer at once; whoever
//! wants to wait asks again. Who does it and why is written down in the same statement.

use super::jobs::cancel::reason;
use super::{State, operator_of};
use crate::http::Json;
use crate::http::problem::{Kind, Problem};
use crate::operator::drains;
use actix_web::web::Path;
use actix_web::{HttpRequest, HttpResponse};
use entity::values::Address;

pub(super) fn signer_of(text: &str) -> Result<Address, Problem> {
    text.parse().map_err(|_| Problem::new(Kind::NotFound, "a signer is named by its address"))
}

pub async fn worker(state: State, id: Path<String>, request: HttpRequest, body: Json) -> Result<HttpResponse, Problem> {
    let operator = operator_of(&request)?;
    Ok(HttpResponse::Ok().json(drains::drain_worker(&state.desk, &id, (&operator, reason(&body.0)?)).await?))
}

pub async fn worker_back(state: State, id: Path<String>, request: HttpRequest, body: Json) -> Result<HttpResponse, Problem> {
    let operator = operator_of(&request)?;
    Ok(HttpResponse::Ok().json(drains::undrain_worker(&state.desk, &id, (&operator, reason(&body.0)?)).await?))
}

pub async fn signer(state: State, signer: Path<String>, request: HttpRequest, body: Json) -> Result<HttpResponse, Problem> {
    let (signer, operator) = (signer_of(&signer)?, operator_of(&request)?);
    Ok(HttpResponse::Ok().json(drains::drain_signer(&state.desk, signer, (&operator, reason(&body.0)?)).await?))
}

pub async fn signer_back(state: State, signer: Path<String>, request: HttpRequest, body: Json) -> Result<HttpResponse, Problem> {
    let (signer, operator) = (signer_of(&signer)?, operator_of(&request)?);
    Ok(HttpResponse::Ok().json(drains::undrain_signer(&state.desk, signer, (&operator, reason(&body.0)?)).await?))
}
