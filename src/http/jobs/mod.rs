//! Answers for jobs: submitting one or many, reading, listing and cancelling. One file a verb; `view` is their common answer.

pub mod batch;
pub mod cancel;
pub mod get;
pub mod list;
pub mod submit;
pub mod view;

use super::problem::{Kind, Problem};
use crate::clock::Clock;
use crate::store::jobs::JobView;
use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, ETAG};
use actix_web::{HttpResponse, HttpResponseBuilder};
use entity::ids::JobId;
use uuid::{NoContext, Timestamp, Uuid};
use view::Shown;

fn missing() -> Problem {
    Problem::new(Kind::NotFound, "there is no such job")
}

/// The job that a path names. What is no id is no job either.
fn id_of(text: &str) -> Result<JobId, Problem> {
    text.parse().map_err(|_| missing())
}

/// A new identity, from which the time of acceptance can be read.
fn new_id(clock: &dyn Clock) -> JobId {
    let now = clock.now();
    let seconds = u64::try_from(now.timestamp()).unwrap_or_default();
    JobId(Uuid::new_v7(Timestamp::from_unix(NoContext, seconds, now.timestamp_subsec_nanos())))
}

/// What every answer with one job carries.
fn answer(status: StatusCode, shown: &Shown) -> HttpResponseBuilder {
    let mut response = HttpResponse::build(status);
    response.content_type("application/json").insert_header((ETAG, shown.tag.clone())).insert_header((CACHE_CONTROL, "private, no-cache"));
    response
}

fn job_response(status: StatusCode, view: &JobView) -> Result<HttpResponse, Problem> {
    let shown = view::JobBody::from(view).shown(view.version)?;
    Ok(answer(status, &shown).body(shown.bytes))
}
