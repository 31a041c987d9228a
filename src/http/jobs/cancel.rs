//! `POST /v1/jobs/{id}/cancel`: cancels a job; one that owns a nonce by a no-op of that nonce, if it is mined first.

use super::view::JobBody;
use super::{id_of, job_response, missing};
use crate::http::Public;
use crate::http::auth::Caller;
use crate::http::body::Nothing;
use crate::http::problem::{Problem, ProblemBody};
use crate::store::jobs::Cancelled;
use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};

#[utoipa::path(
    post, path = "/v1/jobs/{id}/cancel", tag = "jobs", operation_id = "cancelJob", security(("api_key" = [])),
    params(("id" = String, Path, description = "of the job")),
    responses(
        (status = 200, description = "the job is cancelled", body = JobBody),
        (status = 202, description = "asked for: an execution under way will get no nonce; a job that owns one has it used up by a priced no-op of the same nonce, and whichever is mined decides", body = JobBody),
        (status = 400, description = "a body that says something", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid key", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "no job of this project", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "the job has ended", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
        (status = 504, description = "the database took too long", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn cancel(caller: Caller, id: Path<String>, state: Data<Public>, _: Nothing) -> Result<HttpResponse, Problem> {
    let id = id_of(&id)?;
    let status = match state.cancel.ask((id, caller.project.clone())).await? {
        Cancelled::Done => StatusCode::OK,
        Cancelled::Asked | Cancelled::Noop => StatusCode::ACCEPTED,
        Cancelled::TooLate(state) => return Err(Problem::not_cancellable(state)),
        Cancelled::Unknown => return Err(missing()),
    };
    let view = state.find.ask((id, caller.project)).await?.ok_or_else(missing)?;
    job_response(status, &view)
}
