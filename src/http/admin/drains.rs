//! `POST /admin/v1/workers/{id}/drain` and `undrain`, `/signers/{signer}/drain` and `undrain`: they mark and answer at once; whoever
//! wants to wait asks again. Who does it and why is written down in the same statement.

use super::jobs::cancel::{Reason, reason};
use super::{State, operator_of};
use crate::http::Json;
use crate::http::problem::{Kind, Problem, ProblemBody};
use crate::operator::drains;
use actix_web::web::Path;
use actix_web::{HttpRequest, HttpResponse};
use entity::values::Address;

pub(super) fn signer_of(text: &str) -> Result<Address, Problem> {
    text.parse().map_err(|_| Problem::new(Kind::NotFound, "a signer is named by its address"))
}

#[utoipa::path(
    post, path = "/admin/v1/workers/{id}/drain", tag = "operators", operation_id = "drainWorker", security(("admin_token" = [])), request_body = Reason,
    params(("id" = String, Path, description = "instance or id of the worker"), ("X-Operator-Id" = String, Header, description = "who does this")),
    responses(
        (status = 200, description = "marked: it takes nothing new; ask again for how far it is", body = serde_json::Value),
        (status = 400, description = "no operator, no reason, or a field that is not valid", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "there is none", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "a gate refuses", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn worker(state: State, id: Path<String>, request: HttpRequest, body: Json) -> Result<HttpResponse, Problem> {
    let operator = operator_of(&request)?;
    Ok(HttpResponse::Ok().json(drains::drain_worker(&state.desk, &id, (&operator, reason(&body.0)?)).await?))
}

#[utoipa::path(
    post, path = "/admin/v1/workers/{id}/undrain", tag = "operators", operation_id = "undrainWorker", security(("admin_token" = [])), request_body = Reason,
    params(("id" = String, Path, description = "instance or id of the worker"), ("X-Operator-Id" = String, Header, description = "who does this")),
    responses(
        (status = 200, description = "it takes work again", body = serde_json::Value),
        (status = 400, description = "no operator, no reason, or a field that is not valid", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "there is none", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "a gate refuses", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn worker_back(state: State, id: Path<String>, request: HttpRequest, body: Json) -> Result<HttpResponse, Problem> {
    let operator = operator_of(&request)?;
    Ok(HttpResponse::Ok().json(drains::undrain_worker(&state.desk, &id, (&operator, reason(&body.0)?)).await?))
}

#[utoipa::path(
    post, path = "/admin/v1/signers/{signer}/drain", tag = "operators", operation_id = "drainSigner", security(("admin_token" = [])), request_body = Reason,
    params(("signer" = String, Path, description = "its address"), ("X-Operator-Id" = String, Header, description = "who does this")),
    responses(
        (status = 200, description = "marked: its lanes take nothing new; ask again for how far they are", body = serde_json::Value),
        (status = 400, description = "no operator, no reason, or a field that is not valid", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "there is none", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "a gate refuses", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn signer(state: State, signer: Path<String>, request: HttpRequest, body: Json) -> Result<HttpResponse, Problem> {
    let (signer, operator) = (signer_of(&signer)?, operator_of(&request)?);
    Ok(HttpResponse::Ok().json(drains::drain_signer(&state.desk, signer, (&operator, reason(&body.0)?)).await?))
}

#[utoipa::path(
    post, path = "/admin/v1/signers/{signer}/undrain", tag = "operators", operation_id = "undrainSigner", security(("admin_token" = [])), request_body = Reason,
    params(("signer" = String, Path, description = "its address"), ("X-Operator-Id" = String, Header, description = "who does this")),
    responses(
        (status = 200, description = "its lanes take work again", body = serde_json::Value),
        (status = 400, description = "no operator, no reason, or a field that is not valid", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "there is none", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "a gate refuses", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn signer_back(state: State, signer: Path<String>, request: HttpRequest, body: Json) -> Result<HttpResponse, Problem> {
    let (signer, operator) = (signer_of(&signer)?, operator_of(&request)?);
    Ok(HttpResponse::Ok().json(drains::undrain_signer(&state.desk, signer, (&operator, reason(&body.0)?)).await?))
}
