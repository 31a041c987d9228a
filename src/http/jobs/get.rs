//! `GET /v1/jobs/{id}`: one job, at once or after its next change.

use super::view::JobBody;
use super::{answer, id_of, missing};
use crate::http::Public;
use crate::http::auth::Caller;
use crate::http::problem::{Problem, ProblemBody};
use crate::store::jobs::JobView;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderMap, HeaderName, IF_NONE_MATCH};
use actix_web::web::{Data, Path};
use actix_web::{HttpRequest, HttpResponse};
use entity::ids::JobId;
use std::time::Duration;

const LONGEST_WAIT: u64 = 60;
const PREFER: HeaderName = HeaderName::from_static("prefer");

fn values(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    headers.get_all(name).filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(',')).map(str::trim)
}

/// The seconds of `Prefer: wait=N`. What cannot be read is no preference.
fn wait_of(headers: &HeaderMap) -> Option<u64> {
    let mut wishes = values(headers, PREFER).filter_map(|wish| wish.split_once('='));
    let wait = wishes.find(|(name, _)| name.trim().eq_ignore_ascii_case("wait"))?.1;
    wait.trim().trim_matches('"').parse::<u64>().ok().map(|seconds| seconds.min(LONGEST_WAIT))
}

/// Whether the client has this tag. Tags are compared weakly, as the header demands.
fn has(headers: &HeaderMap, tag: &str) -> bool {
    values(headers, IF_NONE_MATCH).any(|seen| seen == "*" || seen.trim_start_matches("W/") == tag)
}

async fn find(state: &Public, id: JobId, caller: &Caller) -> Result<JobView, Problem> {
    state.find.ask((id, caller.project.clone())).await?.ok_or_else(missing)
}

#[utoipa::path(
    get, path = "/v1/jobs/{id}", tag = "jobs", operation_id = "getJob", security(("api_key" = [])),
    params(
        ("id" = String, Path, description = "of the job"),
        ("If-None-Match" = Option<String>, Header, description = "the ETag that the client has"),
        ("Prefer" = Option<String>, Header, description = "`wait=20`: answer after the next change, or after so many seconds (at most 60)"),
    ),
    responses(
        (status = 200, description = "the job", body = JobBody, headers(("ETag" = String))),
        (status = 304, description = "the client has it"),
        (status = 401, description = "no valid key", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "no job of this project", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
        (status = 504, description = "the database took too long", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn get(caller: Caller, id: Path<String>, request: HttpRequest, state: Data<Public>) -> Result<HttpResponse, Problem> {
    let headers = request.headers();
    let id = id_of(&id)?;
    let mut view = find(&state, id, &caller).await?;
    let mut shown = JobBody::from(&view).shown(view.version)?;
    let wait = wait_of(headers);
    if let Some(seconds) = wait {
        let seen = !headers.contains_key(IF_NONE_MATCH) || has(headers, &shown.tag);
        // A final state is left by nothing: there is no next change.
        if seen && seconds > 0 && !view.state.is_final() {
            state.waiters.changed(id, view.version, Duration::from_secs(seconds)).await;
            view = find(&state, id, &caller).await?;
            shown = JobBody::from(&view).shown(view.version)?;
        }
    }
    let fresh = has(headers, &shown.tag);
    let mut response = answer(if fresh { StatusCode::NOT_MODIFIED } else { StatusCode::OK }, &shown);
    if let Some(seconds) = wait {
        response.insert_header(("Preference-Applied", format!("wait={seconds}")));
    }
    Ok(if fresh { response.finish() } else { response.body(shown.bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &str, texts: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for text in texts {
            headers.append(name.parse().unwrap(), text.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_wish_to_wait_is_read_wherever_it_stands() {
        for (text, expected) in [
            ("wait=20", Some(20)),
            ("respond-async, wait=5", Some(5)),
            ("Wait = \"7\"", Some(7)),
            ("wait=3600", Some(LONGEST_WAIT)),
            ("wait", None),
            ("wait=-1", None),
            ("wait=soon", None),
            ("", None),
        ] {
            assert_eq!(wait_of(&headers("prefer", &[text])), expected, "{text}");
        }
        assert_eq!(wait_of(&headers("prefer", &["respond-async", "wait=4"])), Some(4));
    }

    #[test]
    fn tags_are_compared_weakly_and_in_lists() {
        for texts in [&["\"1-a\""][..], &["W/\"1-a\""], &["\"x\", \"1-a\""], &["\"x\"", "\"1-a\""], &["*"]] {
            assert!(has(&headers("if-none-match", texts), "\"1-a\""), "{texts:?}");
        }
        for texts in [&["\"1-b\""][..], &["1-a"], &[]] {
            assert!(!has(&headers("if-none-match", texts), "\"1-a\""), "{texts:?}");
        }
    }
}
