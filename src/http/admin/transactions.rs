//! `GET /admin/v1/transactions` and `/transactions/{id}`: metadata only, never bytes.

use super::State;
use super::query::Query;
use crate::http::problem::{Kind, Problem, ProblemBody};
use crate::operator::explain_tx;
use crate::operator::transactions::{self, Filter};
use actix_web::web::Path;
use actix_web::{HttpRequest, HttpResponse};
use entity::values::Address;

const LIMIT_MAX: u32 = 500;

#[utoipa::path(
    get, path = "/admin/v1/transactions", tag = "operators", operation_id = "listTransactions", security(("admin_token" = [])),
    params(
        ("signer" = Option<String>, Query, description = "of this signer"),
        ("ended_on" = Option<i64>, Query, description = "with a signer: its newest nonces on this chain, ended ones too"),
        ("limit" = Option<u32>, Query, description = "1 to 500; 50 unless given"),
    ),
    responses(
        (status = 200, description = "open nonces, or with ended_on the newest of a signer on a chain: metadata only, never bytes", body = serde_json::Value),
        (status = 400, description = "a parameter is not valid", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn list(state: State, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let mut asked = Query::of(&request);
    let signer: Option<Address> = asked.value("signer", "an address: 0x followed by 40 hex digits");
    // With a signer: its newest nonces on this chain, ended ones too.
    let ended_on = asked.value("ended_on", "the number of a chain");
    let limit = asked.limit(LIMIT_MAX);
    let filter = asked.done(Filter { signer, ended_on, limit })?;
    if filter.ended_on.is_some() && filter.signer.is_none() {
        return Err(Problem::new(Kind::InvalidRequest, "ended_on needs a signer"));
    }
    Ok(HttpResponse::Ok().json(transactions::list(&state.desk, filter).await?))
}

#[utoipa::path(
    get, path = "/admin/v1/transactions/{id}", tag = "operators", operation_id = "getTransaction", security(("admin_token" = [])),
    params(("id" = String, Path, description = "of the transaction or of its job, or a hash")),
    responses(
        (status = 200, description = "the transaction and its attempts, without bytes", body = serde_json::Value),
        (status = 404, description = "there is none", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn get(state: State, id: Path<String>) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(transactions::show(&state.desk, &id).await?))
}

#[utoipa::path(
    get, path = "/admin/v1/transactions/{id}/explain", tag = "operators", operation_id = "explainTransaction", security(("admin_token" = [])),
    params(("id" = String, Path, description = "of the transaction or of its job, or a hash")),
    responses(
        (status = 200, description = "where it stands on its lane, what it offers and may still offer, what comes next and when", body = serde_json::Value),
        (status = 404, description = "there is none", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn explain(state: State, id: Path<String>) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(explain_tx::explain(&state.desk, &id).await?))
}
