//! `POST /admin/v1/jobs/{id}/replay` and `resolve`, and `/jobs/replay` for all that a filter means: in a dry run what that is, otherwise
//! a piece of it and where the next one begins.

use super::cancel::{Reason, reason};
use super::id_of;
use crate::http::Json;
use crate::http::admin::{State, operator_of};
use crate::http::problem::{Kind, Problem, ProblemBody};
use crate::operator::replay::{self, AT_ONCE, Filter, Replayed, Resolved, told};
use actix_web::web::Path;
use actix_web::{HttpRequest, HttpResponse};
use chrono::{DateTime, Utc};
use entity::states::JobKind;
use serde::Deserialize;
use serde_json::{Value, json};

/// Which dead jobs are meant; those that somebody has dealt with never are.
#[derive(Clone, Debug, Default, Deserialize, serde::Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DeadFilter)]
pub struct FilterBody {
    #[serde(default)]
    #[schema(nullable = false)]
    project: Option<String>,
    #[serde(default)]
    #[schema(nullable = false)]
    kind: Option<String>,
    #[serde(default)]
    #[schema(nullable = false)]
    chain_id: Option<i64>,
    #[serde(default)]
    #[schema(nullable = false)]
    pool: Option<String>,
    /// The type of the error that they died of.
    #[serde(default)]
    #[schema(nullable = false)]
    error: Option<String>,
    /// When they died; RFC 3339.
    #[serde(default)]
    #[schema(nullable = false)]
    since: Option<DateTime<Utc>>,
    /// Needed where something is changed: jobs that die later are not meant. A dry run tells the one of now.
    #[serde(default)]
    #[schema(nullable = false)]
    until: Option<DateTime<Utc>>,
}

#[derive(Clone, Debug, Deserialize, serde::Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ReplayMany)]
pub struct ManyBody {
    #[serde(default)]
    filter: FilterBody,
    /// Say what is meant, and change nothing.
    #[serde(default)]
    dry_run: bool,
    /// The next_cursor of the answer before.
    #[serde(default)]
    #[schema(nullable = false)]
    cursor: Option<String>,
    /// Most jobs of this piece: 1 to 1000; 100 unless given.
    #[serde(default)]
    #[schema(nullable = false)]
    limit: Option<usize>,
    reason: String,
}

impl TryFrom<FilterBody> for Filter {
    type Error = Problem;

    fn try_from(body: FilterBody) -> Result<Self, Problem> {
        let FilterBody { project, kind, chain_id, pool, error, since, until } = body;
        let unknown = |_| Problem::new(Kind::InvalidRequest, "filter.kind is no kind of job");
        let kind: Option<JobKind> = kind.map(|word| word.parse()).transpose().map_err(unknown)?;
        Ok(Self { project, kind, chain_id, pool, error, since, until })
    }
}

#[utoipa::path(
    post, path = "/admin/v1/jobs/{id}/replay", tag = "operators", operation_id = "replayJob", security(("admin_token" = [])), request_body = Reason,
    params(("id" = String, Path, description = "of the job"), ("X-Operator-Id" = String, Header, description = "who does this")),
    responses(
        (status = 200, description = "it is queued again, with a whole budget of attempts", body = serde_json::Value),
        (status = 400, description = "no operator or no reason", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "there is none", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "it is not dead, or its nonce may still take effect", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn replay(state: State, id: Path<String>, request: HttpRequest, body: Json) -> Result<HttpResponse, Problem> {
    let (id, operator) = (id_of(&id)?, operator_of(&request)?);
    let outcome = replay::replay(&state.desk, &[id], (&operator, reason(&body.0)?)).await?.pop();
    match outcome {
        Some(Replayed::Done) => Ok(HttpResponse::Ok().json(json!({ "id": id, "outcome": "replayed" }))),
        Some(Replayed::Unknown) | None => Err(Problem::new(Kind::NotFound, format!("job {id} does not exist"))),
        Some(refused) => Err(Problem::new(Kind::Conflict, told(id, refused).1)),
    }
}

#[utoipa::path(
    post, path = "/admin/v1/jobs/{id}/resolve", tag = "operators", operation_id = "resolveJob", security(("admin_token" = [])), request_body = Reason,
    params(("id" = String, Path, description = "of the job"), ("X-Operator-Id" = String, Header, description = "who does this")),
    responses(
        (status = 200, description = "its death is dealt with (`resolved`), or was before (`already`); the job is kept", body = serde_json::Value),
        (status = 400, description = "no operator or no reason", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "there is none", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "it is not dead", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn resolve(state: State, id: Path<String>, request: HttpRequest, body: Json) -> Result<HttpResponse, Problem> {
    let (id, operator) = (id_of(&id)?, operator_of(&request)?);
    let outcome = replay::resolve(&state.desk, &[id], (&operator, reason(&body.0)?)).await?.pop();
    let done = |outcome| Ok(HttpResponse::Ok().json(json!({ "id": id, "outcome": outcome })));
    match outcome {
        Some(Resolved::Done) => done("resolved"),
        Some(Resolved::Already) => done("already"),
        Some(Resolved::NotDead(state)) => {
            Err(Problem::new(Kind::Conflict, format!("job {id} is {state}: only what is dead waits for somebody")))
        }
        Some(Resolved::Unknown) | None => Err(Problem::new(Kind::NotFound, format!("job {id} does not exist"))),
    }
}

#[utoipa::path(
    post, path = "/admin/v1/jobs/replay", tag = "operators", operation_id = "replayJobs", security(("admin_token" = [])), request_body = ManyBody,
    params(("X-Operator-Id" = String, Header, description = "who does this")),
    responses(
        (status = 200, description = "in a dry run the plan: `jobs`, `more`, `groups`, `until`; otherwise what became of each job, and the `next_cursor` of a piece that is not the last", body = serde_json::Value),
        (status = 400, description = "no operator, no reason, or a field that is not valid", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid token", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "no ADMIN_TOKEN is configured", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn many(state: State, request: HttpRequest, body: Json) -> Result<HttpResponse, Problem> {
    let operator = operator_of(&request)?;
    let asked: ManyBody =
        serde_json::from_value(body.0).map_err(|error| Problem::new(Kind::InvalidRequest, format!("the body cannot be read: {error}")))?;
    let filter = Filter::try_from(asked.filter)?;
    if asked.dry_run {
        return Ok(HttpResponse::Ok().json(replay::plan(&state.desk, &filter).await?));
    }
    let limit = asked.limit.unwrap_or(100);
    if !(1..=AT_ONCE).contains(&limit) {
        return Err(Problem::new(Kind::InvalidRequest, format!("limit must be from 1 to {AT_ONCE}")));
    }
    let step = replay::step(&state.desk, &filter, asked.cursor.as_deref(), limit, (&operator, &asked.reason)).await?;
    let item = |(id, outcome)| {
        let (word, detail) = told(id, outcome);
        json!({ "id": id, "outcome": word, "detail": detail })
    };
    let items: Vec<Value> = step.outcomes.into_iter().map(item).collect();
    Ok(HttpResponse::Ok().json(json!({ "items": items, "next_cursor": step.next_cursor })))
}
