//! `GET /admin/v1/operators/log` and `/operators/verify`: who did what and why, and whether the log is as it was written.

use super::State;
use super::query::Query;
use crate::http::problem::{Problem, ProblemBody};
use crate::operator::log::{self, Filter, PAGE_MAX};
use actix_web::{HttpRequest, HttpResponse};

#[utoipa::path(
    get, path = "/admin/v1/operators/log", tag = "operators", operation_id = "listOperatorActions", security(("admin_token" = [])),
    params(
        ("operator" = Option<String>, Query, description = "of this operator"),
        ("action" = Option<String>, Query, description = "of this kind, such as jobs.replay"),
        ("target" = Option<String>, Query, description = "to this job, worker, signer or pool"),
        ("cursor" = Option<String>, Query, description = "next_cursor of the page before"),
        ("limit" = Option<u32>, Query, description = "1 to 200; 50 unless given"),
    ),
    responses(
        (status = 200, description = "acts of operators, newest first: items, and the next_cursor of a page that is not the last", body = serde_json::Value),
        (status = 400, description = "a parameter is not valid", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn list(state: State, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let mut asked = Query::of(&request);
    let (operator, action, target) = (asked.text("operator"), asked.text("action"), asked.text("target"));
    let cursor = asked.value("cursor", "the next_cursor of the page before");
    let limit = asked.limit(PAGE_MAX);
    let filter = Filter { operator: operator.as_deref(), action: action.as_deref(), target: target.as_deref(), cursor, limit };
    Ok(HttpResponse::Ok().json(log::list(&state.desk, &asked.done(filter)?).await?))
}

#[utoipa::path(
    get, path = "/admin/v1/operators/verify", tag = "operators", operation_id = "verifyOperatorLog", security(("admin_token" = [])),
    params(("kept" = Option<String>, Query, description = "a hash that the log has told earlier")),
    responses(
        (status = 200, description = "how many rows there are, the hash of the newest, the first that is not as it was written (`broken`), and whether `kept` is of one of them (`known`)", body = serde_json::Value),
        (status = 400, description = "a parameter is not valid", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn verify(state: State, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let mut asked = Query::of(&request);
    let kept = asked.value("kept", "a hash of 32 bytes as 0x and 64 digits");
    let kept = asked.done(kept)?;
    Ok(HttpResponse::Ok().json(log::verify(&state.desk, kept).await?))
}
