//! `POST /v1/jobs/batch`: accepts many jobs in one commit, and answers for each.

use super::submit::{self, KEY_RULE, NewJobBody, is_key};
use super::view::JobBody;
use crate::actors::intake;
use crate::domain::submission::NewJob;
use crate::domain::submission::parse::FieldError;
use crate::http::Public;
use crate::http::access::RequestId;
use crate::http::auth::Caller;
use crate::http::body::Json;
use crate::http::problem::{Problem, ProblemBody};
use actix_web::HttpResponse;
use actix_web::web::Data;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

const MOST: usize = 500;

/// For the document alone.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = NewBatch)]
pub struct BatchBody {
    #[schema(min_items = 1, max_items = 500)]
    pub jobs: Vec<BatchItemBody>,
}

/// For the document alone.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = NewBatchItem)]
pub struct BatchItemBody {
    /// 1 to 255 printable ASCII characters.
    pub idempotency_key: String,
    #[serde(flatten)]
    pub job: NewJobBody,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BatchResults)]
pub struct ResultsBody {
    /// In the order of the request.
    pub results: Vec<ResultBody>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BatchResult)]
pub struct ResultBody {
    /// What the job alone would have been answered with: 202, 200 or the status of the problem.
    pub status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<ProblemBody>,
}

impl ResultBody {
    fn refused(problem: &Problem, id: &RequestId) -> Self {
        Self { status: problem.kind().status().as_u16(), job: None, problem: Some(problem.body(&id.0)) }
    }
}

/// The items of a batch.
fn items(body: Value) -> Result<Vec<Value>, Problem> {
    let fault = |pointer: &str, code, message: String| Problem::fields(vec![FieldError { pointer: pointer.into(), code, message }]);
    let Value::Object(mut fields) = body else { return Err(fault("", "wrong-type", "must be a JSON object".into())) };
    let jobs = fields.remove("jobs");
    if let Some(name) = fields.keys().next() {
        return Err(fault(&format!("/{}", name.replace('~', "~0").replace('/', "~1")), "unknown-field", "no such field".into()));
    }
    match jobs {
        Some(Value::Array(jobs)) if (1..=MOST).contains(&jobs.len()) => Ok(jobs),
        Some(Value::Array(jobs)) => Err(fault("/jobs", "out-of-range", format!("a batch has 1 to {MOST} jobs, not {}", jobs.len()))),
        Some(_) => Err(fault("/jobs", "wrong-type", "must be a JSON array".into())),
        None => Err(fault("/jobs", "required", "jobs is required".into())),
    }
}

/// The key of an item, which is no field of its job.
fn take_key(item: &mut Value, at: usize) -> Result<String, Problem> {
    let key = item.as_object_mut().and_then(|fields| fields.remove("idempotency_key"));
    let fault = |code, message: &str| {
        let pointer = format!("/jobs/{at}/idempotency_key");
        Err(Problem::fields(vec![FieldError { pointer, code, message: message.into() }]))
    };
    match key {
        Some(Value::String(key)) if is_key(&key) => Ok(key),
        Some(Value::String(_)) => fault("malformed", KEY_RULE),
        Some(_) => fault("wrong-type", "must be a JSON string"),
        None => fault("required", "idempotency_key is required"),
    }
}

impl Public {
    fn read_item(&self, mut item: Value, at: usize) -> Result<(String, NewJob), Problem> {
        let key = take_key(&mut item, at)?;
        Ok((key, self.read(&item, &format!("/jobs/{at}"))?))
    }
}

#[utoipa::path(
    post, path = "/v1/jobs/batch", tag = "jobs", operation_id = "submitJobs", request_body = BatchBody, security(("api_key" = [])),
    responses(
        (status = 200, description = "read; what became of each job is in its result", body = ResultsBody),
        (status = 400, description = "no batch, or too many jobs", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid key", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "more than 256 KiB", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "not JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "nothing accepted now", body = ProblemBody, content_type = "application/problem+json"),
        (status = 504, description = "the database took too long", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn batch(caller: Caller, id: RequestId, state: Data<Public>, body: Json) -> Result<HttpResponse, Problem> {
    let items = items(body.0)?;
    let read: Vec<_> = items.into_iter().enumerate().map(|(at, item)| state.read_item(item, at)).collect();
    let submissions: Vec<_> = read.iter().flatten().map(|(key, job)| state.submission(&caller.project, key.clone(), job.clone())).collect();
    let accepted = if submissions.is_empty() { Vec::new() } else { state.intake.ask(submissions).await? };
    let mut accepted = accepted.into_iter();
    let results = read
        .into_iter()
        .map(|item| {
            let done = item.and_then(|(_, job)| {
                let (job_id, new) = submit::outcome(accepted.next().unwrap_or(Err(intake::Error::Lost)))?;
                Ok(ResultBody { status: if new { 202 } else { 200 }, job: Some(JobBody::accepted(job_id, &job)), problem: None })
            });
            done.unwrap_or_else(|problem| ResultBody::refused(&problem, &id))
        })
        .collect();
    Ok(HttpResponse::Ok().json(ResultsBody { results }))
}
