//! `GET /v1/jobs`: the jobs of a project, newest first, in pages.

use super::view::JobBody;
use crate::domain::submission::parse::FieldError;
use crate::http::auth::Caller;
use crate::http::problem::{Kind, Problem, ProblemBody};
use crate::http::{ListPage, Public};
use actix_web::web::{Data, Query};
use actix_web::{HttpRequest, HttpResponse};
use entity::ids::JobId;
use entity::states::JobState;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 200;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// Only jobs in this state.
    state: Option<String>,
    /// `next_cursor` of the page before; the other parameters must be the same.
    cursor: Option<String>,
    /// 1 to 200; 50 unless given.
    limit: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = JobPage)]
pub struct PageBody {
    pub jobs: Vec<JobBody>,
    /// Only when there is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// The last job of a page, and what the page was filtered by: a cursor of another list is refused instead of answering something.
fn cursor(last: JobId, project: &str, state: Option<JobState>) -> String {
    hex::encode([last.0.as_bytes().as_slice(), &filter(project, state)].concat())
}

fn filter(project: &str, state: Option<JobState>) -> [u8; 8] {
    let digest = Sha256::digest(format!("{project}\n{}", state.map_or("", JobState::as_str)));
    std::array::from_fn(|at| digest[at])
}

fn read_cursor(text: &str, project: &str, state: Option<JobState>) -> Result<JobId, Problem> {
    let bytes = hex::decode(text).unwrap_or_default();
    bytes
        .split_first_chunk::<16>()
        .filter(|(_, rest)| **rest == filter(project, state))
        .map(|(id, _)| JobId(Uuid::from_bytes(*id)))
        .ok_or_else(|| Problem::new(Kind::CursorInvalid, "the cursor is not one of this list"))
}

fn page(query: &ListQuery, project: String) -> Result<ListPage, Problem> {
    let fault = |pointer: &str, code, message| Problem::fields(vec![FieldError { pointer: pointer.into(), code, message }]);
    let state = match &query.state {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| {
            let known: Vec<&str> = JobState::all().into_iter().map(JobState::as_str).collect();
            fault("/state", "does-not-exist", format!("must be one of {}", known.join(", ")))
        })?),
    };
    let limit = query.limit.as_ref().map_or(Some(DEFAULT_LIMIT), |text| text.parse().ok()).filter(|limit| (1..=MAX_LIMIT).contains(limit));
    let limit = limit.ok_or_else(|| fault("/limit", "out-of-range", format!("must be from 1 to {MAX_LIMIT}")))?;
    let before = query.cursor.as_deref().map(|text| read_cursor(text, &project, state)).transpose()?;
    Ok(ListPage { project, state, before, limit })
}

#[utoipa::path(
    get, path = "/v1/jobs", tag = "jobs", operation_id = "listJobs", security(("api_key" = [])), params(ListQuery),
    responses(
        (status = 200, description = "a page, newest first", body = PageBody),
        (status = 400, description = "a parameter is not valid", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid key", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
        (status = 504, description = "the database took too long", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn list(caller: Caller, request: HttpRequest, state: Data<Public>) -> Result<HttpResponse, Problem> {
    let query = Query::<ListQuery>::from_query(request.query_string())
        .map_err(|_| Problem::new(Kind::InvalidRequest, "the parameters are state, cursor and limit, each at most once"))?;
    let page = page(&query, caller.project)?;
    // One more than asked for tells whether there is more.
    let mut views = state.list.ask(ListPage { limit: page.limit + 1, ..page.clone() }).await?;
    let shown = usize::try_from(page.limit).unwrap_or(usize::MAX);
    let more = views.len() > shown;
    views.truncate(shown);
    let next_cursor = views.last().filter(|_| more).map(|last| cursor(last.id, &page.project, page.state));
    Ok(HttpResponse::Ok().json(PageBody { jobs: views.iter().map(JobBody::from).collect(), next_cursor }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_good_for_its_own_list_only() {
        let last = JobId(Uuid::from_u128(7));
        let text = cursor(last, "alpha", Some(JobState::Dead));
        assert_eq!(read_cursor(&text, "alpha", Some(JobState::Dead)).unwrap(), last);
        for (project, state) in [("alpha", None), ("beta", Some(JobState::Dead)), ("alpha", Some(JobState::Queued))] {
            assert_eq!(read_cursor(&text, project, state).unwrap_err().kind(), Kind::CursorInvalid);
        }
        for text in ["", "zz", &text[..40], &format!("{text}00")] {
            assert_eq!(read_cursor(text, "alpha", Some(JobState::Dead)).unwrap_err().kind(), Kind::CursorInvalid, "{text}");
        }
    }

    #[test]
    fn a_page_has_at_most_200_jobs() {
        let limit = |text: Option<&str>| {
            page(&ListQuery { limit: text.map(Into::into), ..ListQuery::default() }, "alpha".into()).ok().map(|page| page.limit)
        };
        assert_eq!((limit(None), limit(Some("1")), limit(Some("200"))), (Some(50), Some(1), Some(200)));
        for text in ["0", "201", "-1", "", "ten"] {
            assert_eq!(limit(Some(text)), None, "{text}");
        }
    }
}
