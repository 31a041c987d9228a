//! `GET /admin/v1/transactions` and `/transactions/{id}`: metadata only, never bytes.

use super::{State, limit, query};
use crate::http::problem::{Kind, Problem};
use crate::operator::transactions::{self, Filter};
use actix_web::web::Path;
use actix_web::{HttpRequest, HttpResponse};
use entity::values::Address;
use serde::Deserialize;

const LIMIT_MAX: u32 = 500;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    signer: Option<Address>,
    /// With a signer: its newest nonces on this chain, ended ones too.
    ended_on: Option<i64>,
    limit: Option<u32>,
}

pub async fn list(state: State, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let asked: Query = query(&request)?;
    if asked.ended_on.is_some() && asked.signer.is_none() {
        return Err(Problem::new(Kind::InvalidRequest, "ended_on needs a signer"));
    }
    let filter = Filter { signer: asked.signer, ended_on: asked.ended_on, limit: limit(asked.limit, LIMIT_MAX)? };
    Ok(HttpResponse::Ok().json(transactions::list(&state.desk, filter).await?))
}

pub async fn get(state: State, id: Path<String>) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(transactions::show(&state.desk, &id).await?))
}
