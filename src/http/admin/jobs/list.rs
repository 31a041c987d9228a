//! `GET /admin/v1/jobs`: newest first, in pages.

use crate::http::admin::State;
use crate::http::admin::query::Query;
use crate::http::problem::{Problem, ProblemBody};
use crate::operator::jobs::{self, Filter, PAGE_MAX};
use actix_web::{HttpRequest, HttpResponse};
use entity::states::JobState;

#[utoipa::path(
    get, path = "/admin/v1/jobs", tag = "operators", operation_id = "listAllJobs", security(("admin_token" = [])),
    params(
        ("project" = Option<String>, Query, description = "of this project"),
        ("state" = Option<String>, Query, description = "in this state"),
        ("cursor" = Option<String>, Query, description = "next_cursor of the page before"),
        ("limit" = Option<u32>, Query, description = "1 to 200; 50 unless given"),
    ),
    responses(
        (status = 200, description = "jobs of every project, newest first: items, and the next_cursor of a page that is not the last", body = serde_json::Value),
        (status = 400, description = "a parameter is not valid", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn list(state: State, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let mut asked = Query::of(&request);
    let project = asked.text("project");
    let states = format!("one of {}", JobState::all().into_iter().map(JobState::as_str).collect::<Vec<_>>().join(", "));
    let wanted = asked.value("state", &states);
    let cursor = asked.value("cursor", "the next_cursor of the page before");
    let limit = asked.limit(PAGE_MAX);
    let filter = asked.done(Filter { project: project.as_deref(), state: wanted, cursor, limit })?;
    Ok(HttpResponse::Ok().json(jobs::list(&state.desk, &filter).await?))
}
