//! `POST /admin/v1/signers/{signer}/thaw`: the way back of frozen lanes, or, dry, what it would undo.

use super::drains::signer_of;
use super::{State, operator_of};
use crate::http::Json;
use crate::http::problem::{Kind, Problem, ProblemBody};
use actix_web::web::Path;
use actix_web::{HttpRequest, HttpResponse};
use entity::values::Address;
use serde::Deserialize;

/// The body of the act.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThawAsked {
    #[serde(default)]
    pub chain_id: Option<i64>,
    #[serde(default)]
    pub dry_run: bool,
    pub reason: String,
}

/// For the document alone.
#[derive(serde::Serialize, utoipa::ToSchema)]
#[schema(as = Thaw)]
pub struct ThawBody {
    /// Only on this chain; without it, on every chain where it is frozen.
    #[schema(nullable = false)]
    pub chain_id: Option<i64>,
    /// Say what would be undone, and change nothing.
    #[schema(nullable = false)]
    pub dry_run: Option<bool>,
    /// Why; it is written down with the act.
    pub reason: String,
}

#[utoipa::path(
    post, path = "/admin/v1/signers/{signer}/thaw", tag = "operators", operation_id = "thawSigner", security(("admin_token" = [])), request_body = ThawBody,
    params(("signer" = String, Path, description = "its address"), ("X-Operator-Id" = String, Header, description = "who does this")),
    responses(
        (status = 200, description = "each frozen lane: which final ends a majority contradicts, and how many are provisional again (`reopened`, null in a dry run)", body = serde_json::Value),
        (status = 400, description = "no operator, no reason, or a field that is not valid", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "there is none", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "a gate refuses: none is frozen, or no majority tells", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn thaw(state: State, signer: Path<String>, request: HttpRequest, body: Json) -> Result<HttpResponse, Problem> {
    let (signer, operator): (Address, _) = (signer_of(&signer)?, operator_of(&request)?);
    let asked: ThawAsked =
        serde_json::from_value(body.0).map_err(|error| Problem::new(Kind::InvalidRequest, format!("the body cannot be read: {error}")))?;
    if asked.reason.trim().is_empty() {
        return Err(Problem::new(Kind::InvalidRequest, "reason must say why"));
    }
    Ok(HttpResponse::Ok().json(state.thaw.ask((signer, asked, operator)).await?))
}
