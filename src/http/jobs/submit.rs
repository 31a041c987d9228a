//! `POST /v1/jobs`: accepts one job under an idempotency key.

use super::view::JobBody;
use super::{answer, new_id};
use crate::actors::intake;
use crate::domain::submission::NewJob;
use crate::domain::submission::parse::{self, Rules};
use crate::http::Public;
use crate::http::auth::Caller;
use crate::http::body::Json;
use crate::http::problem::{Kind, Problem, ProblemBody};
use crate::store::intake::{Accepted, Submission};
use crate::telemetry::metrics::IDEMPOTENCY;
use actix_web::dev::Payload;
use actix_web::http::StatusCode;
use actix_web::http::header::LOCATION;
use actix_web::web::Data;
use actix_web::{FromRequest, HttpRequest, HttpResponse};
use entity::ids::JobId;
use serde::Serialize;
use std::future::{Ready, ready};
use utoipa::ToSchema;

const LONGEST_KEY: usize = 255;

/// For the document alone: `domain::submission::parse` reads the body, so that all its faults are reported at once.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = NewJob)]
pub struct NewJobBody {
    /// `contract_call` or `transfer`.
    pub kind: String,
    pub chain_id: i64,
    /// Whose signers send it, such as `local:relayer`.
    pub pool: String,
    /// With EIP-55 checksum, or in one case.
    #[schema(pattern = "^0x[0-9a-fA-F]{40}$")]
    pub to: String,
    /// Of a contract call, unless `function` is given.
    #[schema(nullable = false, pattern = "^0x([0-9a-fA-F]{2})*$")]
    pub data: Option<String>,
    /// Such as `transfer(address,uint256)`, instead of `data`.
    #[schema(nullable = false)]
    pub function: Option<String>,
    /// Of `function`; amounts as decimal strings, bytes and addresses as 0x-hex.
    #[schema(nullable = false, value_type = Option<Vec<Object>>)]
    pub args: Option<Vec<serde_json::Value>>,
    /// In wei, without leading zeros, at most 2^256-1. Required of a transfer; 0 of a contract call unless given. A JSON number is refused.
    #[schema(nullable = false, pattern = "^(0|[1-9][0-9]{0,77})$")]
    pub value: Option<String>,
    /// Estimated unless given; from what the call costs at least to 16777216.
    #[schema(nullable = false, pattern = "^(0|[1-9][0-9]{0,77})$")]
    pub gas_limit: Option<String>,
    /// 1 (first) to 100 (last); 50 unless given.
    #[schema(nullable = false, minimum = 1, maximum = 100)]
    pub priority: Option<i16>,
    /// RFC 3339, at most a year from now.
    #[schema(nullable = false, format = DateTime)]
    pub run_at: Option<String>,
    /// At most 16 KiB.
    #[schema(nullable = false, value_type = Option<Object>)]
    pub metadata: Option<serde_json::Value>,
}

/// The header `Idempotency-Key`.
#[derive(Debug)]
pub struct IdempotencyKey(pub String);

impl FromRequest for IdempotencyKey {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let mut given = request.headers().get_all("idempotency-key");
        ready(match (given.next(), given.next()) {
            (None, _) => Err(Problem::new(Kind::KeyMissing, "send Idempotency-Key: a text of your own that names this job")),
            (Some(_), Some(_)) => Err(Problem::new(Kind::KeyInvalid, "one Idempotency-Key only")),
            (Some(key), None) => match key.to_str().ok().filter(|key| is_key(key)) {
                Some(key) => Ok(Self(key.into())),
                None => Err(Problem::new(Kind::KeyInvalid, KEY_RULE)),
            },
        })
    }
}

pub(super) const KEY_RULE: &str = "an idempotency key has 1 to 255 printable ASCII characters";

pub(super) fn is_key(key: &str) -> bool {
    !key.trim().is_empty() && key.len() <= LONGEST_KEY && key.bytes().all(|c| (b' '..=b'~').contains(&c))
}

impl Public {
    pub(super) fn read(&self, body: &serde_json::Value, prefix: &str) -> Result<NewJob, Problem> {
        let offer = self.offer.get();
        let rules = Rules { chains: &offer.chains, pools: &offer.pools, now: self.clock.now() };
        parse::parse(body, &rules, prefix).map_err(Problem::fields)
    }

    pub(super) fn submission(&self, project: &str, key: String, job: NewJob) -> Submission {
        Submission { id: new_id(self.clock.as_ref()), project: project.into(), key, fingerprint: job.fingerprint(), job }
    }
}

/// What became of one submission: its job, and whether it is new.
///
/// Equal fingerprints mean that the first request asked for the same, so its answer is known without reading anything.
pub(super) fn outcome(accepted: Result<Accepted, intake::Error>) -> Result<(JobId, bool), Problem> {
    match accepted {
        Ok(Accepted::New(id)) => Ok((id, true)),
        Ok(Accepted::Replayed(id)) => Ok((id, false)),
        Ok(Accepted::Mismatch) => {
            Err(Problem::new(Kind::KeyMismatch, "another payload was accepted under this key: use a new key for new work"))
        }
        Err(error) => {
            if matches!(error, intake::Error::InProgress) {
                IDEMPOTENCY.add(1, &["in_progress"]);
            }
            Err(error.into())
        }
    }
}

#[utoipa::path(
    post, path = "/v1/jobs", tag = "jobs", operation_id = "submitJob", request_body = NewJobBody, security(("api_key" = [])),
    params(("Idempotency-Key" = String, Header, description = "1 to 255 printable ASCII characters that name this job")),
    responses(
        (status = 202, description = "accepted and committed", body = JobBody, headers(("Location" = String), ("ETag" = String))),
        (status = 200, description = "was accepted before under this key: the answer of then", body = JobBody, headers(("Idempotency-Replayed" = String))),
        (status = 400, description = "not valid", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "no valid key", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "the first request under this key is in progress", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "more than 256 KiB", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "not JSON", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "the key was used for another payload", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "not accepted now", body = ProblemBody, content_type = "application/problem+json"),
        (status = 504, description = "the database took too long", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub async fn submit(caller: Caller, key: IdempotencyKey, state: Data<Public>, body: Json) -> Result<HttpResponse, Problem> {
    let job = state.read(&body.0, "")?;
    let submission = state.submission(&caller.project, key.0, job.clone());
    let accepted = state.intake.ask(vec![submission]).await?.pop().unwrap_or(Err(intake::Error::Lost));
    let (id, new) = outcome(accepted)?;
    let shown = JobBody::accepted(id, &job).shown(1)?;
    let mut response = answer(if new { StatusCode::ACCEPTED } else { StatusCode::OK }, &shown);
    response.insert_header((LOCATION, format!("/v1/jobs/{id}")));
    if !new {
        response.insert_header(("Idempotency-Replayed", "true"));
    }
    Ok(response.body(shown.bytes))
}
