//! `POST /admin/v1/jobs/{id}/cancel`: cancels a job, or has a no-op use its nonce up. Who does it and why is written down in the same statement.

use super::id_of;
use crate::domain::submission::parse::FieldError;
use crate::http::Json;
use crate::http::admin::{State, operator_of};
use crate::http::problem::{Kind, Problem, ProblemBody};
use crate::operator::cancel::{self, Cancelled};
use actix_web::web::Path;
use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Value, json};

/// For the document alone.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub struct Reason {
    /// Why; it is written down with the act.
    pub reason: String,
}

#[utoipa::path(
    post, path = "/admin/v1/jobs/{id}/cancel", tag = "operators", operation_id = "cancelAnyJob", security(("admin_token" = [])),
    request_body = Reason,
    params(("id" = String, Path, description = "of the job"), ("X-Operator-Id" = String, Header, description = "who does this")),
    responses(
        (status = 200, description = "cancelled at once (`outcome` is `cancelled`)", body = serde_json::Value),
        (status = 202, description = "`asked`: an execution under way will get no nonce; `noop`: its nonce is used up by a no-op, if that is mined first", body = serde_json::Value),
        (status = 400, description = "no operator or no reason", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "the job has ended", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "there is none", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn cancel(state: State, id: Path<String>, request: HttpRequest, body: Json) -> Result<HttpResponse, Problem> {
    let (id, operator, reason) = (id_of(&id)?, operator_of(&request)?, reason(&body.0)?);
    match cancel::cancel(&state.desk, id, None, Some((&operator, reason))).await? {
        Cancelled::Done => Ok(HttpResponse::Ok().json(json!({ "id": id, "outcome": "cancelled" }))),
        Cancelled::Noop => Ok(HttpResponse::Accepted().json(json!({ "id": id, "outcome": "noop" }))),
        Cancelled::Asked => Ok(HttpResponse::Accepted().json(json!({ "id": id, "outcome": "asked" }))),
        Cancelled::TooLate(state) => Err(Problem::not_cancellable(state)),
        Cancelled::Unknown => Err(Problem::new(Kind::NotFound, format!("job {id} does not exist"))),
    }
}

/// The reason of `{"reason": "…"}`.
pub(in crate::http::admin) fn reason(body: &Value) -> Result<&str, Problem> {
    let fault = |pointer: String, code, message: &str| Problem::fields(vec![FieldError { pointer, code, message: message.into() }]);
    let Some(fields) = body.as_object() else { return Err(fault(String::new(), "wrong-type", "must be an object with a reason")) };
    if let Some(unknown) = fields.keys().find(|name| *name != "reason") {
        return Err(fault(format!("/{unknown}"), "unknown-field", "is not known"));
    }
    let reason = fields.get("reason").and_then(Value::as_str).map(str::trim).filter(|reason| !reason.is_empty());
    reason.ok_or_else(|| fault("/reason".into(), "required", "must say why"))
}
