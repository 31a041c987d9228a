//! `POST /admin/v1/jobs/{id}/cancel`: cancels a job, or has a no-op use its nonce up. Who does it and why is written down in the same statement.

use super::id_of;
use crate::domain::submission::parse::FieldError;
use crate::http::Json;
use crate::http::admin::{State, operator_of};
use crate::http::problem::{Kind, Problem};
use crate::operator::cancel::{self, Cancelled};
use actix_web::web::Path;
use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Value, json};

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
