//! `POST /admin/v1/signers/{signer}/retire-check`, `/journal-keys/{id}/retire-check` and `/pools/rotate`. A check that does not pass is an
//! answer (`passed` is false); a hand-over that a gate refuses is a conflict.

use super::drains::signer_of;
use super::jobs::cancel::{Reason, reason};
use super::{State, operator_of};
use crate::http::Json;
use crate::http::problem::{Kind, Problem, ProblemBody};
use crate::operator::retire::Subject;
use actix_web::web::Path;
use actix_web::{HttpRequest, HttpResponse};
use entity::values::Address;
use serde::Deserialize;

/// Something to be proven, the operator, and why.
pub type CheckAsked = (Subject, String, String);

/// The body of a hand-over.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RotateAsked {
    pub chain_id: i64,
    pub pool: String,
    pub old: Address,
    pub new: Address,
    #[serde(default)]
    pub unloaded: bool,
    pub reason: String,
}

/// For the document alone.
#[derive(serde::Serialize, utoipa::ToSchema)]
#[schema(as = Rotation)]
pub struct RotateBody {
    pub chain_id: i64,
    pub pool: String,
    /// The signer that leaves the pool.
    pub old: String,
    /// The one that takes its place.
    pub new: String,
    /// Also before a process has loaded the new key.
    #[schema(nullable = false)]
    pub unloaded: Option<bool>,
    pub reason: String,
}

#[utoipa::path(
    post, path = "/admin/v1/signers/{signer}/retire-check", tag = "operators", operation_id = "checkSignerRetirement", security(("admin_token" = [])), request_body = Reason,
    params(("signer" = String, Path, description = "its address"), ("X-Operator-Id" = String, Header, description = "who does this")),
    responses(
        (status = 200, description = "the proof; `passed` says whether the signer may go", body = serde_json::Value),
        (status = 400, description = "no operator, no reason, or a field that is not valid", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "there is none", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "a gate refuses", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn signer(state: State, signer: Path<String>, request: HttpRequest, body: Json) -> Result<HttpResponse, Problem> {
    let (subject, operator) = (Subject::Signer(signer_of(&signer)?), operator_of(&request)?);
    Ok(HttpResponse::Ok().json(state.retire.ask((subject, operator, reason(&body.0)?.to_owned())).await?))
}

#[utoipa::path(
    post, path = "/admin/v1/journal-keys/{id}/retire-check", tag = "operators", operation_id = "checkJournalKeyRetirement", security(("admin_token" = [])), request_body = Reason,
    params(("id" = String, Path, description = "of the journal key"), ("X-Operator-Id" = String, Header, description = "who does this")),
    responses(
        (status = 200, description = "the proof; `passed` says whether the key may go", body = serde_json::Value),
        (status = 400, description = "no operator, no reason, or a field that is not valid", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "there is none", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "a gate refuses", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn key(state: State, id: Path<String>, request: HttpRequest, body: Json) -> Result<HttpResponse, Problem> {
    let (subject, operator) = (Subject::JournalKey(id.into_inner()), operator_of(&request)?);
    Ok(HttpResponse::Ok().json(state.retire.ask((subject, operator, reason(&body.0)?.to_owned())).await?))
}

#[utoipa::path(
    post, path = "/admin/v1/pools/rotate", tag = "operators", operation_id = "rotatePool", security(("admin_token" = [])), request_body = RotateBody,
    params(("X-Operator-Id" = String, Header, description = "who does this")),
    responses(
        (status = 200, description = "the place in the pool was handed over", body = serde_json::Value),
        (status = 400, description = "no operator, no reason, or a field that is not valid", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "there is none", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "a gate refuses", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn pool(state: State, request: HttpRequest, body: Json) -> Result<HttpResponse, Problem> {
    let operator = operator_of(&request)?;
    let asked: RotateAsked =
        serde_json::from_value(body.0).map_err(|error| Problem::new(Kind::InvalidRequest, format!("the body cannot be read: {error}")))?;
    if asked.reason.trim().is_empty() {
        return Err(Problem::new(Kind::InvalidRequest, "reason must say why"));
    }
    Ok(HttpResponse::Ok().json(state.rotate.ask((asked, operator)).await?))
}
