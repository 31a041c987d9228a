//! `GET /admin/v1/lanes` and `/lanes/{signer}`: the ones in trouble first, and the ladder of one signer.

use super::State;
use crate::http::problem::{Kind, Problem, ProblemBody};
use crate::operator::{explain_lane, lanes};
use actix_web::HttpResponse;
use actix_web::web::Path;
use entity::values::Address;

#[utoipa::path(
    get, path = "/admin/v1/lanes", tag = "operators", operation_id = "listLanes", security(("admin_token" = [])),
    responses(
        (status = 200, description = "every lane, the ones in trouble first", body = serde_json::Value),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn list(state: State) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(lanes::list(&state.desk).await?))
}

#[utoipa::path(
    get, path = "/admin/v1/lanes/{signer}", tag = "operators", operation_id = "explainLane", security(("admin_token" = [])),
    params(("signer" = String, Path, description = "address of the signer")),
    responses(
        (status = 200, description = "the ladder of nonces of a signer, and what it waits for", body = serde_json::Value),
        (status = 404, description = "there is none", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn get(state: State, signer: Path<String>) -> Result<HttpResponse, Problem> {
    let signer: Address = signer.parse().map_err(|_| Problem::new(Kind::NotFound, "a lane is named by the address of its signer"))?;
    Ok(HttpResponse::Ok().json(explain_lane::explain(&state.desk, signer).await?))
}
