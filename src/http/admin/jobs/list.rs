//! `GET /admin/v1/jobs`: newest first, in pages.

use crate::http::admin::{State, limit, query};
use crate::http::problem::Problem;
use crate::operator::jobs::{self, Filter, PAGE_MAX};
use actix_web::{HttpRequest, HttpResponse};
use entity::ids::JobId;
use entity::states::JobState;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    project: Option<String>,
    state: Option<JobState>,
    cursor: Option<JobId>,
    limit: Option<u32>,
}

pub async fn list(state: State, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let asked: Query = query(&request)?;
    let filter =
        Filter { project: asked.project.as_deref(), state: asked.state, cursor: asked.cursor, limit: limit(asked.limit, PAGE_MAX)? };
    Ok(HttpResponse::Ok().json(jobs::list(&state.desk, &filter).await?))
}
